/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_loop.c - the rounds of the service thread: how long each one sleeps, what is done when, and how
 * the loop ends.
 *
 * The test is the kernel and the clock: a sleep moves the clock, and may bring an event.  A loop runs
 * in the case's own thread until it finds its end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/param.h"
#include "core/base/units.h"
#include "core/link/recover.h"
#include "core/setup/accept.h"
#include "core/setup/dial.h"
#include "core/setup/events.h"
#include "core/setup/handshake.h"
#include "core/setup/keypair.h"
#include "core/setup/links.h"
#include "core/setup/listener.h"
#include "core/setup/loop.h"
#include "core/setup/service.h"
#include "core/setup/silence.h"
#include "tests/lib/comms.h"

enum { EPOLL = 90, EVENTFD = 91, FD = 100, PORT_FD = 110, ROUNDS_MAX = 20000, KEPT = 16, IDLE_S = 2 };

static struct {
	int wait[KEPT];				/* how long the first sleeps were to last: ms */
	unsigned rounds;
	uint64_t began_ns;
	void (*asleep)(unsigned round);		/* the case's part of a sleep */
	struct epoll_event event;		/* for the next sleep, which ends at once */
	bool has_event;
	unsigned unwoken, unwatched, closed;
	bool stopped;
	unsigned handshakes, ports, dials, lane_dials, reads;
	uint64_t dialled_ns[KEPT];		/* since the loop began */
	void *object;				/* of the last event */
	int lane_dial_err;
	bool shaking, polls;			/* handshakes are left; they must be polled */
} t;

static struct braid_transport tr;
static unsigned polled;
static bool listed[2], freed[2];	/* that end's link is in the table; the loop has freed it */
static const struct braid_os *null_os;
static struct braid_params saved_param;

/* --- the kernel ---------------------------------------------------------------------------- */

static int os_epoll_create(void)
{
	return EPOLL;
}

static int os_eventfd(void)
{
	return EVENTFD;
}

static int os_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	(void)ev;
	assert_int_equal(ep, EPOLL);
	t.unwatched += op == EPOLL_CTL_DEL && fd == PORT_FD;
	return 0;
}

static int os_epoll_wait(int ep, struct epoll_event *ev, int max, int ms)
{
	assert_int_equal(ep, EPOLL);
	assert_int_equal(max, 1);
	if (t.rounds < KEPT)
		t.wait[t.rounds] = ms;
	if (t.rounds >= ROUNDS_MAX)
		fail_msg("the loop does not end");
	if (t.asleep)
		t.asleep(t.rounds);
	t.rounds++;
	if (t.has_event) {
		t.has_event = false;
		*ev = t.event;
		return 1;
	}
	if (ms < 0)
		fail_msg("the loop sleeps for ever");
	null_now_ns += (unsigned)ms * MS;
	return 0;
}

static void os_unwake(int fd)
{
	assert_int_equal(fd, EVENTFD);
	t.unwoken++;
}

static int os_thread_start(pthread_t *ret, void *(*fn)(void *), void *arg, const char *name)
{
	(void)ret;
	(void)fn;
	(void)arg;
	(void)name;
	return -EAGAIN;
}

static int os_wake(int fd)
{
	(void)fd;
	return 0;
}

static int os_close(int fd)
{
	t.closed += fd == EPOLL;
	return 0;
}

static uint64_t passed_ms(void)
{
	return (null_now_ns - t.began_ns) / MS;
}

static void happens(enum braid_tag tag, void *obj)
{
	t.event = (struct epoll_event){ .events = EPOLLIN };
	t.event.data.u64 = (uint64_t)(uintptr_t)obj | tag;
	t.has_event = true;
}

/* --- the neighbours ------------------------------------------------------------------------ */

void __wrap_braid_handshake_event(struct braid_conn *c, uint64_t now);
void __wrap_braid_listener_event(struct braid_listener *p, const struct braid_conn_owner *owner,
				 uint64_t now);
