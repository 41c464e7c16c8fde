/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * machine.c - the tree of a machine: build it from what a reader found, sort it, tell distances.
 *
 * Every GPU and NIC has a chain of spots from the host bridge down, shared where the beginnings are
 * the same, and the distance of two devices is where their chains part.
 *
 * A hypervisor that hides the tree puts devices on the root bus.  Real GPUs are behind a port, so
 * a GPU without a port is `hidden`, as in a virtual machine any device without one.  If a hidden
 * device shares a host bridge with another one, that says nothing; only NUMA nodes count then.
 */
#include "topo/machine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/machine_int.h"

enum {
	CLASS_DISPLAY = 0x03,
	CLASS_ACCELERATOR = 0x12,
	VENDOR_NVIDIA = 0x10de,
	VENDOR_AMD = 0x1002,
};

static const struct {
	const char *name, *words;
} distances[BRAID_DISTANCES] = {
	[BRAID_DISTANCE_SELF] = {"X", "itself"},
	[BRAID_DISTANCE_NVL] = {"NVL", "through NVLink"},
	[BRAID_DISTANCE_PIX] = {"PIX", "through at most one PCIe switch"},
	[BRAID_DISTANCE_PXB] = {"PXB", "through several PCIe switches, not through the CPU"},
	[BRAID_DISTANCE_PHB] = {"PHB", "through a PCIe host bridge, so through the CPU"},
	[BRAID_DISTANCE_NODE] = {"NODE", "within a NUMA node, between PCIe host bridges"},
	[BRAID_DISTANCE_SYS] = {"SYS", "between NUMA nodes"},
	[BRAID_DISTANCE_UNKNOWN] = {"?", "not told"},
};

const char *braid_distance_name(enum braid_distance d)
{
	return distances[d].name;
}

const char *braid_distance_words(enum braid_distance d)
{
	return distances[d].words;
}

/* ------------------------------------------------------------------------------------- spots */

int braid_machine_find(const struct braid_machine *m, const char *path)
{
	for (unsigned i = 0; i < m->n_spots; i++) {
		if (strcmp(m->spots[i].path, path) == 0)
			return (int)i;
	}
	return -1;
}

int braid_machine_add(struct braid_machine *m, const struct braid_spot *s)
{
	struct braid_spot *to = &m->spots[m->n_spots];

	if (m->n_spots == BRAID_MACHINE_SPOTS) {
		m->left_out++;
		return -1;
	}
	if (s->up >= 0 && m->spots[s->up].depth == BRAID_SPOT_DEPTH)
		return -1;
	*to = *s;
	if (to->up >= 0) {
		to->depth = m->spots[to->up].depth + 1;
		if (to->numa < 0)
			to->numa = m->spots[to->up].numa;
	}
	return (int)m->n_spots++;
}

/* A host bridge gets the NUMA node of the devices below it.  A single node is that of all spots. */
static void settle_numa(struct braid_machine *m)
{
	unsigned with_cpus = 0;
	int only = -1;

	for (unsigned i = 0; i < m->n_numas; i++) {
		if (!braid_cpus_empty(&m->numas[i].cpus)) {
			with_cpus++;
			only = m->numas[i].id;
		}
	}
	for (unsigned i = 0; i < m->n_spots; i++) {
		struct braid_spot *s = &m->spots[i];

		if (s->numa < 0 && with_cpus == 1 && !m->is_virtual)
			s->numa = only;
		for (int up = s->up; s->numa >= 0 && up >= 0; up = m->spots[up].up) {
			if (m->spots[up].numa < 0)
				m->spots[up].numa = s->numa;
		}
	}
}

/* ------------------------------------------------------------------------------ GPUs and NICs */

bool braid_machine_is_gpu(unsigned class, unsigned vendor)
{
	return (class >> 16 == CLASS_DISPLAY && vendor == VENDOR_NVIDIA) ||
	       ((class >> 16 == CLASS_DISPLAY || class >> 16 == CLASS_ACCELERATOR) &&
		vendor == VENDOR_AMD);
}

