/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_stall.c - when a message that waits for a live peer is reported, by a clock that only the test
 * moves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/base/flight.h"
#include "core/base/param.h"
#include "core/base/units.h"
#include "core/setup/links.h"
#include "core/setup/service.h"
#include "core/setup/stall.h"
#include "tests/lib/comms.h"

enum { LIMIT = 10 };			/* BRAID_STALL_WARN */

static unsigned hooked;
static char into[64];

static void stalled(void)
{
	hooked++;
}

static int begin(void **state)
{
	setup(state);
	braid_param.stall_warn = LIMIT;
	braid_service_hooks.stalled = stalled;
	hooked = 0;
	null_now_ns += 1000 * SEC;
	braid_svc_lock();
	return 0;
}

static int end(void **state)
{
	braid_svc_unlock();
	braid_service_hooks.stalled = NULL;
	return teardown(state);
}

#undef CASE
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)

static void look(unsigned at)
{
	/* The last sign of life came 300 ms ago. */
	atomic_store(&pair.end[at]->recover.received_ns, null_now_ns - 300 * MS);
	braid_stall_check(pair.end[at], null_now_ns);
}

/* The service thread looks at that end's link for so long. */
static void wait_s(unsigned at, unsigned s)
{
	for (unsigned i = 0; i < s; i++) {
		null_now_ns += SEC;
		look(at);
	}
}

static void assert_reports(unsigned at, unsigned n)
{
	assert_int_equal(warn_count, n);
	assert_int_equal(hooked, n);
	assert_int_equal(atomic_load(&pair.end[at]->recover.stalls), n);
	assert_int_equal(atomic_load(&pair.dev[at].stalls), n);
}

static unsigned last_event(void)
{
	struct braid_event ev[1];

	return braid_flight_copy(ev, 1) ? ev[0].kind : BRAID_EVENTS;
}

static void a_receive_that_waits_for_long_is_reported_once(void **state)
{
	struct braid_req *r = irecv(cr, into, sizeof(into), 5);

	(void)state;
	look(B);
	wait_s(B, LIMIT - 1);
	assert_reports(B, 0);
	wait_s(B, 1);
	assert_reports(B, 1);
	assert_int_equal(last_event(), BRAID_EVENT_STALL);
	assert_non_null(strstr(warn_text, "a receive (tag 5, 64 bytes) has waited for 10 s"));
	assert_non_null(strstr(warn_text, "heard 300 ms ago and has not sent it"));
	assert_non_null(strstr(warn_text, "[peer-late]"));
	wait_s(B, 5 * LIMIT);
	assert_reports(B, 1);
	run(isend(cs, "x", 1, 5), r);
}

static void a_send_whose_receive_is_not_posted_is_reported(void **state)
{
	char *m = message(BIG, 1), *to = malloc(BIG);
	struct braid_req *s = isend(cs, m, BIG, 6);

	(void)state;
	look(A);
	wait_s(A, LIMIT);
	assert_reports(A, 1);
	assert_non_null(strstr(warn_text, "a send (tag 6, 204800 bytes) has waited for 10 s"));
	assert_non_null(strstr(warn_text, "and has not posted its receive"));
	run(s, irecv(cr, to, BIG, 6));
	free(m);
	free(to);
}

/* A small message is with the peer: its sender does not wait. */
static void a_small_send_is_not_late(void **state)
{
	struct braid_req *s = isend(cs, "x", 1, 6);

	(void)state;
	look(A);
	wait_s(A, 2 * LIMIT);
	assert_reports(A, 0);
	run(s, irecv(cr, into, sizeof(into), 6));
}

static void nothing_is_reported_while_messages_keep_coming(void **state)
{
	struct braid_req *r = irecv(cr, into, sizeof(into), 5);

	(void)state;
	look(B);
	for (unsigned i = 0; i < 5; i++) {
		struct braid_req *next = irecv(cr, into, sizeof(into), 5);

		wait_s(B, LIMIT - 2);
		run(isend(cs, "x", 1, 5), r);
		r = next;
	}
	assert_reports(B, 0);
	run(isend(cs, "x", 1, 5), r);
}