bool __wrap_braid_listener_read_events(struct braid_listener *p);
void __wrap_braid_dial_link(struct braid_link *link, uint64_t now);
int __wrap_braid_dial_lane(struct braid_link *link, struct braid_lane *lane, uint64_t now);
bool __wrap_braid_handshakes_left(void);
bool __wrap_braid_handshakes_poll(uint64_t now);

void __wrap_braid_handshake_event(struct braid_conn *c, uint64_t now)
{
	assert_int_equal(now, null_now_ns);
	t.handshakes++;
	t.object = c;
}

void __wrap_braid_listener_event(struct braid_listener *p, const struct braid_conn_owner *owner,
				 uint64_t now)
{
	assert_int_equal(now, null_now_ns);
	assert_ptr_equal(owner, &braid_accepting);
	t.ports++;
	t.object = p;
}

bool __wrap_braid_listener_read_events(struct braid_listener *p)
{
	t.reads++;
	t.object = p;
	return false;
}

void __wrap_braid_dial_link(struct braid_link *link, uint64_t now)
{
	if (t.dials < KEPT)
		t.dialled_ns[t.dials] = now - t.began_ns;
	t.dials++;
	link->dial.at_ns = now + 50 * MS;
}

int __wrap_braid_dial_lane(struct braid_link *link, struct braid_lane *lane, uint64_t now)
{
	(void)link;
	assert_null(lane);
	if (t.lane_dials < KEPT)
		t.dialled_ns[t.lane_dials] = now - t.began_ns;
	t.lane_dials++;
	return t.lane_dial_err;
}

bool __wrap_braid_handshakes_left(void)
{
	return t.shaking;
}

bool __wrap_braid_handshakes_poll(uint64_t now)
{
	(void)now;
	return t.polls;
}

/* --- the links ----------------------------------------------------------------------------- */

static int poll_lane(struct braid_lane *lane)
{
	polled++;
	return null_transport.poll(lane);
}

static int begin_with(bool held)
{
	static struct braid_os os;

	start(&(struct null_config){ .window = 512 * K, .held = held });
	null_os = braid_os;
	os = *null_os;
	os.epoll_create = os_epoll_create;
	os.eventfd = os_eventfd;
	os.epoll_ctl = os_epoll_ctl;
	os.epoll_wait = os_epoll_wait;
	os.unwake = os_unwake;
	os.wake = os_wake;
	os.close = os_close;
	os.thread_start = os_thread_start;
	braid_os = &os;
	memset(&t, 0, sizeof(t));
	listed[A] = listed[B] = false;
	saved_param = braid_param;
	braid_param.link_idle = IDLE_S;
	null_now_ns += 1000 * SEC;
	t.began_ns = null_now_ns;
	tr = null_transport;
	tr.poll = poll_lane;
	braid_svc_lock();
	for (unsigned i = 0; i < 2; i++) {
		struct braid_link *link = pair.end[i];

		link->lane[0]->tr = &tr;
		link->lane[0]->fd = FD + (int)i;
		braid_silence_start(link, null_now_ns);
	}
	braid_links_init();
	braid_listeners_init();
	braid_handshakes_init();
	/* There is no thread; but nobody has asked it to stop any more. */
	assert_int_equal(braid_service_try(), -EAGAIN);
	braid_svc_unlock();
	t.closed = 0;
	return braid_events_open();
}

static int begin(void **state)
{
	(void)state;
	return begin_with(true);
}

static int begin_direct(void **state)
{
	(void)state;
	return begin_with(false);
}

static int end(void **state)
{
	(void)state;
	braid_param = saved_param;
	braid_service_hooks.ending = NULL;
	null_pair_fini(&pair);
	braid_os = null_os;
	return 0;
}

#undef CASE
#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)
#define CASE_DIRECT(f) cmocka_unit_test_setup_teardown(f, begin_direct, end)

