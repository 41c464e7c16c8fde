/* SPDX-License-Identifier: BSD-3-Clause */
/* test_setup_coll.c - communicators: their life, their windows, and how they reach other ranks. */
#include "tests/unit/coll.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/msg/comms.h"

static char mine[4096], theirs[4096];

static struct braid_rma_op *put_one(unsigned rank, const struct braid_rma_window *w, char c)
{
	struct braid_put put = { .rank = rank, .src = w, .dst = w, .size = 1, .dst_off = (uint64_t)c };
	struct braid_rma_op *op;

	mine[0] = c;
	assert_int_equal(braid_coll_put(coll[A], &put, &op), 0);
	return op;
}

/* --- its life ------------------------------------------------------------------------------ */

static void a_listen_takes_all_comms_as_channels(void **state)
{
	uint8_t handle[BRAID_HANDLE_SIZE];

	(void)state;
	assert_int_equal(braid_coll_listen(&pair.dev[A], handle, &coll[A]), 0);
	assert_ptr_equal(coll[A]->listen->rma, &coll[A]->rma);
	assert_ptr_equal(coll[A]->rma.dev, &pair.dev[A]);
	braid_coll_close_listen(coll[A]);	/* nothing was connected: all is freed */
	coll[A] = NULL;
	assert_int_equal(fake.listens, 0);
	fake.listen_err = -EADDRINUSE;
	assert_int_equal(braid_coll_listen(&pair.dev[A], handle, &coll[A]), -EADDRINUSE);
}

static void the_listen_and_the_communicator_are_closed_in_any_order(void **state)
{
	(void)state;
	braid_coll_close_listen(coll[A]);
	assert_int_equal(fake.listens, 2);	/* other ranks still connect to it */
	braid_coll_close(coll[A]);
	assert_int_equal(fake.listens, 1);
	coll[A] = NULL;
	braid_coll_close(coll[B]);
	assert_int_equal(fake.listens, 0);
	braid_coll_close_listen(coll[B]);
	coll[B] = NULL;
}

static void a_damaged_handle_is_refused_and_all_is_freed(void **state)
{
	uint8_t handle[BRAID_HANDLE_SIZE], bad[BRAID_HANDLE_SIZE];
	void *handles[] = { handle, bad, handle };

	(void)state;
	assert_int_equal(braid_coll_listen(&pair.dev[A], handle, &coll[A]), 0);
	handle_of(1, bad);
	bad[40] ^= 1;
	assert_int_equal(braid_coll_connect(coll[A], handles, RANKS, 0), -EINVAL);
	assert_non_null(strstr(warn_text, "[bad-handle]"));
	braid_coll_close_listen(coll[A]);
	coll[A] = NULL;
}

static void contexts_have_orders_until_they_share_them(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2 * BRAID_RMA_CONTEXTS; i++)
		assert_int_equal(braid_coll_order(coll[A]), i % BRAID_RMA_CONTEXTS);
}

/* --- other ranks --------------------------------------------------------------------------- */

/* Is it only in core/base/secret.h's pages? */
static void tokens_are_kept_as_secrets(void **state)
{
	static const uint8_t none[BRAID_KEY_SIZE];

	(void)state;
	for (unsigned i = 0; i < RANKS; i++) {
		assert_memory_equal(coll[A]->handle[i].token, none, sizeof(none));
		assert_int_equal(coll[A]->token[i][0], 'a' + (int)i);
	}
	open_window(A, mine, sizeof(mine));
	fake.answers = false;
	put_one(1, braid_rma_window(&coll[A]->rma, 0), 1);
	assert_int_equal(fake.token, 'b');
	assert_memory_equal(coll[A]->peer[1]->to.token, none, sizeof(none));
}

static void a_rank_is_dialled_by_its_first_operation(void **state)
{
	struct braid_rma_window *w = open_window(A, mine, sizeof(mine));
	struct braid_rma_op *op[3];

	(void)state;
	open_window(B, theirs, sizeof(theirs));
	memset(theirs, 0, sizeof(theirs));
	braid_coll_set_class(coll[A], 5);
	for (int i = 0; i < 3; i++)
		braid_coll_progress(coll[A]);
	assert_int_equal(fake.connects, 0);
	fake.answers = false;
	for (unsigned i = 0; i < 3; i++)
		op[i] = put_one(1, w, (char)(i + 1));
	assert_int_equal(braid_coll_test(coll[A], op[2]), 0);
	assert_int_equal(fake.connects, 4);	/* each call moves it on */
	assert_int_equal(fake.traffic_class, 5);
	assert_null(coll[A]->peer[1]->ch);
	fake.answers = true;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(settle(A, op[i]), 1);
	assert_int_equal(fake.connects, 5);	/* once */
	assert_null(coll[A]->peer[1]->token);
	assert_int_equal(coll[A]->peer[1]->ch->rank, 1);
	assert_null(coll[A]->peer[2]);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(theirs[i + 1], 3);	/* read when they left, all three together */
}

