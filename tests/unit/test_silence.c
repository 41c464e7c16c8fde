/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_silence.c - what a link concludes from a peer of which nothing comes, by a clock that only the
 * test moves.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "core/base/flight.h"
#include "core/base/param.h"
#include "core/base/units.h"
#include "core/link/recover.h"
#include "core/setup/links.h"
#include "core/setup/redial.h"
#include "core/setup/silence.h"
#include "tests/lib/comms.h"

static struct braid_link *link;		/* B's: it receives */

static int begin_with(unsigned lanes)
{
	start(&(struct null_config){ .lanes = lanes, .window = 512 * K, .held = true });
	link = pair.end[B];
	null_now_ns += 1000 * SEC;
	braid_svc_lock();
	braid_silence_start(link, null_now_ns);
	return 0;
}

static int begin(void **state)
{
	(void)state;
	return begin_with(1);
}

static int begin_lanes(void **state)
{
	(void)state;
	return begin_with(2);
}

#undef CASE
#undef CASE_LANES
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)
#define CASE_LANES(f) cmocka_unit_test_setup_teardown(f, begin_lanes, end)

static int end(void **state)
{
	(void)state;
	braid_svc_unlock();
	null_pair_fini(&pair);
	return 0;
}

static void pass(uint64_t ms)
{
	null_now_ns += ms * MS;
}

static void lose(unsigned lane)
{
	braid_lock_wait(&link->lock);
	braid_lane_lost(link->lane[lane], -ECONNRESET);
	braid_unlock(&link->lock);
}

static unsigned last_event(void)
{
	struct braid_event ev[1];

	return braid_flight_copy(ev, 1) ? ev[0].kind : BRAID_EVENTS;
}

/* --- hearing ------------------------------------------------------------------------------- */

static void any_byte_ends_the_silence(void **state)
{
	(void)state;
	pass(700);
	braid_silence_update(link, null_now_ns);
	assert_int_equal(braid_silence(link, null_now_ns), 700 * MS);
	atomic_fetch_add(&link->lane[1]->rx_bytes, 1);
	braid_silence_update(link, null_now_ns);
	assert_int_equal(braid_silence(link, null_now_ns), 0);
	pass(10);
	braid_silence_update(link, null_now_ns);
	assert_int_equal(braid_silence(link, null_now_ns), 10 * MS);
}

static void a_time_before_the_last_sign_is_no_silence(void **state)
{
	(void)state;
	assert_int_equal(braid_silence(link, null_now_ns - 5 * MS), 0);
}

/* --- reporting ----------------------------------------------------------------------------- */

static void a_silence_of_three_seconds_is_reported_once(void **state)
{
	(void)state;
	pass(2999);
	braid_silence_report(link, null_now_ns);
	assert_int_equal(warn_count, 0);
	pass(1);
	braid_silence_report(link, null_now_ns);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "not a word for 3 s"));
	assert_non_null(strstr(warn_text, "giving up after 240 s (BRAID_PEER_TIMEOUT)"));
	assert_non_null(strstr(warn_text, "[peer-silent]"));
	assert_int_equal(last_event(), BRAID_EVENT_SILENT);
	pass(10000);
	braid_silence_report(link, null_now_ns);
	assert_int_equal(warn_count, 1);
}

static void a_transport_that_sees_no_acknowledgement_blames_nobody(void **state)
{
	struct braid_lane *home = braid_link_home(link);
	const struct braid_transport *tr = home->tr;
	struct braid_transport blind = *tr;

	(void)state;
	pass(3000);
	braid_silence_report(link, null_now_ns);
	assert_non_null(strstr(warn_text, "its host acknowledges what we send"));
	link->recover.silent = false;
	blind.blind = true;
	home->tr = &blind;
	braid_silence_report(link, null_now_ns);
	home->tr = tr;
	assert_int_equal(warn_count, 2);
	assert_non_null(strstr(warn_text, "or the path to it or the host be down"));
	assert_null(strstr(warn_text, "its host acknowledges what we send, but"));
}

static void a_peer_that_sends_again_may_be_reported_again(void **state)
{
	(void)state;
	pass(3000);
	braid_silence_report(link, null_now_ns);
	atomic_fetch_add(&link->lane[0]->rx_bytes, 1);
	braid_silence_update(link, null_now_ns);
	assert_int_equal(last_event(), BRAID_EVENT_HEARD);
	assert_false(atomic_load(&link->recover.silent));
	pass(3000);
	braid_silence_report(link, null_now_ns);
	assert_int_equal(warn_count, 2);
}

