/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_redial.c - when a lost lane is dialled next, what an error says about the peer and the path,
 * and which lanes are dialled although they work.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/units.h"
#include "core/link/link.h"
#include "core/setup/conn.h"
#include "core/setup/links.h"
#include "core/setup/redial.h"
#include "tests/lib/warns.h"

enum { LANES = 2, MIDDLE = 128 };	/* MIDDLE: the random byte that changes no wait */

static struct braid_link link_;
static struct braid_lane lane_[LANES];
static struct braid_dev dev;
static uint64_t now = 1000 * SEC;
static uint8_t chance;
static bool rdma_works;
static const struct braid_os *real;

static bool usable(const struct braid_dev *d)
{
	assert_ptr_equal(d, &dev);
	return rdma_works;
}

static const struct braid_transport sockets = { .name = "sockets", .usable = braid_always };
static const struct braid_transport rdma = { .name = "rdma", .blob = true, .usable = usable };

static int os_random(void *buf, size_t len)
{
	memset(buf, chance, len);
	return 0;
}

static uint64_t os_now_ns(void)
{
	return now;
}

/* A link with two lanes over two paths, each of which has one way. */
static int setup(void **state)
{
	static struct braid_os os;

	(void)state;
	real = braid_os;
	os = *real;
	os.random = os_random;
	os.now_ns = os_now_ns;
	braid_os = &os;
	warns_keep();
	now += 1000 * SEC;
	chance = MIDDLE;
	rdma_works = true;
	memset(&link_, 0, sizeof(link_));
	memset(lane_, 0, sizeof(lane_));
	atomic_store(&link_.recover.received_ns, now);
	dev.best = &sockets;
	link_.key.dev = &dev;
	link_.nlanes = link_.npaths = LANES;
	for (unsigned i = 0; i < LANES; i++) {
		link_.setup.path[i].dev = &dev;
		link_.setup.path[i].ways.n = 1;
		link_.lane[i] = &lane_[i];
		lane_[i].link = &link_;
		lane_[i].index = lane_[i].recover.path = (uint8_t)i;
		lane_[i].tr = &sockets;
		atomic_store(&lane_[i].up, true);
	}
	braid_svc_lock();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_svc_unlock();
	braid_log_to(NULL);
	braid_os = real;
	return 0;
}

static void one_path(void)
{
	link_.npaths = 1;
	lane_[1].recover.path = 0;
}

/* A dial of lane 0 over path 0 has come so far, and ends. */
static void ends(enum braid_conn_state state, int err)
{
	struct braid_conn c = { .state = state };

	braid_redial_ended(&lane_[0], &c, err, now);
}

static uint64_t next_us(void)
{
	return (lane_[0].recover.dial_at_ns - now) / 1000;
}

/* --- the wait ------------------------------------------------------------------------------ */

static void each_failure_doubles_the_wait(void **state)
{
	static const unsigned want_ms[] = { 5, 10, 20, 40, 80, 160, 320, 500, 500 };

	(void)state;
	one_path();
	for (unsigned i = 0; i < sizeof(want_ms) / sizeof(want_ms[0]); i++) {
		ends(BRAID_CONN_CONNECT, -EHOSTUNREACH);
		assert_int_equal(next_us(), want_ms[i] * 1000);
	}
	ends(BRAID_CONN_UP, 0);
	assert_int_equal(lane_[0].recover.dial_at_ns, 0);
	ends(BRAID_CONN_CONNECT, -EHOSTUNREACH);
	assert_int_equal(next_us(), 5000);
}

static void an_unanswered_dial_is_repeated_after_the_shortest_wait(void **state)
{
	(void)state;
	one_path();
	for (unsigned i = 0; i < 3; i++) {
		ends(BRAID_CONN_CONNECT, -ETIMEDOUT);
		assert_int_equal(next_us(), 5000);
	}
}

/* The peer's kernel connects, but its process says nothing: perhaps it is stopped. */
static void a_peer_that_only_connects_is_dialled_ever_more_rarely(void **state)
{
	static const unsigned want_ms[] = { 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5000, 5000 };

	(void)state;
	one_path();
	for (unsigned i = 0; i < sizeof(want_ms) / sizeof(want_ms[0]); i++) {
		ends(BRAID_CONN_RX_ANSWER, -ETIMEDOUT);
		assert_int_equal(next_us(), want_ms[i] * 1000);
		assert_true(link_.recover.unanswered);
	}
	ends(BRAID_CONN_CONNECT, -ETIMEDOUT);
	assert_false(link_.recover.unanswered);
}

