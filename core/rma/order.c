/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * order.c - signals, and what they wait for: the epochs of a context (see rma.h) at their target.
 *
 * As long as nothing is on its way in chunks, an ORDERED signal is added at once, and there is no
 * epoch to keep.
 */
#include "core/rma/rma_int.h"

#include <errno.h>
#include <stdlib.h>

enum {
	EPOCHS_MAX = 1 << 16,		/* of one context, unfinished: more than lanes can hold */
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

/* Words are added to by several links at once. */
int braid_rma_signal(struct braid_rma *rma, uint32_t window, uint64_t offset, uint64_t value)
{
	struct braid_rma_window *w = braid_rma_window(rma, window);

	if (!w)
		return 0;		/* closed since */
	if (!braid_rma_is_in(w->size, offset, sizeof(value)) ||
	    (uintptr_t)(w->data + offset) % sizeof(value))
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

	if (atomic_load_explicit(&ch->rma->nwords, memory_order_relaxed))
		braid_comm_deliver_later(ch->comm);
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

struct braid_rma_order *braid_rma_order_of(struct braid_rma_channel *ch, uint8_t context)
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

uint32_t braid_rma_epoch(const struct braid_rma_order *o)
{
	return o->now;
}

static void count_due(struct braid_rma_channel *ch, int64_t bytes)
{
	ch->due += bytes;
	braid_rma_spread(ch, ch->due > 0);
}

int braid_rma_end_epoch(struct braid_rma_channel *ch, struct braid_rma_order *o,
			const struct braid_rma_hdr *h)
{
	struct epoch *e;
	int err;

	if (!o->n) {			/* nothing is on its way */
		err = braid_rma_apply_signal(ch, h->signal_window, h->signal_offset, h->value);
		if (!err)
			o->first = ++o->now;
		return err;
	}
	err = epoch_of(o, o->now, &e);
	if (err)
		return err;
	if (e->got > e->want)		/* more chunks came than were announced */
		return -EBADMSG;
	e->ended = true;
	e->window = h->signal_window;
	e->offset = h->signal_offset;
	e->value = h->value;
	o->now++;
	return finish_epochs(ch, o);
}

/* Bytes that the present epoch waits for: of chunks, or of a landing. */
int braid_rma_expect(struct braid_rma_order *o, uint64_t bytes)
{
	struct epoch *e;
	int err = epoch_of(o, o->now, &e);

	if (!err)
		e->want += bytes;
	return err;
}

int braid_rma_bulk(struct braid_rma_channel *ch, struct braid_rma_order *o,
		   const struct braid_rma_hdr *h)
{
	int err = braid_rma_expect(o, h->size);

	if (err)
		return err;
	count_due(ch, (int64_t)h->size);
	return h->what & BRAID_RMA_SIGNAL ? 0 : finish_epochs(ch, o);
}

int braid_rma_landed(struct braid_rma_channel *ch, uint8_t context, uint32_t epoch, uint64_t len)
{
	struct braid_rma_order *o = braid_rma_order_of(ch, context);
	struct epoch *e;
	int err = o ? epoch_of(o, epoch, &e) : -ENOMEM;

	braid_assert_locked(&ch->comm->link->lock);
	if (err)
		return err;
	e->got += len;
	return e->ended && e->got > e->want ? -EBADMSG : finish_epochs(ch, o);
}

void braid_rma_chunk_came(struct braid_rma_channel *ch, uint32_t len)
{
	count_due(ch, -(int64_t)len);
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

unsigned braid_rma_signals_waiting(const struct braid_rma_channel *ch)
{
	unsigned n = 0;

	for (unsigned i = 0; i < BRAID_RMA_CONTEXTS; i++) {
		const struct braid_rma_order *o = ch->order[i];

		for (unsigned k = 0; o && k < o->n; k++)
			n += at(o, k)->ended;
	}
	return n;
}
