/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rx.c - receiving: frames in any pieces, what each does to the link, and what is refused. */
#include "tests/unit/stub.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/link/lane_io.h"
#include "core/link/link_int.h"

enum { LANES = 3, STREAM_MAX = 1024 };

static const struct braid_hdr alive = { .type = BRAID_F_ALIVE };
static const char text[] = "The quick brown fox jumps over the lazy dog.";

static int setup(void **state)
{
	(void)state;
	stub_up(&stub_socket, LANES);
	return 0;
}

static int setup_nic(void **state)
{
	(void)state;
	stub_up(&stub_nic, LANES);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	stub_down();
	return 0;
}

static struct braid_hdr eager(uint32_t len)
{
	return (struct braid_hdr){ .type = BRAID_F_EAGER, .comm = 5, .seq = 9, .len = len };
}

static void assert_broken(unsigned lane, int err, int want, const char *what)
{
	assert_int_equal(err, want);
	assert_string_equal(stub_at(lane)->rx_broken, what);
	stub_at(lane)->rx_broken = NULL;	/* the case goes on with it */
	stub_at(lane)->rx_kind = BRAID_RX_NONE;
}

/* --- a stream ------------------------------------------------------------------------------ */

static struct {
	char bytes[STREAM_MAX];
	size_t n;
} stream;

static void put(struct braid_hdr h, const char *payload)
{
	static uint32_t lseq;

	if (!stream.n)
		lseq = 0;
	h.lseq = lseq++;
	assert_true(stream.n + BRAID_HDR_SIZE + h.len <= STREAM_MAX);
	braid_hdr_pack(&h, stream.bytes + stream.n);
	if (h.len)
		memcpy(stream.bytes + stream.n + BRAID_HDR_SIZE, payload, h.len);
	stream.n += BRAID_HDR_SIZE + h.len;
}

static int take(const char *p, size_t n, size_t *ret_done)
{
	int err;

	stub_lock();
	err = braid_rx_bytes(stub_at(0), p, n, ret_done);
	stub_unlock();
	return err;
}

static void three_frames(void)
{
	stream.n = 0;
	put(eager(sizeof(text)), text);
	put(alive, NULL);
	put(eager(10), text + 4);
}

static void an_alive_may_announce_the_peers_cpu_time(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_ALIVE, .tag = BRAID_ALIVE_CPU, .seq = 5, .rseq = 7,
			       .n = 9 };
	uint32_t used = 1, queued = 1;
	size_t done;

	(void)state;
	stream.n = 0;
	put(alive, NULL);			/* an older peer's */
	assert_int_equal(take(stream.bytes, stream.n, &done), 0);
	assert_int_equal(braid_link_peer_cpu(stub_at(0)->link, &used, &queued), 0);
	stream.n = 0;
	put(alive, NULL);
	put(h, NULL);
	assert_int_equal(take(stream.bytes + BRAID_HDR_SIZE, BRAID_HDR_SIZE, &done), 0);
	assert_int_equal(braid_link_peer_cpu(stub_at(0)->link, &used, &queued), 1);
	assert_int_equal(used, 5);
	assert_int_equal(queued, 7);
}

static void frames_of_a_stream_may_come_in_any_pieces(void **state)
{
	three_frames();
	for (size_t step = 1; step <= stream.n; step++) {
		size_t have = 0, beg = 0, done;

		teardown(state);
		setup(state);
		while (beg < stream.n) {	/* what was not used comes again, with more */
			have = have + step < stream.n ? have + step : stream.n;
			assert_int_equal(take(stream.bytes + beg, have - beg, &done), 0);
			assert_true(have - beg - done < BRAID_HDR_SIZE);
			beg += done;
		}
		assert_int_equal(stub.begins, 2);
		assert_int_equal(stub.ends, 2);
		assert_memory_equal(stub.in, text + 4, 10);
		assert_memory_equal(stub.in + 10, text + 10, sizeof(text) - 10);
		assert_int_equal(stub_at(0)->rx_frames, 3);
		assert_int_equal(stub_at(0)->rx_bytes, stream.n);
		assert_int_equal(stub_at(0)->rx_left, 0);
	}
}