/* The service thread looks after that end's link from now on. */
static void list(unsigned at)
{
	braid_svc_lock();
	braid_link_list(pair.end[at]);
	braid_svc_unlock();
	listed[at] = true;
}

/* Close the comms, so that nothing but the link's own rules keeps it. */
static void no_comms(void)
{
	for (unsigned i = 0; i < 2; i++) {
		braid_lock_wait(&pair.end[i]->lock);
		braid_comm_free(i == A ? cs : cr);
		braid_unlock(&pair.end[i]->lock);
	}
}

/* Runs the loop to its end.  A link that it freed is replaced, for null_pair_fini(). */
static void run_loop(void (*asleep)(unsigned round))
{
	struct braid_link_key key[2] = { pair.end[A]->key, pair.end[B]->key };
	struct braid_link *was[2] = { pair.end[A], pair.end[B] }, *at;

	t.asleep = asleep;
	braid_loop();
	memcpy(freed, listed, sizeof(freed));
	braid_list_for(at, &braid_svc.links, table.node)
		freed[at == was[B]] = false;
	braid_svc_unlock();			/* the loop holds it at its end */
	for (unsigned i = 0; i < 2; i++) {
		if (freed[i])
			pair.end[i] = braid_link_new(&key[i]);
	}
	assert_int_equal(t.closed, 1);
}

/* Once: at its end the loop holds the lock while it sleeps. */
static void stop(void)
{
	if (!t.stopped)
		braid_service_stop();
	t.stopped = true;
}

static void stop_at_once(unsigned round)
{
	if (!round)
		stop();
}

static void stop_after_20(unsigned round)
{
	if (round == 20)
		stop();
}

/* --- the end ------------------------------------------------------------------------------- */

static void with_nothing_left_it_ends_after_a_while(void **state)
{
	(void)state;
	run_loop(NULL);
	assert_in_range(passed_ms(), IDLE_S * 1000, IDLE_S * 1000 + 100);
	assert_int_equal(t.wait[1 + BRAID_KEYPAIRS], 100);
}

static void a_dead_link_in_between_restarts_that_time(unsigned round)
{
	if (round == 10)
		list(B);
	if (round == 20)
		braid_link_fail(pair.end[B], -EREMOTEIO, "%s", "the case ends it [peer-ended]");
}

static void the_while_begins_when_the_last_link_is_gone(void **state)
{
	uint64_t all;

	(void)state;
	no_comms();
	run_loop(a_dead_link_in_between_restarts_that_time);
	assert_true(freed[B]);
	all = passed_ms();
	assert_true(all >= 900 + IDLE_S * 1000);
}

/* The peer reads what comes, and acknowledges it. */
static void stop_and_answer(unsigned round)
{
	stop_at_once(round);
	braid_link_progress(pair.end[A], NULL, NULL);
	braid_link_try_flush_control(pair.end[A]);
}

static unsigned endings;

static void on_end(void)
{
	assert_false(braid_svc_trylock());
	endings++;
}

static void asked_to_stop_it_closes_all_links(void **state)
{
	(void)state;
	endings = 0;
	braid_service_hooks.ending = on_end;
	list(B);
	run_loop(stop_and_answer);
	assert_int_equal(endings, 1);
	assert_true(passed_ms() < 50);
	assert_true(atomic_load(&pair.end[A]->rx.peer_gone));
	/* A comm that is open keeps its link, and has failed. */
	assert_false(freed[B]);
	assert_int_equal(atomic_load(&pair.end[B]->state), BRAID_LINK_DEAD);
	assert_int_equal(atomic_load(&cr->err), -ENOTCONN);
	assert_non_null(strstr(warn_text, "the last context was finalized [link-closed]"));
}

static void a_link_without_comms_is_freed_at_the_end(void **state)
{
	(void)state;
	no_comms();
	list(A);
	list(B);
	run_loop(stop_at_once);
	assert_true(freed[A] && freed[B]);
}

