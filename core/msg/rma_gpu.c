/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma_gpu.c - puts and signals into memory of a GPU, which the CPU can't touch.
 *
 * A *landing* brings bytes that came whole with their operation into the GPU, or flushes what a NIC
 * wrote there.  The order counts the bytes of a landing as here once it is over, so a signal never
 * overtakes them.
 *
 * The words of signals are read, added to and written back by copies.  A communicator does that one
 * word at a time, in the order in which signals were applied, so that the adds of many ranks to one
 * word don't mix.  Of a window that nobody else writes (NCCL_RMA_NEVER_RESET) the sums are kept
 * here, and words are only written.
 */
#include "core/msg/rma_int.h"

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

struct word {				/* a signal to apply */
	struct braid_list node;		/* rma->words */
	struct braid_rma_window *window;
	uint64_t offset, value;
};

/* --- words: with rma->lock held ------------------------------------------------------------ */

static void drop(struct word *w)
{
	braid_list_del(&w->node);
	free(w);
}

static uint64_t *shadow_of(struct braid_rma_window *w, uint64_t offset)
{
	if (!w->shadow)
		w->shadow = calloc(w->size / sizeof(uint64_t), sizeof(uint64_t));
	return w->shadow ? &w->shadow[offset / sizeof(uint64_t)] : NULL;
}

static void begin_copy(struct braid_rma *rma, const struct word *w, bool to_gpu)
{
	rma->word_writes = to_gpu;
	braid_gpucopy_begin(&rma->word_copy, &rma->copies, w->window->mr,
			    w->window->data + w->offset, &rma->word, sizeof(rma->word), to_gpu);
}

/* Begin with the oldest word: read it, unless its sum is known.  False: out of memory. */
static bool begin_word(struct braid_rma *rma, const struct word *w)
{
	uint64_t *sum;

	if (!w->window->never_reset) {
		begin_copy(rma, w, false);
		return true;
	}
	sum = shadow_of(w->window, w->offset);
	if (!sum)
		return false;
	*sum += w->value;
	rma->word = *sum;
	begin_copy(rma, w, true);
	return true;
}

/* Move the oldest word on.  0: it is done; -EAGAIN; or it failed. */
static int move_word(struct braid_rma *rma, struct word *w)
{
	int err;

	if (!rma->word_copy.mr && !begin_word(rma, w))
		return braid_no_memory("the sums of signals");
	err = braid_gpucopy_move(&rma->word_copy);
	if (err || rma->word_writes)
		return err;
	rma->word += w->value;
	begin_copy(rma, w, true);
	return braid_gpucopy_move(&rma->word_copy);
}

/* False: some words are not written yet. */
static bool move_words(struct braid_rma *rma)
{
	braid_assert_locked(&rma->lock);
	while (!braid_list_empty(&rma->words)) {
		struct word *w = braid_list_entry(rma->words.next, struct word, node);
		int err = move_word(rma, w), none = 0;

		if (err == -EAGAIN)
			return false;
		if (err) {
			braid_warn("device %s: a signal could not be written into memory of a GPU: "
				   "%s [rma-signal-lost]", rma->dev->net.name, strerror(-err));
			atomic_compare_exchange_strong(&rma->err, &none, err);
		}
		drop(w);
	}
	return true;
}

bool braid_rma_words_move(struct braid_rma *rma)
{
	bool all;

	braid_lock_wait(&rma->lock);
	all = move_words(rma);
	braid_unlock(&rma->lock);
	return all;
}

int braid_rma_word_add(struct braid_rma *rma, struct braid_rma_window *window, uint64_t offset,
		       uint64_t value)
{
	struct word *w = calloc(1, sizeof(*w));

	if (!w)
		return -ENOMEM;
	*w = (struct word){ .window = window, .offset = offset, .value = value };
	braid_lock_wait(&rma->lock);
	braid_list_add_tail(&rma->words, &w->node);
	move_words(rma);
	braid_unlock(&rma->lock);
	return 0;
}

void braid_rma_words_drop(struct braid_rma *rma, const struct braid_rma_window *window)
{
	struct word *w, *tmp;

	braid_lock_wait(&rma->lock);
	braid_list_for_safe(w, tmp, &rma->words, node) {
		if (w->window != window)
			continue;
		if (w->node.prev == &rma->words)	/* the one that is being copied */
			braid_gpucopy_end(&rma->word_copy);
		drop(w);
	}
	braid_unlock(&rma->lock);
}

/* --- landings: with the link's lock held --------------------------------------------------- */

/* Call braid_rma_deliver() until all is written. */
static void deliver_later(struct braid_rma_channel *ch)
{
	struct braid_link *link = ch->comm->link;

	if (braid_list_empty(&ch->deliver_node)) {
		braid_list_add_tail(&link->msg.delivering, &ch->deliver_node);
		atomic_fetch_add(braid_link_copies(link), 1);
	}
	braid_link_stall(link);
}

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
	deliver_later(ch);
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

int braid_rma_land_written(struct braid_rma_channel *ch, struct braid_rma_window *w,
			   const struct braid_hdr *h)
{
	struct landing *l = landing_new(ch, w, h->offset, NULL, 0);

	braid_assert_locked(&ch->comm->link->lock);
	if (!l)
		return -ENOMEM;
	l->flushes = true;
	l->size = h->len;
	l->context = (uint8_t)h->n;
	l->epoch = h->seq;
	return 0;
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

/* Move the channel's landings on; false: some are not over. */
static bool deliver(struct braid_rma_channel *ch)
{
	struct landing *l, *tmp;

	braid_list_for_safe(l, tmp, &ch->landings, node) {
		int err = landing_move(ch, l);

		if (err == -EAGAIN)
			continue;
		if (err)
			braid_comm_no_gpu(ch->comm, l->flushes ? NULL : &l->copy);
		else if (landed(ch, l))
			braid_comm_fail(ch->comm, -ENOMEM);
		landing_free(l);
	}
	return braid_list_empty(&ch->landings);
}

bool braid_rma_deliver(struct braid_link *link)
{
	struct braid_rma_channel *ch, *tmp;

	braid_assert_locked(&link->lock);
	braid_list_for_safe(ch, tmp, &link->msg.delivering, deliver_node) {
		bool landed_all = deliver(ch);

		if (!braid_rma_words_move(ch->rma) || !landed_all)
			continue;
		braid_list_del(&ch->deliver_node);
		atomic_fetch_sub(braid_link_copies(link), 1);
	}
	return braid_list_empty(&link->msg.delivering);
}

void braid_rma_deliver_soon(struct braid_rma_channel *ch)
{
	deliver_later(ch);
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
	if (!w && !braid_list_empty(&ch->deliver_node)) {
		braid_list_del(&ch->deliver_node);
		atomic_fetch_sub(braid_link_copies(ch->comm->link), 1);
	}
}
