/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_link_recover.c - a lane is lost, closed here and at the peer, and gets a new carrier, and no
 * frame is lost or sent twice.
 */
#include "tests/unit/stub.h"

#include <errno.h>
#include <string.h>

#include "core/link/lane_io.h"
#include "core/link/link_int.h"
#include "core/mem/later.h"

static const struct braid_hdr alive = { .type = BRAID_F_ALIVE };

static int setup(void **state)
{
	(void)state;
	stub_up(&stub_socket, 3);
	return 0;
}

static int setup_nic(void **state)
{
	(void)state;
	stub_up(&stub_nic, 3);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	stub_down();
	return 0;
}

static void lost(unsigned lane, int err)
{
	stub_lock();
	braid_lane_lost(stub_at(lane), err);
	stub_unlock();
}

/* The peer has closed the lane, too, and received so many of its frames. */
static int peer_down(unsigned lane, uint32_t frames, unsigned tag)
{
	struct braid_hdr h = {
		.type = BRAID_F_DOWN, .n = (uint16_t)lane, .seq = frames, .tag = (int32_t)tag,
	};

	h.rseq = tag ? (uint16_t)~stub_at(lane)->epoch : stub_at(lane)->epoch;
	return stub_receive(lane == 2 ? 1 : 2, h, NULL);
}

static int resume(unsigned lane, const struct braid_transport *tr, uint32_t frames, uint32_t first)
{
	struct braid_carrier c = {
		.tr = tr, .fd = 200, .epoch = 2, .rkey_epoch = stub.link->lanes.rkey_epoch,
	};

	return braid_lane_resume(stub_at(lane), &c, frames, first);
}

/* --- a lane is lost ------------------------------------------------------------------------ */

static void a_lost_lane_is_counted_once_and_wakes_the_service_thread(void **state)
{
	(void)state;
	lost(1, -EIO);
	lost(1, -EIO);
	assert_false(stub_at(1)->up);
	assert_int_equal(stub.link->lanes.ndown, 1);
	assert_int_equal(stub_at(1)->loss.lost, 1);
	assert_int_equal(stub.dev.lost, 1);
	assert_int_equal(stub.wakes, 1);
	assert_int_equal(stub.lane[1].closes, 0);	/* that is the service thread's work */
	assert_int_equal(stub.link->state, BRAID_LINK_UP);
}

static void a_nics_carrier_has_failed_if_neither_end_closed_it(void **state)
{
	static const int closed[] = { -ENOTCONN, -ECANCELED, -ECONNRESET };

	(void)state;
	lost(0, -EIO);
	assert_true(stub_at(0)->loss.carrier_failed);
	for (unsigned i = 0; i < 3; i++) {
		atomic_store(&stub_at(1)->up, true);
		lost(1, closed[i]);
		assert_false(stub_at(1)->loss.carrier_failed);
	}
}

static void malformed_data_ends_the_link_and_is_named(void **state)
{
	(void)state;
	stub.waits = true;
	braid_lane_died(stub_at(1), "CREDIT", -EBADMSG);
	assert_int_equal(stub.link->state, BRAID_LINK_DEAD);
	assert_int_equal(stub.link->err, -EREMOTEIO);
	assert_non_null(strstr(stub.warn, "lane 1 (CREDIT)"));
	assert_non_null(strstr(stub.warn, "[broken-link]"));
	assert_non_null(strstr(stub.info, "broken: "));		/* the counters, for its developer */
}

static void an_error_of_the_kernel_costs_the_lane_only(void **state)
{
	(void)state;
	braid_lane_died(stub_at(1), NULL, -EBADMSG);
	assert_int_equal(stub.link->state, BRAID_LINK_UP);
	assert_false(stub_at(1)->up);
	assert_false(stub.link->lock.held);
}

static void a_link_without_memory_ends(void **state)
{
	(void)state;
	stub.waits = true;
	braid_lane_died(stub_at(1), NULL, -ENOMEM);
	assert_int_equal(stub.link->err, -ENOMEM);
	assert_non_null(strstr(stub.warn, "[no-memory]"));
}

static void after_the_peers_close_its_lanes_end_the_link(void **state)
{
	struct braid_hdr close = { .type = BRAID_F_CLOSE };

	(void)state;
	assert_int_equal(stub_receive(0, close, NULL), 0);
	assert_int_equal(stub.link->state, BRAID_LINK_UP);
	stub.waits = true;
	braid_lane_died(stub_at(0), NULL, -ENOTCONN);
	assert_int_equal(stub.link->state, BRAID_LINK_DEAD);
	assert_non_null(strstr(stub.warn, "[link-ended]"));
}