/* A message of its own brings the payload. */
static int placed(size_t n)
{
	size_t done;
	int err;

	if (!stub.begins) {
		three_frames();
		assert_int_equal(take(stream.bytes, BRAID_HDR_SIZE, &done), 0);
	}
	stub_lock();
	err = braid_rx_placed(stub_at(0), n);
	stub_unlock();
	return err;
}

static void a_message_may_be_the_rest_of_a_payload(void **state)
{
	(void)state;
	stub.end_err = -EAGAIN;			/* a GPU is busy */
	assert_int_equal(placed(sizeof(text)), -EAGAIN);
	assert_int_equal(placed(sizeof(text)), -EAGAIN);
	stub.end_err = 0;
	assert_int_equal(placed(sizeof(text)), 0);
	assert_int_equal(stub.ends, 3);
	assert_int_equal(stub_at(0)->rx_frames, 1);
	assert_int_equal(stub_at(0)->rx_bytes, BRAID_HDR_SIZE + sizeof(text));
}

static void a_message_of_another_length_than_the_rest_is_broken(void **state)
{
	(void)state;
	assert_broken(0, placed(sizeof(text) - 1), -EBADMSG, "payload");
	assert_int_equal(stub.ends, 0);
}

/* The carrier reads large payload into its place itself. */
static void the_carrier_may_put_payload_there_by_itself(void **state)
{
	struct braid_rx_rest rest;
	size_t done;

	(void)state;
	three_frames();
	assert_int_equal(take(stream.bytes, BRAID_HDR_SIZE + 7, &done), 0);
	rest = braid_rx_rest(stub_at(0));
	assert_ptr_equal(rest.dst, stub.in + 7);
	assert_int_equal(rest.len, sizeof(text) - 7);
	assert_int_equal(rest.comm, 5);
	assert_null(rest.gpu);
	memcpy(rest.dst, text + 7, rest.len);
	braid_rx_filled(stub_at(0), rest.dst, rest.len);
	assert_int_equal(stub.ends, 0);
	assert_int_equal(take(NULL, 0, &done), 0);
	assert_int_equal(stub.ends, 1);
	assert_memory_equal(stub.in, text, sizeof(text));
	assert_int_equal(stub_at(0)->rx_bytes, BRAID_HDR_SIZE + sizeof(text));
	assert_int_equal(braid_rx_rest(stub_at(0)).len, 0);
}

static void while_a_payload_is_copied_into_a_gpu_nothing_else_is_received(void **state)
{
	size_t done;

	(void)state;
	three_frames();
	stub.end_err = -EAGAIN;
	assert_int_equal(take(stream.bytes, stream.n, &done), -EAGAIN);
	assert_int_equal(done, BRAID_HDR_SIZE + sizeof(text));
	assert_int_equal(stub_at(0)->rx_frames, 0);
	assert_int_equal(take(NULL, 0, &done), -EAGAIN);
	stub.end_err = 0;
	assert_int_equal(take(stream.bytes + BRAID_HDR_SIZE + sizeof(text),
			      stream.n - BRAID_HDR_SIZE - sizeof(text), &done), 0);
	assert_int_equal(stub_at(0)->rx_frames, 3);
	assert_int_equal(stub.begins, 2);
}

static void after_a_large_payload_the_next_may_be_large_too(void **state)
{
	static char large[BRAID_COPY_MAX + 1];
	struct braid_hdr start = { .type = BRAID_F_START, .size = 1 << 20 };

	(void)state;
	assert_false(braid_rx_rest(stub_at(0)).large);
	assert_int_equal(stub_receive(0, eager(sizeof(large)), large), 0);
	assert_true(braid_rx_rest(stub_at(0)).large);
	assert_int_equal(stub_receive(0, alive, NULL), 0);
	assert_true(braid_rx_rest(stub_at(0)).large);
	assert_int_equal(stub_receive(0, eager(8), large), 0);
	assert_false(braid_rx_rest(stub_at(0)).large);
	assert_int_equal(stub_receive(0, start, NULL), 0);
	assert_true(braid_rx_rest(stub_at(0)).large);
}

/* --- the fast path of small messages ------------------------------------------------------- */