/* Nobody acknowledges, since nothing on the wire arrives. */
static void goodbyes_have_a_second_to_leave(void **state)
{
	(void)state;
	list(B);
	run_loop(stop_at_once);
	assert_in_range(passed_ms(), BRAID_LOOP_STOP_MS, BRAID_LOOP_STOP_MS + 20);
}

static struct braid_listener port = { .fd = PORT_FD };

/* Readable until somebody reads it, or looks away. */
static void events_stay(unsigned round)
{
	stop_at_once(round);
	if (round >= 50 && !t.unwoken)
		happens(BRAID_TAG_WAKE, NULL);
	else if (round >= 50 && !t.unwatched)
		happens(BRAID_TAG_PORT, &port);
}

static void nothing_makes_it_spin_at_the_end(void **state)
{
	(void)state;
	list(B);
	run_loop(events_stay);
	assert_int_equal(t.unwoken, 1);
	assert_int_equal(t.unwatched, 1);
	assert_true(t.rounds < 2 * BRAID_LOOP_STOP_MS);
}

/* Home is lost with a frame on it, and the peer is to dial. */
static void lose_home(void)
{
	struct braid_link *link = pair.end[B];
	struct braid_hdr h = { .type = BRAID_F_LANES, .n = 1 };
	static struct braid_conn asking;

	list(B);
	link->setup.path[0].to.port = 7;
	link->dial.conn = &asking;
	link->lane[0]->fd = -1;
	braid_lock_wait(&link->lock);
	assert_true(braid_link_ctl(link, &h, NULL));
	braid_lane_lost(link->lane[0], -ECONNRESET);
	braid_unlock(&link->lock);
}

static void frames_of_a_lost_lane_have_three_seconds_to_be_sent_again(void **state)
{
	(void)state;
	lose_home();
	run_loop(stop_at_once);
	assert_in_range(passed_ms(), BRAID_LOOP_LINGER_MS, BRAID_LOOP_LINGER_MS + 20);
	assert_int_equal(t.wait[5], 1);
}

static void kill_after_a_second(unsigned round)
{
	stop_at_once(round);
	if (passed_ms() >= 1000 && atomic_load(&pair.end[B]->state) == BRAID_LINK_UP)
		braid_link_fail(pair.end[B], -EREMOTEIO, "%s", "the case ends it [peer-ended]");
}

static void a_dead_link_is_not_waited_for(void **state)
{
	(void)state;
	lose_home();
	run_loop(kill_after_a_second);
	assert_in_range(passed_ms(), 1000, 1020);
}

static bool closed;

static void look_for_a(unsigned round)
{
	if (round < 20)
		closed = listed[A] && braid_list_empty(&braid_svc.links);
	stop_after_20(round);
}

static void too_many_idle_links_are_closed(void **state)
{
	(void)state;
	no_comms();
	braid_param.link_idle = 3600;
	braid_param.links_idle = 0;
	list(A);
	run_loop(look_for_a);
	assert_true(closed);
}

/* --- how long it sleeps -------------------------------------------------------------------- */

static void call_always(unsigned round)
{
	atomic_fetch_add(&pair.end[B]->thread.touched, 1);
	if (round == 10)
		atomic_store(&pair.end[B]->tx.control_was_urgent, true);
	stop_after_20(round);
}

static void ticks_become_longer_while_nothing_is_pending(void **state)
{
	static const int want[] = { 0, 2, 4, 8, 16, 16, 16, 16, 16, 16, 16, 2, 4, 8, 16 };

	(void)state;
	list(B);
	run_loop(call_always);
	for (unsigned i = 5; i < sizeof(want) / sizeof(want[0]); i++)
		assert_int_equal(t.wait[i], want[i]);
}

static void a_watched_link_lets_it_sleep(void **state)
{
	(void)state;
	list(B);
	run_loop(stop_after_20);
	assert_true(t.wait[5] > 100);
	assert_true(t.wait[5] <= 1000 + 128);	/* ALIVE is due then, with those of other links */
}

