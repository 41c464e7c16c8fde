/* SPDX-License-Identifier: BSD-3-Clause */
/* test_link_control.c - which control frames are due, over which lane they leave, and what they say. */
#include "tests/unit/stub.h"

#include <errno.h>
#include <string.h>

#include "core/link/control.h"
#include "core/link/lane_io.h"
#include "core/link/link_int.h"

/* The linker wraps this (-Wl,--wrap=braid_yield): another thread's push ends then. */
void __wrap_braid_yield(void);

static unsigned yields;

void __wrap_braid_yield(void)
{
	yields++;
	assert_false(stub.link->lock.held);
	stub_at(0)->pushing = false;
}

static int setup(void **state)
{
	(void)state;
	stub_up(&stub_socket, 3);
	yields = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	stub_down();
	return 0;
}

static const struct braid_hdr alive = { .type = BRAID_F_ALIVE };

static bool send_control(void)
{
	bool all;

	stub_lock();
	all = braid_link_send_control(stub.link);
	braid_link_flush(stub.link);
	stub_unlock();
	return all;
}

/* Fill home's queue until it has no room left for control frames. */
static void fill_home(void)
{
	struct braid_hdr h = alive;

	stub.lane[0].takes = 0;
	stub_lock();
	while (braid_link_ctl(stub.link, &h, NULL))
		;
	stub_unlock();
}

/* --- acknowledgements ---------------------------------------------------------------------- */

static void what_came_on_another_lane_is_acknowledged_at_home(void **state)
{
	struct braid_hdr h;

	(void)state;
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(stub_receive(2, alive, NULL), 0);
	assert_true(send_control());
	h = stub_expect(0, BRAID_F_ACK);
	assert_int_equal(h.n, 2);
	assert_int_equal(h.seq, 5);
	assert_int_equal(stub_at(2)->rx_acked, 5);
	assert_true(send_control());		/* once */
	stub_expect_none(0);
	stub_expect_none(2);
}

static void what_came_at_home_is_acknowledged_by_the_next_frame_or_alone_if_none_follows(void **state)
{
	struct braid_hdr h;

	(void)state;
	assert_int_equal(stub_receive(0, alive, NULL), 0);
	stub_add(0, BRAID_F_ALIVE);
	assert_true(send_control());
	assert_int_equal(stub_expect(0, BRAID_F_ALIVE).ack, 1);
	stub_expect_none(0);
	assert_int_equal(stub_receive(0, alive, NULL), 0);
	assert_true(send_control());
	h = stub_expect(0, BRAID_F_ACK);
	assert_int_equal(h.n, 0);
	assert_int_equal(h.seq, 2);
	assert_int_equal(h.ack, 2);
}

/* If an ACK caused an ACK, two ends would send ACKs to each other for ever. */
static void acknowledgements_are_not_acknowledged_alone(void **state)
{
	struct braid_hdr ack = { .type = BRAID_F_ACK, .n = 1 };

	(void)state;
	assert_int_equal(stub_receive(0, ack, NULL), 0);
	assert_int_equal(stub_receive(1, ack, NULL), 0);
	assert_true(send_control());
	stub_expect_none(0);
}

/* A comm's BYE fails sends that still wait for their ACK. */
static void acknowledgements_of_other_lanes_leave_before_the_frames_of_comms(void **state)
{
	(void)state;
	assert_int_equal(stub_receive(1, alive, NULL), 0);
	stub.ctl_due = true;
	assert_true(send_control());
	stub_expect(0, BRAID_F_ACK);
	stub_expect(0, BRAID_F_ALIVE);
	stub_expect_none(0);
}

static void an_urgent_acknowledgement_at_home_stays_urgent_until_it_leaves(void **state)
{
	(void)state;
	assert_int_equal(stub_receive(0, alive, NULL), 0);
	stub_at(0)->rx_ack_due = true;
	braid_link_urge(stub.link);
	stub.lane[0].takes = 0;
	stub_add(0, BRAID_F_ALIVE);
	stub_at(0)->pushing = true;		/* another thread sends: the frame stays */
	assert_true(send_control());
	assert_true(stub.link->tx.control_urgent);
	stub_at(0)->pushing = false;
	stub.lane[0].takes = SIZE_MAX;
	stub_push(0);
	assert_true(send_control());
	assert_false(stub.link->tx.control_urgent);
}

