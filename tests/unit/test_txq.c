/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_txq.c - the queue of frames of one lane, by itself: it hands out exactly what was queued,
 * however little the wire takes at a time; sends are done when they may be; no frame of the peer can
 * harm it.
 */
#include "tests/unit/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/link/txq_int.h"
#include "core/transport.h"
#include "tests/lib/pair.h"

static void frames_leave_whole_and_in_order(void **state)
{
	(void)state;
	five_frames();
	assert_int_equal(f.lane.tx.unsent, f.nwant);
	while (move(SIZE_MAX, IOV, SIZE_MAX / 2))
		;
	assert_stream();
	assert_int_equal(f.lane.tx.unsent, 0);
	assert_int_equal(f.lane.tx.f_sent, 6);
}

static void the_wire_may_stop_at_any_byte(void **state)
{
	size_t all;

	five_frames();
	all = f.nwant;
	for (size_t step = 1; step <= all; step++) {
		teardown(state);
		setup(state);
		five_frames();
		while (move(step, IOV, SIZE_MAX / 2))
			;
		assert_stream();
	}
}

static void a_budget_and_a_short_list_are_kept(void **state)
{
	for (size_t budget = 1; budget < 200; budget += 7) {
		for (int max = 2; max < 8; max++) {
			size_t n;

			teardown(state);
			setup(state);
			five_frames();
			/* It exceeds the budget by at most a header and the bytes copied behind it. */
			while ((n = move(SIZE_MAX, max, budget)))
				assert_true(n < budget + BRAID_HDR_SIZE + sizeof(text));
			assert_stream();
		}
	}
}

static void a_copied_send_is_done_when_handed_over_any_other_when_acknowledged(void **state)
{
	(void)state;
	five_frames();
	move(BRAID_HDR_SIZE + BRAID_HDR_SIZE + 10, IOV, SIZE_MAX / 2);
	assert_false(is_done(0));
	move(1, IOV, SIZE_MAX / 2);
	assert_true(is_done(0));
	while (move(SIZE_MAX, IOV, SIZE_MAX / 2))
		;
	assert_false(is_done(1));
	assert_true(is_done(2) && is_done(3));
	assert_false(is_done(4));
	assert_int_equal(braid_tx_acked(&f.lane, 2), 0);
	assert_false(is_done(1));
	assert_int_equal(braid_tx_acked(&f.lane, 3), 0);
	assert_true(is_done(1));
	assert_false(is_done(4));
	assert_int_equal(f.lane.tx.unacked, 1);
	assert_int_equal(braid_tx_acked(&f.lane, 6), 0);
	assert_true(is_done(4));
	assert_true(braid_txq_idle(&f.lane.tx));
	assert_int_equal(f.lane.tx.unacked, 0);
	assert_int_equal(f.link.tx.acked_bytes, 51);
}

static void a_send_of_many_parts_is_done_with_the_last(void **state)
{
	struct braid_xfer *s = send_of(0, 3, 0);

	(void)state;
	for (int i = 0; i < 3; i++)
		add(NULL, text, 20, s);
	while (move(SIZE_MAX, IOV, SIZE_MAX / 2))
		;
	for (uint32_t i = 1; i <= 3; i++) {
		assert_false(is_done(0));
		assert_int_equal(braid_tx_acked(&f.lane, i), 0);
	}
	assert_true(is_done(0));
}

static void an_acknowledgement_of_what_was_never_queued_is_refused(void **state)
{
	(void)state;
	five_frames();
	while (move(SIZE_MAX, IOV, SIZE_MAX / 2))
		;
	assert_int_equal(braid_tx_acked(&f.lane, 7), -EPROTO);
	assert_int_equal(braid_tx_acked(&f.lane, 0x7fffffff), -EPROTO);
	assert_int_equal(f.lane.tx.f_acked, 0);
	assert_int_equal(braid_tx_acked(&f.lane, 0x80000001), 0);	/* seems an old one */
	assert_int_equal(f.lane.tx.f_acked, 0);
	assert_int_equal(braid_tx_acked(&f.lane, 4), 0);
	assert_int_equal(braid_tx_acked(&f.lane, 3), 0);	/* overtaken by a later one */
	assert_int_equal(f.lane.tx.f_acked, 4);
	assert_int_equal(braid_tx_acked(&f.lane, 7), -EPROTO);
}

