/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rma_word.c - the words of signals in memory of a GPU: added to by copies or by the CPU, one
 * at a time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gdr/bar.h"
#include "tests/lib/fakegpu.h"

static unsigned no_memory;		/* callocs that fail */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory && no_memory-- ? NULL : __real_calloc(n, size);
}

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size)
{
	return no_memory && no_memory-- ? NULL : __real_realloc(p, size);
}

/* GDRCopy's mappings: each is its window's bytes. */
static struct {
	int answer;			/* of a map */
	unsigned left;			/* loads and stores until the mapping is gone */
	unsigned loads, stores, maps, unmaps;
	unsigned begun;			/* copies begun when the last load was */
} bar;

int __wrap_braid_bar_map(const void *data, size_t size, struct braid_bar **ret, char *why,
			 size_t len);
int __wrap_braid_bar_map(const void *data, size_t size, struct braid_bar **ret, char *why,
			 size_t len)
{
	(void)data, (void)size;
	snprintf(why, len, "no");
	*ret = bar.answer ? NULL : (struct braid_bar *)&bar;
	bar.maps += !bar.answer;
	return bar.answer;
}

void __wrap_braid_bar_unmap(struct braid_bar *b);
void __wrap_braid_bar_unmap(struct braid_bar *b)
{
	bar.unmaps += b != NULL;
}

static char *mapped(const struct braid_bar *b, const void *at)
{
	const struct win *w = (const struct win *)b;

	return w && bar.left && bar.left-- ? w->bytes + ((const char *)at - w->w.data) : NULL;
}

bool __wrap_braid_bar_load(struct braid_bar *b, const void *at, uint64_t *ret);
bool __wrap_braid_bar_load(struct braid_bar *b, const void *at, uint64_t *ret)
{
	const char *p = mapped(b, at);

	if (!p)
		return false;
	memcpy(ret, p, sizeof(*ret));
	bar.loads++;
	bar.begun = gpu.begun;
	return true;
}

bool __wrap_braid_bar_store(struct braid_bar *b, void *at, uint64_t value);
bool __wrap_braid_bar_store(struct braid_bar *b, void *at, uint64_t value)
{
	char *p = mapped(b, at);

	if (!p)
		return false;
	memcpy(p, &value, sizeof(value));
	bar.stores++;
	return true;
}

static struct win *win_mapped(size_t size, bool never_reset)
{
	struct win *w = win_gpu(size, never_reset);

	w->w.bar = (struct braid_bar *)w;
	bar.left = 100;
	bar.loads = bar.stores = bar.unmaps = 0;
	return w;
}

static int add(const struct win *w, uint64_t offset, uint64_t value)
{
	return braid_rma_signal(&rma[B], w->w.number, offset, value);
}

static bool move(void)
{
	return braid_rma_words_move(&rma[B]);
}

static void set(struct win *w, uint64_t offset, uint64_t value)
{
	memcpy(w->bytes + offset, &value, sizeof(value));
}

static void a_word_is_read_added_to_and_written(void **state)
{
	struct win *w = win_gpu(64, false);

	(void)state;
	set(w, 8, 40);
	assert_int_equal(add(w, 8, 2), 0);
	assert_int_equal(word_at(w, 8), 42);
	assert_int_equal(gpu.read, 1);
	assert_int_equal(gpu.written, 1);
	assert_int_equal(add(w, 8, UINT64_MAX), 0);
	assert_int_equal(word_at(w, 8), 41);
	assert_true(move());
	assert_int_equal(gpu.written, 2);
}

static void words_are_written_in_the_order_of_their_signals(void **state)
{
	struct win *w = win_gpu(64, false), *other = win_gpu(64, false);

	(void)state;
	gpu.answer = -EAGAIN;
	assert_int_equal(add(w, 0, 1), 0);
	assert_int_equal(add(other, 0, 10), 0);
	assert_int_equal(add(w, 0, 100), 0);
	assert_false(move());
	assert_int_equal(gpu.begun, 1);		/* one at a time */
	gpu.answer = 0;
	gpu.slow = 1;
	assert_false(move());			/* the first is not read yet */
	assert_int_equal(gpu.begun, 1);
	for (unsigned i = 0; i < 3; i++) {
		gpu.slow = 0;
		gpu.answer = 0;
		assert_true(move());
	}
	assert_int_equal(word_at(w, 0), 101);
	assert_int_equal(word_at(other, 0), 10);
	assert_int_equal(gpu.read, 3);
	assert_int_equal(gpu.written, 3);
}

