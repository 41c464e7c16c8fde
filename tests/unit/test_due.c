/* SPDX-License-Identifier: BSD-3-Clause */
/* test_due.c - which links a tick looks at: those that are busy, woken, or whose time has come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "core/base/units.h"
#include "core/link/link.h"
#include "core/setup/due.h"
#include "core/setup/links.h"

enum { LINKS = 3 };

static struct braid_link link_[LINKS];
static uint64_t now = 1000 * SEC;

static int setup(void **state)
{
	(void)state;
	memset(link_, 0, sizeof(link_));
	braid_svc_lock();
	braid_due_reset();
	for (unsigned i = 0; i < LINKS; i++)
		braid_due_add(&link_[i]);
	braid_due_tick(now += SEC);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	while (braid_link_woken())
		;
	braid_svc_unlock();
	return 0;
}

static unsigned busy(void)
{
	const struct braid_link *link;
	unsigned n = 0;

	braid_list_for(link, &braid_due_busy, tick.node)
		n++;
	return n;
}

static void pass(unsigned ms)
{
	braid_due_tick(now += ms * MS);
}

static void a_new_link_is_busy_until_it_rests(void **state)
{
	(void)state;
	assert_int_equal(busy(), LINKS);
	assert_int_equal(braid_due_wait(now), -1);
	braid_due_rest(&link_[1], 50);
	assert_int_equal(busy(), LINKS - 1);
}

static void it_rests_as_long_as_it_said_and_little_longer(void **state)
{
	(void)state;
	for (unsigned ms = 20; ms <= BRAID_DUE_MAX_MS; ms += 60) {
		int wait;

		braid_due_rest(&link_[0], ms);
		wait = braid_due_wait(now);
		assert_true(wait >= (int)ms && wait <= (int)ms + 8 + (ms >= 256 ? 128 : 0));
		pass((unsigned)wait - 1);
		assert_int_equal(busy(), LINKS - 1);
		pass(1);
		assert_int_equal(busy(), LINKS);
		assert_int_equal(braid_due_wait(now), -1);
	}
}

static void the_first_that_is_due_counts(void **state)
{
	(void)state;
	braid_due_rest(&link_[0], 1500);
	braid_due_rest(&link_[1], 40);
	assert_in_range(braid_due_wait(now), 40, 48);
	pass(48);
	assert_int_equal(busy(), LINKS - 1);
	assert_in_range(braid_due_wait(now), 1452, 1452 + 136);
}

/* So that a thread with thousands of links sleeps now and then. */
static void long_rests_end_together(void **state)
{
	unsigned waits = 0;

	(void)state;
	for (unsigned i = 0; i < LINKS; i++)
		braid_due_rest(&link_[i], 1000 + 9 * i);
	while (busy() < LINKS) {
		pass((unsigned)braid_due_wait(now));
		waits++;
	}
	assert_in_range(waits, 1, 2);
}

static void no_link_rests_for_longer_than_the_most(void **state)
{
	(void)state;
	braid_due_rest(&link_[0], 3600 * 1000);
	assert_in_range(braid_due_wait(now), BRAID_DUE_MAX_MS, BRAID_DUE_MAX_MS + 136);
}

static void a_link_that_is_woken_is_looked_at_in_the_next_tick(void **state)
{
	(void)state;
	braid_due_rest(&link_[0], 1000);
	braid_due_rest(&link_[1], 1000);
	braid_link_wake(&link_[1]);
	braid_link_wake(&link_[1]);
	pass(0);
	assert_int_equal(busy(), LINKS - 1);
	assert_false(link_[1].tick.rests);
	assert_null(braid_link_woken());
	braid_due_now(&link_[0]);
	assert_int_equal(busy(), LINKS);
}

static void a_long_sleep_makes_all_links_due(void **state)
{
	(void)state;
	for (unsigned i = 0; i < LINKS; i++)
		braid_due_rest(&link_[i], 100 + 600 * i);
	pass(3600 * 1000);
	assert_int_equal(busy(), LINKS);
}

static void a_link_that_goes_is_forgotten_wherever_it_is(void **state)
{
	(void)state;
	braid_due_rest(&link_[0], 1000);
	braid_due_forget(&link_[0]);
	braid_due_forget(&link_[1]);
	braid_due_forget(&link_[1]);
	assert_int_equal(braid_due_wait(now), -1);
	braid_due_all();
	pass(2000);
	assert_int_equal(busy(), 1);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest cases[] = {
		CASE(a_new_link_is_busy_until_it_rests),
		CASE(it_rests_as_long_as_it_said_and_little_longer),
		CASE(the_first_that_is_due_counts),
		CASE(long_rests_end_together),
		CASE(no_link_rests_for_longer_than_the_most),
		CASE(a_link_that_is_woken_is_looked_at_in_the_next_tick),
		CASE(a_long_sleep_makes_all_links_due),
		CASE(a_link_that_goes_is_forgotten_wherever_it_is),
	};

	return cmocka_run_group_tests(cases, NULL, NULL);
}
