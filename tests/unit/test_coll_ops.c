/* SPDX-License-Identifier: BSD-3-Clause */
/* test_coll_ops.c - operations of a communicator: how they go to channels, and how test() ends them. */
#include "tests/unit/coll.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { D = BRAID_RMA_DATA, BU = BRAID_RMA_BULK, S = BRAID_RMA_SIGNAL, O = BRAID_RMA_ORDERED };

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

static bool no_memory;

void *__wrap_calloc(size_t n, size_t size)
{
	return no_memory ? NULL : __real_calloc(n, size);
}

static char mine[BIG], theirs[BIG] __attribute__((aligned(8)));
static struct braid_rma_window *wa, *wb, *ga;	/* ga: of a GPU */

static int setup_windows(void **state)
{
	setup_colls(state);
	for (size_t i = 0; i < BIG; i++)
		mine[i] = (char)(i * 7 + (i >> 8));
	memset(theirs, 0, sizeof(theirs));
	wa = open_window(A, mine, sizeof(mine));
	wb = open_window(B, theirs, sizeof(theirs));
	fake.gpu = true;
	ga = open_window(A, mine, sizeof(mine));
	fake.gpu = false;
	return 0;
}

#define OPS(f) cmocka_unit_test_setup_teardown(f, setup_windows, teardown_colls)

static struct braid_rma_op *put(struct braid_put p)
{
	struct braid_rma_op *op = NULL;

	p.rank = 1;
	assert_int_equal(braid_coll_put(coll[A], &p, &op), 0);
	assert_non_null(op);
	return op;
}

/* What an operation is that is not sent yet. */
static void assert_is(struct braid_put p, unsigned what)
{
	const struct braid_rma_op *op = put(p);

	assert_int_equal(op->h.what, what);
	assert_int_equal(op->h.context, p.order);
	assert_int_equal(op->h.size, p.size);
	assert_int_equal(op->h.offset, p.dst_off);
	assert_ptr_equal(op->data, p.size ? p.src->data + p.src_off : NULL);
	assert_ptr_equal(op->mr, p.size ? p.src->mr : NULL);
	assert_int_equal(op->h.value, p.value);
	assert_int_equal(op->h.signal_offset, p.word_off);
}

static void each_call_becomes_the_operation_that_it_needs(void **state)
{
	const struct braid_put small = { .src = wa, .dst = wa, .src_off = 3, .dst_off = 9,
					 .size = BRAID_RMA_INLINE_MAX, .order = 200 };
	struct braid_put p;

	(void)state;
	fake.answers = false;
	p = small;
	assert_is(p, D);
	p.size++;
	assert_is(p, BU);
	p = small, p.src = ga;			/* the CPU can't copy it into the frame */
	assert_is(p, BU);
	p = small, p.word = wa, p.word_off = 16, p.value = 5;
	assert_is(p, D | S);
	p.strong = true;
	assert_is(p, D | S | O);
	p.size++, p.strong = false;		/* its chunks are waited for with earlier ones */
	assert_is(p, BU | S | O);
	p = (struct braid_put){ .word = wa, .value = 1 };
	assert_is(p, S);
	p.strong = true;
	assert_is(p, S | O);
}

static void assert_no_put(struct braid_put p)
{
	struct braid_rma_op *op;

	assert_int_equal(braid_coll_put(coll[A], &p, &op), -EINVAL);
}

static void a_put_from_beyond_its_window_is_refused(void **state)
{
	(void)state;
	assert_no_put((struct braid_put){ .rank = 1, .src = wa, .dst = wa, .size = BIG + 1 });
	assert_no_put((struct braid_put){ .rank = 1, .src = wa, .dst = wa, .size = 1, .src_off = BIG });
	assert_no_put((struct braid_put){ .rank = 1, .src = wa, .dst = wa, .size = 2,
					  .src_off = UINT64_MAX });
	assert_no_put((struct braid_put){ .rank = 1, .src = wa, .size = 1 });
	assert_no_put((struct braid_put){ .rank = 1, .dst = wa, .size = 1 });
	assert_no_put((struct braid_put){ .rank = 1, .word = wa, .word_off = 12 });
	assert_no_put((struct braid_put){ .rank = RANKS, .word = wa });
	assert_int_equal(fake.connects, 0);
}

