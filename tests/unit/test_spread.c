/* SPDX-License-Identifier: BSD-3-Clause */
/* test_spread.c - into how many chunks a message is cut, and which lane carries which. */
#include "tests/unit/stub.h"

#include <errno.h>
#include <string.h>

#include "core/base/param.h"
#include "core/link/lane_io.h"
#include "core/link/link.h"

enum { K = 1024, CHUNK = 128 * K };

static struct stub_send a, b;

static void start(unsigned lanes)
{
	braid_param.chunk = CHUNK;
	stub_up(&stub_socket, lanes);
}

static int setup(void **state)
{
	(void)state;
	start(3);
	return 0;
}

static int setup_single(void **state)
{
	(void)state;
	start(1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	stub_down();
	return 0;
}

static void feed(void)
{
	stub_lock();
	braid_hint(&stub.link->tx.stalled, false);
	braid_link_feed(stub.link);
	stub_unlock();
}

/* Chunks that the lane has sent; other frames are skipped. */
static unsigned chunks_on(unsigned lane)
{
	struct braid_hdr h;
	unsigned n = 0;

	while (stub_sent(lane, &h))
		n += h.type == BRAID_F_CHUNK;
	return n;
}

static void acknowledge(unsigned lane)
{
	stub_lock();
	assert_int_equal(braid_tx_acked(stub_at(lane), stub_at(lane)->tx.f_sent), 0);
	stub_unlock();
}

static void acknowledge_all(void)
{
	for (unsigned i = 0; i < stub.link->nlanes; i++)
		acknowledge(i);
}

/* --- the size of a chunk ------------------------------------------------------------------- */

static uint32_t chunk_len(uint64_t size)
{
	uint32_t len;

	stub_lock();
	len = braid_link_chunk_len(stub.link, size);
	stub_unlock();
	return len;
}

static void one_lane_gets_chunks_of_the_size_that_the_parameter_names(void **state)
{
	(void)state;
	assert_int_equal(chunk_len(1), CHUNK);
	assert_int_equal(chunk_len(CHUNK + 1), CHUNK);
	assert_int_equal(chunk_len(200 * CHUNK), CHUNK);
}

static void a_message_has_at_most_256_chunks_that_split_no_line(void **state)
{
	(void)state;
	for (uint64_t size = 256ull * CHUNK; size < 1ull << 38; size = size * 3 / 2 + 1) {
		uint64_t len = chunk_len(size);

		assert_true(len >= CHUNK && len * BRAID_CHUNKS_MAX >= size);
		assert_int_equal(len % BRAID_CHUNK_ALIGN, 0);
	}
}

static void several_lanes_get_two_chunks_each_but_no_small_ones(void **state)
{
	(void)state;
	assert_int_equal(chunk_len(1), 32 * K);
	assert_int_equal(chunk_len(6 * 40 * K), 40 * K);
	assert_int_equal(chunk_len(6 * 40 * K + 6), 40 * K + BRAID_CHUNK_ALIGN);
	assert_int_equal(chunk_len(6 * CHUNK), CHUNK);
	assert_int_equal(chunk_len(60 * CHUNK), CHUNK);
	stub.link->lanes.active = 2;			/* the third lane carries none now */
	assert_int_equal(chunk_len(4 * 40 * K), 40 * K);
}

/* A NIC is as fast with one queue pair as with several. */
static void nics_share_a_message_by_the_path_not_by_the_lane(void **state)
{
	(void)state;
	stub_down();
	braid_param.chunk = CHUNK;
	stub_up(&stub_nic, 4);
	stub.link->npaths = 1;
	assert_int_equal(chunk_len(4 * 40 * K), CHUNK);
	stub.link->npaths = 2;
	assert_int_equal(chunk_len(4 * 40 * K), 40 * K);
}

/* --- which lane ---------------------------------------------------------------------------- */

static void the_chunks_of_a_message_go_to_all_lanes_and_its_start_to_home(void **state)
{
	(void)state;
	stub_send(&a, 6, 1000);
	assert_true(stub.link->tx.stalled);	/* a later call sends it */
	feed();
	stub_expect(0, BRAID_F_START);
	assert_int_equal(chunks_on(0), 2);
	assert_int_equal(chunks_on(1), 2);
	assert_int_equal(chunks_on(2), 2);
	assert_false(stub.link->tx.stalled);
	assert_false(atomic_load(&a.done));
	acknowledge_all();
	assert_true(atomic_load(&a.done));
}

static void one_lane_takes_chunks_in_order_of_the_messages(void **state)
{
	struct braid_hdr h;

	(void)state;
	stub_send(&a, 2, 1000);
	stub_send(&b, 1, 2000);
	feed();
	stub_expect(0, BRAID_F_START);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(stub_expect(0, BRAID_F_CHUNK).len, 1000);
	stub_expect(0, BRAID_F_START);
	assert_int_equal(stub_expect(0, BRAID_F_CHUNK).len, 2000);
	assert_false(stub_sent(0, &h));
	assert_int_equal(stub.lane[0].pushes, 1);	/* one call of the kernel for all */
}

static void a_single_lane_takes_several_chunks_but_not_all_of_a_large_message(void **state)
{
	(void)state;
	stub.lane[0].takes = 0;
	stub_send(&a, 100, CHUNK);
	feed();
	assert_true(stub_at(0)->tx.unsent >= 2 * CHUNK);
	assert_true(stub_at(0)->tx.unsent <= 4 * CHUNK);
	assert_true(stub.link->tx.stalled);
}

static void lanes_that_are_full_get_nothing_and_that_is_counted(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++)
		stub_at(i)->blocked = true;
	stub_send(&a, 1, 1000);
	feed();
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(chunks_on(i), 0);
	assert_int_equal(stub.link->tx.starved, 1);
	assert_true(stub.link->tx.stalled);
	stub_at(1)->blocked = false;
	feed();
	assert_int_equal(chunks_on(1), 1);
	assert_int_equal(stub.link->tx.starved, 1);
	assert_false(stub.link->tx.stalled);
}