/* The second add begins only once the first is written, or one of them would be lost. */
static void adds_to_one_word_do_not_mix(void **state)
{
	struct win *w = win_gpu(64, false);

	(void)state;
	for (unsigned slow = 0; slow < 6; slow++) {
		uint64_t before = word_at(w, 0);

		gpu.slow = slow;
		assert_int_equal(add(w, 0, 1), 0);
		assert_int_equal(add(w, 0, 2), 0);
		while (!move())
			;
		assert_int_equal(word_at(w, 0), before + 3);
	}
}

static void a_word_that_is_never_reset_is_only_written(void **state)
{
	struct win *w = win_gpu(64, true);

	(void)state;
	set(w, 56, 1000);			/* nobody may write it, so nobody reads it */
	assert_int_equal(add(w, 56, 5), 0);
	assert_int_equal(word_at(w, 56), 5);
	assert_int_equal(add(w, 0, 1), 0);
	gpu.answer = -EAGAIN;
	assert_int_equal(add(w, 56, 6), 0);
	assert_int_equal(add(w, 56, 7), 0);
	assert_false(move());
	assert_false(move());			/* each is added once, however often it is moved */
	gpu.answer = 0;
	assert_true(move());
	assert_int_equal(word_at(w, 56), 18);
	assert_int_equal(word_at(w, 0), 1);
	assert_int_equal(gpu.read, 0);
	assert_int_equal(gpu.written, 4);
}

static void a_word_that_cannot_be_written_is_told_and_the_next_one_goes_on(void **state)
{
	struct win *w = win_gpu(64, false);

	(void)state;
	gpu.answer = -EAGAIN;
	assert_int_equal(add(w, 0, 1), 0);
	gpu.answer = -EIO;
	assert_true(move());
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "device null1: a signal could not be written"));
	assert_non_null(strstr(warn_text, "[rma-signal-lost]"));
	assert_int_equal(atomic_load(&rma[B].err), -EIO);
	assert_int_equal(word_at(w, 0), 0);
	gpu.answer = 0;
	assert_int_equal(add(w, 0, 2), 0);
	assert_int_equal(word_at(w, 0), 2);
	assert_int_equal(atomic_load(&rma[B].err), -EIO);	/* the first */
}

static void without_memory_for_the_sums_a_signal_is_lost(void **state)
{
	struct win *w = win_gpu(64, true);

	(void)state;
	gpu.answer = -EAGAIN;
	assert_int_equal(add(win_gpu(64, false), 0, 1), 0);	/* so that the next one waits */
	assert_int_equal(add(w, 0, 1), 0);
	gpu.answer = 0;
	no_memory = 1;
	assert_true(move());
	assert_non_null(strstr(warn_text, "[rma-signal-lost]"));
	assert_int_equal(atomic_load(&rma[B].err), -ENOMEM);
	assert_int_equal(word_at(w, 0), 0);
	no_memory = 1;
	assert_int_equal(add(w, 0, 1), -ENOMEM);	/* for the signal itself */
	assert_int_equal(add(w, 0, 3), 0);
	assert_int_equal(word_at(w, 0), 3);
}

static void words_of_a_closed_window_are_dropped(void **state)
{
	struct win *w = win_gpu(64, false), *other = win_gpu(64, true);

	(void)state;
	gpu.answer = -EAGAIN;
	assert_int_equal(add(w, 0, 1), 0);
	assert_int_equal(add(other, 0, 2), 0);
	assert_int_equal(add(w, 0, 4), 0);
	win_close(w);
	assert_int_equal(gpu.ended, 1);		/* the one that was being copied */
	gpu.answer = 0;
	assert_true(move());
	assert_int_equal(word_at(other, 0), 2);
	assert_int_equal(gpu.written, 1);
	win_close(other);			/* and its sums */
	assert_int_equal(braid_rma_signal(&rma[B], 1, 0, 1), 0);
	assert_int_equal(gpu.begun, 2);
}

