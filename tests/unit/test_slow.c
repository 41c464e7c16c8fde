/* SPDX-License-Identifier: BSD-3-Clause */
/* test_slow.c - which lanes are found slow, how often they are dialled, and when the peer is asked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>

#include "core/base/units.h"
#include "core/link/recover.h"
#include "core/link/state.h"
#include "core/setup/links.h"
#include "core/setup/slow.h"
#include "tests/lib/pair.h"

enum { LANES = 4, LOOK_MS = 250 };

static struct null_pair p;
static unsigned rate[LANES];		/* times `scale` bytes per ms; 0: the lane is idle */
static unsigned scale;
static unsigned busy_ms[LANES];		/* of LOOK_MS */
static unsigned dials[LANES], mends_after;	/* so many dials make lane 0 as fast as lane 1 */

static int setup(void **state)
{
	struct null_config config = { .held = true, .lanes = LANES };

	(void)state;
	null_pair_init(&p, &config);
	null_now_ns += 1000 * SEC;
	for (unsigned i = 0; i < LANES; i++) {
		rate[i] = 100;
		busy_ms[i] = LOOK_MS;
		dials[i] = 0;
	}
	mends_after = 0;
	scale = 1024;
	p.end[0]->dialler = true;
	p.end[1]->setup.other_paths = true;
	braid_svc_lock();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_svc_unlock();
	null_pair_fini(&p);
	return 0;
}

/* One end sends for so long; a lane that is to be dialled again is, at once. */
static void live(unsigned end, unsigned ms)
{
	struct braid_link *link = p.end[end];

	for (unsigned t = 0; t < ms; t += LOOK_MS) {
		null_now_ns += LOOK_MS * MS;
		for (unsigned i = 0; i < LANES; i++) {
			struct braid_lane *lane = link->lane[i];

			if (rate[i])
				atomic_fetch_add(&lane->tx.busy_ns, busy_ms[i] * MS);
			atomic_fetch_add(&lane->tx.busy_bytes,
					 (uint64_t)rate[i] * scale * busy_ms[i]);
		}
		braid_slow_tick(link, null_now_ns);
		for (unsigned i = 0; i < LANES; i++) {
			struct braid_lane *lane = link->lane[i];

			if (!braid_lane_is_slow(lane))
				continue;
			braid_lane_set_slow(lane, false);
			atomic_fetch_add(&lane->loss.back, 1);
			dials[i]++;
			if (mends_after && dials[i] >= mends_after)
				rate[i] = rate[1];
		}
	}
}

static void a_lane_below_half_of_the_median_for_a_second_is_dialled_again(void **state)
{
	(void)state;
	rate[0] = 49;
	live(0, 1750);
	assert_int_equal(dials[0], 0);		/* a second to measure it, another in which it stays */
	live(0, LOOK_MS);
	assert_int_equal(dials[0], 1);
	assert_int_equal(dials[1] + dials[2] + dials[3], 0);
	assert_int_equal(p.dev[0].slow, 1);
}

static void a_lane_far_slower_than_the_fastest_is_dialled_after_one_second(void **state)
{
	(void)state;
	rate[0] = 24;
	live(0, 1000);
	assert_int_equal(dials[0], 0);		/* the first look only begins a second */
	live(0, LOOK_MS);
	assert_int_equal(dials[0], 1);
}

static void lanes_of_other_transports_are_not_compared(void **state)
{
	static struct braid_transport other;

	(void)state;
	other = *p.end[0]->lane[0]->tr;
	p.end[0]->lane[0]->tr = &other;
	rate[0] = 10;
	live(0, 10000);
	assert_int_equal(dials[0], 0);
}

static void a_lane_of_half_the_median_is_left_alone(void **state)
{
	(void)state;
	rate[0] = 51;
	live(0, 60000);
	assert_int_equal(dials[0], 0);
}

static void two_lanes_of_one_slow_path_are_dialled_at_once(void **state)
{
	(void)state;
	rate[0] = 10;
	rate[1] = 20;
	live(0, 1250);
	assert_int_equal(dials[0] + dials[1], 2);
	assert_int_equal(dials[2] + dials[3], 0);
}

static void most_lanes_may_be_on_the_slow_path(void **state)
{
	(void)state;
	rate[0] = rate[1] = rate[2] = 12;
	live(0, 1250);
	assert_int_equal(dials[0] + dials[1] + dials[2], 3);
	assert_int_equal(dials[3], 0);
}

/* While a lane is very slow, the rates of the others depend on it. */
static void a_lane_that_is_less_slow_waits_until_the_slowest_has_another_path(void **state)
{
	(void)state;
	rate[0] = 5;
	rate[1] = 30;
	live(0, 1250);
	assert_int_equal(dials[0], 1);
	assert_int_equal(dials[1], 0);
	rate[0] = 100;
	live(0, 1000);
	assert_int_equal(dials[1], 1);
}