static void no_two_peers_wait_equally_long(void **state)
{
	(void)state;
	one_path();
	chance = 0;
	ends(BRAID_CONN_CONNECT, -ETIMEDOUT);
	assert_int_equal(next_us(), 3750);
	chance = 255;
	ends(BRAID_CONN_CONNECT, -ETIMEDOUT);
	assert_int_equal(next_us(), 6230);
}

/* The peer has a later dial of that lane: this one neither failed nor succeeded. */
static void a_dial_that_is_not_needed_any_more_changes_nothing(void **state)
{
	(void)state;
	lane_[0].recover.dial_at_ns = 7;
	ends(BRAID_CONN_RX_ANSWER, -EALREADY);
	assert_int_equal(lane_[0].recover.dial_at_ns, 7);
	assert_int_equal(lane_[0].recover.dial_wait_ms, 0);
	assert_int_equal(link_.setup.path[0].bad_until_ns, 0);
}

static void success_is_a_sign_of_life(void **state)
{
	(void)state;
	link_.recover.refused = true;
	link_.setup.path[0].bad_until_ns = now + SEC;
	ends(BRAID_CONN_UP, 0);
	assert_false(link_.recover.refused);
	assert_int_equal(link_.recover.received_ns, now);
	assert_int_equal(link_.setup.path[0].bad_until_ns, 0);
}

static void requests_to_dial_wait_in_the_same_way(void **state)
{
	struct braid_conn c = { .state = BRAID_CONN_CONNECT };

	(void)state;
	one_path();
	for (unsigned ms = 5; ms <= 20; ms *= 2) {
		braid_redial_requested(&link_, &c, -EHOSTUNREACH, now);
		assert_int_equal(link_.recover.probe_ns - now, ms * MS);
	}
	/* The peer has promised to dial: give it some time. */
	braid_redial_requested(&link_, &c, 0, now);
	assert_int_equal(link_.recover.probe_ns - now, 500 * MS);
}

static void an_answered_request_shows_that_its_path_works(void **state)
{
	struct braid_conn c = { .state = BRAID_CONN_UP };

	(void)state;
	link_.setup.path[0].ways.n = 0;		/* as at the accepting end */
	braid_redial_requested(&link_, &c, 0, now);
	assert_int_equal(link_.setup.path[0].bad_until_ns, 0);
	braid_redial_requested(&link_, &c, -ECONNRESET, now);
	assert_true(link_.setup.path[0].bad_until_ns > now);
}

/* --- what it means ------------------------------------------------------------------------- */

static bool refused(enum braid_conn_state state, int err)
{
	link_.recover.refused = false;
	link_.recover.refused_ns = 0;
	ends(state, err);
	assert_false(link_.recover.refused);	/* one may be anybody's */
	now += 40 * MS;
	ends(state, err);
	return link_.recover.refused;
}

static void a_closed_port_and_a_strangers_answer_are_refusals(void **state)
{
	(void)state;
	assert_true(refused(BRAID_CONN_CONNECT, -ECONNREFUSED));
	assert_true(refused(BRAID_CONN_RX_ANSWER, -EPROTO));
	assert_true(refused(BRAID_CONN_RX_ANSWER, -EPROTONOSUPPORT));
	assert_true(refused(BRAID_CONN_RX_ANSWER, -EACCES));
	assert_true(refused(BRAID_CONN_RX_ANSWER, -EREMOTEIO));
	/* A refusal is no fault of the path. */
	assert_int_equal(link_.setup.path[0].bad_until_ns, 0);
}

static void a_refusal_without_proof_is_asked_for_again(void **state)
{
	struct braid_conn c = { .state = BRAID_CONN_RX_ANSWER, .known = true };

	(void)state;
	ends(BRAID_CONN_CONNECT, -ECONNREFUSED);
	assert_int_equal(lane_[0].recover.dial_at_ns - now, 40 * MS);
	ends(BRAID_CONN_CONNECT, -ECONNREFUSED);	/* another lane, at the same time */
	assert_false(link_.recover.refused);
	now += 40 * MS;
	ends(BRAID_CONN_UP, 0);			/* the peer itself has answered */
	ends(BRAID_CONN_CONNECT, -ECONNREFUSED);
	now += 3 * SEC;
	ends(BRAID_CONN_CONNECT, -ECONNREFUSED);
	assert_false(link_.recover.refused);
	now += 30 * MS;
	ends(BRAID_CONN_CONNECT, -ECONNREFUSED);
	assert_true(link_.recover.refused);
	link_.recover.refused = false;
	link_.recover.refused_ns = 0;
	braid_redial_ended(&lane_[0], &c, -EREMOTEIO, now);
	assert_true(link_.recover.refused);	/* signed */
}

