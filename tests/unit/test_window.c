/* SPDX-License-Identifier: BSD-3-Clause */
/* test_window.c - how much may be sent before its receives are posted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "tests/lib/comms.h"

/* Its header costs window too; without any it goes by credit, and there is nothing to carry. */
static void an_empty_message_without_window_arrives(void **state)
{
	char to[8192], *from = message(8128, 1);
	struct braid_req *s[3], *r;

	(void)state;
	s[0] = isend(cs, from, 8128, 0);
	s[1] = isend(cs, from, 8128, 0);	/* with their headers all that the floor has */
	s[2] = isend(cs, NULL, 0, 0);
	run(s[2], NULL);
	assert_true(done(s[0]) && done(s[1]));
	assert_false(done(s[2]));
	for (unsigned i = 0; i < 3; i++) {
		r = irecv(cr, to, sizeof(to), 0);
		run(s[2], r);
		assert_int_equal(size_of(r), i < 2 ? 8128 : 0);
	}
	assert_true(done(s[2]));
	assert_int_equal(warn_count, 0);
	free(from);
	close_both();
}

static void without_window_a_message_goes_by_credit(void **state)
{
	char *from = message(8 * K, 1), *to = malloc(8 * K);
	struct braid_req *s[3], *r;

	(void)state;
	for (int i = 0; i < 3; i++)
		s[i] = isend(cs, from, 8000, 0);
	run(s[2], NULL);
	for (int i = 0; i < 2; i++)
		assert_true(done(s[i]));	/* in the floor of 16 KiB */
	assert_false(done(s[2]));
	for (int i = 0; i < 3; i++) {
		r = irecv(cr, to, 8000, 0);
		run(s[2], r);
		assert_int_equal(size_of(r), 8000);
		assert_memory_equal(from, to, 8000);
		memset(to, 0, 8000);
	}
	assert_true(done(s[2]));
	free(from);
	free(to);
	close_both();
}

static void a_comm_whose_receiver_posts_nothing_holds_up_no_other(void **state)
{
	struct braid_comm *other_s, *other_r, *mine_s = cs, *mine_r = cr;
	char *from = message(BIG, 1);
	unsigned sent = 0;

	(void)state;
	null_comms(&pair, A, &other_s, &other_r);
	/* Small and large messages, as many as the window allows; none is received. */
	for (unsigned i = 0; i < 200; i++) {
		struct braid_req *s = isend(other_s, from, i % 8 ? 8 * K : BIG, 0);

		sent += s != NULL;
		null_deliver_all(&pair);
		braid_link_try_flush_control(pair.end[B]);
		null_deliver_all(&pair);
	}
	assert_true(sent > 100);
	assert_true(pair.end[A]->msg.shared_out > 500 * K);
	cs = mine_s;
	cr = mine_r;
	for (int i = 0; i < 50; i++) {
		one_message(i % 2 ? 100 : 20 * K, 0);
		one_message(BIG, 0);
	}
	free(from);
}

static void the_window_comes_back_with_the_messages(void **state)
{
	char *from = message(60 * K, 1), *to = malloc(60 * K);

	(void)state;
	for (int i = 0; i < 100; i++) {		/* far more than the window, met at once */
		struct braid_req *s = isend(cs, from, 60 * K, 0), *r;

		null_deliver_all(&pair);
		r = irecv(cr, to, 60 * K, 0);
		run(s, r);
		assert_int_equal(size_of(r), 60 * K);
		assert_true(done(s));
	}
	null_settle(&pair);
	assert_int_equal(pair.end[A]->msg.shared_out, 0);
	assert_int_equal(pair.end[B]->msg.unexp_bytes, 0);
	free(from);
	free(to);
	close_both();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE_FLOOR(an_empty_message_without_window_arrives),
		CASE_FLOOR(without_window_a_message_goes_by_credit),
		CASE(a_comm_whose_receiver_posts_nothing_holds_up_no_other),
		CASE(the_window_comes_back_with_the_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
