/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_rx.c - a lane over verbs receives: verbs/rx.c. */
#include "tests/unit/lanes.h"

#include <errno.h>
#include <endian.h>
#include <stdio.h>
#include <unistd.h>

#include "core/base/os.h"
#include "core/link/link_int.h"
#include "verbs/verbs.h"

static int poll_at(struct lanes *l, unsigned end)
{
	struct braid_lane *lane = lane_at(l, end);
	int n;

	braid_lock_wait(&lane->io);
	n = braid_verbs_poll(lane);
	braid_unlock(&lane->io);
	return n;
}

static void messages_of_all_sizes_arrive(void **state)
{
	static const size_t sizes[] = { 0, 1, 8, 220, 221, 4096, 8192, 8193, 65536, 1 << 20 };
	struct lanes l;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	for (unsigned i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++)
		lanes_move(&l, sizes[i / 2], i % 2 && sizes[i / 2]);
	lanes_down(&l);
}

static void slots_are_posted_again_several_at_a_time(void **state)
{
	struct lanes l;
	struct braid_qp *w;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	w = lane_qp(&l, 1);
	for (unsigned i = 0; i < 5 * BRAID_SLOTS_RX; i++) {
		lanes_move(&l, 8, false);
		assert_true(w->nagain < BRAID_REPOST);
	}
	assert_true(w->slots >= 5 * BRAID_SLOTS_RX);
	lanes_down(&l);
}

static void nothing_that_has_come_is_no_error(void **state)
{
	struct lanes l;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	lanes_move(&l, 8, false);
	UNTIL(!poll_at(&l, 0) && !poll_at(&l, 1));
	lanes_down(&l);
}

static void a_count_of_more_than_was_sent_ends_the_lane(void **state)
{
	struct lanes l;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	atomic_store(&lane_qp(&l, 0)->m->ack[0], htole32(1000));
	assert_int_equal(poll_at(&l, 0), -EPROTO);
	assert_string_equal(lane_at(&l, 0)->rx_broken, "a count of more than was sent");
	lanes_down(&l);
}

static void a_queue_pair_that_fails_ends_the_lane(void **state)
{
	struct lanes l;
	char cmd[64];
	int n;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	snprintf(cmd, sizeof(cmd), "qp %u error", lane_qp(&l, 0)->qp->qp_num);
	ports_ctl(cmd);
	atomic_store(&lane_qp(&l, 0)->broken, true);	/* as the device's event says */
	UNTIL((n = poll_at(&l, 0)) < 0);
	assert_int_equal(n, -EIO);
	lanes_down(&l);
}

static void a_peer_that_has_ended_is_not_the_nics_fault(void **state)
{
	struct lanes l;
	char cmd[64];
	int n;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	close(lane_at(&l, 1)->fd);
	lane_at(&l, 1)->fd = -1;
	snprintf(cmd, sizeof(cmd), "qp %u error", lane_qp(&l, 0)->qp->qp_num);
	ports_ctl(cmd);
	atomic_store(&lane_qp(&l, 0)->broken, true);
	UNTIL((n = poll_at(&l, 0)) < 0);
	braid_lock_wait(&lane_at(&l, 0)->io);
	assert_int_equal(braid_lane_final_poll(lane_at(&l, 0), n), -ENOTCONN);
	braid_unlock(&lane_at(&l, 0)->io);
	lanes_down(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_all_sizes_arrive),
		cmocka_unit_test(slots_are_posted_again_several_at_a_time),
		cmocka_unit_test(nothing_that_has_come_is_no_error),
		cmocka_unit_test(a_count_of_more_than_was_sent_ends_the_lane),
		cmocka_unit_test(a_queue_pair_that_fails_ends_the_lane),
		cmocka_unit_test(a_peer_that_has_ended_is_not_the_nics_fault),
	};

	ports_of("ib0:ib;ib1:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