/* The receiver may be quicker than the return of our system call. */
static void an_acknowledgement_may_come_before_the_system_call_returns(void **state)
{
	struct iovec iov[IOV];

	(void)state;
	add(NULL, text, 30, send_of(0, 1, 0));
	add(NULL, text, 30, send_of(1, 1, 0));
	gather(iov, IOV, SIZE_MAX / 2);
	assert_int_equal(braid_tx_acked(&f.lane, 1), 0);
	assert_false(is_done(0));		/* the kernel may still be reading it */
	assert_int_equal(f.lane.tx.f_acked, 0);
	braid_tx_advance(&f.lane, BRAID_HDR_SIZE + 30);
	assert_true(is_done(0));
	assert_int_equal(braid_tx_acked(&f.lane, 2), 0);
	braid_tx_advance(&f.lane, BRAID_HDR_SIZE + 29);
	assert_false(is_done(1));
	braid_tx_advance(&f.lane, 1);
	assert_true(is_done(1));
	assert_true(braid_txq_idle(&f.lane.tx));
}

static void counts_may_wrap(void **state)
{
	(void)state;
	f.lane.tx.f_head = f.lane.tx.f_sent = f.lane.tx.f_acked = f.lane.tx.f_peer_acked = 0xfffffffd;
	five_frames();
	while (move(SIZE_MAX, IOV, SIZE_MAX / 2))
		;
	assert_stream();
	assert_int_equal(f.lane.tx.f_head, 3);
	assert_int_equal(braid_tx_acked(&f.lane, 4), -EPROTO);
	assert_int_equal(braid_tx_acked(&f.lane, 0), 0);
	assert_true(is_done(1));
	assert_false(is_done(4));
	assert_int_equal(braid_tx_acked(&f.lane, 0xfffffffe), 0);
	assert_int_equal(braid_tx_acked(&f.lane, 3), 0);
	assert_true(is_done(4));
}

static void the_newest_count_of_what_we_received_rides_on_the_first_frame(void **state)
{
	struct iovec iov[IOV];
	struct braid_hdr h;

	(void)state;
	f.lane.rx_frames = 5;
	add(NULL, NULL, 0, NULL);
	add(NULL, NULL, 0, NULL);
	f.lane.rx_frames = 9;
	f.lane.rx_some = true;
	gather(iov, IOV, SIZE_MAX / 2);
	assert_int_equal(braid_hdr_unpack(iov[0].iov_base, &h), 0);
	assert_int_equal(h.ack, 9);
	assert_int_equal(f.lane.rx_acked, 9);
	assert_false(f.lane.rx_some);
	/* A header of which part has left must not change any more. */
	braid_tx_advance(&f.lane, 3);
	f.lane.rx_frames = 10;
	f.lane.rx_some = true;
	gather(iov, 2, BRAID_HDR_SIZE - 3);
	assert_int_equal(f.lane.rx_acked == 10, !f.lane.rx_some);
	assert_int_equal(*((uint8_t *)iov[0].iov_base + 1), 9);
}

/* --- room ---------------------------------------------------------------------------------- */

static void room_ends_with_the_frames_or_the_ring(void **state)
{
	unsigned n = 0;

	(void)state;
	while (braid_txq_room(&f.lane.tx, 0)) {
		add(NULL, NULL, 0, NULL);
		n++;
	}
	assert_int_equal(n, FRAMES);
	assert_false(braid_txq_room_ctl(&f.lane.tx));
	while (move(SIZE_MAX, IOV, SIZE_MAX / 2))
		;
	assert_false(braid_txq_room(&f.lane.tx, 0));
	assert_int_equal(braid_tx_acked(&f.lane, 1), 0);
	assert_true(braid_txq_room(&f.lane.tx, 0));
	assert_int_equal(braid_tx_acked(&f.lane, FRAMES), 0);
	assert_true(braid_txq_room(&f.lane.tx, RING / 2 - BRAID_HDR_SIZE));	/* wherever it is */
	assert_false(braid_txq_room(&f.lane.tx, RING - BRAID_HDR_SIZE + 1));
}

static void a_queue_without_memory_has_no_room(void **state)
{
	struct braid_txq q = { 0 };

	(void)state;
	assert_false(braid_txq_room(&q, 0));
	assert_false(braid_txq_room_ctl(&q));
	assert_true(braid_txq_idle(&q));
	braid_txq_fini(&q);
	braid_txq_fini(&q);
}