/* --- it is fenced -------------------------------------------------------------------------- */

static void a_fenced_lane_is_closed_and_the_peer_gets_its_count(void **state)
{
	(void)state;
	assert_int_equal(stub_receive(1, alive, NULL), 0);
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	assert_int_equal(stub.lane[1].fences, 1);
	assert_int_equal(stub.lane[1].closes, 1);
	assert_int_equal(stub.link->lanes.ndown, 1);
	assert_true(stub_at(1)->loss.down_due);
	assert_true(stub.link->tx.control_urgent);
	assert_int_equal(stub_at(1)->rx_frames, 1);
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);	/* it is closed already */
	assert_int_equal(stub.lane[1].closes, 1);
	assert_int_equal(stub.link->lanes.ndown, 1);
	assert_false(stub.link->lock.held || stub_at(0)->io.held);
}

/* The DOWN of another lane may have been lost with this one. */
static void each_lane_that_is_closed_makes_all_be_reported_again(void **state)
{
	(void)state;
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	stub_at(1)->loss.down_due = false;
	assert_int_equal(braid_lane_fence(stub_at(2)), 0);
	assert_true(stub_at(1)->loss.down_due && stub_at(2)->loss.down_due);
	assert_false(stub_at(0)->loss.down_due);
}

/* The first half of a frame with 100 bytes of payload. */
static void half_a_frame(unsigned lane, enum braid_frame type)
{
	struct braid_hdr h = {
		.type = (uint8_t)type, .lseq = stub_at(lane)->rx_frames, .len = 100, .size = 100,
	};
	char bytes[BRAID_HDR_SIZE + 50] = { 0 };

	braid_hdr_pack(&h, bytes);
	stub_lock();
	assert_int_equal(braid_rx_message(stub_at(lane), bytes, sizeof(bytes)), 0);
	stub_unlock();
	assert_int_equal(stub.begins, 1);
	assert_int_equal(stub_at(lane)->rx_left, 50);
}

static void a_chunk_half_received_is_forgotten(void **state)
{
	(void)state;
	half_a_frame(1, BRAID_F_CHUNK);
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	assert_int_equal(stub.undos, 1);
	assert_int_equal(stub_at(1)->rx_left, 0);
	assert_int_equal(stub_at(1)->rx_frames, 0);
	assert_int_equal(stub_at(1)->rx_kind, BRAID_RX_NONE);
	assert_int_equal(stub.link->rx.again.kind, BRAID_RX_NONE);
}

/* A message holds a place in the order, and has one receive: the message layer must not see it twice. */
static void a_message_half_received_goes_on_when_it_is_sent_again(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_EAGER, .len = 100, .size = 100 };
	char text[100];

	(void)state;
	half_a_frame(0, BRAID_F_EAGER);
	assert_int_equal(braid_lane_fence(stub_at(0)), 0);
	assert_int_equal(stub.undos, 0);
	memset(text, 'x', sizeof(text));
	assert_int_equal(stub_receive(1, h, text), 0);
	assert_int_equal(stub.begins, 1);
	assert_int_equal(stub.ends, 1);
	assert_memory_equal(stub.in, text, sizeof(text));
	assert_int_equal(stub.link->rx.again.kind, BRAID_RX_NONE);
}

/* Its NIC could still write into memory that is given to somebody else. */
static void a_lane_is_closed_once_its_nic_has_stopped(void **state)
{
	struct braid_stop stop = { 0 };

	(void)state;
	stub_at(1)->epoch = 7;
	braid_stop_begin(&stub.dev, &stop);
	assert_int_equal(braid_lane_fence(stub_at(1)), -EAGAIN);
	assert_int_equal(braid_lane_fence(stub_at(1)), -EAGAIN);
	assert_int_equal(stub.lane[1].fences, 1);
	assert_int_equal(stub.lane[1].closes, 0);
	assert_false(stub_at(1)->up);
	assert_true(stub_at(1)->loss.writes_due);		/* the peer may go on with all but chunks */
	assert_false(stub_at(1)->loss.down_due);
	braid_stop_end(&stub.dev, &stop);
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	assert_int_equal(stub.lane[1].closes, 1);
	assert_true(stub_at(1)->loss.down_due);
}

/* --- it is closed at both ends ------------------------------------------------------------- */

static void chunks_on_lane_1(unsigned n)
{
	for (uint32_t i = 0; i < n; i++)
		stub_add_chunk(1, 100 + i, NULL);
	stub_push(1);
	stub.lane[1].n = 0;
}

