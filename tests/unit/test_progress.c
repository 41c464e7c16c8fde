/* SPDX-License-Identifier: BSD-3-Clause */
/* test_progress.c - which lanes a call polls and pushes, and when frames that were held back leave. */
#include "tests/unit/stub.h"

#include <errno.h>
#include <string.h>

#include "core/base/os.h"
#include "core/link/control.h"
#include "core/link/link_int.h"
#include "core/link/state.h"

enum { K = 1024, LANES = 4 };

static uint64_t idle;			/* of the caller's comm */
static struct stub_send large;

static int setup(void **state)
{
	(void)state;
	stub_up(&stub_socket, LANES);
	idle = UINT64_MAX;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	stub_down();
	return 0;
}

static void call(void)
{
	stub.norder = 0;
	braid_link_progress(stub.link, &idle, NULL);
}

/* --- polling ------------------------------------------------------------------------------- */

static unsigned polls(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LANES; i++)
		n += stub.lane[i].polls;
	return n;
}

static void a_call_polls_the_lane_that_the_peer_uses_as_home(void **state)
{
	(void)state;
	stub.link->rx.home = 2;
	call();
	assert_int_equal(stub.lane[2].polls, 1);
	assert_int_equal(polls(), 1);
}

static void other_lanes_are_polled_rarely_while_nothing_is_expected_there(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 640; i++)
		call();
	assert_int_equal(stub.lane[0].polls, 640);
	assert_int_equal(polls(), 640 + 10);
	for (unsigned i = 1; i < LANES; i++)
		assert_true(stub.lane[i].polls >= 3);
}

static void all_lanes_are_polled_while_chunks_or_copies_or_a_lost_lane_are_waited_for(void **state)
{
	atomic_uint *reason[] = { &stub.link->rx.spread, &stub.link->rx.copies, &stub.link->lanes.ndown };

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		atomic_store(reason[i], 1);
		call();
		atomic_store(reason[i], 0);
		for (unsigned k = 0; k < LANES; k++)
			assert_int_equal(stub.lane[k].polls, i + 1);
	}
}

static void the_service_thread_polls_all_lanes(void **state)
{
	(void)state;
	assert_int_equal(braid_link_move(stub.link), 0);
	assert_int_equal(polls(), LANES);
}

static void polling_ends_with_the_first_lane_that_had_something_and_goes_on_behind_it(void **state)
{
	(void)state;
	stub.lane[1].poll = stub.lane[2].poll = stub.lane[3].poll = 5;
	assert_int_equal(braid_link_move(stub.link), 5);
	assert_int_equal(braid_link_move(stub.link), 5);
	assert_int_equal(braid_link_move(stub.link), 5);
	for (unsigned i = 1; i < LANES; i++)
		assert_int_equal(stub.lane[i].polls, 1);
}

static void a_lane_that_another_thread_reads_is_left_to_it(void **state)
{
	(void)state;
	braid_lock_wait(&stub_at(0)->io);
	assert_true(braid_link_move(stub.link) > 0);	/* something may be moving */
	assert_int_equal(stub.lane[0].polls, 0);
	braid_unlock(&stub_at(0)->io);
}

static void a_lane_that_is_down_is_polled_only_for_earlier_data(void **state)
{
	(void)state;
	atomic_store(&stub_at(0)->up, false);
	braid_link_move(stub.link);
	assert_int_equal(stub.lane[0].polls, 0);
	atomic_store(&stub_at(0)->unread, true);
	stub.lane[0].poll = 1;
	braid_link_move(stub.link);
	braid_link_move(stub.link);
	assert_int_equal(stub.lane[0].polls, 2);
	stub.lane[0].poll = 0;
	braid_link_move(stub.link);
	braid_link_move(stub.link);
	assert_int_equal(stub.lane[0].polls, 3);
	assert_false(stub_at(0)->unread);
}

static void a_lane_whose_poll_fails_is_lost_and_the_others_go_on(void **state)
{
	(void)state;
	stub.lane[1].poll = -ECONNRESET;
	braid_link_move(stub.link);
	assert_false(stub_at(1)->up);
	assert_int_equal(stub.link->lanes.ndown, 1);
	assert_int_equal(stub.wakes, 1);
	assert_int_equal(stub.link->state, BRAID_LINK_UP);
	assert_int_equal(braid_link_move(stub.link), 0);
	assert_int_equal(stub.lane[1].polls, 1);
	assert_int_equal(stub.lane[3].polls, 1);
}

static unsigned looks;
static bool open_still;