/* Data may not take the ring's last places, which are for control frames, as on the home lane. */
static void data_leaves_room_for_control_frames(void **state)
{
	unsigned data = 0, ctl = 0;

	teardown(state);
	assert_int_equal(braid_txq_init(&f.lane.tx, 256 << 10, 1024), 0);
	while (braid_txq_room(&f.lane.tx, 0)) {
		add(NULL, NULL, 0, NULL);
		data++;
	}
	assert_true(braid_txq_room_ctl(&f.lane.tx));
	while (braid_txq_room_ctl(&f.lane.tx)) {
		add(NULL, NULL, 0, NULL);
		ctl++;
	}
	assert_int_equal(data + ctl, 1024);
	assert_int_equal(ctl, 64);
}

/* The ring wraps at every place, with frames of every size, and no byte is lost or overwritten. */
static void the_ring_wraps_anywhere(void **state)
{
	struct null_rnd r = { 12345 };
	char payload[1024];
	uint32_t told = 0;
	size_t seen = 0;

	(void)state;
	for (unsigned i = 0; i < 60000; i++) {
		size_t len = null_below(&r, i % 7 ? 60 : 1000);
		bool ext = null_below(&r, 5) == 0;

		if (f.nwant > STREAM_MAX - 2000) {	/* what was compared may be forgotten */
			assert_memory_equal(f.got + seen, f.want + seen, f.ngot - seen);
			memmove(f.want, f.want + f.ngot, f.nwant - f.ngot);
			f.nwant -= f.ngot;
			f.ngot = seen = 0;
		}
		if (braid_txq_room(&f.lane.tx, ext ? 0 : len)) {
			for (size_t k = 0; k < len; k++)
				payload[k] = (char)(i + k);
			/* Not copied: from a place that stays. */
			add(ext || !len ? NULL : payload, ext ? text : NULL,
			    ext ? len % sizeof(text) : len, NULL);
		}
		if (null_below(&r, 3))
			move(null_below(&r, 700), 2 + (int)null_below(&r, 20), SIZE_MAX / 2);
		if (null_below(&r, 3) == 0) {
			told += (uint32_t)null_below(&r, f.lane.tx.f_sent - told + 1);
			assert_int_equal(braid_tx_acked(&f.lane, told), 0);
		}
		assert_true(f.lane.tx.head - f.lane.tx.tail <= RING);
	}
	while (move(SIZE_MAX, IOV, SIZE_MAX / 2))
		;
	assert_stream();
	assert_int_equal(braid_tx_acked(&f.lane, f.lane.tx.f_head), 0);
	assert_true(f.lane.tx.head == f.lane.tx.tail);
}

/* --- a payload that leaves before its frame ------------------------------------------------ */

static struct {
	char payload[64];
	uint32_t imm, len;
	unsigned calls;
	int err;
} posted;

static int post(struct braid_lane *lane, uint32_t imm, const char *payload, uint32_t len)
{
	uint32_t said;

	assert_ptr_equal(lane, &f.lane);
	posted.calls++;
	if (posted.err)
		return posted.err;
	posted.imm = imm;
	posted.len = len;
	memcpy(posted.payload, payload, len);
	assert_true(braid_short_unpack(payload - BRAID_SHORT_SIZE, BRAID_SHORT_SIZE + len, &said));
	assert_int_equal(said, imm);
	return 0;
}

static const struct braid_transport posts = { .name = "posts", .post = post };

static bool lead(uint32_t id)
{
	return braid_tx_fast_send(&f.lane, id, 0x12345, text, 20);
}

static void setup_lead(void)
{
	memset(&posted, 0, sizeof(posted));
	f.lane.tr = &posts;
	atomic_store(&f.lane.up, true);
}