static void the_peers_down_comes_first_and_the_rest_goes_over_other_lanes(void **state)
{
	(void)state;
	chunks_on_lane_1(4);
	assert_int_equal(peer_down(1, 3, 0), 0);
	assert_false(stub_at(1)->up);
	assert_true(stub_at(1)->loss.avoid_path);		/* it was up here: the peer knows why */
	assert_false(stub_at(1)->loss.orphaned);		/* it is open here */
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	assert_true(stub_at(1)->loss.orphaned);
	assert_int_equal(stub.link->lanes.norphaned, 1);
	stub_lock();
	braid_link_feed(stub.link);
	stub_unlock();
	assert_int_equal(stub_expect(0, BRAID_F_CHUNK).len, 103);
	assert_int_equal(stub_at(1)->tx.unacked, 0);
}

static void our_own_close_comes_first_and_the_rest_goes_over_other_lanes(void **state)
{
	(void)state;
	chunks_on_lane_1(4);
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	assert_false(stub_at(1)->loss.orphaned);
	assert_int_equal(peer_down(1, 3, 0), 0);
	assert_true(stub_at(1)->loss.orphaned);
	assert_false(stub_at(1)->loss.avoid_path);
	assert_int_equal(stub_at(1)->tx.unacked, 103);
	assert_int_equal(peer_down(1, 3, 0), 0);	/* said twice */
	assert_int_equal(stub.link->lanes.norphaned, 1);
}

static void chunks_wait_while_the_peers_nic_may_write(void **state)
{
	(void)state;
	chunks_on_lane_1(4);
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	assert_int_equal(peer_down(1, 3, BRAID_DOWN_WRITES), 0);
	assert_false(stub_at(1)->loss.orphaned);
	assert_int_equal(peer_down(1, 3, 0), 0);
	assert_true(stub_at(1)->loss.orphaned);
	assert_int_equal(peer_down(1, 3, BRAID_DOWN_WRITES), 0);	/* overtaken */
	assert_false(stub_at(1)->loss.peer_writes);
}

static void a_count_of_frames_that_were_never_sent_ends_the_link(void **state)
{
	(void)state;
	stub.waits = true;
	chunks_on_lane_1(4);
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	peer_down(1, 5, 0);
	assert_int_equal(stub.link->state, BRAID_LINK_DEAD);
	assert_non_null(strstr(stub.warn, "[broken-link]"));
	assert_false(stub_at(1)->loss.orphaned);
}

/* --- another lane becomes home ------------------------------------------------------------- */

static void home_is_down_at_both_ends(uint32_t frames, unsigned tag)
{
	for (uint32_t i = 0; i < 3; i++)
		stub_add(0, BRAID_F_ALIVE);
	stub_add_chunk(0, 100, NULL);
	stub_push(0);
	stub.lane[0].n = 0;
	assert_int_equal(braid_lane_fence(stub_at(0)), 0);
	stub.wakes = 0;
	assert_int_equal(peer_down(0, frames, tag), 0);
	assert_false(stub_at(0)->loss.orphaned);
	assert_true(tag || stub.wakes > 0);
}

static void the_frames_of_a_lost_home_move_to_another_in_order(void **state)
{
	(void)state;
	home_is_down_at_both_ends(2, 0);
	braid_link_rehome(stub.link);
	assert_int_equal(stub.link->lanes.home, 1);
	stub_push(1);
	assert_int_equal(stub_expect(1, BRAID_F_ALIVE).lseq, 0);
	assert_int_equal(stub_expect(1, BRAID_F_CHUNK).lseq, 1);
	stub_expect_none(1);
	assert_true(stub.link->tx.stalled);
	assert_false(stub.link->lock.held || stub_at(0)->io.held);
	braid_link_rehome(stub.link);			/* that home is fine */
	assert_int_equal(stub.link->lanes.home, 1);
}

/* A home that moves again and again, over NICs, leaves nothing behind. */
static void a_former_queue_is_kept_only_until_the_nic_has_stopped(void **state)
{
	(void)state;
	home_is_down_at_both_ends(2, 0);
	braid_link_rehome(stub.link);
	assert_non_null(stub_at(1)->tx.kept);		/* our NIC may still read it */
	lost(1, -EIO);
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	assert_null(stub_at(1)->tx.kept);
}

static void all_but_chunks_move_while_the_peers_nic_may_write(void **state)
{
	(void)state;
	home_is_down_at_both_ends(2, BRAID_DOWN_WRITES);
	braid_link_rehome(stub.link);
	stub_push(1);
	stub_expect(1, BRAID_F_ALIVE);
	stub_expect_none(1);
	assert_int_equal(stub_at(0)->tx.unacked, 100);
}

