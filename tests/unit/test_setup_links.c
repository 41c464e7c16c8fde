/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_setup_links.c - the table of all links: how one is found by its key, and how a reader walks the
 * table while links come and go.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "core/link/link.h"
#include "core/setup/links.h"

enum { LINKS = 3, DEVICES = BRAID_NETDEVS_MAX };

static struct braid_dev dev[DEVICES + 4];
static struct braid_link link_[LINKS];

static int setup(void **state)
{
	(void)state;
	memset(link_, 0, sizeof(link_));
	for (unsigned i = 0; i < LINKS; i++) {
		link_[i].key.dev = &dev[0];
		link_[i].key.traffic_class = -1;
		memset(link_[i].key.process, (int)i + 1, sizeof(link_[i].key.process));
		atomic_store(&link_[i].state, BRAID_LINK_UP);
	}
	braid_svc_lock();
	braid_links_init();
	for (unsigned i = 0; i < LINKS; i++)
		braid_link_list(&link_[i]);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_svc_unlock();
	return 0;
}

static void *try_it(void *arg)
{
	bool *mine = arg;

	*mine = braid_svc_trylock();
	if (*mine)
		braid_svc_unlock();
	return NULL;
}

static bool another_thread_gets_it(void)
{
	bool mine = false;
	pthread_t t;

	assert_int_equal(pthread_create(&t, NULL, try_it, &mine), 0);
	pthread_join(t, NULL);
	return mine;
}

static void the_lock_is_one_threads_at_a_time(void **state)
{
	(void)state;
	assert_false(another_thread_gets_it());
	braid_svc_unlock();
	assert_true(another_thread_gets_it());
	assert_true(braid_svc_trylock());
	assert_false(another_thread_gets_it());
}

static void a_link_is_found_by_its_key(void **state)
{
	struct braid_link_key key = link_[1].key;

	(void)state;
	assert_ptr_equal(braid_link_find(&key, false), &link_[1]);
	key.process[BRAID_ID_SIZE - 1]++;
	assert_null(braid_link_find(&key, false));
}

static void others_turn(struct braid_link *at, const struct braid_link *want)
{
	assert_ptr_equal(at, want);
	braid_links_leave(at);
}

static void turns_go_round_and_past_links_that_leave(void **state)
{
	(void)state;
	assert_int_equal(braid_links_count(), LINKS);
	others_turn(braid_links_turn(NULL), &link_[0]);
	others_turn(braid_links_turn(NULL), &link_[1]);
	assert_true(braid_link_unlist(&link_[2]));
	assert_int_equal(braid_links_count(), LINKS - 1);
	others_turn(braid_links_turn(NULL), &link_[0]);
	/* The one that is next can't be freed by another thread while it is looked at. */
	assert_false(braid_link_unlist(braid_links_turn(NULL)));
	braid_links_leave(&link_[1]);
	assert_true(braid_link_unlist(&link_[0]) && braid_link_unlist(&link_[1]));
	assert_null(braid_links_turn(NULL));
}

static void every_part_of_the_key_counts(void **state)
{
	struct braid_link_key key = link_[1].key;

	(void)state;
	key.dev = &dev[1];
	assert_null(braid_link_find(&key, false));
	key = link_[1].key;
	key.peer_dev++;
	assert_null(braid_link_find(&key, false));
	key = link_[1].key;
	key.traffic_class = 106;
	assert_null(braid_link_find(&key, false));
	key = link_[1].key;
	key.self_accepted = true;
	assert_null(braid_link_find(&key, false));
}

/* The last link is another one with the first one's key. */
static void becomes_second(void)
{
	assert_true(braid_link_unlist(&link_[2]));
	link_[2].key = link_[0].key;
	braid_link_list(&link_[2]);
}

static void a_link_that_is_over_is_not_found(void **state)
{
	(void)state;
	becomes_second();
	assert_ptr_equal(braid_link_find(&link_[0].key, false), &link_[0]);
	atomic_store(&link_[0].state, BRAID_LINK_DEAD);
	assert_ptr_equal(braid_link_find(&link_[0].key, false), &link_[2]);
	/* The peer has closed its end: nothing new may go over the link. */
	atomic_store(&link_[2].rx.peer_gone, true);
	assert_null(braid_link_find(&link_[0].key, false));
}

static void a_link_whose_peer_is_not_what_it_says_is_not_found(void **state)
{
	(void)state;
	link_[0].setup.distrusted = true;
	assert_null(braid_link_find(&link_[0].key, false));
	becomes_second();
	assert_ptr_equal(braid_link_find(&link_[0].key, false), &link_[2]);
}

static void the_peers_dial_takes_no_place_of_a_link_that_dials_alone(void **state)
{
	(void)state;
	atomic_store(&link_[0].state, BRAID_LINK_DIALING);
	link_[0].dial.alone = true;
	assert_null(braid_link_find(&link_[0].key, true));
	assert_ptr_equal(braid_link_find(&link_[0].key, false), &link_[0]);
}

