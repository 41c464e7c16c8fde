/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rma_apply.c - operations at their target: what they do, and what is refused untouched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/channel.h"

enum { SIZE = 64 * K, D = BRAID_RMA_DATA, BU = BRAID_RMA_BULK, S = BRAID_RMA_SIGNAL,
       O = BRAID_RMA_ORDERED, G = BRAID_RMA_GET };

static char data[SIZE], got[SIZE];
static bool no_memory;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory ? NULL : __real_calloc(n, size);
}

static void a_rank_is_noted(void **state)
{
	(void)state;
	assert_int_equal(cb->rank, BRAID_RMA_NO_RANK);
	assert_int_equal(forge_op((struct braid_rma_hdr){ .what = BRAID_RMA_RANK, .id = 77 }, NULL), 0);
	assert_int_equal(cb->rank, 77);
}

static void a_put_with_a_signal_writes_both(void **state)
{
	struct win *w = win_here(SIZE);

	(void)state;
	for (unsigned what = D | S; what <= (D | S | O); what += O) {
		struct braid_rma_hdr h = {
			.what = (uint8_t)what, .window = 0, .offset = 100, .size = 3, .signal_offset = 8,
			.value = UINT64_MAX,
		};

		memset(w->bytes, 0, 200);
		assert_int_equal(forge_op(h, "abc"), 0);
		assert_memory_equal(w->bytes + 99, "\0abc", 5);
		assert_int_equal(word_at(w, 8), UINT64_MAX);
		assert_int_equal(forge_op(h, "abc"), 0);
		assert_int_equal(word_at(w, 8), UINT64_MAX - 1);	/* it adds, and wraps */
	}
}

static void a_put_of_no_bytes_is_applied(void **state)
{
	struct win *w = win_here(8);

	(void)state;
	assert_int_equal(forge_op((struct braid_rma_hdr){ .what = D | S, .offset = 8, .value = 2 },
				  NULL), 0);
	assert_int_equal(word_at(w, 0), 2);
}

/* Chunks of a large put are out; a weak signal of the same context passes them. */
static void a_weak_signal_does_not_wait(void **state)
{
	struct win *w = win_here(SIZE);

	(void)state;
	assert_int_equal(forge_op((struct braid_rma_hdr){ .what = BU, .offset = 64, .size = 100 }, NULL), 0);
	assert_int_equal(forge_op((struct braid_rma_hdr){ .what = S, .value = 5 }, NULL), 0);
	assert_int_equal(word_at(w, 0), 5);
	assert_int_equal(forge_op((struct braid_rma_hdr){ .what = D | S, .offset = 16, .size = 1,
							  .signal_offset = 8, .value = 6 }, "x"), 0);
	assert_int_equal(word_at(w, 8), 6);
}

static const struct {
	const char *what;
	struct braid_rma_hdr h;
} lies[] = {			/* window 0 has SIZE bytes, window 1 has 15 */
	{ "a put to no window", { .what = D, .window = 2, .size = 1 } },
	{ "a put beyond its window", { .what = D, .window = 1, .offset = 15, .size = 1 } },
	{ "a put from beyond its window", { .what = D, .window = 1, .offset = 16 } },
	{ "a large put to no window", { .what = BU, .window = 2, .size = 1 } },
	{ "a large put beyond its window", { .what = BU, .size = SIZE + 1 } },
	{ "a large put at the end of its window", { .what = BU, .offset = 1, .size = SIZE } },
	{ "a get of no window", { .what = G, .window = UINT32_MAX, .size = 1 } },
	{ "a get beyond its window", { .what = G, .window = 1, .offset = 8, .size = 8 } },
	{ "a signal to no window", { .what = S, .signal_window = 2 } },
	{ "a signal beyond its window", { .what = S, .signal_window = 1, .signal_offset = 8 } },
	{ "a signal beside a word", { .what = S, .signal_offset = 4 } },
	{ "a signal far beyond", { .what = S | O, .signal_offset = UINT64_MAX - 7 } },
	{ "a put whose signal is beyond", { .what = D | S, .size = 1, .signal_offset = SIZE } },
	{ "a large put whose signal is beyond", { .what = BU | S | O, .size = 1, .signal_offset = SIZE } },
	{ "nothing", { .what = 0 } },
};

static void lies_are_refused_and_change_nothing(void **state)
{
	for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct win *w = win_here(SIZE), *other = win_here(15);
		int err;

		memset(w->bytes, 0x55, SIZE);
		memset(other->bytes, 0x55, 15);
		memset(data, 0, sizeof(data));
		err = forge_op(lies[i].h, data);
		if (err != -EBADMSG)
			fail_msg("%s: %d", lies[i].what, err);
		for (unsigned k = 0; k < SIZE; k++)
			assert_int_equal(w->bytes[k], 0x55);
		for (unsigned k = 0; k < 15; k++)
			assert_int_equal(other->bytes[k], 0x55);
		assert_int_equal(cb->due, 0);
		assert_true(braid_list_empty(&cb->replies));
		teardown_channel(state);
		setup_channel(state);
	}
}

