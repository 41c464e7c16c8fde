/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * word.c - the words of signals in memory of a GPU, which are read, added to and written by copies.
 *
 * A communicator does that one word at a time, in the order in which signals were applied, so that
 * the adds of many ranks to one word don't mix.  Of a window that nobody else writes
 * (NCCL_RMA_NEVER_RESET) the sums are kept here, and words are only written.
 */
#include "core/rma/rma_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/dev.h"

struct word {				/* a signal to apply */
	struct braid_list node;		/* rma->words */
	struct braid_rma_window *window;
	uint64_t offset, value;
};

/* With rma->lock held. */
static void drop(struct braid_rma *rma, struct word *w)
{
	atomic_fetch_sub(&rma->nwords, 1);
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
		drop(rma, w);
	}
	return true;
}

bool braid_rma_words_move(struct braid_rma *rma)
{
	bool all;

	if (!atomic_load_explicit(&rma->nwords, memory_order_relaxed))
		return true;
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
	atomic_fetch_add(&rma->nwords, 1);
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
		drop(rma, w);
	}
	braid_unlock(&rma->lock);
}