/* Closing another window ends no copy. */
static void a_word_being_copied_survives_the_end_of_another_window(void **state)
{
	struct win *w = win_gpu(64, false), *other = win_gpu(64, false);

	(void)state;
	gpu.answer = -EAGAIN;
	assert_int_equal(add(w, 0, 1), 0);
	assert_int_equal(add(other, 0, 2), 0);
	win_close(other);
	assert_int_equal(gpu.ended, 0);
	gpu.answer = 0;
	assert_true(move());
	assert_int_equal(word_at(w, 0), 1);
}

static void a_signal_beyond_its_window_is_refused(void **state)
{
	struct win *w = win_gpu(20, true), *host = win_here(20);

	(void)state;
	assert_int_equal(add(w, 16, 1), -ERANGE);
	assert_int_equal(add(w, 4, 1), -ERANGE);
	assert_int_equal(add(host, UINT64_MAX - 7, 1), -ERANGE);
	host->w.data++;			/* a window at an odd address */
	assert_int_equal(add(host, 0, 1), -ERANGE);
	assert_int_equal(add(host, 7, 1), 0);
	host->w.data--;
	assert_int_equal(add(w, 8, 1), 0);
	assert_int_equal(word_at(w, 8), 1);
}

/* A signal over a channel: its words move with the link, if no call of the communicator comes. */
static void a_signal_from_a_peer_reaches_the_gpu(void **state)
{
	struct win *w = win_gpu(64, false);
	struct braid_rma_hdr h = {
		.what = BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED, .signal_offset = 8, .value = 3,
	};

	(void)state;
	gpu.answer = -EAGAIN;
	assert_int_equal(forge_op(h, NULL), 0);
	braid_link_move(pair.end[B]);
	assert_int_equal(word_at(w, 8), 0);
	gpu.answer = 0;
	braid_link_move(pair.end[B]);
	assert_int_equal(word_at(w, 8), 3);
	assert_true(braid_list_empty(&cr->deliver_node));
	assert_int_equal(atomic_load(&rma[B].copies), 0);
}

/* --- by the CPU ---------------------------------------------------------------------------- */

static void the_cpu_adds_to_a_word_that_it_reaches(void **state)
{
	struct win *w = win_mapped(64, false);

	(void)state;
	set(w, 8, 40);
	assert_int_equal(add(w, 8, 2), 0);
	assert_int_equal(word_at(w, 8), 42);
	set(w, 8, 0);				/* the GPU may reset it */
	assert_int_equal(add(w, 8, 3), 0);
	assert_int_equal(word_at(w, 8), 3);
	assert_int_equal(bar.loads, 2);
	assert_int_equal(bar.stores, 2);
	assert_int_equal(gpu.begun, 0);
}

static void the_cpu_only_writes_a_word_that_is_never_reset(void **state)
{
	struct win *w = win_mapped(64, true);

	(void)state;
	set(w, 8, 1000);
	assert_int_equal(add(w, 8, 2), 0);
	assert_int_equal(add(w, 8, 3), 0);
	assert_int_equal(word_at(w, 8), 5);
	assert_int_equal(bar.loads, 0);
	assert_int_equal(bar.stores, 2);
	assert_int_equal(gpu.begun, 0);
}

static void the_cpu_waits_for_words_that_are_copied_before(void **state)
{
	struct win *copied = win_gpu(64, false), *w = win_mapped(64, false);

	(void)state;
	gpu.answer = -EAGAIN;
	assert_int_equal(add(copied, 0, 1), 0);
	assert_int_equal(add(w, 0, 10), 0);
	assert_false(move());
	assert_int_equal(bar.loads + bar.stores, 0);
	gpu.answer = 0;
	assert_true(move());
	assert_int_equal(word_at(copied, 0), 1);
	assert_int_equal(word_at(w, 0), 10);
}

