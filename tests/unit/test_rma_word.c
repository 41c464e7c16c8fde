/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rma_word.c - the words of signals in memory of a GPU: added to by copies, one at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fakegpu.h"

static unsigned no_memory;		/* callocs that fail */

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory && no_memory-- ? NULL : __real_calloc(n, size);
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
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
