/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * score_host.c - which hosts are slow or late as senders, as receivers or as both, and which lose
 * segments: a host's median in one direction against the cells in which it has no part.
 */
#include <math.h>
#include <stdlib.h>

#include "tools/mesh/score.h"

/* A host's median must be so many times worse than the others'; of few pairs, more. */
static const double host_ratio[SCORE_METRICS] = { 1.25, 1.5 };
static const double lossy = 0.005, lossy_times = 5;

/* -- cells -------------------------------------------------------------------------------- */

void score_sort(struct score *s)
{
	int i, j;

	s->nsorted = 0;
	for (i = 0; i < s->n; i++)
		for (j = 0; j < s->n; j++)
			if (score_usable(s, i, j))
				s->sorted[s->nsorted++] = (struct score_cell){
					score_x(s, i, j), i, j};
	qsort(s->sorted, (size_t)s->nsorted, sizeof(*s->sorted), score_by_value);
}

/* The median of the usable cells in which host i has no part; false: there are none. */
static bool elsewhere(const struct score *s, int i, double *ret)
{
	int k, n = 0, at = 0;
	double low = 0;

	for (k = 0; k < s->nsorted; k++)
		n += s->sorted[k].from != i && s->sorted[k].to != i;
	for (k = 0; k < s->nsorted && n; k++) {
		if (s->sorted[k].from == i || s->sorted[k].to == i)
			continue;
		if (at == (n - 1) / 2)
			low = s->sorted[k].x;
		if (at++ == n / 2) {
			*ret = (low + s->sorted[k].x) / 2;
			return true;
		}
	}
	return false;
}

/* The noise of single cells: what their host's two medians do not explain. */
double score_noise(const struct score *s)
{
	double out[MESH_HOSTS_MAX] = { 0 }, in[MESH_HOSTS_MAX] = { 0 }, v[MESH_HOSTS_MAX];
	int i;

	for (i = 0; i < s->n; i++) {
		out[i] = perf_median(v, score_line(s, i, MESH_SENDS, v));
		in[i] = perf_median(v, score_line(s, i, MESH_RECEIVES, v));
	}
	for (i = 0; i < s->nsorted; i++)
		s->room[i] = s->sorted[i].x - out[s->sorted[i].from] - in[s->sorted[i].to];
	return fmax(score_spread(s->room, s->nsorted), 0.02);
}

/* -- a host in one direction -------------------------------------------------------------- */

struct line {				/* one host in one direction, against the others */
	double mid, others, off;	/* off: mid - others, below 0 is worse */
	int n;
	bool any, odd, bad;		/* bad: odd if there were no noise */
};

static double lines_spread(const struct line *l, int n)
{
	double v[MESH_HOSTS_MAX];
	int i, m = 0;

	for (i = 0; i < n; i++)
		if (l[i].any)
			v[m++] = l[i].off;
	return score_spread(v, m);
}

/* Its median is off by more than the limit, and nearly all of its cells are off. */
static bool is_beyond(const struct score *s, int i, enum mesh_way way, const struct line *l,
		      double limit)
{
	double v[MESH_HOSTS_MAX];
	int k, bad = 0, n = score_line(s, i, way, v);

	for (k = 0; k < n; k++)
		bad += v[k] < l->others - limit / 2;
	return l->off < -limit && 4 * bad >= 3 * n;
}

static void lines_judge(const struct score *s, struct line *l, enum mesh_way way, double noise)
{
	double between = lines_spread(l, s->n), least, limit;
	int i;

	for (i = 0; i < s->n; i++) {
		if (!l[i].any || (s->metric == SCORE_TIME &&
				  exp(-l[i].mid) - exp(-l[i].others) < SCORE_LATE_S))
			continue;
		least = log(host_ratio[s->metric]) * (1 + 2.0 / l[i].n);
		limit = fmax(least, fmax(4 * between, 5 * noise * 1.25 / sqrt(l[i].n)));
		l[i].odd = is_beyond(s, i, way, &l[i], limit);
		l[i].bad = is_beyond(s, i, way, &l[i], least);
	}
}

static void lines_make(const struct score *s, struct line *l, enum mesh_way way, double noise)
{
	double v[MESH_HOSTS_MAX];
	int i;

	for (i = 0; i < s->n; i++) {
		l[i] = (struct line){ .n = score_line(s, i, way, v) };
		l[i].any = l[i].n >= 2 && elsewhere(s, i, &l[i].others);
		if (!l[i].any)
			continue;
		l[i].mid = perf_median(v, l[i].n);
		l[i].off = l[i].mid - l[i].others;
	}
	lines_judge(s, l, way, noise);
}