/* Does the line blame the path, and not the peer's process? */
static bool blames_path(void)
{
	warns_clear();
	link->recover.silent = false;
	braid_silence_report(link, null_now_ns);
	assert_int_equal(warn_count, 1);
	return strstr(warn_text, "the path to that host, or the host, is down");
}

static void the_path_is_blamed_if_the_peers_kernel_does_not_answer(void **state)
{
	(void)state;
	pass(3000);
	assert_false(blames_path());
	link->lane[0]->loss.suspect_ns = null_now_ns;	/* bytes that nobody acknowledges */
	assert_true(blames_path());
	lose(0);
	assert_true(blames_path());
	link->recover.unanswered = true;	/* a dial connected, and then nothing came */
	assert_false(blames_path());
}

/* --- giving up ----------------------------------------------------------------------------- */

static bool over(const char *id)
{
	bool is = braid_silence_is_over(link, null_now_ns);

	assert_int_equal(is, atomic_load(&link->state) == BRAID_LINK_DEAD);
	if (is && *id)
		assert_non_null(strstr(warn_text, id));
	return is;
}

static void a_peer_is_lost_after_its_time(void **state)
{
	(void)state;
	pass((uint64_t)braid_param.peer_timeout * 1000 - 1);
	assert_false(over(""));
	pass(1);
	assert_true(over("[peer-lost]"));
	assert_non_null(strstr(warn_text, "not a word for 240 s (BRAID_PEER_TIMEOUT)"));
	assert_int_equal(atomic_load(&link->err), -EREMOTEIO);
	assert_int_equal(atomic_load(&cr->err), -EREMOTEIO);
}

static void a_refused_dial_ends_a_link_without_lanes(void **state)
{
	(void)state;
	link->recover.refused = true;
	pass(1000);
	assert_false(over(""));			/* its lanes look well */
	lose(0);
	lose(1);
	assert_true(over("[peer-ended]"));
	assert_int_equal(atomic_load(&link->err), -EREMOTEIO);
}

/* A lane that carries nothing looks well, even if its peer is dead. */
static void a_refused_dial_ends_a_link_whose_home_is_lost_and_silent(void **state)
{
	(void)state;
	lose(0);
	link->recover.refused = true;
	pass(BRAID_SUSPECT_MS - 1);
	assert_false(over(""));
	pass(1);
	assert_true(over("[peer-ended]"));
}

static void nothing_is_over_before_all_that_came_is_read(void **state)
{
	(void)state;
	lose(0);
	lose(1);
	link->recover.refused = true;
	link->recover.down_ns = null_now_ns;
	atomic_store(&link->lane[1]->unread, true);
	pass(1000);
	assert_false(over(""));
	atomic_store(&link->lane[1]->unread, false);
	assert_true(over("[peer-ended]"));
}

static void an_end_that_can_not_dial_waits_half_a_second(void **state)
{
	(void)state;
	lose(0);
	lose(1);
	link->recover.down_ns = null_now_ns;
	pass(499);
	assert_false(over(""));
	pass(1);
	assert_true(over("[peer-ended]"));
	assert_non_null(strstr(warn_text, "does not dial another"));
}

/* This end knows the peer's address, or dials by itself: more may be tried. */
static void an_end_that_can_dial_or_ask_goes_on(void **state)
{
	(void)state;
	lose(0);
	lose(1);
	link->recover.down_ns = null_now_ns;
	pass(1000);
	link->setup.path[0].to.port = 7;
	assert_false(over(""));
	link->setup.path[0].to.port = 0;
	link->dialler = true;
	assert_false(over(""));
}

/* Only the peer's CLOSE of its comm is still to come. */
static void a_link_that_is_not_needed_ends_without_a_warning(void **state)
{
	(void)state;
	lose(0);
	lose(1);
	link->dialler = true;
	link->recover.down_ns = null_now_ns;
	pass(1000);
	assert_false(over(""));
	cr->closed = true;
	assert_true(over(""));
	assert_int_equal(atomic_load(&link->err), -ENOTCONN);
	assert_int_equal(warn_count, 0);
}