static void a_rank_that_cannot_be_reached_fails_its_operations(void **state)
{
	struct braid_rma_window *w = open_window(A, mine, sizeof(mine));
	struct braid_rma_op *op, *other;

	(void)state;
	open_window(B, theirs, sizeof(theirs));
	fake.connect_err = -ECONNREFUSED;
	op = put_one(2, w, 1);
	assert_int_equal(braid_coll_test(coll[A], op), -ECONNREFUSED);
	assert_int_equal(braid_coll_test(coll[A], op), -ECONNREFUSED);
	assert_int_equal(fake.connects, 1);
	fake.connect_err = 0;
	fake.connects = 0;
	fake.slot = 0;
	other = put_one(1, w, 2);
	assert_int_equal(settle(A, other), 1);	/* the other rank is still reached */
	fake.slot = coll[A]->peer[2]->to.state.slot;
}

static void a_connect_that_goes_on_is_given_up_by_close(void **state)
{
	struct braid_rma_window *w = open_window(A, mine, sizeof(mine));

	(void)state;
	fake.answers = false;
	put_one(1, w, 1);
	put_one(1, w, 2);
	close_coll(A);
	assert_int_equal(fake.given_up, 1);
}

static void close_ends_the_channels_of_both_directions(void **state)
{
	struct braid_rma_window *w = open_window(A, mine, sizeof(mine));

	(void)state;
	open_window(B, theirs, sizeof(theirs));
	assert_int_equal(settle(A, put_one(1, w, 1)), 1);
	assert_int_equal(braid_comms_count(pair.end[B]), 1);
	close_coll(B);				/* the target first */
	close_coll(A);
	null_settle(&pair);
	assert_int_equal(braid_comms_count(pair.end[A]), 0);
	assert_int_equal(braid_comms_count(pair.end[B]), 0);
	assert_null(null_not_idle(&pair));
}

/* --- windows ------------------------------------------------------------------------------- */

static void a_window_is_registered_memory(void **state)
{
	const struct braid_mem mem = { .data = mine, .size = sizeof(mine) };
	struct braid_rma_window *w;

	(void)state;
	assert_int_equal(braid_coll_open(coll[A], &mem, true, true, &w), 0);
	assert_int_equal(w->number, 0);
	assert_ptr_equal(w->data, mine);
	assert_int_equal(w->size, sizeof(mine));
	assert_true(w->signals && w->never_reset);
	assert_int_equal(fake.mrs, 1);
	fake.mr_err = -EFAULT;
	assert_int_equal(braid_coll_open(coll[A], &mem, false, false, &w), -EFAULT);
	fake.mr_err = 0;
	w = braid_rma_window(&coll[A]->rma, 0);
	assert_int_equal(braid_coll_close_window(coll[A], w), 0);
	assert_int_equal(fake.mrs, 0);
	assert_null(braid_rma_window(&coll[A]->rma, 0));
}

static void windows_left_open_are_closed_with_the_communicator(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2 * BRAID_RMA_BUCKETS; i++)
		open_window(A, mine, sizeof(mine));
	assert_int_equal(fake.mrs, 2 * BRAID_RMA_BUCKETS);
	close_coll(A);
	assert_int_equal(fake.mrs, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		NO_COLLS(a_listen_takes_all_comms_as_channels),
		COLLS(the_listen_and_the_communicator_are_closed_in_any_order),
		NO_COLLS(a_damaged_handle_is_refused_and_all_is_freed),
		COLLS(contexts_have_orders_until_they_share_them),
		COLLS(tokens_are_kept_as_secrets),
		COLLS(a_rank_is_dialled_by_its_first_operation),
		COLLS(a_rank_that_cannot_be_reached_fails_its_operations),
		COLLS(a_connect_that_goes_on_is_given_up_by_close),
		COLLS(close_ends_the_channels_of_both_directions),
		COLLS(a_window_is_registered_memory),
		COLLS(windows_left_open_are_closed_with_the_communicator),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
