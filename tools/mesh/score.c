/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * score.c - what is odd in a mesh: a pure function of its cells.
 *
 * All is done in logarithms, so that half as fast is as far from the median as twice as fast.  The
 * clearest finding is taken first, and its cells are then explained: they no longer count.  So a
 * bad host does not make its peers look bad, nor a bad side its hosts.  A threshold is the greatest
 * of a fixed ratio and of what the cells' own noise, by median absolute deviations, may make.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mesh/score.h"

const char *const mesh_kind_names[MESH_KINDS] = {
	[MESH_ABSENT] = "absent", [MESH_SIDE] = "side", [MESH_HOST_CUT] = "host-cut",
	[MESH_HOST_LOSSY] = "host-lossy", [MESH_HOST_SLOW] = "host-slow",
	[MESH_HOST_LATE] = "host-late", [MESH_PAIR_CUT] = "pair-cut",
	[MESH_PAIR_SLOW] = "pair-slow", [MESH_PAIR_LATE] = "pair-late",
};

/* A pair's cell must be so many times worse than it should be. */
static const double pair_ratio[SCORE_METRICS] = { 2, 3 };

/* -- hosts and pairs that fail ------------------------------------------------------------ */

static bool failed(const struct score *s, int a, int b)
{
	return a != b && mesh_cell(s->r, a, b)->state == MESH_FAILED &&
	       !s->explained[a * s->n + b];
}

static void count_failed(const struct score *s, int i, int *ret_failed, int *ret_tried)
{
	int j;

	*ret_failed = *ret_tried = 0;
	for (j = 0; j < s->n; j++) {
		*ret_failed += failed(s, i, j);
		*ret_tried += failed(s, i, j) || score_usable(s, i, j);
	}
}

/* The host with most failures first: its peers' failures are then explained. */
static void find_cut(struct score *s)
{
	struct mesh_finding *f;
	int i, at, most, bad, tried, tried_at;

	do {
		for (i = 0, at = -1, most = 1, tried_at = 0; i < s->n; i++) {
			count_failed(s, i, &bad, &tried);
			if (bad > most && 4 * bad >= 3 * tried) {
				at = i;
				most = bad;
				tried_at = tried;
			}
		}
		f = at < 0 ? NULL : score_add(s->r, MESH_HOST_CUT, at, -1);
		if (at >= 0)
			score_explain(s, at, MESH_BOTH);
		if (f) {
			f->failed = most;
			f->tried = tried_at;
		}
	} while (at >= 0);
}

/* -- pairs -------------------------------------------------------------------------------- */

/* The value that a quarter of them exceed, at most; sorts v. */
static double upper(double *v, int n)
{
	qsort(v, (size_t)n, sizeof(*v), score_by_value);
	return v[(int)ceil(0.75 * (n - 1))];
}

/* The expected value of a cell: the median, but no better than its two hosts are elsewhere. */
static double expected(const struct score *s, int a, int b)
{
	double v[MESH_HOSTS_MAX], ret = s->sorted[s->nsorted / 2].x;
	int n = score_line(s, a, MESH_SENDS, v);

	if (n)
		ret = fmin(ret, upper(v, n));
	n = score_line(s, b, MESH_RECEIVES, v);
	return n ? fmin(ret, upper(v, n)) : ret;
}

static bool pair_odd(const struct score *s, int a, int b, double noise, struct mesh_finding *f)
{
	double limit = fmax(log(pair_ratio[s->metric]), 6 * noise), want;

	if (!score_usable(s, a, b) || s->n < 3 ||
	    (s->metric == SCORE_SPEED && mesh_cell(s->r, a, b)->cpu < MESH_CPU))
		return false;
	want = expected(s, a, b);
	if (score_x(s, a, b) >= want - limit)
		return false;
	f->value = exp(s->metric == SCORE_TIME ? -score_x(s, a, b) : score_x(s, a, b));
	f->others = exp(s->metric == SCORE_TIME ? -want : want);
	return s->metric == SCORE_SPEED || f->value - f->others >= SCORE_LATE_S;
}

static void find_pairs(struct score *s)
{
	struct mesh_finding f, *to;
	double noise;
	int a, b;
	bool there, back;

	score_sort(s);
	noise = score_noise(s);
	for (a = 0; a < s->n; a++)
		for (b = a + 1; b < s->n; b++) {
			f = (struct mesh_finding){
				.kind = s->metric == SCORE_TIME ? MESH_PAIR_LATE : MESH_PAIR_SLOW,
				.a = a, .b = b};
			there = pair_odd(s, a, b, noise, &f);
			back = pair_odd(s, b, a, noise, &f);
			if (failed(s, a, b) && s->metric == SCORE_SPEED)
				f.kind = MESH_PAIR_CUT;
			else if (!there && !back)
				continue;
			f.way = !back ? MESH_SENDS : !there ? MESH_RECEIVES : MESH_BOTH;
			f.way = f.kind == MESH_PAIR_SLOW ? f.way : MESH_BOTH;
			to = score_add(s->r, f.kind, a, b);
			if (to)
				*to = f;
			s->explained[a * s->n + b] = s->explained[b * s->n + a] = true;
		}
}

/* -- all ---------------------------------------------------------------------------------- */

static double all_median(struct score *s, enum score_metric metric)
{
	int i, n = 0;

	for (i = 0; i < s->n * s->n; i++)
		if (s->r->cells[i].state == MESH_DONE)
			s->room[n++] = metric == SCORE_TIME ? s->r->cells[i].latency_s :
							      s->r->cells[i].bytes_s;
	return n ? perf_median(s->room, n) : 0;
}

static void find_all(struct score *s)
{
	int i;

	s->r->bytes_s = all_median(s, SCORE_SPEED);
	s->r->latency_s = all_median(s, SCORE_TIME);
	for (i = 0; i < s->n; i++)
		if (s->r->hosts[i].why[0]) {
			score_add(s->r, MESH_ABSENT, i, -1);
			score_explain(s, i, MESH_BOTH);
		}
	score_metric(s, SCORE_SPEED);
	score_sides(s);
	find_cut(s);
	score_hosts(s);
	score_lossy(s);
	find_pairs(s);
	score_metric(s, SCORE_TIME);
	score_hosts(s);
	find_pairs(s);
}

void mesh_score(struct mesh_report *r)
{
	size_t n2 = (size_t)r->n * (size_t)r->n;
	struct score s = { .r = r, .n = r->n };

	r->nfound = r->more = r->ngroups = 0;
	s.x = calloc(n2, sizeof(*s.x));
	s.room = calloc(n2, sizeof(*s.room));
	s.sorted = calloc(n2, sizeof(*s.sorted));
	s.explained = calloc(n2, sizeof(*s.explained));
	if (s.x && s.room && s.sorted && s.explained)
		find_all(&s);
	free(s.x);
	free(s.room);
	free(s.sorted);
	free(s.explained);
}