static void a_get_to_beyond_its_window_is_refused(void **state)
{
	const struct braid_get wrong[] = {
		{ .rank = 1, .remote = wa, .local = wa, .size = BIG + 1 },
		{ .rank = 1, .remote = wa, .local = wa, .size = 1, .local_off = BIG },
		{ .rank = 1, .remote = wa, .size = 1 }, { .rank = 1, .local = wa, .size = 1 },
		{ .rank = RANKS, .remote = wa, .local = wa, .size = 1 },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct braid_rma_op *op;

		assert_int_equal(braid_coll_get(coll[A], &wrong[i], &op), -EINVAL);
	}
	assert_int_equal(fake.connects, 0);
}

static void before_connect_there_is_nobody_to_put_to(void **state)
{
	const struct braid_put p = { .rank = 1, .word = wa };
	uint8_t handle[BRAID_HANDLE_SIZE];
	struct braid_coll *other;
	struct braid_rma_op *op;

	(void)state;
	assert_int_equal(braid_coll_listen(&pair.dev[A], handle, &other), 0);
	assert_int_equal(braid_coll_put(other, &p, &op), -EINVAL);
	braid_coll_close_listen(other);
}

/* The channel takes them back with the next one, or when it is closed. */
static void assert_all_over(void)
{
	const struct braid_rma_op *op;

	braid_list_for(op, &coll[A]->peer[1]->ch->ops, node)
		assert_true(op->over);
}

static void puts_signals_and_gets_of_any_size_arrive(void **state)
{
	static const size_t sizes[] = { 1, 8000, BRAID_RMA_INLINE_MAX, BRAID_RMA_INLINE_MAX + 1, 100000 };
	static char back[BIG];
	struct braid_rma_window *local = open_window(A, back, sizeof(back));

	(void)state;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const struct braid_get get = { .rank = 1, .remote = wa, .local = local, .remote_off = 64,
					       .size = sizes[i] };
		struct braid_rma_op *op;
		uint64_t word;

		assert_int_equal(settle(A, put((struct braid_put){
			.src = wa, .dst = wa, .src_off = 5, .dst_off = 64, .size = sizes[i], .word = wa,
			.value = 1, .more = i % 2 })), 1);
		assert_memory_equal(theirs + 64, mine + 5, sizes[i]);
		memcpy(&word, theirs, sizeof(word));
		assert_int_equal(word, i + 1);
		assert_int_equal(braid_coll_get(coll[A], &get, &op), 0);
		assert_int_equal(settle(A, op), 1);
		assert_memory_equal(back, mine + 5, sizes[i]);
	}
	assert_all_over();
}

static void an_operation_in_vain_returns_its_error_once(void **state)
{
	(void)state;
	open_window(A, mine, 8);
	assert_int_equal(settle(A, put((struct braid_put){ .word = wa, .word_off = BIG })), -EINVAL);
	assert_non_null(strstr(warn_text, "[rma-range]"));
	assert_all_over();
	assert_int_equal(settle(A, put((struct braid_put){ .word = wa, .value = 1 })), 1);
	assert_int_equal(braid_coll_error(coll[A]), 0);
}

static void an_operation_that_is_over_serves_again(void **state)
{
	const struct braid_put p = { .rank = 1, .word = wa, .value = 1 };
	struct braid_rma_op *first = put(p), *second, *op;

	(void)state;
	assert_int_equal(settle(A, first), 1);
	no_memory = true;
	second = put(p);
	assert_ptr_equal(second, first);
	assert_int_equal(braid_coll_put(coll[A], &p, &op), -ENOMEM);
	no_memory = false;
	assert_int_equal(settle(A, second), 1);
	assert_int_equal(settle(A, put(p)), 1);
	assert_int_equal(*(uint64_t *)(void *)theirs, 3);
}

