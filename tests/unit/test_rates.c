/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rates.c - how soon a rate is back: tools/rates.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tools/rates.h"

static struct rates r;
static uint64_t ns, bytes;

static int setup(void **state)
{
	(void)state;
	r.n = r.i = 0;
	ns = 5000000000;
	bytes = 77;
	return 0;
}

/* So many Mbit/s for so long. */
static void live(double mbps, unsigned ms)
{
	for (unsigned t = 0; t < ms; t += RATES_LOOK_MS) {
		rates_add(&r, ns, bytes);
		ns += RATES_LOOK_MS * UINT64_C(1000000);
		bytes += (uint64_t)(mbps * RATES_LOOK_MS * 125);
	}
}

static unsigned back_ms(void)
{
	return (unsigned)((r.at[r.i].ns - r.at[0].ns) / 1000000);
}

static void a_rate_that_is_back_at_once_is_seen_three_seconds_later(void **state)
{
	double now = 0;

	(void)state;
	live(100, 3000);
	assert_false(rates_back(&r, 100, &now));
	live(100, 40);
	assert_true(rates_back(&r, 100, &now));
	assert_int_equal(back_ms(), 0);
	assert_true(now > 99.9 && now < 100.1);
}

static void the_time_without_it_counts(void **state)
{
	double now = 0;

	(void)state;
	live(0, 2000);
	live(50, 3000);
	live(98, 4000);
	assert_true(rates_back(&r, 100, &now));
	assert_true(back_ms() > 4900 && back_ms() <= 5000);	/* its window may begin a little before */
}

static void a_burst_is_no_return(void **state)
{
	double now = 0;

	(void)state;
	live(400, 200);				/* what was queued */
	live(60, 6000);
	assert_false(rates_back(&r, 100, &now));
	assert_true(now < 97);
	live(100, 4000);
	assert_true(rates_back(&r, 100, &now));
	assert_true(back_ms() > 6000 && back_ms() <= 6200);
}

static void a_rate_is_steady_after_two_seconds_like_the_one_before(void **state)
{
	static const double row[] = { 100, 150, 151, 140, 141, 140 };
	unsigned steady = 0;
	double last = 0;

	(void)state;
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(rates_steady(row[i], &last, &steady), i == 5);
}

#define CASE(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_rate_that_is_back_at_once_is_seen_three_seconds_later),
		CASE(the_time_without_it_counts),
		CASE(a_burst_is_no_return),
		CASE(a_rate_is_steady_after_two_seconds_like_the_one_before),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
