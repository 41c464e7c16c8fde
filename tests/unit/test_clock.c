/* SPDX-License-Identifier: BSD-3-Clause */
/* test_clock.c - the coarse clock of the data path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/clock.h"
#include "core/base/os.h"

static uint64_t now;

static uint64_t now_ns(void)
{
	return now;
}

static void it_stands_still_until_it_is_set(void **state)
{
	static struct braid_os os;
	const struct braid_os *real = braid_os;

	(void)state;
	os = *real;
	os.now_ns = now_ns;
	braid_os = &os;
	now = 1000;
	assert_int_equal(braid_clock_set(), 1000);
	now = 5000;
	assert_int_equal(braid_clock_now(false), 1000);
	assert_int_equal(braid_clock_now(true), 5000);	/* no thread sets it: the real time */
	assert_int_equal(braid_clock_now(false), 5000);
	braid_os = real;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_stands_still_until_it_is_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