/* The median of a host's pairs; 0 if there is only one, or more than a quarter lose nothing. */
static double resent_of(const struct mesh_report *r, int i, enum mesh_way way)
{
	double v[MESH_HOSTS_MAX];
	const struct mesh_cell *c;
	int j, n = 0;

	for (j = 0; j < r->n; j++) {
		c = way == MESH_SENDS ? mesh_cell(r, i, j) : mesh_cell(r, j, i);
		if (j != i && c->state == MESH_DONE)
			v[n++] = c->resent;
	}
	if (n < 2)
		return 0;
	qsort(v, (size_t)n, sizeof(*v), score_by_value);
	return v[(n - 1) / 4] < lossy ? 0 : perf_median(v, n);
}

static double resent_elsewhere(const struct score *s, int i)
{
	double *v = s->room;
	int j, k, n = 0;

	for (j = 0; j < s->n; j++)
		for (k = 0; k < s->n; k++)
			if (j != i && k != i && score_usable(s, j, k))
				v[n++] = mesh_cell(s->r, j, k)->resent;
	return n ? perf_median(v, n) : 0;
}

/* Does host i lose what it sends, or what it is sent, much more than the others?  Sets f->way. */
static bool is_lossy(const struct score *s, int i, struct mesh_finding *f)
{
	double out = resent_of(s->r, i, MESH_SENDS), in = resent_of(s->r, i, MESH_RECEIVES);

	f->resent = fmax(out, in);
	if (f->resent < lossy)
		return false;
	f->resent_others = resent_elsewhere(s, i);
	if (f->resent < lossy_times * f->resent_others)
		return false;
	f->way = out > 3 * in ? MESH_SENDS : in > 3 * out ? MESH_RECEIVES : MESH_BOTH;
	return true;
}

/*
 * Report host i, odd in a way; of the other way it is then enough that it looks bad.  Loss, if
 * there is any, is the better name for it.
 */
static void report_line(struct score *s, int i, const struct line *out, const struct line *in)
{
	enum mesh_way way = !in->bad ? MESH_SENDS : !out->bad ? MESH_RECEIVES : MESH_BOTH;
	const struct line *l = out->odd && (!in->odd || out->off < in->off) ? out : in;
	struct mesh_finding *f = score_add(s->r, s->metric == SCORE_TIME ? MESH_HOST_LATE :
							MESH_HOST_SLOW, i, -1);

	score_explain(s, i, s->metric == SCORE_TIME ? MESH_BOTH : way);
	if (!f)
		return;
	f->way = s->metric == SCORE_TIME ? MESH_BOTH : way;
	f->value = exp(s->metric == SCORE_TIME ? -l->mid : l->mid);
	f->others = exp(s->metric == SCORE_TIME ? -l->others : l->others);
	if (s->metric == SCORE_SPEED && is_lossy(s, i, f)) {
		f->kind = MESH_HOST_LOSSY;
		score_explain(s, i, MESH_BOTH);
	}
}

void score_hosts(struct score *s)
{
	struct line out[MESH_HOSTS_MAX] = { { 0 } }, in[MESH_HOSTS_MAX] = { { 0 } };
	double noise, off, worst;
	int i, at;

	do {
		score_sort(s);
		noise = score_noise(s);
		lines_make(s, out, MESH_SENDS, noise);
		lines_make(s, in, MESH_RECEIVES, noise);
		for (i = 0, at = -1, worst = 0; i < s->n; i++) {
			off = fmin(out[i].odd ? out[i].off : 0, in[i].odd ? in[i].off : 0);
			if (off < worst) {
				worst = off;
				at = i;
			}
		}
		if (at >= 0)
			report_line(s, at, &out[at], &in[at]);
	} while (at >= 0);
}

/* Hosts that lose segments and are as fast as the others all the same. */
void score_lossy(struct score *s)
{
	struct mesh_finding f, *to;
	int i;

	for (i = 0; i < s->n && s->n > 2; i++) {
		f = (struct mesh_finding){ .kind = MESH_HOST_LOSSY, .a = i, .b = -1 };
		if (score_all_explained(s, i) || !is_lossy(s, i, &f))
			continue;
		to = score_add(s->r, f.kind, i, -1);
		if (to)
			*to = f;
		score_explain(s, i, MESH_BOTH);
	}
}
