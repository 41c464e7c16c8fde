/* SPDX-License-Identifier: BSD-3-Clause */
/* score_cells.c - the cells of a mesh as logarithms, which of them still count, and findings. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mesh/score.h"

void score_metric(struct score *s, enum score_metric metric)
{
	const struct mesh_cell *c;
	double x;
	int i;

	s->metric = metric;
	for (i = 0; i < s->n * s->n; i++) {
		c = &s->r->cells[i];
		x = metric == SCORE_TIME ? 1 / fmax(c->least_s, 1e-9) : c->bytes_s;
		s->x[i] = c->state == MESH_DONE ? log(fmax(x, 1)) : SCORE_FAILED;
	}
}

int score_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double score_spread(const double *v, int n)
{
	double *w = malloc((size_t)n * sizeof(*w)), mid, ret;

	if (!w || n == 0) {
		free(w);
		return 0;
	}
	memcpy(w, v, (size_t)n * sizeof(*w));
	mid = perf_median(w, n);
	for (int i = 0; i < n; i++)
		w[i] = fabs(v[i] - mid);
	ret = 1.4826 * perf_median(w, n);
	free(w);
	return ret;
}

struct mesh_finding *score_add(struct mesh_report *r, enum mesh_kind kind, int a, int b)
{
	struct mesh_finding *f = &r->found[r->nfound];

	if (r->nfound == MESH_FINDINGS_MAX) {
		r->more++;
		return NULL;
	}
	r->nfound++;
	*f = (struct mesh_finding){ .kind = kind, .a = a, .b = b };
	return f;
}

bool score_usable(const struct score *s, int from, int to)
{
	const struct mesh_cell *c = mesh_cell(s->r, from, to);

	return from != to && c->state == MESH_DONE && !s->explained[from * s->n + to] &&
	       (s->metric == SCORE_SPEED || c->least_s > 0);
}

double score_x(const struct score *s, int from, int to)
{
	return s->x[from * s->n + to];
}

void score_explain(struct score *s, int i, enum mesh_way way)
{
	for (int j = 0; j < s->n; j++) {
		if (way != MESH_RECEIVES)
			s->explained[i * s->n + j] = true;
		if (way != MESH_SENDS)
			s->explained[j * s->n + i] = true;
	}
}

bool score_all_explained(const struct score *s, int i)
{
	for (int j = 0; j < s->n; j++)
		if (j != i && (!s->explained[i * s->n + j] || !s->explained[j * s->n + i]))
			return false;
	return true;
}

int score_line(const struct score *s, int i, enum mesh_way way, double *v)
{
	int j, n = 0;

	for (j = 0; j < s->n; j++) {
		if (way == MESH_SENDS && score_usable(s, i, j))
			v[n++] = score_x(s, i, j);
		else if (way == MESH_RECEIVES && score_usable(s, j, i))
			v[n++] = score_x(s, j, i);
	}
	return n;
}