static void the_time_between_messages_does_not_count(void **state)
{
	struct braid_req *r;

	(void)state;
	look(B);
	wait_s(B, 2 * LIMIT);
	r = irecv(cr, into, sizeof(into), 5);
	wait_s(B, LIMIT);
	assert_reports(B, 0);
	wait_s(B, 1);
	assert_reports(B, 1);
	run(isend(cs, "x", 1, 5), r);
}

static void a_second_wait_is_reported_again(void **state)
{
	struct braid_req *r = irecv(cr, into, sizeof(into), 5);

	(void)state;
	look(B);
	wait_s(B, LIMIT);
	run(isend(cs, "x", 1, 5), r);
	wait_s(B, 1);
	assert_int_equal(last_event(), BRAID_EVENT_STALL_OVER);
	r = irecv(cr, into, sizeof(into), 5);
	wait_s(B, LIMIT + 1);
	assert_reports(B, 2);
	run(isend(cs, "x", 1, 5), r);
}

static void two_late_comms_of_a_link_are_one_report(void **state)
{
	struct braid_req *r = irecv(cr, into, sizeof(into), 5), *other;
	struct braid_comm *s2, *r2;

	(void)state;
	null_comms(&pair, A, &s2, &r2);
	other = irecv(r2, into, sizeof(into), 7);
	look(B);
	wait_s(B, LIMIT);
	assert_reports(B, 1);
	/* One of them goes on, the other is still late. */
	run(isend(cs, "x", 1, 5), r);
	wait_s(B, LIMIT);
	assert_reports(B, 1);
	run(isend(s2, "x", 1, 7), other);
}

/* That peer gets a line of its own: [peer-silent]. */
static void a_silent_peer_is_not_late(void **state)
{
	struct braid_req *r = irecv(cr, into, sizeof(into), 5);

	(void)state;
	atomic_store(&pair.end[B]->recover.silent, true);
	look(B);
	wait_s(B, 2 * LIMIT);
	assert_reports(B, 0);
	atomic_store(&pair.end[B]->recover.silent, false);
	run(isend(cs, "x", 1, 5), r);
}

static void zero_turns_it_off(void **state)
{
	struct braid_req *r = irecv(cr, into, sizeof(into), 5);

	(void)state;
	braid_param.stall_warn = 0;
	look(B);
	wait_s(B, 2 * LIMIT);
	assert_reports(B, 0);
	run(isend(cs, "x", 1, 5), r);
}

static void a_look_comes_once_a_second_at_most(void **state)
{
	struct braid_req *r;

	(void)state;
	look(B);
	r = irecv(cr, into, sizeof(into), 5);
	null_now_ns += MS;
	look(B);			/* too soon: the receive is not seen yet */
	wait_s(B, LIMIT);
	assert_reports(B, 0);
	wait_s(B, 1);
	assert_reports(B, 1);
	run(isend(cs, "x", 1, 5), r);
}

/* A caller may hold the link's lock for long: the thread does not wait for it. */
static void a_link_that_is_locked_is_looked_at_in_the_next_tick(void **state)
{
	struct braid_req *r = irecv(cr, into, sizeof(into), 5);

	(void)state;
	look(B);
	wait_s(B, LIMIT - 1);
	null_now_ns += SEC;
	braid_lock_wait(&pair.end[B]->lock);
	look(B);
	braid_unlock(&pair.end[B]->lock);
	assert_reports(B, 0);
	null_now_ns += 2 * MS;
	look(B);
	assert_reports(B, 1);
	run(isend(cs, "x", 1, 5), r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_receive_that_waits_for_long_is_reported_once),
		CASE(a_send_whose_receive_is_not_posted_is_reported),
		CASE(a_small_send_is_not_late),
		CASE(nothing_is_reported_while_messages_keep_coming),
		CASE(the_time_between_messages_does_not_count),
		CASE(a_second_wait_is_reported_again),
		CASE(two_late_comms_of_a_link_are_one_report),
		CASE(a_silent_peer_is_not_late),
		CASE(zero_turns_it_off),
		CASE(a_look_comes_once_a_second_at_most),
		CASE(a_link_that_is_locked_is_looked_at_in_the_next_tick),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
