/* SPDX-License-Identifier: BSD-3-Clause */
/* test_send.c - isend(): which protocol a message takes, and when its request is done. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "core/base/param.h"
#include "tests/lib/comms.h"

static void a_small_message_goes_at_once_and_is_retired(void **state)
{
	char to[8];
	struct braid_req *s = isend(cs, "hello", 6, 3), *r;

	(void)state;
	assert_true(done(s));			/* copied, and handed over */
	assert_int_equal(pass_frame(A, BRAID_F_EAGER).flags, 0);
	r = irecv(cr, to, sizeof(to), 3);
	assert_int_equal(size_of(r), 6);
	assert_string_equal(to, "hello");
	braid_link_try_flush_control(pair.end[B]);
	assert_int_equal(pass_frame(B, BRAID_F_RETIRE).n, 1);
	assert_int_equal(pair.end[A]->msg.shared_out, 0);
	close_both();
	assert_int_equal(warn_count, 0);
}

/* Did this message's payload leave before its frame was queued? */
static bool leads(size_t size, int tag)
{
	unsigned before = null_posts;

	one_message(size, tag);
	return null_posts != before;
}

static void a_message_leads_if_its_caller_waits_and_its_header_says_nothing_new(void **state)
{
	char to[2][8];
	struct braid_req *r, *s[2];
	uint64_t window = pair.end[A]->msg.tx_window;
	unsigned before;

	(void)state;
	assert_false(leads(8, 3));		/* another tag than before */
	assert_true(leads(8, 3));
	for (unsigned i = 0; i <= BRAID_FLOOR / BRAID_COPY_MAX; i++)
		assert_true(leads(BRAID_COPY_MAX, 3));
	assert_true(pair.end[A]->msg.shared_out > 0);	/* it used the shared window */
	pair.end[A]->msg.tx_window = pair.end[A]->msg.shared_out;
	assert_false(leads(BRAID_COPY_MAX, 3));
	pair.end[A]->msg.tx_window = window;
	assert_false(leads(BRAID_COPY_MAX + 1, 3));
	assert_false(leads(100 * K, 3));
	r = irecv(cr, to[0], sizeof(to[0]), 3);
	null_settle(&pair);			/* it gets a credit, after a large one */
	before = null_posts;
	s[0] = isend(cs, "met", 4, 3);
	assert_int_equal(null_posts, before);
	run(s[0], r);
	assert_int_equal(size_of(r), 4);
	assert_true(done(s[0]));
	assert_true(leads(8, 3));
	assert_false(leads(0, 3));
	before = null_posts;
	s[0] = isend(cs, "one", 4, 3);
	s[1] = isend(cs, "two", 4, 3);		/* a burst goes together */
	assert_int_equal(null_posts, before + 1);
	for (unsigned i = 0; i < 2; i++) {
		r = irecv(cr, to[i], sizeof(to[i]), 3);
		run(s[i], r);
		assert_int_equal(size_of(r), 4);
		assert_true(done(s[i]));
	}
	assert_string_equal(to[0], "one");
	assert_string_equal(to[1], "two");
	braid_param.eager = 0;
	assert_false(leads(8, 3));
	close_both();
	assert_int_equal(warn_count, 0);
}

static void an_uncopied_eager_message_is_done_when_acknowledged(void **state)
{
	char *from = message(20 * K, 1), *to = malloc(20 * K);
	struct braid_req *r = irecv(cr, to, 20 * K, 0), *s = isend(cs, from, 20 * K, 0);

	(void)state;
	assert_false(done(s));
	pass_frame(A, BRAID_F_EAGER);
	assert_int_equal(size_of(r), 20 * K);
	assert_memory_equal(from, to, 20 * K);
	assert_false(done(s));
	/* The sender waits for it, so it goes alone at the first call that finds nothing to do. */
	braid_link_progress(pair.end[B], &cr->flush_epoch, NULL);
	while (null_deliver(&pair, B, 0))
		;
	assert_true(done(s));
	free(from);
	free(to);
}