/* A window that this end has opened, but not announced to that peer. */
static void an_operation_on_a_window_not_announced_is_refused(void **state)
{
	(void)state;
	win_here(64);
	cb->announced = 0;
	assert_int_equal(forge_op((struct braid_rma_hdr){ .what = D, .size = 1 }, "x"), -EBADMSG);
}

static void puts_and_signals_to_a_closed_window_are_dropped(void **state)
{
	struct win *w = win_here(64), *other = win_here(64);

	(void)state;
	win_close(w);
	assert_int_equal(forge_op((struct braid_rma_hdr){ .what = D | S, .offset = 1 << 20, .size = 1,
							  .signal_window = 1, .value = 1 }, "x"), 0);
	assert_int_equal(word_at(other, 0), 1);	/* its signal is not dropped */
	assert_int_equal(forge_op((struct braid_rma_hdr){ .what = S | O, .value = 1 }, NULL), 0);
	assert_int_equal(forge_op((struct braid_rma_hdr){ .what = BU, .size = 9 }, NULL), 0);
	assert_int_equal(forge_op((struct braid_rma_hdr){ .what = S | O, .signal_window = 1,
							  .value = 1 }, NULL), 0);
	assert_int_equal(word_at(other, 0), 1);
	assert_int_equal(forge_chunk(0, 0, 0, 9, 0, 1, data), 0);
	assert_int_equal(word_at(other, 0), 2);
}

static void a_get_from_a_closed_window_ends_the_channel(void **state)
{
	struct win *w = win_here(64);
	struct braid_rma_op *op;

	(void)state;
	op = post((struct braid_rma_hdr){ .what = G, .size = 10 }, got);
	win_close(w);				/* the get is on its way */
	null_settle(&pair);
	assert_int_equal(atomic_load(&cr->err), -ECANCELED);
	assert_false(op_done(op));
	assert_int_equal(braid_rma_error(cs), -EREMOTEIO);
	assert_int_equal(warn_count, 1);
}

static void replies_are_freed_once_they_are_sent(void **state)
{
	struct win *w = win_here(SIZE);
	struct braid_mr other = { 0 };
	unsigned left = 0;
	struct braid_list *p;

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		struct braid_rma_op *op = post((struct braid_rma_hdr){ .what = G, .size = SIZE }, got);

		while (null_deliver(&pair, A, 0) > 0)
			;
		assert_true(braid_rma_replies_use(cb, &w->mr));
		assert_false(braid_rma_replies_use(cb, &other));
		assert_int_equal(op_run(op), 0);
		assert_false(braid_rma_replies_use(cb, &w->mr));
	}
	for (p = cb->replies.next; p != &cb->replies; p = p->next)
		left++;
	assert_true(left <= 1);
}

/* An operation that finds no memory leaves the channel as it was. */
static void without_memory_nothing_is_changed(void **state)
{
	static const struct braid_rma_hdr ops[] = {
		{ .what = BU, .size = 10 }, { .what = G, .size = 10 }, { .what = D | S | O, .size = 1 },
		{ .what = BU | S | O, .size = 10 },
	};
	struct win *w = win_here(64);
	char payload[BRAID_RMA_HDR_SIZE + 1] = { 0 };
	struct braid_link *link = pair.end[B];

	(void)state;
	braid_lock_wait(&link->lock);
	for (unsigned i = 0; i < 4; i++) {
		braid_rma_pack(&ops[i], payload);
		no_memory = true;
		assert_int_equal(braid_rma_apply(cb, payload, BRAID_RMA_HDR_SIZE + (ops[i].what & D)),
				 -ENOMEM);
		no_memory = false;
	}
	braid_unlock(&link->lock);
	assert_true(braid_list_empty(&cb->replies));
	assert_int_equal(cb->due, 0);
	assert_null(cb->order[0]);
	assert_int_equal(forge_op((struct braid_rma_hdr){ .what = S | O, .value = 1 }, NULL), 0);
	assert_int_equal(word_at(w, 0), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CHANNEL(a_rank_is_noted),
		CHANNEL(a_put_with_a_signal_writes_both),
		CHANNEL(a_put_of_no_bytes_is_applied),
		CHANNEL(a_weak_signal_does_not_wait),
		CHANNEL(lies_are_refused_and_change_nothing),
		CHANNEL(an_operation_on_a_window_not_announced_is_refused),
		CHANNEL(puts_and_signals_to_a_closed_window_are_dropped),
		CHANNEL(a_get_from_a_closed_window_ends_the_channel),
		CHANNEL(replies_are_freed_once_they_are_sent),
		CHANNEL(without_memory_nothing_is_changed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
