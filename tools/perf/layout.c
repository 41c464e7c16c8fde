/* SPDX-License-Identifier: BSD-3-Clause */
/* layout.c - what several layouts share: see layout.h. */
#include "tools/perf/layout.h"

uint64_t perf_round_up(uint64_t x, uint64_t to)
{
	return (x + to - 1) / to * to;
}

uint64_t perf_part_begin(const struct job *j, uint64_t elems, unsigned idx)
{
	return elems * idx / j->run->comms;
}

float *perf_vector(const struct job *j)
{
	return (void *)j->arena->base;
}

uint64_t perf_ops_iters(const struct job *j)
{
	return j->run->iters;
}

void perf_lay_finish(struct job *j)
{
	unsigned i;

	for (i = 0; i < j->nflows; i++) {
		j->values += j->flows[i].values;
		j->wrong += j->flows[i].wrong;
	}
}