static void home_stays_while_either_end_has_it_open_or_no_other_lane_is_good(void **state)
{
	(void)state;
	assert_int_equal(braid_lane_fence(stub_at(0)), 0);
	braid_link_rehome(stub.link);
	assert_int_equal(stub.link->lanes.home, 0);
	assert_int_equal(resume(0, &stub_socket, 0, 0), 0);
	assert_int_equal(peer_down(0, 0, 0), 0);
	braid_link_rehome(stub.link);
	assert_int_equal(stub.link->lanes.home, 0);
	assert_int_equal(braid_lane_fence(stub_at(0)), 0);
	lost(1, -EIO);
	atomic_store(&stub_at(2)->loss.suspect_ns, 1);
	braid_link_rehome(stub.link);
	assert_int_equal(stub.link->lanes.home, 0);
	atomic_store(&stub_at(2)->loss.suspect_ns, 0);
	braid_link_rehome(stub.link);
	assert_int_equal(stub.link->lanes.home, 2);
}

static void a_home_whose_peer_has_lost_count_ends_the_link(void **state)
{
	(void)state;
	stub.waits = true;
	home_is_down_at_both_ends(9, 0);
	braid_link_rehome(stub.link);
	assert_int_equal(stub.link->state, BRAID_LINK_DEAD);
	assert_non_null(strstr(stub.warn, "[broken-link]"));
	assert_int_equal(stub.link->lanes.home, 0);
}

/* --- it gets a new carrier ----------------------------------------------------------------- */

static void a_resumed_lane_sends_what_the_peer_has_not_received(void **state)
{
	(void)state;
	chunks_on_lane_1(4);
	stub_at(1)->blocked = true;
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	assert_int_equal(resume(1, &stub_socket, 2, 0), 0);
	assert_true(stub_at(1)->up);
	assert_int_equal(stub_at(1)->fd, 200);
	assert_int_equal(stub_at(1)->epoch, 2);
	assert_int_equal(stub.link->lanes.ndown, 0);
	assert_int_equal(stub_at(1)->loss.back, 1);
	assert_int_equal(stub.dev.redials, 1);
	assert_false(stub_at(1)->loss.down_due || stub_at(1)->blocked);
	assert_true(stub.link->tx.stalled);		/* a later call pushes it */
	stub_push(1);
	assert_int_equal(stub_expect(1, BRAID_F_CHUNK).len, 102);
	assert_int_equal(stub_expect(1, BRAID_F_CHUNK).len, 103);
	stub_expect_none(1);
}

static void frames_that_the_peer_has_not_kept_count_as_received(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(stub_receive(1, alive, NULL), 0);
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	assert_int_equal(resume(1, &stub_socket, 0, 2), 0);
	assert_int_equal(stub_at(1)->rx_frames, 3);
	assert_int_equal(stub_at(1)->rx_acked, 3);
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	assert_int_equal(resume(1, &stub_socket, 0, 5), 0);
	assert_int_equal(stub_at(1)->rx_frames, 5);
}

static void an_orphan_that_comes_back_carries_its_chunks_itself(void **state)
{
	(void)state;
	chunks_on_lane_1(4);
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	assert_int_equal(peer_down(1, 3, 0), 0);
	assert_int_equal(resume(1, &stub_socket, 3, 0), 0);
	assert_int_equal(stub.link->lanes.norphaned, 0);
	assert_false(stub_at(1)->loss.orphaned || stub_at(1)->loss.peer_down);
	stub_push(1);
	assert_int_equal(stub_expect(1, BRAID_F_CHUNK).len, 103);
}

static void an_impossible_count_is_refused_and_the_carrier_stays_the_callers(void **state)
{
	(void)state;
	chunks_on_lane_1(4);
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	assert_int_equal(resume(1, &stub_socket, 5, 0), -EPROTO);
	assert_false(stub_at(1)->up);
	assert_int_equal(stub_at(1)->fd, -1);
	assert_int_equal(stub.link->lanes.ndown, 1);
	assert_false(stub.link->lock.held);
}

static void a_carrier_that_can_not_be_opened_stays_the_callers(void **state)
{
	(void)state;
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	stub.lane[1].open_err = -EIO;
	assert_int_equal(resume(1, &stub_socket, 0, 0), -EIO);
	assert_false(stub_at(1)->up);
	assert_int_equal(stub_at(1)->fd, -1);
}

