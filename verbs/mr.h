/* SPDX-License-Identifier: BSD-3-Clause */
/* mr.h - memory that a port may touch: the user's, and our own. */
#ifndef BRAID_VERBS_MR_H
#define BRAID_VERBS_MR_H

#include "verbs/port.h"

/* The members reg and dereg of struct braid_transport. */
int braid_ibport_reg(struct braid_dev *dev, const struct braid_mem *mem, struct braid_key *ret);
void braid_ibport_dereg(struct braid_dev *dev, struct braid_key *key);
/*
 * Writes into the user's memory may pass each other on PCIe, unless BRAID_IB_PCI_RELAXED_ORDERING
 * is 0.  Their report, a completion or a write into our own memory, passes none of them: our memory
 * is always registered as strictly ordered (PCIe Base Specification, 2.4.1).
 */
unsigned braid_ibport_relaxed(void);	/* the flag of relaxed ordering, or 0 */
struct ibv_mr *braid_ibport_reg_user(struct braid_ibport *p, void *data, size_t size,
				     unsigned access);
/* Registers our own memory.  NULL: it failed, and the log says what to do about it. */
struct ibv_mr *braid_ibport_own(struct braid_ibport *p, struct ibv_pd *pd, void *data, size_t size,
				int access);

#endif
