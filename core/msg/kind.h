/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kind.h - comms that carry something else than NCCL's messages, such as one-sided traffic
 * (core/rma), and what those that implement them ask of core/msg.
 *
 * All calls are made with the link's lock held.
 */
#ifndef BRAID_MSG_KIND_H
#define BRAID_MSG_KIND_H

#include <stdbool.h>

#include "core/msg/comm.h"

struct braid_gpucopy;
struct braid_hdr;
struct braid_lane;
struct braid_mr;

struct braid_comm_kind {
	/* A frame up to RETIRE begins, or is complete: as in core/link/upcalls.h. */
	int (*rx_begin)(struct braid_lane *lane, struct braid_comm *c);
	int (*rx_end)(struct braid_lane *lane, struct braid_comm *c);
	bool (*rx_fast)(struct braid_comm *c, const struct braid_hdr *h, const char *payload);
	char *(*rx_place)(const struct braid_lane *lane, const struct braid_comm *c,
			  const struct braid_hdr *h, const struct braid_mr **ret_gpu);
	/* A NIC wrote a chunk, whose header immediate data replaces: see braid_comm_rx_imm(). */
	int (*rx_imm)(struct braid_lane *lane, struct braid_comm *c, unsigned slot);
	/* Queue the control frames that are due; false: no room for all. */
	bool (*send_control)(struct braid_comm *c);
	/* See braid_comm_deliver_later(); true: nothing is left to deliver. */
	bool (*deliver)(struct braid_comm *c);
	void (*failed)(struct braid_comm *c, int err);
	bool (*unfinished)(const struct braid_comm *c);
	/* See braid_comm_waits(). */
	bool (*waits)(const struct braid_comm *c, struct braid_waiting *ret);
	bool (*orphans)(const struct braid_comm *c);	/* does anything wait for more than BYE? */
	/* Stop using the user's memory.  All lanes stand still. */
	void (*forget)(struct braid_comm *c);
	void (*close)(struct braid_comm *c);	/* it may live on until the peer has closed, too */
	void (*free)(struct braid_comm *c);
};

/* Make a new comm one of another kind.  With the link's lock held. */
void braid_comm_set_kind(struct braid_comm *c, const struct braid_comm_kind *kind, void *channel);
/* Call c->kind->deliver() until all is delivered, also if no call is made. */
void braid_comm_deliver_later(struct braid_comm *c);
/* As close() does: stop using all memory of the comm's requests.  All lanes stand still. */
void braid_comm_drop(struct braid_comm *c);
/* Has a chunk of the comm been sent whose memory a NIC may still read? */
bool braid_comm_is_sending(const struct braid_lane *lane, const struct braid_comm *c);
/* This end gives up a comm: tell the peer, and the log that `how` did it. */
void braid_comm_give_up(struct braid_comm *c, const char *how);
/* The peer closed the comm, and requests wait here. */
void braid_comm_orphaned(struct braid_comm *c);
/* The comm's error is about to be returned to NCCL: log the reason if that is still due. */
int braid_comm_report(struct braid_comm *c, int err);
/* Copy a payload from lane->rx_stage into the GPU: 0; -EAGAIN: not complete; or the comm failed. */
int braid_comm_rx_to_gpu(struct braid_lane *lane, struct braid_comm *c);
/* Memory of a GPU could not be copied; `copy` NULL: no host memory to copy through. */
void braid_comm_no_gpu(struct braid_comm *c, const struct braid_gpucopy *copy);

static inline bool braid_comm_drains(struct braid_comm *c)
{
	return c->closed || atomic_load_explicit(&c->err, memory_order_relaxed);
}

#endif
