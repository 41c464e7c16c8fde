/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recv.h - where SENDs and immediate data arrive: slots, each a receive that is posted, used and
 * posted again.
 *
 * A lane over iWARP, or on a device that has nothing else, has BRAID_SLOTS_RX of its own.  Lanes
 * over InfiniBand and RoCE take theirs from a shared receive queue of the port (IBTA vol. 1,
 * 10.2.9).  Each of them brings as many as it would have had, until the queue is full; those that
 * come then add none.  A peer is never promised more than a lane's own number, so receives run out
 * only when that many lanes are busy at one time.  The NIC then asks senders to try again (RNR),
 * which no queue pair of ours gives up; on iWARP a missing receive ends the connection.
 */
#ifndef BRAID_VERBS_RECV_H
#define BRAID_VERBS_RECV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/comm.h"
#include "verbs/port.h"

enum {
	BRAID_SLOT = BRAID_HDR_SIZE + BRAID_COPY_MAX,	/* an eager message, or part of a frame */
	BRAID_SLOTS_RX = 64,
	BRAID_REPOST = 8,		/* used ones are posted again together; the peer may not
					 * count on them */
};

/* Told apart from receives, whose number is an address. */
#define BRAID_WR_IS_SEND (UINT64_C(1) << 63)

struct braid_slots {
	struct braid_slots *next;
	char *rx;			/* BRAID_SLOTS_RX slots */
	struct ibv_mr *mr;
	struct ibv_recv_wr wr[BRAID_SLOTS_RX];	/* but for `next`; wr_id is where it lies */
	struct ibv_sge sge[BRAID_SLOTS_RX];
};

struct braid_srq {
	struct braid_port *port;
	struct ibv_srq *srq;		/* NULL: no lane */
	struct braid_slots *slots;	/* posted, or held by lanes */
	unsigned nslots, nslots_max;	/* times BRAID_SLOTS_RX */
	unsigned lanes;			/* that receive from it now ... */
	unsigned left;			/* ... and did before: receives may have gone with each */
	atomic_uint repost;		/* so many are posted again together: 1 if they are few */
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

/* NULL: no memory, or the NIC may not have it, which has been said. */
struct braid_slots *braid_slots_new(struct braid_port *p);
void braid_slots_free(struct braid_slots *s);	/* NULL is nothing */
/* All of them, chained. */
struct ibv_recv_wr *braid_slots_chain(struct braid_slots *s);

/* Do lanes of that port share receives? */
bool braid_srq_wanted(const struct braid_port *p);

/*
 * A lane more.  *ret is what it receives from, or NULL: it has to have its own.  0 or a negative
 * errno.  Any thread; pins memory, so not where a caller of NCCL's waits for data.
 */
int braid_srq_join(struct braid_port *p, struct braid_srq **ret);
/* A lane less, whose queue pair is gone.  What it was handed and has not posted again is `held`. */
void braid_srq_leave(struct braid_srq *s, struct ibv_recv_wr *held);

#endif
