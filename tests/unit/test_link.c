/* SPDX-License-Identifier: BSD-3-Clause */
/* test_link.c - a link gets queues and gives them back, ends for good, and can be made to stand still. */
#include "tests/unit/stub.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "core/base/os.h"
#include "core/link/link.h"

/* The linker wraps this (-Wl,--wrap=braid_yield); braid_link_stop() yields while it can't stop. */
void __wrap_braid_yield(void);
void __real_braid_yield(void);

static unsigned yields;
static void (*at_yield)(void);

void __wrap_braid_yield(void)
{
	yields++;
	if (at_yield)
		at_yield();
	__real_braid_yield();
}

static int setup(void **state)
{
	(void)state;
	stub_up(&stub_socket, 2);
	yields = 0;
	at_yield = NULL;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	stub_down();
	return 0;
}

static bool has_queues(unsigned lane)
{
	return stub_at(lane)->tx.ring != NULL;
}

static void down(int err)
{
	stub_lock();
	braid_link_down(stub.link, err, "it broke [test]");
	stub_unlock();
}

/* --- memory for traffic -------------------------------------------------------------------- */

static void every_lane_gets_queues_once(void **state)
{
	(void)state;
	assert_true(has_queues(0) && has_queues(1));
	assert_true(stub_at(0)->tx.ring_size > stub_at(1)->tx.ring_size);	/* home's is larger */
	assert_int_equal(braid_link_attach(stub.link), 0);
	assert_int_equal(stub.lane[0].attaches, 1);
	assert_int_equal(stub.lane[1].attaches, 1);
}

static void an_idle_link_gives_its_queues_back_and_gets_them_again(void **state)
{
	(void)state;
	braid_link_detach(stub.link);
	assert_false(stub.link->lanes.attached);
	assert_false(has_queues(0) || has_queues(1));
	assert_int_equal(stub.lane[1].detaches, 1);
	braid_link_detach(stub.link);
	assert_int_equal(stub.lane[1].detaches, 1);
	assert_int_equal(braid_link_attach(stub.link), 0);
	assert_true(stub.link->lanes.attached && has_queues(0) && has_queues(1));
}

/* The lane that has its memory is being read, perhaps: its transport keeps what it has. */
static void a_link_without_memory_for_one_lane_has_it_for_none(void **state)
{
	(void)state;
	braid_link_detach(stub.link);
	stub.lane[1].attach_err = -ENOMEM;
	assert_int_equal(braid_link_attach(stub.link), -ENOMEM);
	assert_false(stub.link->lanes.attached);
	assert_false(has_queues(0) || has_queues(1));
	assert_int_equal(stub.lane[0].detaches, 1);
	stub.lane[1].attach_err = 0;
	assert_int_equal(braid_link_attach(stub.link), 0);
}

static void queues_with_a_frame_in_them_stay(void **state)
{
	(void)state;
	stub_add_chunk(1, 100, NULL);
	braid_link_detach(stub.link);
	assert_true(stub.link->lanes.attached && has_queues(1));
	stub_push(1);
	stub_expect(1, BRAID_F_CHUNK);
	braid_link_detach(stub.link);		/* not acknowledged */
	assert_true(stub.link->lanes.attached && has_queues(1));
}

static void queues_stay_while_a_frame_is_half_received(void **state)
{
	(void)state;
	stub_at(0)->rx_left = 1;
	braid_link_detach(stub.link);
	assert_true(stub.link->lanes.attached && has_queues(0));
	stub_at(0)->rx_left = 0;
}

static void queues_that_a_nic_may_read_stay(void **state)
{
	(void)state;
	stub_add_lane(&stub_nic);
	assert_true(has_queues(2));		/* a later lane gets them at once */
	braid_link_detach(stub.link);
	assert_true(stub.link->lanes.attached && has_queues(0) && has_queues(2));
}

/* A thread that pushes has dropped the link's lock, and uses what the transport would free. */
static void memory_that_a_push_uses_stays_at_rest(void **state)
{
	(void)state;
	stub_at(1)->pushing = true;
	assert_false(braid_link_trim(stub.link));
	assert_int_equal(stub.lane[0].detaches, 1);
	assert_int_equal(stub.lane[1].detaches, 0);
	stub_at(1)->pushing = false;
	stub_lock();			/* one that has only begun to */
	assert_false(braid_link_trim(stub.link));
	stub_unlock();
	assert_int_equal(stub.lane[1].detaches, 0);
	assert_true(braid_link_trim(stub.link));
	assert_int_equal(stub.lane[1].detaches, 1);
}

/* --- its end ------------------------------------------------------------------------------- */

static void a_link_fails_once_with_its_comms_and_wakes_the_service(void **state)
{
	(void)state;
	stub.waits = true;
	down(-EPIPE);
	assert_int_equal(stub.link->state, BRAID_LINK_DEAD);
	assert_int_equal(stub.link->err, -EPIPE);
	assert_int_equal(stub.failed, -EPIPE);
	assert_int_equal(stub.warns, 1);
	assert_string_equal(stub.warn, "braid: device stub0, peer peer: it broke [test]");
	assert_int_equal(stub.wakes, 1);
	down(-EIO);
	assert_int_equal(stub.link->err, -EPIPE);
	assert_int_equal(stub.fails, 1);
	assert_int_equal(stub.warns, 1);
}

static void an_end_that_affects_no_caller_is_no_warning(void **state)
{
	(void)state;
	down(-EPIPE);
	assert_int_equal(stub.warns, 0);
	assert_int_equal(stub.infos, 1);
	assert_int_equal(stub.link->state, BRAID_LINK_DEAD);
}

