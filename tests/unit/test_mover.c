/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_mover.c - which pieces go to threads of BRAID_THREADS, and when lanes come back from them.
 *
 * A mover's thread is a call of its function, which comes back when the mover would sleep.
 */
#include "tests/unit/stub.h"

#include <errno.h>
#include <setjmp.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "core/link/control.h"
#include "core/link/lane_io.h"
#include "core/link/link_int.h"
#include "core/link/mover.h"
#include "core/link/state.h"

enum { LANES = 2, LARGE = BRAID_HAND_MIN, MAX = 4 };

static struct braid_os os;
static struct {
	void *(*fn)(void *);
	void *arg;
} threads[MAX];
static unsigned nthreads, fail_at, wakes;	/* fail_at: that thread does not start; 0: all do */
static jmp_buf asleep;
static unsigned clocks;			/* calls of the clock until `then` */
static void (*then)(void);
static struct stub_send message;

static uint64_t now_ns(void)
{
	if (clocks && !--clocks)
		then();
	return stub.ns += 1000;
}

static int thread_start(pthread_t *ret, void *(*fn)(void *), void *arg, const char *name)
{
	assert_string_equal(name, "braid-mover");
	assert_true(nthreads < MAX);
	if (nthreads + 1 == fail_at)
		return -EAGAIN;
	threads[nthreads].fn = fn;
	threads[nthreads].arg = arg;
	*ret = (pthread_t)nthreads++;
	return 0;
}

static int thread_join(pthread_t thread, unsigned timeout_ms)
{
	assert_true(timeout_ms);
	threads[thread].fn(threads[thread].arg);
	return 0;
}

static int epoll_wait_stub(int ep, struct epoll_event *ev, int max, int timeout_ms)
{
	(void)ep, (void)ev, (void)max;
	assert_int_equal(timeout_ms, -1);
	longjmp(asleep, 1);
}

static int wake(int efd)
{
	(void)efd;
	wakes++;
	return 0;
}

/* The thread runs until it would sleep. */
static void run_mover(unsigned i)
{
	if (!setjmp(asleep))
		threads[i].fn(threads[i].arg);
}

static void thread_near(pthread_t thread, const struct braid_cpus *near)
{
	assert_true(thread < nthreads);
	assert_ptr_equal(near, &stub.dev.near);
}

static int setup(void **state)
{
	(void)state;
	nthreads = fail_at = wakes = clocks = 0;
	stub_up(&stub_socket, LANES);
	os = *braid_os;
	os.now_ns = now_ns;
	os.thread_start = thread_start;
	os.thread_join = thread_join;
	os.thread_near = thread_near;
	os.epoll_wait = epoll_wait_stub;
	os.wake = wake;
	braid_os = &os;
	stub.dev.nmembers = 1;
	stub.dev.member[0] = &stub.dev;
	braid_param.threads = 1;
	braid_movers_tick(stub.link, stub.ns);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_movers_end();
	for (unsigned i = 0; i < LANES; i++)
		assert_int_equal(stub_at(i)->hand.what, 0);
	assert_false(braid_link_is_pinned(stub.link));
	braid_movers_free();
	braid_param.threads = 0;
	stub_down();
	return 0;
}

/* The lanes know no mover any more. */
static void forget(void)
{
	for (unsigned i = 0; i < LANES; i++) {
		atomic_store(&stub_at(i)->hand.by, NULL);
		stub_at(i)->hand.last = NULL;
	}
}

static bool take_rx(unsigned i)
{
	bool taken;

	braid_lock_wait(&stub_at(i)->io);
	taken = braid_rx_hand(stub_at(i));
	braid_unlock(&stub_at(i)->io);
	return taken;
}

static bool is_free(struct braid_lock *l)
{
	if (!braid_trylock(l))
		return false;
	braid_unlock(l);
	return true;
}

/* --- sending ------------------------------------------------------------------------------- */

