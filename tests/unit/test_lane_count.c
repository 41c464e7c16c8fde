/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_lane_count.c - how many lanes a link uses, against networks made of a formula and a clock
 * that only the test moves.
 *
 * A network is a function: bytes per ms for a number of lanes.  Lanes are opened as the service
 * thread would do it, a tick after the link wants them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "core/setup/lane_count.h"
#include "core/link/state.h"
#include "core/setup/links.h"
#include "core/setup/redial.h"
#include "core/base/param.h"
#include "tests/lib/pair.h"

enum { TICK_MS = 2 };

struct network {
	double (*rate)(unsigned lanes);		/* bytes per ms */
	bool idle;				/* nothing is sent */
	bool starving;				/* chunks wait because every lane is full */
	bool no_dial;				/* lanes can't be opened */
	unsigned opens;				/* so many can, the next dial gets no answer; 0: all */
};

static struct null_pair p;
static struct braid_params saved;
static unsigned end, most, least, changes;	/* of active, seen since the last reset */

static void begin(int speed_mbps, unsigned lanes_max)
{
	struct null_config config = { .held = true };

	null_pair_init(&p, &config);
	braid_svc_lock();
	for (unsigned i = 0; i < 2; i++) {
		struct braid_link *link = p.end[i];

		link->lanes_max = lanes_max;
		p.dev[i].net.speed_mbps = speed_mbps;
		p.dev[i].net.speed_known = speed_mbps != 0;
		braid_lane_count_start(link);
		link->msg.ncomms = 1;		/* so that the link is in use */
	}
	end = 0;
}

static int setup(void **state)
{
	(void)state;
	saved = braid_param;
	begin(10000, 8);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_svc_unlock();
	p.end[0]->msg.ncomms = p.end[1]->msg.ncomms = 0;
	null_pair_fini(&p);
	braid_param = saved;
	return 0;
}

static unsigned active(void)
{
	return p.end[end]->lanes.active;
}

static void live(const struct network *net, unsigned ms)
{
	struct braid_link *link = p.end[end];
	double bytes = 0;

	most = least = active();
	changes = 0;
	for (unsigned t = 0; t < ms; t += TICK_MS) {
		unsigned before = active();

		null_now_ns += TICK_MS * 1000000ull;
		bytes += net->idle ? 0 : net->rate(before) * TICK_MS;
		link->tx.acked_bytes += (uint64_t)bytes;
		bytes -= (double)(uint64_t)bytes;
		if (net->starving)
			atomic_fetch_add(&link->tx.starved, 1);
		if (link->dialler && braid_lane_count_wants_dial(link) &&
		    (!net->opens || link->nlanes < net->opens)) {
			if (net->no_dial)
				braid_lane_count_dialled(link, -ECONNREFUSED, null_now_ns);
			else
				null_pair_add_lane(&p);
		}
		braid_lane_count_tick(link, null_now_ns);
		changes += active() != before;
		most = active() > most ? active() : most;
		least = active() < least ? active() : least;
	}
}

/* --- networks ------------------------------------------------------------------------------ */

static double each_lane_adds(unsigned n)
{
	return 1e6 * n;
}

static double one_lane_fills_it(unsigned n)
{
	(void)n;
	return 1e6;
}

static double up_to_four(unsigned n)
{
	return 1e6 * (n < 4 ? n : 4);
}

static double more_is_less(unsigned n)
{
	return 1e6 / n;
}

/* Twice as fast now and then, for any number of lanes. */
static double weather(unsigned n)
{
	(void)n;
	return null_now_ns / 130000000 % 3 ? 1e6 : 2e6;
}

/* --- cases --------------------------------------------------------------------------------- */