static void a_lane_that_is_down_gets_nothing(void **state)
{
	(void)state;
	atomic_store(&stub_at(1)->up, false);
	stub.link->lanes.ndown = 1;
	stub_send(&a, 6, 1000);
	feed();
	assert_int_equal(chunks_on(0), 3);
	assert_int_equal(chunks_on(1), 0);
	assert_int_equal(chunks_on(2), 3);
}

static void lanes_that_are_not_active_carry_chunks_only_while_one_is_down(void **state)
{
	(void)state;
	stub.link->lanes.active = 2;
	stub_send(&a, 4, 1000);
	feed();
	assert_int_equal(chunks_on(0), 2);
	assert_int_equal(chunks_on(1), 2);
	assert_int_equal(chunks_on(2), 0);
	acknowledge_all();
	atomic_store(&stub_at(1)->up, false);
	stub.link->lanes.ndown = 1;
	stub_send(&a, 4, 1000);
	feed();
	assert_int_equal(chunks_on(0), 2);
	assert_int_equal(chunks_on(1), 0);
	assert_int_equal(chunks_on(2), 2);
}

static void a_lane_has_no_more_in_flight_than_its_limit(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 3; i++)
		stub_at(i)->flight_max = 1500;
	stub_send(&a, 8, 1000);
	feed();
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(chunks_on(i), 2);	/* the second began below it */
	acknowledge(2);
	feed();
	assert_int_equal(chunks_on(0) + chunks_on(1), 0);
	assert_int_equal(chunks_on(2), 2);
}

static void of_several_lanes_one_gets_a_chunk_once_all_before_it_has_left(void **state)
{
	(void)state;
	stub_add_chunk(1, 10, NULL);
	stub_send(&a, 6, 1000);
	feed();
	assert_int_equal(stub.lane[1].pushes, 0);
	assert_int_equal(stub_at(1)->tx.f_head, 1);
	assert_int_equal(chunks_on(0), 3);
	assert_int_equal(chunks_on(2), 3);
}

/* Nanoseconds a byte, as measured. */
static void speeds(double first, double second, double third)
{
	stub_at(0)->tx.ns_per_byte = first;
	stub_at(1)->tx.ns_per_byte = second;
	stub_at(2)->tx.ns_per_byte = third;
}

static void the_lane_on_which_a_chunk_arrives_first_gets_it(void **state)
{
	(void)state;
	speeds(4, 1, 2);
	stub_send(&a, 1, 32 * K);
	feed();
	assert_int_equal(chunks_on(1), 1);
	stub_send(&a, 1, 32 * K);		/* now there is as much before it as on the third */
	feed();
	stub_send(&b, 1, 32 * K);
	feed();
	assert_int_equal(chunks_on(1) + chunks_on(2), 2);
	assert_int_equal(chunks_on(0), 0);
}

static void a_start_leaves_before_the_first_chunk_on_another_lane(void **state)
{
	(void)state;
	speeds(4, 1, 4);
	stub_send(&a, 1, 1000);
	feed();
	stub_expect(0, BRAID_F_START);
	assert_int_equal(chunks_on(1), 1);
	assert_int_equal(stub.norder, 2);
	assert_int_equal(stub.order[0], 0);
	assert_int_equal(stub.order[1], 1);
}

static void a_chunk_waits_for_a_lane_that_is_much_faster(void **state)
{
	(void)state;
	speeds(8, 1, 8);
	stub_at(1)->blocked = true;
	stub_send(&a, 1, 1000);
	feed();
	assert_int_equal(chunks_on(0) + chunks_on(1) + chunks_on(2), 0);
	assert_true(stub.link->tx.stalled);
	stub_at(1)->blocked = false;
	feed();
	assert_int_equal(chunks_on(1), 1);
}

