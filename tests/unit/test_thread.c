/* SPDX-License-Identifier: BSD-3-Clause */
/* test_thread.c - what a thread of another process does: it waits, runs, is stopped, or is not there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topo/thread.h"

#define NAME "braid-x (y) z"		/* proc(5): a name may have parentheses */

enum { TURNS = 20000 };			/* of 1 ms */

static pid_t pid;

static void run_for_ever(void)
{
	for (;;)
		;
}

static void sleep_for_ever(void)
{
	for (;;)
		pause();
}

static void start(void (*body)(void))
{
	pid = fork();
	if (pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, NAME);
	body();
}

static int end(void **state)
{
	(void)state;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return 0;
}

static void assert_becomes(char state)
{
	for (int i = 0; braid_thread_of((uint32_t)pid, NAME).state != state; i++) {
		assert_true(i < TURNS);
		usleep(1000);
	}
}

static void one_that_waits_sleeps(void **state)
{
	(void)state;
	start(sleep_for_ever);
	assert_becomes('S');
}

static void one_that_runs_is_ready_until_it_is_stopped(void **state)
{
	(void)state;
	start(run_for_ever);
	assert_becomes('R');
	kill(pid, SIGSTOP);
	assert_becomes('T');
	kill(pid, SIGCONT);
	assert_becomes('R');
}

static void time_that_it_ran_and_waited_is_counted(void **state)
{
	struct braid_thread t = { 0 };
	cpu_set_t one;
	pid_t other;

	(void)state;
	CPU_ZERO(&one);
	CPU_SET((unsigned)sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);	/* both share this CPU */
	start(run_for_ever);
	other = pid;
	start(run_for_ever);
	for (int i = 0; (t.ran_ms < 5 || t.queued_ms < 5) && i < TURNS; i++) {
		usleep(1000);
		t = braid_thread_of((uint32_t)pid, NAME);
	}
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	assert_true(t.ran_ms >= 5);
	assert_true(t.queued_ms >= 5);
	assert_true(braid_thread_queued_ms() < 3600000);
}

static void a_name_or_a_process_that_is_not_there_has_no_state(void **state)
{
	(void)state;
	start(sleep_for_ever);
	assert_becomes('S');
	assert_int_equal(braid_thread_of((uint32_t)pid, "braid-x").state, '\0');
	end(NULL);
	assert_int_equal(braid_thread_of((uint32_t)pid, NAME).state, '\0');
}

#define CASE(f) cmocka_unit_test_teardown(f, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(one_that_waits_sleeps),
		CASE(one_that_runs_is_ready_until_it_is_stopped),
		CASE(time_that_it_ran_and_waited_is_counted),
		CASE(a_name_or_a_process_that_is_not_there_has_no_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
