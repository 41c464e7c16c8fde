/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * score_side.c - is a group of hosts slow towards another group, such as the two sides of a switch?
 *
 * The groups are those that HOSTFILE names; else hosts that reach each other well, directly or by
 * others, belong together.  Single hosts make no group: they are a matter of score.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mesh/score.h"

enum { SIDE_LEAST = 2, HOSTS_LEAST = 6 };	/* without names: hosts of a group; of all */

static const double side_ratio = 1 / 0.7;

/* -- groups ------------------------------------------------------------------------------- */

static int group_of_name(struct mesh_report *r, int i)
{
	int j;

	for (j = 0; j < i; j++)
		if (r->group[j] >= 0 && strcmp(r->hosts[i].side, r->hosts[j].side) == 0)
			return r->group[j];
	return r->ngroups++;
}

static bool groups_by_name(struct mesh_report *r)
{
	int i;

	r->ngroups = 0;
	for (i = 0; i < r->n; i++)
		r->group[i] = r->hosts[i].side[0] ? group_of_name(r, i) : -1;
	return r->ngroups > 1;
}

static bool tried(const struct score *s, int from, int to)
{
	return from != to && mesh_cell(s->r, from, to)->state != MESH_OPEN &&
	       !s->explained[from * s->n + to];
}

static bool good(const struct score *s, int a, int b, double least)
{
	return tried(s, a, b) && tried(s, b, a) && score_x(s, a, b) >= least &&
	       score_x(s, b, a) >= least;
}

/* All that can be reached from host i by good pairs; returns how many. */
static int spread_from(struct score *s, int i, double least)
{
	int *group = s->r->group, queue[MESH_HOSTS_MAX], first = 0, n = 0, j;

	group[i] = s->r->ngroups;
	for (queue[n++] = i; first < n; first++)
		for (j = 0; j < s->n; j++)
			if (group[j] < 0 && good(s, queue[first], j, least)) {
				group[j] = s->r->ngroups;
				queue[n++] = j;
			}
	return n;
}

/* The upper quartile is a good figure even if only a quarter of the cells are good. */
static bool groups_by_reach(struct score *s)
{
	struct mesh_report *r = s->r;
	int i, j, n = 0;
	double least;

	r->ngroups = 0;
	for (i = 0; i < s->n; i++)
		for (j = 0; j < s->n; j++)
			if (tried(s, i, j))
				s->room[n++] = score_x(s, i, j);
	if (n == 0 || s->n < HOSTS_LEAST)
		return false;
	qsort(s->room, (size_t)n, sizeof(*s->room), score_by_value);
	least = s->room[n * 3 / 4] - log(side_ratio);
	for (i = 0; i < s->n; i++)
		r->group[i] = -1;
	for (i = 0; i < s->n; i++) {
		if (r->group[i] >= 0)
			continue;
		if (spread_from(s, i, least) >= SIDE_LEAST)
			r->ngroups++;
		else
			r->group[i] = s->n;	/* alone */
	}
	for (i = 0; i < s->n; i++)
		if (r->group[i] == s->n)
			r->group[i] = -1;
	return r->ngroups > 1;
}

/* -- between two groups ------------------------------------------------------------------- */

/* The tried cells from group a to group b, sorted, into s->room. */
static int cells_between(const struct score *s, int a, int b, double *v)
{
	const int *group = s->r->group;
	int i, j, n = 0;

	for (i = 0; i < s->n; i++)
		for (j = 0; j < s->n; j++)
			if (group[i] == a && group[j] == b && tried(s, i, j))
				v[n++] = score_x(s, i, j);
	qsort(v, (size_t)n, sizeof(*v), score_by_value);
	return n;
}

/* Are nearly all cells from a to b worse than those within both? */
static bool is_slow(const struct score *s, int a, int b, double *ret_mid, double *ret_within)
{
	double *v = s->room, limit = log(side_ratio), spread;
	int n = cells_between(s, a, a, v), bad = 0, i;

	n += cells_between(s, b, b, v + n);
	if (n < 2)
		return false;
	qsort(v, (size_t)n, sizeof(*v), score_by_value);
	*ret_within = v[n / 2];
	spread = v[n / 2] - v[n / 4];		/* of normal noise: 0.67 deviations */
	limit = fmax(limit, fmin(5 * spread, 2));
	n = cells_between(s, a, b, v);
	for (i = 0; i < n; i++)
		bad += v[i] < *ret_within - limit / 2;
	if (n == 0)
		return false;
	*ret_mid = v[n / 2];
	return *ret_mid < *ret_within - limit && 10 * bad >= 9 * n;
}

static bool side_find(struct score *s, int a, int b)
{
	double there = 0, back = 0, within = 0;
	bool bad = is_slow(s, a, b, &there, &within), bad_back = is_slow(s, b, a, &back, &within);
	struct mesh_finding *f;
	int i, j;

	if (!bad && !bad_back)
		return false;
	f = score_add(s->r, MESH_SIDE, a, b);
	if (f) {
		f->way = !bad_back ? MESH_SENDS : !bad ? MESH_RECEIVES : MESH_BOTH;
		f->value = exp(!bad ? back : !bad_back ? there : fmin(there, back));
		f->value = f->value < 1 ? 0 : f->value;
		f->others = exp(within);
	}
	for (i = 0; i < s->n; i++)
		for (j = 0; j < s->n; j++)
			if ((bad && s->r->group[i] == a && s->r->group[j] == b) ||
			    (bad_back && s->r->group[i] == b && s->r->group[j] == a))
				s->explained[i * s->n + j] = true;
	return true;
}

static bool sides_find(struct score *s)
{
	bool any = false;
	int a, b;

	for (a = 0; a < s->r->ngroups; a++)
		for (b = a + 1; b < s->r->ngroups; b++)
			any |= side_find(s, a, b);
	return any;
}

void score_sides(struct score *s)
{
	if (groups_by_name(s->r) && sides_find(s))
		return;
	if (!groups_by_reach(s) || !sides_find(s))
		s->r->ngroups = 0;
}