static void progress_receives_for_a_rank_that_posts_nothing(void **state)
{
	struct braid_rma_op *op;

	(void)state;
	assert_int_equal(settle(A, put((struct braid_put){ .word = wa, .value = 1 })), 1);
	op = put((struct braid_put){ .src = wa, .dst = wa, .size = 100000, .dst_off = 8 });
	for (int i = 0; i < 50 && !atomic_load(&op->done); i++) {
		assert_int_equal(braid_coll_progress(coll[B]), 0);
		assert_int_equal(braid_coll_progress(coll[A]), 0);
	}
	assert_int_equal(braid_coll_test(coll[A], op), 1);
	assert_memory_equal(theirs + 8, mine, 100000);
}

static void an_operation_that_waits_for_its_window_leaves_with_a_later_call(void **state)
{
	struct braid_rma_window *w = open_window(A, mine, 64);	/* number 2: B has only number 0 */
	struct braid_rma_op *op = put((struct braid_put){ .word = w, .value = 4 });
	static uint64_t words[2][8];

	(void)state;
	assert_int_equal(settle(A, op), 0);
	open_window(B, words[0], 64);
	assert_int_equal(settle(A, op), 0);
	open_window(B, words[1], 64);
	assert_int_equal(settle(A, op), 1);
	assert_int_equal(words[1][0], 4);
}

static void a_channel_that_fails_is_told_by_each_call(void **state)
{
	struct braid_rma_op *op;

	(void)state;
	assert_int_equal(settle(A, put((struct braid_put){ .word = wa, .value = 1 })), 1);
	close_coll(B);
	null_settle(&pair);
	op = put((struct braid_put){ .word = wa, .value = 1 });
	warns_clear();
	assert_int_equal(braid_coll_test(coll[A], op), -EREMOTEIO);
	assert_int_equal(warn_count, 1);
	assert_int_equal(braid_coll_progress(coll[A]), -EREMOTEIO);
	assert_int_equal(braid_coll_error(coll[A]), -EREMOTEIO);
	assert_int_equal(warn_count, 1);
	close_coll(A);				/* frees the operation */
}

/* NCCL's thread asks last: the error may come after its test() and rmaProgress(). */
static void an_error_that_is_only_asked_for_has_named_the_peer(void **state)
{
	struct braid_rma_op *op = put((struct braid_put){ .word = wa, .value = 1 });

	(void)state;
	assert_int_equal(settle(A, op), 1);
	close_coll(B);
	null_settle(&pair);
	put((struct braid_put){ .word = wa, .value = 1 });
	warns_clear();
	assert_int_equal(braid_coll_error(coll[A]), -EREMOTEIO);
	assert_int_equal(warn_count, 1);
	assert_int_equal(braid_coll_error(coll[A]), -EREMOTEIO);
	assert_int_equal(warn_count, 1);
	close_coll(A);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		OPS(each_call_becomes_the_operation_that_it_needs),
		OPS(a_put_from_beyond_its_window_is_refused),
		OPS(a_get_to_beyond_its_window_is_refused),
		OPS(before_connect_there_is_nobody_to_put_to),
		OPS(puts_signals_and_gets_of_any_size_arrive),
		OPS(an_operation_in_vain_returns_its_error_once),
		OPS(an_operation_that_is_over_serves_again),
		OPS(progress_receives_for_a_rank_that_posts_nothing),
		OPS(an_operation_that_waits_for_its_window_leaves_with_a_later_call),
		OPS(a_channel_that_fails_is_told_by_each_call),
		OPS(an_error_that_is_only_asked_for_has_named_the_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
