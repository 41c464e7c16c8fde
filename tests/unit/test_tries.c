/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_tries.c - how a new link's dial tries its paths: how long each try may take, which path is next
 * and when, and when the dialler gives up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "core/base/param.h"
#include "core/base/units.h"
#include "core/link/link.h"
#include "core/setup/conn.h"
#include "core/setup/links.h"
#include "core/setup/tries.h"

enum { START = 1000 };			/* s: when each case begins */

static struct braid_link link_;
static struct braid_ways *const ways = &link_.setup.path[0].ways;

static uint64_t ms(uint64_t n)
{
	return n * MS;
}

/* A link with n paths, and the user's two limits, in seconds. */
static void fresh(unsigned n, int connect_s, int handshake_s)
{
	memset(&link_, 0, sizeof(link_));
	ways->n = n;
	braid_param.connect_timeout = connect_s;
	braid_param.handshake_timeout = handshake_s;
}

/* The dial over the next path fails `at_ms` after the start, before TCP has connected. */
static bool fails(int err, bool final, unsigned at_ms)
{
	struct braid_conn c = { .way = ways->now, .state = BRAID_CONN_CONNECT };

	return braid_tries_go_on(&link_, &c, err, final, START * SEC + ms(at_ms));
}

static uint64_t next_ms(unsigned at_ms)		/* until the next dial, then */
{
	return (link_.dial.at_ns - START * SEC) / MS - at_ms;
}

static void the_only_address_has_all_the_time(void **state)
{
	(void)state;
	fresh(1, 60, 5);
	assert_int_equal(braid_tries_slice(&link_, false, false), ms(5000));
	assert_int_equal(braid_tries_slice(&link_, false, true), ms(5000));
}

static void a_socket_that_is_bound_leaves_time_to_dial_without(void **state)
{
	(void)state;
	fresh(1, 60, 5);
	assert_int_equal(braid_tries_slice(&link_, true, false), ms(1000));
	assert_int_equal(braid_tries_slice(&link_, true, true), ms(5000));
}

static void each_round_gives_twice_the_time(void **state)
{
	static const unsigned want[] = { 1000, 2000, 4000, 5000, 5000, 5000 };

	(void)state;
	fresh(4, 60, 5);
	for (unsigned i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		link_.tries.round = i;
		assert_int_equal(braid_tries_slice(&link_, false, false), ms(want[i]));
	}
}

static void little_time_is_shared(void **state)
{
	(void)state;
	fresh(3, 3, 5);
	assert_int_equal(braid_tries_slice(&link_, false, false), SEC / 3);
	assert_int_equal(braid_tries_slice(&link_, false, true), ms(1000));	/* at least */
	fresh(8, 1, 5);
	assert_int_equal(braid_tries_slice(&link_, false, false), ms(100));	/* at least */
	fresh(3, 60, 1);
	link_.tries.round = 3;
	assert_int_equal(braid_tries_slice(&link_, false, false), ms(1000));	/* at most */
}

static void ways_are_tried_in_order_and_then_again(void **state)
{
	(void)state;
	fresh(3, 60, 5);
	for (unsigned i = 0; i < 7; i++) {
		assert_int_equal(ways->now, i % 3);
		assert_int_equal(link_.tries.round, i / 3);
		assert_true(fails(-ETIMEDOUT, false, i * 100));
		assert_int_equal(next_ms(i * 100), i % 3 == 2 ? 20 : 1);
	}
	assert_int_equal(ways->way[1].err, -ETIMEDOUT);
}

/* The dial fails before there is a socket. */
static void a_dial_that_never_began_counts_for_its_way(void **state)
{
	(void)state;
	fresh(2, 60, 5);
	assert_true(braid_tries_go_on(&link_, NULL, -ENETUNREACH, false, START * SEC));
	assert_int_equal(ways->now, 1);
	assert_int_equal(ways->way[0].err, -ENETUNREACH);
	fresh(0, 60, 5);
	assert_false(braid_tries_go_on(&link_, NULL, -EAFNOSUPPORT, false, START * SEC));
}