static void the_start_is_what_the_link_speed_suggests(void **state)
{
	static const struct {
		int mbps;
		bool known;
		unsigned lanes;
	} rows[] = {
		{ 1000, true, 1 }, { 10000, true, 1 }, { 25000, true, 1 }, { 40000, true, 1 },
		{ 50000, true, 2 }, { 100000, true, 4 }, { 200000, true, 4 }, { 400000, true, 4 },
		{ 100000, false, 1 }, { 0, true, 1 }, { -1, true, 1 },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(braid_lane_count_first(rows[i].mbps, rows[i].known),
				 rows[i].lanes);
}

static void a_link_grows_while_that_makes_it_faster(void **state)
{
	struct network net = { .rate = each_lane_adds, .starving = true };

	(void)state;
	assert_int_equal(active(), 1);
	live(&net, 20000);
	assert_int_equal(active(), 8);
	assert_int_equal(p.end[0]->nlanes, 8);
	live(&net, 20000);
	assert_true(changes <= 2);		/* it may ask whether half would do */
	assert_int_equal(least, changes ? 4 : 8);
	assert_int_equal(active(), 8);
}

/* A queue pair can use the whole NIC, and NICs have few: lanes are added late, at most twice as many. */
static void lanes_of_a_nic_are_tried_later_and_by_twos(void **state)
{
	struct network net = { .rate = each_lane_adds, .starving = true };
	const struct braid_transport *null = p.end[0]->lane[0]->tr;
	struct braid_transport nic = *null;

	(void)state;
	nic.dma = true;
	p.end[0]->lane[0]->tr = &nic;
	braid_lane_count_start(p.end[0]);
	live(&net, 1000);
	assert_int_equal(p.end[0]->nlanes, 1);
	live(&net, 500);
	assert_int_equal(p.end[0]->nlanes, 2);
	assert_int_equal(most, 2);
	live(&net, 20000);
	assert_int_equal(active(), 8);
	p.end[0]->lane[0]->tr = null;
}

static void a_clear_gain_is_taken_within_two_samples(void **state)
{
	struct network net = { .rate = each_lane_adds, .starving = true };

	(void)state;
	live(&net, 220);
	assert_int_equal(active(), 8);
	live(&net, 5000);
	assert_int_equal(changes, 0);
}

static void lanes_that_bring_nothing_are_dropped_again(void **state)
{
	struct network net = { .rate = up_to_four, .starving = true };

	(void)state;
	live(&net, 1000);
	assert_int_equal(active(), 8);
	live(&net, 60000);
	assert_int_equal(active(), 4);
	live(&net, 60000);
	assert_int_equal(active(), 4);
	assert_true(least >= 2);
}

/* One lane is clearly better than two for a moment: that must not cost the other seven. */
static double a_dip(unsigned n)
{
	return null_now_ns / 1000000 % 11000 < 150 ? 5e5 : 1e6 * n;
}

static void a_bad_moment_costs_no_lanes(void **state)
{
	struct network net = { .rate = a_dip, .starving = true };

	(void)state;
	live(&net, 5000);
	assert_int_equal(active(), 8);
	for (int i = 0; i < 20; i++) {
		live(&net, 7777);
		assert_true(active() >= 4);
	}
}

static void it_stops_where_the_gain_stops(void **state)
{
	struct network net = { .rate = up_to_four, .starving = true };

	(void)state;
	live(&net, 60000);
	assert_int_equal(active(), 4);
	assert_int_equal(least, 1);
	assert_int_equal(most, 8);		/* it has tried */
}

static void a_try_that_brings_nothing_is_taken_back_and_tried_ever_more_rarely(void **state)
{
	struct network net = { .rate = one_lane_fills_it, .starving = true };
	unsigned tries_early, tries_late;

	(void)state;
	live(&net, 10000);
	assert_int_equal(active(), 1);
	assert_true(changes >= 2);
	tries_early = changes;
	live(&net, 60000);
	live(&net, 60000);
	tries_late = changes;
	assert_true(tries_late <= tries_early);
	assert_int_equal(active(), 1);
	assert_int_equal(most, tries_late ? 2 : 1);
}

static void more_lanes_that_are_slower_are_taken_back(void **state)
{
	struct network net = { .rate = more_is_less, .starving = true };

	(void)state;
	live(&net, 30000);
	assert_int_equal(active(), 1);
}

static void weather_is_not_taken_for_gain(void **state)
{
	struct network net = { .rate = weather, .starving = true };
	unsigned grown = 0;

	for (unsigned i = 0; i < 20; i++) {
		live(&net, 20000 + i * 137);
		grown += active() > 1;
		teardown(state);
		setup(state);
		null_now_ns += i * 7000000;
	}
	assert_true(grown <= 2);
}

static void a_link_that_never_starves_is_left_alone(void **state)
{
	struct network net = { .rate = each_lane_adds };

	(void)state;
	live(&net, 30000);
	assert_int_equal(changes, 0);
	assert_int_equal(p.end[0]->nlanes, 1);
}

/* A lane that stands still is found to be ill after a while; in an outage nothing moves. */
static void outage(unsigned unseen_ms, unsigned ms, bool starving)
{
	struct network none = { .rate = each_lane_adds, .idle = true, .starving = starving };
	struct braid_lane *lane = p.end[0]->lane[0];

	live(&none, unseen_ms);
	braid_lane_set_suspect(lane, null_now_ns - BRAID_SUSPECT_MS * 1000000ull);
	live(&none, ms);
	braid_lane_set_suspect(lane, 0);
}

static void an_outage_costs_no_lanes(void **state)
{
	struct network net = { .rate = each_lane_adds, .starving = true };

	for (unsigned i = 0; i < 60; i++) {
		teardown(state);
		setup(state);
		live(&net, 9000 + 50 * i);	/* also while half of the lanes are tried */
		outage(600, i % 2 ? 3000 : 30000, false);
		assert_int_equal(active(), 8);
		live(&net, 5000);
		assert_int_equal(least, 8);
	}
}

/* The rates of a try say nothing if a lane stands still in it. */
static void an_outage_brings_no_lanes_that_bring_nothing(void **state)
{
	struct network net = { .rate = one_lane_fills_it, .starving = true };

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		live(&net, 1000 + 37 * i);
		outage(600, 3000, true);
		assert_int_equal(active(), 1);
	}
}

