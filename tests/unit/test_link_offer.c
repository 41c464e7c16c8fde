/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_link_offer.c - what a lane offers to a carrier of messages: WRITEs by a NIC where both ends'
 * memory allows it, and messages without a header where the peer can tell what it said.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/link/lane_io.h"
#include "core/link/txq_int.h"
#include "core/msg/comm.h"

enum { RING = 4096, FRAMES = 16, SENDS = 8 };

static struct fixture {
	struct braid_link link;
	struct braid_lane lane;
	struct braid_xfer send[SENDS];
	atomic_bool done[SENDS];
	char data[RING];
} f;

static int setup(void **state)
{
	(void)state;
	memset(&f, 0, sizeof(f));
	f.lane.link = &f.link;
	braid_lock_wait(&f.link.lock);
	return braid_txq_init(&f.lane.tx, RING, FRAMES);
}

static int teardown(void **state)
{
	(void)state;
	braid_txq_fini(&f.lane.tx);
	return 0;
}

static struct braid_xfer *send_of(unsigned i, unsigned parts, unsigned comm)
{
	f.send[i] = (struct braid_xfer){ .comm = comm, .parts = parts, .done = &f.done[i] };
	return &f.send[i];
}

static const char text[] = "The quick brown fox";

/* Queues a message, copied into the ring. */
static void add(const char *copy, size_t len, struct braid_xfer *owner)
{
	struct braid_hdr h = { .type = BRAID_F_EAGER, .len = (uint32_t)len, .size = len };

	braid_tx_add(&f.lane, &h, copy, NULL, owner);
}

static void sent(size_t n)
{
	braid_tx_advance(&f.lane, n);
}

/* A START and chunks of a message of `size` bytes, which NICs may write into their place. */
static void add_placed(struct braid_mr *mr, uint32_t size, uint32_t chunk)
{
	struct braid_hdr h = { .type = BRAID_F_START, .size = size };
	struct braid_xfer *s = send_of(0, 2, 0);

	s->mr = mr;
	s->to = (struct braid_place){ .addr = 4096, .nkeys = 1, .key = { 7 } };
	braid_tx_add(&f.lane, &h, NULL, NULL, NULL);
	for (uint32_t at = 0; at < size; at += chunk) {
		h = (struct braid_hdr){
			.type = BRAID_F_CHUNK, .n = (uint16_t)(at / chunk), .offset = at,
			.len = size - at < chunk ? size - at : chunk, .size = size,
		};
		braid_tx_add(&f.lane, &h, NULL, f.data + at, s);
	}
}

/* The next piece for a carrier that takes WRITEs, with immediate data up to imm_max bytes. */
static struct braid_piece offered(uint32_t imm_max)
{
	struct braid_can can = {
		.max = RING, .payload_max = RING, .nohdr = true, .unacked_max = UINT32_MAX,
		.imm_max = imm_max, .put_max = SIZE_MAX,
	};
	struct braid_piece p;

	f.lane.tx.stamped = false;		/* as if nothing had been offered before */
	assert_int_equal(braid_lane_next(&f.lane, &can, &p), 1);
	return p;
}

static void a_piece_of_a_stream_has_no_more_bytes_than_the_carrier_takes(void **state)
{
	struct iovec iov[8];
	struct braid_can can = { .iov = iov, .niov = 8 };
	struct braid_piece p;

	(void)state;
	for (can.max = 1; can.max < 200; can.max++) {
		size_t len = 0;

		for (unsigned i = 0; i < 2; i++)
			add(text, sizeof(text), send_of(i, 1, 0));
		assert_int_equal(braid_lane_next(&f.lane, &can, &p), 1);
		for (int i = 0; i < p.niov; i++)
			len += iov[i].iov_len;
		assert_int_equal(len, p.len);
		assert_true(p.len && p.len <= can.max);
		teardown(state);
		braid_unlock(&f.link.lock);
		setup(state);
	}
}

