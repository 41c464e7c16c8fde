/* SPDX-License-Identifier: BSD-3-Clause */
/* test_arrive.c - frames that arrive: without headers, out of order, and from a peer that lies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/link/lane_io.h"
#include "core/link/link_int.h"
#include "tests/lib/comms.h"
#include "tests/lib/req.h"

static void a_chunk_may_overtake_its_start(void **state)
{
	char *from = message(BIG, 8), *to = malloc(BIG);
	struct braid_req *r, *s;

	(void)state;
	make_large();
	r = irecv(cr, to, BIG, 1);
	assert_false(done(r));
	null_deliver_all(&pair);
	s = isend(cs, from, BIG, 1);
	for (int i = 0; i < 10; i++) {
		bool ret;

		req_test(s, &ret, NULL);
		for (unsigned l = 1; l < 3; l++) {
			while (null_deliver(&pair, A, l) > 0)
				;
		}
	}
	next_frame(A, BRAID_F_START);			/* has not moved */
	assert_true(pair.end[B]->lane[1]->rx_frames > 0);
	run(s, r);
	assert_int_equal(size_of(r), BIG);
	assert_memory_equal(from, to, BIG);
	assert_true(done(s));
	free(from);
	free(to);
	close_both();
}

static void lies_are_refused(void **state)
{
	/* Frames from the sender of `cs`.  The receiver has received message 0, has posted one
	 * receive of 1000 bytes with tag 1, and has given no credit. */
	static const struct {
		const char *what;
		struct braid_hdr h;
		unsigned lane;
	} rows[] = {
		{ "a message skipped", { .type = BRAID_F_EAGER, .seq = 2 }, 0 },
		{ "a message again", { .type = BRAID_F_EAGER, .seq = 0 }, 0 },
		{ "a message skipped, for the receive", { .type = BRAID_F_EAGER, .seq = 2, .tag = 1 }, 0 },
		{ "a message again, for the receive", { .type = BRAID_F_EAGER, .seq = 0, .tag = 1 }, 0 },
		{ "a credit nobody gave",
		  { .type = BRAID_F_EAGER, .seq = 1, .tag = 1, .rseq = 1,
		    .flags = BRAID_FLAG_CREDITED }, 0 },
		{ "a credit of no receive",
		  { .type = BRAID_F_EAGER, .seq = 1, .tag = 1, .rseq = 77,
		    .flags = BRAID_FLAG_CREDITED }, 0 },
		{ "more than the window",
		  { .type = BRAID_F_EAGER, .seq = 1, .tag = 9, .len = 540 * K,
		    .size = 540 * K }, 0 },
		{ "a start without credit",
		  { .type = BRAID_F_START, .seq = 1, .tag = 1, .rseq = 1, .size = 10 }, 0 },
		{ "a start of no receive",
		  { .type = BRAID_F_START, .seq = 1, .tag = 1, .rseq = 9, .size = 10 }, 0 },
		{ "a want skipped", { .type = BRAID_F_WANT, .seq = 2, .tag = 1, .size = 10 }, 0 },
		{ "a chunk without credit",
		  { .type = BRAID_F_CHUNK, .tag = 1, .rseq = 1, .len = 8, .size = 8 }, 0 },
		{ "a chunk without credit on another lane",
		  { .type = BRAID_F_CHUNK, .tag = 1, .rseq = 1, .len = 8, .size = 8 }, 2 },
		{ "a credit for a receiver", { .type = BRAID_F_CREDIT, .tag = 1, .size = 10 }, 0 },
		{ "a retirement for a receiver", { .type = BRAID_F_RETIRE, .n = 1 }, 0 },
		{ "opened, to the one who was opened", { .type = BRAID_F_OPENED }, 0 },
		{ "refused, to the one who was opened", { .type = BRAID_F_REFUSED }, 0 },
		{ "an acknowledgement of no lane", { .type = BRAID_F_ACK, .n = 3 }, 0 },
		{ "an acknowledgement of what was not sent",
		  { .type = BRAID_F_ACK, .n = 1, .seq = 1 }, 0 },
		{ "an acknowledgement in a header", { .type = BRAID_F_ACK, .ack = 1000 }, 0 },
		{ "an open with an id of ours", { .type = BRAID_F_OPEN, .comm = 1,
		  .len = BRAID_OPEN_SIZE }, 0 },
		{ "an open with an id in use", { .type = BRAID_F_OPEN,
		  .len = BRAID_OPEN_SIZE }, 0 },
		{ "a wish for lanes to who can't dial", { .type = BRAID_F_LANES, .n = 2 }, 0 },
	};
	char *payload = calloc(1, 600 * K);

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct braid_hdr h = rows[i].h;
		char to[1000];
		struct braid_req *r;
		int err;

		if (i) {
			teardown(state);
			setup_lanes(state);
		}
		assert_true(settled(isend(cs, "0", 1, 1)));
		null_deliver_all(&pair);
		r = irecv(cr, to, sizeof(to), 1);
		assert_true(done(r));
		r = irecv(cr, to, sizeof(to), 1);
		assert_false(done(r));
		null_deliver_all(&pair);
		memset(to, 0x55, sizeof(to));
		if (h.type != BRAID_F_OPEN)
			h.comm = cs->id;
		err = null_forge(&pair, A, rows[i].lane, &h, payload);
		if (err != -EBADMSG && err != -EPROTO)
			fail_msg("%s: %d", rows[i].what, err);
		for (size_t k = 0; k < sizeof(to); k++)
			assert_int_equal(to[k], 0x55);
		/* The next call on the link finds it dead, and logs that once. */
		if (rows[i].lane)
			pair.end[B]->rx.spread++;
		assert_int_equal(warn_count, 0);
		braid_link_progress(pair.end[B], &cr->flush_epoch, NULL);
		assert_int_equal(error_of(r), -EREMOTEIO);
		assert_int_equal(warn_count, 1);
		assert_non_null(strstr(warn_text, "broken"));
	}
	free(payload);
}