static void one_that_was_bound_is_dialled_again_without(void **state)
{
	struct braid_conn c = { .bound = true, .state = BRAID_CONN_CONNECT };

	(void)state;
	fresh(2, 60, 5);
	assert_true(braid_tries_go_on(&link_, &c, -ETIMEDOUT, false, START * SEC));
	assert_int_equal(ways->now, 0);
	assert_true(ways->way[0].loose);
	assert_true(fails(-ETIMEDOUT, false, 1));
	assert_int_equal(ways->now, 1);
	/* One that had connected is not to blame for being bound. */
	fresh(2, 60, 5);
	c.state = BRAID_CONN_RX_ANSWER;
	assert_true(braid_tries_go_on(&link_, &c, -ETIMEDOUT, false, START * SEC));
	assert_int_equal(ways->now, 1);
	assert_false(ways->way[0].loose);
}

static void a_final_refusal_of_the_only_address_ends_the_dial(void **state)
{
	(void)state;
	fresh(1, 60, 5);
	assert_true(fails(-ECONNREFUSED, false, 0));
	assert_false(fails(-ECONNREFUSED, true, 500));
}

static void final_refusals_of_all_addresses_end_the_dial(void **state)
{
	(void)state;
	fresh(3, 60, 5);
	assert_true(fails(-ECONNREFUSED, true, 0));
	assert_true(fails(-ECONNREFUSED, true, 1));
	assert_false(fails(-ECONNREFUSED, true, 2));
}

static void other_addresses_have_some_seconds_after_a_final_refusal(void **state)
{
	(void)state;
	fresh(2, 60, 5);
	assert_true(fails(-ECONNREFUSED, true, 0));
	assert_true(fails(-ETIMEDOUT, false, 1000));
	assert_true(fails(-ECONNREFUSED, true, 1100));
	assert_true(fails(-ETIMEDOUT, false, 4900));
	assert_false(fails(-ECONNREFUSED, true, 5000));
	/* No more than half of what the caller waits. */
	fresh(2, 4, 5);
	assert_true(fails(-ECONNREFUSED, true, 0));
	assert_true(fails(-ETIMEDOUT, false, 1999));
	assert_false(fails(-ECONNREFUSED, true, 2000));
}

/* Some events have a later time stamp than the service thread's current turn. */
static void time_that_goes_back_ends_nothing(void **state)
{
	(void)state;
	fresh(2, 60, 5);
	assert_true(fails(-ECONNREFUSED, true, 10));
	assert_true(fails(-ETIMEDOUT, false, 11));
	assert_true(fails(-ECONNREFUSED, true, 9));
}

static int lock(void **state)
{
	(void)state;
	braid_svc_lock();
	return 0;
}

static int unlock(void **state)
{
	(void)state;
	braid_svc_unlock();
	return 0;
}

static void an_answer_may_take_a_sixtieth_of_the_time(void **state)
{
	(void)state;
	fresh(1, 60, 5);
	assert_int_equal(braid_tries_patience(), ms(1000));
	fresh(1, 3, 5);
	assert_int_equal(braid_tries_patience(), ms(50));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_only_address_has_all_the_time),
		cmocka_unit_test(a_socket_that_is_bound_leaves_time_to_dial_without),
		cmocka_unit_test(each_round_gives_twice_the_time),
		cmocka_unit_test(little_time_is_shared),
		cmocka_unit_test(an_answer_may_take_a_sixtieth_of_the_time),
		cmocka_unit_test(ways_are_tried_in_order_and_then_again),
		cmocka_unit_test(a_dial_that_never_began_counts_for_its_way),
		cmocka_unit_test(one_that_was_bound_is_dialled_again_without),
		cmocka_unit_test(a_final_refusal_of_the_only_address_ends_the_dial),
		cmocka_unit_test(final_refusals_of_all_addresses_end_the_dial),
		cmocka_unit_test(other_addresses_have_some_seconds_after_a_final_refusal),
		cmocka_unit_test(time_that_goes_back_ends_nothing),
	};

	return cmocka_run_group_tests(tests, lock, unlock);
}
