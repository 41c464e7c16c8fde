/* SPDX-License-Identifier: BSD-3-Clause */
/* test_unexpected.c - messages that arrive before their receives are posted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/comms.h"

static void receives_take_the_oldest_message_of_their_tag(void **state)
{
	static const char *const sent[] = { "a1", "b1", "a2", "b2" };
	char to[4][8];
	struct braid_req *r;

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		assert_true(settled(isend(cs, sent[i], 3, i % 2)));
	null_deliver_all(&pair);
	assert_int_equal(cr->nunexps, 4);
	for (unsigned i = 4; i--;) {		/* of tag 1, 0, 1, 0 */
		r = irecv(cr, to[i], sizeof(to[i]), i % 2);
		assert_int_equal(size_of(r), 3);
	}
	assert_string_equal(to[3], "b1");
	assert_string_equal(to[2], "a1");
	assert_string_equal(to[1], "b2");
	assert_string_equal(to[0], "a2");
	assert_int_equal(cr->nunexps, 0);
	null_settle(&pair);
	close_both();
}

/* The receive is posted while the payload is still on its way into memory of the pool. */
static void a_message_half_here_goes_to_its_receive_once_it_is_complete(void **state)
{
	char *from = message(40 * K, 4), *to = calloc(1, 40 * K);
	struct braid_req *s = isend(cs, from, 40 * K, 2), *r;

	(void)state;
	null_deliver_some(&pair, A, 0, 10 * K);
	assert_int_equal(cr->nunexps, 1);
	r = irecv(cr, to, 40 * K, 2);
	assert_false(done(r));
	assert_int_equal(to[0], 0);
	assert_int_equal(pair.end[B]->msg.unexp_bytes, 0);	/* it counts no more against the window */
	run(s, r);
	assert_int_equal(size_of(r), 40 * K);
	assert_memory_equal(from, to, 40 * K);
	assert_int_equal(cr->nunexps, 0);
	free(from);
	free(to);
	close_both();
}

static void a_message_larger_than_the_receive_posted_later_is_not_copied(void **state)
{
	char to[4];
	struct braid_req *r;

	(void)state;
	assert_true(settled(isend(cs, "larger", 7, 0)));
	null_deliver_all(&pair);
	memset(to, 0x55, sizeof(to));
	r = irecv(cr, to, sizeof(to), 0);
	assert_int_equal(error_of(r), -EMSGSIZE);
	for (unsigned i = 0; i < sizeof(to); i++)
		assert_int_equal(to[i], 0x55);
}

static void closing_frees_messages_that_met_no_receive(void **state)
{
	char *from = message(BIG, 1);

	(void)state;
	for (unsigned i = 0; i < 5; i++)
		isend(cs, from, 30 * K, 0);
	isend(cs, from, BIG, 0);
	for (unsigned i = 0; i < 5; i++)
		null_deliver(&pair, A, 0);
	null_deliver_some(&pair, A, 0, 100);	/* one of them is half here */
	assert_true(pair.end[B]->msg.unexp_bytes > 0);
	braid_comm_close(cr);
	assert_int_equal(pair.end[B]->msg.unexp_bytes, 0);
	braid_comm_close(cs);
	null_settle(&pair);
	assert_null(null_not_idle(&pair));
	free(from);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(receives_take_the_oldest_message_of_their_tag),
		CASE(a_message_half_here_goes_to_its_receive_once_it_is_complete),
		CASE(a_message_larger_than_the_receive_posted_later_is_not_copied),
		CASE(closing_frees_messages_that_met_no_receive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