static void lies_to_a_sender_are_refused(void **state)
{
	/* Frames from the receiver of `cs`.  The sender has sent one small message and waits for a
	 * credit for a large one with tag 1. */
	static const struct {
		const char *what;
		struct braid_hdr h;
	} rows[] = {
		{ "an eager message", { .type = BRAID_F_EAGER } },
		{ "a start", { .type = BRAID_F_START, .size = 1 } },
		{ "a want", { .type = BRAID_F_WANT } },
		{ "a chunk", { .type = BRAID_F_CHUNK, .len = 1, .size = 1 } },
		{ "a retirement of what was never sent",
		  { .type = BRAID_F_RETIRE, .seq = 2, .n = 1 } },
		{ "a retirement of what waits for a credit",
		  { .type = BRAID_F_RETIRE, .seq = 1, .n = 1 } },
		{ "a retirement of too many", { .type = BRAID_F_RETIRE, .seq = 0, .n = 257 } },
		{ "a retirement before the first",
		  { .type = BRAID_F_RETIRE, .seq = 0xffffffff, .n = 2 } },
		{ "an open with an id of ours", { .type = BRAID_F_OPEN, .comm = 2,
		  .len = BRAID_OPEN_SIZE } },
		{ "a wish for no lanes", { .type = BRAID_F_LANES, .n = 0 } },
		{ "a wish for more lanes than there can be", { .type = BRAID_F_LANES,
		  .n = BRAID_LANES_MAX + 1 } },
	};
	char *from = message(BIG, 0);
	uint8_t payload[BRAID_OPEN_SIZE] = { 0 };

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct braid_hdr h = rows[i].h;
		struct braid_req *s;
		int err;

		if (i) {
			teardown(state);
			setup(state);
		}
		isend(cs, "0", 1, 1);
		s = isend(cs, from, BIG, 1);
		null_deliver_all(&pair);
		if (h.type != BRAID_F_OPEN)
			h.comm = cs->id;
		err = null_forge(&pair, B, 0, &h, payload);
		if (err != -EBADMSG)
			fail_msg("%s: %d", rows[i].what, err);
		braid_link_progress(pair.end[A], &cs->flush_epoch, NULL);
		assert_int_equal(error_of(s), -EREMOTEIO);
	}
	free(from);
}

