/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * word.c - the words of signals in memory of a GPU, which are read, added to and written back.
 *
 * A communicator does that one word at a time, in the order in which signals were applied, so that
 * the adds of many ranks to one word don't mix.  The CPU does it through a mapping of GDRCopy's
 * (gdr/bar.h), if the window has one; else copies do.  Of a window that nobody else writes
 * (NCCL_RMA_NEVER_RESET) the sums are kept here, and words are only written.
 */
#include "core/rma/rma_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/dev.h"
#include "gdr/bar.h"

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

/* --- by the CPU ---------------------------------------------------------------------------- */

void braid_rma_words_map(const struct braid_rma *rma, struct braid_rma_window *window)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;
	char why[128];

	if (!window->signals || !window->mr->gpu ||
	    !braid_bar_map(window->data, window->size, &window->bar, why, sizeof(why)))
		return;
	if (!atomic_flag_test_and_set(&said))
		braid_info("device %s: words of signals in memory of a GPU are copied, since "
			   "GDRCopy does not map them: %s", rma->dev->net.name, why);
}

/* False: the CPU can't, and has changed nothing. */
static bool cpu_writes(struct braid_rma *rma, const struct word *w)
{
	struct braid_rma_window *window = w->window;
	char *at = window->data + w->offset;
	uint64_t v = rma->word;

	if (!window->never_reset && !braid_bar_load(window->bar, at, &v))
		return false;
	if (!braid_bar_store(window->bar, at, window->never_reset ? v : v + w->value))
		return false;
	rma->stored = window;
	return true;
}

/* Wait until the CPU's words are in the GPU: a read through the mapping comes behind them. */
static void settle(struct braid_rma *rma)
{
	uint64_t unused;

	if (rma->stored)
		braid_bar_load(rma->stored->bar, rma->stored->data, &unused);
	rma->stored = NULL;
}

/* --- by copies ----------------------------------------------------------------------------- */

static void begin_copy(struct braid_rma *rma, const struct word *w, bool to_gpu)
{
	settle(rma);
	rma->word_writes = to_gpu;
	braid_gpucopy_begin(&rma->word_copy, &rma->copies, w->window->mr,
			    w->window->data + w->offset, &rma->word, sizeof(rma->word), to_gpu);
}

/* Begin with the oldest word: 0: it is done; -EAGAIN: a copy has begun; or -ENOMEM. */
static int begin_word(struct braid_rma *rma, const struct word *w)
{
	if (w->window->never_reset) {
		uint64_t *sum = shadow_of(w->window, w->offset);

		if (!sum)
			return braid_no_memory("the sums of signals");
		*sum += w->value;
		rma->word = *sum;
	}
	if (cpu_writes(rma, w))
		return 0;
	begin_copy(rma, w, w->window->never_reset);
	return -EAGAIN;
}

/* Move the oldest word on.  0: it is done; -EAGAIN; or it failed. */
static int move_word(struct braid_rma *rma, struct word *w)
{
	int err = rma->word_copy.mr ? -EAGAIN : begin_word(rma, w);

	if (err != -EAGAIN)
		return err;
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

void braid_rma_words_drop(struct braid_rma *rma, struct braid_rma_window *window)
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
	settle(rma);
	braid_unlock(&rma->lock);
	braid_bar_unmap(window->bar);
	window->bar = NULL;
	free(window->shadow);
	window->shadow = NULL;
}
