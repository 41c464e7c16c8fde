/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * land.c - puts into memory of a GPU, which the CPU can't touch.
 *
 * A *landing* brings bytes that came whole with their operation into the GPU, or flushes what a NIC
 * wrote there.  The order counts the bytes of a landing as here once it is over, so a signal never
 * overtakes them.
 */
#include "core/rma/rma_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/mem/mrcache.h"

struct landing {
	struct braid_list node;		/* channel->landings */
	struct braid_gpucopy copy;
	struct braid_mr_flush flush;
	const struct braid_rma_window *window;
	char *at;
	bool flushes;			/* it is no copy */
	uint8_t context;
	uint32_t epoch;
	bool signals;			/* then apply the signal of this header */
	struct braid_rma_hdr h;
	size_t size;
	char bytes[];
};

static struct landing *landing_new(struct braid_rma_channel *ch, struct braid_rma_window *w,
				   uint64_t offset, const char *bytes, size_t copied)
{
	struct landing *l = calloc(1, sizeof(*l) + copied);

	if (!l)
		return NULL;
	l->window = w;
	l->at = w->data + offset;
	if (copied)
		memcpy(l->bytes, bytes, copied);
	braid_list_add_tail(&ch->landings, &l->node);
	braid_comm_deliver_later(ch->comm);
	return l;
}

int braid_rma_land(struct braid_rma_channel *ch, struct braid_rma_window *w,
		   const struct braid_rma_hdr *h, uint32_t epoch, const char *bytes)
{
	struct landing *l = landing_new(ch, w, h->offset, bytes, h->size);

	braid_assert_locked(&ch->comm->link->lock);
	if (!l)
		return -ENOMEM;
	l->size = h->size;
	l->context = h->context;
	l->epoch = epoch;
	l->h = *h;
	l->signals = h->what & BRAID_RMA_SIGNAL && !(h->what & BRAID_RMA_ORDERED);
	return 0;
}

/* A NIC has written a chunk into a GPU: make the GPU see it.  0 or -ENOMEM. */
static int land_written(struct braid_rma_channel *ch, struct braid_rma_window *w,
			const struct braid_hdr *h)
{
	struct landing *l = landing_new(ch, w, h->offset, NULL, 0);

	if (!l)
		return -ENOMEM;
	l->flushes = true;
	l->size = h->len;
	l->context = (uint8_t)h->n;
	l->epoch = h->seq;
	return 0;
}

int braid_rma_chunk_is_here(struct braid_rma_channel *ch, struct braid_rma_window *w,
			    const struct braid_hdr *h, bool by_nic)
{
	braid_assert_locked(&ch->comm->link->lock);
	if (w)
		atomic_fetch_sub_explicit(&w->due, h->len, memory_order_relaxed);
	braid_rma_chunk_came(ch, h->len);
	return w && w->mr->gpu && by_nic ? land_written(ch, w, h) :
					   braid_rma_landed(ch, (uint8_t)h->n, h->seq, h->len);
}

static int landing_move(struct braid_rma_channel *ch, struct landing *l)
{
	if (l->flushes)
		return braid_mr_flush(l->window->mr, l->at, &l->flush);
	if (!l->copy.mr)
		braid_gpucopy_begin(&l->copy, braid_link_copies(ch->comm->link), l->window->mr,
				    l->at, l->bytes, l->size, true);
	return braid_gpucopy_move(&l->copy);
}

static void landing_free(struct landing *l)
{
	braid_gpucopy_end(&l->copy);
	braid_list_del(&l->node);
	free(l);
}

/* The bytes are in the GPU: count them, and apply a signal that waited for them alone. */
static int landed(struct braid_rma_channel *ch, const struct landing *l)
{
	int err = braid_rma_landed(ch, l->context, l->epoch, l->size);

	if (!err && l->signals)
		err = braid_rma_apply_signal(ch, l->h.signal_window, l->h.signal_offset,
					     l->h.value);
	return err;
}

static void landing_failed(struct braid_rma_channel *ch, const struct landing *l, int err)
{
	struct braid_comm *c = ch->comm;

	if (!l->flushes) {
		braid_comm_no_gpu(c, &l->copy);
	} else if (!braid_comm_drains(c)) {
		braid_warn("device %s, peer %s: a put: the NIC could not read memory of the GPU: "
			   "%s [flush-failed]", c->link->key.dev->net.name, c->link->peer,
			   strerror(-err));
		braid_comm_give_up(c, "a flush failed");
		braid_comm_fail(c, -EIO);
	}
}

bool braid_rma_landings_move(struct braid_rma_channel *ch)
{
	struct landing *l, *tmp;

	braid_assert_locked(&ch->comm->link->lock);
	braid_list_for_safe(l, tmp, &ch->landings, node) {
		int err = landing_move(ch, l);

		if (err == -EAGAIN)
			continue;
		if (err)
			landing_failed(ch, l, err);
		else if (landed(ch, l))
			braid_comm_fail(ch->comm, -ENOMEM);
		landing_free(l);
	}
	/* A channel that is closed has none left, and words are the communicator's. */
	return !ch->rma || (braid_rma_words_move(ch->rma) && braid_list_empty(&ch->landings));
}

void braid_rma_landings_drop(struct braid_rma_channel *ch, const struct braid_rma_window *w)
{
	struct landing *l, *tmp;

	braid_assert_locked(&ch->comm->link->lock);
	braid_list_for_safe(l, tmp, &ch->landings, node) {
		if (w && l->window != w)
			continue;
		if (w)			/* nothing is written, but its signal is not lost */
			landed(ch, l);
		landing_free(l);
	}
}