static bool in_short;			/* a short header; else immediate data alone */

static int bare(uint32_t comm, uint32_t seq, size_t n)
{
	return null_bare(&pair, A, 0, braid_short(comm, seq), "without", n, in_short);
}

/* A message without a header has the number and the tag that the comm expects next. */
static void a_message_without_its_header_is_the_next(void **state)
{
	char to[3][8] = { "" };
	struct braid_req *r, *other;

	(void)state;
	isend(cs, "first", 6, 5);
	null_deliver_all(&pair);
	assert_int_equal(bare(cs->id, 1, 8), 0);	/* before its receive */
	r = irecv(cr, to[0], 8, 5);
	assert_int_equal(size_of(r), 6);
	r = irecv(cr, to[1], 8, 5);
	assert_int_equal(size_of(r), 8);
	r = irecv(cr, to[2], 8, 5);
	assert_int_equal(bare(cs->id, 2, 4), 0);	/* and after */
	assert_int_equal(size_of(r), 4);
	assert_string_equal(to[0], "first");
	assert_string_equal(to[1], "without");
	assert_memory_equal(to[2], "with\0\0\0", 8);
	other = irecv(cr, to[0], 8, 6);
	r = irecv(cr, to[1], 8, 5);
	assert_int_equal(bare(cs->id, 3, 8), 0);	/* meets the second receive, by its tag */
	assert_int_equal(size_of(r), 8);
	assert_false(done(other));
	assert_int_equal(bare(cs->id + 1000, 0, 8), 0);	/* of a comm that no longer exists: dropped */
	assert_int_equal(warn_count, 0);
}

static int whole(uint32_t comm, uint32_t seq, int32_t tag, uint32_t len)
{
	struct braid_hdr h = {
		.type = BRAID_F_EAGER, .comm = comm, .seq = seq, .tag = tag, .len = len, .size = len,
	};

	return null_forge(&pair, A, 0, &h, "with");
}

