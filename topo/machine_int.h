/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * machine_int.h - how a reader (machine_sys.c, tools/topo/hwloc.c) builds a machine.
 *
 * A reader begins with braid_machine_new().  It adds NUMA nodes, GPUs, NICs and the spots above
 * them, in any order.  It ends with braid_machine_settle(), which sorts all of it.
 */
#ifndef BRAID_TOPO_MACHINE_INT_H
#define BRAID_TOPO_MACHINE_INT_H

#include "topo/machine.h"

enum { BRAID_PORTS_MAX = 16, BRAID_NUMA_MOST = 4095 };

int braid_machine_new(struct braid_machine **ret);		/* 0 or -ENOMEM */
int braid_machine_settle(struct braid_machine *m);		/* 0 or -ENOMEM */

/* The spot of a path; -1: the path has none yet. */
int braid_machine_find(const struct braid_machine *m, const char *path);

/* Adds a spot below s->up.  -1: there is no room, or the tree would be too deep. */
int braid_machine_add(struct braid_machine *m, const struct braid_spot *s);

bool braid_machine_is_gpu(unsigned class, unsigned vendor);	/* class: 24 bits */
/* Devices for which a table has no room are only counted. */
void braid_machine_add_gpu(struct braid_machine *m, const struct braid_gpu *gpu);
void braid_machine_add_nic(struct braid_machine *m, struct braid_nic *nic);
void braid_machine_add_numa(struct braid_machine *m, const struct braid_numa *numa);
void braid_machine_stand(struct braid_machine *m, struct braid_nic *nic, int spot);

/* Note an NVLink between two GPUs, by the numbers that they have in the settled machine. */
void braid_machine_nvlink(struct braid_machine *m, unsigned a, unsigned b);

/* machine_near.c: is it hidden where that spot is in the tree?  machine_notes.c: sets m->notes. */
bool braid_machine_is_hidden(const struct braid_machine *m, int spot);
void braid_machine_write_notes(struct braid_machine *m);

/* Reads the kind of CPU, and whether it runs under a hypervisor, from ROOT/proc and ROOT/sys. */
void braid_machine_cpu(struct braid_machine *m, const char *root);

#endif
