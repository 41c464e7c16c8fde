/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma_apply.c - operations that arrive at their target: puts land, signals are added in order, and
 * gets are answered.
 */
#include "core/msg/rma_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/copy.h"
#include "core/link/control.h"
#include "core/proto/frame.h"

enum {
	EPOCHS_MAX = 1 << 16,		/* of one context, unfinished: far more than lanes can hold */
};

struct epoch {
	uint64_t want, got;		/* bytes of its chunks: announced; here */
	bool ended;			/* by this signal: */
	uint32_t window;
	uint64_t offset, value;
};

/* The epochs of one context that are not finished: numbers first .. first + n - 1. */
struct braid_rma_order {
	uint32_t first, now;		/* now: of the operation that comes next */
	unsigned n, room;		/* room: a power of two */
	struct epoch *e;		/* a ring */
};

struct reply {				/* to a get */
	struct braid_list node;		/* channel->replies */
	struct braid_xfer x;
	atomic_bool done;
	struct braid_rma_channel *ch;
	char *data;
	uint64_t size, cut;
	uint32_t id;
};

/* --- signals ------------------------------------------------------------------------------- */

/* Words are added to by several links at once. */
int braid_rma_signal(struct braid_rma *rma, uint32_t window, uint64_t offset, uint64_t value)
{
	struct braid_rma_window *w = braid_rma_window(rma, window);

	if (!w)
		return 0;		/* closed since */
	if (offset % sizeof(value) || offset > w->size || sizeof(value) > w->size - offset)
		return -ERANGE;
	if (w->mr->gpu)
		return braid_rma_word_add(rma, w, offset, value);
	__atomic_fetch_add((uint64_t *)(void *)(w->data + offset), value, __ATOMIC_RELEASE);
	return 0;
}

int braid_rma_apply_signal(struct braid_rma_channel *ch, uint32_t window, uint64_t offset,
			   uint64_t value)
{
	int err = braid_rma_signal(ch->rma, window, offset, value);

	if (!braid_list_empty(&ch->rma->words))	/* a hint: it is moved in any case */
		braid_rma_deliver_soon(ch);
	return err == -ERANGE ? -EBADMSG : err;
}

/* --- order --------------------------------------------------------------------------------- */

static struct epoch *at(const struct braid_rma_order *o, unsigned i)
{
	return &o->e[(o->first + i) & (o->room - 1)];
}

static bool grow(struct braid_rma_order *o, unsigned least)
{
	unsigned room = o->room ? o->room : 8;
	struct epoch *e;

	while (room < least)
		room *= 2;
	e = calloc(room, sizeof(*e));
	if (!e)
		return false;
	for (unsigned i = 0; i < o->n; i++)
		e[(o->first + i) & (room - 1)] = *at(o, i);
	free(o->e);
	o->e = e;
	o->room = room;
	return true;
}

/* The context's epoch of that number, from now on unfinished.  0, -EBADMSG or -ENOMEM. */
static int epoch_of(struct braid_rma_order *o, uint32_t number, struct epoch **ret)
{
	uint32_t i = number - o->first;

	if (i >= EPOCHS_MAX)
		return -EBADMSG;
	if (i >= o->room && !grow(o, i + 1))
		return -ENOMEM;
	for (; o->n <= i; o->n++)
		*at(o, o->n) = (struct epoch){ 0 };
	*ret = at(o, i);
	return 0;
}

static struct braid_rma_order *order_of(struct braid_rma_channel *ch, uint8_t context)
{
	struct braid_rma_order **o = &ch->order[context];

	if (!*o)
		*o = calloc(1, sizeof(**o));
	return *o;
}

/* Finish epochs whose bytes are all here, and add the signals that ended them. */
static int finish_epochs(struct braid_rma_channel *ch, struct braid_rma_order *o)
{
	for (; o->n && at(o, 0)->ended && at(o, 0)->got == at(o, 0)->want; o->n--, o->first++) {
		const struct epoch *e = at(o, 0);

		int err = braid_rma_apply_signal(ch, e->window, e->offset, e->value);

		if (err)
			return err;
	}
	/* The present epoch, if nothing of it is on its way, needs no entry. */
	if (o->n == 1 && !at(o, 0)->ended && at(o, 0)->got == at(o, 0)->want)
		o->n = 0;
	return 0;
}

