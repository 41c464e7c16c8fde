/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * diff_stat.c - are two series of samples apart by more than a threshold, or by chance?
 *
 * The test is Mann and Whitney's: means and normal distributions would be wrong for latencies,
 * which have long tails.
 */
#include "tools/compare/diff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/stat.h"

enum { EXACT_MOST = 20 };

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double diff_median(const double *v, unsigned n)
{
	double *copy = n ? malloc(n * sizeof(*copy)) : NULL, ret;

	if (!copy)
		return 0;
	memcpy(copy, v, n * sizeof(*copy));
	ret = perf_median(copy, (int)n);
	free(copy);
	return ret;
}

/* The fraction of all orderings of na and nb values in which U is at most u. */
static double exact(unsigned na, unsigned nb, double u)
{
	static double ways[EXACT_MOST + 1][EXACT_MOST + 1][EXACT_MOST * EXACT_MOST + 1];
	double sum = 0, all = 0;

	for (unsigned i = 0; i <= na; i++) {
		for (unsigned k = 0; k <= nb; k++) {
			for (unsigned x = 0; x <= i * k; x++) {
				double w = i == 0 || k == 0;

				if (i && k) {	/* the largest value: of the first series, or not */
					w = x >= k ? ways[i - 1][k][x - k] : 0;
					w += x <= i * (k - 1) ? ways[i][k - 1][x] : 0;
				}
				ways[i][k][x] = w;
			}
			for (unsigned x = i * k + 1; x <= EXACT_MOST * EXACT_MOST; x++)
				ways[i][k][x] = 0;
		}
	}
	for (unsigned x = 0; x <= na * nb; x++) {
		all += ways[na][nb][x];
		sum += x <= u ? ways[na][nb][x] : 0;
	}
	return sum / all;
}

/* How many values are tied, as the sum of t^3 - t. */
static double ties(const double *a, unsigned na, const double *b, unsigned nb)
{
	unsigned n = na + nb;
	double *all = malloc(n * sizeof(*all)), sum = 0;

	if (!all)
		return 0;
	memcpy(all, a, na * sizeof(*all));
	memcpy(all + na, b, nb * sizeof(*all));
	qsort(all, n, sizeof(*all), by_value);
	for (unsigned i = 0, k; i < n; i = k) {
		double t;

		for (k = i + 1; k < n && all[k] <= all[i];)
			k++;
		t = k - i;
		sum += t * t * t - t;
	}
	free(all);
	return sum;
}

/* U: how many pairs have a above b, a tie for half. */
static double pairs_above(const double *a, unsigned na, const double *b, unsigned nb)
{
	double u = 0;

	for (unsigned i = 0; i < na; i++)
		for (unsigned k = 0; k < nb; k++)
			u += a[i] > b[k] ? 1 : a[i] < b[k] ? 0 : 0.5;
	return u;
}

double diff_chance_above(const double *a, unsigned na, const double *b, unsigned nb)
{
	double u, n = na + nb, most = (double)na * nb, tied, sd;

	if (!na || !nb)
		return 1;
	u = pairs_above(a, na, b, nb);
	tied = ties(a, na, b, nb);
	if (tied <= 0 && na <= EXACT_MOST && nb <= EXACT_MOST)
		return exact(na, nb, u);
	sd = sqrt(most / 12 * (n + 1 - tied / (n * (n - 1))));
	if (!(sd > 0))
		return 1;
	return erfc((most / 2 - u - 0.5) / sd / sqrt(2)) / 2;
}

double diff_chance_beyond(const double *a, unsigned na, const double *b, unsigned nb, bool more,
			  double threshold)
{
	double *scaled = na ? malloc(na * sizeof(*scaled)) : NULL, ret = 1;

	if (!scaled)
		return 1;
	for (unsigned i = 0; i < na; i++)
		scaled[i] = a[i] + fabs(a[i]) * (more ? threshold : -threshold);
	ret = more ? diff_chance_above(scaled, na, b, nb) : diff_chance_above(b, nb, scaled, na);
	free(scaled);
	return ret;
}

unsigned diff_samples_least(unsigned figures, double alpha)
{
	unsigned n = 1;
	double orders = 2;		/* of two series of n: (2n)! / n!^2 */

	for (; orders * alpha < figures && n < 1000; n++)
		orders *= (2.0 * n + 1) * (2.0 * n + 2) / ((n + 1.0) * (n + 1.0));
	return n;
}

static int by_chance(const void *a, const void *b)
{
	double x = **(double *const *)a, y = **(double *const *)b;

	return x < y ? -1 : x > y;
}

void diff_holm(double **p, unsigned n)
{
	double least = 0;

	qsort(p, n, sizeof(*p), by_chance);
	for (unsigned i = 0; i < n; i++) {
		least = fmax(least, *p[i] * (n - i));
		*p[i] = fmin(least, 1);
	}
}
