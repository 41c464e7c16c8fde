/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_sigpipe.c - SIGPIPE is kept away: verbs/sigpipe.c. */
#include "tests/unit/ports.h"

#include <signal.h>

#include "verbs/sigpipe.h"

static struct braid_ibport siw = { .siw = true }, other;

static bool is_pending(void)
{
	sigset_t set;

	return !sigpending(&set) && sigismember(&set, SIGPIPE);
}

static bool is_blocked(void)
{
	sigset_t set;

	pthread_sigmask(SIG_BLOCK, NULL, &set);
	return sigismember(&set, SIGPIPE);
}

static void a_signal_that_comes_meanwhile_is_thrown_away(void **state)
{
	struct braid_sigpipe s;

	(void)state;
	braid_sigpipe_block(&siw, &s);
	assert_true(is_blocked());
	raise(SIGPIPE);
	assert_true(is_pending());
	braid_sigpipe_unblock(&s);	/* else it would end this process */
	assert_false(is_blocked() || is_pending());
}

static void a_signal_that_was_pending_before_stays(void **state)
{
	struct braid_sigpipe s;
	sigset_t set;
	int sig;

	(void)state;
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	raise(SIGPIPE);
	braid_sigpipe_block(&siw, &s);
	braid_sigpipe_unblock(&s);
	assert_true(is_blocked() && is_pending());
	assert_int_equal(sigwait(&set, &sig), 0);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void other_nics_and_processes_that_ignore_it_pay_nothing(void **state)
{
	struct braid_sigpipe s;

	(void)state;
	assert_false(braid_sigpipe_may_come(&other));
	braid_sigpipe_block(&other, &s);
	assert_false(is_blocked());
	braid_sigpipe_unblock(&s);
	signal(SIGPIPE, SIG_IGN);
	assert_true(braid_sigpipe_may_come(&siw));
	braid_sigpipe_check(&siw);
	assert_false(braid_sigpipe_may_come(&siw));
	signal(SIGPIPE, SIG_DFL);
	braid_sigpipe_check(&siw);
	assert_true(braid_sigpipe_may_come(&siw));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_signal_that_comes_meanwhile_is_thrown_away),
		cmocka_unit_test(a_signal_that_was_pending_before_stays),
		cmocka_unit_test(other_nics_and_processes_that_ignore_it_pay_nothing),
	};

	ports_of("ib0:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