void braid_machine_add_gpu(struct braid_machine *m, const struct braid_gpu *gpu)
{
	if (m->n_gpus == BRAID_MACHINE_GPUS) {
		m->left_out++;
		return;
	}
	if (gpu->spot >= 0)
		m->spots[gpu->spot].gpu = true;
	m->gpus[m->n_gpus++] = *gpu;
}

void braid_machine_add_numa(struct braid_machine *m, const struct braid_numa *numa)
{
	if (m->n_numas == BRAID_MACHINE_NUMAS)
		m->left_out++;
	else
		m->numas[m->n_numas++] = *numa;
}

void braid_machine_stand(struct braid_machine *m, struct braid_nic *nic, int spot)
{
	for (unsigned i = 0; i < nic->n_spots; i++) {
		if (nic->spots[i] == spot)
			return;
	}
	if (spot < 0 || nic->n_spots == BRAID_NIC_SPOTS)
		return;
	nic->spots[nic->n_spots++] = spot;
	m->spots[spot].nic = true;
}

/* To be printed and written into documents: no control characters, nothing beyond ASCII. */
static void make_plain(char *name)
{
	for (; *name; name++) {
		if (*name < ' ' || *name > '~')
			*name = '?';
	}
}

void braid_machine_add_nic(struct braid_machine *m, struct braid_nic *nic)
{
	make_plain(nic->name);
	make_plain(nic->netdev);
	if (m->n_nics == BRAID_MACHINE_NICS)
		m->left_out++;
	else
		m->nics[m->n_nics++] = *nic;
}

/* ------------------------------------------------------------------------------------- order */

static uint64_t addr_key(const struct braid_pci_addr *a)
{
	return (uint64_t)a->domain << 24 | (uint64_t)a->bus << 16 | (uint64_t)a->dev << 8 | a->fn;
}

static int compare_addr(const struct braid_pci_addr *a, const struct braid_pci_addr *b)
{
	uint64_t x = addr_key(a), y = addr_key(b);

	return x < y ? -1 : x > y;
}

static int compare_gpus(const void *a, const void *b)
{
	return compare_addr(&((const struct braid_gpu *)a)->addr,
			    &((const struct braid_gpu *)b)->addr);
}

struct nic_key {
	bool placed;
	struct braid_pci_addr addr;
	struct braid_nic nic;
};

static int compare_nics(const void *a, const void *b)
{
	const struct nic_key *x = a, *y = b;
	int d;

	if (x->placed != y->placed)
		return x->placed ? -1 : 1;
	d = compare_addr(&x->addr, &y->addr);
	if (!d)
		d = x->nic.port - y->nic.port;
	return d ? d : strcmp(x->nic.name, y->nic.name);
}

static int sort_nics(struct braid_machine *m)
{
	struct nic_key *keys = calloc(m->n_nics + 1, sizeof(*keys));

	if (!keys)
		return -ENOMEM;
	for (unsigned i = 0; i < m->n_nics; i++) {
		keys[i].nic = m->nics[i];
		keys[i].placed = m->nics[i].n_spots > 0 &&
				 braid_pci_parse(m->spots[m->nics[i].spots[0]].name,
						 &keys[i].addr) == 0;
	}
	qsort(keys, m->n_nics, sizeof(*keys), compare_nics);
	for (unsigned i = 0; i < m->n_nics; i++)
		m->nics[i] = keys[i].nic;
	free(keys);
	return 0;
}

static int compare_paths(const void *a, const void *b, void *arg)
{
	const struct braid_machine *m = arg;

	return strcmp(m->spots[*(const int *)a].path, m->spots[*(const int *)b].path);
}

static int moved(const int *to, int spot)
{
	return spot < 0 ? -1 : to[spot];
}

/*
 * Directories are read in any order.  Sorted by path, the spots of one machine always give the same
 * documents; each spot still comes after the one above it.
 */