static void a_small_message_that_is_here_whole_takes_the_fast_path(void **state)
{
	size_t done;

	(void)state;
	stub.fast = true;
	three_frames();
	assert_int_equal(take(stream.bytes, stream.n, &done), 0);
	assert_int_equal(done, stream.n);
	assert_int_equal(stub.fasts, 2);	/* not the ALIVE between them */
	assert_int_equal(stub.begins, 0);
	assert_memory_equal(stub.in, text + 4, 10);
	assert_memory_equal(stub.in + 10, text + 10, sizeof(text) - 10);
	assert_int_equal(stub_at(0)->rx_frames, 3);
	assert_int_equal(stub_at(0)->rx_bytes, stream.n);
}

static void a_message_of_which_bytes_are_missing_takes_the_slow_path(void **state)
{
	size_t done;

	(void)state;
	stub.fast = true;
	three_frames();
	assert_int_equal(take(stream.bytes, BRAID_HDR_SIZE + sizeof(text) - 1, &done), 0);
	assert_int_equal(stub.begins, 1);
	assert_int_equal(take(stream.bytes + done, 1, &done), 0);
	assert_int_equal(stub.ends, 1);
	assert_int_equal(stub.fasts, 0);
	assert_memory_equal(stub.in, text, sizeof(text));
}

/* The lane becomes the peer's home: the slow path sees to that. */
static void on_another_lane_than_home_a_message_takes_the_slow_path(void **state)
{
	(void)state;
	stub.fast = true;
	assert_int_equal(stub_receive(1, eager(20), text), 0);
	assert_int_equal(stub.fasts, 0);
	assert_int_equal(stub.link->rx.home, 1);
	assert_int_equal(stub_receive(1, eager(20), text), 0);
	assert_int_equal(stub.fasts, 1);
}

static void the_fast_path_checks_and_counts_as_the_slow_one_does(void **state)
{
	size_t done;

	(void)state;
	stub.fast = true;
	stub_add_chunk(0, 100, NULL);
	stub_push(0);
	three_frames();
	stream.bytes[offsetof(struct braid_hdr, ack)] = 1;
	assert_int_equal(take(stream.bytes, stream.n, &done), 0);
	assert_int_equal(stub_at(0)->tx.f_acked, 1);
	assert_broken(0, take(stream.bytes, stream.n, &done), -EBADMSG, "eager");	/* its number */
	assert_int_equal(stub.fasts, 2);
	while (!stub_at(0)->rx_ack_due)
		assert_int_equal(stub_receive(0, eager(20), text), 0);
	assert_int_equal(stub_at(0)->rx_frames, stub_at(0)->ack_frames);
}

/* --- messages ------------------------------------------------------------------------------ */

static int message(unsigned lane, const char *p, size_t n)
{
	int err;

	stub_lock();
	err = braid_rx_message(stub_at(lane), p, n);
	stub_unlock();
	return err;
}

static void a_message_has_whole_frames_or_a_part_of_one(void **state)
{
	(void)state;
	three_frames();
	assert_int_equal(message(0, stream.bytes, BRAID_HDR_SIZE + 5), 0);
	assert_int_equal(message(0, stream.bytes + BRAID_HDR_SIZE + 5, 3), 0);
	assert_int_equal(message(0, stream.bytes + BRAID_HDR_SIZE + 8,
				 stream.n - BRAID_HDR_SIZE - 8), 0);
	assert_int_equal(stub_at(0)->rx_frames, 3);
	assert_int_equal(stub.ends, 2);
}

static void a_message_with_a_piece_of_a_header_is_broken(void **state)
{
	(void)state;
	three_frames();
	assert_broken(0, message(0, stream.bytes, 2 * BRAID_HDR_SIZE + sizeof(text) + 11), -EBADMSG,
		      "a piece of a header");
	assert_int_equal(stub.ends, 1);
}

static void a_message_that_waits_for_a_gpu_comes_again_whole(void **state)
{
	(void)state;
	three_frames();
	stub.end_err = -EAGAIN;
	assert_int_equal(message(0, stream.bytes, stream.n), -EAGAIN);
	assert_int_equal(message(0, stream.bytes, stream.n), -EAGAIN);
	assert_int_equal(stub_at(0)->rx_frames, 0);
	stub.end_err = 0;
	assert_int_equal(message(0, stream.bytes, stream.n), 0);
	assert_int_equal(stub_at(0)->rx_frames, 3);
	assert_int_equal(stub.begins, 2);
}