static void a_large_piece_is_left_to_a_thread_and_comes_out_whole(void **state)
{
	(void)state;
	stub_add_chunk(1, LARGE, NULL);
	assert_int_equal(stub_push(1), 0);
	assert_int_equal(stub.lane[1].pushes, 0);
	assert_true(braid_link_is_pinned(stub.link));
	run_mover(0);
	assert_int_equal(stub_expect(1, BRAID_F_CHUNK).len, LARGE);
	assert_false(stub.link->tx.stalled);
	assert_false(braid_link_is_pinned(stub.link));
}

static void a_small_piece_is_pushed_by_its_caller(void **state)
{
	(void)state;
	stub_add_chunk(1, LARGE - BRAID_HDR_SIZE - 1, NULL);
	assert_int_equal(stub_push(1), LARGE - 1);
	assert_false(braid_link_is_pinned(stub.link));
}

static void a_small_piece_overtakes_no_thread(void **state)
{
	(void)state;
	stub_add_chunk(1, LARGE, NULL);
	stub_push(1);
	run_mover(0);
	stub_expect(1, BRAID_F_CHUNK);
	stub_at(1)->pushing = true;		/* the thread is in the kernel */
	stub_add(1, BRAID_F_ALIVE);
	assert_int_equal(stub_push(1), 0);
	stub_expect_none(1);
	stub_at(1)->pushing = false;
	assert_int_equal(stub_push(1), BRAID_HDR_SIZE);
	stub_expect(1, BRAID_F_ALIVE);
}

static void without_threads_the_caller_pushes_all(void **state)
{
	(void)state;
	braid_movers_end();
	stub_add_chunk(1, LARGE, NULL);
	assert_int_equal(stub_push(1), LARGE + BRAID_HDR_SIZE);
}

static void a_transport_that_copies_nothing_has_no_threads(void **state)
{
	(void)state;
	stub_down();
	stub_up(&stub_nic, LANES);
	stub.dev.nmembers = 1;
	stub.dev.member[0] = &stub.dev;
	braid_movers_tick(stub.link, stub.ns);
	assert_null(stub_at(0)->hand.by);
}

static void a_thread_cuts_the_chunks_that_follow(void **state)
{
	(void)state;
	stub_send(&message, 3, LARGE);
	stub_lock();
	braid_link_feed(stub.link);
	stub_unlock();
	assert_int_equal(stub.lane[0].pushes, 0);
	run_mover(0);
	assert_int_equal(message.left, 0);
	assert_int_equal(stub.lane[0].n + stub.lane[1].n,
			 3 * (LARGE + BRAID_HDR_SIZE) + BRAID_HDR_SIZE);	/* and the START */
}

static void a_full_lane_comes_back_after_a_moment_and_its_caller_tries_it(void **state)
{
	(void)state;
	stub_add_chunk(1, LARGE, NULL);
	stub_push(1);
	stub.lane[1].takes = 1000;
	run_mover(0);
	assert_true(stub.lane[1].pushes > 2);
	assert_true(stub.link->tx.stalled);
	stub.lane[1].takes = SIZE_MAX;
	assert_int_equal(stub_push(1), LARGE + BRAID_HDR_SIZE - 1000);
	stub_expect(1, BRAID_F_CHUNK);
}

static void tick(void)
{
	braid_movers_tick(stub.link, stub.ns);
}

static void a_lane_changes_threads_only_with_empty_hands(void **state)
{
	struct braid_mover *first = atomic_load(&stub_at(1)->hand.by);
	static char other[1024];

	(void)state;
	stub_add_chunk(1, LARGE, NULL);
	stub_push(1);
	take_rx(1);
	atomic_store(&stub_at(1)->hand.by, (struct braid_mover *)(void *)other);	/* as if */
	tick();
	assert_null(stub_at(1)->hand.by);
	run_mover(0);
	stub_expect(1, BRAID_F_CHUNK);
	assert_int_equal(stub_at(1)->hand.what, 0);
	tick();
	assert_ptr_equal(stub_at(1)->hand.by, first);
}