static int sort_spots(struct braid_machine *m)
{
	struct braid_spot *sorted = calloc(m->n_spots + 1, sizeof(*sorted));
	int *from = calloc(m->n_spots + 1, sizeof(*from));
	int *to = calloc(m->n_spots + 1, sizeof(*to));
	int err = sorted && from && to ? 0 : -ENOMEM;

	for (unsigned i = 0; !err && i < m->n_spots; i++)
		from[i] = (int)i;
	if (!err)
		qsort_r(from, m->n_spots, sizeof(*from), compare_paths, m);
	for (unsigned i = 0; !err && i < m->n_spots; i++) {
		sorted[i] = m->spots[from[i]];
		to[from[i]] = (int)i;
		sorted[i].up = moved(to, sorted[i].up);
	}
	for (unsigned i = 0; !err && i < m->n_gpus; i++)
		m->gpus[i].spot = moved(to, m->gpus[i].spot);
	for (unsigned i = 0; !err && i < m->n_nics; i++) {
		for (unsigned k = 0; k < m->nics[i].n_spots; k++)
			m->nics[i].spots[k] = to[m->nics[i].spots[k]];
	}
	if (!err) {
		free(m->spots);
		m->spots = sorted;
		sorted = NULL;
	}
	free(sorted);
	free(from);
	free(to);
	return err;
}

static int compare_numas(const void *a, const void *b)
{
	return ((const struct braid_numa *)a)->id - ((const struct braid_numa *)b)->id;
}

void braid_machine_cpus(const struct braid_machine *m, int spot, struct braid_cpus *ret)
{
	*ret = (struct braid_cpus){ .bits = { 0 } };
	if (spot < 0)
		return;
	*ret = m->spots[spot].cpus;
	for (unsigned i = 0; i < m->n_numas && braid_cpus_empty(ret); i++) {
		if (m->numas[i].id == m->spots[spot].numa)
			*ret = m->numas[i].cpus;
	}
}

/* ----------------------------------------------------------------------------------- distance */

static bool is_hidden(const struct braid_machine *m, int spot)
{
	return m->spots[spot].depth <= 1 && (m->spots[spot].gpu || m->is_virtual);
}

/* The deepest spot that both chains have; -1: none. */
static int meet(const struct braid_machine *m, int a, int b)
{
	while (a != b) {
		if (a < 0 || b < 0)
			return -1;
		if (m->spots[a].depth > m->spots[b].depth)
			a = m->spots[a].up;
		else if (m->spots[a].depth < m->spots[b].depth)
			b = m->spots[b].up;
		else
			a = m->spots[a].up, b = m->spots[b].up;
	}
	return a;
}

enum braid_distance braid_machine_between(const struct braid_machine *m, int a, int b)
{
	unsigned depth, most;
	bool hidden;
	int at;

	if (a < 0 || b < 0)
		return BRAID_DISTANCE_UNKNOWN;
	if (a == b)
		return BRAID_DISTANCE_SELF;
	at = meet(m, a, b);
	if (at >= 0 && m->spots[at].depth > 0) {
		/* Below the switch where they meet, each chain has at least one of its ports. */
		depth = m->spots[at].depth;
		most = m->spots[a].depth;
		if (m->spots[b].depth > most)
			most = m->spots[b].depth;
		return most <= depth + 2 ? BRAID_DISTANCE_PIX : BRAID_DISTANCE_PXB;
	}
	hidden = is_hidden(m, a) || is_hidden(m, b);
	if (at >= 0 && !hidden)
		return BRAID_DISTANCE_PHB;
	if (m->spots[a].numa < 0 || m->spots[b].numa < 0)
		return BRAID_DISTANCE_UNKNOWN;
	return m->spots[a].numa == m->spots[b].numa ? BRAID_DISTANCE_NODE : BRAID_DISTANCE_SYS;
}

static enum braid_distance nic_spot(const struct braid_machine *m, const struct braid_nic *nic,
				    int spot)
{
	enum braid_distance most = BRAID_DISTANCE_SELF, d;

	for (unsigned i = 0; i < nic->n_spots; i++) {
		d = braid_machine_between(m, nic->spots[i], spot);
		if (d > most)
			most = d;
	}
	return nic->n_spots ? most : BRAID_DISTANCE_UNKNOWN;
}

enum braid_distance braid_machine_gpu_nic(const struct braid_machine *m, unsigned gpu, unsigned nic)
{
	return nic_spot(m, &m->nics[nic], m->gpus[gpu].spot);
}

