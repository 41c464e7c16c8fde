/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stream.c - streams: one operation of `iters` messages per comm, in one direction or in both; and
 * ping-pong, a stream whose sends wait for receives.
 */
#include <string.h>

#include "tools/perf/layout.h"

enum { LINE = 128 };

static uint64_t stream_slots(const struct perf_run *run)
{
	return perf_round_up(run->inflight * perf_round_up(run->size, LINE), PERF_PAGE);
}

static uint64_t stream_arena(const struct perf_run *run, int n)
{
	const struct perf_kind *kind = &perf_kinds[run->pattern];
	uint64_t ends = 0;
	int peer;

	for (peer = 1; peer < n; peer++)
		ends += (unsigned)kind->edge(n, 0, peer) + (unsigned)kind->edge(n, peer, 0);
	return (ends ? ends : 1) * run->comms * stream_slots(run);
}

static struct piece stream_piece(struct flow *f, uint64_t k)
{
	return (struct piece){ f->base + k % f->depth * f->stride, f->size };
}

/* Word w of message k; no two words of a run are likely to be equal. */
static uint64_t word(uint64_t key, uint64_t k, size_t w)
{
	uint64_t x = key + k * 0x9e3779b97f4a7c15u + w * 0xbf58476d1ce4e5b9u;

	x ^= x >> 31;
	return x * 0x94d049bb133111ebu;
}

/* The last word is cut if the message ends within it. */
static void stream_fill(struct flow *f, uint64_t k, struct piece p)
{
	size_t words = p.size / 8;
	uint64_t x;

	for (size_t w = 0; w < words; w++) {
		x = word(f->key, k, w);
		memcpy(p.data + 8 * w, &x, 8);
	}
	x = word(f->key, k, words);
	memcpy(p.data + 8 * words, &x, p.size % 8);
}

static void stream_verify(struct flow *f, uint64_t k, struct piece p)
{
	size_t words = p.size / 8;
	uint64_t x, got;

	for (size_t w = 0; w < words; w++) {
		memcpy(&got, p.data + 8 * w, 8);
		f->wrong += got != word(f->key, k, w);
	}
	x = word(f->key, k, words);
	f->wrong += memcmp(p.data + 8 * words, &x, p.size % 8) != 0;
	f->values += (p.size + 7) / 8;
}

static uint64_t stream_key(const struct job *j, const struct flow *f)
{
	uint64_t src = (uint64_t)(f->is_send ? j->rank : f->peer);
	uint64_t dst = (uint64_t)(f->is_send ? f->peer : j->rank);

	return ((src << 48) + (dst << 32) + ((uint64_t)f->idx << 16) + j->run->step) *
	       0xd6e8feb86659fd93u;
}

static void stream_flow(struct job *j, struct flow *f, unsigned nth)
{
	const struct perf_run *run = j->run;

	f->piece = stream_piece;
	f->goal = run->iters;
	f->size = run->size;
	f->stride = perf_round_up(run->size, LINE);
	f->base = j->arena->base + nth * stream_slots(run);
	f->key = stream_key(j, f);
	if (run->check && f->is_send)
		f->sending = stream_fill;
	else if (run->check)
		f->arrived = stream_verify;
}

static void stream_lay(struct job *j)
{
	unsigned i;

	for (i = 0; i < j->nflows; i++)
		stream_flow(j, &j->flows[i], i);
}

static uint64_t stream_ops(const struct job *j)
{
	(void)j;
	return 1;
}

static void stream_begin(struct strand *s, uint64_t op)
{
	(void)s, (void)op;
}

static void stream_end(struct strand *s, uint64_t op)
{
	(void)s, (void)op;
}

const struct layout perf_layout_stream = { stream_arena, stream_lay, stream_ops, stream_begin,
					   NULL, stream_end, perf_lay_finish };

/* -- ping-pong ---------------------------------------------------------------------------- */

/* A round trip ends where the next begins: after the post, because reading a clock takes time. */
static void lap(struct strand *s)
{
	uint64_t now = perf_now_ns();

	perf_samples_add(&s->lat, now - s->last_ns);
	s->last_ns = now;
}

static void pinged(struct flow *f, uint64_t k)
{
	if (k > 0)
		lap(f->arg);
}

static void ponged(struct flow *f, uint64_t k, struct piece p)
{
	struct strand *s = f->arg;
	uint64_t now;

	if (s->job->run->check) {
		now = perf_now_ns();
		stream_verify(f, k, p);
		s->last_ns += perf_now_ns() - now;	/* checking does not count */
	}
	if (k + 1 == f->goal)
		lap(s);
}

/* Rank 0 may send one message more than it has received, rank 1 may not. */
static void pingpong_lay(struct job *j)
{
	unsigned lead = j->rank == 0 ? 1 : 0;
	struct strand *s;
	struct flow *f, *other;

	stream_lay(j);
	for (s = j->strands; s < j->strands + j->run->threads; s++) {
		for (f = s->pump.flows; f < s->pump.flows + s->pump.n; f++) {
			for (other = s->pump.flows; other->idx != f->idx || other == f;)
				other++;
			if (f->is_send) {
				f->after = other;
				f->lead = lead;
				f->sent = lead ? pinged : NULL;
			} else if (lead) {
				f->arrived = ponged;
			}
			f->arg = s;
		}
	}
}

const struct layout perf_layout_pingpong = { stream_arena, pingpong_lay, stream_ops, stream_begin,
					     NULL, stream_end, perf_lay_finish };
