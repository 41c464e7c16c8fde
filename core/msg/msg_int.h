/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * msg_int.h - what the files of core/msg share, in the order of the files.
 *
 * All of it with the link's lock held, except braid_send_hold_back() and braid_comm_report().
 */
#ifndef BRAID_MSG_INT_H
#define BRAID_MSG_INT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/clock.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/msg/comm.h"
#include "core/msg/kind.h"

/* NULL: no send of that number, modulo BRAID_SLOTS, is open. */
static inline struct braid_send *braid_send_at(const struct braid_comm *c, uint32_t seq)
{
	return c->send[seq % BRAID_SLOTS];
}

/* Relaxed: the only thread that writes the flag is the one that makes the comm's data calls. */
static inline bool braid_req_is_busy(const atomic_bool *slot)
{
	return atomic_load_explicit(slot, memory_order_relaxed);
}

/* NULL: no receive of that number, modulo BRAID_SLOTS, is open. */
static inline struct braid_recv *braid_recv_at(const struct braid_comm *c, uint32_t rseq)
{
	return c->recv[rseq % BRAID_SLOTS];
}

/* The time of a post.  While the link is watched, the service thread sleeps and sets no clock. */
static inline uint64_t braid_posted_at(const struct braid_link *link)
{
	return braid_clock_now(braid_link_is_watched(link));
}

static inline bool braid_recv_is_open(const struct braid_recv *e)
{
	return e->posted && !e->matched;
}

static inline bool braid_recv_is_gpu(const struct braid_recv *e)
{
	return e->mr && e->mr->gpu;
}

static inline bool braid_is_retired(const struct braid_comm *c, uint32_t seq)
{
	return c->retired[seq % BRAID_SLOTS / 64] >> seq % 64 & 1;
}

enum { BRAID_RETIRE_MAX = 64 };		/* messages that a RETIRE may be due for */

/* --- comm.c -------------------------------------------------------------------------------- */

/* Move all that braid_comm_deliver_later() asked for; false: some is left. */
bool braid_comms_deliver(struct braid_link *link);
struct braid_req *braid_req_in_vain(struct braid_comm *c, unsigned n);

/* --- fail.c -------------------------------------------------------------------------------- */

void braid_comm_oversize(struct braid_comm *c, uint64_t size, uint64_t room, int32_t tag);
void braid_comm_ended(struct braid_comm *c, enum braid_why why);
void braid_send_no_gpu(struct braid_xfer *x, const struct braid_gpucopy *copy);

/* --- send.c -------------------------------------------------------------------------------- */

void braid_send_met(struct braid_comm *c, struct braid_send *s);
void braid_send_to_credit(struct braid_comm *c, struct braid_send *s, uint32_t rseq,
			  const struct braid_place *to);
void braid_send_hold_back(struct braid_comm *c);

/* --- recv.c -------------------------------------------------------------------------------- */

/* The oldest open receive of that tag, or NULL. */
struct braid_recv *braid_recv_find(struct braid_comm *c, int32_t tag);
static inline void braid_recv_match(struct braid_comm *c, struct braid_recv *e, uint64_t size)
{
	braid_assert_locked(&c->link->lock);
	e->matched = true;
	e->unsized = false;
	e->size = size;
	if (e->rseq != c->oldest_rseq)
		return;
	do
		c->oldest_rseq++;
	while (c->oldest_rseq != c->next_rseq &&
	       !braid_recv_is_open(braid_recv_at(c, c->oldest_rseq)));
}
/* Match a receive to a message that sent WANT: it gets a credit, unless one is due or sent. */
void braid_recv_match_want(struct braid_comm *c, struct braid_recv *e, uint32_t seq, uint64_t size);
static inline void braid_recv_complete(struct braid_recv *e)
{
	braid_assert_locked(&e->req.comm->link->lock);
	e->posted = false;
	if (--e->head->pending == 0)
		atomic_store_explicit(&e->head->req.done, true, memory_order_release);
}
/* 0: copied; -EAGAIN: still being copied; else the copy and the comm have failed. */
int braid_recv_to_gpu(struct braid_recv *e, struct braid_gpucopy *copy);

/* --- unexpected.c -------------------------------------------------------------------------- */

void braid_unexp_free(struct braid_comm *c, struct braid_unexp *u);
/* Free a comm's unexpected messages, which no lane fills any more. */
void braid_unexps_drop(struct braid_comm *c);
/* The message in lane->rx_hdr is unexpected; `want`: it is a WANT.  0 or a negative errno. */
int braid_unexp_begin(struct braid_lane *lane, struct braid_comm *c, bool want);
/* The oldest unexpected message of that tag that has met no receive, or NULL. */
struct braid_unexp *braid_unexp_find(struct braid_comm *c, int32_t tag);
/* The unexpected message meets the receive posted now. */
void braid_unexp_match(struct braid_comm *c, struct braid_recv *e, struct braid_unexp *u);
/* The unexpected message has met its receive and is complete: copy it there. */
void braid_unexp_move(struct braid_unexp *u);

/* --- credits.c ----------------------------------------------------------------------------- */

/* At the sender. */
struct braid_credit *braid_credit_find(struct braid_comm *c, int32_t tag);
void braid_credit_free(struct braid_comm *c, struct braid_credit *cr);
int braid_credit_came(struct braid_lane *lane);
int braid_retire_came(struct braid_lane *lane, struct braid_comm *c);
/* At the receiver. */
void braid_credit_due(struct braid_comm *c, struct braid_recv *e);
static inline void braid_credit_not_due(struct braid_comm *c, struct braid_recv *e)
{
	braid_assert_locked(&c->link->lock);
	if (e->credit_due)
		c->ndue--;
	e->credit_due = false;
}
void braid_credit_all(struct braid_comm *c);
/* A message met its receive without a credit: a RETIRE is due. */
static inline void braid_retire(struct braid_comm *c, uint32_t seq, uint64_t size)
{
	struct braid_link *link = c->link;

	braid_assert_locked(&link->lock);
	if (!c->retire_n++)
		braid_comm_control_due(c);
	if (c->retire_n == 1 || (int32_t)(seq - c->retire_first) < 0)
		c->retire_first = seq;
	c->retired[seq % BRAID_SLOTS / 64] |= 1ull << seq % 64;
	c->retire_bytes += size + BRAID_UNEXP_COST;
	link->msg.retire_bytes += size + BRAID_UNEXP_COST;
	if (c->retire_n >= BRAID_RETIRE_MAX || link->msg.retire_bytes * 4 >= link->msg.rx_window)
		braid_link_urge_once(link);
}
/* Queue the credits that are due; false: no room for all. */
bool braid_credits_send(struct braid_comm *c);
bool braid_retires_send(struct braid_comm *c);

/* --- control.c ----------------------------------------------------------------------------- */

int braid_opened_came(struct braid_lane *lane);
int braid_refused_came(struct braid_lane *lane, struct braid_comm *c);
int braid_void_came(struct braid_lane *lane, struct braid_comm *c);
int braid_fail_came(struct braid_lane *lane, struct braid_comm *c);

/* --- close.c ------------------------------------------------------------------------------- */

int braid_bye_came(struct braid_lane *lane, struct braid_comm *c);

#endif
