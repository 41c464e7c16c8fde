/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * window.c - windows: opened, announced to the ranks that have a channel here, and closed.
 */
#include "core/rma/rma_int.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "core/link/control.h"
#include "core/link/recover.h"
#include "core/msg/comms.h"
#include "core/msg/open.h"

enum { DRAIN_NS = 1000000000, DRAIN_TURNS = 100000 };	/* how long a close waits for puts */

/* A link that the communicator has a channel on, pinned. */
struct links {
	struct braid_link **link;
	unsigned n;
};

static int add_link(struct links *to, struct braid_link *link)
{
	void *more;

	for (unsigned i = 0; i < to->n; i++) {
		if (to->link[i] == link)
			return 0;
	}
	more = realloc(to->link, (to->n + 1) * sizeof(struct braid_link *));
	if (!more)
		return -ENOMEM;
	to->link = more;
	braid_link_pin(link);
	to->link[to->n++] = link;
	return 0;
}

/* With rma->lock held.  A channel is in the list as long as its comm, so its link lives. */
static int links_of(struct braid_rma *rma, struct links *ret)
{
	const struct braid_rma_channel *ch;
	int err = 0;

	braid_assert_locked(&rma->lock);
	*ret = (struct links){ NULL, 0 };
	braid_list_for(ch, &rma->channels, node) {
		if (!err)
			err = add_link(ret, ch->comm->link);
	}
	return err;
}

static void links_leave(struct links *l)
{
	for (unsigned i = 0; i < l->n; i++)
		braid_link_unpin(l->link[i]);
	free(l->link);
}

/* Is the comm a channel of that communicator? */
static bool is_of(const struct braid_comm *c, const struct braid_rma *rma)
{
	const struct braid_rma_channel *ch = braid_rma_channel_of(c);

	return ch && ch->rma == rma;
}

/* Windows were opened or closed: announce that on the communicator's channels of this link. */
static void announce(const struct braid_rma *rma, struct braid_link *link)
{
	struct braid_comm *c;

	braid_assert_locked(&link->lock);
	if (atomic_load(&link->state) != BRAID_LINK_UP)
		return;
	braid_list_for(c, braid_comms(link), node) {
		if (is_of(c, rma) && !c->sender)
			braid_comm_control_due(c);
	}
	braid_link_urge(link);
	braid_link_send_control(link);
	braid_link_flush(link);
}

/* With rma->lock held. */
static void list(struct braid_rma *rma, struct braid_rma_window *w)
{
	_Atomic(struct braid_rma_window *) *bucket;

	braid_assert_locked(&rma->lock);
	w->number = atomic_load(&rma->nwindows);
	bucket = &rma->bucket[w->number % BRAID_RMA_BUCKETS];
	atomic_store(&w->next, atomic_load(bucket));
	atomic_store_explicit(bucket, w, memory_order_release);
	atomic_store(&rma->nwindows, w->number + 1);
}

int braid_rma_window_open(struct braid_rma *rma, struct braid_rma_window *w)
{
	struct links links;
	int err;

	braid_rma_words_map(rma, w);
	braid_lock_wait(&rma->lock);
	err = links_of(rma, &links);
	if (!err)
		list(rma, w);
	braid_unlock(&rma->lock);
	for (unsigned i = 0; !err && i < links.n; i++) {
		braid_lock_wait(&links.link[i]->lock);
		announce(rma, links.link[i]);
		braid_unlock(&links.link[i]->lock);
	}
	links_leave(&links);
	if (!err)
		return 0;
	braid_rma_words_drop(rma, w);
	return braid_no_memory("a window");
}

/*
 * Take the window out of its bucket, and note its number for the channels there are.
 * With rma->lock held.
 */
