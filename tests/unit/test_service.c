/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_service.c - the service thread's start and end, with a loop that the test plays: it waits for
 * a word of the case and returns with the service's lock held.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <semaphore.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/wakeup.h"
#include "core/setup/events.h"
#include "core/setup/links.h"
#include "core/setup/service.h"
#include "tests/lib/warns.h"

enum fault { NONE, EPOLL, EVENTFD, WATCH, THREAD };

static enum fault fault;		/* the call that fails */
static int why;				/* its errno */
static bool stays;			/* the thread does not end in time */
static bool asleep;			/* a wake does not reach it */
static unsigned starts, joins, wakes, open_fds, started;
static unsigned join_ms;
static sem_t go_on, locked;
static const struct braid_os *real;

/* --- the kernel ---------------------------------------------------------------------------- */

static bool fails(enum fault f)
{
	errno = why;
	return fault == f;
}

static int opened(int fd)
{
	open_fds += fd >= 0;
	return fd;
}

static int os_epoll_create(void)
{
	return opened(fails(EPOLL) ? -1 : real->epoll_create());
}

static int os_eventfd(void)
{
	return opened(fails(EVENTFD) ? -1 : real->eventfd());
}

static int os_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	return fails(WATCH) ? -1 : real->epoll_ctl(ep, op, fd, ev);
}

static int os_close(int fd)
{
	open_fds--;
	return real->close(fd);
}

static int os_wake(int fd)
{
	wakes++;
	if (!asleep)
		sem_post(&go_on);
	return real->wake(fd);
}

static int os_thread_start(pthread_t *ret, void *(*fn)(void *), void *arg, const char *name)
{
	assert_string_equal(name, "braid-service");
	if (fails(THREAD))
		return -why;
	starts++;
	return real->thread_start(ret, fn, arg, name);
}

static int os_thread_join(pthread_t thread, unsigned timeout_ms)
{
	int err = real->thread_join(thread, 60000);

	joins++;
	join_ms = timeout_ms;
	return stays ? -ETIMEDOUT : err;
}

/* --- the thread ---------------------------------------------------------------------------- */

static void loop(void)
{
	sem_wait(&go_on);
	braid_svc_lock();
	sem_post(&locked);
}

static void on_start(void)
{
	started++;
}

static int setup(void **state)
{
	static struct braid_os os;

	(void)state;
	real = braid_os;
	os = *real;
	os.epoll_create = os_epoll_create;
	os.eventfd = os_eventfd;
	os.epoll_ctl = os_epoll_ctl;
	os.close = os_close;
	os.wake = os_wake;
	os.thread_start = os_thread_start;
	os.thread_join = os_thread_join;
	braid_os = &os;
	warns_keep();
	fault = NONE;
	stays = asleep = false;
	starts = joins = wakes = open_fds = started = 0;
	sem_init(&go_on, 0, 0);
	sem_init(&locked, 0, 0);
	braid_service_hooks.started = on_start;
	braid_svc_lock();
	braid_service_runs(loop);
	braid_svc_unlock();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_log_to(NULL);
	braid_os = real;
	return 0;
}

static int start(void)
{
	int err;

	braid_svc_lock();
	err = braid_service_start();
	braid_svc_unlock();
	return err;
}

static bool stopping(void)
{
	bool ret;

	braid_svc_lock();
	ret = braid_service_stopping();
	braid_svc_unlock();
	return ret;
}

/* What core/setup/loop.c would close at the end. */
static void close_what_the_loop_would(void)
{
	braid_wakeup_close();
	braid_events_close();
}

static void it_is_started_once(void **state)
{
	(void)state;
	assert_int_equal(start(), 0);
	assert_int_equal(start(), 0);
	assert_int_equal(starts, 1);
	assert_int_equal(started, 1);
	assert_int_equal(open_fds, 2);		/* an epoll set, and what wakes it */
	assert_false(stopping());
	braid_service_stop();
	close_what_the_loop_would();
	assert_int_equal(open_fds, 0);
}

static void it_can_be_woken(void **state)
{
	struct epoll_event ev;

	(void)state;
	asleep = true;
	assert_int_equal(start(), 0);
	assert_int_equal(braid_events_wait(&ev, 0), 0);
	braid_wake_service();
	assert_int_equal(braid_events_wait(&ev, 0), 1);
	assert_int_equal(ev.data.u64, BRAID_TAG_WAKE);
	braid_svc_lock();
	braid_service_woken();
	braid_svc_unlock();
	assert_int_equal(braid_events_wait(&ev, 0), 0);
	asleep = false;
	braid_service_stop();
	close_what_the_loop_would();
}

static void a_start_that_fails_leaves_nothing_open(void **state)
{
	(void)state;
	why = EPERM;
	for (fault = EPOLL; fault <= THREAD; fault++) {
		braid_svc_lock();
		assert_int_equal(braid_service_try(), -EPERM);
		braid_svc_unlock();
		assert_int_equal(open_fds, 0);
	}
	assert_int_equal(starts + started + warn_count, 0);
	braid_service_stop();			/* there is no thread to wait for */
	assert_int_equal(joins + wakes, 0);
	fault = NONE;
	assert_int_equal(start(), 0);
	assert_false(stopping());
	braid_service_stop();
	close_what_the_loop_would();
}

static void a_start_that_fails_is_reported_with_its_remedy(void **state)
{
	(void)state;
	fault = EPOLL;
	why = EMFILE;
	assert_int_equal(start(), -EMFILE);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "Raise the limit: ulimit -n [no-start]"));
	why = ENOMEM;
	assert_int_equal(start(), -ENOMEM);
	assert_int_equal(warn_count, 2);
	assert_null(strstr(warn_text, "ulimit"));
}

static void the_last_context_stops_it(void **state)
{
	(void)state;
	braid_service_get();
	braid_service_get();
	assert_int_equal(start(), 0);
	braid_service_put();
	assert_false(stopping());
	assert_int_equal(joins, 0);
	braid_service_put();
	assert_true(stopping());
	assert_int_equal(wakes, 1);
	assert_int_equal(joins, 1);
	assert_int_equal(warn_count, 0);
	close_what_the_loop_would();
}

static void a_thread_that_does_not_end_is_left_behind(void **state)
{
	(void)state;
	stays = true;
	assert_int_equal(start(), 0);
	braid_service_stop();
	assert_int_equal(join_ms, 6000);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "did not end within 6 s; it is left behind [thread-left]"));
	close_what_the_loop_would();
}

/* It has found nothing left to do: nobody joins it, and the next link starts another. */
static void a_thread_that_ends_by_itself_can_be_started_again(void **state)
{
	(void)state;
	assert_int_equal(start(), 0);
	sem_post(&go_on);
	sem_wait(&locked);
	braid_svc_lock();			/* granted once the thread is over */
	close_what_the_loop_would();
	assert_int_equal(braid_service_start(), 0);
	braid_svc_unlock();
	assert_int_equal(starts, 2);
	assert_int_equal(joins, 0);
	braid_service_stop();
	assert_int_equal(joins, 1);
	close_what_the_loop_would();
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(it_is_started_once),
		CASE(it_can_be_woken),
		CASE(a_start_that_fails_leaves_nothing_open),
		CASE(a_start_that_fails_is_reported_with_its_remedy),
		CASE(the_last_context_stops_it),
		CASE(a_thread_that_does_not_end_is_left_behind),
		CASE(a_thread_that_ends_by_itself_can_be_started_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
