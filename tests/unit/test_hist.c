/* SPDX-License-Identifier: BSD-3-Clause */
/* test_hist.c - every time has one bucket, and a percentile is off by no more than hist.h says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/base/hist.h"

enum { TIMES = 10007 };

static void buckets_meet_without_a_gap(void **state)
{
	(void)state;
	assert_int_equal(braid_hist_bucket(0), 0);
	for (unsigned i = 0; i + 1 < BRAID_HIST_BUCKETS; i++) {
		uint64_t bound = braid_hist_bound(i);

		assert_int_equal(braid_hist_bucket(bound - 1), i);
		assert_int_equal(braid_hist_bucket(bound), i + 1);
	}
	assert_int_equal(braid_hist_bound(BRAID_HIST_BUCKETS - 2), UINT64_C(7) << 34);
	for (unsigned e = BRAID_HIST_FIRST; e < BRAID_HIST_END; e++)	/* as metrics need it */
		assert_int_equal(braid_hist_bound(braid_hist_bucket((UINT64_C(1) << e) - 1)), UINT64_C(1) << e);
}

static void a_time_of_hours_is_in_the_last_bucket_and_its_maximum_is_right(void **state)
{
	static const uint64_t longest[] = { UINT64_C(43200000000000), UINT64_MAX };
	struct braid_hist_live live = { NULL };
	struct braid_hist h;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		braid_hist_note(&live, longest[i]);
		braid_hist_read(&live, &h);
		assert_int_equal(h.n[BRAID_HIST_BUCKETS - 1], i + 1);
		assert_int_equal(h.max_ns, longest[i]);
	}
	assert_int_equal(h.count, 2);
	assert_int_equal(braid_hist_bound(BRAID_HIST_BUCKETS - 1), INT64_MAX);
	assert_int_equal(braid_hist_bound(BRAID_HIST_BUCKETS), INT64_MAX);
	braid_hist_free(&live);
}

static void without_a_time_there_is_no_memory_and_no_percentile(void **state)
{
	struct braid_hist_live live = { NULL };
	struct braid_hist h;

	(void)state;
	memset(&h, 1, sizeof(h));
	braid_hist_read(&live, &h);
	assert_null(atomic_load(&live.cells));
	assert_int_equal(h.count, 0);
	assert_int_equal(braid_hist_percentile(&h, 50), 0);
	assert_int_equal(braid_hist_percentile(&h, 99), 0);
	braid_hist_note(&live, 7);
	assert_non_null(atomic_load(&live.cells));
	braid_hist_free(&live);
	assert_null(atomic_load(&live.cells));
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Times of every order of magnitude, up to what the last bucket begins with. */
static uint64_t some_time(void)
{
	static uint64_t x = 88172645463325252ull;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x >> (27 + x % 37);
}

static void a_percentile_is_not_too_low_and_at_most_a_quarter_too_high(void **state)
{
	static const unsigned percent[] = { 1, 10, 50, 90, 99, 100 };
	static uint64_t times[TIMES];
	struct braid_hist_live live = { NULL };
	struct braid_hist h;

	(void)state;
	for (int i = 0; i < TIMES; i++) {
		times[i] = some_time();
		braid_hist_note(&live, times[i]);
	}
	qsort(times, TIMES, sizeof(times[0]), by_size);
	braid_hist_read(&live, &h);
	assert_int_equal(h.count, TIMES);
	for (size_t i = 0; i < sizeof(percent) / sizeof(percent[0]); i++) {
		uint64_t is = times[(TIMES * percent[i] + 99) / 100 - 1];
		uint64_t says = braid_hist_percentile(&h, percent[i]);

		assert_in_range(says, is, is + (is / 4 > 256 ? is / 4 : 256));
	}
	assert_int_equal(braid_hist_percentile(&h, 100), times[TIMES - 1]);
	braid_hist_free(&live);
}

static void half_of_two_times_is_the_shorter_one(void **state)
{
	struct braid_hist_live live = { NULL };
	struct braid_hist h;

	(void)state;
	braid_hist_note(&live, 1000000);
	braid_hist_note(&live, 1500);
	braid_hist_read(&live, &h);
	assert_int_equal(braid_hist_percentile(&h, 50), 1536);
	assert_int_equal(braid_hist_percentile(&h, 51), 1000000);
	braid_hist_free(&live);
}

static void two_together_are_as_one_that_had_both(void **state)
{
	struct braid_hist_live live[3] = { { NULL } };
	struct braid_hist h[3];

	(void)state;
	for (int i = 0; i < TIMES; i++) {
		uint64_t ns = some_time();

		braid_hist_note(&live[i % 2], ns);
		braid_hist_note(&live[2], ns);
	}
	for (int i = 1; i < 3; i++)
		braid_hist_note(&live[i], UINT64_C(1) << 50);	/* the second has the longest */
	for (int i = 0; i < 3; i++) {
		braid_hist_read(&live[i], &h[i]);
		braid_hist_free(&live[i]);
	}
	braid_hist_merge(&h[0], &h[1]);
	assert_memory_equal(&h[0], &h[2], sizeof(h[0]));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buckets_meet_without_a_gap),
		cmocka_unit_test(a_time_of_hours_is_in_the_last_bucket_and_its_maximum_is_right),
		cmocka_unit_test(without_a_time_there_is_no_memory_and_no_percentile),
		cmocka_unit_test(a_percentile_is_not_too_low_and_at_most_a_quarter_too_high),
		cmocka_unit_test(half_of_two_times_is_the_shorter_one),
		cmocka_unit_test(two_together_are_as_one_that_had_both),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
