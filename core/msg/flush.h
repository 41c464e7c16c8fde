/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * flush.h - requests that are done once the GPU sees what NICs have written into its memory.
 *
 * iflush() starts a flush, and test() moves it on and ends it.  The NIC reads into Braid's own
 * memory, so a comm may be closed, and memory deregistered, while a flush is in progress.  One
 * thread at a time starts and tests the flushes of a comm; another may deregister memory meanwhile.
 */
#ifndef BRAID_MSG_FLUSH_H
#define BRAID_MSG_FLUSH_H

#include "core/msg/comm.h"

/* *ret NULL: nothing is left to do.  0, or -ENOMEM and a WARN; test() reports other failures. */
int braid_flush_start(struct braid_comm *c, unsigned n, void *const *data, const int *sizes,
		      struct braid_mr *const *mrs, struct braid_req **ret);
/* 0 and *ret_done, or a negative errno and, the first time, a WARN. */
int braid_flush_test(struct braid_req *req, bool *ret_done);
/* `mr` is deregistered: the comm's flushes of its memory fail. */
void braid_flush_cancel(struct braid_comm *c, const struct braid_mr *mr);
/* The comm is closed: free its flushes, which are not tested any more. */
void braid_flush_forget(struct braid_comm *c);

#endif