static void a_chunk_does_not_wait_for_a_lane_that_is_little_faster(void **state)
{
	(void)state;
	speeds(3, 2, 30);
	stub_at(1)->blocked = true;
	stub_send(&a, 1, 1000);
	feed();
	assert_int_equal(chunks_on(0), 1);
}

static void one_call_sends_no_more_than_its_budget(void **state)
{
	unsigned n;

	(void)state;
	stub_send(&a, 100, STUB_PAYLOAD);
	feed();
	n = chunks_on(0) + chunks_on(1) + chunks_on(2);
	assert_true(n >= BRAID_CALL_BUDGET / STUB_PAYLOAD);
	assert_true(n <= 1 + BRAID_CALL_BUDGET / STUB_PAYLOAD);
	assert_true(stub.link->tx.stalled);
}

/* --- the chunks of a lane that is closed at both ends -------------------------------------- */

static void orphan(unsigned lane)
{
	atomic_store(&stub_at(lane)->up, false);
	stub_at(lane)->loss.orphaned = true;
	stub.link->lanes.ndown = stub.link->lanes.norphaned = 1;
}

static void chunks_of_a_closed_lane_go_first_and_over_other_lanes(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		stub_add_chunk(1, 500 + i, NULL);
	orphan(1);
	stub_at(0)->blocked = true;
	stub_send(&a, 1, 1000);
	feed();
	for (uint32_t i = 3; i--; )
		assert_int_equal(stub_expect(2, BRAID_F_CHUNK).len, 500 + i);
	assert_int_equal(stub_at(1)->tx.unacked, 0);
	assert_int_equal(stub.lane[1].pushes, 0);
	assert_int_equal(stub_expect(2, BRAID_F_CHUNK).len, 1000);
}

static void one_call_moves_no_more_of_them_than_its_budget_and_cuts_nothing_else(void **state)
{
	enum { CHUNKS = 20 };
	unsigned n;

	(void)state;
	for (unsigned i = 0; i < CHUNKS; i++)
		stub_add_chunk(1, STUB_PAYLOAD / 2, NULL);
	orphan(1);
	stub_send(&a, 1, 1000);
	feed();
	n = chunks_on(0) + chunks_on(2);
	assert_true(n >= 2 * BRAID_CALL_BUDGET / STUB_PAYLOAD);
	assert_true(n <= 1 + 2 * BRAID_CALL_BUDGET / STUB_PAYLOAD);
	assert_int_equal(stub_at(1)->tx.f_head, CHUNKS - n);
	assert_int_equal(a.left, 1);
	assert_true(stub.link->tx.stalled);
}

static void they_wait_for_a_lane_that_takes_more(void **state)
{
	(void)state;
	stub_add_chunk(1, 500, NULL);
	orphan(1);
	stub_at(0)->blocked = stub_at(2)->blocked = true;
	feed();
	assert_int_equal(stub_at(1)->tx.unacked, 500);
	assert_true(stub.link->tx.stalled);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define CASE_SINGLE(f) cmocka_unit_test_setup_teardown(f, setup_single, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE_SINGLE(one_lane_gets_chunks_of_the_size_that_the_parameter_names),
		CASE_SINGLE(a_message_has_at_most_256_chunks_that_split_no_line),
		CASE(several_lanes_get_two_chunks_each_but_no_small_ones),
		CASE(nics_share_a_message_by_the_path_not_by_the_lane),
		CASE(the_chunks_of_a_message_go_to_all_lanes_and_its_start_to_home),
		CASE_SINGLE(one_lane_takes_chunks_in_order_of_the_messages),
		CASE_SINGLE(a_single_lane_takes_several_chunks_but_not_all_of_a_large_message),
		CASE(lanes_that_are_full_get_nothing_and_that_is_counted),
		CASE(a_lane_that_is_down_gets_nothing),
		CASE(lanes_that_are_not_active_carry_chunks_only_while_one_is_down),
		CASE(a_lane_has_no_more_in_flight_than_its_limit),
		CASE(of_several_lanes_one_gets_a_chunk_once_all_before_it_has_left),
		CASE(the_lane_on_which_a_chunk_arrives_first_gets_it),
		CASE(a_start_leaves_before_the_first_chunk_on_another_lane),
		CASE(a_chunk_waits_for_a_lane_that_is_much_faster),
		CASE(a_chunk_does_not_wait_for_a_lane_that_is_little_faster),
		CASE(one_call_sends_no_more_than_its_budget),
		CASE(chunks_of_a_closed_lane_go_first_and_over_other_lanes),
		CASE(one_call_moves_no_more_of_them_than_its_budget_and_cuts_nothing_else),
		CASE(they_wait_for_a_lane_that_takes_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
