/* SPDX-License-Identifier: BSD-3-Clause */
/* test_share.c - what ALIVE announces of a process's CPU time, and what the log makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/link/link.h"
#include "core/proto/frame.h"
#include "core/setup/links.h"
#include "core/setup/share.h"

static struct braid_dev dev;
static struct braid_link *link_;
static uint64_t now = 1000 * SEC, used, queued;
static bool known;
static char line[1024];			/* the last line */
static bool warned;

static bool os_cpu(uint64_t *ret_used_ms, uint64_t *ret_queued_ms)
{
	*ret_used_ms = used;
	*ret_queued_ms = queued;
	return known;
}

static void keep(enum braid_log_level level, const char *file, int line_, const char *text)
{
	(void)file, (void)line_;
	strncpy(line, text, sizeof(line) - 1);
	warned = level == BRAID_LOG_WARN;
}

static int setup(void **state)
{
	static struct braid_os os;
	static struct braid_link link;

	(void)state;
	os.cpu = os_cpu;
	braid_os = &os;
	braid_log_to(keep);
	now += 1000 * SEC;
	known = true;
	line[0] = '\0';
	dev.net.name[0] = 'e';
	link = (struct braid_link){ .key.dev = &dev, .peer = "node7 (pid 42)" };
	link_ = &link;
	braid_svc_lock();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_svc_unlock();
	return 0;
}

/* The peer announces that; some time has passed. */
static void announced(unsigned after_ms, uint32_t used_ms, uint32_t queued_ms)
{
	now += after_ms * MS;
	link_->rx.peer_used_ms = used_ms;
	link_->rx.peer_queued_ms = queued_ms;
	link_->rx.peer_announced++;
	braid_share_note(link_, now);
}

/* --- this process -------------------------------------------------------------------------- */

static void an_alive_has_this_process_cpu_time(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_ALIVE };

	(void)state;
	used = 0x100000005;
	queued = 7;
	braid_share_tick(0, now);
	braid_share_announce(&h);
	assert_int_equal(h.tag, BRAID_ALIVE_CPU);
	assert_int_equal(h.seq, 5);
	assert_int_equal(h.rseq, 7);
}

static void where_it_is_not_known_nothing_is_announced(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_ALIVE };

	(void)state;
	known = false;
	braid_share_tick(0, now);
	braid_share_announce(&h);
	assert_int_equal(h.tag, 0);
	braid_share_tick(5 * SEC, now + 5 * SEC);
	assert_string_equal(line, "");
}

static void a_thread_that_waited_for_a_cpu_says_so(void **state)
{
	(void)state;
	queued = 1000;
	braid_share_tick(0, now);
	queued = 5900;
	braid_share_tick(5 * SEC, now += 5 * SEC);
	assert_true(warned);
	assert_non_null(strstr(line, "got no CPU for 5 s"));
	assert_non_null(strstr(line, "[no-cpu]"));
	braid_share_tick(0, now += 20 * SEC);
	braid_share_tick(5 * SEC, now += 5 * SEC);	/* this time it did not wait */
	assert_false(warned);
	assert_non_null(strstr(line, "did not run for 5 s: it was stopped"));
}

/* --- the peer ------------------------------------------------------------------------------ */

static void silent_for(uint64_t ms)
{
	now += ms * MS;
	braid_share_heard(link_, ms, now);
}

static void a_silent_peer_whose_thread_waited_was_starved(void **state)
{
	(void)state;
	announced(0, 1000, 100);
	silent_for(4000);
	announced(10, 1300, 3900);
	assert_true(warned);
	assert_non_null(strstr(line, "node7 (pid 42): heard again after 4000 ms: it was not stopped, but "
				     "starved"));
	assert_non_null(strstr(line, "waited for a CPU for 3800 ms, and its process used 300 ms"));
	assert_non_null(strstr(line, "[peer-starved]"));
}

