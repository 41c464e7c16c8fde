/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * allreduce.c - ring all-reduce: of a whole vector, or bucket after bucket as in a training step.
 *
 * One operation is one all-reduce to its end, one channel per comm.
 */
#include "tools/perf/layout.h"

static uint64_t vector_elems(const struct job *j)
{
	return j->run->size / sizeof(float);
}

static uint64_t ring_arena(const struct perf_run *run, int n)
{
	uint64_t part = run->size / sizeof(float) / run->comms + 1;

	return perf_round_up(run->size, PERF_PAGE) +
	       run->comms * perf_round_up(ring_scratch_bytes(part, n, run->inflight), PERF_PAGE);
}

static void ring_lay(struct job *j)
{
	uint64_t part = vector_elems(j) / j->run->comms + 1;
	uint64_t scratch =
		perf_round_up(ring_scratch_bytes(part, j->n, j->run->inflight), PERF_PAGE);
	char *at = j->arena->base + perf_round_up(j->run->size, PERF_PAGE);
	struct strand *s;
	struct flow *f;
	unsigned i;

	for (s = j->strands; s < j->strands + j->run->threads; s++) {
		for (i = 0; i < s->pump.n / 2; i++, at += scratch) {
			f = &s->pump.flows[2 * i];
			s->channels[i].ring = (struct ring){ .rank = j->rank, .n = j->n,
							     .scratch = at, .rx = f, .tx = f + 1 };
		}
	}
}

static void rings_aim(struct strand *s, uint64_t at, uint64_t elems, bool fill)
{
	struct job *j = s->job;
	uint64_t from, n;
	unsigned i, idx;
	float *data;

	for (i = 0; i < s->pump.n / 2; i++) {
		idx = (unsigned)s->channels[i].ring.tx->idx;
		from = at + perf_part_begin(j, elems, idx);
		n = at + perf_part_begin(j, elems, idx + 1) - from;
		data = perf_vector(j) + from;
		if (fill)
			ring_fill(data, n, from, j->rank, j->run->step);
		ring_aim(&s->channels[i].ring, data, n);
	}
}

static void allreduce_begin(struct strand *s, uint64_t op)
{
	(void)op;
	rings_aim(s, 0, vector_elems(s->job), s->job->run->check);
}

static void allreduce_end(struct strand *s, uint64_t op)
{
	const struct job *j = s->job;
	const struct ring *r;
	unsigned i;

	(void)op;
	for (i = 0; j->run->check && i < s->pump.n / 2; i++) {
		r = &s->channels[i].ring;
		r->rx->values += r->elems;
		r->rx->wrong += ring_wrong(r->data, r->elems, (uint64_t)(r->data - perf_vector(j)),
					   j->n, j->run->step);
	}
}

const struct layout perf_layout_allreduce = { ring_arena, ring_lay, perf_ops_iters, allreduce_begin,
					      NULL, allreduce_end, perf_lay_finish };

/* -- a training step: all-reduce bucket after bucket -------------------------------------- */

static uint64_t ddp_arena(const struct perf_run *run, int n)
{
	struct perf_run whole = *run;
	struct perf_model m;

	perf_resnet50(&m);
	whole.size = m.params * sizeof(float);
	return ring_arena(&whole, n);
}

static void ddp_lay(struct job *j)
{
	struct perf_run whole = *j->run;
	const struct perf_run *asked = j->run;

	perf_resnet50(&j->model);
	whole.size = j->model.params * sizeof(float);
	j->run = &whole;
	ring_lay(j);
	j->run = asked;
	ring_fill(perf_vector(j), j->model.params, 0, j->rank, j->run->step);
}

static uint64_t ddp_ops(const struct job *j)
{
	return j->model.buckets;
}

static void ddp_begin(struct strand *s, uint64_t op)
{
	const uint64_t *bucket = s->job->model.bucket_params;
	uint64_t at = 0, i;

	for (i = 0; i < op; i++)
		at += bucket[i];
	rings_aim(s, at, bucket[op], false);
}

static void ddp_end(struct strand *s, uint64_t op)
{
	(void)s, (void)op;
}

static void ddp_finish(struct job *j)
{
	j->values = j->model.params;
	j->wrong = ring_wrong(perf_vector(j), j->model.params, 0, j->n, j->run->step);
}

const struct layout perf_layout_ddp = { ddp_arena, ddp_lay, ddp_ops, ddp_begin, NULL, ddp_end,
					ddp_finish };
