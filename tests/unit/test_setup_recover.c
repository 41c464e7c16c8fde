/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_setup_recover.c - how long a peer has been silent, and which lost lanes are dialled, by a clock
 * that only the test moves.
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
#include "core/link/link_int.h"
#include "core/link/state.h"
#include "core/setup/links.h"
#include "core/setup/recover.h"
#include "core/setup/redial.h"
#include "core/setup/silence.h"
#include "tests/lib/pair.h"

static struct null_pair p;
static struct braid_link *link;

static int setup(void **state)
{
	struct null_config config = { .held = true };

	(void)state;
	null_pair_init(&p, &config);
	link = p.end[1];
	link->msg.ncomms = 1;		/* a comm waits for the peer */
	null_now_ns += 1000 * SEC;
	braid_svc_lock();
	braid_silence_start(link, null_now_ns);
	warns_clear();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_svc_unlock();
	link->msg.ncomms = 0;
	null_pair_fini(&p);
	return 0;
}

static void pass(uint64_t ms)
{
	null_now_ns += ms * MS;
}

static int state_of(void)
{
	return atomic_load(&link->state);
}

static void a_silent_peer_is_given_up_after_its_time(void **state)
{
	(void)state;
	for (int i = 0; i < braid_param.peer_timeout; i++) {
		braid_recover_tick(link, null_now_ns);
		assert_int_equal(state_of(), BRAID_LINK_UP);
		pass(1000);
	}
	/* After 3 s, and 60 s and 120 s later. */
	assert_true(warn_count == 3 && strstr(warn_text, "[peer-silent]"));
	braid_recover_tick(link, null_now_ns);
	assert_int_equal(state_of(), BRAID_LINK_DEAD);
	assert_int_equal(atomic_load(&link->err), -EREMOTEIO);
}

/* The service thread had no CPU: frames of the peer may have arrived meanwhile. */
static void time_without_the_service_thread_is_not_the_peers(void **state)
{
	(void)state;
	pass(1000);
	braid_recover_tick(link, null_now_ns);
	pass((uint64_t)braid_param.peer_timeout * 1000);
	braid_recover_tick(link, null_now_ns);
	assert_int_equal(state_of(), BRAID_LINK_UP);
	assert_int_equal(warn_count, 0);
	pass(2100);			/* more than 3 s with the second before */
	braid_recover_tick(link, null_now_ns);
	assert_true(warn_count == 1 && strstr(warn_text, "[peer-silent]"));
}

/* In the turn after such a pause, a redial may succeed before the peer's silence is checked. */
static void a_peer_that_sends_at_the_end_of_such_a_pause_is_not_lost(void **state)
{
	(void)state;
	pass(4000);
	link->recover.received_ns = null_now_ns;
	braid_recover_tick(link, null_now_ns);
	assert_int_equal(state_of(), BRAID_LINK_UP);
	assert_int_equal(warn_count, 0);
	pass(2900);
	braid_recover_tick(link, null_now_ns);
	assert_int_equal(warn_count, 0);
	pass(200);
	braid_recover_tick(link, null_now_ns);
	assert_true(warn_count == 1 && strstr(warn_text, "[peer-silent]"));
}

/* A handshake in the same turn reads the clock later than the turn itself did. */
static void a_peer_that_sent_data_after_the_turn_began_is_not_lost(void **state)
{
	(void)state;
	braid_recover_tick(link, null_now_ns);
	link->recover.received_ns = null_now_ns + 5000;
	braid_recover_tick(link, null_now_ns);
	assert_int_equal(state_of(), BRAID_LINK_UP);
	assert_int_equal(warn_count, 0);
}

/* --- a peer that does not acknowledge -------------------------------------------------------- */

static int not_acknowledged(struct braid_lane *lane, struct braid_health *ret)
{
	(void)lane;
	*ret = (struct braid_health){ .unacked = true, .resent = 1 };
	return 0;
}

/* Ticks for so many seconds.  Returns how often this end asked the peer to dial: no ask succeeds. */
static unsigned requests_in(unsigned s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s * 20; i++) {
		uint64_t was = link->recover.probe_ns;

		pass(50);
		braid_recover_tick(link, null_now_ns);
		n += link->recover.probe_ns && link->recover.probe_ns != was;
	}
	return n;
}

static void requests_become_fewer_though_the_lane_is_never_lost(void **state)
{
	static struct braid_transport silent;

	(void)state;
	silent = null_transport;
	silent.health = not_acknowledged;
	link->lane[0]->tr = &silent;
	link->setup.path[0].to.port = 1;
	assert_in_range(requests_in(BRAID_LONG_OUTAGE_S), BRAID_LONG_OUTAGE_S, 1000);
	assert_in_range(requests_in(60), 60 / 3, 60);
	assert_true(braid_lane_up(link->lane[0]));
	/* Home is well for a moment.  Then the first request comes as soon as home is suspect. */
	link->lane[0]->tr = &null_transport;
	assert_int_equal(requests_in(1), 0);
	link->lane[0]->tr = &silent;
	assert_in_range(requests_in(1), 1, 20);
	link->lane[0]->tr = &null_transport;
}

