/* SPDX-License-Identifier: BSD-3-Clause */
/* view.c - see view.h. */
#include "core/watch/view.h"

#include <string.h>
#include <time.h>

#include "core/msg/comm.h"
#include "core/msg/comms.h"
#include "core/link/lane.h"
#include "core/link/mover.h"
#include "core/link/state.h"
#include "core/base/os.h"
#include "core/rma/rma.h"
#include "core/setup/share.h"
#include "core/setup/silence.h"
#include "core/setup/stall.h"

enum { NAP_NS = 100000 };		/* between two tries of a lock */

const char *const braid_view_words[BRAID_VIEW_STATES] = {
	[BRAID_VIEW_NOT_POSTED] = "peer has not posted the receive",
	[BRAID_VIEW_SENDING] = "being sent",
	[BRAID_VIEW_NOT_ACKED] = "sent, not acknowledged",
	[BRAID_VIEW_NOT_SENT] = "peer has not sent it",
	[BRAID_VIEW_ANNOUNCED] = "announced, no data yet",
	[BRAID_VIEW_RECEIVING] = "being received",
	[BRAID_VIEW_NOT_REGISTERED] = "peer has not registered the window",
	[BRAID_VIEW_ASKED] = "peer has not sent the bytes",
	[BRAID_VIEW_DONE] = "done, not asked for",
};

static uint64_t counted(const _Atomic uint64_t *n)
{
	return atomic_load_explicit(n, memory_order_relaxed);
}

static void add(struct braid_view_sum *to, const struct braid_traffic *t)
{
	to->messages += counted(&t->messages);
	to->bytes += counted(&t->bytes);
}

/* --- without the lock ---------------------------------------------------------------------- */

static void view_lane(const struct braid_lane *lane, uint64_t now, struct braid_view_lane *ret)
{
	uint64_t suspect = braid_lane_suspect_ns(lane);

	ret->up = braid_lane_up(lane);
	ret->suspect_ns = suspect ? braid_since(suspect, now) + 1 : 0;
	ret->sent = counted(&lane->tx_bytes);
	ret->received = counted(&lane->rx_bytes);
	ret->lost = braid_lane_times_lost(lane);
	ret->back = braid_lane_times_back(lane);
	ret->corrupt = braid_lane_times_corrupt(lane);
	ret->thread_sends = braid_mover_sends(lane);
	ret->thread_receives = braid_mover_receives(lane);
	braid_hist_read(&lane->acks, &ret->acks);
}

static void view_link(struct braid_link *link, uint64_t now, struct braid_view *ret)
{
	ret->number = link->number;
	ret->device = link->key.dev->net.name;
	ret->state = (enum braid_link_state)atomic_load(&link->state);
	ret->err = atomic_load(&link->err);
	ret->silent_ns = ret->state == BRAID_LINK_UP ? braid_silence(link, now) : 0;
	ret->silent = braid_silence_is_reported(link);
	ret->late = braid_stall_is_late(link);
	braid_share_get(link, &ret->peer_cpu, &ret->peer_wait);
	ret->stalls = braid_stall_count(link);
	ret->ncomms = braid_comms_count(link);
	for (int large = 0; large < 2; large++)
		braid_comms_took(link, large, &ret->took[large]);
	ret->nlanes = atomic_load(&link->nlanes);
	for (unsigned i = 0; i < ret->nlanes; i++)
		view_lane(link->lane[i], now, &ret->lane[i]);
}

/* --- with the lock ------------------------------------------------------------------------- */

struct flying {				/* what lanes hold of a send */
	uint64_t bytes;			/* queued or under way */
	bool queued, ill;
};

static struct flying flying(const struct braid_link *link, const struct braid_view *view,
			    const struct braid_send *s)
{
	struct flying f = { 0 };

	for (unsigned i = 0; i < view->nlanes; i++) {
		const struct braid_txq *q = &link->lane[i]->tx;

		for (uint32_t k = q->f_acked; q->f && k != q->f_head; k++) {
			const struct braid_txf *x = &q->f[k & q->fmask];

			if (x->owner != &s->x)
				continue;
			f.bytes += x->ext_len;
			f.queued |= (int32_t)(k - q->f_sent) >= 0;
			f.ill |= !view->lane[i].up || view->lane[i].suspect_ns;
		}
	}
	return f;
}

static void view_send(const struct braid_link *link, const struct braid_view *view,
			 const struct braid_send *s, struct braid_view_message *ret)
{
	struct flying f = flying(link, view, s);
	bool done = atomic_load_explicit(&s->req.done, memory_order_relaxed);

	ret->seq = s->x.seq;
	ret->tag = s->tag;
	ret->size = s->size;
	ret->done = done ? s->size : s->cut - (s->cut ? f.bytes : 0);
	ret->ill = f.ill;
	if (done)
		ret->state = BRAID_VIEW_DONE;
	else if (s->await == BRAID_AWAIT_WANT)
		ret->state = BRAID_VIEW_NOT_POSTED;
	else if (f.queued || !braid_list_empty(&s->x.node))
		ret->state = BRAID_VIEW_SENDING;
	else
		ret->state = BRAID_VIEW_NOT_ACKED;
}