/* --- the frames of lanes ------------------------------------------------------------------- */

static void lane_is_down(unsigned i)
{
	atomic_store(&stub_at(i)->up, false);
	stub_at(i)->loss.down_due = true;
}

static void a_lane_closed_here_is_reported_with_what_it_received(void **state)
{
	struct braid_hdr h;

	(void)state;
	for (unsigned i = 0; i < 7; i++)
		assert_int_equal(stub_receive(1, alive, NULL), 0);
	stub_at(1)->rx_some = false;
	stub_at(1)->epoch = 9;
	lane_is_down(1);
	assert_true(send_control());
	h = stub_expect(0, BRAID_F_DOWN);
	assert_int_equal(h.n, 1);
	assert_int_equal(h.rseq, 9);
	assert_int_equal(h.seq, 7);
	assert_int_equal(h.tag, 0);
	assert_true(send_control());
	stub_expect_none(0);
}

static void the_loss_of_home_is_reported_over_another_lane(void **state)
{
	(void)state;
	lane_is_down(0);
	atomic_store(&stub_at(1)->loss.suspect_ns, 1);	/* that one seems to be lost, too */
	assert_true(send_control());
	stub_push(1);
	stub_push(2);
	stub_expect_none(1);
	assert_int_equal(stub_expect(2, BRAID_F_DOWN).n, 0);
}

static void without_any_lane_it_stays_due(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++)
		lane_is_down(i);
	send_control();
	for (unsigned i = 0; i < 3; i++)
		assert_true(stub_at(i)->loss.down_due);
	atomic_store(&stub_at(0)->up, true);
	stub_at(0)->loss.down_due = false;
	assert_true(send_control());
	assert_int_equal(stub_expect(0, BRAID_F_DOWN).n, 1);
	assert_int_equal(stub_expect(0, BRAID_F_DOWN).n, 2);
}

/* An older peer, which does not know that tag, ignores the frame for its epoch. */
static void a_nic_that_may_still_write_is_reported_under_another_epoch(void **state)
{
	struct braid_hdr h;

	(void)state;
	stub_at(1)->epoch = 9;
	atomic_store(&stub_at(1)->up, false);
	stub_at(1)->loss.writes_due = true;
	assert_true(send_control());
	h = stub_expect(0, BRAID_F_DOWN);
	assert_int_equal(h.n, 1);
	assert_int_equal(h.rseq, (uint16_t)~9);
	assert_int_equal(h.tag, BRAID_DOWN_WRITES);
	stub_at(1)->loss.writes_due = stub_at(1)->loss.down_due = true;	/* the plain one says more */
	assert_true(send_control());
	assert_int_equal(stub_expect(0, BRAID_F_DOWN).tag, 0);
	assert_true(send_control());
	stub_expect_none(0);
}

static void more_lanes_are_asked_for_once_while_the_link_has_fewer(void **state)
{
	(void)state;
	atomic_store(&stub.link->lanes.ask, 5);
	assert_true(send_control());
	assert_int_equal(stub_expect(0, BRAID_F_LANES).n, 5);
	assert_true(send_control());
	stub_expect_none(0);
	atomic_store(&stub.link->lanes.ask, 3);
	assert_true(send_control());
	stub_expect_none(0);
	assert_int_equal(stub.link->lanes.ask, 0);
}

static void an_idle_link_asks_for_lanes_when_it_is_used(void **state)
{
	(void)state;
	braid_link_detach(stub.link);
	atomic_store(&stub.link->lanes.ask, 5);
	assert_true(send_control());
	assert_int_equal(stub.link->lanes.ask, 5);
	assert_int_equal(braid_link_attach(stub.link), 0);
	assert_true(send_control());
	assert_int_equal(stub_expect(0, BRAID_F_LANES).n, 5);
}

/* --- room ---------------------------------------------------------------------------------- */

