/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_watched.c - when the service thread watches a link's descriptors and when it leaves them to
 * callers, over an epoll set that the test plays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/base/os.h"
#include "core/base/units.h"
#include "core/setup/events.h"
#include "core/setup/watched.h"
#include "tests/lib/comms.h"

enum {
	EPOLL = 90, FD = 100, EVENT_FD = 200,	/* + lane */
	FDS = 300,
	ALWAYS = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT,
};

static struct {				/* the epoll set */
	uint32_t events[FDS];		/* 0: not in it */
	unsigned adds, mods, dels;
	int full_at;			/* this descriptor finds no room; 0: all do */
	int closed;			/* the lane that was closed last */
} set;

static struct braid_transport tr;	/* the null transport, and what a case changes */
static bool armed, arrivals, once;	/* arrivals: at every poll, or at one */
static struct braid_link *link;
static const struct braid_os *null_os;

static int os_epoll_create(void)
{
	return EPOLL;
}

static int os_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	struct braid_lane *lane = link->lane[fd % 100];

	assert_int_equal(ep, EPOLL);
	if (fd == set.full_at && op == EPOLL_CTL_ADD) {
		errno = ENOSPC;
		return -1;
	}
	assert_true(op == EPOLL_CTL_ADD ? !set.events[fd] : set.events[fd] != 0);
	set.adds += op == EPOLL_CTL_ADD;
	set.mods += op == EPOLL_CTL_MOD;
	set.dels += op == EPOLL_CTL_DEL;
	set.events[fd] = op == EPOLL_CTL_DEL ? 0 : ev->events;
	if (op != EPOLL_CTL_DEL)
		assert_int_equal(ev->data.u64, (uint64_t)(uintptr_t)lane | BRAID_TAG_LANE);
	return 0;
}

static int os_close(int fd)
{
	(void)fd;
	return 0;
}

static void lane_close(struct braid_lane *lane)
{
	if (lane->fd >= 0) {
		assert_int_equal(set.events[lane->fd], 0);
		set.closed = lane->fd;
	}
	lane->fd = -1;
	null_transport.lane_close(lane);
}

static bool arm(struct braid_lane *lane)
{
	assert_true(braid_lane_up(lane));
	return armed;
}

static int poll_lane(struct braid_lane *lane)
{
	if (!arrivals)
		return null_transport.poll(lane);
	arrivals = !once;
	return 1;
}

static int begin(void **state)
{
	static struct braid_os os;

	(void)state;
	start(&(struct null_config){ .lanes = 2, .window = 512 * K, .held = true });
	null_os = braid_os;
	os = *null_os;
	os.epoll_create = os_epoll_create;
	os.epoll_ctl = os_epoll_ctl;
	os.close = os_close;
	braid_os = &os;
	memset(&set, 0, sizeof(set));
	armed = true;
	arrivals = once = false;
	tr = null_transport;
	tr.arm = arm;
	tr.poll = poll_lane;
	tr.lane_close = lane_close;
	link = pair.end[B];
	for (unsigned i = 0; i < 2; i++) {
		link->lane[i]->tr = &tr;
		link->lane[i]->fd = FD + (int)i;
	}
	null_now_ns += 1000 * SEC;
	link->tick.tidied_ns = null_now_ns;
	return braid_events_open();
}

static int end(void **state)
{
	(void)state;
	braid_watched_end(link);
	braid_events_close();
	null_pair_fini(&pair);
	braid_os = null_os;
	return 0;
}

#undef CASE
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)

static bool tick(void)
{
	return braid_watched_tick(link, null_now_ns);
}

static bool watched(void)
{
	bool is = atomic_load(&link->thread.watched);

	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(set.events[FD + i] != 0, is);
	return is;
}

static void call(void)
{
	atomic_fetch_add(&link->thread.touched, 1);
}

static void a_link_is_watched_after_a_tick_without_a_call(void **state)
{
	(void)state;
	call();
	assert_true(tick());			/* its callers move it */
	assert_false(watched());
	assert_false(tick());
	assert_true(watched());
	assert_int_equal(set.events[FD], ALWAYS);
	assert_int_equal(set.events[FD + 1], ALWAYS);
	assert_false(link->tick.settled);	/* a call may have come in between */
	assert_true(tick());
	assert_true(link->tick.settled);
	assert_int_equal(set.adds, 2);
	assert_int_equal(set.mods + set.dels, 0);
}

static void a_call_ends_it(void **state)
{
	(void)state;
	tick();
	assert_true(watched());
	call();
	assert_true(tick());
	assert_false(watched());
	assert_int_equal(set.dels, 2);
	/* And once it is over, nothing is left to take out. */
	braid_watched_end(link);
	assert_int_equal(set.dels, 2);
}