/* Memory was given back after the peer got the keys of this carrier. */
static void a_carrier_from_before_a_revocation_is_refused(void **state)
{
	struct braid_carrier c = { .tr = &stub_nic, .fd = 200, .epoch = 2 };
	unsigned n;

	(void)state;
	n = braid_link_stop(stub.link);
	braid_link_revoke(stub.link, NULL, NULL);
	braid_link_go(stub.link, n);
	assert_int_equal(braid_lane_fence(stub_at(1)), 0);
	assert_int_equal(braid_lane_resume(stub_at(1), &c, 0, 0), -EALREADY);
	assert_false(stub_at(1)->up);
	assert_false(stub.link->lock.held);
	assert_int_equal(resume(1, &stub_nic, 0, 0), 0);
}

/* --- memory is given back ------------------------------------------------------------------ */

static bool uses_lane_1(const struct braid_lane *lane, const struct braid_comm *c)
{
	(void)c;
	return lane->index == 1;
}

static void lanes_that_may_use_the_memory_are_fenced_and_lost(void **state)
{
	unsigned n = braid_link_stop(stub.link);

	(void)state;
	atomic_store(&stub_at(1)->unread, true);
	braid_link_revoke(stub.link, uses_lane_1, NULL);
	braid_link_go(stub.link, n);
	assert_int_equal(stub.lane[1].fences, 1);
	assert_int_equal(stub.lane[0].fences + stub.lane[2].fences, 0);
	assert_false(stub_at(1)->up || stub_at(1)->unread);
	assert_false(stub_at(1)->loss.carrier_failed);
	assert_int_equal(stub.link->lanes.rkey_epoch, 0);
}

static void a_revocation_of_all_credits_concerns_every_nic_and_no_socket(void **state)
{
	unsigned n;

	(void)state;
	stub_add_lane(&stub_socket);
	n = braid_link_stop(stub.link);
	braid_link_revoke(stub.link, NULL, NULL);
	braid_link_go(stub.link, n);
	for (unsigned i = 0; i < 3; i++)
		assert_false(stub_at(i)->up);
	assert_true(stub_at(3)->up);
	assert_int_equal(stub.link->lanes.rkey_epoch, 1);
}

static void the_copies_of_failed_comms_end_with_the_link(void **state)
{
	unsigned n = braid_link_stop(stub.link);

	(void)state;
	braid_link_end_copies(stub.link);
	braid_link_go(stub.link, n);
	assert_int_equal(stub.leaves, 1);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define CASE_NIC(f) cmocka_unit_test_setup_teardown(f, setup_nic, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_lost_lane_is_counted_once_and_wakes_the_service_thread),
		CASE_NIC(a_nics_carrier_has_failed_if_neither_end_closed_it),
		CASE(malformed_data_ends_the_link_and_is_named),
		CASE(an_error_of_the_kernel_costs_the_lane_only),
		CASE(a_link_without_memory_ends),
		CASE(after_the_peers_close_its_lanes_end_the_link),
		CASE(a_fenced_lane_is_closed_and_the_peer_gets_its_count),
		CASE(each_lane_that_is_closed_makes_all_be_reported_again),
		CASE(a_chunk_half_received_is_forgotten),
		CASE(a_message_half_received_goes_on_when_it_is_sent_again),
		CASE_NIC(a_lane_is_closed_once_its_nic_has_stopped),
		CASE(the_peers_down_comes_first_and_the_rest_goes_over_other_lanes),
		CASE(our_own_close_comes_first_and_the_rest_goes_over_other_lanes),
		CASE(chunks_wait_while_the_peers_nic_may_write),
		CASE(a_count_of_frames_that_were_never_sent_ends_the_link),
		CASE(the_frames_of_a_lost_home_move_to_another_in_order),
		CASE_NIC(a_former_queue_is_kept_only_until_the_nic_has_stopped),
		CASE(all_but_chunks_move_while_the_peers_nic_may_write),
		CASE(home_stays_while_either_end_has_it_open_or_no_other_lane_is_good),
		CASE(a_home_whose_peer_has_lost_count_ends_the_link),
		CASE(a_resumed_lane_sends_what_the_peer_has_not_received),
		CASE(frames_that_the_peer_has_not_kept_count_as_received),
		CASE(an_orphan_that_comes_back_carries_its_chunks_itself),
		CASE(an_impossible_count_is_refused_and_the_carrier_stays_the_callers),
		CASE(a_carrier_that_can_not_be_opened_stays_the_callers),
		CASE_NIC(a_carrier_from_before_a_revocation_is_refused),
		CASE_NIC(lanes_that_may_use_the_memory_are_fenced_and_lost),
		CASE_NIC(a_revocation_of_all_credits_concerns_every_nic_and_no_socket),
		CASE(the_copies_of_failed_comms_end_with_the_link),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