static void a_start_is_written_with_the_first_chunk(void **state)
{
	struct braid_mr mr = { .key = { { .mr = &mr, .local = 5 } } };
	struct braid_piece put;

	(void)state;
	/* Immediate data has room for all of a message or for one chunk. */
	add_placed(&mr, 300, 200);
	assert_int_equal(offered(UINT32_MAX).kind, BRAID_PIECE_FRAMES);
	/* Headers may follow in a row. */
	put = offered(0);
	assert_int_equal(put.kind, BRAID_PIECE_PUT);
	assert_false(put.has_imm);
	assert_ptr_equal(put.hdrs, f.lane.tx.ring);
	assert_int_equal(put.hdrs_len, 2 * BRAID_HDR_SIZE);
	assert_int_equal(put.len, 200);
	sent(put.bytes);
	assert_int_equal(f.lane.tx.f_sent, 2);
	put = offered(0);
	assert_int_equal(put.kind, BRAID_PIECE_PUT);
	assert_int_equal(put.hdrs_len, BRAID_HDR_SIZE);
	assert_int_equal(put.to, 4096 + 200);
	sent(put.bytes);

	add_placed(&mr, 100, 200);
	put = offered(UINT32_MAX);
	assert_int_equal(put.kind, BRAID_PIECE_PUT);
	assert_true(put.has_imm);
	assert_int_equal(put.imm & 0xff, BRAID_IMM_WHOLE);
	sent(put.bytes);
	assert_int_equal(f.lane.tx.unsent, 0);
}

static void immediate_data_may_name_a_slot_in_place_of_a_receive(void **state)
{
	struct braid_mr mr = { .key = { { .mr = &mr, .local = 5 } } };
	struct braid_hdr h = { .type = BRAID_F_CHUNK, .comm = 3, .n = 255, .len = 50 };
	struct braid_xfer *s = send_of(0, 2, 0);

	(void)state;
	s->mr = &mr;
	s->to = (struct braid_place){ .addr = 4096, .nkeys = 1, .key = { 7 } };
	braid_tx_add(&f.lane, &h, NULL, f.data, s);
	s->imm = BRAID_XFER_BY_HDR;
	assert_false(offered(UINT32_MAX).has_imm);
	s->imm = BRAID_XFER_BY_SLOT;
	s->slot = 63;
	s->slot_turn = 127;
	assert_false(offered(49).has_imm);
	assert_true(offered(50).has_imm);
	assert_int_equal(offered(50).imm, 3 << 16 | 63 << 8 | 127);
}

/* The ring ends behind the START: its header and the chunk's are not in a row. */
static void a_start_at_the_end_of_the_ring_goes_alone(void **state)
{
	struct braid_mr mr = { .key = { { .mr = &mr, .local = 5 } } };

	(void)state;
	add(f.data, RING - 2 * BRAID_HDR_SIZE - 16, NULL);
	sent(f.lane.tx.unsent);
	assert_int_equal(braid_tx_acked(&f.lane, 1), 0);
	add_placed(&mr, 100, 200);
	assert_int_equal(f.lane.tx.f[2].off, 0);
	assert_int_equal(offered(0).kind, BRAID_PIECE_FRAMES);
	assert_int_equal(offered(UINT32_MAX).kind, BRAID_PIECE_PUT);
}

static bool goes_without_its_header(void)
{
	return offered(0).kind == BRAID_PIECE_NOHDR;
}

/* Else its payload would be the next piece, before it is copied to where the carrier can read it. */
static void a_header_waits_until_its_payload_is_out_of_the_gpu(void **state)
{
	struct braid_can can = { .max = RING, .payload_max = RING, .head_last = true };
	struct braid_mr mr = { .gpu = true };
	struct braid_piece p;

	(void)state;
	add_placed(&mr, 100, 100);
	assert_int_equal(braid_lane_next(&f.lane, &can, &p), 1);
	assert_int_equal(p.kind, BRAID_PIECE_FRAMES);
	assert_int_equal(p.len, BRAID_HDR_SIZE);
	can.gpu = true;
	assert_int_equal(braid_lane_next(&f.lane, &can, &p), 1);
	assert_int_equal(p.len, 2 * BRAID_HDR_SIZE);
	mr.gpu = can.gpu = false;
	assert_int_equal(braid_lane_next(&f.lane, &can, &p), 1);
	assert_int_equal(p.len, 2 * BRAID_HDR_SIZE);
}

