/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * coll.c - collectives of more than one step.
 *
 * hier: each of two hosts has half of the ranks.  Within a host, the first half of a ring
 * all-reduce leaves each rank with one summed chunk.  The rank swaps this chunk with the same rank
 * of the other host and adds the one it receives.  Then comes the second half of the ring.  So the
 * vector crosses between hosts once, not n times.  If the number of ranks is odd, all are on one
 * host, and run the ring alone.
 *
 * sparse: each rank has the k largest of a gradient, k a hundredth of it, as values and indices.
 * These go round the ring, two messages a step, and are added to the dense gradient as they arrive,
 * as in HiTopKComm's all-gather.  Choosing the k largest is computation, and is not measured.
 */
#include <string.h>

#include "tools/perf/layout.h"

enum { DENSITY = 100, VALUES = 0, INDICES = 1 };

static struct channel *channel_of(struct strand *s, const struct flow *f)
{
	return &s->channels[(unsigned)f->idx / s->job->run->threads];
}

static unsigned channels(const struct strand *s)
{
	return (s->job->run->comms - (unsigned)(s - s->job->strands) + s->job->run->threads - 1) /
	       s->job->run->threads;
}

/* -- hierarchical all-reduce -------------------------------------------------------------- */

static bool is_cross(const struct job *j, int peer)
{
	int g = perf_hier_group(j->n);

	return peer / g != j->rank / g;
}

static uint64_t hier_ring_scratch(const struct perf_run *run, int n)
{
	uint64_t part = run->size / sizeof(float) / run->comms + 1;

	return perf_round_up(ring_scratch_bytes(part, perf_hier_group(n), run->inflight),
			     PERF_PAGE);
}

/* The largest chunk of one channel's part; the other host sends it. */
static uint64_t hier_chunk(const struct perf_run *run, int n)
{
	uint64_t part = run->size / sizeof(float) / run->comms + 1;

	return perf_round_up((part / (uint64_t)perf_hier_group(n) + 1) * sizeof(float), PERF_PAGE);
}

static uint64_t hier_arena(const struct perf_run *run, int n)
{
	return perf_round_up(run->size, PERF_PAGE) +
	       run->comms * (hier_ring_scratch(run, n) + hier_chunk(run, n));
}

static void hier_lay_flow(struct strand *s, struct flow *f)
{
	struct channel *c = channel_of(s, f);
	const struct job *j = s->job;
	uint64_t each = hier_ring_scratch(j->run, j->n) + hier_chunk(j->run, j->n);
	char *at = j->arena->base + perf_round_up(j->run->size, PERF_PAGE) +
		   (uint64_t)f->idx * each;
	int g = perf_hier_group(j->n);

	c->ring.rank = j->rank % g;
	c->ring.n = g;
	c->ring.scratch = at;
	c->scratch = at + hier_ring_scratch(j->run, j->n);
	if (is_cross(j, f->peer))
		*(f->is_send ? &c->cross_tx : &c->cross_rx) = f;
	else
		*(f->is_send ? &c->ring.tx : &c->ring.rx) = f;
}

static void hier_lay(struct job *j)
{
	struct strand *s;
	unsigned i;

	for (s = j->strands; s < j->strands + j->run->threads; s++)
		for (i = 0; i < s->pump.n; i++)
			hier_lay_flow(s, &s->pump.flows[i]);
}

/* The chunk that a rank has summed after the first half of its ring. */
static float *own_chunk(const struct channel *c, uint64_t *ret_n)
{
	uint64_t n = (uint64_t)c->ring.n, nth = ((uint64_t)c->ring.rank + 1) % n;
	uint64_t from = c->ring.elems * nth / n;

	*ret_n = c->ring.elems * (nth + 1) / n - from;
	return c->ring.data + from;
}

static struct piece cross_piece(struct flow *f, uint64_t k)
{
	const struct channel *c = f->arg;
	uint64_t n, from = k * RING_SLICE;
	char *data = (char *)own_chunk(c, &n);
	uint64_t left = n * sizeof(float) - from;

	return (struct piece){ (f->is_send ? data : c->scratch) + from,
			       left < RING_SLICE ? left : RING_SLICE };
}

static void cross_aim(struct channel *c)
{
	struct flow *const both[] = { c->cross_tx, c->cross_rx };
	uint64_t n;
	unsigned i;

	own_chunk(c, &n);
	for (i = 0; c->cross_tx && i < 2; i++) {
		both[i]->arg = c;
		both[i]->piece = cross_piece;
		both[i]->posted = both[i]->done = 0;
		both[i]->goal = (n * sizeof(float) + RING_SLICE - 1) / RING_SLICE;
	}
}

