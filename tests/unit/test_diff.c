/* SPDX-License-Identifier: BSD-3-Clause */
/* test_diff.c - are two series apart by chance, and do figures keep within thresholds? */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Before cmocka.h, which has a macro of the name of one of its functions. */
#include "tools/compare/diff.h"
#include "tools/validate/validate.h"

#include <cmocka.h>

#define N(v) (unsigned)(sizeof(v) / sizeof((v)[0]))

static void near(double want, double got)
{
	if (!(fabs(want - got) <= 1e-6 + 1e-3 * fabs(want)))
		fail_msg("%.9g is not %.9g", got, want);
}

static void medians(void **state)
{
	static const double odd[] = { 5, 1, 9 }, even[] = { 4, 1, 3, 2 };

	(void)state;
	near(5, diff_median(odd, 3));
	near(2.5, diff_median(even, 4));
	near(7, diff_median((double[]){ 7 }, 1));
	near(0, diff_median(NULL, 0));
}

/* As tables of Mann and Whitney's test have them, for one side. */
static void chances(void **state)
{
	static const double low[] = { 1, 2, 3, 4, 5 }, high[] = { 6, 7, 8, 9, 10 };
	static const double a[] = { 1, 3, 5, 7, 9 }, b[] = { 2, 4, 6, 8, 10 };

	(void)state;
	near(1 / 252.0, diff_chance_above(low, 5, high, 5));
	near(1, diff_chance_above(high, 5, low, 5));
	near(1.0 / 20, diff_chance_above(low, 3, high, 3));
	near(0.345238, diff_chance_above(a, 5, b, 5));		/* U is 10 */
	near(1, diff_chance_above(low, 0, high, 5));
}

static void ties(void **state)
{
	static const double same[] = { 4, 4, 4, 4, 4, 4 };
	static const double a[] = { 1, 1, 2, 2, 3, 3 }, b[] = { 7, 7, 8, 8, 9, 9 };

	(void)state;
	near(1, diff_chance_above(same, N(same), same, N(same)));
	assert_true(diff_chance_above(a, N(a), b, N(b)) < 0.01);
}

/* Beyond the exact table the normal distribution: here they meet. */
static void large(void **state)
{
	double a[40], b[40];

	(void)state;
	for (int i = 0; i < 40; i++) {
		a[i] = i;
		b[i] = i + 20.5;
	}
	assert_true(diff_chance_above(a, 40, b, 40) < 1e-6);
	assert_true(diff_chance_above(b, 40, a, 40) > 0.99);
	for (int i = 0; i < 40; i++)
		b[i] = i + 0.5;
	assert_true(diff_chance_above(a, 40, b, 40) > 0.4);
}

/* A change within the threshold is none, however sure. */
static void beyond_the_threshold(void **state)
{
	double a[10], b[10];

	(void)state;
	for (int i = 0; i < 10; i++) {
		a[i] = 100 + i / 10.0;
		b[i] = 105 + i / 10.0;
	}
	assert_true(diff_chance_above(a, 10, b, 10) < 1e-4);
	assert_true(diff_chance_beyond(a, 10, b, 10, true, 0.1) > 0.99);
	assert_true(diff_chance_beyond(a, 10, b, 10, true, 0.03) < 1e-4);
	assert_true(diff_chance_beyond(b, 10, a, 10, false, 0.03) < 1e-4);
	assert_true(diff_chance_beyond(b, 10, a, 10, false, 0.1) > 0.99);
}

/* By hand: 0.01 * 3, 0.02 * 2, and then no less than the one before. */
static void holm_corrects_for_many_figures(void **state)
{
	double v[] = { 0.02, 0.01, 0.03 };
	double *p[] = { &v[0], &v[1], &v[2] };

	(void)state;
	diff_holm(p, 3);
	near(0.04, v[0]);
	near(0.03, v[1]);
	near(0.04, v[2]);
	assert_int_equal(5, diff_samples_least(1, 0.01));	/* 1 of 252 */
	assert_int_equal(7, diff_samples_least(20, 0.01));	/* 1 of 3432 */
}

/* A number in [0, 1), the same in every run. */
static double chance(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (double)(*seed >> 11) / 9007199254740992.0;
}

/*
 * A latency on a busy host: long tails, rounds that resemble their neighbours, and a whole run
 * that is up to 8 % faster or slower than another.
 */
static void busy_series(uint64_t *seed, double run, double *v, unsigned n)
{
	double near_by = 0;

	for (unsigned i = 0; i < n; i++) {
		double u = chance(seed), tail = chance(seed) < 0.1 ? 3 * chance(seed) : 0;

		near_by = 0.6 * near_by + 0.04 * (u - 0.5);
		v[i] = 100 * run * (1 + near_by + tail);
	}
}

