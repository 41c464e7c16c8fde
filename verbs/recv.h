/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recv.h - where SENDs and immediate data arrive: slots, each a receive that is posted, used and
 * posted again.
 *
 * A lane over iWARP, or on a device without shared receive queues, has slots of its own: few at
 * first, and BRAID_SLOTS_RX once it is used (grow.h).
 *
 * Lanes over InfiniBand and RoCE receive from a shared receive queue of the port (IBTA vol. 1,
 * 10.2.9).  Each lane adds BRAID_SLOTS_RX slots to the queue until it is full; later lanes add
 * none.  A peer never uses more slots than one lane brings, so slots run out only when more lanes
 * are busy at a time than have brought slots.  The NIC then has senders try again (RNR), and our
 * queue pairs do so for ever; on iWARP a missing receive would end the connection.
 */
#ifndef BRAID_VERBS_RECV_H
#define BRAID_VERBS_RECV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/link/lane_io.h"
#include "core/proto/frame.h"
#include "verbs/port.h"

enum {
	BRAID_SLOT = BRAID_HDR_SIZE + BRAID_COPY_MAX,	/* an eager message, or part of a frame */
	BRAID_SLOTS_RX = 64,
	BRAID_REPOST = 8,		/* so many used slots are posted again together; the peer
					 * is promised that many fewer */
	BRAID_WINDOW = BRAID_SLOTS_RX - BRAID_REPOST,
	BRAID_SLOTS_FEW = 6,		/* of a lane's own, at first: posted again one by one */
	BRAID_WINDOW_FEW = BRAID_SLOTS_FEW - 1,
};

/* Set in the wr_id of a send; a receive's wr_id is an address, in which this bit is never set. */
#define BRAID_WR_IS_SEND (UINT64_C(1) << 63)

struct braid_slots {
	struct braid_slots *next;
	unsigned n;
	char *rx;			/* n slots */
	struct ibv_mr *mr;
	struct ibv_sge *sge;		/* n, behind the last wr */
	struct ibv_recv_wr wr[];	/* n, complete but for `next`; wr_id: its address */
};

struct braid_srq {
	struct braid_ibport *port;
	struct ibv_srq *srq;		/* NULL while no lane uses it */
	struct braid_slots *slots;	/* posted, or held by lanes */
	unsigned nslots, nslots_max;	/* times BRAID_SLOTS_RX */
	unsigned lanes;			/* lanes that receive from it now */
	unsigned left;			/* ended lanes that may have taken receives along */
	atomic_uint repost;		/* slots to post again together: 1 if they are few */
	bool broken;			/* a post has failed */
};

static inline struct ibv_recv_wr *braid_slot_wr(const struct ibv_wc *wc)
{
	return (struct ibv_recv_wr *)(uintptr_t)wc->wr_id;
}

static inline const char *braid_slot_data(const struct ibv_recv_wr *wr)
{
	return (const char *)(uintptr_t)wr->sg_list->addr;
}

/* BRAID_SLOTS_RX slots.  NULL: no memory, or it can't be registered, which has been logged. */
struct braid_slots *braid_slots_new(struct braid_ibport *p, struct ibv_pd *pd);
/* n slots.  p NULL: nothing is logged. */
struct braid_slots *braid_slots_part(struct braid_ibport *p, struct ibv_pd *pd, unsigned n);
void braid_slots_free(struct braid_slots *s);	/* s may be NULL */
/* Chains all its receives by `next`; returns the first. */
struct ibv_recv_wr *braid_slots_chain(struct braid_slots *s);

/* Do lanes of that port share receives? */
bool braid_srq_used(const struct braid_ibport *p);

/*
 * Adds a lane.  *ret: the shared queue that it receives from, or NULL: it needs slots of its own.
 * 0 or a negative errno.  Any thread.  It pins memory, so never call it where NCCL waits for data.
 */
int braid_srq_join(struct braid_ibport *p, struct braid_srq **ret);
/*
 * Removes a lane whose queue pair is destroyed.  held: the receives that the lane still holds.
 * lost: the queue pair may have taken others along.
 */
void braid_srq_leave(struct braid_srq *s, struct ibv_recv_wr *held, bool lost);

#endif