/* The CPU's word may be on its way when the store is over: a copy must not overtake it. */
static void a_copy_waits_for_words_of_the_cpu(void **state)
{
	struct win *copied = win_gpu(64, false), *w = win_mapped(64, true);

	(void)state;
	assert_int_equal(add(w, 0, 10), 0);
	assert_int_equal(bar.loads, 0);
	assert_int_equal(add(copied, 0, 1), 0);
	assert_int_equal(bar.loads, 1);
	assert_int_equal(bar.begun, 0);
	assert_int_equal(add(copied, 0, 1), 0);
	assert_int_equal(bar.loads, 1);		/* it is there */
	assert_int_equal(word_at(copied, 0), 2);
}

/* At each access: before the load, between load and store, and later. */
static void words_are_copied_once_their_mapping_is_gone(void **state)
{
	(void)state;
	for (unsigned left = 0; left < 6; left++) {
		struct win *w = win_mapped(64, left & 1);

		bar.left = left / 2;
		gpu.begun = 0;
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(add(w, 8, 1), 0);
		assert_int_equal(word_at(w, 8), 4);
		assert_true(gpu.begun > 0);
		win_close(w);
	}
}

static void a_window_that_is_closed_is_unmapped_once_its_words_are_there(void **state)
{
	struct win *w = win_mapped(64, true);

	(void)state;
	assert_int_equal(add(w, 0, 10), 0);
	assert_int_equal(bar.loads, 0);
	win_close(w);
	assert_int_equal(bar.loads, 1);
	assert_int_equal(bar.unmaps, 1);
}

static void open_as(bool signals, bool is_gpu, int want)
{
	struct braid_mr mr = { .dev = &pair.dev[B], .gpu = is_gpu };
	char bytes[64];
	struct braid_rma_window w = {
		.data = bytes, .size = sizeof(bytes), .mr = &mr, .signals = signals,
	};

	bar.unmaps = bar.maps = 0;
	assert_int_equal(braid_rma_window_open(&rma[B], &w), want);
	if (!want)
		braid_rma_window_close(&rma[B], &w);
	null_settle(&pair);
	assert_int_equal(bar.unmaps, bar.maps);
	assert_null(w.bar);
}

static void only_windows_of_a_gpu_that_may_hold_signals_are_mapped(void **state)
{
	(void)state;
	open_as(false, true, 0);
	open_as(true, false, 0);
	assert_int_equal(bar.maps, 0);
	open_as(true, true, 0);
	assert_int_equal(bar.maps, 1);
	no_memory = 1;
	open_as(true, true, -ENOMEM);		/* it is not there, and not mapped */
	assert_int_equal(bar.maps, 1);
	bar.answer = -ENOENT;
	open_as(true, true, 0);
	assert_int_equal(bar.maps, 0);
	bar.answer = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		GPU(a_word_is_read_added_to_and_written),
		GPU(words_are_written_in_the_order_of_their_signals),
		GPU(adds_to_one_word_do_not_mix),
		GPU(a_word_that_is_never_reset_is_only_written),
		GPU(a_word_that_cannot_be_written_is_told_and_the_next_one_goes_on),
		GPU(without_memory_for_the_sums_a_signal_is_lost),
		GPU(words_of_a_closed_window_are_dropped),
		GPU(a_word_being_copied_survives_the_end_of_another_window),
		GPU(a_signal_beyond_its_window_is_refused),
		GPU(a_signal_from_a_peer_reaches_the_gpu),
		GPU(the_cpu_adds_to_a_word_that_it_reaches),
		GPU(the_cpu_only_writes_a_word_that_is_never_reset),
		GPU(the_cpu_waits_for_words_that_are_copied_before),
		GPU(a_copy_waits_for_words_of_the_cpu),
		GPU(words_are_copied_once_their_mapping_is_gone),
		GPU(a_window_that_is_closed_is_unmapped_once_its_words_are_there),
		GPU(only_windows_of_a_gpu_that_may_hold_signals_are_mapped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