static void a_link_that_rests_goes_back_to_its_start(void **state)
{
	struct network busy = { .rate = each_lane_adds, .starving = true };
	struct network idle = { .rate = each_lane_adds, .idle = true };

	(void)state;
	live(&busy, 20000);
	assert_int_equal(active(), 8);
	live(&idle, 8000);
	assert_int_equal(active(), 8);
	live(&idle, 4000);
	assert_int_equal(active(), 1);
	assert_int_equal(p.end[0]->nlanes, 8);	/* they stay open */
	live(&busy, 20000);
	assert_int_equal(active(), 8);
}

static void traffic_that_ends_in_a_try_leaves_no_more_lanes_in_use(void **state)
{
	struct network busy = { .rate = each_lane_adds, .starving = true };
	struct network idle = { .rate = each_lane_adds, .idle = true };

	for (unsigned ms = 100; ms < 900; ms += 30) {
		teardown(state);
		setup(state);
		live(&busy, ms);
		live(&idle, 3000);
		assert_int_equal(p.end[0]->lane_count.phase, 0);	/* no try is left open */
		live(&idle, 12000);
		assert_int_equal(active(), 1);
	}
}

static void lanes_that_cannot_be_opened_are_done_without(void **state)
{
	struct network net = { .rate = each_lane_adds, .starving = true, .no_dial = true };

	(void)state;
	live(&net, 20000);
	assert_int_equal(active(), 1);
	assert_int_equal(changes, 0);
	assert_int_equal(p.end[0]->nlanes, 1);
	net.no_dial = false;			/* a later try finds them */
	live(&net, 120000);
	assert_int_equal(active(), 8);
}

static void those_lanes_that_came_are_tried(void **state)
{
	struct network net = { .rate = each_lane_adds, .starving = true, .opens = 3 };

	(void)state;
	live(&net, 1500);
	assert_int_equal(active(), 3);
	live(&net, 5000);
	assert_int_equal(active(), 3);
	net.opens = 0;
	live(&net, 20000);
	assert_int_equal(active(), 8);
}

static void a_number_of_lanes_that_the_user_sets_is_kept(void **state)
{
	struct network net = { .rate = more_is_less, .starving = true };

	teardown(state);
	saved = braid_param;
	braid_param.lanes = 5;
	begin(10000, 8);
	live(&net, 1000);
	assert_int_equal(active(), 5);
	assert_int_equal(p.end[0]->nlanes, 5);
	live(&net, 30000);
	assert_int_equal(changes, 0);
}