static void tries_that_do_not_help_are_few_and_rarer_each_time(void **state)
{
	(void)state;
	rate[0] = 10;
	live(0, 3000);
	assert_in_range(dials[0], 2, 3);
	live(0, 17000);
	assert_int_equal(dials[0], 5);
	live(0, 270000);
	assert_int_equal(dials[0], 5);
	live(0, 30000);
	assert_true(dials[0] > 5);		/* after a rest */
}

static void a_lane_that_is_well_for_a_while_begins_anew(void **state)
{
	(void)state;
	rate[0] = 10;
	mends_after = 3;
	live(0, 20000);
	assert_int_equal(dials[0], 3);
	assert_int_equal(p.end[0]->lane[0]->recover.pace.tries, 0);
}

/* One message at a time: each waits for its part on the slow lane. */
static void lanes_that_wait_for_the_slow_one_are_compared_with_it(void **state)
{
	(void)state;
	rate[0] = 10;
	busy_ms[1] = busy_ms[2] = busy_ms[3] = LOOK_MS / 10;
	live(0, 1250);
	assert_int_equal(dials[0], 1);
}

static void idle_lanes_and_little_traffic_are_not_judged(void **state)
{
	(void)state;
	rate[0] = 0;				/* it carries nothing */
	live(0, 10000);
	null_now_ns += SEC;			/* a pause: what was before means nothing */
	scale = 100;				/* 1 MB a second in all, less than 1 MiB */
	rate[0] = 1;
	rate[1] = rate[2] = rate[3] = 3;
	live(0, 10000);
	assert_int_equal(dials[0] + dials[1] + dials[2] + dials[3], 0);
}

static void within_a_host_no_lane_is_dialled_again(void **state)
{
	(void)state;
	rate[0] = 10;
	p.end[0]->lane[0]->local = true;
	live(0, 10000);
	assert_int_equal(dials[0], 0);
}

static void the_end_that_can_not_dial_asks_a_peer_that_knows(void **state)
{
	struct braid_lane *asked = p.end[0]->lane[0];

	(void)state;
	rate[0] = 10;
	live(1, 1250);
	assert_int_equal(dials[0], 1);
	while (null_deliver(&p, 1, 0) > 0)
		;
	assert_true(braid_lane_is_slow(asked));
	assert_false(braid_lane_old_key(asked));
}

static void a_peer_that_does_not_know_is_not_asked(void **state)
{
	(void)state;
	rate[0] = 10;
	p.end[1]->setup.other_paths = false;
	live(1, 10000);
	assert_int_equal(dials[0], 0);
	assert_int_equal(null_deliver(&p, 1, 0), 0);
}

/* The queue of a slow path is full: a connection over it takes long. */
static void a_new_connection_as_slow_as_the_old_one_is_refused_a_few_times(void **state)
{
	struct braid_lane *lane = p.end[0]->lane[0];

	(void)state;
	braid_lane_set_slow(lane, true);
	for (unsigned i = 1; i < LANES; i++)
		p.end[0]->lane[i]->recover.rtt_ms = 5 + i;
	assert_false(braid_slow_refuses(lane, 15));
	for (unsigned i = 0; i < 4; i++)
		assert_true(braid_slow_refuses(lane, 100));
	assert_false(braid_slow_refuses(lane, 100));
	assert_true(braid_slow_refuses(lane, 100));
	assert_false(braid_slow_refuses(lane, 2));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_lane_below_half_of_the_median_for_a_second_is_dialled_again),
		CASE(a_lane_far_slower_than_the_fastest_is_dialled_after_one_second),
		CASE(lanes_of_other_transports_are_not_compared),
		CASE(a_lane_of_half_the_median_is_left_alone),
		CASE(two_lanes_of_one_slow_path_are_dialled_at_once),
		CASE(most_lanes_may_be_on_the_slow_path),
		CASE(a_lane_that_is_less_slow_waits_until_the_slowest_has_another_path),
		CASE(tries_that_do_not_help_are_few_and_rarer_each_time),
		CASE(a_lane_that_is_well_for_a_while_begins_anew),
		CASE(lanes_that_wait_for_the_slow_one_are_compared_with_it),
		CASE(idle_lanes_and_little_traffic_are_not_judged),
		CASE(within_a_host_no_lane_is_dialled_again),
		CASE(the_end_that_can_not_dial_asks_a_peer_that_knows),
		CASE(a_peer_that_does_not_know_is_not_asked),
		CASE(a_new_connection_as_slow_as_the_old_one_is_refused_a_few_times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