static void lane_event(unsigned round)
{
	if (round == 10) {
		polled = 0;
		null_now_ns += 5 * MS;
		happens(BRAID_TAG_LANE, pair.end[B]->lane[0]);
	}
	if (round == 11) {
		assert_true(polled > 0);
		assert_int_equal(t.wait[11], 0);
	}
	stop_after_20(round);
}

static void an_event_of_a_lane_moves_its_link(void **state)
{
	(void)state;
	list(B);
	run_loop(lane_event);
}

static void stop_after_500_ms(unsigned round)
{
	(void)round;
	if (passed_ms() > 500)
		stop();
}

static void handshakes_keep_it_awake(void **state)
{
	(void)state;
	t.shaking = true;
	run_loop(stop_after_500_ms);
	assert_int_equal(t.wait[3], 100);
}

static void handshakes_end_with_the_loop(void **state)
{
	struct braid_conn *c = calloc(1, sizeof(*c));

	(void)state;
	c->dialler = true;
	c->fd = -1;
	c->deadline_ns = UINT64_MAX;
	braid_list_add_tail(&braid_handshakes, &c->node);
	run_loop(stop_at_once);
	assert_true(braid_list_empty(&braid_handshakes));
}

static void handshakes_that_must_be_polled_more_so(void **state)
{
	(void)state;
	t.shaking = t.polls = true;
	run_loop(stop_after_500_ms);
	assert_int_equal(t.wait[3], 1);
}

/* --- events -------------------------------------------------------------------------------- */

static int thing[16];			/* aligned for the tag, as what malloc() returns is */

static void other_events(unsigned round)
{
	if (round == 1)
		happens(BRAID_TAG_WAKE, NULL);
	if (round == 2) {
		assert_int_equal(t.unwoken, 1);
		happens(BRAID_TAG_CONN, thing);
	}
	if (round == 3) {
		assert_int_equal(t.handshakes, 1);
		assert_ptr_equal(t.object, thing);
		happens(BRAID_TAG_PORT, thing);
	}
	if (round == 4) {
		assert_int_equal(t.ports, 1);
		assert_ptr_equal(t.object, thing);
		happens(BRAID_TAG_DEVICE, thing);
	}
	if (round == 5) {
		assert_int_equal(t.reads, 1);
		assert_ptr_equal(t.object, thing);
		stop();
	}
}

static void each_event_goes_to_its_owner(void **state)
{
	(void)state;
	run_loop(other_events);
	assert_int_equal(t.unwoken + t.handshakes + t.ports + t.reads, 4);
}

static void flood(unsigned round)
{
	null_now_ns += MS / 2;
	if (round % 2)
		happens(BRAID_TAG_WAKE, NULL);
	else
		happens(BRAID_TAG_CONN, thing);
	if (passed_ms() > 1000)
		stop();
}

static void what_is_due_is_done_even_if_events_pour_in(void **state)
{
	struct braid_link *link = pair.end[B];

	(void)state;
	no_comms();
	atomic_store(&link->state, BRAID_LINK_DIALING);
	list(B);
	run_loop(flood);
	assert_in_range(t.dials, 15, 21);	/* one in 50 ms */
}

/* --- dials --------------------------------------------------------------------------------- */

static struct braid_conn under_way;

static void dial_later(unsigned round)
{
	struct braid_link *link = pair.end[B];

	(void)round;
	link->dial.conn = passed_ms() > 300 && passed_ms() < 600 ? &under_way : NULL;
	if (passed_ms() > 700) {
		assert_int_equal(t.wait[3], 2);	/* such a link is not left alone */
		atomic_store(&link->state, BRAID_LINK_DEAD);
		stop();
	}
}