static int unlist(struct braid_rma *rma, struct braid_rma_window *w)
{
	_Atomic(struct braid_rma_window *) *p = &rma->bucket[w->number % BRAID_RMA_BUCKETS];
	bool note = !braid_list_empty(&rma->channels);

	braid_assert_locked(&rma->lock);
	if (note && rma->nclosed == rma->closed_room) {
		unsigned room = rma->closed_room ? 2 * rma->closed_room : 16;
		uint32_t *more = realloc(rma->closed, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		rma->closed = more;
		rma->closed_room = room;
	}
	while (atomic_load(p) != w)
		p = &atomic_load(p)->next;
	atomic_store(p, atomic_load(&w->next));
	if (note)
		rma->closed[rma->nclosed++] = w->number;
	return 0;
}

/* Does an operation that is not done, or a reply, read or write the memory of `mr`? */
static bool uses(const struct braid_rma_channel *ch, const struct braid_mr *mr)
{
	const struct braid_rma_op *op;

	braid_list_for(op, &ch->ops, node) {
		if (op->mr == mr && !atomic_load(&op->done))
			return true;
	}
	return braid_rma_replies_use(ch, mr);
}

/* Do peers get keys by which their NICs can write the window? */
static bool has_keys(const struct braid_rma_window *w)
{
	for (unsigned i = 0; i < w->mr->dev->nmembers; i++) {
		if (!w->mr->key[i].mr || w->mr->key[i].sealed)
			return false;
	}
	return true;
}

/* End all use of the window by one channel, while the link is stopped (braid_link_stop). */
static void stop_using(struct braid_comm *c, const struct braid_rma_window *w)
{
	struct braid_rma_channel *ch = c->channel;

	braid_assert_locked(&c->link->lock);
	if (!c->sender && w->number < ch->announced && has_keys(w)) {
		braid_link_revoke(c->link, NULL, c);
		ch->placed--;
	}
	braid_link_discard(c->link, c->id, w);
	braid_rma_landings_drop(ch, w);
	braid_rma_replies_copy(ch, w->mr);
	if (!uses(ch, w->mr))
		return;
	if (!atomic_load(&c->err))
		braid_comm_give_up(c, "a window is closed here");
	braid_comm_fail(c, -ECANCELED);
	braid_comm_drop(c);
}

static void close_on(const struct braid_rma *rma, struct braid_link *link,
		     const struct braid_rma_window *w)
{
	unsigned n = braid_link_stop(link);
	uint32_t rkey_epoch = braid_link_rkey_epoch(link);
	struct braid_comm *c;

	braid_list_for(c, braid_comms(link), node) {
		if (is_of(c, rma) && !c->closed)
			stop_using(c, w);
	}
	braid_comms_go(link, n, rkey_epoch);
	braid_lock_wait(&link->lock);
	announce(rma, link);
	braid_unlock(&link->lock);
}

/*
 * Wait until puts whose bytes have been announced are over, so that none is cut off in the middle;
 * not for long, and not once a peer has failed.
 */
static void drain(struct braid_rma *rma, const struct braid_rma_window *w)
{
	uint64_t until = braid_os->now_ns() + DRAIN_NS;
	struct links links = { .n = 1 };

	for (unsigned i = 0; i < DRAIN_TURNS && links.n && atomic_load(&w->due) > 0 &&
			     !atomic_load(&rma->err) && braid_os->now_ns() < until; i++) {
		braid_lock_wait(&rma->lock);
		links_of(rma, &links);
		braid_unlock(&rma->lock);
		for (unsigned k = 0; k < links.n; k++)
			braid_link_progress(links.link[k], NULL, NULL);
		links_leave(&links);
		braid_yield();
	}
}

int braid_rma_window_close(struct braid_rma *rma, struct braid_rma_window *w)
{
	struct links links;
	int err;

	drain(rma, w);
	braid_lock_wait(&rma->lock);
	err = links_of(rma, &links);
	if (!err)
		err = unlist(rma, w);
	braid_unlock(&rma->lock);
	for (unsigned i = 0; !err && i < links.n; i++)
		close_on(rma, links.link[i], w);
	links_leave(&links);
	if (err)
		return braid_no_memory("the end of a window");
	braid_rma_words_drop(rma, w);
	return 0;
}

/* --- announcements ------------------------------------------------------------------------- */

/* Pack the keys by which peers may write a window: their bytes, or 0. */
static uint32_t keys_of(const struct braid_rma_window *w, uint8_t *to)
{
	unsigned n = has_keys(w) ? w->mr->dev->nmembers : 0;
	uint32_t key[BRAID_PATHS_MAX];

	for (unsigned i = 0; i < n; i++)
		key[i] = w->mr->key[i].remote;
	braid_keys_pack(key, n, to);
	return 4 * n;
}

static bool send_open(struct braid_rma_channel *ch, const struct braid_rma_window *w)
{
	struct braid_comm *c = ch->comm;
	struct braid_hdr h = {
		.type = BRAID_F_CREDIT, .comm = c->id, .rseq = w->number, .size = w->size,
		.n = BRAID_RMA_TAKES_SLOTS | BRAID_RMA_TAKES_JOINED,
	};
	uint8_t keys[4 * BRAID_PATHS_MAX];

	h.len = keys_of(w, keys);
	if (h.len) {
		h.offset = (uint64_t)(uintptr_t)w->data;
		h.seq = braid_link_rkey_epoch(c->link);
	}
	if (!braid_link_ctl(c->link, &h, h.len ? keys : NULL))
		return false;
	ch->placed += h.len != 0 && w->number >= ch->announced;
	return true;
}

static bool send_closed(const struct braid_rma_channel *ch, uint32_t number)
{
	struct braid_hdr h = {
		.type = BRAID_F_RETIRE, .comm = ch->comm->id, .seq = number, .n = 1,
	};

	return braid_link_ctl(ch->comm->link, &h, NULL);
}

/*
 * Announce what the channel's peer does not know yet, with rma->lock held, so that no window is
 * freed meanwhile.  A number left out means a closed window, so only the last may have to be named.
 * Keys that the link has revoked are replaced.
 */
static bool send_all(struct braid_rma_channel *ch)
{
	const struct braid_rma *rma = ch->rma;
	uint32_t n = atomic_load(&rma->nwindows);

	if (ch->rkey_epoch != braid_link_rkey_epoch(ch->comm->link))
		ch->keyed = 0;
	ch->rkey_epoch = braid_link_rkey_epoch(ch->comm->link);
	for (; ch->keyed < n; ch->keyed++) {
		const struct braid_rma_window *w = braid_rma_window(rma, ch->keyed);
		bool first = ch->keyed >= ch->announced;

		if (w ? (first || has_keys(w)) && !send_open(ch, w) :
			first && ch->keyed + 1 == n && !send_closed(ch, ch->keyed))
			return false;
		ch->announced += first;
	}
	for (; ch->closed < rma->nclosed; ch->closed++) {
		if (!send_closed(ch, rma->closed[ch->closed]))
			return false;
	}
	return true;
}

bool braid_rma_announce(struct braid_comm *c)
{
	struct braid_rma_channel *ch = c->channel;
	bool all;

	braid_assert_locked(&c->link->lock);
	if (c->sender || c->closed || atomic_load(&c->err))
		return true;
	braid_lock_wait(&ch->rma->lock);
	all = send_all(ch);
	braid_unlock(&ch->rma->lock);
	return all;
}
