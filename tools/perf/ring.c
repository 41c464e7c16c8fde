/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ring.c - ring all-reduce: n - 1 steps pass partial sums round, n - 1 more pass the results.
 *
 * A vector has n chunks of a few slices.  In step k rank r sends chunk r - k and receives chunk
 * r - k - 1; message number t is slice t % per_chunk of step t / per_chunk.  So a send may go out
 * when the receive one step earlier is done (and summed), and a receive into the vector may be
 * posted when the send that last read that place, n - 1 steps earlier, is done.  Both rules are a
 * flow's `after` and `lead`.
 */
#include "tools/perf/ring.h"

typedef float floats __attribute__((vector_size(32), aligned(4), may_alias));

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t chunk_begin(const struct ring *r, uint64_t chunk)
{
	return r->elems * chunk / (uint64_t)r->n;
}

static uint64_t chunk_most(uint64_t elems, int n)
{
	return (elems + (uint64_t)n - 1) / (uint64_t)n;
}

static uint64_t slice_elems(uint64_t elems, int n)
{
	uint64_t most = chunk_most(elems, n);

	return most == 0 ? 1 : least(most, RING_SLICE / sizeof(float));
}

uint64_t ring_scratch_bytes(uint64_t elems, int n, unsigned depth)
{
	return depth * ((slice_elems(elems, n) * sizeof(float) + 127) & ~UINT64_C(127));
}

/* Where message t lies; back is 0 for what this rank sends, 1 for what it receives. */
static struct piece slice_at(const struct ring *r, uint64_t t, int back)
{
	uint64_t n = (uint64_t)r->n, step = t / r->per_chunk;
	uint64_t chunk = ((uint64_t)r->rank + 2 * n - step - (uint64_t)back) % n;
	uint64_t end = chunk_begin(r, chunk + 1);
	uint64_t from = least(chunk_begin(r, chunk) + t % r->per_chunk * r->slice, end);
	uint64_t to = least(from + r->slice, end);

	return (struct piece){ (char *)(r->data + from), (to - from) * sizeof(float) };
}

static struct piece tx_piece(struct flow *f, uint64_t t)
{
	return slice_at(f->arg, t, 0);
}

static bool is_partial(const struct ring *r, uint64_t t)
{
	return t / r->per_chunk < (uint64_t)r->n - 1;
}

static struct piece rx_piece(struct flow *f, uint64_t t)
{
	const struct ring *r = f->arg;
	struct piece p = slice_at(r, t, 1);

	if (is_partial(r, t))
		p.data = r->scratch + t % f->depth * ((r->slice * sizeof(float) + 127) & ~127ul);
	return p;
}

void ring_sum(float *to, const float *from, size_t n)
{
	size_t i;

	for (i = 0; i + 8 <= n; i += 8)
		*(floats *)(to + i) += *(const floats *)(from + i);
	for (; i < n; i++)
		to[i] += from[i];
}

static void rx_arrived(struct flow *f, uint64_t t, struct piece p)
{
	const struct ring *r = f->arg;

	if (is_partial(r, t))
		ring_sum((void *)slice_at(r, t, 1).data, (void *)p.data, p.size / sizeof(float));
}

void ring_aim(struct ring *r, float *data, uint64_t elems)
{
	uint64_t steps = (uint64_t)r->n - 1;

	r->data = data;
	r->elems = elems;
	r->slice = slice_elems(elems, r->n);
	r->per_chunk = (chunk_most(elems, r->n) + r->slice - 1) / r->slice;
	if (r->per_chunk == 0)
		r->per_chunk = 1;
	r->tx->goal = r->rx->goal = 2 * steps * r->per_chunk;
	r->tx->posted = r->tx->done = r->rx->posted = r->rx->done = 0;
	r->tx->arg = r->rx->arg = r;
	r->tx->piece = tx_piece;
	r->tx->after = r->rx;
	r->tx->lead = r->per_chunk;
	r->rx->piece = rx_piece;
	r->rx->arrived = rx_arrived;
	r->rx->after = r->tx;
	r->rx->lead = steps * r->per_chunk;
}

/* -- test data ---------------------------------------------------------------------------- */

static uint32_t value(uint32_t i, uint32_t seed)
{
	uint32_t x = i * 0x9e3779b1u ^ seed;

	x ^= x >> 15;
	x *= 0x2c1b3c6du;
	return x >> 16;
}

static uint32_t seed_of(int rank, uint32_t step)
{
	return ((uint32_t)rank + 1) * 0x85ebca6bu + step * 0xc2b2ae35u;
}

void ring_fill(float *data, uint64_t elems, uint64_t at, int rank, uint32_t step)
{
	uint32_t seed = seed_of(rank, step);
	uint64_t i;

	for (i = 0; i < elems; i++)
		data[i] = (float)value((uint32_t)(at + i), seed);
}

uint64_t ring_wrong(const float *data, uint64_t elems, uint64_t at, int n, uint32_t step)
{
	uint32_t seeds[PERF_PROCS_MAX], want;
	uint64_t i, wrong = 0;
	int r;

	for (r = 0; r < n; r++)
		seeds[r] = seed_of(r, step);
	for (i = 0; i < elems; i++) {
		for (want = 0, r = 0; r < n; r++)
			want += value((uint32_t)(at + i), seeds[r]);
		wrong += data[i] != (float)want;
	}
	return wrong;
}
