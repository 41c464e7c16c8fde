/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_tx.c - a lane over verbs sends: verbs/tx.c. */
#include "tests/unit/lanes.h"

#include <stdio.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "verbs/verbs.h"

static long count(const char *what, const struct braid_qp *w)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "count %s %u", what, w->qp->qp_num);
	return ports_ctl(cmd);
}

static void a_small_message_is_one_send(void **state)
{
	struct lanes l;
	long before;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	lanes_move(&l, 8, false);
	before = count("sends", lane_qp(&l, 0));
	lanes_move(&l, 8, false);
	assert_int_equal(count("sends", lane_qp(&l, 0)) - before, 1);
	lanes_down(&l);
}

static void a_chunk_is_written_into_the_receive(void **state)
{
	struct lanes l;

	(void)state;
	braid_param.ib_adaptive_routing = 0;
	lanes_up(&l, "ib0:1", "ib1:1");
	lanes_move(&l, 300000, true);
	assert_true(count("imms", lane_qp(&l, 0)) > 0);
	lanes_down(&l);
	braid_param.ib_adaptive_routing = 1;	/* large ones without, so that switches spread them */
	lanes_up(&l, "ib0:1", "ib1:1");
	lanes_move(&l, 300000, true);
	assert_int_equal(count("imms", lane_qp(&l, 0)), 0);
	lanes_down(&l);
	braid_param.ib_adaptive_routing = -1;
}

static void without_immediate_data_its_header_follows_as_a_send(void **state)
{
	struct lanes l;

	(void)state;
	lanes_up(&l, "plain0:1", "plain1:1");
	lanes_move(&l, 300000, true);
	assert_int_equal(count("imms", lane_qp(&l, 0)), 0);
	assert_true(count("sends", lane_qp(&l, 0)) > 0);
	lanes_down(&l);
}

static void a_chunk_larger_than_a_message_of_the_device_goes_in_pieces(void **state)
{
	struct lanes l;

	(void)state;
	lanes_up(&l, "few:1", "ib1:1");
	lanes_move(&l, 400000, true);
	assert_true(lane_qp(&l, 0)->sq_posted > 400000 / 16384);
	lanes_down(&l);
}

static void memory_that_is_not_registered_is_copied_and_sent(void **state)
{
	struct lanes l;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	lanes_move(&l, 300000, false);
	assert_true(lane_qp(&l, 0)->bounces > 0);
	lanes_down(&l);
}

static void a_strict_lane_copies_registered_memory_and_sends_it(void **state)
{
	struct lanes l;
	long imms;

	(void)state;
	braid_param.rdma_strict = 1;
	lanes_up(&l, "ib0:1", "ib1:1");
	imms = count("imms", lane_qp(&l, 0));
	assert_int_equal(atomic_load(&lane_qp(&l, 0)->m->own.free), 1);
	lanes_move(&l, 300000, true);
	jobs_done(l.e.dialler.dev);
	assert_int_equal(lane_qp(&l, 0)->m->own.nchunks, 2);	/* as it has sent */
	assert_true(lane_qp(&l, 0)->bounces >= 300000 / BRAID_SLOT);
	assert_int_equal(count("imms", lane_qp(&l, 0)), imms);
	lanes_down(&l);
	braid_param.rdma_strict = 0;
}

static void no_more_slots_are_used_than_the_peer_has(void **state)
{
	struct lanes l;
	struct braid_qp *w;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	w = lane_qp(&l, 0);
	for (unsigned i = 0; i < 300; i++) {
		lanes_move(&l, i * 17, false);
		assert_true(w->wr_head - w->wr_tail <= w->wr_max);
	}
	assert_true(w->wr_head > BRAID_SLOTS_RX);
	lanes_down(&l);
}

/* That takes no slot, so both ends may be out of slots and go on. */
static void counts_are_written_into_the_peers_memory(void **state)
{
	struct lanes l;
	struct braid_lane *lane;
	struct braid_qp *w, *peer;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	lane = lane_at(&l, 0);
	w = lane_qp(&l, 0);
	peer = lane_qp(&l, 1);
	braid_lock_wait(&l.link[0]->lock);
	w->slots = 40;
	braid_verbs_write_counts(lane, w);
	assert_int_equal(w->chain.n, 1);
	assert_int_equal(braid_verbs_chain_post(w), 0);
	braid_unlock(&l.link[0]->lock);
	assert_int_equal(w->chain.n, 0);
	UNTIL(atomic_load(&peer->m->ack[1]) == 40 + 1);
	assert_int_equal(atomic_load(&peer->m->ack[0]), lane->rx_frames);
	assert_int_equal(w->slots_reported, 40);
	lanes_down(&l);
}

static void a_lane_that_was_fenced_sends_nothing(void **state)
{
	struct lanes l;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	braid_lock_wait(&l.link[0]->lock);
	braid_qp_fence(lane_qp(&l, 0));
	assert_int_equal(braid_verbs_push(lane_at(&l, 0)), -ENETRESET);
	braid_unlock(&l.link[0]->lock);
	lanes_down(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_small_message_is_one_send),
		cmocka_unit_test(a_chunk_is_written_into_the_receive),
		cmocka_unit_test(without_immediate_data_its_header_follows_as_a_send),
		cmocka_unit_test(a_chunk_larger_than_a_message_of_the_device_goes_in_pieces),
		cmocka_unit_test(memory_that_is_not_registered_is_copied_and_sent),
		cmocka_unit_test(a_strict_lane_copies_registered_memory_and_sends_it),
		cmocka_unit_test(no_more_slots_are_used_than_the_peer_has),
		cmocka_unit_test(counts_are_written_into_the_peers_memory),
		cmocka_unit_test(a_lane_that_was_fenced_sends_nothing),
	};

	ports_of("ib0:ib;ib1:ib;plain0:ib,imm=0;plain1:ib,imm=0;few:ib,max_msg=16384");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