static ssize_t look(int fd, void *buf, size_t len, int flags)
{
	(void)buf, (void)flags;
	assert_int_equal(fd, stub_at(0)->fd);
	assert_int_equal(len, 1);
	looks++;
	errno = EAGAIN;
	return open_still ? -1 : 0;
}

static int setup_nic(void **state)
{
	static struct braid_os os;

	(void)state;
	stub_up(&stub_nic, 1);
	os = *braid_os;
	os.recv = look;
	braid_os = &os;
	looks = 0;
	open_still = true;
	return 0;
}

static void a_socket_beside_the_carrier_is_looked_at_now_and_then_or_while_watched(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2560; i++)
		braid_link_move(stub.link);
	assert_int_equal(looks, 10);
	for (unsigned i = 0; i < 2560; i++) {	/* data comes in between */
		stub.lane[0].poll = i % 100 == 0;
		braid_link_move(stub.link);
	}
	assert_int_equal(looks, 10);
	atomic_store(&stub.link->thread.watched, true);
	braid_link_move(stub.link);
	assert_int_equal(looks, 11);
	open_still = false;
	braid_link_move(stub.link);
	assert_false(stub_at(0)->up);
	assert_false(stub_at(0)->loss.carrier_failed);
}

static void fail_poll(void)
{
	stub.lane[0].poll = -EIO;
	braid_link_move(stub.link);
	assert_int_equal(looks, 1);
	assert_false(stub_at(0)->up);
}

static void a_carrier_that_fails_while_its_socket_is_open_has_failed_by_itself(void **state)
{
	(void)state;
	fail_poll();
	assert_true(stub_at(0)->loss.carrier_failed);
}

static void a_carrier_that_fails_when_its_socket_has_ended_was_closed_by_the_peer(void **state)
{
	(void)state;
	open_still = false;
	fail_poll();
	assert_false(stub_at(0)->loss.carrier_failed);
}

static void the_socket_that_is_the_carrier_is_not_looked_at(void **state)
{
	(void)state;
	stub_at(0)->tr = &stub_socket;
	atomic_store(&stub.link->thread.watched, true);
	braid_link_move(stub.link);
	stub.lane[0].poll = -EIO;
	braid_link_move(stub.link);
	assert_int_equal(looks, 0);
	assert_false(stub_at(0)->up);
}

static void a_dead_link_is_not_polled_but_copies_into_gpus_go_on(void **state)
{
	(void)state;
	atomic_store(&stub.link->state, BRAID_LINK_DEAD);
	braid_link_stall(stub.link);
	stub.copying = true;
	assert_int_equal(braid_link_move(stub.link), -ENOTCONN);
	assert_int_equal(stub.deliveries, 1);
	stub.copying = false;
	braid_link_move(stub.link);
	assert_int_equal(stub.deliveries, 2);
	braid_link_move(stub.link);		/* all were completed */
	assert_int_equal(stub.deliveries, 2);
	assert_int_equal(polls(), 0);
}

/* --- pushing ------------------------------------------------------------------------------- */

static void a_push_sends_the_queue_and_returns_how_much(void **state)
{
	(void)state;
	assert_int_equal(stub_push(1), 0);
	assert_int_equal(stub.lane[1].pushes, 0);
	stub_add_chunk(1, 100, NULL);
	assert_int_equal(stub_push(1), BRAID_HDR_SIZE + 100);
	stub_expect(1, BRAID_F_CHUNK);
	assert_false(stub.link->tx.stalled);
}

static void nothing_is_pushed_on_a_lane_that_is_down_or_a_link_that_is_dead(void **state)
{
	(void)state;
	stub_add(0, BRAID_F_ALIVE);
	atomic_store(&stub_at(0)->up, false);
	assert_int_equal(stub_push(0), 0);
	atomic_store(&stub_at(0)->up, true);
	atomic_store(&stub.link->state, BRAID_LINK_DEAD);
	assert_int_equal(stub_push(0), 0);
	assert_int_equal(stub.lane[0].pushes, 0);
}

static void a_lane_that_another_thread_pushes_is_pushed_later(void **state)
{
	(void)state;
	stub_add(0, BRAID_F_ALIVE);
	stub_at(0)->pushing = true;
	assert_int_equal(stub_push(0), 0);
	assert_int_equal(stub.lane[0].pushes, 0);
	assert_true(stub.link->tx.stalled);
	stub_at(0)->pushing = false;
	call();
	stub_expect(0, BRAID_F_ALIVE);
}