static void a_header_may_be_omitted_where_the_peer_knows_its_fields(void **state)
{
	struct braid_xfer *s = send_of(0, 1, 1);

	(void)state;
	s->comm = 0xfffe;
	s->seq = 0x10007;
	s->same_tag = true;
	add(text, 11, s);
	assert_true(goes_without_its_header());
	assert_int_equal(offered(0).imm, 0xfffe0007);
	s->same_tag = false;
	assert_false(goes_without_its_header());
	s->same_tag = true;
	s->comm = 0x10000;
	assert_false(goes_without_its_header());
	s->comm = 1;
	f.lane.rx_frames = 1;
	f.lane.rx_quiet = BRAID_ACK_BYTES;
	assert_false(goes_without_its_header());
	assert_int_equal(f.lane.rx_quiet, 0);
	assert_true(goes_without_its_header());
	/* It is not known any more which frames will be sent again. */
	sent(f.lane.tx.unsent);
	assert_int_equal(braid_tx_rewind(&f.lane, 0), 0);
	assert_false(goes_without_its_header());
}

/* The acknowledgement in a header that was offered counts as sent. */
static void a_header_that_acknowledges_stays_until_it_is_sent(void **state)
{
	struct braid_can can = { .max = RING, .nohdr = true, .unacked_max = 1 };
	struct braid_xfer *s = send_of(0, 1, 1);
	struct braid_piece p;

	(void)state;
	s->same_tag = true;
	f.lane.rx_frames = 1;
	add(text, 11, s);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(braid_lane_next(&f.lane, &can, &p), 1);
		assert_int_equal(p.kind, BRAID_PIECE_FRAMES);
	}
	sent(p.bytes);
	s = send_of(1, 1, 1);
	s->same_tag = true;
	add(text, 11, s);
	assert_int_equal(braid_lane_next(&f.lane, &can, &p), 1);
	assert_int_equal(p.kind, BRAID_PIECE_NOHDR);
	sent(p.bytes);
	assert_int_equal(braid_lane_next(&f.lane, &can, &p), 0);
}

/* For a certain receive; nothing at all; not in the ring; no message. */
static void other_frames_go_with_their_headers(void **state)
{
	const struct braid_hdr rows[] = {
		{ .type = BRAID_F_EAGER, .flags = BRAID_FLAG_CREDITED, .len = 5, .size = 5 },
		{ .type = BRAID_F_EAGER },
		{ .type = BRAID_F_EAGER, .len = 6, .size = 6 },
		{ .type = BRAID_F_WANT, .size = 1 << 20 },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct braid_xfer *s = send_of(i, 1, 0);
		struct braid_hdr h = rows[i];

		s->same_tag = true;
		braid_tx_add(&f.lane, &h, i ? NULL : text, i == 2 ? text : NULL, s);
		assert_false(goes_without_its_header());
		sent(f.lane.tx.unsent);
	}
	add(text, 5, NULL);
	assert_false(goes_without_its_header());
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		CASE(a_piece_of_a_stream_has_no_more_bytes_than_the_carrier_takes),
		CASE(a_start_is_written_with_the_first_chunk),
		CASE(immediate_data_may_name_a_slot_in_place_of_a_receive),
		CASE(a_start_at_the_end_of_the_ring_goes_alone),
		CASE(a_header_waits_until_its_payload_is_out_of_the_gpu),
		CASE(a_header_may_be_omitted_where_the_peer_knows_its_fields),
		CASE(a_header_that_acknowledges_stays_until_it_is_sent),
		CASE(other_frames_go_with_their_headers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
