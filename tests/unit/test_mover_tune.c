/* SPDX-License-Identifier: BSD-3-Clause */
/* test_mover_tune.c - when threads are tried, kept and given up, if their number is measured. */
#include "tests/unit/stub.h"

#include <string.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "core/link/mover.h"
#include "core/link/mover_int.h"

#define MS 1000000ull

enum { LANES = 2 };

static struct braid_os os;
static unsigned ncpus, started;

static unsigned cpus(void)
{
	return ncpus;
}

static int thread_start(pthread_t *ret, void *(*fn)(void *), void *arg, const char *name)
{
	(void)fn, (void)arg, (void)name;
	*ret = 0;
	started++;
	return 0;
}

static int thread_join(pthread_t thread, unsigned timeout_ms)
{
	(void)thread, (void)timeout_ms;
	return 0;
}

static void thread_near(pthread_t thread, const struct braid_cpus *near)
{
	(void)thread, (void)near;
}

static int setup(void **state)
{
	(void)state;
	stub_up(&stub_socket, LANES);
	os = *braid_os;
	os.cpus = cpus;
	os.thread_start = thread_start;
	os.thread_join = thread_join;
	os.thread_near = thread_near;
	braid_os = &os;
	stub.dev.nmembers = 1;
	stub.dev.member[0] = &stub.dev;
	stub.ns = 1000 * MS;
	braid_param.threads = -1;
	ncpus = 16;
	started = 0;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_movers_end();
	braid_movers_free();
	braid_param.threads = 0;
	stub_down();
	return 0;
}

static unsigned in_use(void)
{
	struct braid_movers_seen seen;

	braid_movers_look(&stub.dev, &seen);
	return seen.active;
}

/* For so long bytes move at that rate, of which callers could hand over a part. */
static void flow(unsigned ms, double gbit_s, unsigned offered_percent)
{
	for (unsigned i = 0; i < ms; i += 10) {
		uint64_t bytes = (uint64_t)(gbit_s * 10 * 125000);

		braid_count(&stub_at(0)->tx_bytes, bytes);
		braid_count(&stub_at(0)->hand.offered[0], bytes * offered_percent / 100);
		stub.ns += 10 * MS;
		braid_movers_tick(stub.link, stub.ns);
	}
}

/* A rate that depends on the threads in use: with none, two, four, eight. */
static void flow_with(unsigned ms, const double gbit_s[4])
{
	for (unsigned i = 0; i < ms; i += 10) {
		unsigned n = in_use();

		flow(10, gbit_s[n < 2 ? 0 : n < 4 ? 1 : n < 8 ? 2 : 3], 100);
	}
}

static void threads_that_raise_the_rate_stay(void **state)
{
	static const double rates[] = { 40, 70, 72, 72 };

	(void)state;
	flow_with(1000, rates);
	assert_int_equal(in_use(), 2);
	assert_non_null(strstr(stub.info, "2 threads move large messages"));
	assert_non_null(stub_at(0)->hand.by);
}

static void they_double_while_that_helps(void **state)
{
	static const double rates[] = { 40, 80, 160, 320 };

	(void)state;
	flow_with(2000, rates);
	assert_int_equal(in_use(), 8);
	assert_int_equal(started, 8);
}

static void threads_that_do_not_help_are_given_up_and_tried_ever_more_rarely(void **state)
{
	static const double rates[] = { 40, 42, 42, 42 };
	unsigned busy = 0;

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		flow_with(10, rates);
		busy += in_use() != 0;
	}
	assert_int_equal(in_use(), 0);
	assert_true(busy && busy < 150);
	assert_null(stub_at(0)->hand.by);
}

static void a_gain_that_does_not_last_is_none(void **state)
{
	(void)state;
	flow(110, 40, 100);
	assert_int_equal(in_use(), 2);
	flow(50, 80, 100);
	assert_int_equal(in_use(), 2);
	flow(50, 40, 100);
	assert_int_equal(in_use(), 0);
}

static void where_the_network_is_the_limit_none_is_tried(void **state)
{
	(void)state;
	flow(5000, 90, 40);
	assert_int_equal(started, 0);
}

static void at_a_low_rate_none_is_tried(void **state)
{
	(void)state;
	flow(5000, 9, 100);
	assert_int_equal(started, 0);
}

static void within_a_host_none_is_tried(void **state)
{
	(void)state;
	stub_at(0)->local = stub_at(1)->local = true;
	flow(5000, 90, 100);
	assert_int_equal(started, 0);
}

static void with_few_cpus_none_is_tried(void **state)
{
	(void)state;
	ncpus = 3;
	flow(5000, 90, 100);
	assert_int_equal(started, 0);
	assert_null(stub_at(0)->hand.by);
}

static void no_more_are_tried_than_half_of_the_cpus(void **state)
{
	static const double rates[] = { 40, 80, 160, 320 };

	(void)state;
	ncpus = 4;
	flow_with(3000, rates);
	assert_int_equal(started, 2);
}

static void after_a_rest_it_begins_anew(void **state)
{
	static const double rates[] = { 40, 80, 80, 80 };

	(void)state;
	flow_with(1000, rates);
	assert_int_equal(in_use(), 2);
	flow(11000, 0, 0);
	assert_int_equal(in_use(), 0);
	flow_with(1000, rates);
	assert_int_equal(in_use(), 2);
	assert_true(started <= 4);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(threads_that_raise_the_rate_stay),
		CASE(they_double_while_that_helps),
		CASE(threads_that_do_not_help_are_given_up_and_tried_ever_more_rarely),
		CASE(a_gain_that_does_not_last_is_none),
		CASE(where_the_network_is_the_limit_none_is_tried),
		CASE(at_a_low_rate_none_is_tried),
		CASE(within_a_host_none_is_tried),
		CASE(with_few_cpus_none_is_tried),
		CASE(no_more_are_tried_than_half_of_the_cpus),
		CASE(after_a_rest_it_begins_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
