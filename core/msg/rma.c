/* SPDX-License-Identifier: BSD-3-Clause */
/* rma.c - communicators for one-sided traffic: their windows and channels; see rma.h. */
#include "core/msg/rma_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/link/control.h"
#include "core/link/recover.h"
#include "core/msg/comms.h"
#include "core/msg/open.h"

void braid_rma_start(struct braid_rma *rma, struct braid_dev *dev)
{
	memset(rma, 0, sizeof(*rma));
	rma->dev = dev;
	braid_list_init(&rma->channels);
	braid_list_init(&rma->lost);
}

void braid_rma_end(struct braid_rma *rma)
{
	free(rma->closed);
	rma->closed = NULL;
}

/* --- windows ------------------------------------------------------------------------------- */

struct braid_rma_window *braid_rma_window(const struct braid_rma *rma, uint32_t number)
{
	struct braid_rma_window *w = atomic_load_explicit(&rma->bucket[number % BRAID_RMA_BUCKETS],
							  memory_order_acquire);

	while (w && w->number != number)
		w = atomic_load_explicit(&w->next, memory_order_acquire);
	return w;
}

/* A link that the communicator has a channel on, pinned. */
struct links {
	struct braid_link **link;
	unsigned n;
};

static int add_link(struct links *to, struct braid_link *link)
{
	struct braid_link **more;

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

/* Windows were opened or closed: announce that on the communicator's channels of this link. */
static void announce(const struct braid_rma *rma, struct braid_link *link)
{
	struct braid_comm *c;

	braid_assert_locked(&link->lock);
	if (atomic_load(&link->state) != BRAID_LINK_UP)
		return;
	braid_list_for(c, braid_comms(link), node) {
		if (c->rma && c->rma->rma == rma && !c->sender)
			braid_comm_control_due(c);
	}
	braid_link_urge(link);
	braid_link_send_control(link);
	braid_link_flush(link);
}

void braid_rma_window_open(struct braid_rma *rma, struct braid_rma_window *w)
{
	_Atomic(struct braid_rma_window *) *bucket;
	struct links links;

	braid_lock_wait(&rma->lock);
	w->number = atomic_load(&rma->nwindows);
	bucket = &rma->bucket[w->number % BRAID_RMA_BUCKETS];
	atomic_store(&w->next, atomic_load(bucket));
	atomic_store_explicit(bucket, w, memory_order_release);
	atomic_store(&rma->nwindows, w->number + 1);
	if (links_of(rma, &links))	/* the announcement goes with later control frames */
		braid_info("out of memory: window %u is announced late", w->number);
	braid_unlock(&rma->lock);
	for (unsigned i = 0; i < links.n; i++) {
		braid_lock_wait(&links.link[i]->lock);
		announce(rma, links.link[i]);
		braid_unlock(&links.link[i]->lock);
	}
	links_leave(&links);
}

/* Take the window out of its bucket, and note its number.  With rma->lock held. */
static int unlist(struct braid_rma *rma, struct braid_rma_window *w)
{
	_Atomic(struct braid_rma_window *) *p = &rma->bucket[w->number % BRAID_RMA_BUCKETS];

	braid_assert_locked(&rma->lock);
	if (rma->nclosed == rma->closed_room) {
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

/* Can NICs write the window, by keys that peers get? */
static bool has_keys(const struct braid_rma_window *w)
{
	for (unsigned i = 0; i < w->mr->dev->nmembers; i++) {
		if (!w->mr->key[i].mr || w->mr->key[i].sealed)
			return false;
	}
	return true;
}

/* The lanes of the link stand still. */
static void stop_using(struct braid_comm *c, const struct braid_rma_window *w)
{
	struct braid_rma_channel *ch = c->rma;

	braid_assert_locked(&c->link->lock);
	if (!c->sender && w->number < ch->announced && has_keys(w)) {
		braid_link_revoke(c->link, NULL, c);
		ch->placed--;
	}
	braid_link_discard(c->link, c->id, w);
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
		if (c->rma && c->rma->rma == rma && !c->closed)
			stop_using(c, w);
	}
	braid_link_go(link, n);
	if (rkey_epoch != braid_link_rkey_epoch(link))
		braid_comm_hooks.revoked(link);
	braid_lock_wait(&link->lock);
	announce(rma, link);
	braid_unlock(&link->lock);
}

int braid_rma_window_close(struct braid_rma *rma, struct braid_rma_window *w)
{
	struct links links;
	int err;

	braid_lock_wait(&rma->lock);
	err = links_of(rma, &links);
	if (!err)
		err = unlist(rma, w);
	braid_unlock(&rma->lock);
	for (unsigned i = 0; !err && i < links.n; i++)
		close_on(rma, links.link[i], w);
	links_leave(&links);
	return err ? braid_no_memory("the end of a window") : 0;
}

/* --- channels ------------------------------------------------------------------------------ */

int braid_rma_channel_new(struct braid_rma *rma, struct braid_comm *c)
{
	struct braid_rma_channel *ch = calloc(1, sizeof(*ch));

	braid_assert_locked(&c->link->lock);
	if (!ch)
		return -ENOMEM;
	ch->comm = c;
	ch->rma = rma;
	ch->rank = BRAID_RMA_NO_RANK;
	ch->rank_due = true;
	braid_list_init(&ch->ops);
	braid_list_init(&ch->queue);
	braid_list_init(&ch->gets);
	braid_list_init(&ch->replies);
	c->rma = ch;
	c->link->msg.nrma++;
	braid_lock_wait(&rma->lock);
	braid_list_add_tail(&rma->channels, &ch->node);
	braid_unlock(&rma->lock);
	return 0;
}

void braid_rma_channel_leave(struct braid_comm *c)
{
	struct braid_rma_channel *ch = c->rma;
	struct braid_rma *rma = ch->rma;
	struct braid_rma_op *op, *tmp;

	braid_assert_locked(&c->link->lock);
	if (!rma)
		return;
	braid_lock_wait(&rma->lock);
	braid_list_del(&ch->node);
	if (atomic_load(&rma->failed) == c)
		atomic_store(&rma->failed, NULL);
	braid_rma_forget(c);
	braid_list_for_safe(op, tmp, &ch->ops, node) {
		braid_list_del(&op->node);
		braid_list_add_tail(&rma->lost, &op->node);
	}
	braid_unlock(&rma->lock);
	ch->rma = NULL;
}

void braid_rma_channel_free(struct braid_comm *c)
{
	struct braid_rma_channel *ch = c->rma;

	braid_rma_channel_leave(c);
	braid_rma_orders_free(ch);
	c->link->msg.nrma--;
	c->rma = NULL;
	free(ch->remote);
	free(ch->scratch);
	free(ch);
}

void braid_rma_spread(struct braid_rma_channel *ch, bool spread)
{
	braid_assert_locked(&ch->comm->link->lock);
	if (spread && !ch->spread)
		braid_link_spread_begin(ch->comm->link);
	else if (!spread && ch->spread)
		braid_link_spread_end(ch->comm->link);
	ch->spread = spread;
}

void braid_rma_failed(struct braid_comm *c, int err)
{
	struct braid_rma *rma = c->rma->rma;
	int none = 0;

	if (c->closed || (c->sender && !c->opened))	/* connect() goes on by another link */
		return;
	atomic_store(&rma->failed, c);
	atomic_compare_exchange_strong(&rma->err, &none, err);
}

int braid_rma_error(struct braid_comm *c)
{
	int err = atomic_load_explicit(&c->err, memory_order_acquire);

	if (!err)
		return 0;
	braid_lock_wait(&c->link->lock);
	braid_comm_report(c, err);
	braid_unlock(&c->link->lock);
	return err;
}

bool braid_rma_unfinished(const struct braid_comm *c)
{
	const struct braid_rma_op *op;

	braid_assert_locked(&c->link->lock);
	braid_list_for(op, &c->rma->ops, node) {
		if (!atomic_load(&op->done))
			return true;
	}
	return braid_rma_replies_use(c->rma, NULL);
}

void braid_rma_forget(struct braid_comm *c)
{
	struct braid_rma_channel *ch = c->rma;
	struct braid_rma_op *op;

	braid_assert_locked(&c->link->lock);
	braid_list_for(op, &ch->ops, node)
		braid_list_del(&op->x.node);
	braid_rma_replies_free(ch, true);
	braid_rma_spread(ch, false);
}

/* --- frames that arrive -------------------------------------------------------------------- */

static int begin_op(struct braid_lane *lane, struct braid_comm *c)
{
	struct braid_rma_channel *ch = c->rma;
	const struct braid_hdr *h = &lane->rx_hdr;

	if (c->sender || h->seq != ch->next_seq || h->flags || h->len > BRAID_COPY_MAX)
		return -EBADMSG;
	ch->next_seq++;
	if (!ch->scratch)
		ch->scratch = malloc(BRAID_COPY_MAX);
	if (!ch->scratch)
		return -ENOMEM;
	lane->rx_kind = BRAID_RX_UNEXP;
	lane->rx_target = ch;
	lane->rx_dst = ch->scratch;
	return 0;
}

bool braid_rma_rx_fast(struct braid_comm *c, const struct braid_hdr *h, const char *payload)
{
	struct braid_rma_channel *ch = c->rma;

	braid_assert_locked(&c->link->lock);
	if (c->sender || h->seq != ch->next_seq || h->flags || h->len > BRAID_COPY_MAX ||
	    braid_comm_drains(c) || braid_rma_apply(ch, payload, h->len))
		return false;
	ch->next_seq++;
	return true;
}

/* Where a chunk of a put goes; *ret_window NULL: its window is closed.  0, or -EBADMSG. */
static int chunk_place(const struct braid_comm *c, const struct braid_hdr *h,
		       struct braid_rma_window **ret_window)
{
	const struct braid_rma_channel *ch = c->rma;
	struct braid_rma_window *w = braid_rma_window(ch->rma, (uint32_t)h->tag);

	*ret_window = w;
	if (w && (h->offset > w->size || h->len > w->size - h->offset))
		return -EBADMSG;
	if ((uint32_t)h->tag >= ch->announced)
		return -EBADMSG;
	return h->flags & BRAID_FLAG_PLACED && (!w || !ch->placed) ? -EBADMSG : 0;
}

static int begin_chunk(struct braid_lane *lane, struct braid_comm *c)
{
	struct braid_rma_window *w;
	int err;

	if (c->sender)
		return braid_rma_got_begin(lane, c);
	err = chunk_place(c, &lane->rx_hdr, &w);
	if (err)
		return err;
	lane->rx_kind = BRAID_RX_ENTRY;
	lane->rx_target = w;
	lane->rx_mr = w && w->mr->gpu ? w->mr : NULL;
	lane->rx_dst = w ? w->data + lane->rx_hdr.offset : NULL;
	return lane->rx_mr && !lane->gpu ? braid_rx_stage(lane) : 0;
}

char *braid_rma_rx_place(const struct braid_lane *lane, const struct braid_comm *c,
			 const struct braid_hdr *h, const struct braid_mr **ret_gpu)
{
	struct braid_rma_window *w;

	braid_assert_locked(&c->link->lock);
	if (c->sender || chunk_place(c, h, &w) || !w)
		return NULL;
	*ret_gpu = w->mr->gpu ? w->mr : NULL;
	return !*ret_gpu || lane->gpu ? w->data + h->offset : NULL;
}

int braid_rma_rx_begin(struct braid_lane *lane, struct braid_comm *c)
{
	braid_assert_locked(&c->link->lock);
	if (braid_comm_drains(c))
		return 0;
	switch (lane->rx_hdr.type) {
	case BRAID_F_EAGER:
		return begin_op(lane, c);
	case BRAID_F_CHUNK:
		return begin_chunk(lane, c);
	case BRAID_F_CREDIT:
		if (!c->sender)
			return -EBADMSG;
		lane->rx_kind = BRAID_RX_CTL;
		lane->rx_dst = (char *)lane->rx_ctl;
		return 0;
	case BRAID_F_RETIRE:
		return braid_rma_closed_came(lane, c);
	default:
		return -EBADMSG;
	}
}

/* Copy a payload from lane->rx_stage into the GPU: 0; -EAGAIN: not complete; else it has failed. */
static BRAID_APART int to_gpu(struct braid_lane *lane, struct braid_comm *c)
{
	int err;

	if (!lane->rx_copy.mr)
		braid_gpucopy_begin(&lane->rx_copy, braid_link_copies(lane->link), lane->rx_mr,
				    lane->rx_gpu, lane->rx_stage, lane->rx_hdr.len, true);
	err = braid_gpucopy_move(&lane->rx_copy);
	if (err == -EAGAIN)
		return err;
	if (err)
		braid_comm_no_gpu(c, &lane->rx_copy);
	free(lane->rx_stage);
	lane->rx_stage = NULL;
	return err;
}

int braid_rma_rx_end(struct braid_lane *lane, struct braid_comm *c)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_rma_channel *ch = c->rma;
	int err;

	braid_assert_locked(&c->link->lock);
	if (braid_comm_drains(c))	/* it was closed since the frame began */
		return 0;
	if (h->type == BRAID_F_CREDIT)
		return braid_rma_window_came(lane, c);
	if (h->type == BRAID_F_EAGER)
		return braid_rma_apply(ch, ch->scratch, h->len);
	err = lane->rx_stage ? to_gpu(lane, c) : 0;
	if (err)
		return err == -EAGAIN ? err : 0;
	if (!c->sender)
		return braid_rma_chunk_came(ch, (uint8_t)h->n, h->seq, h->len);
	braid_rma_got_end(ch, lane->rx_target, h->len);
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
	};
	uint8_t keys[4 * BRAID_PATHS_MAX];

	h.len = keys_of(w, keys);
	if (h.len) {
		h.offset = (uint64_t)(uintptr_t)w->data;
		h.seq = braid_link_rkey_epoch(c->link);
	}
	if (!braid_link_ctl(c->link, &h, h.len ? keys : NULL))
		return false;
	ch->placed += h.len != 0;
	return true;
}

static bool send_closed(const struct braid_rma_channel *ch, uint32_t number)
{
	struct braid_hdr h = {
		.type = BRAID_F_RETIRE, .comm = ch->comm->id, .seq = number, .n = 1,
	};

	return braid_link_ctl(ch->comm->link, &h, NULL);
}

/* With rma->lock held, so that no window is closed and freed meanwhile. */
static bool send_all(struct braid_rma_channel *ch)
{
	const struct braid_rma *rma = ch->rma;

	for (; ch->announced < atomic_load(&rma->nwindows); ch->announced++) {
		const struct braid_rma_window *w = braid_rma_window(rma, ch->announced);

		if (w ? !send_open(ch, w) : !send_closed(ch, ch->announced))
			return false;
	}
	for (; ch->closed < rma->nclosed; ch->closed++) {
		if (!send_closed(ch, rma->closed[ch->closed]))
			return false;
	}
	return true;
}

bool braid_rma_send_control(struct braid_comm *c)
{
	bool all;

	braid_assert_locked(&c->link->lock);
	if (c->sender || c->closed || atomic_load(&c->err))
		return true;
	braid_lock_wait(&c->rma->rma->lock);
	all = send_all(c->rma);
	braid_unlock(&c->rma->rma->lock);
	return all;
}