static void a_new_link_is_dialled_when_that_is_due(void **state)
{
	struct braid_link *link = pair.end[B];

	(void)state;
	no_comms();
	atomic_store(&link->state, BRAID_LINK_DIALING);
	link->dial.at_ns = null_now_ns + 200 * MS;
	list(B);
	run_loop(dial_later);
	assert_int_equal(t.dials, 6);
	assert_int_equal(t.dialled_ns[0] / MS, 200);
	assert_int_equal(t.dialled_ns[1] / MS, 250);
	assert_int_equal(t.dialled_ns[2] / MS, 300);
	/* None while one is under way. */
	assert_in_range(t.dialled_ns[3] / MS, 600, 602);
}

static void call_for_140_ms(unsigned round)
{
	(void)round;
	for (unsigned i = 0; i < 2; i++)
		atomic_fetch_add(&pair.end[i]->thread.touched, 1);
	if (passed_ms() >= 140)
		stop();
}

static void a_lane_that_can_not_be_dialled_is_tried_ever_more_rarely(void **state)
{
	(void)state;
	t.lane_dial_err = -ENOMEM;
	atomic_store(&pair.end[A]->lanes.want, 2);
	list(A);
	run_loop(call_for_140_ms);
	assert_int_equal(t.lane_dials, 4);
	for (unsigned i = 1; i < 4; i++)	/* 10, 20, 40 ms, and up to a tick more */
		assert_in_range(t.dialled_ns[i] - t.dialled_ns[i - 1], (5u << i) * MS, ((5u << i) + 16) * MS);
}

static void only_the_dialler_dials_lanes(void **state)
{
	(void)state;
	atomic_store(&pair.end[B]->lanes.want, 2);
	list(B);
	run_loop(call_for_140_ms);
	assert_int_equal(t.lane_dials, 0);
	assert_true(pair.end[B]->lane_count.at_ns >= t.began_ns);	/* but it counts them */
}

/* --- a hint -------------------------------------------------------------------------------- */

static bool alone[2];

static void calls_on_one_and_on_both(unsigned round)
{
	atomic_fetch_add(&pair.end[B]->thread.touched, 1);
	if (round >= 10)
		braid_link_touch(pair.end[A]);
	if (round == 10)
		alone[0] = atomic_load(&pair.end[B]->thread.alone);
	if (round == 20)
		alone[1] = atomic_load(&pair.end[B]->thread.alone);
	stop_after_20(round);
}

static void a_link_knows_whether_others_are_used(void **state)
{
	(void)state;
	list(A);
	list(B);
	run_loop(calls_on_one_and_on_both);
	assert_true(alone[0]);
	assert_false(alone[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(with_nothing_left_it_ends_after_a_while),
		CASE(the_while_begins_when_the_last_link_is_gone),
		CASE_DIRECT(asked_to_stop_it_closes_all_links),
		CASE_DIRECT(a_link_without_comms_is_freed_at_the_end),
		CASE(goodbyes_have_a_second_to_leave),
		CASE(nothing_makes_it_spin_at_the_end),
		CASE(frames_of_a_lost_lane_have_three_seconds_to_be_sent_again),
		CASE(a_dead_link_is_not_waited_for),
		CASE(too_many_idle_links_are_closed),
		CASE(handshakes_end_with_the_loop),
		CASE(ticks_become_longer_while_nothing_is_pending),
		CASE(a_watched_link_lets_it_sleep),
		CASE(an_event_of_a_lane_moves_its_link),
		CASE(handshakes_keep_it_awake),
		CASE(handshakes_that_must_be_polled_more_so),
		CASE(each_event_goes_to_its_owner),
		CASE(what_is_due_is_done_even_if_events_pour_in),
		CASE(a_new_link_is_dialled_when_that_is_due),
		CASE(a_lane_that_can_not_be_dialled_is_tried_ever_more_rarely),
		CASE(only_the_dialler_dials_lanes),
		CASE_DIRECT(a_link_knows_whether_others_are_used),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