static void what_a_full_carrier_did_not_take_leaves_with_a_later_call(void **state)
{
	(void)state;
	stub_add_chunk(0, 100, NULL);
	stub.lane[0].takes = 50;
	assert_int_equal(stub_push(0), 50);
	assert_true(stub_at(0)->blocked);
	assert_true(stub.link->tx.stalled);
	stub.lane[0].takes = SIZE_MAX;
	call();
	assert_false(stub_at(0)->blocked);
	assert_false(stub.link->tx.stalled);
	stub_expect(0, BRAID_F_CHUNK);
}

static void a_lane_whose_push_fails_is_lost_but_read_first(void **state)
{
	(void)state;
	stub_add(1, BRAID_F_ALIVE);
	stub.lane[1].push_err = -EPIPE;
	stub_push(1);
	assert_false(stub_at(1)->up);
	assert_true(stub_at(1)->unread);
	assert_int_equal(stub.link->lanes.ndown, 1);
	assert_false(stub_at(1)->pushing);
}

static void a_call_pushes_home_first_and_then_the_others(void **state)
{
	(void)state;
	for (unsigned i = LANES; i--; )
		stub_add_chunk(i, 100, NULL);
	braid_link_stall(stub.link);
	call();
	assert_int_equal(stub.norder, 1 + LANES);	/* it polls the peer's home before */
	assert_int_equal(stub.order[1], 0);
	for (unsigned i = 0; i < LANES; i++)
		stub_expect(i, BRAID_F_CHUNK);
	assert_false(stub.link->tx.stalled);
}

static void of_the_lanes_that_were_full_a_call_tries_one_in_turn(void **state)
{
	(void)state;
	for (unsigned i = 1; i < LANES; i++) {
		stub_add_chunk(i, 100, NULL);
		stub.lane[i].takes = 0;
		stub_push(i);
		assert_true(stub_at(i)->blocked);
	}
	for (unsigned i = 0; i < LANES - 1; i++)
		call();
	for (unsigned i = 1; i < LANES; i++)
		assert_int_equal(stub.lane[i].pushes, 2);
	assert_true(stub.link->tx.stalled);
}

static void one_call_pushes_no_more_than_its_budget(void **state)
{
	(void)state;
	for (unsigned i = 0; i < LANES; i++) {
		for (unsigned k = 0; k < 3; k++)
			stub_add_chunk(i, STUB_PAYLOAD, NULL);
	}
	braid_link_stall(stub.link);
	call();
	assert_int_equal(stub.lane[0].pushes, 1);
	assert_int_equal(stub.lane[1].pushes + stub.lane[2].pushes + stub.lane[3].pushes, 1);
	assert_true(stub.link->tx.stalled);
}

static void a_call_cuts_and_sends_the_messages_that_wait(void **state)
{
	(void)state;
	stub_send(&large, 2, 1000);
	call();
	stub_expect(0, BRAID_F_START);
	assert_int_equal(large.left, 0);
	call();
	assert_false(stub.link->tx.stalled);
}

/* All lanes are full, so a START is queued at home, and its chunk is not cut yet. */
static void start_without_chunk(void)
{
	for (unsigned i = 0; i < stub.link->nlanes; i++)
		stub_at(i)->blocked = true;
	stub_send(&large, 1, 1000);
	large.start_due = false;
	stub_add(0, BRAID_F_START);
	stub_at(0)->tx.starts = BRAID_HDR_SIZE;
}

static void starts_alone_wait_for_their_chunks(void **state)
{
	(void)state;
	start_without_chunk();
	call();
	assert_int_equal(stub.lane[0].pushes, 0);
	assert_true(stub.link->tx.stalled);
	stub_at(1)->blocked = false;
	call();
	stub_expect(0, BRAID_F_START);
	stub_expect(1, BRAID_F_CHUNK);
}

static void the_only_lane_with_starts_alone_left_takes_their_chunks(void **state)
{
	(void)state;
	stub_down();
	stub_up(&stub_socket, 1);
	start_without_chunk();
	stub.lane[0].takes = 0;
	stub_push(0);
	assert_false(stub_at(0)->blocked);
	stub.lane[0].takes = SIZE_MAX;
	call();
	stub_expect(0, BRAID_F_START);
	stub_expect(0, BRAID_F_CHUNK);
}

/* --- an idle test() ------------------------------------------------------------------------ */

/* An isend in a burst: its frame stays queued. */
static void isend_in_a_burst(void)
{
	stub_add(0, BRAID_F_ALIVE);
	stub_lock();
	braid_link_send(stub.link, false);
	stub_unlock();
}