static void count_due(struct braid_rma_channel *ch, int64_t bytes)
{
	ch->due += bytes;
	braid_rma_spread(ch, ch->due > 0);
}

static int end_epoch(struct braid_rma_channel *ch, struct braid_rma_order *o,
		     const struct braid_rma_hdr *h)
{
	struct epoch *e;
	int err;

	if (!o->n) {			/* nothing is on its way */
		o->first = ++o->now;
		return braid_rma_apply_signal(ch, h->signal_window, h->signal_offset, h->value);
	}
	err = epoch_of(o, o->now, &e);
	if (err)
		return err;
	e->ended = true;
	e->window = h->signal_window;
	e->offset = h->signal_offset;
	e->value = h->value;
	o->now++;
	return finish_epochs(ch, o);
}

/* Bytes that the present epoch waits for: of chunks, or of a landing. */
static int expect(struct braid_rma_order *o, uint64_t bytes)
{
	struct epoch *e;
	int err = epoch_of(o, o->now, &e);

	if (!err)
		e->want += bytes;
	return err;
}

static int bulk(struct braid_rma_channel *ch, struct braid_rma_order *o,
		const struct braid_rma_hdr *h)
{
	int err = expect(o, h->size);

	if (err)
		return err;
	count_due(ch, (int64_t)h->size);
	return h->what & BRAID_RMA_SIGNAL ? 0 : finish_epochs(ch, o);
}

int braid_rma_landed(struct braid_rma_channel *ch, uint8_t context, uint32_t epoch, uint64_t len)
{
	struct braid_rma_order *o = order_of(ch, context);
	struct epoch *e;
	int err = o ? epoch_of(o, epoch, &e) : -ENOMEM;

	braid_assert_locked(&ch->comm->link->lock);
	if (err)
		return err;
	e->got += len;
	return e->ended && e->got > e->want ? -EBADMSG : finish_epochs(ch, o);
}

int braid_rma_chunk_came(struct braid_rma_channel *ch, uint8_t context, uint32_t epoch, uint32_t len)
{
	count_due(ch, -(int64_t)len);
	return braid_rma_landed(ch, context, epoch, len);
}

/* The bytes of a small put go to their window. */
static int data(struct braid_rma_channel *ch, struct braid_rma_order *o, struct braid_rma_window *w,
		const struct braid_rma_hdr *h, const char *bytes)
{
	uint32_t epoch = o->now;
	int err;

	if (!w->mr->gpu) {
		braid_copy_up(w->data + h->offset, bytes, h->size);
		return 0;
	}
	err = expect(o, h->size);
	return err ? err : braid_rma_land(ch, w, h, epoch, bytes);
}

void braid_rma_orders_free(struct braid_rma_channel *ch)
{
	for (unsigned i = 0; i < BRAID_RMA_CONTEXTS; i++) {
		if (ch->order[i])
			free(ch->order[i]->e);
		free(ch->order[i]);
		ch->order[i] = NULL;
	}
}

/* --- gets ---------------------------------------------------------------------------------- */

static bool cut(struct braid_lane *lane, struct braid_xfer *x)
{
	struct reply *r = braid_container(x, struct reply, x);
	uint32_t chunk = braid_link_chunk_len(lane->link, r->size);
	struct braid_hdr f = {
		.type = BRAID_F_CHUNK, .comm = x->comm, .seq = r->id, .offset = r->cut,
		.len = r->size - r->cut < chunk ? (uint32_t)(r->size - r->cut) : chunk,
	};

	braid_assert_locked(&lane->link->lock);
	if (!braid_txq_room(&lane->tx, 0))
		return false;
	f.size = r->cut + f.len;
	x->parts++;
	braid_tx_add(lane, &f, NULL, r->data + r->cut, x);
	r->cut += f.len;
	if (r->cut == r->size) {
		braid_list_del(&x->node);
		braid_xfer_part_done(x);
	}
	return true;
}