/* A message that is here whole has the number that the comm expects next, and a tag of its own. */
static void a_message_with_its_header_may_have_any_tag(void **state)
{
	char to[4][8] = { "" };
	struct braid_req *r[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		r[i] = irecv(cr, to[i], 8, 5 + i / 2);
	assert_int_equal(whole(cs->id, 0, 6, 4), 0);	/* not for the oldest receive */
	assert_true(done(r[2]));
	assert_int_equal(whole(cs->id, 1, 5, 5), 0);	/* for the oldest */
	assert_int_equal(size_of(r[0]), 5);
	assert_string_equal(to[0], "with");
	assert_int_equal(bare(cs->id, 2, 8), 0);	/* without a header: the tag of the last one */
	assert_int_equal(size_of(r[1]), 8);
	assert_int_equal(whole(cs->id, 3, 6, 0), 0);
	assert_int_equal(size_of(r[3]), 0);
	assert_int_equal(whole(cs->id + 1000, 0, 6, 4), 0);	/* of a comm that no longer exists */
	assert_int_equal(warn_count, 0);
	r[0] = irecv(cr, to[0], 4, 5);
	assert_int_equal(whole(cs->id, 4, 5, 5), 0);	/* more than fits */
	assert_int_equal(atomic_load(&cr->err), -EMSGSIZE);
}

static void lies_without_a_header_are_refused(void **state)
{
	static const struct {
		bool back;			/* the frame names the receiver's own send comm */
		uint32_t seq;
		size_t n;
	} rows[] = {
		{ true, 0, 8 },
		{ false, 0, 0 },		/* nothing */
		{ false, 1, 8 },		/* not the next */
		{ false, 0xffff, 8 },		/* an earlier one */
	};
	struct braid_comm *back, *there;
	const unsigned nrows = sizeof(rows) / sizeof(rows[0]);
	char to[8];
	int err = 0;

	for (unsigned n = 0; n < 2 * nrows; n++) {
		unsigned i = n / 2;

		null_comms(&pair, B, &back, &there);
		if (n % 2)
			irecv(cr, to, sizeof(to), 0);	/* which waits for a message */
		assert_int_equal(bare(rows[i].back ? back->id : cs->id, rows[i].seq, rows[i].n),
				 -EBADMSG);
		teardown(state);
		setup(state);
	}
	irecv(cr, to, 4, 0);
	assert_int_equal(bare(cs->id, 0, 8), 0);	/* more than fits */
	assert_int_equal(atomic_load(&cr->err), -EMSGSIZE);
	teardown(state);

	setup_floor(state);
	for (uint32_t seq = 0; !err && seq < BRAID_SLOTS; seq++)
		err = bare(cs->id, seq, 8);
	assert_int_equal(err, -EBADMSG);		/* beyond what was granted */
}

static void a_short_header_has_the_same_content(void **state)
{
	in_short = true;
	a_message_without_its_header_is_the_next(state);
	teardown(state);
	setup(state);
	lies_without_a_header_are_refused(state);
	in_short = false;
}

static void a_frame_out_of_its_number_is_refused(void **state)
{
	struct braid_lane *lane = pair.end[B]->lane[0];
	struct braid_hdr h = { .type = BRAID_F_ACK, .lseq = lane->rx_frames + 1 };
	char hdr[BRAID_HDR_SIZE];
	size_t done;

	(void)state;
	braid_hdr_pack(&h, hdr);
	braid_lock_wait(&pair.end[B]->lock);
	assert_int_equal(braid_rx_bytes(lane, hdr, sizeof(hdr), &done), -EBADMSG);
	braid_unlock(&pair.end[B]->lock);
}

/* What a lane's poll() finds, other than frames. */
static const char *odd_what;

static int odd_poll(struct braid_lane *lane)
{
	return odd_what ? braid_rx_broken(lane, odd_what, -EPROTO) : -EPROTO;
}

static void poll_oddly(struct braid_link *link, const char *what)
{
	static struct braid_transport odd;
	struct braid_lane *lane = link->lane[0];
	const struct braid_transport *tr = lane->tr;

	odd = *tr;
	odd.poll = odd_poll;
	odd_what = what;
	lane->tr = &odd;
	lane->rx_hdr.type = BRAID_F_LANES;	/* of long ago */
	warns_clear();
	braid_link_move(link);
	lane->tr = tr;
}

static void malformed_input_other_than_a_frame_is_named_as_what_it_is(void **state)
{
	(void)state;
	poll_oddly(pair.end[B], "count");
	assert_int_equal(atomic_load(&pair.end[B]->state), BRAID_LINK_DEAD);
	assert_non_null(strstr(warn_text, "(count)"));
}

/* A socket's error may come from an ICMP message about the path, so the link must survive it. */
static void an_error_of_the_kernels_is_not_the_peers(void **state)
{
	(void)state;
	poll_oddly(pair.end[B], NULL);
	assert_int_equal(atomic_load(&pair.end[B]->state), BRAID_LINK_UP);
	assert_false(braid_lane_up(pair.end[B]->lane[0]));
	assert_int_equal(warn_count, 0);
}

static char *place_at(unsigned end, const struct braid_hdr *h)
{
	const struct braid_mr *gpu;
	char *place;

	braid_lock_wait(&pair.end[end]->lock);
	place = braid_comm_rx_place(pair.end[end]->lane[0], h, &gpu);
	braid_unlock(&pair.end[end]->lock);
	return place;
}

static void lies_about_a_credited_receive_are_refused(void **state)
{
	struct braid_hdr start = {
		.type = BRAID_F_START, .seq = 1, .tag = 1, .rseq = 1, .size = 1000,
	};
	struct braid_hdr chunk = {
		.type = BRAID_F_CHUNK, .tag = 1, .rseq = 1, .n = 0, .len = 500, .size = 1000,
	};
	struct braid_hdr eager = {
		.type = BRAID_F_EAGER, .seq = 1, .tag = 1, .rseq = 1, .len = 1000, .size = 1000,
		.flags = BRAID_FLAG_CREDITED,
	};
	static const struct {
		const char *what;
		char first, second;	/* S, C, E; small letter: changed as below */
		struct braid_hdr change;	/* fields to add */
	} rows[] = {
		{ "a chunk twice", 'C', 'c', { 0 } },
		{ "another size in a chunk", 'C', 'c', { .n = 1, .size = 1 } },
		{ "more chunks than the size", 'C', 'c', { .n = 1, .len = 1 } },
		{ "a start of another size", 'C', 's', { .size = 1 } },
		{ "two starts", 'S', 's', { .seq = 1 } },
		{ "a start with another tag", 'C', 's', { .tag = 1 } },
		{ "a start beyond the room", 0, 's', { .size = 1 } },
		{ "a chunk beyond the room", 0, 'c', { .size = 1 } },
		{ "a message whole after a chunk of it", 'C', 'e', { 0 } },
		{ "a message whole after its start", 'S', 'e', { .seq = 1 } },
		{ "a message whole beyond the room", 0, 'e', { .len = 1, .size = 1 } },
		{ "a message whole with another tag", 0, 'e', { .tag = 1 } },
		{ "a chunk after the whole message", 'E', 'c', { 0 } },
		{ "a start after the whole message", 'E', 's', { .seq = 1 } },
	};
	char payload[2000] = { 0 }, to[1000];

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int err = 0;

		if (i) {
			teardown(state);
			setup(state);
		}
		credited(to, sizeof(to));
		for (int k = 0; k < 2; k++) {
			char kind = k ? rows[i].second : rows[i].first;
			struct braid_hdr h = kind == 'S' || kind == 's' ? start :
					     kind == 'C' || kind == 'c' ? chunk : eager;

			h.comm = cs->id;
			if (k) {
				h.n = (uint16_t)(h.n + rows[i].change.n);
				h.seq += rows[i].change.seq;
				h.tag += rows[i].change.tag;
				h.len += rows[i].change.len;
				h.size += rows[i].change.size;
			}
			if (!kind)
				continue;
			assert_int_equal(err, 0);
			/* A chunk that will be refused gets no place, and no other frame does. */
			if (place_at(B, &h) != (kind == 'C' ? to : NULL))
				fail_msg("%s: its place", rows[i].what);
			err = null_forge(&pair, A, 0, &h, payload);
		}
		if (err != -EBADMSG)
			fail_msg("%s: %d", rows[i].what, err);
	}
}

