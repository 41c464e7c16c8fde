/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flush.h - requests that are done once the GPU sees what NICs have written into its memory.
 *
 * One is made by iflush and ends in test, where it is moved.  What the NIC reads for it lies in no
 * memory of the user's, so that a comm may be closed, and memory taken back, with one under way.
 * Flushes of a comm come from one thread at a time, as NCCL's do; memory may go on another.
 */
#ifndef BRAID_MEM_FLUSH_H
#define BRAID_MEM_FLUSH_H

#include "core/msg/comm.h"

/* *ret NULL: nothing is left to do.  0, or -ENOMEM and a WARN; what else fails test() says. */
int braid_flush_start(struct braid_comm *c, unsigned n, void *const *data, const int *sizes,
		      struct braid_mr *const *mrs, struct braid_req **ret);
/* 0 and *ret_done, or a negative errno and, the first time, a WARN. */
int braid_flush_test(struct braid_req *req, bool *ret_done);
/* That memory is gone: flushes of it fail. */
void braid_flush_cancel(struct braid_comm *c, const struct braid_mr *mr);
/* The comm is closed: nobody asks for any any more. */
void braid_flush_forget(struct braid_comm *c);

#endif