static void a_link_with_unacknowledged_frames_is_not_over(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_ALIVE };

	(void)state;
	braid_lock_wait(&link->lock);
	assert_true(braid_link_ctl(link, &h, NULL));
	braid_unlock(&link->lock);
	lose(0);
	lose(1);
	cr->closed = true;
	link->dialler = true;
	link->recover.down_ns = null_now_ns;
	pass(1000);
	assert_false(over(""));
}

/* --- saying -------------------------------------------------------------------------------- */

/* Does the tick send ALIVE, which then leaves the wire? */
static bool alive(void)
{
	struct braid_hdr h;

	braid_silence_send_alive(link, null_now_ns);
	if (!null_peek(&pair, B, 0, &h))
		return false;
	pass_frame(B, BRAID_F_ALIVE);
	assert_no_frame(B);
	return true;
}

/* The service thread watches the link: no caller waits. */
static void watched(void)
{
	atomic_store(&link->thread.watched, true);
}

static void an_end_with_nothing_to_send_sends_alive_every_second(void **state)
{
	(void)state;
	watched();
	for (unsigned i = 0; i < 3; i++) {
		pass(999);
		assert_false(alive());
		assert_int_equal(braid_silence_alive_ms(link, null_now_ns), 1);
		pass(1);
		assert_true(alive());
		assert_int_equal(braid_silence_alive_ms(link, null_now_ns), 1000);
	}
}

/* This process has so many links that a sign of life of each is wanted every four seconds. */
static void many_links(void)
{
	static struct braid_link many[4 * 100];

	memset(many, 0, sizeof(many));
	braid_links_init();
	for (unsigned i = 0; i < sizeof(many) / sizeof(many[0]); i++) {
		memcpy(many[i].key.process, &i, sizeof(i));
		braid_link_list(&many[i]);
	}
}

static void of_many_links_at_rest_each_sends_less_often(void **state)
{
	struct braid_hdr h;

	(void)state;
	many_links();
	watched();
	pass(1000);
	braid_silence_send_alive(link, null_now_ns);
	assert_true(null_peek(&pair, B, 0, &h));
	assert_int_equal(h.n, 4);
	pass_frame(B, BRAID_F_ALIVE);
	pass(1000);
	assert_true(alive());			/* the peer has not announced that this will do */
	atomic_store(&link->rx.peer_rest_s, 1);
	pass(3999);
	assert_false(alive());
	pass(1);
	assert_true(alive());
	atomic_store(&link->rx.peer_rest_s, 9);	/* it has even more links */
	pass(8999);
	assert_false(alive());
	pass(1);
	assert_true(alive());
	atomic_store(&link->rx.peer_rest_s, 0);	/* a caller waits there */
	pass(1000);
	assert_true(alive());
	braid_links_init();
}

static void a_rest_is_never_longer_than_a_part_of_the_timeout(void **state)
{
	struct braid_hdr h;

	(void)state;
	many_links();
	watched();
	braid_param.peer_timeout = 8;
	pass(1000);
	braid_silence_send_alive(link, null_now_ns);
	braid_param.peer_timeout = 240;
	assert_true(null_peek(&pair, B, 0, &h));
	assert_int_equal(h.n, 2);
	braid_links_init();
}

static void a_peer_at_rest_is_reported_three_rests_late(void **state)
{
	(void)state;
	link->recover.rest_s = 4;
	atomic_store(&link->rx.peer_rest_s, 2);
	pass(11999);
	braid_silence_report(link, null_now_ns);
	assert_int_equal(warn_count, 0);
	pass(1);
	braid_silence_report(link, null_now_ns);
	assert_int_equal(warn_count, 1);
}

/* The peer must first learn that a sign of life is due each second again. */
static void a_caller_that_comes_back_waits_three_seconds_for_a_report(void **state)
{
	(void)state;
	link->recover.rest_s = 4;
	atomic_store(&link->rx.peer_rest_s, 4);
	pass(10000);
	assert_true(alive());			/* the link is not watched: a caller waits */
	pass(2999);
	braid_silence_report(link, null_now_ns);
	assert_int_equal(warn_count, 0);
	pass(1);
	braid_silence_report(link, null_now_ns);
	assert_int_equal(warn_count, 1);
}

/* However often callers come and go while nothing comes. */
static void a_silence_is_excused_once(void **state)
{
	(void)state;
	atomic_store(&link->rx.peer_rest_s, 1);
	for (unsigned i = 0; i < 4; i++) {
		link->recover.rest_s = 1;
		pass(1000);
		alive();
	}
	braid_silence_report(link, null_now_ns);
	assert_int_equal(warn_count, 1);
}

