/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_health.c - which lanes work, as their carriers report it and by a clock that only the test
 * moves.
 *
 * The lanes are those of null.h, with a transport whose reports the test writes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "core/base/units.h"
#include "core/setup/health.h"
#include "core/setup/links.h"
#include "core/setup/redial.h"
#include "tests/lib/pair.h"

enum { LANES = 2 };

static struct null_pair p;
static struct braid_link *link;
static struct braid_transport tr;
static struct braid_health report[LANES];
static int report_err;			/* of lane 0 */
static bool usable;

static int tr_health(struct braid_lane *lane, struct braid_health *ret)
{
	*ret = report[lane->index];
	return lane->index ? 0 : report_err;
}

static bool tr_usable(const struct braid_dev *dev)
{
	assert_ptr_equal(dev, &p.dev[0]);
	return usable;
}

static int setup(void **state)
{
	struct null_config config = { .held = true, .lanes = LANES };

	(void)state;
	null_pair_init(&p, &config);
	link = p.end[0];
	tr = null_transport;
	tr.health = tr_health;
	tr.usable = tr_usable;
	for (unsigned i = 0; i < LANES; i++)
		link->lane[i]->tr = &tr;
	memset(report, 0, sizeof(report));
	report_err = 0;
	usable = true;
	/* Two paths: lane i prefers path i. */
	link->npaths = LANES;
	for (unsigned i = 0; i < LANES; i++) {
		link->setup.path[i].dev = &p.dev[0];
		link->lane[i]->recover.path = (uint8_t)i;
	}
	null_now_ns += 1000 * SEC;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	null_pair_fini(&p);
	return 0;
}

static bool look(void)
{
	bool under_way;

	braid_svc_lock();
	under_way = braid_health_check(link, null_now_ns);
	braid_svc_unlock();
	return under_way;
}

static void pass(uint64_t ms)
{
	null_now_ns += ms * MS;
}

static bool well(unsigned lane)
{
	return braid_health_well(link->lane[lane], null_now_ns);
}

/* The peer's host acknowledges nothing on that lane, however often it is sent again. */
static void resends(unsigned lane)
{
	report[lane].unacked = true;
	report[lane].resent = 3;
}

/* --- suspicion ----------------------------------------------------------------------------- */

static void a_lane_at_rest_is_well(void **state)
{
	(void)state;
	assert_false(look());
	pass(60000);
	assert_false(look());
	assert_true(well(0) && well(1));
}

static void bytes_under_way_are_reported_and_no_fault(void **state)
{
	(void)state;
	report[1].unacked = true;
	assert_true(look());
	pass(60000);
	assert_true(look());
	assert_true(well(0) && well(1));
	assert_int_equal(link->lane[1]->loss.suspect_ns, 0);
}

static void a_lane_that_resends_is_suspect_for_200_ms(void **state)
{
	(void)state;
	resends(1);
	assert_true(look());
	assert_int_equal(link->lane[1]->loss.suspect_ns, null_now_ns);
	pass(BRAID_SUSPECT_MS - 1);
	look();
	assert_true(well(1));
	pass(1);
	assert_false(well(1));
	assert_true(braid_health_any_well(link, null_now_ns));
}

static void patience_and_a_long_way_give_it_more_time(void **state)
{
	struct braid_lane *lane = link->lane[1];

	(void)state;
	resends(1);
	lane->recover.patience_ms = 800;
	look();
	pass(799);
	assert_true(well(1));
	pass(1);
	assert_false(well(1));
	/* Twice the round trip, where that is more. */
	report[1].rtt_ms = 500;
	look();
	assert_true(well(1));
	pass(200);
	assert_false(well(1));
}

static void an_acknowledgement_ends_the_suspicion(void **state)
{
	(void)state;
	resends(1);
	look();
	pass(100);
	report[1].resent = 0;			/* more is on its way, not sent again yet */
	look();
	assert_int_equal(link->lane[1]->loss.suspect_ns, 0);
	resends(1);
	look();
	pass(BRAID_SUSPECT_MS - 1);
	report[1].unacked = false;
	assert_false(look());
	assert_int_equal(link->lane[1]->loss.suspect_ns, 0);
	pass(1);
	assert_true(well(1));
}