static void a_link_that_is_not_up_yet_has_a_caller_unless_this_end_stops_it(void **state)
{
	(void)state;
	atomic_store(&stub.link->state, BRAID_LINK_DIALING);
	down(-ENOTCONN);
	assert_int_equal(stub.warns, 0);
	atomic_store(&stub.link->state, BRAID_LINK_DIALING);
	down(-ETIMEDOUT);
	assert_int_equal(stub.warns, 1);
}

/* Comms may have been made since it died. */
static void stopping_a_dead_link_fails_its_comms_again(void **state)
{
	(void)state;
	down(-EPIPE);
	down(-ENOTCONN);
	assert_int_equal(stub.fails, 2);
	assert_int_equal(stub.failed, -ENOTCONN);
	assert_int_equal(stub.link->err, -EPIPE);
}

static void the_reason_is_written_as_given(void **state)
{
	(void)state;
	stub.waits = true;
	braid_link_fail(stub.link, -EIO, "lane %u of %s [test]", 3u, "four");
	assert_string_equal(stub.warn, "braid: device stub0, peer peer: lane 3 of four [test]");
	assert_int_equal(stub.link->err, -EIO);
	assert_false(stub.link->lock.held);
}

static void freeing_a_link_closes_each_lane_and_ends_its_comms(void **state)
{
	(void)state;
	stub_add_chunk(1, 100, NULL);
	stub_down();
	assert_int_equal(stub.lane[0].closes, 1);
	assert_int_equal(stub.lane[1].closes, 1);
	assert_int_equal(stub.ended, 1);
	stub_up(&stub_socket, 1);		/* for teardown() */
}

static void a_link_without_memory_for_comms_is_not_made(void **state)
{
	struct braid_link_key key = { .dev = &stub.dev };

	(void)state;
	stub.init_err = -ENOMEM;
	assert_null(braid_link_new(&key));
}

/* --- standing still ------------------------------------------------------------------------ */

static bool holds_all(unsigned n)
{
	bool all = stub.link->lock.held;

	for (unsigned i = 0; i < n; i++)
		all &= stub_at(i)->io.held;
	return all;
}

static void a_link_that_stands_still_has_all_locks_until_it_goes_on(void **state)
{
	unsigned n = braid_link_stop(stub.link);

	(void)state;
	assert_int_equal(n, 2);
	assert_true(holds_all(2));
	assert_int_equal(yields, 0);
	braid_link_go(stub.link, n);
	assert_false(stub.link->lock.held || stub_at(0)->io.held || stub_at(1)->io.held);
}

/* The thread that pushes sends without the link's lock, and comes back for it. */
static void pushed(void)
{
	assert_false(stub.link->lock.held || stub_at(0)->io.held);
	if (yields == 3)
		stub_at(1)->pushing = false;
}

static void standing_still_waits_for_a_push(void **state)
{
	(void)state;
	stub_at(1)->pushing = true;
	at_yield = pushed;
	braid_link_go(stub.link, braid_link_stop(stub.link));
	assert_int_equal(yields, 3);
}

static atomic_bool reads, has_read;

/* Reads a lane until another thread waits for its lock; meanwhile the link gets a lane. */
static void *reader(void *arg)
{
	struct braid_lock *io = &stub_at(1)->io;

	(void)arg;
	braid_lock_wait(io);
	atomic_store(&reads, true);
	for (unsigned i = 0; i < 10000000 && !atomic_load(&io->waiting); i++)
		__real_braid_yield();
	stub_add_lane(&stub_socket);
	atomic_store(&has_read, true);
	braid_unlock(io);
	return NULL;
}

static void standing_still_waits_for_a_reader_and_includes_the_lane_that_came_meanwhile(void **state)
{
	pthread_t t;
	unsigned n;

	(void)state;
	atomic_store(&reads, false);
	atomic_store(&has_read, false);
	assert_int_equal(pthread_create(&t, NULL, reader, NULL), 0);
	while (!atomic_load(&reads))
		__real_braid_yield();
	n = braid_link_stop(stub.link);
	assert_true(atomic_load(&has_read));
	assert_int_equal(n, 3);
	assert_true(holds_all(3));
	braid_link_go(stub.link, n);
	pthread_join(t, NULL);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(every_lane_gets_queues_once),
		CASE(an_idle_link_gives_its_queues_back_and_gets_them_again),
		CASE(a_link_without_memory_for_one_lane_has_it_for_none),
		CASE(queues_with_a_frame_in_them_stay),
		CASE(queues_stay_while_a_frame_is_half_received),
		CASE(queues_that_a_nic_may_read_stay),
		CASE(memory_that_a_push_uses_stays_at_rest),
		CASE(a_link_fails_once_with_its_comms_and_wakes_the_service),
		CASE(an_end_that_affects_no_caller_is_no_warning),
		CASE(a_link_that_is_not_up_yet_has_a_caller_unless_this_end_stops_it),
		CASE(stopping_a_dead_link_fails_its_comms_again),
		CASE(the_reason_is_written_as_given),
		CASE(freeing_a_link_closes_each_lane_and_ends_its_comms),
		CASE(a_link_without_memory_for_comms_is_not_made),
		CASE(a_link_that_stands_still_has_all_locks_until_it_goes_on),
		CASE(standing_still_waits_for_a_push),
		CASE(standing_still_waits_for_a_reader_and_includes_the_lane_that_came_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