static void an_event_moves_the_link_and_arms_its_lanes_again(void **state)
{
	struct braid_req *s = isend(cs, "x", 1, 5);

	(void)state;
	tick();
	tick();
	null_deliver_all(&pair);
	braid_watched_event(link->lane[1]);
	assert_true(watched());
	assert_true(link->tick.settled);
	assert_int_equal(set.mods, 2);
	assert_int_equal(set.dels, 0);
	(void)s;
}

static void an_event_after_a_call_leaves_the_link_to_its_caller(void **state)
{
	(void)state;
	tick();
	call();
	braid_watched_event(link->lane[0]);
	assert_false(watched());
}

/* A call ends the watch at once; its event may be under way. */
static void a_late_event_does_not_watch_the_link_again(void **state)
{
	(void)state;
	tick();
	link->tick.seen++;
	braid_link_touch(link);
	assert_int_equal(link->tick.seen, link->thread.touched);
	braid_watched_event(link->lane[0]);
	assert_false(watched());
}

static void an_event_of_a_dead_link_changes_nothing(void **state)
{
	(void)state;
	tick();
	atomic_store(&link->state, BRAID_LINK_DEAD);
	braid_watched_event(link->lane[0]);
	assert_int_equal(set.mods + set.dels, 0);
}

static void a_link_with_work_left_is_not_watched(void **state)
{
	(void)state;
	armed = false;
	assert_false(tick());
	assert_false(watched());
	armed = true;
	atomic_store(&link->rx.copies, 1);	/* a GPU raises no event */
	assert_false(tick());
	assert_false(watched());
	atomic_store(&link->rx.copies, 0);
	braid_lock_wait(&link->lock);
	assert_false(tick());
	braid_unlock(&link->lock);
	assert_false(watched());
	assert_false(braid_watched_streams());	/* the next tick is soon enough for all that */
	tick();
	assert_true(watched());
}

/* --- more arrives than one look takes ------------------------------------------------------- */

static void stream(void)
{
	arrivals = true;
	assert_false(tick());
	assert_false(watched());
	assert_true(braid_watched_streams());
}

static void a_link_whose_peer_goes_on_sending_is_moved_without_a_tick(void **state)
{
	(void)state;
	stream();
	for (unsigned i = 0; i < 3; i++) {
		assert_ptr_equal(braid_watched_stream(), link);
		assert_true(braid_watched_streams());
	}
	assert_false(watched());
	arrivals = false;
	assert_ptr_equal(braid_watched_stream(), link);
	assert_true(watched());
	assert_false(braid_watched_streams());
	assert_null(braid_watched_stream());
}

/* Its lanes were not armed before what came had been read. */
static void a_worker_that_could_not_be_armed_is_tried_at_once_if_it_had_data(void **state)
{
	(void)state;
	armed = false;
	arrivals = once = true;
	assert_false(tick());
	assert_true(braid_watched_streams());
	armed = true;
	braid_watched_stream();
	assert_true(watched());
	assert_false(braid_watched_streams());
}

static void a_call_ends_a_stream(void **state)
{
	(void)state;
	stream();
	call();
	assert_ptr_equal(braid_watched_stream(), link);
	assert_false(braid_watched_streams());
	assert_false(watched());
	tick();
	stream();
	call();
	tick();
	assert_false(braid_watched_streams());
}

static void a_tick_that_finds_no_more_data_ends_a_stream(void **state)
{
	(void)state;
	stream();
	arrivals = false;
	tick();
	assert_true(watched());
	assert_false(braid_watched_streams());
}

static void a_dead_link_streams_no_more(void **state)
{
	(void)state;
	stream();
	atomic_store(&link->state, BRAID_LINK_DEAD);
	assert_ptr_equal(braid_watched_stream(), link);
	assert_false(braid_watched_streams());
}

static void links_that_stream_take_turns(void **state)
{
	struct braid_link *a = pair.end[A];

	(void)state;
	stream();
	for (unsigned i = 0; i < 2; i++)
		a->lane[i]->tr = &tr;
	braid_watched_tick(a, null_now_ns);
	for (unsigned i = 0; i < 2; i++) {
		assert_ptr_equal(braid_watched_stream(), link);
		assert_ptr_equal(braid_watched_stream(), a);
	}
	braid_watched_end(a);
	for (unsigned i = 0; i < 2; i++)
		a->lane[i]->tr = &null_transport;
}

static void a_full_epoll_set_is_tried_again_at_the_next_tick(void **state)
{
	(void)state;
	set.full_at = FD + 1;
	assert_false(tick());
	assert_false(watched());
	set.full_at = 0;
	tick();
	assert_true(watched());
}

