/* SPDX-License-Identifier: BSD-3-Clause */
/* txq_int.h - functions of txq.c, offer.c and replay.c for other files of core/link. */
#ifndef BRAID_LINK_TXQ_INT_H
#define BRAID_LINK_TXQ_INT_H

#include "core/link/link.h"

struct braid_kept {			/* a former ring, which a NIC may still read */
	struct braid_kept *next;
	char *ring;
};

void braid_txq_time_start(struct braid_txq *q);
/* Free the ring before the oldest frame, or all of it if no frame is left. */
void braid_txq_give_back(struct braid_txq *q);
/* Release the frames that the peer has acknowledged. */
void braid_txq_pop_acked(struct braid_lane *lane);

/* A carrier that can't read GPU memory sends a copy.  0, or -EAGAIN: it is not complete. */
int braid_txf_stage_out(struct braid_lane *lane, struct braid_txf *f);
/* End a copy from GPU memory that is in progress. */
void braid_txf_end_stage(struct braid_txf *f);
/* End the copy as braid_txf_end_stage() does, and free our copy of the payload. */
void braid_txf_drop_own(struct braid_txf *f);
/* End all copies from GPU memory that frames wait for.  The lane stands still. */
void braid_tx_leave(struct braid_lane *lane);

/* Keep the frame as a VOID, so that the frames behind it keep their numbers. */
void braid_txf_void(struct braid_txq *q, struct braid_txf *f, bool sent);
/* Free the former rings: the NIC that could read them has stopped. */
void braid_txq_drop_kept(struct braid_txq *q);
/*
 * For a replay: the peer has received `frames` in all, and the rest will be sent again unchanged.
 * The lane stands still.  0, or -EPROTO if that count is impossible.
 */
int braid_tx_rewind(struct braid_lane *lane, uint32_t frames);
/* Move the newest frame, a chunk on a rewound lane that is down, to lane `to`, which has room. */
void braid_tx_move(struct braid_lane *from, struct braid_lane *to);
/*
 * Append all frames of a rewound lane that is down, in order, to those of `to`.  but_chunks: its
 * chunks stay.  Both lanes stand still.  0, or -ENOMEM: nothing has changed.
 */
int braid_tx_take_over(struct braid_lane *from, struct braid_lane *to, bool but_chunks);

#endif
