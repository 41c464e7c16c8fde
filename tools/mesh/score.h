/* SPDX-License-Identifier: BSD-3-Clause */
/* score.h - what the files of the scores share. */
#ifndef BRAID_TOOLS_MESH_SCORE_H
#define BRAID_TOOLS_MESH_SCORE_H

#include "tools/mesh/mesh.h"

enum score_metric { SCORE_SPEED, SCORE_TIME, SCORE_METRICS };

#define SCORE_FAILED (-100.0)		/* of a cell without a figure; less than any logarithm */

struct score_cell {
	double x;			/* first: score_by_value() sorts cells by it */
	int from, to;
};

struct score {
	struct mesh_report *r;
	int n;
	enum score_metric metric;
	double *x;			/* n * n logarithms, greater is better */
	double *room;			/* n * n, for a moment */
	bool *explained;		/* by a finding; such cells count no more */
	struct score_cell *sorted;	/* the usable cells */
	int nsorted;
};

#define SCORE_LATE_S 10e-6		/* a smaller difference in latency is no finding */

/* -- score_cells.c ------------------------------------------------------------------------ */

int score_by_value(const void *a, const void *b);
/* 1.48 times the median distance from the median: the deviation, if the noise is normal. */
double score_spread(const double *v, int n);
struct mesh_finding *score_add(struct mesh_report *r, enum mesh_kind kind, int a, int b);
bool score_usable(const struct score *s, int from, int to);	/* measured, and not explained */
double score_x(const struct score *s, int from, int to);	/* greater is better */
/* The usable cells of one host in one direction: how many, and their values. */
int score_line(const struct score *s, int i, enum mesh_way way, double *v);
void score_explain(struct score *s, int i, enum mesh_way way);
bool score_all_explained(const struct score *s, int i);
void score_metric(struct score *s, enum score_metric metric);

/* -- score_host.c ------------------------------------------------------------------------- */

void score_sort(struct score *s);	/* fills s->sorted */
/* The noise of single cells: what their hosts' two medians do not explain. */
double score_noise(const struct score *s);
void score_hosts(struct score *s);
/* Hosts that lose segments and are as fast as the others all the same. */
void score_lossy(struct score *s);

/* -- score_side.c ------------------------------------------------------------------------- */

/* Groups of hosts that are slow or fail towards each other, and well within. */
void score_sides(struct score *s);

#endif