static void a_blocked_lane_waits_for_room_too(void **state)
{
	(void)state;
	atomic_store(&link->lane[0]->blocked, true);
	tick();
	assert_int_equal(set.events[FD], ALWAYS | EPOLLOUT);
	assert_int_equal(set.events[FD + 1], ALWAYS);
}

static void an_event_descriptor_reports_arrivals_and_room(void **state)
{
	(void)state;
	link->lane[0]->event_fd = EVENT_FD;
	tick();
	assert_int_equal(set.events[FD], ALWAYS);
	assert_int_equal(set.events[EVENT_FD], EPOLLIN | EPOLLONESHOT);
	atomic_store(&link->lane[0]->blocked, true);
	braid_watched_event(link->lane[0]);
	assert_int_equal(set.events[FD], ALWAYS);
	assert_int_equal(set.events[EVENT_FD], EPOLLIN | EPOLLONESHOT | EPOLLOUT);
	braid_watched_end(link);
	assert_int_equal(set.events[EVENT_FD], 0);
	set.full_at = EVENT_FD;
	tick();
	assert_false(watched());
	set.full_at = FD;
	tick();
	assert_false(watched());
}

/* The peer's NIC writes new room into our memory, which raises no event. */
static void a_blocked_lane_of_a_nic_must_be_asked_again(void **state)
{
	(void)state;
	tr.dma = true;
	atomic_store(&link->lane[1]->blocked, true);
	assert_false(tick());
	assert_false(watched());
	atomic_store(&link->lane[1]->blocked, false);
	tick();
	assert_true(watched());
}

static void a_lost_lane_is_not_watched(void **state)
{
	(void)state;
	atomic_store(&link->lane[1]->up, false);
	tick();
	assert_true(set.events[FD] && !set.events[FD + 1]);
	assert_true(atomic_load(&link->thread.watched));
}

static void a_lane_leaves_the_set_before_it_is_closed(void **state)
{
	(void)state;
	tick();
	assert_int_equal(braid_lane_shut(link->lane[1]), 0);
	assert_int_equal(set.events[FD + 1], 0);
	assert_int_equal(set.closed, FD + 1);
	assert_false(braid_lane_up(link->lane[1]));
	assert_int_not_equal(set.events[FD], 0);
}

/* --- an active link ------------------------------------------------------------------------ */

static void an_active_link_with_something_pending_needs_the_next_tick(void **state)
{
	(void)state;
	call();
	atomic_store(&link->lanes.ndown, 1);
	assert_false(tick());
	atomic_store(&link->lanes.ndown, 0);
	call();
	atomic_store(&link->rx.copies, 1);
	assert_false(tick());
	atomic_store(&link->rx.copies, 0);
	call();
	atomic_store(&link->tx.control_was_urgent, true);
	assert_false(tick());
	call();
	assert_true(tick());
}

/* A control frame for which the peer does not wait: it rides on data, or waits for 20 ms. */
static void what_is_not_urgent_is_sent_after_a_while(void **state)
{
	char into[8];

	(void)state;
	isend(cs, "x", 1, 5);
	null_deliver_all(&pair);
	irecv(cr, into, sizeof(into), 5);	/* a RETIRE is due */
	call();
	null_now_ns += 19 * MS;
	tick();
	assert_no_frame(B);
	call();
	null_now_ns += MS;
	tick();
	next_frame(B, BRAID_F_RETIRE);
	assert_int_equal(link->tick.tidied_ns, null_now_ns);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_link_is_watched_after_a_tick_without_a_call),
		CASE(a_call_ends_it),
		CASE(an_event_moves_the_link_and_arms_its_lanes_again),
		CASE(an_event_after_a_call_leaves_the_link_to_its_caller),
		CASE(a_late_event_does_not_watch_the_link_again),
		CASE(an_event_of_a_dead_link_changes_nothing),
		CASE(a_link_with_work_left_is_not_watched),
		CASE(a_link_whose_peer_goes_on_sending_is_moved_without_a_tick),
		CASE(a_worker_that_could_not_be_armed_is_tried_at_once_if_it_had_data),
		CASE(a_call_ends_a_stream),
		CASE(a_tick_that_finds_no_more_data_ends_a_stream),
		CASE(a_dead_link_streams_no_more),
		CASE(links_that_stream_take_turns),
		CASE(a_full_epoll_set_is_tried_again_at_the_next_tick),
		CASE(a_blocked_lane_waits_for_room_too),
		CASE(an_event_descriptor_reports_arrivals_and_room),
		CASE(a_blocked_lane_of_a_nic_must_be_asked_again),
		CASE(a_lost_lane_is_not_watched),
		CASE(a_lane_leaves_the_set_before_it_is_closed),
		CASE(an_active_link_with_something_pending_needs_the_next_tick),
		CASE(what_is_not_urgent_is_sent_after_a_while),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