/* --- messages without a header ------------------------------------------------------------- */

static int bare(unsigned lane, uint32_t imm, const char *p, size_t n, bool in_short)
{
	char with[BRAID_SHORT_SIZE + sizeof(text)];
	int err;

	braid_short_pack(imm, with);
	memcpy(with + BRAID_SHORT_SIZE, p, n);
	stub_lock();
	err = in_short ? braid_rx_message(stub_at(lane), with, BRAID_SHORT_SIZE + n) :
			 braid_rx_imm(stub_at(lane), imm, p, n);
	stub_unlock();
	return err;
}

static void a_message_for_the_oldest_receive_takes_the_fast_path(void **state)
{
	(void)state;
	stub.fast = true;
	for (unsigned in_short = 0; in_short < 2; in_short++)
		assert_int_equal(bare(0, braid_short(5, 9), text, 20, in_short), 0);
	assert_int_equal(stub.fasts, 2);
	assert_int_equal(stub.begins, 0);
	assert_memory_equal(stub.in, text, 20);
	assert_int_equal(stub_at(0)->rx_frames, 2);
	assert_int_equal(stub_at(0)->rx_bytes, 2 * 20 + BRAID_SHORT_SIZE);
}

static void any_other_gets_the_header_that_it_would_have_had(void **state)
{
	(void)state;
	for (unsigned in_short = 0; in_short < 2; in_short++) {
		assert_int_equal(bare(0, braid_short(5, 9), text, 20, in_short), 0);
		assert_int_equal(stub.begins, in_short + 1);
		assert_int_equal(stub.begun.type, BRAID_F_EAGER);
		assert_int_equal(stub.begun.comm, 5);
		assert_int_equal(stub.begun.seq, 9);
		assert_int_equal(stub.begun.len, 20);
		assert_int_equal(stub.ends, in_short + 1);
		assert_memory_equal(stub.in, text, 20);
		memset(stub.in, 0, 20);
	}
	assert_int_equal(stub_at(0)->rx_frames, 2);
}

/* The lane becomes the peer's home, or a message must come again: the slow path sees to that. */
static void on_another_lane_than_the_peers_home_it_is_not_fast(void **state)
{
	(void)state;
	stub.fast = true;
	assert_int_equal(bare(1, braid_short(5, 9), text, 20, true), 0);
	assert_int_equal(stub.fasts, 0);
	assert_int_equal(stub.link->rx.home, 1);
	assert_int_equal(bare(1, braid_short(5, 10), text, 20, true), 0);
	assert_int_equal(stub.fasts, 1);
}

static void an_empty_message_has_a_header(void **state)
{
	(void)state;
	stub.fast = true;
	assert_broken(0, bare(0, braid_short(5, 9), text, 0, false), -EBADMSG, "eager");
	assert_int_equal(stub.fasts, 0);
}

/* --- chunks that a NIC has written --------------------------------------------------------- */

static int written(uint32_t imm, size_t n)
{
	int err;

	stub_lock();
	err = braid_rx_imm(stub_at(1), imm, NULL, n);
	stub_unlock();
	return err;
}

static void a_chunk_written_by_the_nic_names_its_receive(void **state)
{
	(void)state;
	assert_int_equal(written(5 << 16 | 77 << 8 | 3, 1000), 0);
	assert_int_equal(stub.imms, 1);
	assert_int_equal(stub.imm_slot, 77);
	assert_false(stub.imm_whole);
	assert_int_equal(stub_at(1)->rx_hdr.n, 3);
	assert_int_equal(stub_at(1)->rx_hdr.comm, 5);
	assert_int_equal(stub_at(1)->rx_hdr.len, 1000);
	assert_int_equal(stub_at(1)->rx_frames, 1);
	assert_int_equal(stub_at(1)->rx_bytes, 1000);
	assert_true(stub_at(1)->rx_ack_due);
	assert_int_equal(stub.link->rx.home, 0);
}

static void a_whole_message_written_by_the_nic_counts_for_its_start_too(void **state)
{
	(void)state;
	assert_int_equal(written(5 << 16 | 77 << 8 | BRAID_IMM_WHOLE, 1000), 0);
	assert_true(stub.imm_whole);
	assert_int_equal(stub_at(1)->rx_hdr.n, 0);
	assert_int_equal(stub_at(1)->rx_frames, 2);
	stub.imm_err = -EBADMSG;
	assert_broken(1, written(5 << 16, 1000), -EBADMSG, "chunk");
}