static void no_gpu(struct braid_xfer *x, const struct braid_gpucopy *copy)
{
	braid_comm_no_gpu(braid_container(x, struct reply, x)->ch->comm, copy);
}

static const struct braid_xfer_ops reply_ops = { cut, no_gpu };

void braid_rma_replies_free(struct braid_rma_channel *ch, bool all)
{
	struct reply *r, *tmp;

	braid_list_for_safe(r, tmp, &ch->replies, node) {
		if (!all && !atomic_load(&r->done))
			continue;
		braid_list_del(&r->x.node);
		braid_list_del(&r->node);
		free(r);
	}
}

bool braid_rma_replies_use(const struct braid_rma_channel *ch, const struct braid_mr *mr)
{
	const struct reply *r;

	braid_list_for(r, &ch->replies, node) {
		if (!atomic_load(&r->done) && (!mr || r->x.mr == mr))
			return true;
	}
	return false;
}

static int answer(struct braid_rma_channel *ch, const struct braid_rma_hdr *h,
		  const struct braid_rma_window *w)
{
	struct reply *r;

	braid_rma_replies_free(ch, false);
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->ch = ch;
	r->id = h->id;
	r->data = w->data + h->offset;
	r->size = h->size;
	r->x.ops = &reply_ops;
	r->x.comm = ch->comm->id;
	r->x.parts = 1;
	r->x.done = &r->done;
	r->x.mr = w->mr;
	braid_list_add_tail(&ch->replies, &r->node);
	braid_link_pending(ch->comm->link, &r->x);
	return 0;
}

/* --- operations ---------------------------------------------------------------------------- */

/* Find a window for these bytes; *ret NULL: it is closed.  0, or -EBADMSG. */
static int look(const struct braid_rma_channel *ch, uint32_t number, uint64_t offset, uint64_t size,
		struct braid_rma_window **ret)
{
	struct braid_rma_window *w = braid_rma_window(ch->rma, number);

	*ret = w;
	if (number >= ch->announced)
		return -EBADMSG;
	return !w || (offset <= w->size && size <= w->size - offset) ? 0 : -EBADMSG;
}

int braid_rma_apply(struct braid_rma_channel *ch, const char *payload, size_t n)
{
	struct braid_rma_window *w = NULL, *word;
	struct braid_rma_order *o;
	struct braid_rma_hdr h;
	int err = 0;

	braid_assert_locked(&ch->comm->link->lock);
	if (braid_rma_unpack(payload, n, &h))
		return -EBADMSG;
	if (h.what == BRAID_RMA_RANK) {
		ch->rank = (int)h.id;
		return 0;
	}
	if (!(h.what & BRAID_RMA_SIGNAL) || h.what & (BRAID_RMA_DATA | BRAID_RMA_BULK)) {
		if (look(ch, h.window, h.offset, h.size, &w))
			return -EBADMSG;
	}
	if (h.what & BRAID_RMA_SIGNAL &&
	    (h.signal_offset % sizeof(h.value) ||
	     look(ch, h.signal_window, h.signal_offset, sizeof(h.value), &word)))
		return -EBADMSG;
	o = order_of(ch, h.context);
	if (!o)
		return -ENOMEM;
	if (h.what == BRAID_RMA_GET) {
		if (w)
			return answer(ch, &h, w);
		braid_comm_give_up(ch->comm, "a window is closed here");
		braid_comm_fail(ch->comm, -ECANCELED);
		return 0;
	}
	if (h.what & BRAID_RMA_DATA && w)
		err = data(ch, o, w, &h, payload + BRAID_RMA_HDR_SIZE);
	else if (h.what & BRAID_RMA_BULK)
		err = bulk(ch, o, &h);
	if (err || !(h.what & BRAID_RMA_SIGNAL))
		return err;
	if (h.what & BRAID_RMA_ORDERED)
		return end_epoch(ch, o, &h);
	if (h.what & BRAID_RMA_DATA && w && w->mr->gpu)
		return 0;		/* its landing applies the signal */
	return braid_rma_apply_signal(ch, h.signal_window, h.signal_offset, h.value);
}