static void a_large_message_wants_a_credit_and_starts(void **state)
{
	char *from = message(BIG, 2), *to = malloc(BIG);
	struct braid_req *s = isend(cs, from, BIG, 9), *r;
	struct braid_hdr h;

	(void)state;
	h = pass_frame(A, BRAID_F_WANT);
	assert_true(h.seq == 0 && h.tag == 9 && h.size == BIG);
	assert_no_frame(A);
	r = irecv(cr, to, BIG + 5, 9);
	assert_false(done(r));			/* and with that, urgent as it is: */
	h = pass_frame(B, BRAID_F_CREDIT);
	assert_true(h.rseq == 0 && h.tag == 9 && h.size == BIG + 5);
	assert_false(done(s));
	h = pass_frame(A, BRAID_F_START);
	assert_true(h.seq == 0 && h.rseq == 0 && h.size == BIG);
	h = next_frame(A, BRAID_F_CHUNK);
	assert_true(h.offset == 0 && h.size == BIG && h.len % BRAID_CHUNK_ALIGN == 0);
	run(s, r);
	assert_int_equal(size_of(r), BIG);
	assert_true(done(s));
	assert_memory_equal(from, to, BIG);
	free(from);
	free(to);
	close_both();
}

static void empty_messages_match_like_any(void **state)
{
	struct braid_req *r, *s;

	(void)state;
	s = isend(cs, NULL, 0, 4);
	assert_true(done(s));
	r = irecv(cr, NULL, 0, 4);
	run(NULL, r);
	assert_int_equal(size_of(r), 0);
	r = irecv(cr, NULL, 0, 4);
	s = isend(cs, NULL, 0, 4);
	run(s, r);
	assert_int_equal(size_of(r), 0);
	assert_true(done(s));
	close_both();
}

static void more_requests_than_a_comm_has_must_wait(void **state)
{
	struct braid_req *s[BRAID_SLOTS], *r[BRAID_SLOTS];
	char to[BRAID_SLOTS];

	(void)state;
	for (unsigned i = 0; i < BRAID_SLOTS; i++) {
		s[i] = isend(cs, "x", 1, 0);
		assert_non_null(s[i]);
	}
	assert_null(isend(cs, "x", 1, 0));
	for (unsigned i = 0; i < BRAID_SLOTS; i++)
		assert_true(settled(s[i]));
	assert_null(isend(cs, "x", 1, 0));	/* no receive has met these messages yet */
	for (unsigned i = 0; i < BRAID_SLOTS; i++)
		assert_non_null(r[i] = irecv(cr, &to[i], 1, 1));
	assert_null(irecv(cr, to, 1, 1));
	null_deliver_all(&pair);
	assert_int_equal(warn_count, 0);
	assert_int_equal(pair.end[B]->msg.unexp_bytes, BRAID_SLOTS * (1 + BRAID_UNEXP_COST) - BRAID_FLOOR);
	(void)r;
}

/* A START that found the wire full waits for its chunk, and that not for the START. */
static void a_start_that_finds_no_room_leaves_with_its_chunk(void **state)
{
	struct null_config config = {
		.window = 512 * K, .held = true, .limit = BIG + 2 * BRAID_HDR_SIZE,
	};
	char *from = message(BIG, 5), *to[2] = { malloc(BIG), malloc(BIG) };
	struct braid_req *r[2], *s[2];
	struct braid_lane *lane;

	(void)state;
	null_pair_fini(&pair);
	start(&config);
	make_large();
	lane = pair.end[A]->lane[0];
	lane->flight_max = 1;
	for (int i = 0; i < 2; i++)
		r[i] = irecv(cr, to[i], BIG, 1);
	assert_false(done(r[1]));
	null_deliver_all(&pair);
	for (int i = 0; i < 2; i++)
		s[i] = isend(cs, from, BIG, 1);
	assert_int_equal(null_waiting(&pair, A, 0), config.limit);
	assert_int_equal(lane->tx.unsent, BRAID_HDR_SIZE);
	assert_true(braid_link_try_flush_control(pair.end[A]));
	assert_int_equal(lane->tx.unsent, BRAID_HDR_SIZE);
	for (int i = 0; i < 2; i++) {
		run(s[i], r[i]);
		assert_int_equal(size_of(r[i]), BIG);
		assert_memory_equal(from, to[i], BIG);
		assert_true(done(s[i]));
		free(to[i]);
	}
	free(from);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_small_message_goes_at_once_and_is_retired),
		CASE(a_message_leads_if_its_caller_waits_and_its_header_says_nothing_new),
		CASE(an_uncopied_eager_message_is_done_when_acknowledged),
		CASE(a_large_message_wants_a_credit_and_starts),
		CASE(empty_messages_match_like_any),
		CASE(more_requests_than_a_comm_has_must_wait),
		CASE(a_start_that_finds_no_room_leaves_with_its_chunk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