static void a_frame_placed_by_the_nic_has_no_payload(void **state)
{
	struct braid_hdr h = {
		.type = BRAID_F_CHUNK, .flags = BRAID_FLAG_PLACED, .len = 20, .size = 20,
	};

	(void)state;
	assert_int_equal(stub_receive(1, h, text), 0);
	assert_int_equal(stub.begins, 1);
	assert_int_equal(stub_at(1)->rx_frames, 1);
}

static void a_socket_has_placed_nothing(void **state)
{
	struct braid_hdr h = {
		.type = BRAID_F_CHUNK, .flags = BRAID_FLAG_PLACED, .len = 20, .size = 20,
	};

	(void)state;
	assert_broken(1, stub_receive(1, h, text), -EBADMSG, "chunk");
	assert_int_equal(stub.begins, 0);
}

/* --- what a frame does --------------------------------------------------------------------- */

static void frames_are_numbered_without_gaps(void **state)
{
	struct braid_hdr h = alive;
	size_t done;

	(void)state;
	stream.n = 0;
	put(alive, NULL);
	put(h, NULL);
	assert_int_equal(take(stream.bytes, stream.n, &done), 0);
	assert_broken(0, take(stream.bytes, stream.n, &done), -EBADMSG, "alive");
	assert_int_equal(stub_at(0)->rx_frames, 2);
}

static void each_frame_acknowledges_ours(void **state)
{
	struct braid_hdr h = alive;

	(void)state;
	stub_add_chunk(0, 100, NULL);
	stub_add_chunk(0, 100, NULL);
	stub_push(0);
	h.ack = 1;
	assert_int_equal(stub_receive(0, h, NULL), 0);
	assert_int_equal(stub_at(0)->tx.f_acked, 1);
	h.ack = 3;
	assert_broken(0, stub_receive(0, h, NULL), -EPROTO, "alive");
}

static void an_ack_acknowledges_the_lane_that_it_names(void **state)
{
	struct braid_hdr ack = { .type = BRAID_F_ACK, .n = 2, .seq = 1 };

	(void)state;
	stub_add_chunk(2, 100, NULL);
	stub_push(2);
	assert_int_equal(stub_receive(0, ack, NULL), 0);
	assert_int_equal(stub_at(2)->tx.f_acked, 1);
	ack.seq = 2;
	assert_broken(0, stub_receive(0, ack, NULL), -EPROTO, "ack");
	ack.n = LANES;
	assert_broken(0, stub_receive(0, ack, NULL), -EBADMSG, "ack");
}

static void a_carrier_may_count_for_the_peer(void **state)
{
	int err;

	(void)state;
	stub_add_chunk(0, 100, NULL);
	stub_push(0);
	stub_lock();
	assert_int_equal(braid_rx_count(stub_at(0), 1), 0);
	err = braid_rx_count(stub_at(0), 2);
	stub_unlock();
	assert_int_equal(stub_at(0)->tx.f_acked, 1);
	assert_true(stub_at(0)->rx_bytes > 0);	/* a sign of life */
	assert_int_equal(err, -EPROTO);
	assert_non_null(stub_at(0)->rx_broken);
}

static void the_peers_home_is_where_its_home_frames_come_from(void **state)
{
	const struct braid_hdr roaming[] = {
		{ .type = BRAID_F_CHUNK, .len = 8, .size = 8 },
		{ .type = BRAID_F_VOID },
		{ .type = BRAID_F_DOWN, .n = 2, .rseq = 99 },
	};

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(stub_receive(1, roaming[i], text), 0);
		assert_int_equal(stub.link->rx.home, 0);
	}
	assert_int_equal(stub_receive(1, alive, NULL), 0);
	assert_int_equal(stub.link->rx.home, 1);
}

static void an_open_comes_with_its_proof(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_OPEN, .len = BRAID_OPEN_SIZE };
	char proof[BRAID_OPEN_SIZE];

	(void)state;
	memset(proof, 'p', sizeof(proof));
	assert_int_equal(stub_receive(0, h, proof), 0);
	assert_int_equal(stub.opens, 1);
	assert_int_equal(stub.begins, 0);
	assert_memory_equal(stub_at(0)->rx_ctl, proof, sizeof(proof));
	stub.open_err = -EBADMSG;
	assert_broken(0, stub_receive(0, h, proof), -EBADMSG, "open");
}

