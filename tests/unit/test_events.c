/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_events.c - the epoll set of the service thread: which object an event is for, and when a
 * descriptor raises none any more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/base/os.h"
#include "core/setup/events.h"

static uint64_t object[2];		/* aligned, as what malloc() returns */
static int fd[2];			/* readable from the start */

static int setup(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		fd[i] = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
		assert_true(fd[i] >= 0);
	}
	assert_int_equal(braid_events_open(), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_events_close();
	for (unsigned i = 0; i < 2; i++) {
		if (fd[i] >= 0)
			close(fd[i]);
	}
	return 0;
}

static void assert_event(const void *obj, enum braid_tag tag, uint32_t events)
{
	struct epoll_event ev;

	assert_int_equal(braid_events_wait(&ev, -1), 1);
	assert_int_equal(ev.data.u64 & BRAID_TAG_MASK, tag);
	assert_ptr_equal((void *)(uintptr_t)(ev.data.u64 & ~(uint64_t)BRAID_TAG_MASK), obj);
	assert_int_equal(ev.events, events);
}

static void assert_no_event(void)
{
	struct epoll_event ev;

	assert_int_equal(braid_events_wait(&ev, 0), 0);
}

static void an_event_names_its_object_and_the_objects_kind(void **state)
{
	static const enum braid_tag tags[] = {
		BRAID_TAG_PORT, BRAID_TAG_CONN, BRAID_TAG_LANE, BRAID_TAG_DEVICE,
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
		void *obj = &object[i % 2];

		assert_int_equal(braid_watch(EPOLL_CTL_ADD, fd[0], EPOLLIN, obj, tags[i]), 0);
		assert_event(obj, tags[i], EPOLLIN);
		braid_unwatch(fd[0]);
	}
	assert_int_equal(braid_watch(EPOLL_CTL_ADD, fd[0], EPOLLIN, NULL, BRAID_TAG_WAKE), 0);
	assert_event(NULL, BRAID_TAG_WAKE, EPOLLIN);
}

static void one_event_comes_at_a_time(void **state)
{
	struct epoll_event ev[2] = { { 0 }, { 0 } };

	(void)state;
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(braid_watch(EPOLL_CTL_ADD, fd[i], EPOLLIN, &object[i],
					     BRAID_TAG_CONN), 0);
	assert_int_equal(braid_events_wait(ev, -1), 1);
	assert_int_equal(ev[1].data.u64, 0);
}

static void a_change_replaces_what_is_waited_for(void **state)
{
	(void)state;
	assert_int_equal(braid_watch(EPOLL_CTL_ADD, fd[0], 0, &object[0], BRAID_TAG_CONN), 0);
	assert_no_event();
	assert_int_equal(braid_watch(EPOLL_CTL_MOD, fd[0], EPOLLOUT, &object[1], BRAID_TAG_LANE), 0);
	assert_event(&object[1], BRAID_TAG_LANE, EPOLLOUT);
	assert_int_equal(braid_watch(EPOLL_CTL_MOD, fd[0], 0, &object[1], BRAID_TAG_LANE), 0);
	assert_no_event();
}

/* A forked child holds the descriptor too: close() alone would leave it in the set. */
static void what_is_unwatched_raises_nothing_even_if_a_child_holds_it(void **state)
{
	int childs = dup(fd[0]);

	(void)state;
	assert_int_equal(braid_watch(EPOLL_CTL_ADD, fd[0], EPOLLIN, &object[0], BRAID_TAG_CONN), 0);
	assert_event(&object[0], BRAID_TAG_CONN, EPOLLIN);
	braid_unwatch(fd[0]);
	close(fd[0]);
	fd[0] = -1;
	assert_no_event();
	close(childs);
}

static void errors_are_those_of_epoll(void **state)
{
	(void)state;
	assert_int_equal(braid_watch(EPOLL_CTL_MOD, fd[0], EPOLLIN, NULL, BRAID_TAG_WAKE), -ENOENT);
	assert_int_equal(braid_watch(EPOLL_CTL_ADD, fd[0], EPOLLIN, NULL, BRAID_TAG_WAKE), 0);
	assert_int_equal(braid_watch(EPOLL_CTL_ADD, fd[0], EPOLLIN, NULL, BRAID_TAG_WAKE), -EEXIST);
	assert_int_equal(braid_watch(EPOLL_CTL_ADD, -1, EPOLLIN, NULL, BRAID_TAG_WAKE), -EBADF);
}

static int no_epoll(void)
{
	errno = EMFILE;
	return -1;
}

static void without_a_set_nothing_can_be_watched(void **state)
{
	const struct braid_os *real = braid_os;
	struct braid_os os = *real;

	(void)state;
	braid_events_close();
	os.epoll_create = no_epoll;
	braid_os = &os;
	assert_int_equal(braid_events_open(), -EMFILE);
	braid_os = real;
	assert_int_equal(braid_watch(EPOLL_CTL_ADD, fd[0], EPOLLIN, NULL, BRAID_TAG_WAKE), -EBADF);
	assert_int_equal(braid_events_open(), 0);
	assert_int_equal(braid_watch(EPOLL_CTL_ADD, fd[0], EPOLLIN, NULL, BRAID_TAG_WAKE), 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(an_event_names_its_object_and_the_objects_kind),
		CASE(one_event_comes_at_a_time),
		CASE(a_change_replaces_what_is_waited_for),
		CASE(what_is_unwatched_raises_nothing_even_if_a_child_holds_it),
		CASE(errors_are_those_of_epoll),
		CASE(without_a_set_nothing_can_be_watched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