static void a_request_that_is_refused_is_made_again(void **state)
{
	struct braid_conn c = { .state = BRAID_CONN_CONNECT };

	(void)state;
	braid_redial_requested(&link_, &c, -ECONNREFUSED, now);
	assert_false(link_.recover.refused);
	assert_int_equal(link_.recover.probe_ns - now, 40 * MS);
	now += 40 * MS;
	braid_redial_requested(&link_, &c, -ECONNREFUSED, now);
	assert_true(link_.recover.refused);
}

static void trouble_on_the_way_is_no_refusal(void **state)
{
	(void)state;
	assert_false(refused(BRAID_CONN_CONNECT, -EACCES));	/* by a route, or a firewall */
	assert_false(refused(BRAID_CONN_CONNECT, -EHOSTUNREACH));
	assert_false(refused(BRAID_CONN_RX_ANSWER, -ECONNRESET));
	assert_false(refused(BRAID_CONN_RX_ANSWER, -ETIMEDOUT));
}

static void a_peer_that_is_short_of_memory_lives(void **state)
{
	struct braid_conn c = { .state = BRAID_CONN_RX_ANSWER };

	(void)state;
	c.theirs.status = BRAID_HELLO_NO_ROOM;
	braid_redial_ended(&lane_[0], &c, -EREMOTEIO, now);
	assert_false(link_.recover.refused);
}

static void only_the_last_way_of_a_path_counts_as_a_refusal(void **state)
{
	struct braid_conn c = { .state = BRAID_CONN_CONNECT };

	(void)state;
	one_path();
	link_.setup.path[0].ways.n = 2;
	braid_redial_ended(&lane_[0], &c, -ECONNREFUSED, now);
	assert_false(link_.recover.refused);
	assert_int_equal(link_.recover.refused_ns, 0);
	c.way = 1;
	braid_redial_ended(&lane_[0], &c, -ECONNREFUSED, now);
	assert_int_equal(link_.recover.refused_ns, now);
}

static void a_path_that_failed_is_avoided_and_its_lanes_go_elsewhere_at_once(void **state)
{
	(void)state;
	lane_[1].recover.dial_at_ns = now + SEC;
	ends(BRAID_CONN_CONNECT, -EHOSTUNREACH);
	assert_true(link_.setup.path[0].bad_until_ns > now);
	assert_int_equal(link_.setup.path[1].bad_until_ns, 0);
	assert_int_equal(lane_[0].recover.dial_at_ns, 0);
	assert_int_equal(lane_[1].recover.dial_at_ns, 0);
}

static void lanes_that_have_no_other_path_still_wait(void **state)
{
	(void)state;
	link_.setup.path[1].bad_until_ns = now + SEC;
	ends(BRAID_CONN_CONNECT, -EHOSTUNREACH);
	/* Path 1 failed first, so it is tried first. */
	assert_int_equal(lane_[0].recover.dial_at_ns, 0);
	lane_[0].recover.dial_at_ns = now + SEC;
	braid_redial_avoid(&link_, 1, now + SEC);
	assert_int_equal(lane_[0].recover.dial_at_ns, 0);
	one_path();
	ends(BRAID_CONN_CONNECT, -EHOSTUNREACH);
	assert_true(lane_[0].recover.dial_at_ns > now);
}

static void a_limit_of_this_host_is_reported_now_and_then(void **state)
{
	(void)state;
	braid_redial_ended(&lane_[0], NULL, -EMFILE, now);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "Raise the limit: ulimit -n [no-redial]"));
	assert_true(lane_[0].recover.dial_at_ns > now);
	assert_false(link_.recover.refused);
	now += SEC;
	braid_redial_ended(&lane_[0], NULL, -ENOMEM, now);
	assert_int_equal(warn_count, 1);
	now += 10 * SEC;
	braid_redial_ended(&lane_[0], NULL, -ENOMEM, now);
	assert_int_equal(warn_count, 2);
	assert_null(strstr(warn_text, "ulimit"));
	now += 20 * SEC;
	ends(BRAID_CONN_CONNECT, -EHOSTUNREACH);
	assert_int_equal(warn_count, 2);
}

/* --- which lanes --------------------------------------------------------------------------- */