static void only_the_end_that_dials_may_be_asked_for_lanes(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_LANES, .n = 5 };

	(void)state;
	stub.link->dialler = true;
	assert_int_equal(stub_receive(0, h, NULL), 0);
	assert_int_equal(stub.link->lanes.want, 5);
	assert_int_equal(stub.wakes, 1);
	h.n = 0;
	assert_broken(0, stub_receive(0, h, NULL), -EBADMSG, "lanes");
	h.n = BRAID_LANES_MAX + 1;
	assert_broken(0, stub_receive(0, h, NULL), -EBADMSG, "lanes");
	h.n = 5;
	stub.link->dialler = false;
	assert_broken(0, stub_receive(0, h, NULL), -EBADMSG, "lanes");
}

static void a_lane_whose_keys_are_old_at_the_peer_is_dialled_again(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_RENEW, .n = 1, .rseq = 0 };

	(void)state;
	stub.link->dialler = true;
	assert_int_equal(stub_receive(0, h, NULL), 0);
	assert_false(stub_at(1)->loss.old_key);	/* of an earlier carrier */
	h.rseq = stub_at(1)->epoch;
	assert_int_equal(stub_receive(0, h, NULL), 0);
	assert_true(stub_at(1)->loss.old_key);
	assert_true(stub_at(1)->up);
	assert_int_equal(stub.wakes, 1);
	h.n = LANES;
	assert_broken(0, stub_receive(0, h, NULL), -EBADMSG, "renew");
	h.n = 1;
	stub.link->dialler = false;
	assert_broken(0, stub_receive(0, h, NULL), -EBADMSG, "renew");
}

static void a_lane_lost_at_the_peer_before_it_is_up_here_is_dialled_again(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_DOWN, .n = LANES };

	(void)state;
	stub.link->dialler = true;
	assert_int_equal(stub_receive(0, h, NULL), 0);
	assert_int_equal(stub.link->lanes.peer, LANES + 1);
	assert_int_equal(stub.wakes, 1);
	h.n = BRAID_LANES_MAX;
	assert_broken(0, stub_receive(0, h, NULL), -EBADMSG, "down");
}

static void the_loss_of_an_earlier_carrier_is_no_news(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_DOWN, .n = 1, .rseq = 0 };

	(void)state;
	assert_int_equal(stub_at(1)->epoch, 1);
	assert_int_equal(stub_receive(0, h, NULL), 0);
	assert_true(stub_at(1)->up);
	h.rseq = 1;
	assert_int_equal(stub_receive(0, h, NULL), 0);
	assert_false(stub_at(1)->up);
}

/* --- when the peer waits for an acknowledgement -------------------------------------------- */

static bool is_urgent(void)
{
	return atomic_load(&stub.link->tx.control_urgent);
}

static void payload_that_the_sender_keeps_is_acknowledged_soon(void **state)
{
	static char large[BRAID_COPY_MAX + 1];
	const struct braid_hdr chunk = { .type = BRAID_F_CHUNK, .len = 8, .size = 8 };

	(void)state;
	assert_int_equal(stub_receive(0, eager(BRAID_COPY_MAX), large), 0);
	assert_false(is_urgent());
	assert_int_equal(stub_receive(0, eager(BRAID_COPY_MAX + 1), large), 0);
	assert_true(is_urgent());
	stub.link->tx.control_urgent = false;
	assert_int_equal(stub_receive(1, chunk, text), 0);
	assert_true(is_urgent() && stub_at(1)->rx_ack_due);
}

static void many_frames_or_many_bytes_are_acknowledged_soon(void **state)
{
	static char bytes[1024];
	unsigned n;

	(void)state;
	for (n = 0; !is_urgent(); n++)
		assert_int_equal(stub_receive(0, alive, NULL), 0);
	assert_int_equal(n, stub_at(0)->ack_frames);
	stub.link->tx.control_urgent = false;
	for (n = 0; !is_urgent(); n++)
		assert_int_equal(stub_receive(1, eager(sizeof(bytes)), bytes), 0);
	assert_int_equal(n, (BRAID_ACK_BYTES + BRAID_HDR_SIZE + 1023) / (BRAID_HDR_SIZE + 1024));
}