static void a_frame_that_left_first_is_replayed_like_any_other(void **state)
{
	size_t kept;

	(void)state;
	setup_lead();
	while (f.lane.tx.head < RING - 3 * (BRAID_HDR_SIZE + 20)) {
		add(text, NULL, 20, NULL);
		move(SIZE_MAX, IOV, SIZE_MAX / 2);
		assert_int_equal(braid_tx_acked(&f.lane, f.lane.tx.f_head), 0);
	}
	kept = f.ngot;
	add(text, NULL, 11, send_of(0, 1, 0));
	move(SIZE_MAX, IOV, SIZE_MAX / 2);
	for (unsigned i = 1; i < SENDS; i++) {		/* the ring goes round in between */
		assert_true(lead(7));
		assert_int_equal(posted.imm, 7 << 16 | 0x2345);
		assert_int_equal(posted.len, 20);
		assert_memory_equal(posted.payload, text, 20);
		add(text, NULL, 20, send_of(i, 1, 0));
		assert_true(is_done(i));
		assert_int_equal(f.lane.tx.unsent, 0);
		assert_int_equal(f.lane.tx.f_sent, f.lane.tx.f_head);
	}
	add(text, NULL, 30, NULL);			/* as any other again */
	assert_int_equal(f.lane.tx.unsent, BRAID_HDR_SIZE + 30);
	assert_true(f.lane.tx.head > RING);
	assert_int_equal(braid_tx_rewind(&f.lane, f.lane.tx.f_acked), 0);
	f.ngot = kept;
	while (move(SIZE_MAX, IOV, SIZE_MAX / 2))
		;
	assert_stream();
}

static void nothing_leaves_first_that_may_not(void **state)
{
	(void)state;
	assert_true(!f.lane.tr);
	setup_lead();
	atomic_store(&f.lane.up, false);
	assert_false(lead(7));
	atomic_store(&f.lane.up, true);
	f.lane.pushing = true;				/* another thread sends, without the lock */
	assert_false(lead(7));
	f.lane.pushing = false;
	f.lane.rx_quiet = BRAID_ACK_BYTES;		/* a header is due */
	assert_false(lead(7));
	f.lane.rx_quiet = 0;
	assert_false(lead(UINT16_MAX + 1));
	add(text, NULL, 11, NULL);			/* the header leaves first */
	assert_false(lead(7));
	move(BRAID_HDR_SIZE, IOV, SIZE_MAX / 2);
	assert_false(lead(7));
	move(SIZE_MAX, IOV, SIZE_MAX / 2);
	assert_int_equal(posted.calls, 0);
	posted.err = -EAGAIN;				/* the wire does not take it */
	assert_false(lead(7));
	assert_int_equal(posted.calls, 1);
	add(text, NULL, 20, send_of(0, 1, 0));
	assert_int_equal(f.lane.tx.unsent, BRAID_HDR_SIZE + 20);
	assert_false(is_done(0));
	move(SIZE_MAX, IOV, SIZE_MAX / 2);
	assert_true(is_done(0));
	assert_stream();
}

/* --- a queue is taken down ----------------------------------------------------------------- */

static void a_queue_taken_down_and_up_again_goes_on_counting(void **state)
{
	(void)state;
	five_frames();
	while (move(SIZE_MAX, IOV, SIZE_MAX / 2))
		;
	assert_int_equal(braid_tx_acked(&f.lane, 6), 0);
	braid_txq_fini(&f.lane.tx);
	assert_int_equal(braid_tx_acked(&f.lane, 6), 0);
	assert_int_equal(braid_tx_acked(&f.lane, 7), -EPROTO);
	assert_int_equal(braid_txq_init(&f.lane.tx, RING, FRAMES), 0);
	five_frames();
	while (move(SIZE_MAX, IOV, SIZE_MAX / 2))
		;
	assert_stream();
	assert_int_equal(f.lane.tx.f_head, 12);
	assert_int_equal(braid_tx_acked(&f.lane, 12), 0);
	assert_true(braid_txq_idle(&f.lane.tx));
}

/* --- how fast a lane is -------------------------------------------------------------------- */

static uint64_t clock_ns;

static uint64_t os_now_ns(void)
{
	return clock_ns;
}

/* n frames of len bytes, each acknowledged ns after it was queued. */
static void carry(unsigned n, size_t len, uint64_t ns)
{
	static char bytes[1024];

	while (n--) {
		add(NULL, bytes, len, NULL);
		move(SIZE_MAX, IOV, 1 << 20);
		f.nwant = f.ngot = 0;
		clock_ns += ns;
		assert_int_equal(braid_tx_acked(&f.lane, f.lane.tx.f_head), 0);
	}
}

