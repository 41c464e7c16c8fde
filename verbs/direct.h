/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * direct.h - Data Direct: NICs of the mlx5 driver (ConnectX-8) that have a second PCIe function,
 * by which they reach memory that was registered for it.
 *
 * That function is nearer to a GPU than the NIC's own.  But one function writes the data and the
 * other the completion, and these writes are not ordered: every GPU needs a flush (verbs/gpu.c).
 */
#ifndef BRAID_VERBS_DIRECT_H
#define BRAID_VERBS_DIRECT_H

#include "verbs/lib.h"

/*
 * Finds the directory of that function: a path from /sys on.  -ENODEV: the NIC has no such one.
 * Another errno: the query failed, and `why` has the reason in one line.  Only after success may
 * braid_direct_reg() be called.
 */
int braid_direct_find(struct ibv_context *ctx, char *ret, size_t len, char *why, size_t why_len);

/* Registers a DMA-BUF, as ibv_reg_dmabuf_mr() does. */
struct ibv_mr *braid_direct_reg(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova,
				int fd, int access);

#endif