/* --- a message that comes again ------------------------------------------------------------ */

/* A message was half received on lane 0, which is fenced now. */
static struct braid_hdr half_received(void)
{
	size_t done;

	three_frames();
	assert_int_equal(take(stream.bytes, BRAID_HDR_SIZE + 7, &done), 0);
	assert_int_equal(braid_lane_fence(stub_at(0)), 0);
	return eager(sizeof(text));
}

static void it_must_be_the_same_message(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		struct braid_hdr h = half_received();

		h.comm += i == 0;
		h.seq += i == 1;
		h.tag += i == 2;
		h.len -= i == 3;
		h.rseq += i == 4;
		assert_broken(1, stub_receive(1, h, text), -EBADMSG, "eager");
		teardown(state);
		setup(state);
	}
	assert_int_equal(stub_receive(1, half_received(), text), 0);
	assert_int_equal(stub.begins, 1);
}

static void a_void_in_its_place_ends_it(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_VOID, .comm = 5, .seq = 8 };

	(void)state;
	half_received();
	assert_int_equal(stub_receive(1, h, NULL), 0);	/* another message's */
	assert_int_equal(stub.link->rx.again.kind, BRAID_RX_ENTRY);
	h.seq = 9;
	assert_int_equal(stub_receive(1, h, NULL), 0);
	assert_int_equal(stub.link->rx.again.kind, BRAID_RX_NONE);
	assert_int_equal(stub.begins, 3);		/* the message layer sees each VOID */
}

static void a_message_without_header_takes_the_slow_path_then(void **state)
{
	(void)state;
	stub.fast = true;
	half_received();
	atomic_store(&stub.link->rx.home, 1);
	assert_int_equal(bare(1, braid_short(5, 9), text, sizeof(text), true), 0);
	assert_int_equal(stub.fasts, 0);
	assert_int_equal(stub.ends, 1);
	assert_memory_equal(stub.in, text, sizeof(text));
}

static void so_does_one_with_its_header(void **state)
{
	struct braid_hdr h = half_received();

	(void)state;
	stub.fast = true;
	atomic_store(&stub.link->rx.home, 1);
	assert_int_equal(stub_receive(1, h, text), 0);
	assert_int_equal(stub.fasts, 0);
	assert_int_equal(stub.ends, 1);
	assert_memory_equal(stub.in, text, sizeof(text));
}

/* --- GPU memory ---------------------------------------------------------------------------- */

/* A carrier reads bytes ahead into host memory: those of a GPU go there by a copy. */
static void payload_for_a_gpu_is_received_into_host_memory_first(void **state)
{
	static struct braid_mr mr = { .gpu = true };
	struct braid_rx_rest rest;
	size_t done;

	(void)state;
	stub.in_mr = &mr;
	stub_at(0)->gpu = true;
	three_frames();
	assert_int_equal(take(stream.bytes, BRAID_HDR_SIZE, &done), 0);
	rest = braid_rx_rest(stub_at(0));
	assert_ptr_equal(rest.gpu, &mr);		/* the carrier may put it there itself */
	assert_ptr_equal(rest.dst, stub.in);
	assert_int_equal(take(stream.bytes + done, 7, &done), 0);
	rest = braid_rx_rest(stub_at(0));
	assert_null(rest.gpu);
	assert_ptr_equal(stub_at(0)->rx_gpu, stub.in);
	assert_memory_equal(stub_at(0)->rx_stage, text, 7);
	assert_int_equal(stub.in[0], 0);
}

static struct braid_rx_rest ahead(const char *p, size_t n)
{
	struct braid_rx_rest rest;

	stub_lock();
	rest = braid_rx_ahead(stub_at(0), p, n);
	stub_unlock();
	return rest;
}

