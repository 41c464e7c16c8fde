/* SPDX-License-Identifier: BSD-3-Clause */
/* verbs.h - what the files of a lane over verbs share: verbs.c, tx.c, rx.c, counts.c. */
#ifndef BRAID_VERBS_VERBS_H
#define BRAID_VERBS_VERBS_H

#include "core/link/lane_io.h"
#include "verbs/qp.h"

static inline struct braid_qp *braid_qp_of(const struct braid_lane *lane)
{
	return lane->priv;
}

/* Members of struct braid_transport. */
int braid_verbs_push(struct braid_lane *lane);
int braid_verbs_post(struct braid_lane *lane, uint32_t imm, const char *payload, uint32_t len);
int braid_verbs_read(struct braid_lane *lane, struct braid_read *r);
int braid_verbs_poll(struct braid_lane *lane);
bool braid_verbs_rest(struct braid_lane *lane);

/* counts.c, with the link's lock held: what the peer has written into our memory. */

/* The two counts.  False: nothing new, or what is there does not fit its checksum (yet). */
bool braid_verbs_counts(const struct braid_lane *lane, struct braid_qp *w, uint32_t ret[2]);
/* Uses more of its slots, if it has more.  A window that no peer has breaks the lane. */
void braid_verbs_window(struct braid_lane *lane, struct braid_qp *w);

/* tx.c, with the link's lock held, or before any other thread knows the lane: */

void braid_verbs_tx_init(struct braid_qp *w);
/* Adds the WRITE of our counts, of received frames and of free slots, to the chain. */
void braid_verbs_write_counts(struct braid_lane *lane, struct braid_qp *w);
/* Writes the counts if the peer may need them; if it can't now, sets w->count_due.  0 or -EIO. */
int braid_verbs_count_if_due(struct braid_lane *lane, struct braid_qp *w);
/* Gives back the pieces of memory that the NIC has sent. */
void braid_verbs_bounces_back(struct braid_qp *w);
/* Hands the chain of work requests to the NIC.  0 or -EIO. */
int braid_verbs_chain_post(struct braid_qp *w);

#endif
