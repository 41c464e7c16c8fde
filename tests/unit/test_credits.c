/* SPDX-License-Identifier: BSD-3-Clause */
/* test_credits.c - CREDIT and RETIRE: which receives a sender knows of, also when frames cross. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "tests/lib/comms.h"

/* After a large message, each receive sends its credit when it is posted. */
static void a_credit_that_came_first_is_used_without_a_want(void **state)
{
	char *from = message(BIG, 2), *to = malloc(BIG);
	struct braid_req *r, *s;
	struct braid_hdr h;

	(void)state;
	one_message(BIG, 1);
	null_settle(&pair);
	r = irecv(cr, to, BIG, 1);
	assert_false(done(r));
	assert_int_equal(pass_frame(B, BRAID_F_CREDIT).rseq, 1);
	s = isend(cs, from, BIG, 1);
	h = pass_frame(A, BRAID_F_START);
	assert_true(h.seq == 1 && h.rseq == 1);
	run(s, r);
	assert_int_equal(size_of(r), BIG);
	assert_true(done(s));

	r = irecv(cr, to, BIG, 1);		/* a small message uses a credit too */
	assert_false(done(r));
	pass_frame(B, BRAID_F_CREDIT);
	s = isend(cs, from, 100, 1);
	h = pass_frame(A, BRAID_F_EAGER);
	assert_int_equal(h.flags, BRAID_FLAG_CREDITED);
	assert_int_equal(h.rseq, 2);
	assert_int_equal(size_of(r), 100);
	assert_true(done(s));
	free(from);
	free(to);
	close_both();
}

static void an_eager_message_that_crosses_a_credit_uses_it_up(void **state)
{
	char to[2][64];
	struct braid_req *r, *s;

	(void)state;
	make_large();
	r = irecv(cr, to[0], 64, 1);
	assert_false(done(r));
	next_frame(B, BRAID_F_CREDIT);
	s = isend(cs, "crossed", 8, 1);
	assert_true(settled(s));
	assert_int_equal(pass_frame(A, BRAID_F_EAGER).flags, 0);
	pass_frame(B, BRAID_F_CREDIT);
	assert_int_equal(size_of(r), 8);
	assert_int_equal(pair.end[A]->msg.shared_out + cs->eager_out, 0);
	braid_link_try_flush_control(pair.end[B]);
	while (null_waiting(&pair, B, 0))
		assert_int_not_equal(pass_frame(B, BRAID_F_ACK).type, BRAID_F_RETIRE);
	/* The next one must not think that it still has a credit. */
	s = isend(cs, "after", 6, 1);
	assert_true(settled(s));
	assert_int_equal(pass_frame(A, BRAID_F_EAGER).flags, 0);
	r = irecv(cr, to[1], 64, 1);
	assert_int_equal(size_of(r), 6);
	assert_string_equal(to[1], "after");
	null_settle(&pair);
	close_both();
}

static void a_want_that_crosses_a_credit_gets_no_second_one(void **state)
{
	char *from = message(BIG, 5), *to = malloc(BIG);
	struct braid_req *r, *s;

	(void)state;
	make_large();
	r = irecv(cr, to, BIG, 1);
	assert_false(done(r));
	s = isend(cs, from, BIG, 1);
	pass_frame(A, BRAID_F_WANT);
	pass_frame(B, BRAID_F_CREDIT);
	assert_false(done(r));
	assert_no_frame(B);
	assert_false(done(s));
	assert_int_equal(pass_frame(A, BRAID_F_START).seq, 1);
	run(s, r);
	assert_int_equal(size_of(r), BIG);
	assert_memory_equal(from, to, BIG);
	assert_true(done(s));
	free(from);
	free(to);
	close_both();
}

static void a_retirement_is_sent_before_any_later_credit(void **state)
{
	char small[8], *from = message(BIG, 6), *to = malloc(BIG);
	struct braid_req *r[2], *s[2];

	(void)state;
	r[0] = irecv(cr, small, 8, 1);
	r[1] = irecv(cr, to, BIG, 1);
	s[0] = isend(cs, "small", 6, 1);
	s[1] = isend(cs, from, BIG, 1);
	pass_frame(A, BRAID_F_EAGER);
	pass_frame(A, BRAID_F_WANT);
	assert_int_equal(size_of(r[0]), 6);
	assert_false(done(r[1]));
	pass_frame(B, BRAID_F_RETIRE);
	assert_int_equal(pass_frame(B, BRAID_F_CREDIT).rseq, 1);
	run(s[1], r[1]);
	assert_int_equal(size_of(r[1]), BIG);
	assert_memory_equal(from, to, BIG);
	assert_true(done(s[0]) && done(s[1]));
	free(from);
	free(to);
	close_both();
}

/* Of two receives whose credits are due, the first is met by a small message, tested and freed. */
static void a_credit_that_is_due_outlives_the_receive_before_it(void **state)
{
	struct braid_hdr eager = {
		.type = BRAID_F_EAGER, .seq = cs->next_seq, .tag = 1, .comm = cs->id,
		.len = 4, .size = 4,
	};
	char to[3][16];
	struct braid_req *first, *second;

	(void)state;
	cr->large = true;
	first = irecv(cr, to[0], sizeof(to[0]), 1);
	second = irecv(cr, to[1], sizeof(to[1]), 2);
	assert_int_equal(cr->ndue, 2);
	assert_int_equal(null_forge(&pair, A, 0, &eager, "abc"), 0);
	assert_true(done(first));
	irecv(cr, to[2], sizeof(to[2]), 3);
	assert_null(cr->recv[0]);
	assert_false(done(second));
	null_settle(&pair);
	assert_int_equal(cr->ndue, 0);
}

static void credits_beyond_what_a_comm_can_have_are_refused(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_CREDIT, .comm = cs->id, .tag = 7, .size = 10 };

	(void)state;
	for (h.rseq = 0; h.rseq < BRAID_SLOTS; h.rseq++)
		assert_int_equal(null_forge(&pair, B, 0, &h, NULL), 0);
	assert_int_equal(null_forge(&pair, B, 0, &h, NULL), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_credit_that_came_first_is_used_without_a_want),
		CASE(an_eager_message_that_crosses_a_credit_uses_it_up),
		CASE(a_want_that_crosses_a_credit_gets_no_second_one),
		CASE(a_retirement_is_sent_before_any_later_credit),
		CASE(a_credit_that_is_due_outlives_the_receive_before_it),
		CASE(credits_beyond_what_a_comm_can_have_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
