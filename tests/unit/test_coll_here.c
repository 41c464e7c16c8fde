/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_coll_here.c - operations of a rank on itself: in order, through the host if they are of a GPU.
 *
 * Copies of GPU memory do as a case says.
 */
#include "tests/unit/coll.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem/mrcache.h"

enum { SIZE = 600 * K, PIECE = 256 * K };

static char host[SIZE], gpu[SIZE];
static struct braid_rma_window *wh, *wg;
static struct {
	int answer, flush;
	unsigned copies, ended;
	size_t most;
} w;

/* --- copies -------------------------------------------------------------------------------- */

void __wrap_braid_gpucopy_begin(struct braid_gpucopy *c, atomic_uint *copies,
				const struct braid_mr *mr, char *at, void *own, size_t len,
				bool to_gpu);
int __wrap_braid_gpucopy_move(struct braid_gpucopy *c);
void __wrap_braid_gpucopy_end(struct braid_gpucopy *c);
int __wrap_braid_mr_flush(const struct braid_mr *mr, char *at, struct braid_mr_flush *f);

void __wrap_braid_gpucopy_begin(struct braid_gpucopy *c, atomic_uint *copies,
				const struct braid_mr *mr, char *at, void *own, size_t len,
				bool to_gpu)
{
	assert_true(mr->gpu);
	*c = (struct braid_gpucopy){
		.mr = mr, .copies = copies,
		.left = { .at = at, .own = own, .len = len, .to_gpu = to_gpu },
	};
	if (len > w.most)
		w.most = len;
}

int __wrap_braid_gpucopy_move(struct braid_gpucopy *c)
{
	const struct braid_gpu_copy *l = &c->left;

	if (w.answer == -EAGAIN)
		return -EAGAIN;
	c->mr = NULL;
	if (!w.answer)
		memcpy(l->to_gpu ? l->at : l->own, l->to_gpu ? l->own : l->at, l->len);
	w.copies += !w.answer;
	return w.answer;
}

void __wrap_braid_gpucopy_end(struct braid_gpucopy *c)
{
	w.ended += c->mr != NULL;
	c->mr = NULL;
}

int __wrap_braid_mr_flush(const struct braid_mr *mr, char *at, struct braid_mr_flush *f)
{
	(void)f;
	assert_true(mr->gpu);
	assert_ptr_equal(at, gpu);
	return w.flush;
}

/* --- a rank and its windows ---------------------------------------------------------------- */

static int setup_windows(void **state)
{
	setup_colls(state);
	memset(&w, 0, sizeof(w));
	for (size_t i = 0; i < SIZE; i++)
		host[i] = (char)(i * 7 + (i >> 8));
	memset(gpu, 0, sizeof(gpu));
	wh = open_window(A, host, sizeof(host));
	fake.gpu = true;
	wg = open_window(A, gpu, sizeof(gpu));
	fake.gpu = false;
	return 0;
}

#define HERE(f) cmocka_unit_test_setup_teardown(f, setup_windows, teardown_colls)

static struct braid_rma_op *put(struct braid_put p)
{
	struct braid_rma_op *op = NULL;

	assert_int_equal(braid_coll_put(coll[A], &p, &op), 0);
	assert_non_null(op);
	return op;
}

static int test(struct braid_rma_op *op)
{
	return braid_coll_test(coll[A], op);
}

static uint64_t word_of(const char *at)
{
	uint64_t ret;

	memcpy(&ret, at, sizeof(ret));
	return ret;
}

static void operations_between_host_memory_are_done_at_once(void **state)
{
	struct braid_rma_op *op = put((struct braid_put){ .src = wh, .dst = wh, .src_off = 8,
							  .dst_off = 1000, .size = 500 });
	const struct braid_get get = { .remote = wh, .local = wh, .remote_off = 1000,
				       .local_off = 3000, .size = 500 };

	(void)state;
	assert_memory_equal(host + 1000, host + 8, 500);
	assert_int_equal(test(op), 1);
	assert_int_equal(braid_coll_get(coll[A], &get, &op), 0);
	assert_memory_equal(host + 3000, host + 8, 500);
	assert_int_equal(test(op), 1);
	memset(host, 0, 8);
	op = put((struct braid_put){ .word = wh, .value = 3 });
	assert_int_equal(word_of(host), 3);
	assert_int_equal(test(op), 1);
	assert_int_equal(fake.connects, 0);
}

static void a_put_may_overlap_its_source(void **state)
{
	char *was = malloc(SIZE);

	(void)state;
	memcpy(was, host, SIZE);
	assert_int_equal(test(put((struct braid_put){ .src = wh, .dst = wh, .dst_off = 10, .size = 5000 })), 1);
	assert_memory_equal(host + 10, was, 5000);
	free(was);
}

static void memory_of_a_gpu_is_copied_piece_by_piece(void **state)
{
	char *was = malloc(SIZE);

	(void)state;
	memcpy(was, host, SIZE);
	assert_int_equal(test(put((struct braid_put){ .src = wh, .dst = wg, .size = SIZE })), 1);
	assert_memory_equal(gpu, was, SIZE);
	assert_int_equal(w.most, PIECE);
	assert_int_equal(w.copies, 3);
	memset(host, 0, SIZE);
	assert_int_equal(test(put((struct braid_put){ .src = wg, .dst = wh, .size = SIZE })), 1);
	assert_memory_equal(host, was, SIZE);
	assert_int_equal(test(put((struct braid_put){ .src = wg, .dst = wg, .dst_off = 400 * K,
						      .size = 100 * K })), 1);
	assert_memory_equal(gpu + 400 * K, was, 100 * K);
	free(was);
}