/* TCP retransmits what has left, and counts nothing where a firewall of this host keeps it back. */
static void what_does_not_leave_this_host_is_not_answered(void **state)
{
	(void)state;
	resends(1);
	report[1].acked = 1000;
	look();
	pass(BRAID_SUSPECT_MS - 1);
	report[1].held_back = true;
	report[1].resent = 0;			/* the peer has sent something */
	assert_true(look());
	assert_int_not_equal(link->lane[1]->loss.suspect_ns, 0);
	report[1].acked++;
	look();
	assert_int_equal(link->lane[1]->loss.suspect_ns, 0);
	pass(60000);				/* waiting to leave is no fault by itself */
	look();
	assert_true(well(1));
}

static void a_lane_without_a_carrier_is_not_well(void **state)
{
	(void)state;
	atomic_store(&link->lane[0]->up, false);
	assert_false(well(0));
	assert_true(braid_health_any_well(link, null_now_ns));
	atomic_store(&link->lane[1]->up, false);
	assert_false(braid_health_any_well(link, null_now_ns));
	resends(0);
	assert_false(look());			/* nobody asks its carrier */
	assert_int_equal(link->lane[0]->loss.suspect_ns, 0);
}

/* --- what follows -------------------------------------------------------------------------- */

static void a_suspect_lane_is_given_up_if_another_is_well(void **state)
{
	(void)state;
	resends(1);
	look();
	pass(BRAID_SUSPECT_MS - 1);
	look();
	assert_true(braid_lane_up(link->lane[1]));
	pass(1);
	look();
	assert_false(braid_lane_up(link->lane[1]));
	assert_int_equal(link->lanes.ndown, 1);
	assert_true(braid_lane_up(link->lane[0]));
}

static void the_last_lane_is_kept(void **state)
{
	(void)state;
	resends(0);
	resends(1);
	look();
	pass(BRAID_SUSPECT_MS);
	look();
	assert_true(braid_lane_up(link->lane[0]) && braid_lane_up(link->lane[1]));
	report[0].resent = 0;			/* lane 0 works again: now lane 1 can go */
	look();
	assert_true(braid_lane_up(link->lane[0]));
	assert_false(braid_lane_up(link->lane[1]));
}

/* The dialler chooses the path of the next socket; the other end can't. */
static void the_dialler_avoids_the_path_of_a_suspect_lane(void **state)
{
	(void)state;
	resends(0);
	resends(1);
	look();
	pass(BRAID_SUSPECT_MS - 1);
	look();
	assert_int_equal(link->setup.path[1].bad_until_ns, 0);
	pass(1);
	link->dialler = false;
	look();
	assert_int_equal(link->setup.path[1].bad_until_ns, 0);
	link->dialler = true;
	report[0].resent = 0;
	look();
	assert_true(link->setup.path[1].bad_until_ns > null_now_ns);
	assert_int_equal(link->setup.path[0].bad_until_ns, 0);
}

static void a_port_that_is_down_loses_its_lane_at_once(void **state)
{
	(void)state;
	tr.blob = true;
	report_err = -ENETDOWN;
	look();
	assert_false(braid_lane_up(link->lane[0]));
	assert_true(braid_lane_up(link->lane[1]));
}

/* A socket's own error comes by its poll(), after all that was read before. */
static void a_socket_that_cannot_be_asked_keeps_its_lane(void **state)
{
	(void)state;
	report_err = -ENOTCONN;
	resends(0);
	assert_false(look());
	assert_true(braid_lane_up(link->lane[0]));
	assert_int_equal(link->lane[0]->loss.suspect_ns, 0);
}

static void an_event_of_a_port_that_is_down_makes_the_next_look_due(void **state)
{
	(void)state;
	link->recover.health_ns = null_now_ns;
	usable = false;
	braid_health_port(link);		/* sockets have no port */
	assert_int_equal(link->recover.health_ns, null_now_ns);
	tr.blob = true;
	usable = true;
	braid_health_port(link);
	assert_int_equal(link->recover.health_ns, null_now_ns);
	usable = false;
	braid_health_port(link);
	assert_int_equal(link->recover.health_ns, 0);
}