static void the_place_of_a_chunk_is_known_while_its_receive_waits(void **state)
{
	struct braid_hdr h = {
		.type = BRAID_F_CHUNK, .tag = 1, .rseq = 1, .n = 1, .len = 500, .offset = 500,
		.size = 1000, .comm = cs->id,
	};
	struct braid_mr gpu = { .gpu = true };
	char to[1000];

	(void)state;
	credited(to, sizeof(to));
	assert_ptr_equal(place_at(B, &h), to + 500);
	h.rseq = 2;
	assert_null(place_at(B, &h));	/* no such receive yet */
	h.rseq = 1;
	h.comm += 2;
	assert_null(place_at(B, &h));	/* no such comm */
	h.comm -= 2;
	assert_null(place_at(A, &h));	/* a send comm receives nothing */
	cr->recv[1]->mr = &gpu;
	assert_null(place_at(B, &h));	/* GPU memory: the chunk must be staged in host memory */
	pair.end[B]->lane[0]->gpu = true;
	assert_ptr_equal(place_at(B, &h), to + 500);
	cr->recv[1]->mr = NULL;
	braid_lock_wait(&pair.end[B]->lock);
	braid_comm_fail(cr, -EIO);
	braid_unlock(&pair.end[B]->lock);
	assert_null(place_at(B, &h));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE_LANES(a_chunk_may_overtake_its_start),
		CASE_LANES(lies_are_refused),
		CASE(lies_to_a_sender_are_refused),
		CASE(a_message_without_its_header_is_the_next),
		CASE(a_message_with_its_header_may_have_any_tag),
		CASE(lies_without_a_header_are_refused),
		CASE(a_short_header_has_the_same_content),
		CASE(a_frame_out_of_its_number_is_refused),
		CASE(malformed_input_other_than_a_frame_is_named_as_what_it_is),
		CASE(an_error_of_the_kernels_is_not_the_peers),
		CASE(lies_about_a_credited_receive_are_refused),
		CASE(the_place_of_a_chunk_is_known_while_its_receive_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