static void a_lane_that_is_lost_comes_back_at_once(void **state)
{
	(void)state;
	stub_add_chunk(1, LARGE, NULL);
	stub_push(1);
	stub_lock();
	braid_lane_lost(stub_at(1), -EPIPE);
	stub_unlock();
	run_mover(0);
	assert_int_equal(stub.lane[1].pushes, 0);
	assert_int_equal(stub_at(1)->hand.what, 0);
}

static void who_watches_the_link_learns_of_what_is_left(void **state)
{
	(void)state;
	stub_add_chunk(1, LARGE, NULL);
	stub_push(1);
	stub.lane[1].takes = 0;
	braid_link_set_watched(stub.link, true);
	stub.wakes = 0;
	run_mover(0);
	assert_false(braid_link_is_watched(stub.link));
	assert_int_equal(stub.wakes, 1);
}

/* --- receiving ----------------------------------------------------------------------------- */

static void callers_pass_by_a_lane_that_a_thread_reads(void **state)
{
	(void)state;
	assert_true(take_rx(1));
	assert_true(braid_link_is_pinned(stub.link));
	assert_false(is_free(&stub_at(1)->io));
	assert_true(braid_link_move(stub.link) > 0);
	assert_int_equal(stub.lane[1].polls, 0);
	run_mover(0);
	assert_true(stub.lane[1].polls > 1);
	assert_true(is_free(&stub_at(1)->io));
}

static void the_thread_itself_reads_on(void **state)
{
	(void)state;
	assert_true(take_rx(1));
	assert_false(take_rx(1));
}

static unsigned polls_then;

static void let_go(void)
{
	polls_then = stub.lane[1].polls;
	atomic_fetch_sub(&stub_at(1)->io.waiting, 1);
}

static void who_waits_for_the_lane_goes_before_its_thread(void **state)
{
	(void)state;
	take_rx(1);
	atomic_fetch_add(&stub_at(1)->io.waiting, 1);	/* close(), say */
	clocks = 500;
	then = let_go;
	polls_then = 1;
	run_mover(0);
	assert_int_equal(polls_then, 0);
	assert_true(stub.lane[1].polls > 0);
}

static void a_lane_whose_poll_fails_comes_back(void **state)
{
	(void)state;
	take_rx(1);
	stub.lane[1].poll = -ECONNRESET;
	run_mover(0);
	assert_int_equal(stub.lane[1].polls, 1);
	assert_false(stub_at(1)->up);
	assert_true(is_free(&stub_at(1)->io));
}

static void stop_coming(void)
{
	stub.lane[1].poll = 0;
}

static void an_acknowledgement_that_is_due_leaves_once_nothing_more_comes(void **state)
{
	(void)state;
	take_rx(1);
	stub.lane[1].poll = 1;
	clocks = 50;
	then = stop_coming;
	stub.ctl_due = true;
	braid_link_urge(stub.link);
	run_mover(0);
	stub_expect(0, BRAID_F_ALIVE);
}

static void send_at_once(void)
{
	stub.on_wake = NULL;
	stub_add_chunk(1, LARGE, NULL);
	assert_int_equal(stub_push(1), 0);
}

static void a_lane_that_is_handed_over_while_it_comes_back_is_not_lost(void **state)
{
	(void)state;
	take_rx(1);
	braid_link_set_watched(stub.link, true);	/* so the service thread is woken just then */
	stub.on_wake = send_at_once;
	run_mover(0);
	assert_null(stub.on_wake);
	stub_expect(1, BRAID_F_CHUNK);
	assert_false(braid_link_is_pinned(stub.link));
}

/* --- threads ------------------------------------------------------------------------------- */

static void both_directions_of_a_lane_can_be_in_its_hands(void **state)
{
	(void)state;
	stub_add_chunk(1, LARGE, NULL);
	stub_push(1);
	assert_true(take_rx(1));
	run_mover(0);
	stub_expect(1, BRAID_F_CHUNK);
	assert_true(stub.lane[1].polls > 0);
	assert_false(braid_link_is_pinned(stub.link));
}

