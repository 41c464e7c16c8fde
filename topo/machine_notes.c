/* SPDX-License-Identifier: BSD-3-Clause */
/* machine_notes.c - the remarks that `braid topo` prints below a machine's picture. */
#include <stdarg.h>
#include <stdio.h>

#include "topo/machine_int.h"

__attribute__((format(printf, 2, 3)))
static void add_note(struct braid_machine *m, const char *fmt, ...)
{
	va_list ap;

	if (m->n_notes == BRAID_MACHINE_NOTES)
		return;
	va_start(ap, fmt);
	vsnprintf(m->notes[m->n_notes++], BRAID_MACHINE_NOTE, fmt, ap);
	va_end(ap);
}

/* "GPU0, GPU1 and 6 more"; false if `is` holds for none. */
static bool name_all(const struct braid_machine *m, const char *kind, unsigned n,
		     bool (*is)(const struct braid_machine *m, unsigned i), char *ret, size_t len)
{
	enum { NAMED = 8 };
	unsigned found = 0;
	size_t used = 0;

	for (unsigned i = 0; i < n; i++) {
		if (is(m, i) && found++ < NAMED)
			used += (size_t)snprintf(ret + used, len - used, "%s%s%u",
						 found > 1 ? ", " : "", kind, i);
	}
	if (found > NAMED)
		snprintf(ret + used, len - used, " and %u more", found - NAMED);
	return found > 0;
}

static bool gpu_is_hidden(const struct braid_machine *m, unsigned i)
{
	return m->gpus[i].spot < 0 || braid_machine_is_hidden(m, m->gpus[i].spot);
}

static bool gpu_has_no_numa(const struct braid_machine *m, unsigned i)
{
	return m->gpus[i].spot >= 0 && m->spots[m->gpus[i].spot].numa < 0;
}

static bool nic_has_no_pci(const struct braid_machine *m, unsigned i)
{
	return m->nics[i].n_spots == 0;
}

static bool is_slowed(const struct braid_spot *s)
{
	return braid_machine_is_slower(s) || braid_machine_is_narrower(s);
}

static bool gpu_is_slowed(const struct braid_machine *m, unsigned i)
{
	return m->gpus[i].spot >= 0 && is_slowed(&m->spots[m->gpus[i].spot]);
}

static bool nic_is_slowed(const struct braid_machine *m, unsigned i)
{
	bool less = false;

	for (unsigned k = 0; k < m->nics[i].n_spots; k++)
		less |= is_slowed(&m->spots[m->nics[i].spots[k]]);
	return less;
}

void braid_machine_write_notes(struct braid_machine *m)
{
	char who[160];

	if (m->is_virtual)
		add_note(m, "this is a virtual machine: the PCI tree is of its hypervisor's "
			 "making");
	if (name_all(m, "GPU", m->n_gpus, gpu_is_hidden, who, sizeof(who)))
		add_note(m, "%s: no PCIe port is shown above, as where a hypervisor hides the "
			 "tree: what is near is not known", who);
	if (name_all(m, "GPU", m->n_gpus, gpu_has_no_numa, who, sizeof(who)))
		add_note(m, "%s: the NUMA node is not known", who);
	if (name_all(m, "NIC", m->n_nics, nic_has_no_pci, who, sizeof(who)))
		add_note(m, "%s: no PCI address", who);
	if (name_all(m, "NIC", m->n_nics, nic_is_slowed, who, sizeof(who)))
		add_note(m, "%s: the PCIe link is slower or narrower than the device can", who);
	if (name_all(m, "GPU", m->n_gpus, gpu_is_slowed, who, sizeof(who)))
		add_note(m, "%s: the PCIe link is slower or narrower than the device can; "
			 "slower is usual for a GPU that has nothing to do", who);
	if (m->direct[0])
		add_note(m, "%s: of NICs with Data Direct; GPU memory that goes there is as near "
			 "as these, and braid info tells which NIC's (PCI)", m->direct);
	if (m->left_out)
		add_note(m, "%u devices left out: more than this program has room for",
			 m->left_out);
}
