/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_os.c - on which CPUs os.h's threads run: near ones, but only those that the process may use;
 * which waiter gets a lock next; and random numbers where a seccomp filter refuses getrandom().
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/os.h"

static struct braid_cpus inherited;		/* when the test began */
static unsigned first, second;			/* two of them */

static cpu_set_t *set_of(struct braid_cpus *c)
{
	return (cpu_set_t *)(void *)c->bits;
}

static struct braid_cpus only(unsigned cpu)
{
	struct braid_cpus c = { .bits = { 0 } };

	c.bits[cpu / 64] = 1ull << (cpu % 64);
	return c;
}

static void run_on(struct braid_cpus c)
{
	assert_int_equal(sched_setaffinity(0, sizeof(c), set_of(&c)), 0);
}

/* The thread reports its CPUs once its starter has set them. */
static atomic_bool told;

static void *body(void *arg)
{
	while (!atomic_load(&told))
		sched_yield();
	if (pthread_getaffinity_np(pthread_self(), sizeof(struct braid_cpus), set_of(arg)) != 0)
		abort();
	return NULL;
}

static struct braid_cpus cpus_of_thread(void)
{
	struct braid_cpus c = { .bits = { 0 } };
	pthread_t thread;

	atomic_store(&told, false);
	assert_int_equal(braid_os->thread_start(&thread, body, &c, "test"), 0);
	atomic_store(&told, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	return c;
}

static int begin(void **state)
{
	unsigned n = 0;

	(void)state;
	memset(&inherited, 0, sizeof(inherited));
	if (sched_getaffinity(0, sizeof(inherited), set_of(&inherited)) < 0)
		return -1;
	for (unsigned i = 0; i < BRAID_CPUS_MAX; i++) {
		if (!braid_cpus_has(&inherited, i))
			continue;
		if (n == 0)
			first = i;
		if (n == 1)
			second = i;
		n++;
	}
	braid_os_near(NULL);
	return n ? 0 : -1;
}

static int end(void **state)
{
	(void)state;
	braid_os_near(NULL);
	return sched_setaffinity(0, sizeof(inherited), set_of(&inherited));
}

static void need_two(void)
{
	if (second == first || !braid_cpus_has(&inherited, second)) {
		print_message("skip: this process may use one CPU alone\n");
		skip();
	}
}

static void equal(struct braid_cpus a, struct braid_cpus b)
{
	char x[256], y[256];

	braid_cpus_format(&a, x, sizeof(x));
	braid_cpus_format(&b, y, sizeof(y));
	assert_string_equal(x, y);
}

static void test_untold_is_inherited(void **state)
{
	(void)state;
	equal(cpus_of_thread(), inherited);
}

static void test_near(void **state)
{
	struct braid_cpus near;

	(void)state;
	need_two();
	near = only(second);
	braid_os_near(&near);
	equal(cpus_of_thread(), only(second));
	near = only(first);
	braid_os_near(&near);
	equal(cpus_of_thread(), only(first));
	braid_os_near(NULL);
	equal(cpus_of_thread(), inherited);
}

/* The near CPUs include some that the starter may not use: the thread may not use those either. */
static void test_never_wider(void **state)
{
	struct braid_cpus near = inherited;

	(void)state;
	need_two();
	braid_os_near(&near);
	run_on(only(first));
	equal(cpus_of_thread(), only(first));
}

static void test_nothing_in_common(void **state)
{
	struct braid_cpus near;

	(void)state;
	need_two();
	near = only(second);
	braid_os_near(&near);
	run_on(only(first));
	equal(cpus_of_thread(), only(first));
}

/* The starter's own CPUs do not change. */
static void test_starter_stays(void **state)
{
	struct braid_cpus near = only(first), now = { .bits = { 0 } };

	(void)state;
	braid_os_near(&near);
	cpus_of_thread();
	assert_true(sched_getaffinity(0, sizeof(now), set_of(&now)) == 0);
	equal(now, inherited);
}

/* A sender whose lane is always full holds the lock nearly all the time: waiters must still get it. */
static struct braid_lock lock;
static atomic_uint over;		/* takes while somebody waits */
static atomic_bool enough;

static void *taker(void *arg)
{
	(void)arg;
	while (!atomic_load(&enough)) {
		if (!braid_trylock(&lock)) {
			sched_yield();
			continue;
		}
		atomic_fetch_add(&over, atomic_load(&lock.waiting) != 0);
		for (volatile unsigned i = 0; i < 100000; i++)
			;
		braid_unlock(&lock);
	}
	return NULL;
}

static void a_thread_that_waits_for_a_lock_comes_next(void **state)
{
	enum { WAITS = 20 };
	pthread_t thread;

	(void)state;
	assert_int_equal(braid_os->thread_start(&thread, taker, NULL, "test"), 0);
	for (unsigned i = 0; i < WAITS; i++) {
		while (!atomic_load(&lock.held))
			sched_yield();
		braid_lock_wait(&lock);
		assert_false(braid_trylock(&lock));
		assert_int_equal(atomic_load(&lock.waiting), 0);
		braid_unlock(&lock);
	}
	atomic_store(&enough, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	/* The one that had it, or was about to, when the wait began. */
	assert_in_range(atomic_load(&over), 0, WAITS);
	assert_true(braid_trylock(&lock));
	assert_false(braid_trylock(&lock));
	braid_unlock(&lock);
}

/* Two system calls fail with `err` from now on; `other` -1: one.  False: the kernel can't do that. */
static bool refuse(int call, int other, int err)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)other, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(filter) / sizeof(filter[0]), filter };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