static void a_thread_that_sleeps_is_woken_once(void **state)
{
	(void)state;
	run_mover(0);
	for (unsigned i = 0; i < LANES; i++) {
		stub_add_chunk(i, LARGE, NULL);
		stub_push(i);
	}
	assert_int_equal(wakes, 1);
	run_mover(0);
	for (unsigned i = 0; i < LANES; i++)
		stub_expect(i, BRAID_F_CHUNK);
}

static void the_lanes_of_a_link_go_to_different_threads(void **state)
{
	(void)state;
	braid_movers_end();
	braid_movers_free();
	nthreads = 0;
	forget();
	braid_param.threads = 3;
	braid_movers_tick(stub.link, stub.ns);
	assert_int_equal(nthreads, 3);
	assert_ptr_not_equal(stub_at(0)->hand.by, stub_at(1)->hand.by);
}

static void if_no_thread_starts_a_warning_says_so_and_callers_push(void **state)
{
	(void)state;
	braid_movers_end();
	braid_movers_free();
	forget();
	nthreads = 0;
	fail_at = 1;
	braid_movers_tick(stub.link, stub.ns);
	braid_movers_tick(stub.link, stub.ns);
	assert_int_equal(stub.warns, 1);
	assert_non_null(strstr(stub.warn, "0 of 1 threads of BRAID_THREADS started"));
	assert_non_null(strstr(stub.warn, "[no-threads]"));
	stub_add_chunk(1, LARGE, NULL);
	assert_int_equal(stub_push(1), LARGE + BRAID_HDR_SIZE);
}

static void at_the_end_all_lanes_come_back(void **state)
{
	(void)state;
	stub_add_chunk(1, LARGE, NULL);
	stub_push(1);
	take_rx(0);
	atomic_store(&stub.link->state, BRAID_LINK_DEAD);
	braid_movers_end();
	assert_false(braid_link_is_pinned(stub.link));
	assert_true(is_free(&stub_at(0)->io));
	assert_int_equal(stub.lane[1].pushes, 0);
}

static void what_threads_moved_is_counted(void **state)
{
	struct braid_movers_seen seen;

	(void)state;
	stub_add_chunk(1, LARGE, NULL);
	stub_push(1);
	run_mover(0);
	braid_movers_look(&stub.dev, &seen);
	assert_int_equal(seen.n, 1);
	assert_int_equal(seen.taken, 1);
	assert_int_equal(seen.sent, LARGE + BRAID_HDR_SIZE);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_large_piece_is_left_to_a_thread_and_comes_out_whole),
		CASE(a_small_piece_is_pushed_by_its_caller),
		CASE(a_small_piece_overtakes_no_thread),
		CASE(without_threads_the_caller_pushes_all),
		CASE(a_transport_that_copies_nothing_has_no_threads),
		CASE(a_thread_cuts_the_chunks_that_follow),
		CASE(a_full_lane_comes_back_after_a_moment_and_its_caller_tries_it),
		CASE(a_lane_changes_threads_only_with_empty_hands),
		CASE(a_lane_that_is_lost_comes_back_at_once),
		CASE(who_watches_the_link_learns_of_what_is_left),
		CASE(callers_pass_by_a_lane_that_a_thread_reads),
		CASE(the_thread_itself_reads_on),
		CASE(who_waits_for_the_lane_goes_before_its_thread),
		CASE(a_lane_whose_poll_fails_comes_back),
		CASE(an_acknowledgement_that_is_due_leaves_once_nothing_more_comes),
		CASE(a_lane_that_is_handed_over_while_it_comes_back_is_not_lost),
		CASE(both_directions_of_a_lane_can_be_in_its_hands),
		CASE(a_thread_that_sleeps_is_woken_once),
		CASE(the_lanes_of_a_link_go_to_different_threads),
		CASE(if_no_thread_starts_a_warning_says_so_and_callers_push),
		CASE(at_the_end_all_lanes_come_back),
		CASE(what_threads_moved_is_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
