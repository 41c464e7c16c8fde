/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * coll.h - communicators for one-sided traffic, NCCL's collComm: ranks, windows and requests.
 *
 * connect() only keeps the handles of all ranks.  A rank is dialled when the first operation is
 * posted to it, by the calls that wait for that operation, and over a link that exists already if
 * there is one.  So a communicator has no connection of its own.
 *
 * Calls on one communicator may come from several threads.  None waits for a peer.
 */
#ifndef BRAID_SETUP_COLL_H
#define BRAID_SETUP_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/transport.h"

struct braid_coll;
struct braid_dev;
struct braid_rma_op;
struct braid_rma_window;

/* Listen on a device; `handle` gets 128 bytes for the other ranks. */
int braid_coll_listen(struct braid_dev *dev, void *handle, struct braid_coll **ret);
/* The handles of all ranks, this one's among them. */
int braid_coll_connect(struct braid_coll *coll, void *const *handles, unsigned nranks,
		       unsigned rank);
/* The listen, or the communicator, is not used any more.  Freed once both are. */
void braid_coll_close_listen(struct braid_coll *coll);
void braid_coll_close(struct braid_coll *coll);

/* Traffic class of the ranks dialled from now on: -1 none. */
void braid_coll_set_class(struct braid_coll *coll, int traffic_class);
/* An order of its own for the operations of one context; contexts beyond 256 share them. */
uint8_t braid_coll_order(struct braid_coll *coll);

/* Register memory as this rank's next window.  signals, never_reset: as in core/rma/rma.h. */
int braid_coll_open(struct braid_coll *coll, const struct braid_mem *mem, bool signals,
		    bool never_reset, struct braid_rma_window **ret);
int braid_coll_close_window(struct braid_coll *coll, struct braid_rma_window *w);

struct braid_put {			/* a put, a signal, or both */
	unsigned rank;
	uint8_t order;
	const struct braid_rma_window *src, *dst;	/* of this rank: dst names the target's */
	uint64_t src_off, dst_off, size;
	const struct braid_rma_window *word;		/* NULL: no signal */
	uint64_t word_off, value;
	bool strong;			/* after all earlier puts and signals of this order */
	bool more;			/* others follow: it may leave with them */
};
/*
 * Post an operation; the request is freed by the braid_coll_test() that does not return 0.
 * 0; -EINVAL: the local memory is not all in its window; -ENOMEM; or the communicator's error.
 */
int braid_coll_put(struct braid_coll *coll, const struct braid_put *put, struct braid_rma_op **ret);
struct braid_get {
	unsigned rank;
	uint8_t order;
	const struct braid_rma_window *remote, *local;	/* this rank's: remote names the target's */
	uint64_t remote_off, local_off, size;
	bool more;
};
int braid_coll_get(struct braid_coll *coll, const struct braid_get *get, struct braid_rma_op **ret);
/* What NICs wrote into the window is visible to its GPU once the request is done; NULL: it is. */
int braid_coll_flush(struct braid_coll *coll, const struct braid_rma_window *w,
		     struct braid_rma_op **ret);
/* 1: done, and freed; 0: not yet; else it failed, and is freed with the communicator. */
int braid_coll_test(struct braid_coll *coll, struct braid_rma_op *op);

/* Receive what comes from any rank.  0, or the error of the first channel that failed. */
int braid_coll_progress(struct braid_coll *coll);
/* 0, or the error of the first channel that failed; its WARN is written by now.  No progress. */
int braid_coll_error(struct braid_coll *coll);

#endif