static void never_more_than_both_ends_allow(void **state)
{
	struct network net = { .rate = each_lane_adds, .starving = true };

	teardown(state);
	saved = braid_param;
	begin(100000, 3);
	assert_int_equal(active(), 3);
	live(&net, 20000);
	assert_int_equal(most, 3);
	teardown(state);
	saved = braid_param;
	begin(10000, 6);			/* not a power of two */
	live(&net, 20000);
	assert_int_equal(active(), 6);
	assert_int_equal(p.end[0]->nlanes, 6);
}

static void the_end_that_was_dialled_asks_by_a_frame(void **state)
{
	struct network net = { .rate = each_lane_adds, .starving = true };
	struct braid_hdr h = { 0 };

	(void)state;
	end = 1;
	live(&net, 300);
	assert_false(null_peek(&p, 1, 0, &h));	/* the holder of the link's lock sends it */
	assert_true(braid_link_flush_if_urgent(p.end[1], false));
	assert_true(null_peek(&p, 1, 0, &h));
	assert_int_equal(h.type, BRAID_F_LANES);
	assert_int_equal(h.n, 8);
	assert_int_equal(p.end[1]->nlanes, 1);
	assert_int_equal(active(), 1);		/* not before the lanes are up */
	assert_int_equal(null_deliver(&p, 1, 0), 1);
	assert_int_equal(p.end[0]->lanes.want, 8);
	for (unsigned i = 1; i < 8; i++) {
		assert_true(braid_lane_count_wants_dial(p.end[0]));
		null_pair_add_lane(&p);
	}
	assert_false(braid_lane_count_wants_dial(p.end[0]));
	live(&net, 100);
	assert_int_equal(most, 8);
}

/* A lane came up at the peer only, and frames that the peer sent over it wait: this end dials it. */
static void a_lane_that_only_the_peer_has_is_dialled(void **state)
{
	struct braid_hdr down = { .type = BRAID_F_DOWN, .n = 1 };

	(void)state;
	assert_int_equal(p.end[0]->nlanes, 1);
	assert_false(braid_lane_count_wants_dial(p.end[0]));
	braid_lock_wait(&p.end[1]->lock);
	assert_true(braid_link_ctl(p.end[1], &down, NULL));
	braid_link_flush(p.end[1]);
	braid_unlock(&p.end[1]->lock);
	assert_int_equal(null_deliver(&p, 1, 0), 1);
	assert_true(braid_lane_count_wants_dial(p.end[0]));
	null_pair_add_lane(&p);
	assert_false(braid_lane_count_wants_dial(p.end[0]));
}

static void a_link_without_comms_is_not_dialled(void **state)
{
	(void)state;
	p.end[0]->lanes.want = 4;
	assert_true(braid_lane_count_wants_dial(p.end[0]));
	p.end[0]->msg.ncomms = 0;
	assert_false(braid_lane_count_wants_dial(p.end[0]));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(the_start_is_what_the_link_speed_suggests),
		CASE(a_link_grows_while_that_makes_it_faster),
		CASE(lanes_of_a_nic_are_tried_later_and_by_twos),
		CASE(a_clear_gain_is_taken_within_two_samples),
		CASE(lanes_that_bring_nothing_are_dropped_again),
		CASE(a_bad_moment_costs_no_lanes),
		CASE(it_stops_where_the_gain_stops),
		CASE(a_try_that_brings_nothing_is_taken_back_and_tried_ever_more_rarely),
		CASE(more_lanes_that_are_slower_are_taken_back),
		CASE(weather_is_not_taken_for_gain),
		CASE(a_link_that_never_starves_is_left_alone),
		CASE(an_outage_costs_no_lanes),
		CASE(an_outage_brings_no_lanes_that_bring_nothing),
		CASE(a_link_that_rests_goes_back_to_its_start),
		CASE(traffic_that_ends_in_a_try_leaves_no_more_lanes_in_use),
		CASE(lanes_that_cannot_be_opened_are_done_without),
		CASE(those_lanes_that_came_are_tried),
		CASE(a_number_of_lanes_that_the_user_sets_is_kept),
		CASE(never_more_than_both_ends_allow),
		CASE(the_end_that_was_dialled_asks_by_a_frame),
		CASE(a_lane_that_only_the_peer_has_is_dialled),
		CASE(a_link_without_comms_is_not_dialled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
