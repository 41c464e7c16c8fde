/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * layout.h - how a pattern lays a job's flows for its threads.
 *
 * pattern.c has the table of layouts and runs them; stream.c, allreduce.c and coll.c define them.
 */
#ifndef BRAID_TOOLS_PERF_LAYOUT_H
#define BRAID_TOOLS_PERF_LAYOUT_H

#include <pthread.h>

#include "tools/perf/model.h"
#include "tools/perf/ring.h"

enum { PERF_PAGE = 4096 };

struct channel {			/* a collective's part that goes over one comm index */
	struct ring ring;
	struct flow *cross_tx, *cross_rx;	/* hierarchical: to the other host */
	char *scratch;			/* hierarchical: data from the other host */
	uint64_t from, n;		/* sparse: which of the k pairs */
};

struct strand {				/* one thread, its flows and its measurements */
	struct job *job;
	struct pump pump;
	struct perf_samples lat;
	struct channel *channels;	/* collectives: one for each comm index */
	uint64_t start_ns, ns, last_ns;
	pthread_t thread;
	int rc;
};

struct job {
	const struct perf_run *run;
	int rank, n;
	struct perf_ends *ends;
	struct perf_arena *arena;
	const struct layout *layout;
	struct perf_model model;
	struct strand *strands;
	struct flow *flows;		/* of all strands; each strand's are contiguous */
	unsigned nflows;
	atomic_bool stop;
	uint64_t values, wrong;
};

struct layout {				/* how a pattern lays its flows */
	uint64_t (*arena)(const struct perf_run *run, int n);
	void (*lay)(struct job *j);
	uint64_t (*ops)(const struct job *j);
	void (*begin)(struct strand *s, uint64_t op);	/* not timed */
	int (*run)(struct strand *s);	/* timed; NULL: pump_run() */
	void (*end)(struct strand *s, uint64_t op);	/* not timed */
	void (*finish)(struct job *j);
};

uint64_t perf_round_up(uint64_t x, uint64_t to);
/* Where channel `idx`'s part of a vector begins. */
uint64_t perf_part_begin(const struct job *j, uint64_t elems, unsigned idx);
float *perf_vector(const struct job *j);
uint64_t perf_ops_iters(const struct job *j);
void perf_lay_finish(struct job *j);

extern const struct layout perf_layout_stream, perf_layout_pingpong, perf_layout_allreduce,
	perf_layout_ddp, perf_layout_hier, perf_layout_sparse;

#endif
