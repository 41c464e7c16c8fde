/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_verbs.c - a lane over verbs: verbs/verbs.c. */
#include "tests/unit/lanes.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "core/base/os.h"
#include "verbs/events.h"
#include "verbs/verbs.h"

extern const struct braid_transport braid_verbs;

static void a_lane_takes_over_its_queue_pair(void **state)
{
	struct lanes l;
	struct braid_lane *lane;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	lane = lane_at(&l, 0);
	assert_int_equal(lane->event_fd, lane_qp(&l, 0)->channel->fd);
	assert_int_equal(lane->ack_frames, lane_qp(&l, 0)->wr_max / 2);
	assert_false(lane->local);
	assert_non_null(lane_qp(&l, 0)->ring);
	lanes_down(&l);
	assert_int_equal(ports_ctl("live qp"), 0);
}

static void an_armed_lane_becomes_readable_when_something_comes(void **state)
{
	struct lanes l;
	struct pollfd pfd;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	lanes_move(&l, 8, false);
	pfd = (struct pollfd){ .fd = lane_at(&l, 1)->event_fd, .events = POLLIN };
	assert_true(braid_verbs.arm(lane_at(&l, 1)));
	assert_int_equal(poll(&pfd, 1, 0), 0);
	lanes_move(&l, 8, false);
	assert_int_equal(poll(&pfd, 1, 10000), 1);
	assert_true(braid_verbs.arm(lane_at(&l, 1)));	/* reads the event */
	assert_int_equal(poll(&pfd, 1, 0), 0);
	lanes_down(&l);
}

static void a_fence_stops_the_nic_and_leaves_the_socket_open(void **state)
{
	struct lanes l;
	struct braid_stops stops;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	braid_verbs.lane_fence(lane_at(&l, 0));
	braid_stops_mark(l.e.dialler.dev, &stops);
	assert_true(lane_qp(&l, 0)->over);
	assert_true(lane_at(&l, 0)->fd >= 0);
	UNTIL(braid_stops_past(l.e.dialler.dev, &stops));
	lanes_down(&l);
}

static void health_knows_a_port_that_is_down_or_has_another_lid(void **state)
{
	struct braid_health h = { 0 };
	struct lanes l;
	int err;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	assert_int_equal(braid_verbs.health(lane_at(&l, 0), &h), 0);
	assert_false(h.unacked);
	ports_ctl("port ib0 down");
	UNTIL((err = braid_verbs.health(lane_at(&l, 0), &h)) != 0);
	assert_int_equal(err, -ENETDOWN);
	ports_ctl("port ib0 up");
	UNTIL(!braid_verbs.health(lane_at(&l, 0), &h));
	ports_ctl("lid ib0 99");
	UNTIL((err = braid_verbs.health(lane_at(&l, 0), &h)) != 0);
	assert_int_equal(err, -ENETRESET);
	lanes_down(&l);
}

static void a_lane_is_described_without_asking_the_nic(void **state)
{
	struct braid_wire_state w = { 0 };
	struct lanes l;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	ports_ctl("slow all 2000");
	braid_lock_wait(&l.link[0]->lock);
	braid_verbs.describe(lane_at(&l, 0), &w);
	braid_unlock(&l.link[0]->lock);
	assert_int_equal(ports_ctl("slept"), 0);
	ports_ctl("slow none");
	assert_int_equal(strncmp(w.text, "queue pair 0x", 13), 0);
	assert_non_null(strstr(w.text, "port ib0:1 up"));
	lanes_down(&l);
}

static void an_iwarp_dialler_sends_first(void **state)
{
	struct lanes l;

	(void)state;
	lanes_up(&l, "iw0:1", "iw0:1");
	assert_true(lane_qp(&l, 0)->may_send);
	UNTIL(atomic_load(&lane_qp(&l, 1)->m->ack[1]));	/* then the accepter may, too */
	lanes_move(&l, 100, false);
	lanes_down(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lane_takes_over_its_queue_pair),
		cmocka_unit_test(an_armed_lane_becomes_readable_when_something_comes),
		cmocka_unit_test(a_fence_stops_the_nic_and_leaves_the_socket_open),
		cmocka_unit_test(health_knows_a_port_that_is_down_or_has_another_lid),
		cmocka_unit_test(a_lane_is_described_without_asking_the_nic),
		cmocka_unit_test(an_iwarp_dialler_sends_first),
	};

	ports_of("ib0:ib;ib1:ib;iw0:iwarp,netdev=lo");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