/* Two reports of one binary: is any of 15 figures called worse or better? */
static bool false_alarm(uint64_t *seed, unsigned n)
{
	enum { FIGURES = 15, MOST = 20 };
	double p[FIGURES], *at[FIGURES], a[MOST], b[MOST];
	double run_a = 0.96 + 0.08 * chance(seed), run_b = 0.96 + 0.08 * chance(seed);
	bool found = false;

	for (int i = 0; i < FIGURES; i++) {
		busy_series(seed, run_a, a, n);
		busy_series(seed, run_b, b, n);
		p[i] = diff_chance_beyond(a, n, b, n, diff_median(b, n) > diff_median(a, n), 0.1);
		at[i] = &p[i];
	}
	diff_holm(at, FIGURES);
	for (int i = 0; i < FIGURES; i++)
		found |= p[i] < 0.01;
	return found;
}

static void one_binary_raises_at_most_one_alarm_in_100(void **state)
{
	uint64_t seed = 1;
	int alarms = 0;

	(void)state;
	for (int i = 0; i < 2000; i++)
		alarms += false_alarm(&seed, 7 + (unsigned)i % 9);
	if (alarms > 20)
		fail_msg("%d of 2000", alarms);
}

/* Caution must not hide what is there: figures 30 % slower, in reports of 12 rounds. */
static void a_real_change_is_found(void **state)
{
	double a[12], b[12], p;
	uint64_t seed = 7;
	int found = 0;

	(void)state;
	for (int i = 0; i < 200; i++) {
		busy_series(&seed, 1, a, 12);
		busy_series(&seed, 1.3, b, 12);
		p = diff_chance_beyond(a, 12, b, 12, true, 0.1);
		found += p * 15 < 0.01;
	}
	if (found < 120)
		fail_msg("only %d of 200", found);
}

static char path[] = "/tmp/test_diff-XXXXXX";

static json_t *load(const char *text, char *err)
{
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	*err = '\0';
	return limits_load(path, err, 400);
}

static void thresholds(void **state)
{
	struct figure f = { .name = "bw_1M", .unit = "Gbit/s", .value = 10 };
	char err[400], why[256] = "";
	json_t *o = load("{\"schema\": \"braid-thresholds\", \"version\": 1, \"nic\": \"mlx5_*\","
			 " \"figures\": {\"bw_1M\": {\"least\": 10, \"most\": 20}}}", err);

	(void)state;
	assert_non_null(o);
	assert_int_equal(limits_hold(o, "mlx5_0:1", &f, why, sizeof(why)), LIMIT_KEPT);
	f.value = 9.99;
	assert_int_equal(limits_hold(o, "mlx5_0:1", &f, why, sizeof(why)), LIMIT_BROKEN);
	assert_string_equal(why, "bw_1M is 9.99 Gbit/s, and at least 10 was to be");
	f.value = 21;
	assert_int_equal(limits_hold(o, "mlx5_0:1", &f, why, sizeof(why)), LIMIT_BROKEN);
	f.value = NAN;
	assert_int_equal(limits_hold(o, "mlx5_0:1", &f, why, sizeof(why)), LIMIT_BROKEN);
	assert_int_equal(limits_hold(o, "eth0", &f, why, sizeof(why)), LIMIT_NONE);
	f.name = "latency";
	assert_int_equal(limits_hold(o, "mlx5_0:1", &f, why, sizeof(why)), LIMIT_NONE);
	assert_int_equal(limits_hold(NULL, "mlx5_0:1", &f, why, sizeof(why)), LIMIT_NONE);
	json_decref(o);
}

/* A good file, cut off or changed at any byte, is refused with one line, or is still valid. */
static void malformed(void **state)
{
	static const char good[] = "{\"schema\": \"braid-thresholds\", \"version\": 1, "
				   "\"figures\": {\"bw_1M\": {\"least\": 10}}}";
	char text[sizeof(good)], err[400];
	unsigned refused = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(good) - 1; i++) {
		for (int how = 0; how < 3; how++) {
			json_t *o;

			memcpy(text, good, sizeof(good));
			if (how == 0)
				text[i] = '\0';
			else
				text[i] = how == 1 ? '}' : '\x80';
			o = load(text, err);
			assert_true(o || (*err && !strchr(err, '\n')));
			refused += !o;
			json_decref(o);
		}
	}
	assert_true(refused > 2 * sizeof(good));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(medians), cmocka_unit_test(chances), cmocka_unit_test(ties),
		cmocka_unit_test(large), cmocka_unit_test(thresholds), cmocka_unit_test(malformed),
		cmocka_unit_test(beyond_the_threshold),
		cmocka_unit_test(holm_corrects_for_many_figures),
		cmocka_unit_test(one_binary_raises_at_most_one_alarm_in_100),
		cmocka_unit_test(a_real_change_is_found),
	};
	int fd = mkstemp(path), failed;

	if (fd < 0)
		return 99;
	close(fd);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
