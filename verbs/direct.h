/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct.h - Data Direct: NICs of the mlx5 driver (ConnectX-8) that have a second PCIe function,
 * by which they reach memory that was registered for it.
 *
 * It lies nearer to a GPU than the NIC's own.  But what is written by one function and what is said
 * of it by the other keep no order, so that there is no GPU that needs no flush (verbs/gpu.c).
 */
#ifndef BRAID_VERBS_DIRECT_H
#define BRAID_VERBS_DIRECT_H

#include "verbs/lib.h"

/*
 * Its function's directory, from /sys on.  -ENODEV: it is not a NIC that has one; else it is not
 * known, and `why` says in one line why.  Once it is found, memory can be registered.
 */
int braid_direct_find(struct ibv_context *ctx, char *ret, size_t len, char *why, size_t why_len);

/* A DMA-BUF, as by ibv_reg_dmabuf_mr(). */
struct ibv_mr *braid_direct_reg(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
				int fd, int access);

#endif