static void hier_begin(struct strand *s, uint64_t op)
{
	const struct job *j = s->job;
	uint64_t elems = j->run->size / sizeof(float), from, n;
	struct channel *c;
	unsigned i, idx;

	(void)op;
	for (i = 0; i < channels(s); i++) {
		c = &s->channels[i];
		idx = i * j->run->threads + (unsigned)(s - j->strands);
		from = perf_part_begin(j, elems, idx);
		n = perf_part_begin(j, elems, idx + 1) - from;
		if (j->run->check)
			ring_fill(perf_vector(j) + from, n, from, j->rank, j->run->step);
		c->ring.data = perf_vector(j) + from;
		c->ring.elems = n;
		if (c->ring.tx)
			ring_aim(&c->ring, c->ring.data, n);
		if (c->cross_tx)
			c->cross_tx->goal = c->cross_tx->posted = c->cross_tx->done = 0;
		if (c->cross_rx)
			c->cross_rx->goal = c->cross_rx->posted = c->cross_rx->done = 0;
	}
}

/* Each ring runs until `halves` halves of its all-reduce are done; the other flows are idle. */
static int rings_run(struct strand *s, uint64_t halves)
{
	struct ring *r;
	unsigned i;

	for (i = 0; i < channels(s); i++) {
		r = &s->channels[i].ring;
		if (r->tx)
			r->tx->goal = r->rx->goal =
				halves * ((uint64_t)r->n - 1) * r->per_chunk;
	}
	return pump_run(&s->pump);
}

static int crosses_run(struct strand *s)
{
	struct channel *c;
	uint64_t n;
	float *own;
	unsigned i;
	int rc;

	for (i = 0; i < channels(s); i++)
		cross_aim(&s->channels[i]);
	rc = pump_run(&s->pump);
	for (i = 0; i < channels(s) && !rc; i++) {
		c = &s->channels[i];
		own = own_chunk(c, &n);
		if (c->cross_rx)
			ring_sum(own, (const void *)c->scratch, n);
	}
	return rc;
}

static int hier_run(struct strand *s)
{
	int rc = rings_run(s, 1);

	if (!rc)
		rc = crosses_run(s);
	return rc ? rc : rings_run(s, 2);
}

static void hier_end(struct strand *s, uint64_t op)
{
	const struct job *j = s->job;
	struct channel *c;
	unsigned i;

	(void)op;
	for (i = 0; j->run->check && i < channels(s); i++) {
		c = &s->channels[i];
		s->pump.flows[0].values += c->ring.elems;
		s->pump.flows[0].wrong +=
			ring_wrong(c->ring.data, c->ring.elems,
				   (uint64_t)(c->ring.data - perf_vector(j)), j->n, j->run->step);
	}
}

const struct layout perf_layout_hier = { hier_arena, hier_lay, perf_ops_iters, hier_begin,
					 hier_run, hier_end, perf_lay_finish };

/* -- sparse all-gather -------------------------------------------------------------------- */

/* In the arena lies the dense gradient, then a block for each rank: k values, then k indices. */
static uint64_t top_k(const struct perf_run *run)
{
	uint64_t elems = run->size / sizeof(float);

	return elems <= DENSITY ? 1 : elems / DENSITY;
}

static uint64_t block_bytes(const struct perf_run *run)
{
	return perf_round_up(2 * top_k(run) * sizeof(float), PERF_PAGE);
}

static uint64_t sparse_arena(const struct perf_run *run, int n)
{
	return perf_round_up(run->size + sizeof(float), PERF_PAGE) +
	       (uint64_t)n * block_bytes(run);
}

static uint32_t *block(const struct job *j, int rank, int what)
{
	char *first = j->arena->base + perf_round_up(j->run->size + sizeof(float), PERF_PAGE);

	return (void *)(first + (uint64_t)rank * block_bytes(j->run) +
			(uint64_t)what * top_k(j->run) * sizeof(float));
}

/* Indices of a rank are distinct; some are in other ranks' blocks as well. */
static uint32_t index_of(const struct job *j, int rank, uint64_t i)
{
	uint64_t elems = j->run->size / sizeof(float);

	return elems ? (uint32_t)((i * DENSITY + (uint64_t)(rank % 3)) % elems) : 0;
}

static float value_of(const struct job *j, int rank, uint64_t i)
{
	return (float)((i * 7 + (uint64_t)rank * 13 + j->run->step) % 1024 + 1);
}

static void block_fill(const struct job *j, int rank)
{
	uint64_t i, k = top_k(j->run);
	float *values = (void *)block(j, rank, VALUES);

	for (i = 0; i < k; i++) {
		values[i] = value_of(j, rank, i);
		block(j, rank, INDICES)[i] = index_of(j, rank, i);
	}
}