static void the_cost_of_a_lane_is_the_time_that_bytes_took_of_late(void **state)
{
	const struct braid_os *saved = braid_os;
	struct braid_os os = *braid_os;
	struct braid_txq *q = &f.lane.tx;

	(void)state;
	os.now_ns = os_now_ns;
	braid_os = &os;
	clock_ns = 1;
	carry(10, 1000, 100000);
	assert_true(q->ns_per_byte <= 0);		/* a single lane is not timed */
	atomic_store(&f.link.nlanes, 2);
	carry(1000, 1000, 100000);
	assert_true(q->ns_per_byte > 99 && q->ns_per_byte < 101);
	assert_true(braid_txq_cost(q, 500, 100) > 49e3 && braid_txq_cost(q, 500, 100) < 51e3);
	clock_ns += 3600ull * 1000000000;		/* idle time must not change the rate */
	carry(1, 1000, 100000);
	assert_true(q->ns_per_byte > 99 && q->ns_per_byte < 101);
	carry(2000, 1000, 1000000);			/* ten times slower now */
	assert_true(q->ns_per_byte > 990 && q->ns_per_byte < 1010);
	/* It is never believed to be hopeless. */
	assert_true(braid_txq_cost(q, 1000, 10) < 161e3);
	braid_os = saved;
}

/* Queue `n` payloads of that size, and hand them over. */
static void hand_over(unsigned n, size_t len)
{
	static char bytes[2 * BRAID_COPY_MAX];

	while (n--) {
		add(NULL, bytes, len, NULL);
		move(SIZE_MAX, IOV, 1 << 20);
		f.nwant = f.ngot = 0;
	}
}

static void one_large_frame_at_a_time_is_timed_until_it_is_acknowledged(void **state)
{
	const struct braid_os *saved = braid_os;
	struct braid_os os = *braid_os;
	struct braid_hist h;
	uint32_t first;

	(void)state;
	os.now_ns = os_now_ns;
	braid_os = &os;
	clock_ns = 1000;
	hand_over(1, BRAID_COPY_MAX);		/* its acknowledgement may wait for another frame */
	assert_int_equal(f.lane.tx.one_ns, 0);
	first = f.lane.tx.f_head;
	hand_over(2, 2 * BRAID_COPY_MAX);
	clock_ns += 5000;
	assert_int_equal(braid_tx_acked(&f.lane, first), 0);
	braid_hist_read(&f.lane.acks, &h);
	assert_int_equal(h.count, 0);
	assert_int_equal(braid_tx_acked(&f.lane, first + 1), 0);
	clock_ns += 100;
	hand_over(1, 2 * BRAID_COPY_MAX);
	clock_ns += 200;
	assert_int_equal(braid_tx_acked(&f.lane, first + 3), 0);
	braid_hist_read(&f.lane.acks, &h);
	assert_int_equal(h.count, 2);
	assert_int_equal(h.max_ns, 5000);
	assert_int_equal(h.sum_ns, 5200);
	hand_over(1, 2 * BRAID_COPY_MAX);	/* sent again, over another carrier: not timed */
	assert_int_equal(braid_tx_rewind(&f.lane, first + 3), 0);
	move(SIZE_MAX, IOV, 1 << 20);
	clock_ns += 1000000;
	assert_int_equal(braid_tx_acked(&f.lane, first + 4), 0);
	braid_hist_read(&f.lane.acks, &h);
	assert_int_equal(h.count, 2);
	braid_hist_free(&f.lane.acks);
	braid_os = saved;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(frames_leave_whole_and_in_order),
		CASE(the_wire_may_stop_at_any_byte),
		CASE(a_budget_and_a_short_list_are_kept),
		CASE(a_copied_send_is_done_when_handed_over_any_other_when_acknowledged),
		CASE(a_send_of_many_parts_is_done_with_the_last),
		CASE(an_acknowledgement_of_what_was_never_queued_is_refused),
		CASE(an_acknowledgement_may_come_before_the_system_call_returns),
		CASE(counts_may_wrap),
		CASE(the_newest_count_of_what_we_received_rides_on_the_first_frame),
		CASE(room_ends_with_the_frames_or_the_ring),
		CASE(a_queue_without_memory_has_no_room),
		CASE(data_leaves_room_for_control_frames),
		CASE(the_ring_wraps_anywhere),
		CASE(a_frame_that_left_first_is_replayed_like_any_other),
		CASE(nothing_leaves_first_that_may_not),
		CASE(the_cost_of_a_lane_is_the_time_that_bytes_took_of_late),
		CASE(one_large_frame_at_a_time_is_timed_until_it_is_acknowledged),
		CASE(a_queue_taken_down_and_up_again_goes_on_counting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