static void a_lane_lost_again_soon_is_suspected_later(void **state)
{
	static const unsigned want_ms[] = { 400, 800, 1600, 1600 };

	(void)state;
	braid_redial_resumed(&lane_[0], now);
	assert_int_equal(lane_[0].recover.patience_ms, 200);
	for (unsigned i = 0; i < 4; i++) {
		now += 10 * SEC;
		assert_true(braid_redial_again(&lane_[0], now));
		braid_redial_resumed(&lane_[0], now);
		assert_int_equal(lane_[0].recover.patience_ms, want_ms[i]);
	}
	now += 10 * SEC + 1;
	assert_false(braid_redial_again(&lane_[0], now));
	braid_redial_resumed(&lane_[0], now);
	assert_int_equal(lane_[0].recover.patience_ms, 200);
}

static void a_socket_where_rdma_works_is_poor(void **state)
{
	(void)state;
	dev.best = &rdma;
	assert_false(braid_redial_is_poor(&lane_[0], 0, now));	/* the peer has no RDMA there */
	link_.setup.path[0].better = true;
	assert_true(braid_redial_is_poor(&lane_[0], 0, now));
	rdma_works = false;
	assert_false(braid_redial_is_poor(&lane_[0], 0, now));
	rdma_works = true;
	link_.setup.path[0].plain_until_ns = now + 1;
	assert_false(braid_redial_is_poor(&lane_[0], 0, now));
	assert_true(braid_redial_is_poor(&lane_[0], 0, now + 1));
	lane_[0].tr = &rdma;
	assert_false(braid_redial_is_poor(&lane_[0], 0, now + 1));
}

static void one_lane_of_a_path_tries_rdma_first(void **state)
{
	(void)state;
	dev.best = &rdma;
	one_path();
	link_.setup.path[0].better = true;
	/* Not home, on which small messages would wait meanwhile. */
	assert_false(braid_redial_is_poor(&lane_[0], 0, now));
	assert_true(braid_redial_is_poor(&lane_[1], 0, now));
	lane_[1].tr = &rdma;
	assert_true(braid_redial_is_poor(&lane_[0], 0, now));
	link_.lanes.home = 1;
	lane_[1].tr = &sockets;
	assert_true(braid_redial_is_poor(&lane_[0], 0, now));
	assert_false(braid_redial_is_poor(&lane_[1], 0, now));
	/* The other lane is on another path: it is not waited for. */
	lane_[0].recover.path = 1;
	assert_true(braid_redial_is_poor(&lane_[1], 0, now));
}

static void a_dial_is_wanted_until_the_lane_works_where_it_should(void **state)
{
	(void)state;
	assert_false(braid_redial_is_needed(&lane_[0], 0));
	assert_true(braid_redial_is_needed(&lane_[0], 1));	/* the lane is astray */
	lane_[0].loss.suspect_ns = now;
	assert_true(braid_redial_is_needed(&lane_[0], 0));
	lane_[0].loss.suspect_ns = 0;
	atomic_store(&lane_[0].up, false);
	assert_true(braid_redial_is_needed(&lane_[0], 0));
	atomic_store(&lane_[0].up, true);
	lane_[0].loss.old_key = true;
	assert_true(braid_redial_is_needed(&lane_[0], 0));
	lane_[0].loss.old_key = false;
	dev.best = &rdma;
	link_.setup.path[0].better = true;
	assert_true(braid_redial_is_needed(&lane_[0], 0));
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(each_failure_doubles_the_wait),
		CASE(an_unanswered_dial_is_repeated_after_the_shortest_wait),
		CASE(a_peer_that_only_connects_is_dialled_ever_more_rarely),
		CASE(no_two_peers_wait_equally_long),
		CASE(a_dial_that_is_not_needed_any_more_changes_nothing),
		CASE(success_is_a_sign_of_life),
		CASE(requests_to_dial_wait_in_the_same_way),
		CASE(an_answered_request_shows_that_its_path_works),
		CASE(a_closed_port_and_a_strangers_answer_are_refusals),
		CASE(a_refusal_without_proof_is_asked_for_again),
		CASE(a_request_that_is_refused_is_made_again),
		CASE(trouble_on_the_way_is_no_refusal),
		CASE(a_peer_that_is_short_of_memory_lives),
		CASE(only_the_last_way_of_a_path_counts_as_a_refusal),
		CASE(a_path_that_failed_is_avoided_and_its_lanes_go_elsewhere_at_once),
		CASE(lanes_that_have_no_other_path_still_wait),
		CASE(a_limit_of_this_host_is_reported_now_and_then),
		CASE(a_lane_lost_again_soon_is_suspected_later),
		CASE(a_socket_where_rdma_works_is_poor),
		CASE(one_lane_of_a_path_tries_rdma_first),
		CASE(a_dial_is_wanted_until_the_lane_works_where_it_should),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
