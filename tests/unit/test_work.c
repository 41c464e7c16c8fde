/* SPDX-License-Identifier: BSD-3-Clause */
/* test_work.c - threads for calls that may not come back: done, left, left behind, and told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/work.h"

#define MS 1000000ull

struct job {
	struct braid_work work;
	atomic_bool go;			/* the call may come back */
};

static atomic_uint freed, warns;
static char warned[1024];
static struct braid_os os;
static const struct braid_os *real_os;
static uint64_t skipped_ns;		/* how much the test's clock is ahead */

static void keep_warn(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)file, (void)line;
	if (level != BRAID_LOG_WARN)
		return;
	warns++;
	snprintf(warned, sizeof(warned), "%s", text);
}

static uint64_t now_ns(void)
{
	return real_os->now_ns() + skipped_ns;
}

static int no_thread(pthread_t *ret, void *(*fn)(void *), void *arg, const char *name)
{
	(void)ret, (void)fn, (void)arg, (void)name;
	return -EAGAIN;
}

static void nap(void)
{
	const struct timespec ms = { .tv_nsec = 1000000 };

	nanosleep(&ms, NULL);
}

static void run(struct braid_work *w)
{
	while (!atomic_load(&braid_container(w, struct job, work)->go))
		nap();
}

static void release(struct braid_work *w)
{
	free(braid_container(w, struct job, work));
	freed++;
}

static int begin(void **state)
{
	(void)state;
	if (!real_os)
		real_os = braid_os;
	os = *real_os;
	os.now_ns = now_ns;
	braid_os = &os;
	braid_log_to(keep_warn);
	freed = warns = 0;
	skipped_ns += 60000 * MS;	/* past the gates of those before */
	return 0;
}

static int end(void **state)
{
	(void)state;
	braid_os = real_os;
	braid_log_to(NULL);
	return 0;
}

static struct job *start(bool go)
{
	struct job *j = calloc(1, sizeof(*j));

	assert_non_null(j);
	atomic_store(&j->go, go);
	assert_int_equal(braid_work_start(&j->work, "a call", run, release), 0);
	return j;
}

static void test_done_and_freed_once(void **state)
{
	struct job *j = start(true);

	(void)state;
	while (!braid_work_done(&j->work))
		nap();
	braid_work_leave(&j->work);
	braid_work_end();		/* the thread has let go */
	assert_int_equal(freed, 1);
	assert_int_equal(warns, 0);
}

static void test_ended_at_once_is_not_reported(void **state)
{
	struct job *j = start(false);

	(void)state;
	j->work.what = "never told";
	braid_work_leave(&j->work);
	assert_int_equal(warns, 0);
	assert_int_equal(freed, 0);	/* the thread still has it */
	atomic_store(&j->go, true);
	braid_work_end();
	assert_int_equal(freed, 1);
	assert_int_equal(warns, 0);
}

static void test_stuck_is_left_and_reported_once(void **state)
{
	struct job *j = start(false), *k = start(false);

	(void)state;
	skipped_ns += 2000 * MS;
	braid_work_leave(&j->work);
	assert_int_equal(warns, 1);
	assert_non_null(strstr(warned, "a call has not come back from the kernel for 2."));
	assert_non_null(strstr(warned, "2 in all"));
	assert_non_null(strstr(warned, "[stuck-in-kernel]"));
	braid_work_leave(&k->work);
	assert_int_equal(warns, 1);
	braid_work_end();		/* does not wait for long, and logs the threads that are left */
	assert_int_equal(warns, 2);
	assert_non_null(strstr(warned, "2 threads are still inside calls"));
	assert_int_equal(freed, 0);
	atomic_store(&j->go, true);
	atomic_store(&k->go, true);
	while (freed < 2)
		nap();
}

static void test_a_slow_one_is_not_stuck_for_half_a_minute(void **state)
{
	struct job *j = calloc(1, sizeof(*j)), *k = calloc(1, sizeof(*k));

	(void)state;
	assert_true(j && k);
	j->work.slow = k->work.slow = true;
	assert_int_equal(braid_work_start(&j->work, "a call", run, release), 0);
	assert_int_equal(braid_work_start(&k->work, "a call", run, release), 0);
	skipped_ns += 20000 * MS;
	braid_work_leave(&j->work);
	braid_work_end();		/* does not wait for long */
	assert_int_equal(warns, 0);
	assert_int_equal(freed, 0);
	skipped_ns += 20000 * MS;
	braid_work_leave(&k->work);
	assert_int_equal(warns, 1);
	atomic_store(&j->go, true);
	atomic_store(&k->go, true);
	while (freed < 2)
		nap();
}

static void test_one_that_came_back_is_not_stuck(void **state)
{
	struct job *j = start(false);

	(void)state;
	skipped_ns += 2000 * MS;
	braid_work_next(&j->work);
	braid_work_leave(&j->work);
	assert_int_equal(warns, 0);
	atomic_store(&j->go, true);
	braid_work_end();
	assert_int_equal(freed, 1);
	assert_int_equal(warns, 0);
}

static void test_no_thread(void **state)
{
	struct job *j = calloc(1, sizeof(*j));

	(void)state;
	os.thread_start = no_thread;
	assert_int_equal(braid_work_start(&j->work, "a call", run, release), -EAGAIN);
	assert_int_equal(freed, 0);
	free(j);
	braid_work_end();
	assert_int_equal(warns, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_done_and_freed_once, begin, end),
		cmocka_unit_test_setup_teardown(test_ended_at_once_is_not_reported, begin, end),
		cmocka_unit_test_setup_teardown(test_stuck_is_left_and_reported_once, begin, end),
		cmocka_unit_test_setup_teardown(test_a_slow_one_is_not_stuck_for_half_a_minute, begin,
						end),
		cmocka_unit_test_setup_teardown(test_one_that_came_back_is_not_stuck, begin, end),
		cmocka_unit_test_setup_teardown(test_no_thread, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
