/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hca.h - which RDMA ports the user wants (NCCL_IB_HCA), and warnings if no port here fits.
 * Only the probe uses it: begin, one call for each port, end.
 */
#ifndef BRAID_VERBS_HCA_H
#define BRAID_VERBS_HCA_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

void braid_hca_begin(void);
/* Is that port wanted?  Rail and plane: as braid_netdev_port_match(). */
bool braid_hca_selects(struct ibv_context *ctx, unsigned num, int16_t *rail, int16_t *plane);
/* That device can't be opened: a WARN if it is wanted and this process lacks the permission. */
void braid_hca_closed(const struct ibv_device *dev, int err);
/* A WARN that names elements which match no port, or says that no active port is left. */
void braid_hca_end(void);

#endif