/* The rank whose values we send (back 0) or receive (back 1) in message t, two messages a step. */
static int step_rank(const struct job *j, uint64_t t, int back)
{
	return (j->rank + 2 * j->n - (int)(t / 2) - back) % j->n;
}

static struct piece sparse_piece(struct flow *f, uint64_t t)
{
	const struct strand *s = f->arg;
	const struct channel *c = &s->channels[(unsigned)f->idx / s->job->run->threads];
	int rank = step_rank(s->job, t, f->is_send ? 0 : 1);

	return (struct piece){ (char *)(block(s->job, rank, (int)(t % 2)) + c->from),
			       c->n * sizeof(float) };
}

/* Add to the dense gradient, each value at its index.  A peer's index may lie outside: check it. */
static void add_up(const struct job *j, int rank, uint64_t from, uint64_t n)
{
	const float *values = (const void *)block(j, rank, VALUES);
	const uint32_t *indices = block(j, rank, INDICES);
	uint64_t elems = j->run->size / sizeof(float), i;

	for (i = from; i < from + n; i++)
		if (indices[i] < elems)
			perf_vector(j)[indices[i]] += values[i];
}

static void sparse_arrived(struct flow *f, uint64_t t, struct piece p)
{
	const struct strand *s = f->arg;
	const struct channel *c = &s->channels[(unsigned)f->idx / s->job->run->threads];

	(void)p;
	if (t % 2 == INDICES)
		add_up(s->job, step_rank(s->job, t, 1), c->from, c->n);
}

static void sparse_lay(struct job *j)
{
	uint64_t k = top_k(j->run);
	struct channel *c;
	struct strand *s;
	struct flow *f;

	block_fill(j, j->rank);
	for (s = j->strands; s < j->strands + j->run->threads; s++) {
		for (f = s->pump.flows; f < s->pump.flows + s->pump.n; f++) {
			c = channel_of(s, f);
			c->from = perf_part_begin(j, k, (unsigned)f->idx);
			c->n = perf_part_begin(j, k, (unsigned)f->idx + 1) - c->from;
			*(f->is_send ? &c->ring.tx : &c->ring.rx) = f;
			f->arg = s;
			f->piece = sparse_piece;
		}
	}
}

/* A checked operation starts from zeros: no old sum, no old block. */
static void sparse_clear(const struct job *j, uint64_t from, uint64_t n)
{
	uint64_t i, elems = j->run->size / sizeof(float);
	int rank;

	for (rank = 0; rank < j->n; rank++) {
		for (i = from; i < from + n && elems; i++)
			perf_vector(j)[index_of(j, rank, i)] = 0;
		if (rank == j->rank)
			continue;
		memset(block(j, rank, VALUES) + from, 0, n * sizeof(float));
		memset(block(j, rank, INDICES) + from, 0xff, n * sizeof(float));
	}
}

static void sparse_begin(struct strand *s, uint64_t op)
{
	struct channel *c;
	unsigned i;

	(void)op;
	for (i = 0; i < channels(s); i++) {
		c = &s->channels[i];
		if (s->job->run->check)
			sparse_clear(s->job, c->from, c->n);
		c->ring.tx->goal = c->ring.rx->goal = 2 * ((uint64_t)s->job->n - 1);
		c->ring.tx->posted = c->ring.tx->done = c->ring.rx->posted = c->ring.rx->done = 0;
		c->ring.tx->after = c->ring.rx;
		c->ring.tx->lead = 2;
		c->ring.rx->arrived = sparse_arrived;
	}
}

static int sparse_run(struct strand *s)
{
	unsigned i;

	for (i = 0; i < channels(s); i++)
		add_up(s->job, s->job->rank, s->channels[i].from, s->channels[i].n);
	return pump_run(&s->pump);
}

/* Subtracting what all ranks gave must leave zeros. */
static void sparse_end(struct strand *s, uint64_t op)
{
	const struct job *j = s->job;
	struct flow *f = &s->pump.flows[0];
	struct channel *c;
	unsigned i;
	uint64_t k;
	int rank;

	(void)op;
	for (i = 0; j->run->check && j->run->size >= sizeof(float) && i < channels(s); i++) {
		c = &s->channels[i];
		for (rank = 0; rank < j->n; rank++)
			for (k = c->from; k < c->from + c->n; k++)
				perf_vector(j)[index_of(j, rank, k)] -= value_of(j, rank, k);
		for (rank = 0; rank < j->n; rank++)
			for (k = c->from; k < c->from + c->n; k++, f->values++)
				f->wrong += perf_vector(j)[index_of(j, rank, k)] != 0;
	}
}

const struct layout perf_layout_sparse = { sparse_arena, sparse_lay, perf_ops_iters, sparse_begin,
					   sparse_run, sparse_end, perf_lay_finish };