static void view_recv(const struct braid_recv *e, struct braid_view_message *ret)
{
	ret->seq = e->rseq;
	ret->tag = e->tag;
	ret->size = e->matched ? e->size : e->room;
	ret->done = e->posted ? e->got : e->size;
	if (!e->posted)
		ret->state = BRAID_VIEW_DONE;
	else if (!e->matched && !e->begun)
		ret->state = BRAID_VIEW_NOT_SENT;
	else if (e->wanted && !e->begun)
		ret->state = BRAID_VIEW_ANNOUNCED;
	else
		ret->state = BRAID_VIEW_RECEIVING;
}

static void add_message(struct braid_view *view, const struct braid_view_message *m)
{
	view->outstanding[m->sender]++;
	if (m->age_ns > view->oldest_ns)
		view->oldest_ns = m->age_ns;
	if (view->nmsgs < BRAID_VIEW_MESSAGES)
		view->msg[view->nmsgs++] = *m;
}

/* A channel of one-sided operations.  Those that are over are counted once it takes them back. */
static void view_channel(const struct braid_comm *c, uint64_t now, struct braid_view *view)
{
	static const enum braid_view_state states[] = {
		[BRAID_RMA_WAITS] = BRAID_VIEW_NOT_REGISTERED,
		[BRAID_RMA_SENDING] = BRAID_VIEW_SENDING, [BRAID_RMA_ASKED] = BRAID_VIEW_ASKED,
		[BRAID_RMA_DONE] = BRAID_VIEW_DONE,
	};
	const struct braid_rma_channel *ch = c->channel;
	const struct braid_rma_op *op;

	view->nchannels++;
	view->windows += ch->nremote;
	view->signals_waiting += braid_rma_signals_waiting(ch);
	braid_list_for(op, &ch->ops, node) {
		struct braid_view_message m = {
			.what = braid_rma_name(op), .comm = c->id, .seq = op->number,
			.tag = (int32_t)op->h.window, .sender = true,
			.failed = atomic_load(&c->err), .state = states[braid_rma_state(op)],
			.size = op->h.size, .done = op->cut, .age_ns = braid_since(op->at_ns, now),
		};

		if (atomic_load(&op->over)) {
			view->open[1].messages++;
			view->open[1].bytes += op->h.size;
		} else {
			add_message(view, &m);
		}
	}
}

static void view_comm(const struct braid_comm *c, uint64_t now, struct braid_view *view)
{
	bool failed = atomic_load(&c->err);

	if (c->closed)
		return;
	add(&view->open[c->sender], &c->done);
	if (c->kind)
		view_channel(c, now, view);
	for (uint32_t q = c->first; q != braid_comm_next(c); q++) {
		const struct braid_send *s = c->sender ? c->send[q % BRAID_SLOTS] : NULL;
		const struct braid_recv *e = c->sender ? NULL : c->recv[q % BRAID_SLOTS];
		struct braid_view_message m = {
			.comm = c->id, .sender = c->sender, .failed = failed,
		};

		if (s ? !s->busy : !e->busy)
			continue;
		if (s)
			view_send(c->link, view, s, &m);
		else
			view_recv(e, &m);
		m.age_ns = braid_since(s ? s->at_ns : e->at_ns, now);
		add_message(view, &m);
	}
}

static void view_inside(struct braid_link *link, uint64_t now, struct braid_view *ret)
{
	struct braid_comm *c;
	size_t at;

	memcpy(ret->peer, link->peer, sizeof(ret->peer));
	ret->dialler = link->dialler;
	for (unsigned i = 0; i < ret->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		ret->lane[i].transport = lane->tr->name;
		ret->lane[i].nic = link->key.dev->member[lane->member]->net.name;
		ret->lane[i].home = lane == braid_link_home(link);
		ret->lane[i].queued = lane->tx.unsent;
		ret->lane[i].unacked = lane->tx.unacked;
		if (lane->fd >= 0)
			lane->tr->describe(lane, &ret->lane[i].wire);
		at = strlen(ret->lane[i].wire.text);
		braid_later_text(link->key.dev->member[lane->member],
				 ret->lane[i].wire.text + at,
				 sizeof(ret->lane[i].wire.text) - at);
	}
	add(&ret->closed[0], braid_comms_closed(link, false));
	add(&ret->closed[1], braid_comms_closed(link, true));
	braid_list_for(c, braid_comms(link), node)
		view_comm(c, now, ret);
}

static bool lock_within(struct braid_lock *lock, uint64_t *budget_ns)
{
	const struct timespec nap = { .tv_nsec = NAP_NS };
	uint64_t begun = braid_os->now_ns(), waited;
	bool got;

	while (!(got = braid_trylock(lock)) && braid_os->now_ns() - begun < *budget_ns)
		nanosleep(&nap, NULL);
	waited = braid_os->now_ns() - begun;
	*budget_ns -= waited < *budget_ns ? waited : *budget_ns;
	return got;
}

void braid_view_link(struct braid_link *link, uint64_t *budget_ns, struct braid_view *ret)
{
	uint64_t now = braid_os->now_ns();

	memset(ret, 0, offsetof(struct braid_view, msg));
	ret->busy = !lock_within(&link->lock, budget_ns);
	view_link(link, now, ret);
	if (ret->busy)
		return;
	view_inside(link, now, ret);
	braid_unlock(&link->lock);
}
