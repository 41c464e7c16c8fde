/* SPDX-License-Identifier: BSD-3-Clause */
/* test_later.c - commands to a NIC: their order, NICs that hang, and memory that NICs let go of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/dev.h"
#include "core/mem/later.h"

enum { JOBS = 40 };

static struct braid_dev dev;
static unsigned warns;
static atomic_uint ran, order[JOBS], at_once, most_at_once;
static atomic_bool may_end;

static void hear(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)file, (void)line;
	if (level == BRAID_LOG_WARN && strstr(text, "[nic-hangs]"))
		warns++;
}

static int setup(void **state)
{
	(void)state;
	memset(&dev, 0, sizeof(dev));
	dev.nmembers = 1;
	dev.member[0] = &dev;
	warns = 0;
	atomic_store(&ran, 0);
	atomic_store(&most_at_once, 0);
	atomic_store(&may_end, false);
	braid_log_to(hear);
	return 0;
}

static void wait_for(enum braid_job_kind turn)
{
	while (braid_later_busy(&dev, turn))
		sched_yield();
}

struct numbered {
	struct braid_job job;
	unsigned n;
};

static void run_numbered(struct braid_job *job)
{
	unsigned with_me = atomic_fetch_add(&at_once, 1) + 1;

	if (with_me > atomic_load(&most_at_once))
		atomic_store(&most_at_once, with_me);
	atomic_store(&order[atomic_fetch_add(&ran, 1)],
		     braid_container(job, struct numbered, job)->n);
	atomic_fetch_sub(&at_once, 1);
}

static void jobs_of_make_run_one_at_a_time_in_order(void **state)
{
	static struct numbered jobs[JOBS];

	(void)state;
	for (unsigned i = 0; i < JOBS; i++) {
		jobs[i] = (struct numbered){ .job.run = run_numbered, .n = i };
		braid_later(&dev, BRAID_MAKE, &jobs[i].job);
	}
	wait_for(BRAID_MAKE);
	assert_int_equal(atomic_load(&ran), JOBS);
	assert_int_equal(atomic_load(&most_at_once), 1);
	for (unsigned i = 0; i < JOBS; i++)
		assert_int_equal(atomic_load(&order[i]), i);
}

static void run_slow(struct braid_job *job)
{
	(void)job;
	while (!atomic_load(&may_end))
		sched_yield();
}

static void a_slow_job_holds_up_no_other_queue_and_after_a_look_not_its_own(void **state)
{
	struct braid_job slow = { .run = run_slow, .what = "to be slow" };
	struct numbered behind = { .job.run = run_numbered }, other = behind;
	uint64_t now;

	(void)state;
	braid_later(&dev, BRAID_END, &slow);
	braid_later(&dev, BRAID_END, &behind.job);
	braid_later(&dev, BRAID_STOP, &other.job);
	wait_for(BRAID_STOP);
	now = braid_os->now_ns() + 500000000;	/* long enough to be slow, too short to hang */
	while (atomic_load(&ran) < 2)
		braid_later_check(&dev, now);
	assert_true(braid_later_busy(&dev, BRAID_END));
	assert_false(braid_later_hangs(&dev, BRAID_END, now));
	atomic_store(&may_end, true);
	wait_for(BRAID_END);
}

static void a_nic_that_hangs_is_reported_once(void **state)
{
	struct braid_job slow = { .run = run_slow, .what = "to be slow" };
	uint64_t later = braid_os->now_ns() + 10000000000;

	(void)state;
	braid_later(&dev, BRAID_STOP, &slow);
	while (!braid_later_hangs(&dev, BRAID_STOP, later))
		sched_yield();			/* its thread is still to begin */
	assert_int_equal(warns, 0);
	assert_true(braid_later_check(&dev, later) >= 0);
	braid_later_check(&dev, later + 1);
	assert_int_equal(warns, 1);
	atomic_store(&may_end, true);
	wait_for(BRAID_STOP);
	assert_int_equal(braid_later_check(&dev, later), -1);
}

static void stops_are_past_once_all_asked_for_before_are_over(void **state)
{
	struct braid_stop a, b, c;
	struct braid_stops mark;

	(void)state;
	braid_stop_begin(&dev, &a);
	braid_stop_begin(&dev, &b);
	braid_stops_mark(&dev, &mark);
	braid_stop_begin(&dev, &c);
	assert_false(braid_stops_past(&dev, &mark));
	braid_stop_end(&dev, &b);
	braid_stop_end(&dev, &b);		/* may be called again */
	assert_false(braid_stops_past(&dev, &mark));
	braid_stop_end(&dev, &a);
	assert_true(braid_stops_past(&dev, &mark));	/* though c runs */
	braid_stop_end(&dev, &c);
	assert_int_equal(braid_stops_wait(&dev), 0);
}

#define CASE(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(jobs_of_make_run_one_at_a_time_in_order),
		CASE(a_slow_job_holds_up_no_other_queue_and_after_a_look_not_its_own),
		CASE(a_nic_that_hangs_is_reported_once),
		CASE(stops_are_past_once_all_asked_for_before_are_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
