/* SPDX-License-Identifier: BSD-3-Clause */
/* test_fail.c - how a comm fails, and what both ends log of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/comms.h"

static void assert_oversize(struct braid_req *s, struct braid_req *r, const char *to, size_t room,
			    const char *sizes, const char *rooms)
{
	unsigned before = warn_count;

	run(NULL, NULL);
	assert_int_equal(error_of(r), -EMSGSIZE);
	assert_int_equal(atomic_load(&cs->err), -EMSGSIZE);
	s = isend(cs, "x", 1, 0);
	assert_int_equal(error_of(s), -EMSGSIZE);
	assert_int_equal(before <= 2 && warn_count == 2, 1);	/* one at each end */
	assert_non_null(strstr(warn_text, sizes));
	assert_non_null(strstr(warn_text, rooms));
	for (size_t i = 0; i < room; i++)
		assert_int_equal(to[i], 0x55);
	warns_clear();
	braid_comm_close(cs);
	braid_comm_close(cr);
	null_settle(&pair);
	assert_int_equal(warn_count, 0);
	null_comms(&pair, A, &cs, &cr);
	one_message(BIG, 0);			/* the link still works */
}

static void a_message_larger_than_its_receive_fails_both_ends_and_writes_nothing(void **state)
{
	char *from = message(BIG, 1), *to = malloc(BIG);
	struct braid_req *s, *r;

	(void)state;
	memset(to, 0x55, BIG);
	r = irecv(cr, to, 99, 0);		/* eager, receive first */
	s = isend(cs, from, 100, 0);
	assert_oversize(s, r, to, BIG, "100", "99");

	s = isend(cs, from, 100, 0);		/* eager, message first */
	run(NULL, NULL);
	r = irecv(cr, to, 99, 0);
	assert_oversize(s, r, to, BIG, "100", "99");

	r = irecv(cr, to, BIG - 1, 0);		/* large, receive first */
	s = isend(cs, from, BIG, 0);
	assert_oversize(s, r, to, BIG, "204800", "204799");

	s = isend(cs, from, BIG, 0);		/* large, message first */
	run(NULL, NULL);
	r = irecv(cr, to, BIG - 1, 0);
	assert_oversize(s, r, to, BIG, "204800", "204799");

	one_message(BIG, 0);			/* large, credit known */
	r = irecv(cr, to, 50, 0);
	assert_false(done(r));
	run(NULL, NULL);
	s = isend(cs, from, BIG, 0);
	assert_oversize(s, r, to, BIG, "204800", "50");

	make_large();				/* large, credit crosses */
	r = irecv(cr, to, 50, 0);
	assert_false(done(r));
	s = isend(cs, from, BIG, 0);
	assert_oversize(s, r, to, BIG, "204800", "50");
	free(from);
	free(to);
}

static void a_request_that_waits_for_an_ended_peer_fails_and_logs(void **state)
{
	char to[16], *from = message(BIG, 0);
	struct braid_req *r = irecv(cr, to, sizeof(to), 0), *s;

	(void)state;
	braid_comm_close(cs);
	run(NULL, NULL);
	assert_int_equal(error_of(r), -EREMOTEIO);
	assert_int_equal(warn_count, 1);
	braid_comm_close(cr);
	null_settle(&pair);

	null_comms(&pair, A, &cs, &cr);
	s = isend(cs, from, BIG, 0);
	braid_comm_close(cr);
	run(NULL, NULL);
	assert_int_equal(error_of(s), -EREMOTEIO);
	assert_int_equal(warn_count, 2);	/* one WARN for each link's end */
	braid_comm_close(cs);
	null_settle(&pair);
	assert_null(null_not_idle(&pair));

	null_comms(&pair, A, &cs, &cr);
	braid_comm_close(cr);
	run(NULL, NULL);
	for (int i = 0; i < BRAID_SLOTS; i++)
		assert_non_null(s = isend(cs, "x", 1, 0));
	assert_int_equal(braid_comm_isend(cs, "x", 1, 0, NULL, &r), 0);
	assert_null(r);
	assert_int_equal(error_of(s), -EREMOTEIO);
	assert_int_equal(braid_comm_isend(cs, "x", 1, 0, NULL, &s), -EREMOTEIO);
	assert_int_equal(warn_count, 2);	/* as before */
	free(from);
}

static void fail_comm(struct braid_comm *c)
{
	braid_lock_wait(&c->link->lock);
	braid_comm_fail(c, -EREMOTEIO);
	braid_unlock(&c->link->lock);
}