/* --- lanes on which data is changed ---------------------------------------------------------- */

static void lose(struct braid_lane *lane, int err)
{
	null_transport.lane_close(lane);
	braid_lane_died(lane, NULL, err);
	lane->fd = -1;
	lane->recover.dial_at_ns = 0;
	braid_recover_tick(link, null_now_ns);
}

/* Was the lane dialled in the last tick?  It has no address, so that failed. */
static bool was_dialled(const struct braid_lane *lane)
{
	return lane->recover.dial_at_ns;
}

static void back(struct braid_lane *lane)
{
	atomic_store(&lane->up, true);
	atomic_store(&link->lanes.ndown, 0);
	lane->fd = 1;
}

static int setup_two(void **state)
{
	struct null_config config = { .lanes = 2, .held = true };

	(void)state;
	null_pair_init(&p, &config);
	link = p.end[0];
	link->msg.ncomms = 1;
	null_now_ns += 1000 * SEC;
	braid_svc_lock();
	braid_silence_start(link, null_now_ns);
	warns_clear();
	return 0;
}

static void a_lane_whose_data_is_changed_again_and_again_is_left_for_a_while(void **state)
{
	struct braid_lane *lane = link->lane[1];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		lose(lane, -EILSEQ);
		assert_true(was_dialled(lane));
		back(lane);
	}
	lose(lane, -EILSEQ);
	assert_false(was_dialled(lane));
	assert_non_null(strstr(warn_text, "lane 1 (null, "));
	assert_non_null(strstr(warn_text, " is left for 10 s, "));
	assert_non_null(strstr(warn_text, "the other lanes carry the data meanwhile [lane-left]"));
	assert_int_equal(braid_lane_times_corrupt(lane), 3);
	pass(2000);
	link->recover.received_ns = null_now_ns;
	braid_recover_tick(link, null_now_ns);
	assert_false(was_dialled(lane));
	pass(8000);
	link->recover.received_ns = null_now_ns;
	braid_recover_tick(link, null_now_ns);
	assert_true(was_dialled(lane));
}

static void the_last_lane_is_dialled_however_often_its_data_is_changed(void **state)
{
	struct braid_lane *last = link->lane[1];

	(void)state;
	lose(link->lane[0], -ECONNRESET);
	for (unsigned i = 0; i < 5; i++) {
		lose(last, -EILSEQ);
		assert_true(was_dialled(last));
		atomic_store(&last->up, true);
		last->fd = 1;
		link->lanes.ndown = 1;
	}
	assert_null(strstr(warn_text, "[lane-left]"));
	assert_int_equal(state_of(), BRAID_LINK_UP);
}

static void lanes_that_are_lost_for_other_reasons_are_not_left(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		lose(link->lane[1], -ECONNRESET);
		assert_true(was_dialled(link->lane[1]));
		back(link->lane[1]);
	}
	assert_int_equal(warn_count, 0);
}

/* --- a NIC whose port goes down again and again ---------------------------------------------- */

static bool usable;

static bool is_usable(const struct braid_dev *dev)
{
	(void)dev;
	return usable;
}

/* How long only sockets use the path after this lane's NIC has failed. */
static uint64_t plain_s(struct braid_lane *lane)
{
	struct braid_path *path = &link->setup.path[0];

	lane->loss.carrier_failed = true;
	lose(lane, -EIO);
	back(lane);
	null_now_ns = path->plain_until_ns + SEC;
	link->recover.received_ns = null_now_ns;
	return path->plain_ms / 1000;
}

/* A port that is down costs no time to find out; a path that loses packets costs seconds. */
static void a_port_that_flaps_is_used_again_as_soon_as_one_that_failed_once(void **state)
{
	struct braid_transport nic = null_transport;

	(void)state;
	nic.usable = is_usable;
	nic.blob = true;
	link->key.dev->best = &nic;
	link->lane[1]->tr = &nic;
	usable = false;
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(plain_s(link->lane[1]), 2);
	usable = true;
	assert_int_equal(plain_s(link->lane[1]), 4);
	assert_int_equal(plain_s(link->lane[1]), 8);
	link->lane[1]->tr = &null_transport;
}

#define TWO(f) cmocka_unit_test_setup_teardown(f, setup_two, teardown)
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_silent_peer_is_given_up_after_its_time),
		CASE(time_without_the_service_thread_is_not_the_peers),
		CASE(a_peer_that_sends_at_the_end_of_such_a_pause_is_not_lost),
		CASE(a_peer_that_sent_data_after_the_turn_began_is_not_lost),
		CASE(requests_become_fewer_though_the_lane_is_never_lost),
		TWO(a_lane_whose_data_is_changed_again_and_again_is_left_for_a_while),
		TWO(the_last_lane_is_dialled_however_often_its_data_is_changed),
		TWO(lanes_that_are_lost_for_other_reasons_are_not_left),
		TWO(a_port_that_flaps_is_used_again_as_soon_as_one_that_failed_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