/* Its callers have another link.  It fails without a warning, so no other connect may rely on it. */
static void a_spare_link_is_found_once_it_is_up(void **state)
{
	(void)state;
	atomic_store(&link_[0].state, BRAID_LINK_DIALING);
	link_[0].dial.alone = true;
	link_[0].spare = true;
	assert_null(braid_link_find(&link_[0].key, false));
	assert_ptr_equal(braid_link_find_proven(&link_[0].key), &link_[0]);
	atomic_store(&link_[0].state, BRAID_LINK_UP);
	assert_ptr_equal(braid_link_find(&link_[0].key, false), &link_[0]);
}

static void a_link_that_proves_nothing_is_passed_over_for_one_that_does(void **state)
{
	(void)state;
	assert_null(braid_link_find_proven(&link_[0].key));
	becomes_second();
	link_[2].setup.proven = true;
	assert_ptr_equal(braid_link_find_proven(&link_[0].key), &link_[2]);
	link_[2].setup.distrusted = true;
	assert_null(braid_link_find_proven(&link_[0].key));
}

static void a_pending_link_is_one_that_is_not_up(void **state)
{
	(void)state;
	becomes_second();
	assert_null(braid_link_find(&link_[0].key, true));
	atomic_store(&link_[2].state, BRAID_LINK_WAITING);
	assert_ptr_equal(braid_link_find(&link_[0].key, true), &link_[2]);
	assert_ptr_equal(braid_link_find(&link_[0].key, false), &link_[0]);
	atomic_store(&link_[2].state, BRAID_LINK_DIALING);
	assert_ptr_equal(braid_link_find(&link_[0].key, true), &link_[2]);
}

static void links_are_numbered_one_after_the_other(void **state)
{
	(void)state;
	for (unsigned i = 0; i < LINKS; i++)
		braid_link_number(&link_[i]);
	assert_true(link_[0].number >= 1);
	assert_int_equal(link_[1].number, link_[0].number + 1);
	assert_int_equal(link_[2].number, link_[0].number + 2);
}

static void a_walk_meets_every_link_once(void **state)
{
	struct braid_link *at = NULL;

	(void)state;
	for (unsigned i = 0; i < LINKS; i++) {
		at = braid_links_next(at);
		assert_ptr_equal(at, &link_[i]);
	}
	assert_null(braid_links_next(at));
	assert_ptr_equal(braid_links_next(NULL), &link_[0]);
	braid_links_leave(&link_[0]);
	for (unsigned i = 0; i < LINKS; i++)
		assert_true(braid_link_unlist(&link_[i]));
	assert_null(braid_links_next(NULL));
}

static void a_link_that_is_looked_at_stays(void **state)
{
	struct braid_link *at = braid_links_next(NULL);

	(void)state;
	assert_false(braid_link_unlist(at));
	assert_ptr_equal(braid_links_next(at), &link_[1]);
	assert_true(braid_link_unlist(&link_[0]));
	assert_false(braid_link_unlist(&link_[1]));
	braid_links_leave(&link_[1]);
	assert_true(braid_link_unlist(&link_[1]));
}

static void two_readers_hold_a_link_apart(void **state)
{
	struct braid_link *a = braid_links_next(NULL), *b = braid_links_next(NULL);

	(void)state;
	assert_ptr_equal(a, b);
	braid_links_leave(a);
	assert_false(braid_link_unlist(&link_[0]));
	braid_links_leave(b);
	assert_true(braid_link_unlist(&link_[0]));
}

/* The last case: devices stay in the table for as long as the process lives. */
static void a_device_is_noted_once_and_stays(void **state)
{
	const struct braid_dev *known[DEVICES + 4];

	(void)state;
	assert_int_equal(braid_links_devices(known, DEVICES + 4), 1);
	assert_ptr_equal(known[0], &dev[0]);
	for (unsigned i = 1; i < DEVICES + 4; i++) {
		assert_true(braid_link_unlist(&link_[1]));
		link_[1].key.dev = &dev[i];
		braid_link_list(&link_[1]);
	}
	assert_int_equal(braid_links_devices(known, DEVICES + 4), DEVICES);
	for (unsigned i = 0; i < DEVICES; i++)
		assert_ptr_equal(known[i], &dev[i]);
	known[2] = NULL;
	assert_int_equal(braid_links_devices(known, 2), 2);
	assert_null(known[2]);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(the_lock_is_one_threads_at_a_time),
		CASE(a_link_is_found_by_its_key),
		CASE(every_part_of_the_key_counts),
		CASE(turns_go_round_and_past_links_that_leave),
		CASE(a_link_that_is_over_is_not_found),
		CASE(a_link_whose_peer_is_not_what_it_says_is_not_found),
		CASE(the_peers_dial_takes_no_place_of_a_link_that_dials_alone),
		CASE(a_spare_link_is_found_once_it_is_up),
		CASE(a_link_that_proves_nothing_is_passed_over_for_one_that_does),
		CASE(a_pending_link_is_one_that_is_not_up),
		CASE(links_are_numbered_one_after_the_other),
		CASE(a_walk_meets_every_link_once),
		CASE(a_link_that_is_looked_at_stays),
		CASE(two_readers_hold_a_link_apart),
		CASE(a_device_is_noted_once_and_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
