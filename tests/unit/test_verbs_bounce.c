/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_bounce.c - pieces of registered memory that lanes share: verbs/bounce.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "core/proto/frame.h"
#include "verbs/bounce.h"

enum { PIECES = BRAID_BOUNCES * BRAID_BOUNCE_CHUNKS, THREADS = 4, TURNS = 20000 };

static struct braid_bounces pool;

static int join(void)
{
	struct braid_ibport *p = port_named("ib0:1");

	return braid_bounces_join(&pool, p, p->pd);
}

static int setup(void **state)
{
	(void)state;
	memset(&pool, 0, sizeof(pool));
	braid_bounces_init(&pool);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_bounces_free(&pool);
	return 0;
}

static void each_lane_brings_some_until_they_are_many(void **state)
{
	long mrs = ports_ctl("live mr");

	(void)state;
	for (unsigned i = 1; i <= BRAID_BOUNCE_CHUNKS + 3; i++) {
		assert_int_equal(join(), 0);
		assert_int_equal(pool.nchunks, i < BRAID_BOUNCE_CHUNKS ? i : BRAID_BOUNCE_CHUNKS);
	}
	assert_int_equal(ports_ctl("live mr") - mrs, BRAID_BOUNCE_CHUNKS);
	for (unsigned i = 0; i < BRAID_BOUNCE_CHUNKS + 3; i++)
		braid_bounces_leave(&pool);
	assert_int_equal(join(), 0);	/* a later lane uses what is there */
	assert_int_equal(ports_ctl("live mr") - mrs, BRAID_BOUNCE_CHUNKS);
}

static void a_piece_has_one_user_and_is_registered_memory_of_its_own(void **state)
{
	char *at[PIECES];

	(void)state;
	for (unsigned i = 0; i < BRAID_BOUNCE_CHUNKS; i++)
		assert_int_equal(join(), 0);
	for (int i = 0; i < PIECES; i++) {
		int piece = braid_bounce_take(&pool);

		assert_int_equal(piece, i);
		at[i] = braid_bounce_at(&pool, piece);
		memset(at[i], i, BRAID_HDR_SIZE + BRAID_COPY_MAX);
		assert_int_equal(braid_bounce_key(&pool, piece),
				 pool.chunk[i / BRAID_BOUNCES].mr->lkey);
	}
	assert_int_equal(braid_bounce_take(&pool), -1);
	for (int i = 0; i < PIECES; i++)
		assert_int_equal(at[i][BRAID_HDR_SIZE + BRAID_COPY_MAX - 1], i);
	braid_bounce_put(&pool, 37);
	assert_int_equal(braid_bounce_take(&pool), 37);
}

static void memory_that_can_not_be_registered_is_no_lane_more(void **state)
{
	(void)state;
	ports_ctl("fail 1 ibv_reg_mr ENOMEM on");
	assert_int_equal(join(), -ENOMEM);
	ports_ctl("fail 0");
	assert_int_equal(pool.lanes, 0);
	assert_int_equal(pool.nchunks, 0);
	assert_int_equal(braid_bounce_take(&pool), -1);
	assert_int_equal(join(), 0);
	assert_int_equal(braid_bounce_take(&pool), 0);
}

/* Takes all pieces that are free, and puts them back. */
static unsigned pieces(void)
{
	uint64_t all = atomic_load(&pool.free);
	unsigned n = 0;

	while (braid_bounce_take(&pool) >= 0)
		n++;
	atomic_store(&pool.free, all);
	return n;
}

static void a_lane_that_shares_none_has_one_until_it_sends(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct ibv_pd *own = braid_ibv.alloc_pd(p->ctx);

	(void)state;
	assert_non_null(own);
	assert_int_equal(braid_bounces_join(&pool, p, own), 0);
	assert_int_equal(pieces(), 1);
	ports_ctl("fail 1 ibv_reg_mr ENOMEM on");
	braid_bounces_use(&pool, p, own);	/* it goes on with one */
	ports_ctl("fail 0");
	assert_int_equal(pieces(), 1);
	for (unsigned i = 0; i < 2; i++) {
		braid_bounces_use(&pool, p, own);
		assert_int_equal(pieces(), BRAID_BOUNCES);
	}
	for (unsigned i = 0; i < BRAID_BOUNCES; i++) {
		int piece = braid_bounce_take(&pool);

		memset(braid_bounce_at(&pool, piece), 1, BRAID_HDR_SIZE + BRAID_COPY_MAX);
		assert_int_equal(braid_bounce_key(&pool, piece), pool.chunk[i > 0].mr->lkey);
	}
	braid_bounces_free(&pool);
	assert_int_equal(braid_ibv.dealloc_pd(own), 0);
	braid_bounces_init(&pool);
}

static void *take_and_give(void *arg)
{
	unsigned *clashes = arg;

	for (unsigned i = 0; i < TURNS; i++) {
		int piece = braid_bounce_take(&pool);
		_Atomic uint32_t *at;

		if (piece < 0)
			continue;
		at = (void *)braid_bounce_at(&pool, piece);
		*clashes += atomic_fetch_add(at, 1) != 0;
		atomic_fetch_sub(at, 1);
		braid_bounce_put(&pool, piece);
	}
	return NULL;
}

static void threads_never_have_the_same_piece(void **state)
{
	unsigned clashes[THREADS] = { 0 };
	pthread_t thread[THREADS];

	(void)state;
	assert_int_equal(join(), 0);
	while (atomic_load(&pool.free) & (atomic_load(&pool.free) - 1))
		braid_bounce_take(&pool);	/* one is left, for all */
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, take_and_give, &clashes[i]), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(clashes[i], 0);
	}
	assert_int_not_equal(atomic_load(&pool.free), 0);
}

#define POOL_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		POOL_TEST(each_lane_brings_some_until_they_are_many),
		POOL_TEST(a_piece_has_one_user_and_is_registered_memory_of_its_own),
		POOL_TEST(memory_that_can_not_be_registered_is_no_lane_more),
		POOL_TEST(a_lane_that_shares_none_has_one_until_it_sends),
		POOL_TEST(threads_never_have_the_same_piece),
	};

	ports_of("ib0:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