/* NCCL expects isend() and irecv() to succeed, and the error to come from test(). */
static void a_failed_comm_accepts_posts_until_test_returns_the_error(void **state)
{
	char to[3][16];
	void *data[] = { to[0], to[1], to[2] };
	size_t size[] = { 16, 16, 16 };
	int tag[] = { 1, 2, 3 };
	struct braid_req *s, *r, *group;

	(void)state;
	for (int i = 0; i < BRAID_SLOTS; i++) {	/* each slot holds a message that meets none */
		s = isend(cs, "x", 1, 0);
		assert_non_null(s);
		null_settle(&pair);
		assert_true(settled(s));
	}
	assert_null(isend(cs, "x", 1, 0));
	fail_comm(cs);
	s = isend(cs, "x", 1, 0);
	assert_non_null(s);
	assert_int_equal(error_of(s), -EREMOTEIO);
	assert_int_equal(braid_comm_isend(cs, "x", 1, 0, NULL, &s), -EREMOTEIO);

	r = irecv(cr, to[0], sizeof(to[0]), 9);
	fail_comm(cr);
	assert_int_equal(braid_comm_irecv(cr, 3, data, size, tag, NULL, &group), 0);
	assert_non_null(group);
	assert_int_equal(error_of(group), -EREMOTEIO);
	assert_int_equal(error_of(r), -EREMOTEIO);
	assert_int_equal(braid_comm_irecv(cr, 3, data, size, tag, NULL, &group), -EREMOTEIO);
	braid_comm_close(cs);
	braid_comm_close(cr);
	null_settle(&pair);
	assert_null(null_not_idle(&pair));
}

/* Frames that were on their way when a comm failed are no reason to lose the link. */
static void a_failed_comm_ignores_later_frames(void **state)
{
	char *from = message(BIG, 3), *to = malloc(BIG);
	struct braid_comm *gone_s = cs, *gone_r = cr;
	struct braid_req *r;

	(void)state;
	make_large();
	r = irecv(cr, to, BIG, 1);
	assert_false(done(r));
	null_deliver_all(&pair);
	isend(cs, from, BIG, 1);		/* START and chunks */
	isend(cs, from, BIG, 1);		/* WANT */
	isend(cs, from, 10, 1);			/* EAGER */
	isend(cs, from, 50 * K, 2);
	braid_comm_cancel(cr, NULL);
	free(to);
	null_settle(&pair);
	assert_int_equal(atomic_load(&pair.end[B]->state), BRAID_LINK_UP);
	null_comms(&pair, A, &cs, &cr);
	one_message(BIG, 0);
	braid_comm_close(gone_s);
	braid_comm_close(gone_r);
	close_both();
	free(from);
}

static void a_link_that_dies_fails_its_comms_and_logs_once(void **state)
{
	struct braid_comm *other_s, *other_r;
	char to[8];
	struct braid_req *r, *q;

	(void)state;
	null_comms(&pair, B, &other_s, &other_r);
	r = irecv(cr, to, sizeof(to), 0);
	braid_link_fail(pair.end[B], -EREMOTEIO, "the cable of %s was cut", "null1");
	braid_link_fail(pair.end[B], -ENOMEM, "again");
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "the cable of null1 was cut"));
	assert_int_equal(error_of(r), -EREMOTEIO);
	assert_int_equal(braid_comm_irecv(cr, 1, &(void *){ to }, &(size_t){ 8 }, &(int){ 0 }, NULL,
					  &q), -EREMOTEIO);
	q = isend(other_s, "x", 1, 0);
	assert_non_null(q);
	assert_int_equal(error_of(q), -EREMOTEIO);
	assert_int_equal(braid_comm_isend(other_s, "x", 1, 0, NULL, &q), -EREMOTEIO);
	braid_comm_close(cr);
	braid_comm_close(other_s);
	assert_int_equal(pair.end[B]->msg.ncomms, 0);
}

/* The link's line is no WARN, as nothing waits when it dies; what comes later gets one. */
static void a_send_after_the_peer_closed_and_the_link_died_names_the_peer(void **state)
{
	struct braid_req *s;

	(void)state;
	braid_comm_close(cr);
	null_settle(&pair);
	braid_link_fail(pair.end[A], -EREMOTEIO, "the peer closed the link");
	assert_int_equal(warn_count, 0);
	s = isend(cs, "x", 1, 0);
	assert_non_null(s);
	assert_int_equal(error_of(s), -EREMOTEIO);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "[peer-closed]"));
	braid_comm_close(cs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_message_larger_than_its_receive_fails_both_ends_and_writes_nothing),
		CASE(a_request_that_waits_for_an_ended_peer_fails_and_logs),
		CASE(a_failed_comm_accepts_posts_until_test_returns_the_error),
		CASE(a_failed_comm_ignores_later_frames),
		CASE(a_link_that_dies_fails_its_comms_and_logs_once),
		CASE(a_send_after_the_peer_closed_and_the_link_died_names_the_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
