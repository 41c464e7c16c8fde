/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * close.c - stop using the user's memory, and end a comm.
 *
 * After close() this end sends only BYE, and drops what arrives.  The comm is freed once
 * both ends have sent BYE.
 */
#include "core/msg/comm.h"

#include <errno.h>

#include "core/base/flight.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/recover.h"
#include "core/link/state.h"
#include "core/msg/msg_int.h"
#include "core/msg/open.h"
#include "core/msg/window.h"

static void add_traffic(struct braid_traffic *to, const struct braid_traffic *t)
{
	atomic_fetch_add(&to->messages, atomic_load(&t->messages));
	atomic_fetch_add(&to->bytes, atomic_load(&t->bytes));
}

static void count_closed(struct braid_comm *c)
{
	struct braid_dev *dev = c->link->key.dev;

	add_traffic(c->sender ? &dev->sent : &dev->got, &c->done);
	add_traffic(&c->link->msg.closed[c->sender], &c->done);
}

static bool unfinished(const struct braid_comm *c)
{
	if (c->kind)
		return c->kind->unfinished(c);
	for (uint32_t q = c->first; q != braid_comm_next(c); q++) {
		if (c->sender ? braid_send_at(c, q)->x.parts : braid_recv_at(c, q)->posted)
			return true;
	}
	return false;
}

static bool uses(const struct braid_comm *c, const struct braid_mr *mr)
{
	for (uint32_t q = c->first; q != braid_comm_next(c); q++) {
		if (c->sender ? braid_send_at(c, q)->x.parts && braid_send_at(c, q)->x.mr == mr :
				braid_recv_at(c, q)->posted && braid_recv_at(c, q)->mr == mr)
			return true;
	}
	return false;
}

bool braid_comm_is_sending(const struct braid_lane *lane, const struct braid_comm *c)
{
	const struct braid_txq *q = &lane->tx;

	for (uint32_t i = q->f_acked; i != q->f_sent; i++) {
		const struct braid_txf *f = &q->f[i & q->fmask];

		if (f->ext_len && f->owner && f->owner->comm == c->id)
			return true;
	}
	return q->part && q->f[q->f_sent & q->fmask].ext_len;
}

static void forget_sends(struct braid_comm *c)
{
	braid_link_revoke(c->link, braid_comm_is_sending, c);
	for (uint32_t q = c->first; q != c->next_seq; q++)
		braid_list_del(&braid_send_at(c, q)->x.node);
	for (unsigned i = 0; i < c->link->nlanes; i++) {
		if (braid_tx_release(c->link->lane[i], c->id))
			braid_link_down(c->link, -ENOMEM, "out of memory [no-memory]");
	}
	for (uint32_t q = c->first; q != c->next_seq; q++)
		braid_send_at(c, q)->x.parts = 0;
}

static void forget_recvs(struct braid_comm *c)
{
	bool placed = false;

	for (uint32_t q = c->first; q != c->next_rseq; q++) {
		const struct braid_recv *e = braid_recv_at(c, q);

		placed |= e->posted && e->credited && e->placed;
	}
	if (placed)
		braid_link_revoke(c->link, NULL, c);
	braid_link_drop_payload(c->link, c->id);
	for (uint32_t q = c->first; q != c->next_rseq; q++) {
		struct braid_recv *e = braid_recv_at(c, q);

		if (e->posted && e->started)
			braid_link_spread_end(c->link);
		e->posted = e->credit_due = false;
	}
	c->ndue = 0;
	c->oldest_rseq = c->next_rseq;
	braid_unexps_drop(c);
}

void braid_comm_drop(struct braid_comm *c)
{
	braid_assert_locked(&c->link->lock);
	if (c->sender || c->kind)	/* other kinds send in both directions */
		forget_sends(c);
	if (!c->sender || c->kind)
		forget_recvs(c);
	if (c->kind)
		c->kind->forget(c);
}

void braid_comm_cancel(struct braid_comm *c, const struct braid_mr *mr)
{
	struct braid_link *link = c->link;
	unsigned n = braid_link_stop(link);
	uint32_t rkey_epoch = braid_link_rkey_epoch(link);
	bool used = uses(c, mr);

	if (used) {
		if (!atomic_load(&c->err))
			braid_comm_give_up(c, "memory is deregistered here");
		braid_comm_fail(c, -ECANCELED);
		braid_comm_drop(c);
	}
	braid_comms_go(link, n, rkey_epoch);
	if (!used)
		return;		/* the usual case: no progress is needed */
	braid_link_progress(link, NULL, NULL);
	braid_link_try_flush_control(link);
}

void braid_comm_close(struct braid_comm *c)
{
	struct braid_link *link = c->link;
	unsigned n = braid_link_stop(link);
	uint32_t rkey_epoch = braid_link_rkey_epoch(link);
	bool gone;

	if (unfinished(c) && !atomic_load(&c->err) && !c->peer_closed)
		braid_comm_give_up(c, "a connection is closed here");
	braid_comm_drop(c);
	if (c->kind)
		c->kind->close(c);
	c->closed = true;
	braid_event(BRAID_EVENT_COMM_CLOSE, link->number, BRAID_FLIGHT_NONE, c->id,
		    atomic_load(&c->err));
	count_closed(c);
	gone = atomic_load(&link->state) != BRAID_LINK_UP;
	if (gone) {
		braid_comm_free(c);
	} else {		/* freed once both ends have sent BYE */
		c->bye_due = true;
		braid_comm_control_due(c);
	}
	braid_link_pin(link);
	braid_comms_go(link, n, rkey_epoch);
	braid_link_progress(link, NULL, NULL);
	braid_link_flush_control(link);	/* now: the process may end before a later chance */
	braid_link_unpin(link);
}

/* Is the receive's message complete here, and being copied into a GPU? */
static bool is_copied(const struct braid_comm *c, const struct braid_recv *e)
{
	const struct braid_unexp *u;

	braid_list_for(u, &c->link->msg.copying, copy_node) {
		if (u->recv == e)
			return true;
	}
	return false;
}

static bool is_untaken(const struct braid_send *s)
{
	return s->x.parts && (s->await != BRAID_MET || !braid_list_empty(&s->x.node));
}

/*
 * Does a request wait for data that the peer will not take or send after its BYE?  A send that met
 * its receive and is all queued has arrived, or FAIL would have come first; its acknowledgement may
 * still be on its way on another lane.
 */
static bool orphans(const struct braid_comm *c)
{
	if (c->kind)
		return c->kind->orphans(c);
	for (uint32_t q = c->first; q != braid_comm_next(c); q++) {
		if (c->sender ? is_untaken(braid_send_at(c, q)) :
				braid_recv_at(c, q)->posted && !is_copied(c, braid_recv_at(c, q)))
			return true;
	}
	return false;
}

int braid_bye_came(struct braid_lane *lane, struct braid_comm *c)
{
	braid_assert_locked(&lane->link->lock);
	c->peer_closed = true;
	if (orphans(c))
		braid_comm_orphaned(c);
	if (c->sender) {
		c->link->msg.shared_out -= braid_window_over(c->eager_out);
		c->eager_out = 0;
		for (uint32_t q = c->oldest_await; q != c->next_seq; q++)
			braid_send_at(c, q)->await = BRAID_MET;
		c->oldest_await = c->next_seq;
	}
	if (c->closed && !c->bye_due)
		braid_comm_free(c);
	return 0;
}