static void a_silent_peer_whose_thread_did_not_wait_was_stopped(void **state)
{
	(void)state;
	announced(0, 1000, 100);
	silent_for(4000);
	announced(10, 1300, 120);
	assert_string_equal(line, "");		/* that may be from before the silence */
	announced(500, 1310, 130);
	assert_false(warned);
	assert_non_null(strstr(line, "it was stopped (SIGSTOP, a debugger, a frozen cgroup), or the path"));
}

static void what_was_written_before_the_silence_decides_nothing(void **state)
{
	(void)state;
	announced(0, 1000, 100);
	silent_for(4000);
	announced(10, 1002, 100);
	announced(10, 1300, 3900);
	assert_true(warned);
	assert_non_null(strstr(line, "waited for a CPU for 3800 ms, and its process used 300 ms"));
}

static void a_peer_that_announces_once_is_judged_after_a_while(void **state)
{
	(void)state;
	announced(0, 1000, 100);
	silent_for(4000);
	announced(10, 1300, 120);
	braid_share_note(link_, now += 9900 * MS);
	assert_string_equal(line, "");
	braid_share_note(link_, now += 200 * MS);
	assert_non_null(strstr(line, "it was stopped (SIGSTOP"));
}

static void a_silent_peer_that_used_its_cpu_was_not_stopped(void **state)
{
	(void)state;
	announced(0, 1000, 100);
	silent_for(4000);
	announced(10, 4900, 120);
	assert_false(warned);
	assert_non_null(strstr(line, "it ran, so the path was down"));
	assert_null(strstr(line, "was stopped"));
}

static void counters_that_wrap_are_no_matter(void **state)
{
	(void)state;
	announced(0, UINT32_MAX - 9, UINT32_MAX - 9);
	silent_for(4000);
	announced(10, 90, 3890);
	assert_non_null(strstr(line, "waited for a CPU for 3900 ms, and its process used 100 ms"));
}

static void an_older_peer_announces_nothing_and_is_not_judged(void **state)
{
	(void)state;
	silent_for(4000);
	braid_share_note(link_, now += 10 * MS);
	assert_string_equal(line, "");
	announced(10, 5, 5);			/* there is nothing to compare it with */
	assert_string_equal(line, "");
}

static void an_answer_that_comes_late_is_no_answer(void **state)
{
	(void)state;
	announced(0, 1000, 100);
	silent_for(4000);
	announced(10000, 9000, 9000);
	assert_string_equal(line, "");
}

static void the_share_of_the_last_seconds_is_shown(void **state)
{
	char text[BRAID_SHARE_TEXT];
	int cpu, wait;

	(void)state;
	braid_share_get(link_, &cpu, &wait);
	assert_int_equal(cpu, -1);
	assert_int_equal(wait, -1);
	assert_string_equal(braid_share_text(link_, text), "");
	announced(0, 1000, 100);
	announced(1000, 1900, 120);
	braid_share_get(link_, &cpu, &wait);
	assert_int_equal(cpu, 90);
	assert_int_equal(wait, 2);
	assert_string_equal(braid_share_text(link_, text), "; its process uses 90 % of a CPU");
	announced(5000, 2000, 5000);
	assert_non_null(strstr(braid_share_text(link_, text), "it gets too little CPU"));
	announced(1000, 3000, 5000);		/* fed again: what is long ago no longer counts */
	announced(6000, 9000, 5000);
	braid_share_get(link_, &cpu, &wait);
	assert_int_equal(wait, 0);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(an_alive_has_this_process_cpu_time),
		CASE(where_it_is_not_known_nothing_is_announced),
		CASE(a_thread_that_waited_for_a_cpu_says_so),
		CASE(a_silent_peer_whose_thread_waited_was_starved),
		CASE(a_silent_peer_whose_thread_did_not_wait_was_stopped),
		CASE(what_was_written_before_the_silence_decides_nothing),
		CASE(a_peer_that_announces_once_is_judged_after_a_while),
		CASE(a_silent_peer_that_used_its_cpu_was_not_stopped),
		CASE(counters_that_wrap_are_no_matter),
		CASE(an_older_peer_announces_nothing_and_is_not_judged),
		CASE(an_answer_that_comes_late_is_no_answer),
		CASE(the_share_of_the_last_seconds_is_shown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