static void a_chunks_place_is_the_message_layers_to_know(void **state)
{
	static struct braid_mr mr = { .gpu = true };
	struct braid_hdr h = { .type = BRAID_F_CHUNK, .comm = 5, .len = 100, .size = 100 };
	char p[BRAID_HDR_SIZE + 100] = { 0 };
	struct braid_rx_rest rest;

	(void)state;
	stub.in_mr = &mr;
	braid_hdr_pack(&h, p);
	rest = ahead(p, BRAID_HDR_SIZE);
	assert_ptr_equal(rest.dst, stub.in);
	assert_ptr_equal(rest.gpu, &mr);
	assert_int_equal(rest.len, 100);
	assert_int_equal(rest.comm, 5);
	assert_int_equal(ahead(p, sizeof(p)).len, 0);	/* its payload is there */
	assert_int_equal(ahead(p, BRAID_HDR_SIZE - 1).len, 0);
	assert_int_equal(stub.begins, 0);
}

/* --- what broke ---------------------------------------------------------------------------- */

static void only_malformed_data_is_the_peers_fault(void **state)
{
	struct braid_lane *lane = stub_at(0);

	(void)state;
	assert_int_equal(braid_rx_broken(lane, "x", -ECONNRESET), -ECONNRESET);
	assert_null(lane->rx_broken);
	assert_int_equal(braid_rx_broken(lane, "x", -EPROTO), -EPROTO);
	assert_string_equal(lane->rx_broken, "x");
	stub.begin_err = -ENOMEM;
	assert_int_equal(stub_receive(1, eager(8), text), -ENOMEM);
	assert_null(stub_at(1)->rx_broken);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
#define CASE_NIC(f) cmocka_unit_test_setup_teardown(f, setup_nic, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(an_alive_may_announce_the_peers_cpu_time),
		CASE(frames_of_a_stream_may_come_in_any_pieces),
		CASE(the_carrier_may_put_payload_there_by_itself),
		CASE(a_message_may_be_the_rest_of_a_payload),
		CASE(a_message_of_another_length_than_the_rest_is_broken),
		CASE(while_a_payload_is_copied_into_a_gpu_nothing_else_is_received),
		CASE(after_a_large_payload_the_next_may_be_large_too),
		CASE(a_small_message_that_is_here_whole_takes_the_fast_path),
		CASE(a_message_of_which_bytes_are_missing_takes_the_slow_path),
		CASE(on_another_lane_than_home_a_message_takes_the_slow_path),
		CASE(the_fast_path_checks_and_counts_as_the_slow_one_does),
		CASE(a_message_has_whole_frames_or_a_part_of_one),
		CASE(a_message_with_a_piece_of_a_header_is_broken),
		CASE(a_message_that_waits_for_a_gpu_comes_again_whole),
		CASE_NIC(a_message_for_the_oldest_receive_takes_the_fast_path),
		CASE_NIC(any_other_gets_the_header_that_it_would_have_had),
		CASE_NIC(on_another_lane_than_the_peers_home_it_is_not_fast),
		CASE_NIC(an_empty_message_has_a_header),
		CASE_NIC(a_chunk_written_by_the_nic_names_its_receive),
		CASE_NIC(a_whole_message_written_by_the_nic_counts_for_its_start_too),
		CASE_NIC(a_frame_placed_by_the_nic_has_no_payload),
		CASE(a_socket_has_placed_nothing),
		CASE(frames_are_numbered_without_gaps),
		CASE(each_frame_acknowledges_ours),
		CASE(an_ack_acknowledges_the_lane_that_it_names),
		CASE(a_carrier_may_count_for_the_peer),
		CASE(the_peers_home_is_where_its_home_frames_come_from),
		CASE(an_open_comes_with_its_proof),
		CASE(only_the_end_that_dials_may_be_asked_for_lanes),
		CASE(a_lane_whose_keys_are_old_at_the_peer_is_dialled_again),
		CASE(a_lane_lost_at_the_peer_before_it_is_up_here_is_dialled_again),
		CASE(the_loss_of_an_earlier_carrier_is_no_news),
		CASE(payload_that_the_sender_keeps_is_acknowledged_soon),
		CASE(many_frames_or_many_bytes_are_acknowledged_soon),
		CASE(it_must_be_the_same_message),
		CASE(a_void_in_its_place_ends_it),
		CASE(a_message_without_header_takes_the_slow_path_then),
		CASE(so_does_one_with_its_header),
		CASE(payload_for_a_gpu_is_received_into_host_memory_first),
		CASE(a_chunks_place_is_the_message_layers_to_know),
		CASE(only_malformed_data_is_the_peers_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
