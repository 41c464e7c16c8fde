/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * machine.c - the tree of a machine: built from what a reader found, then sorted.
 *
 * Each table has a limit; devices beyond it are only counted.
 */
#include "topo/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "topo/machine_int.h"

enum {
	CLASS_DISPLAY = 0x03,
	CLASS_ACCELERATOR = 0x12,
	VENDOR_NVIDIA = 0x10de,
	VENDOR_AMD = 0x1002,
};

/* --- spots --------------------------------------------------------------------------------- */

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

/*
 * Gives a host bridge the NUMA node of the devices below it.  If only one node has CPUs, all spots
 * without a node get that one, except in a virtual machine.
 */
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

/* --- GPUs and NICs ------------------------------------------------------------------------- */

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

/* Names are printed and written into documents: what is not printable ASCII becomes '?'. */
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

void braid_machine_nvlink(struct braid_machine *m, unsigned a, unsigned b)
{
	m->has_nvlink = true;
	m->nvlink[a][b] = m->nvlink[b][a] = true;
}

/* --- order --------------------------------------------------------------------------------- */

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

/* --- the whole ----------------------------------------------------------------------------- */

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
	braid_machine_write_notes(m);
	return err;
}

void braid_machine_free(struct braid_machine *m)
{
	if (m)
		free(m->spots);
	free(m);
}