/* A signal, and a put between host memory, wait for the copy before them. */
static void operations_are_done_in_order(void **state)
{
	struct braid_rma_op *op[3];

	(void)state;
	memset(host, 0, 16);
	w.answer = -EAGAIN;
	op[0] = put((struct braid_put){ .src = wh, .dst = wg, .src_off = 64, .size = 100 });
	op[1] = put((struct braid_put){ .word = wh, .value = 1 });
	op[2] = put((struct braid_put){ .src = wh, .dst = wh, .src_off = 64, .dst_off = 8, .size = 4,
					.word = wh, .value = 1 });
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(test(op[i]), 0);
	assert_int_equal(word_of(host), 0);
	assert_int_equal(word_of(host + 8), 0);
	w.answer = 0;
	braid_coll_progress(coll[A]);
	assert_int_equal(word_of(host), 2);
	assert_memory_equal(gpu, host + 64, 100);
	assert_memory_equal(host + 8, host + 64, 4);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(test(op[i]), 1);
}

static void a_copy_that_fails_fails_its_operation_alone(void **state)
{
	struct braid_rma_op *op;

	(void)state;
	memset(host, 0, 8);
	w.answer = -EIO;
	op = put((struct braid_put){ .src = wh, .dst = wg, .src_off = 8, .size = 100, .word = wh, .value = 1 });
	assert_int_equal(test(op), -EIO);
	assert_int_equal(word_of(host), 0);
	w.answer = 0;
	assert_int_equal(test(put((struct braid_put){ .word = wh, .value = 1 })), 1);
	assert_int_equal(word_of(host), 1);
}

static void an_operation_of_nothing_is_done(void **state)
{
	const struct braid_get get = { .rank = 1, .remote = wh, .local = wh };
	struct braid_rma_op *op;

	(void)state;
	assert_int_equal(test(put((struct braid_put){ .rank = 1 })), 1);
	assert_int_equal(test(put((struct braid_put){ .rank = 0 })), 1);
	assert_int_equal(braid_coll_get(coll[A], &get, &op), 0);
	assert_int_equal(test(op), 1);
	assert_int_equal(fake.connects, 0);
}

static void operations_beyond_a_window_are_refused(void **state)
{
	const struct braid_put puts[] = {
		{ .src = wh, .dst = wh, .dst_off = SIZE, .size = 1 },
		{ .src = wh, .dst = wh, .dst_off = UINT64_MAX, .size = 2 },
		{ .word = wh, .word_off = SIZE }, { .word = wh, .word_off = UINT64_MAX - 7 },
	};
	const struct braid_get get = { .remote = wh, .local = wh, .remote_off = SIZE - 1, .size = 2 };
	struct braid_rma_op *op;

	(void)state;
	for (unsigned i = 0; i < sizeof(puts) / sizeof(puts[0]); i++)
		assert_int_equal(braid_coll_put(coll[A], &puts[i], &op), -EINVAL);
	assert_int_equal(braid_coll_get(coll[A], &get, &op), -EINVAL);
	assert_true(braid_list_empty(&coll[A]->heres));
}

static void a_flush_is_done_once_the_gpu_sees_what_nics_wrote(void **state)
{
	struct braid_rma_op *op;

	(void)state;
	assert_int_equal(braid_coll_flush(coll[A], wh, &op), 0);
	assert_null(op);			/* of host memory there is nothing to flush */
	w.flush = -EAGAIN;
	assert_int_equal(braid_coll_flush(coll[A], wg, &op), 0);
	assert_int_equal(test(op), 0);
	w.flush = 0;
	assert_int_equal(test(op), 1);
	w.flush = -EIO;
	assert_int_equal(braid_coll_flush(coll[A], wg, &op), 0);
	assert_int_equal(test(op), -EIO);
}

static void closing_a_window_ends_its_operations_and_no_others(void **state)
{
	struct braid_rma_op *first, *other, *flush;

	(void)state;
	w.answer = w.flush = -EAGAIN;
	memset(host, 0, 8);
	first = put((struct braid_put){ .src = wh, .dst = wg, .size = 100 });
	assert_int_equal(braid_coll_flush(coll[A], wg, &flush), 0);
	other = put((struct braid_put){ .word = wh, .value = 1 });
	assert_int_equal(braid_coll_close_window(coll[A], wg), 0);
	assert_int_equal(w.ended, 1);
	assert_int_equal(test(first), -ECANCELED);
	assert_int_equal(test(flush), -ECANCELED);
	assert_int_equal(test(other), 1);
	assert_int_equal(word_of(host), 1);
}

static void operations_left_are_freed_with_the_communicator(void **state)
{
	(void)state;
	w.answer = -EAGAIN;
	put((struct braid_put){ .src = wh, .dst = wg, .size = 100 });
	put((struct braid_put){ .word = wh, .value = 1 });
	close_coll(A);
	assert_int_equal(w.ended, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		HERE(operations_between_host_memory_are_done_at_once),
		HERE(a_put_may_overlap_its_source),
		HERE(memory_of_a_gpu_is_copied_piece_by_piece),
		HERE(operations_are_done_in_order),
		HERE(a_copy_that_fails_fails_its_operation_alone),
		HERE(an_operation_of_nothing_is_done),
		HERE(operations_beyond_a_window_are_refused),
		HERE(a_flush_is_done_once_the_gpu_sees_what_nics_wrote),
		HERE(closing_a_window_ends_its_operations_and_no_others),
		HERE(operations_left_are_freed_with_the_communicator),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
