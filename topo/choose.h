/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * choose.h - which NICs a GPU should use, and why.
 *
 * Four steps, each of which only leaves NICs out, and never the last one:
 *	1. the link is up;
 *	2. RDMA, if any NIC has it;
 *	3. at least a quarter of the fastest's speed (a port for management is no rail);
 *	4. the nearest to this GPU.
 * GPUs to which the same NICs are left share them in order: of n NICs and g GPUs the k-th GPU has
 * NICs k, k + g, ...; or, with fewer NICs than GPUs, NIC k mod n.  So on hosts of one make GPU i
 * has the same rail everywhere, with any number of GPUs in use.
 */
#ifndef BRAID_TOPO_CHOOSE_H
#define BRAID_TOPO_CHOOSE_H

#include "topo/machine.h"

enum braid_left_out { BRAID_LEFT_NOT, BRAID_LEFT_DOWN, BRAID_LEFT_NO_RDMA, BRAID_LEFT_SLOW,
		      BRAID_LEFT_FAR };

struct braid_choice {
	enum braid_distance distance;		/* to the nearest; UNKNOWN: GPUs share all NICs */
	enum braid_left_out left_out[BRAID_MACHINE_NICS];	/* why each NIC is not near */
	unsigned n_near;			/* how many NICs are near */
	unsigned sharers, turn;			/* GPUs near the same NICs; this one's number */
	unsigned n;
	unsigned nics[BRAID_MACHINE_NICS];	/* this GPU's, the preferred one first */
};

/* The first n_gpus GPUs are in use; gpu is one of them. */
void braid_choose(const struct braid_machine *m, unsigned n_gpus, unsigned gpu,
		  struct braid_choice *ret);

/* Explains the choice, in lines of at most 80 columns.  Writes and returns as snprintf does. */
size_t braid_choice_explain(const struct braid_machine *m, unsigned gpu,
			    const struct braid_choice *c, char *ret, size_t len);

#endif
