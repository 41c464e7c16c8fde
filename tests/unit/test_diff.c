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

/* As tables of Mann and Whitney's test have them. */
static void chances(void **state)
{
	static const double low[] = { 1, 2, 3, 4, 5 }, high[] = { 6, 7, 8, 9, 10 };
	static const double a[] = { 1, 3, 5, 7, 9 }, b[] = { 2, 4, 6, 8, 10 };

	(void)state;
	near(2 / 252.0, diff_chance(low, 5, high, 5));
	near(2 / 252.0, diff_chance(high, 5, low, 5));
	near(2.0 / 20, diff_chance(low, 3, high, 3));
	near(0.690476, diff_chance(a, 5, b, 5));		/* U is 10 */
	near(1, diff_chance(low, 0, high, 5));
}

static void ties(void **state)
{
	static const double same[] = { 4, 4, 4, 4, 4, 4 };
	static const double a[] = { 1, 1, 2, 2, 3, 3 }, b[] = { 7, 7, 8, 8, 9, 9 };

	(void)state;
	near(1, diff_chance(same, N(same), same, N(same)));
	assert_true(diff_chance(a, N(a), b, N(b)) < 0.01);
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
	assert_true(diff_chance(a, 40, b, 40) < 1e-6);
	near(diff_chance(a, 20, b, 20), diff_chance(b, 20, a, 20));
	for (int i = 0; i < 40; i++)
		b[i] = i + 0.5;
	assert_true(diff_chance(a, 40, b, 40) > 0.8);
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
	struct figure f = { .name = "bw", .unit = "Gbit/s", .value = 10 };
	char err[400], why[256] = "";
	json_t *o = load("{\"schema\": \"braid-thresholds\", \"version\": 1, \"nic\": \"mlx5_*\","
			 " \"figures\": {\"bw\": {\"least\": 10, \"most\": 20}}}", err);

	(void)state;
	assert_non_null(o);
	assert_int_equal(limits_hold(o, "mlx5_0:1", &f, why, sizeof(why)), LIMIT_KEPT);
	f.value = 9.99;
	assert_int_equal(limits_hold(o, "mlx5_0:1", &f, why, sizeof(why)), LIMIT_BROKEN);
	assert_string_equal(why, "bw is 9.99 Gbit/s, and at least 10 was to be");
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
				   "\"figures\": {\"bw\": {\"least\": 10}}}";
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
	};
	int fd = mkstemp(path), failed;

	if (fd < 0)
		return 99;
	close(fd);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