static void send_other_frame(void)
{
	struct braid_hdr h = { .type = BRAID_F_LANES, .n = 1 };

	braid_lock_wait(&link->lock);
	assert_true(braid_link_ctl(link, &h, NULL));
	braid_link_flush(link);
	braid_unlock(&link->lock);
	pass_frame(B, BRAID_F_LANES);
}

static void other_frames_take_its_place(void **state)
{
	(void)state;
	watched();
	pass(999);
	send_other_frame();
	assert_false(alive());
	pass(999);
	assert_false(alive());
	pass(1);
	assert_true(alive());
}

/* An end that only answers the peer's frames announces its CPU time all the same. */
static void but_not_for_more_than_four_seconds(void **state)
{
	(void)state;
	watched();
	for (unsigned i = 1; i <= 8; i++) {
		pass(500);
		send_other_frame();
		assert_int_equal(alive(), i == 8);
	}
}

static void alive_is_sent_sooner_while_a_caller_waits_and_nothing_comes(void **state)
{
	(void)state;
	pass(249);
	assert_false(alive());
	pass(1);
	assert_true(alive());
	braid_silence_start(link, null_now_ns);
	pass(250);
	link->recover.received_ns = null_now_ns;	/* the peer sends: it needs no question */
	assert_false(alive());
	link->npaths = 2;			/* but its other paths may be dead */
	assert_true(alive());
	pass(249);
	assert_false(alive());
	pass(1);
	assert_true(alive());
}

static void nothing_is_added_to_frames_that_wait(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_LANES, .n = 1 };
	uint32_t queued;

	(void)state;
	watched();
	braid_lock_wait(&link->lock);
	assert_true(braid_link_ctl(link, &h, NULL));
	queued = link->lane[0]->tx.f_head;
	braid_unlock(&link->lock);
	assert_false(alive());
	pass(1000);
	assert_false(alive());
	assert_int_equal(link->lane[0]->tx.f_head, queued);
}

static void it_waits_for_nothing(void **state)
{
	(void)state;
	watched();
	pass(1000);
	braid_lock_wait(&link->lock);
	assert_false(alive());
	braid_unlock(&link->lock);
	assert_true(alive());
}

static void a_lost_home_sends_no_alive(void **state)
{
	(void)state;
	watched();
	lose(0);
	pass(1000);
	assert_false(alive());
	/* The ALIVE frame is due but can't be queued: every look tries again. */
	assert_int_equal(braid_silence_alive_ms(link, null_now_ns), 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE_LANES(any_byte_ends_the_silence),
		CASE(a_time_before_the_last_sign_is_no_silence),
		CASE(a_silence_of_three_seconds_is_reported_once),
		CASE(a_transport_that_sees_no_acknowledgement_blames_nobody),
		CASE(a_peer_that_sends_again_may_be_reported_again),
		CASE(the_path_is_blamed_if_the_peers_kernel_does_not_answer),
		CASE(a_peer_is_lost_after_its_time),
		CASE_LANES(a_refused_dial_ends_a_link_without_lanes),
		CASE_LANES(a_refused_dial_ends_a_link_whose_home_is_lost_and_silent),
		CASE_LANES(nothing_is_over_before_all_that_came_is_read),
		CASE_LANES(an_end_that_can_not_dial_waits_half_a_second),
		CASE_LANES(an_end_that_can_dial_or_ask_goes_on),
		CASE_LANES(a_link_that_is_not_needed_ends_without_a_warning),
		CASE_LANES(a_link_with_unacknowledged_frames_is_not_over),
		CASE(an_end_with_nothing_to_send_sends_alive_every_second),
		CASE(of_many_links_at_rest_each_sends_less_often),
		CASE(a_rest_is_never_longer_than_a_part_of_the_timeout),
		CASE(a_peer_at_rest_is_reported_three_rests_late),
		CASE(a_caller_that_comes_back_waits_three_seconds_for_a_report),
		CASE(a_silence_is_excused_once),
		CASE(other_frames_take_its_place),
		CASE(but_not_for_more_than_four_seconds),
		CASE(alive_is_sent_sooner_while_a_caller_waits_and_nothing_comes),
		CASE(nothing_is_added_to_frames_that_wait),
		CASE(it_waits_for_nothing),
		CASE(a_lost_home_sends_no_alive),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