static void a_frame_of_a_burst_leaves_at_the_second_idle_test(void **state)
{
	(void)state;
	isend_in_a_burst();
	call();
	stub_expect_none(0);
	call();
	stub_expect(0, BRAID_F_ALIVE);
	assert_false(stub.link->tx.quiet);
	call();
	assert_true(stub.link->tx.quiet);
}

static void an_isend_between_two_tests_goes_on_with_the_burst(void **state)
{
	(void)state;
	isend_in_a_burst();
	call();
	isend_in_a_burst();
	call();
	stub_expect_none(0);
	call();
	stub_expect(0, BRAID_F_ALIVE);
	stub_expect(0, BRAID_F_ALIVE);
}

static void urgent_control_frames_leave_at_the_first_idle_test(void **state)
{
	(void)state;
	stub.ctl_due = true;
	call();
	stub_expect_none(0);
	braid_link_urge(stub.link);
	call();
	stub_expect(0, BRAID_F_ALIVE);
	assert_false(stub.link->tx.control_urgent);
}

static void a_call_that_completes_its_request_sends_no_control_frames(void **state)
{
	atomic_bool done = true;

	(void)state;
	stub.ctl_due = true;
	braid_link_urge(stub.link);
	braid_link_progress(stub.link, &idle, &done);
	braid_link_progress(stub.link, NULL, NULL);	/* nor one without a request */
	assert_int_equal(stub.ctl_calls, 0);
	atomic_store(&done, false);
	braid_link_progress(stub.link, &idle, &done);
	assert_int_equal(stub.ctl_calls, 1);
}

static void while_data_keeps_coming_control_frames_leave_after_much_of_it(void **state)
{
	(void)state;
	stub.lane[0].poll = 1;			/* no test() is idle */
	stub.ctl_due = true;
	braid_link_urge(stub.link);
	stub_at(0)->rx_quiet = stub_at(1)->rx_quiet = 100 * K;
	call();
	assert_int_equal(stub.ctl_calls, 0);
	stub_at(1)->rx_quiet = 200 * K;
	call();
	stub_expect(0, BRAID_F_ALIVE);
}

static void a_call_that_does_not_get_the_lock_sends_nothing(void **state)
{
	(void)state;
	stub.ctl_due = true;
	braid_link_urge(stub.link);
	stub_lock();
	call();
	assert_int_equal(stub.ctl_calls, 0);
	stub_unlock();
}

/* --- control frames that are put off ------------------------------------------------------- */

static struct braid_link *other;	/* its lane is like lane 0 of the first link */

static int setup_two(void **state)
{
	struct braid_link_key key = { .dev = &stub.dev };
	struct braid_carrier c = { .tr = &stub_socket, .fd = -1 };

	setup(state);
	other = braid_link_new(&key);
	assert_non_null(other);
	assert_int_equal(braid_link_add_lane(other, 0, &c), 0);
	atomic_store(&other->state, BRAID_LINK_UP);
	stub.ctl_due = true;
	return 0;
}

static int teardown_two(void **state)
{
	braid_link_free(other);
	return teardown(state);
}

static void call_other(void)
{
	uint64_t epoch = UINT64_MAX;

	braid_link_progress(other, &epoch, NULL);
}

static void urgent_control_frames_put_off_leave_at_an_idle_test_of_another_link(void **state)
{
	(void)state;
	braid_link_urge(stub.link);
	braid_link_defer_control(stub.link);
	stub_expect_none(0);
	call_other();
	stub_expect(0, BRAID_F_ALIVE);
	stub.ctl_due = true;
	call_other();				/* once */
	stub_expect_none(0);
}

static void what_is_not_urgent_is_not_sent_from_another_link(void **state)
{
	(void)state;
	braid_link_defer_control(stub.link);
	call_other();
	assert_int_equal(stub.ctl_calls, 0);
	braid_link_urge(stub.link);
	braid_link_defer_control(stub.link);
	braid_hint(&stub.link->tx.control_urgent, false);	/* sent meanwhile */
	call_other();
	assert_int_equal(stub.ctl_calls, 0);
}

static void putting_off_a_second_link_sends_those_of_the_first(void **state)
{
	(void)state;
	braid_link_urge(stub.link);
	braid_link_urge(other);
	braid_link_defer_control(stub.link);
	braid_link_defer_control(stub.link);
	stub_expect_none(0);
	braid_link_defer_control(other);
	stub_expect(0, BRAID_F_ALIVE);
}

