/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stat.c - medians, ratios with a bootstrap interval, and the best way at each size.
 *
 * A ratio is taken within a round, between two ways that were measured one after the other.  Its
 * interval is the percentile bootstrap of the median: draw the rounds again with replacement, and
 * keep the middle 95 % of the medians.  With five rounds the interval spans all of them.  Fewer
 * can't give such an interval, so then no difference is called sure.
 */
#include <string.h>

#include "tools/compare/compare.h"

enum { DRAWS = 2000 };

/* SplitMix64: the same numbers from the same seed on every machine. */
static uint64_t draw(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

void cmp_bootstrap(const double *a, const double *b, int n, uint64_t seed, struct cmp_ratio *ret)
{
	double ratios[CMP_ROUNDS_MAX], again[CMP_ROUNDS_MAX], medians[DRAWS];
	int i, k;

	*ret = (struct cmp_ratio){ .n = n };
	if (n < 1)
		return;
	for (i = 0; i < n; i++)
		ratios[i] = a[i] / b[i];
	for (k = 0; k < DRAWS; k++) {
		for (i = 0; i < n; i++)
			again[i] = ratios[draw(&seed) % (uint64_t)n];
		medians[k] = perf_median(again, n);
	}
	ret->mid = perf_median(ratios, n);
	perf_median(medians, DRAWS);	/* sorts them */
	ret->lo = medians[DRAWS / 40];
	ret->hi = medians[DRAWS - 1 - DRAWS / 40];
}

int cmp_ratio_verdict(const struct cmp_ratio *r)
{
	if (r->n < CMP_SURE_ROUNDS)
		return 0;
	return r->lo >= 1.005 ? 1 : r->hi < 0.995 ? -1 : 0;	/* rounded as it is printed */
}

/* -- figures of a report ------------------------------------------------------------------ */

double cmp_merit(const struct cmp_row *r)
{
	switch (perf_kinds[r->pattern].shows) {
	case PERF_SHOWS_LATENCY:
		return r->v[CMP_P50] > 0 ? 1 / r->v[CMP_P50] : 0;
	case PERF_SHOWS_COLL:
		return r->v[CMP_OP_US] > 0 ? 1 / r->v[CMP_OP_US] : 0;
	default:
		return r->v[CMP_MSG];
	}
}

static const struct cmp_row *row_find(const struct cmp_report *rep, enum perf_pattern pattern,
				      int way, uint64_t size, int round)
{
	const struct cmp_row *r;

	for (r = rep->rows; r < rep->rows + rep->nrows; r++)
		if (r->pattern == pattern && r->way == way && r->size == size && r->round == round)
			return r;
	return NULL;
}

bool cmp_value_of(const struct cmp_report *rep, enum perf_pattern pattern, int way, uint64_t size,
		  enum cmp_value what, double *ret)
{
	double v[CMP_ROUNDS_MAX];
	const struct cmp_row *r;
	int n = 0, round;

	for (round = 0; round < rep->rounds; round++) {
		r = row_find(rep, pattern, way, size, round);
		if (r)
			v[n++] = r->v[what];
	}
	*ret = perf_median(v, n);
	if (n > 0 && what == CMP_MAX)
		*ret = v[n - 1];
	return n > 0;
}

bool cmp_ratio_of(const struct cmp_report *rep, enum perf_pattern pattern, int way, int other,
		  uint64_t size, struct cmp_ratio *ret)
{
	double a[CMP_ROUNDS_MAX], b[CMP_ROUNDS_MAX];
	const struct cmp_row *x, *y;
	int n = 0, round;

	for (round = 0; round < rep->rounds && other >= 0; round++) {
		x = row_find(rep, pattern, way, size, round);
		y = row_find(rep, pattern, other, size, round);
		if (!x || !y || cmp_merit(x) <= 0 || cmp_merit(y) <= 0)
			continue;
		a[n] = cmp_merit(x);
		b[n++] = cmp_merit(y);
	}
	cmp_bootstrap(a, b, n, rep->seed ^ (size * 31 + (uint64_t)pattern) * 1000003, ret);
	return n > 0;
}

int cmp_sizes(const struct cmp_report *rep, enum perf_pattern pattern, uint64_t *sizes)
{
	const struct cmp_row *r;
	int n = 0, i;

	for (r = rep->rows; r < rep->rows + rep->nrows; r++) {
		if (r->pattern != pattern)
			continue;
		for (i = 0; i < n && sizes[i] < r->size;)
			i++;
		if (n == PERF_SIZES_MAX || (i < n && sizes[i] == r->size))
			continue;
		memmove(sizes + i + 1, sizes + i, (size_t)(n - i) * sizeof(*sizes));
		sizes[i] = r->size;
		n++;
	}
	return n;
}

/* The best by its median among those that compete; `not` excludes a way's transport, or itself. */
static int best(const struct cmp_report *rep, enum perf_pattern pattern, uint64_t size, int not,
		bool transport)
{
	double merit, most = 0;
	int w, found = -1;
	struct cmp_row like = { .pattern = pattern };

	for (w = 0; w < rep->nways; w++) {
		if (rep->ways[w].reference || w == not)
			continue;
		if (transport && not >= 0 &&
		    !strcmp(rep->ways[w].way.transport, rep->ways[not].way.transport))
			continue;
		if (!cmp_value_of(rep, pattern, w, size, CMP_P50, &like.v[CMP_P50]))
			continue;
		cmp_value_of(rep, pattern, w, size, CMP_OP_US, &like.v[CMP_OP_US]);
		cmp_value_of(rep, pattern, w, size, CMP_MSG, &like.v[CMP_MSG]);
		merit = cmp_merit(&like);
		if (merit > most) {
			most = merit;
			found = w;
		}
	}
	return found;
}

int cmp_wins(const struct cmp_report *rep, enum perf_pattern pattern, struct cmp_win *wins)
{
	uint64_t sizes[PERF_SIZES_MAX];
	int i, n = 0, all = cmp_sizes(rep, pattern, sizes);
	struct cmp_win *w;

	for (i = 0; i < all; i++) {
		w = &wins[n];
		w->size = sizes[i];
		w->way = best(rep, pattern, sizes[i], -1, false);
		w->next = best(rep, pattern, sizes[i], w->way, true);
		if (w->next < 0)
			w->next = best(rep, pattern, sizes[i], w->way, false);
		if (w->way < 0 || w->next < 0)
			continue;
		w->sure = cmp_ratio_of(rep, pattern, w->way, w->next, sizes[i], &w->by) &&
			  cmp_ratio_verdict(&w->by) > 0;
		n++;
	}
	return n;
}