/* Two NICs on one PCI function, such as its two ports, are as near as two functions of a card. */
enum braid_distance braid_machine_nic_nic(const struct braid_machine *m, unsigned a, unsigned b)
{
	const struct braid_nic *nic = &m->nics[b];
	enum braid_distance most = BRAID_DISTANCE_PIX, d;

	if (a == b)
		return BRAID_DISTANCE_SELF;
	for (unsigned i = 0; i < nic->n_spots; i++) {
		d = nic_spot(m, &m->nics[a], nic->spots[i]);
		if (d > most)
			most = d;
	}
	return nic->n_spots ? most : BRAID_DISTANCE_UNKNOWN;
}

enum braid_distance braid_machine_gpu_gpu(const struct braid_machine *m, unsigned a, unsigned b)
{
	if (a == b)
		return BRAID_DISTANCE_SELF;
	return m->nvlink[a][b] ? BRAID_DISTANCE_NVL :
				 braid_machine_between(m, m->gpus[a].spot, m->gpus[b].spot);
}

bool braid_machine_is_slower(const struct braid_spot *s)
{
	return s->now.gts > 0 && s->now.gts < s->most.gts;
}

bool braid_machine_is_narrower(const struct braid_spot *s)
{
	return s->now.width && s->now.width < s->most.width;
}

void braid_machine_nvlink(struct braid_machine *m, unsigned a, unsigned b)
{
	m->has_nvlink = true;
	m->nvlink[a][b] = m->nvlink[b][a] = true;
}

/* -------------------------------------------------------------------------------------- notes */

__attribute__((format(printf, 2, 3)))
static void note(struct braid_machine *m, const char *fmt, ...)
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
	return m->gpus[i].spot < 0 || is_hidden(m, m->gpus[i].spot);
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

static void write_notes(struct braid_machine *m)
{
	char who[160];

	if (m->is_virtual)
		note(m, "this is a virtual machine: the PCI tree is of its hypervisor's "
		     "making");
	if (name_all(m, "GPU", m->n_gpus, gpu_is_hidden, who, sizeof(who)))
		note(m, "%s: no PCIe port is shown above, as where a hypervisor hides the tree: "
		     "what is near is not told", who);
	if (name_all(m, "GPU", m->n_gpus, gpu_has_no_numa, who, sizeof(who)))
		note(m, "%s: the NUMA node is not told", who);
	if (name_all(m, "NIC", m->n_nics, nic_has_no_pci, who, sizeof(who)))
		note(m, "%s: no PCI address", who);
	if (name_all(m, "NIC", m->n_nics, nic_is_slowed, who, sizeof(who)))
		note(m, "%s: the PCIe link is slower or narrower than the device can", who);
	if (name_all(m, "GPU", m->n_gpus, gpu_is_slowed, who, sizeof(who)))
		note(m, "%s: the PCIe link is slower or narrower than the device can; "
		     "slower is usual for a GPU that has nothing to do", who);
	if (m->direct[0])
		note(m, "%s: of NICs with Data Direct; GPU memory that goes there is as near as "
		     "these, and braid info tells which NIC's (PCI)", m->direct);
	if (m->left_out)
		note(m, "%u devices left out: more than this program has room for", m->left_out);
}

/* -------------------------------------------------------------------------------------- whole */

int braid_machine_new(struct braid_machine **ret)
{
	struct braid_machine *m = calloc(1, sizeof(*m));

	if (m)
		m->spots = calloc(BRAID_MACHINE_SPOTS, sizeof(*m->spots));
	if (!m || !m->spots) {
		free(m);
		return -ENOMEM;
	}
	*ret = m;
	return 0;
}

int braid_machine_settle(struct braid_machine *m)
{
	int err;

	qsort(m->numas, m->n_numas, sizeof(m->numas[0]), compare_numas);
	qsort(m->gpus, m->n_gpus, sizeof(m->gpus[0]), compare_gpus);
	err = sort_spots(m);
	settle_numa(m);
	if (!err)
		err = sort_nics(m);
	write_notes(m);
	return err;
}

void braid_machine_free(struct braid_machine *m)
{
	if (m)
		free(m->spots);
	free(m);
}