enum { NO_FILTER = 77, RANDOM_SAME = 100 };

/* In a child that such a filter holds: the errno of random(), or a number above. */
static int random_under(int call, int other, int err)
{
	uint8_t a[300] = { 0 }, b[300] = { 0 };
	pid_t pid = fork();
	int status;

	if (!pid) {
		alarm(20);			/* an endless loop ends here */
		if (!refuse(call, other, err))
			_exit(NO_FILTER);
		err = braid_os->random(a, sizeof(a));
		if (!err)
			err = braid_os->random(b, sizeof(b));
		_exit(err ? -err : memcmp(a, b, sizeof(a)) ? 0 : RANDOM_SAME);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == NO_FILTER)
		skip();
	return WEXITSTATUS(status);
}

static void without_getrandom_the_numbers_come_from_a_file(void **state)
{
	(void)state;
	assert_int_equal(random_under(SYS_getrandom, -1, ENOSYS), 0);
	assert_int_equal(random_under(SYS_getrandom, -1, EPERM), 0);
}

static void without_both_there_is_an_error(void **state)
{
	(void)state;
	assert_int_equal(random_under(SYS_getrandom, SYS_openat, ENOSYS), ENOSYS);
	assert_int_equal(random_under(SYS_getrandom, SYS_openat, EACCES), EPERM);
}

#ifdef BRAID_CHECK_LOCKS
/* In a child, since it aborts. */
static bool dies_without(struct braid_lock *l)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		signal(SIGABRT, SIG_DFL);
		(void)!freopen("/dev/null", "w", stderr);
		braid_assert_locked(l);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void a_lock_that_is_not_held_aborts_a_checking_build(void **state)
{
	struct braid_lock l = { 0 };

	(void)state;
	assert_true(dies_without(&l));
	braid_lock_wait(&l);
	assert_false(dies_without(&l));
	l.owner = (pthread_t)1;			/* another thread's */
	assert_true(dies_without(&l));
	braid_unlock(&l);
	assert_true(dies_without(&l));
}
#endif

#define CASE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_untold_is_inherited),
		CASE(test_near),
		CASE(test_never_wider),
		CASE(test_nothing_in_common),
		CASE(test_starter_stays),
		cmocka_unit_test(a_thread_that_waits_for_a_lock_comes_next),
		cmocka_unit_test(without_getrandom_the_numbers_come_from_a_file),
		cmocka_unit_test(without_both_there_is_an_error),
#ifdef BRAID_CHECK_LOCKS
		cmocka_unit_test(a_lock_that_is_not_held_aborts_a_checking_build),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