static void nothing_is_sent_for_a_link_that_has_died_or_is_being_freed(void **state)
{
	(void)state;
	braid_link_urge(stub.link);
	braid_link_defer_control(stub.link);
	atomic_store(&stub.link->state, BRAID_LINK_DEAD);
	call_other();
	assert_int_equal(stub.ctl_calls, 0);
	atomic_store(&stub.link->state, BRAID_LINK_UP);
	braid_link_defer_control(stub.link);
	braid_link_forget_deferred(other);	/* this is another one's end */
	braid_link_forget_deferred(stub.link);
	call_other();
	assert_int_equal(stub.ctl_calls, 0);
}

/* --- the service thread -------------------------------------------------------------------- */

static void a_call_shows_the_service_thread_that_the_link_has_a_caller(void **state)
{
	unsigned long before = stub.link->thread.touched;

	(void)state;
	call();
	assert_true(stub.link->thread.touched > before);
	assert_int_equal(stub.wakes, 0);
	before = stub.link->thread.touched;
	braid_link_move(stub.link);		/* the service thread's own */
	assert_true(stub.link->thread.touched == before);
}

static void a_call_on_a_link_that_is_watched_wakes_the_service_thread_once(void **state)
{
	(void)state;
	atomic_store(&stub.link->thread.watched, true);
	call();
	call();
	assert_false(stub.link->thread.watched);
	assert_int_equal(stub.wakes, 1);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define CASE_NIC(f) cmocka_unit_test_setup_teardown(f, setup_nic, teardown)
#define CASE_TWO(f) cmocka_unit_test_setup_teardown(f, setup_two, teardown_two)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_call_polls_the_lane_that_the_peer_uses_as_home),
		CASE(other_lanes_are_polled_rarely_while_nothing_is_expected_there),
		CASE(all_lanes_are_polled_while_chunks_or_copies_or_a_lost_lane_are_waited_for),
		CASE(the_service_thread_polls_all_lanes),
		CASE(polling_ends_with_the_first_lane_that_had_something_and_goes_on_behind_it),
		CASE(a_lane_that_another_thread_reads_is_left_to_it),
		CASE(a_lane_that_is_down_is_polled_only_for_earlier_data),
		CASE(a_lane_whose_poll_fails_is_lost_and_the_others_go_on),
		CASE_NIC(a_socket_beside_the_carrier_is_looked_at_now_and_then_or_while_watched),
		CASE_NIC(a_carrier_that_fails_while_its_socket_is_open_has_failed_by_itself),
		CASE_NIC(a_carrier_that_fails_when_its_socket_has_ended_was_closed_by_the_peer),
		CASE_NIC(the_socket_that_is_the_carrier_is_not_looked_at),
		CASE(a_dead_link_is_not_polled_but_copies_into_gpus_go_on),
		CASE(a_push_sends_the_queue_and_returns_how_much),
		CASE(nothing_is_pushed_on_a_lane_that_is_down_or_a_link_that_is_dead),
		CASE(a_lane_that_another_thread_pushes_is_pushed_later),
		CASE(what_a_full_carrier_did_not_take_leaves_with_a_later_call),
		CASE(a_lane_whose_push_fails_is_lost_but_read_first),
		CASE(a_call_pushes_home_first_and_then_the_others),
		CASE(of_the_lanes_that_were_full_a_call_tries_one_in_turn),
		CASE(one_call_pushes_no_more_than_its_budget),
		CASE(a_call_cuts_and_sends_the_messages_that_wait),
		CASE(starts_alone_wait_for_their_chunks),
		CASE(the_only_lane_with_starts_alone_left_takes_their_chunks),
		CASE(a_frame_of_a_burst_leaves_at_the_second_idle_test),
		CASE(an_isend_between_two_tests_goes_on_with_the_burst),
		CASE(urgent_control_frames_leave_at_the_first_idle_test),
		CASE(a_call_that_completes_its_request_sends_no_control_frames),
		CASE(while_data_keeps_coming_control_frames_leave_after_much_of_it),
		CASE(a_call_that_does_not_get_the_lock_sends_nothing),
		CASE_TWO(urgent_control_frames_put_off_leave_at_an_idle_test_of_another_link),
		CASE_TWO(what_is_not_urgent_is_not_sent_from_another_link),
		CASE_TWO(putting_off_a_second_link_sends_those_of_the_first),
		CASE_TWO(nothing_is_sent_for_a_link_that_has_died_or_is_being_freed),
		CASE(a_call_shows_the_service_thread_that_the_link_has_a_caller),
		CASE(a_call_on_a_link_that_is_watched_wakes_the_service_thread_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
