/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * machine_near.c - how near two devices of a machine are.
 *
 * Every GPU and NIC has a chain of spots from the host bridge down.  Chains that begin alike share
 * their first spots.  The distance of two devices follows from where their chains part.
 *
 * A hypervisor that hides the tree puts devices on the root bus.  A real GPU is behind a port.  So
 * a GPU without a port counts as hidden, and in a virtual machine so does any device without one.
 * A hidden device may share a host bridge with another by accident; only NUMA nodes count then.
 */
#include "topo/machine_int.h"

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
	[BRAID_DISTANCE_UNKNOWN] = {"?", "not known"},
};

const char *braid_distance_name(enum braid_distance d)
{
	return distances[d].name;
}

const char *braid_distance_words(enum braid_distance d)
{
	return distances[d].words;
}

bool braid_machine_is_hidden(const struct braid_machine *m, int spot)
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
		/* Below the switch at which two chains part, each has one of the switch's ports. */
		depth = m->spots[at].depth;
		most = m->spots[a].depth;
		if (m->spots[b].depth > most)
			most = m->spots[b].depth;
		return most <= depth + 2 ? BRAID_DISTANCE_PIX : BRAID_DISTANCE_PXB;
	}
	hidden = braid_machine_is_hidden(m, a) || braid_machine_is_hidden(m, b);
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