/* --- a path MTU that is too small ---------------------------------------------------------- */

enum { FULL = 8948 };

/* Lane 1 sends segments of that size, of which so many bytes are acknowledged, and is lost or not. */
/* --- keys ------------------------------------------------------------------------------------ */

static void the_dialler_replaces_a_lane_whose_key_is_old(void **state)
{
	(void)state;
	link->dialler = true;
	look();
	assert_false(link->lane[1]->loss.old_key);
	report[1].old_key = true;
	look();
	assert_true(link->lane[1]->loss.old_key);
	assert_true(well(1));			/* until then it goes on */
	assert_int_equal(link->lane[0]->tx.f_head, 0);
}

static void the_accepting_end_asks_once_for_a_lane_whose_key_is_old(void **state)
{
	(void)state;
	link->dialler = false;
	report[1].old_key = true;
	look();
	look();
	assert_true(well(1));
	assert_int_equal(link->lane[0]->tx.f_head, 1);
	assert_int_equal(link->lane[1]->tx.f_head, 0);
}

static void carries(uint32_t segment, uint64_t acked, bool lost)
{
	report[1] = (struct braid_health){ .segment = segment, .acked = acked };
	if (lost)
		resends(1);
	look();
}

static void large_packets_that_are_lost_where_small_ones_arrive_are_reported_once(void **state)
{
	(void)state;
	carries(FULL, 100, true);
	carries(BRAID_SMALL_SEGMENT, 2 * FULL, false);
	assert_int_equal(warn_count, 0);	/* more than two full packets */
	carries(BRAID_SMALL_SEGMENT, 2 * FULL + 1, false);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "packets with 8948 bytes were all lost"));
	assert_non_null(strstr(warn_text, "[mtu-black-hole]"));
	carries(FULL, 100, true);
	carries(BRAID_SMALL_SEGMENT, 100 * FULL, false);
	assert_int_equal(warn_count, 1);
}

static void large_packets_that_arrive_after_all_are_no_such_fault(void **state)
{
	(void)state;
	carries(FULL, 100, true);
	carries(FULL, 3 * FULL, false);
	carries(BRAID_SMALL_SEGMENT, 100 * FULL, false);
	assert_int_equal(warn_count, 0);
}

static void a_lane_lost_after_a_large_packet_had_arrived_is_no_such_fault(void **state)
{
	(void)state;
	carries(FULL, FULL, true);
	carries(BRAID_SMALL_SEGMENT, 100 * FULL, false);
	carries(0, 0, false);
	report[1].resent = 0;
	pass(1000);
	carries(BRAID_SMALL_SEGMENT, 0, true);		/* nor is one that sent small ones only */
	carries(BRAID_SMALL_SEGMENT, 100 * FULL, false);
	assert_int_equal(warn_count, 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_lane_at_rest_is_well),
		CASE(bytes_under_way_are_reported_and_no_fault),
		CASE(a_lane_that_resends_is_suspect_for_200_ms),
		CASE(patience_and_a_long_way_give_it_more_time),
		CASE(an_acknowledgement_ends_the_suspicion),
		CASE(what_does_not_leave_this_host_is_not_answered),
		CASE(a_lane_without_a_carrier_is_not_well),
		CASE(a_suspect_lane_is_given_up_if_another_is_well),
		CASE(the_last_lane_is_kept),
		CASE(the_dialler_avoids_the_path_of_a_suspect_lane),
		CASE(a_port_that_is_down_loses_its_lane_at_once),
		CASE(a_socket_that_cannot_be_asked_keeps_its_lane),
		CASE(an_event_of_a_port_that_is_down_makes_the_next_look_due),
		CASE(the_dialler_replaces_a_lane_whose_key_is_old),
		CASE(the_accepting_end_asks_once_for_a_lane_whose_key_is_old),
		CASE(large_packets_that_are_lost_where_small_ones_arrive_are_reported_once),
		CASE(large_packets_that_arrive_after_all_are_no_such_fault),
		CASE(a_lane_lost_after_a_large_packet_had_arrived_is_no_such_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