static void without_room_nothing_is_lost_and_the_caller_knows(void **state)
{
	struct braid_hdr h = { 0 };
	unsigned acks = 0, lanes = 0;

	(void)state;
	assert_int_equal(stub_receive(1, alive, NULL), 0);
	atomic_store(&stub.link->lanes.ask, 5);
	stub.ctl_due = true;
	braid_link_urge(stub.link);
	fill_home();
	assert_false(send_control());
	assert_true(stub.link->tx.control_urgent);
	assert_true(stub_at(1)->rx_some);
	assert_int_equal(stub.link->lanes.ask, 5);
	stub.lane[0].takes = SIZE_MAX;
	stub_push(0);
	stub_lock();
	assert_int_equal(braid_tx_acked(stub_at(0), stub_at(0)->tx.f_sent), 0);
	stub_unlock();
	assert_true(send_control());
	while (stub_sent(0, &h)) {
		acks += h.type == BRAID_F_ACK;
		lanes += h.type == BRAID_F_LANES;
	}
	assert_int_equal(acks, 1);
	assert_int_equal(lanes, 1);
	assert_false(stub.ctl_due);
	assert_false(stub.link->tx.control_urgent);
}

/* --- when they leave ----------------------------------------------------------------------- */

static void all_that_is_due_leaves_unless_another_thread_has_the_lock(void **state)
{
	(void)state;
	stub.ctl_due = true;
	stub_lock();
	assert_false(braid_link_try_flush_control(stub.link));
	stub_unlock();
	stub_expect_none(0);
	assert_true(braid_link_try_flush_control(stub.link));
	stub_expect(0, BRAID_F_ALIVE);
	assert_false(stub.link->lock.held);
}

static void a_close_waits_for_the_push_in_progress(void **state)
{
	(void)state;
	stub.ctl_due = true;
	stub_at(0)->pushing = true;
	braid_link_flush_control(stub.link);
	assert_int_equal(yields, 1);
	stub_expect(0, BRAID_F_ALIVE);
	assert_false(stub.link->lock.held);
}

static void the_service_thread_sends_what_is_urgent_and_learns_whether_to_come_again(void **state)
{
	(void)state;
	stub.ctl_due = true;
	assert_false(braid_link_flush_if_urgent(stub.link, false));
	stub_expect_none(0);
	braid_link_urge(stub.link);
	assert_true(braid_link_flush_if_urgent(stub.link, false));
	stub_expect(0, BRAID_F_ALIVE);
	assert_false(braid_link_flush_if_urgent(stub.link, false));
	stub.ctl_due = true;
	assert_false(braid_link_flush_if_urgent(stub.link, true));	/* all, this time */
	stub_expect(0, BRAID_F_ALIVE);
}

/* A call sent them itself; perhaps it was the last one of a caller. */
static void control_frames_that_were_urgent_since_make_it_come_again(void **state)
{
	(void)state;
	braid_link_urge(stub.link);
	assert_true(braid_link_try_flush_control(stub.link));
	assert_true(braid_link_flush_if_urgent(stub.link, false));
	assert_false(braid_link_flush_if_urgent(stub.link, false));
}

static void frames_that_were_held_back_leave_with_the_service_thread(void **state)
{
	(void)state;
	stub_add(0, BRAID_F_ALIVE);
	assert_true(braid_link_flush_if_urgent(stub.link, false));
	stub_expect(0, BRAID_F_ALIVE);
	stub.link->tx.burst_now = 3;
	assert_true(braid_link_flush_if_urgent(stub.link, false));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(what_came_on_another_lane_is_acknowledged_at_home),
		CASE(what_came_at_home_is_acknowledged_by_the_next_frame_or_alone_if_none_follows),
		CASE(acknowledgements_are_not_acknowledged_alone),
		CASE(acknowledgements_of_other_lanes_leave_before_the_frames_of_comms),
		CASE(an_urgent_acknowledgement_at_home_stays_urgent_until_it_leaves),
		CASE(a_lane_closed_here_is_reported_with_what_it_received),
		CASE(the_loss_of_home_is_reported_over_another_lane),
		CASE(without_any_lane_it_stays_due),
		CASE(a_nic_that_may_still_write_is_reported_under_another_epoch),
		CASE(more_lanes_are_asked_for_once_while_the_link_has_fewer),
		CASE(an_idle_link_asks_for_lanes_when_it_is_used),
		CASE(without_room_nothing_is_lost_and_the_caller_knows),
		CASE(all_that_is_due_leaves_unless_another_thread_has_the_lock),
		CASE(a_close_waits_for_the_push_in_progress),
		CASE(the_service_thread_sends_what_is_urgent_and_learns_whether_to_come_again),
		CASE(control_frames_that_were_urgent_since_make_it_come_again),
		CASE(frames_that_were_held_back_leave_with_the_service_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
