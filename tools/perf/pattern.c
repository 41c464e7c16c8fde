/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pattern.c - what is measured: a table of patterns, each a way to lay flows over a worker's
 * comms, run by one or more threads.
 *
 * Streams (ping-pong, one way, both ways, rate, all-to-all) are one operation of `iters` messages
 * per comm.  Collectives are `iters` operations, each to its end, one channel per comm; those of
 * several steps are in coll.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/pattern.h"

enum { LINE = 128 };

/* -- who talks to whom -------------------------------------------------------------------- */

static bool edge_pair(int n, int src, int dst)
{
	return n >= 2 && src + dst == 1;
}

static bool edge_forward(int n, int src, int dst)
{
	return n >= 2 && src == 0 && dst == 1;
}

static bool edge_ring(int n, int src, int dst)
{
	return (src + 1) % n == dst;
}

static bool edge_all(int n, int src, int dst)
{
	return src < n && dst < n && src != dst;
}

static bool edge_incast(int n, int src, int dst)
{
	return src > 0 && src < n && dst == 0;
}

const struct perf_kind perf_kinds[PERF_PATTERNS] = {
	[PERF_PINGPONG] = {"pingpong", "there and back, one at a time: latency", PERF_SHOWS_LATENCY,
			   2, 2, 2, 2, "8,1k,4k,16k,64k,512k", edge_pair},
	[PERF_ONEWAY] = {"oneway", "rank 0 to rank 1, K in flight: bandwidth", PERF_SHOWS_BANDWIDTH,
			 2, 2, 2, 8, "4k,64k,512k,4m", edge_forward},
	[PERF_BIDIR] = {"bidir", "both ways at once", PERF_SHOWS_BANDWIDTH, 2, 2, 2, 8,
			"4k,64k,512k,4m", edge_pair},
	[PERF_RATE] = {"rate", "oneway with small messages: messages per second", PERF_SHOWS_RATE,
		       2, 2, 2, 8, "8,1k", edge_forward},
	[PERF_ALLREDUCE] = {"allreduce", "ring all-reduce of floats over all processes",
			    PERF_SHOWS_COLL, 2, PERF_PROCS_MAX, 4, 4, "64k:64m", edge_ring},
	[PERF_ALLTOALL] = {"alltoall", "every process to every other", PERF_SHOWS_BANDWIDTH, 2,
			   PERF_PROCS_MAX, 4, 8, "4k,64k,512k", edge_all},
	[PERF_INCAST] = {"incast", "all to rank 0 at once, as to a parameter server",
			 PERF_SHOWS_BANDWIDTH, 2, PERF_PROCS_MAX, 4, 8, "4k,64k,512k", edge_incast},
	[PERF_HIER] = {"hier", "all-reduce in two levels: inside halves, then across",
		       PERF_SHOWS_COLL, 2, PERF_PROCS_MAX, 4, 4, "64k:64m", perf_edge_hier},
	[PERF_SPARSE] = {"sparse", "all-gather of a hundredth: values and their indices",
			 PERF_SHOWS_COLL, 2, PERF_PROCS_MAX, 4, 4, "64k:64m", edge_ring},
	[PERF_SETUP] = {"setup", "connection set-up, one comm after another", PERF_SHOWS_SETUP, 2,
			2, 2, 1, "8", edge_forward},
	[PERF_DDP] = {"ddp", "a training step of ResNet-50", PERF_SHOWS_COLL, 2, PERF_PROCS_MAX, 4,
		      8, "8", edge_ring},
};

/* -- streams ------------------------------------------------------------------------------ */

uint64_t perf_round_up(uint64_t x, uint64_t to)
{
	return (x + to - 1) / to * to;
}

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

/* The last word is cut short, if the message ends within it. */
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

void perf_lay_finish(struct job *j)
{
	unsigned i;

	for (i = 0; i < j->nflows; i++) {
		j->values += j->flows[i].values;
		j->wrong += j->flows[i].wrong;
	}
}

/* -- ping-pong: a stream whose sends wait for receives ------------------------------------ */

/* A round trip ends where the next one begins: as that has been posted, for looking takes time. */
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
		s->last_ns += perf_now_ns() - now;	/* which does not count */
	}
	if (k + 1 == f->goal)
		lap(s);
}

/* Rank 0 may be one ahead of what it received, rank 1 may not. */
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

/* -- collectives -------------------------------------------------------------------------- */

static uint64_t vector_elems(const struct job *j)
{
	return j->run->size / sizeof(float);
}

float *perf_vector(const struct job *j)
{
	return (void *)j->arena->base;
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

/* Channel `idx`'s part of a vector. */
uint64_t perf_part_begin(const struct job *j, uint64_t elems, unsigned idx)
{
	return elems * idx / j->run->comms;
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

uint64_t perf_ops_iters(const struct job *j)
{
	return j->run->iters;
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

static void ddp_finish(struct job *j)
{
	j->values = j->model.params;
	j->wrong = ring_wrong(perf_vector(j), j->model.params, 0, j->n, j->run->step);
}

static const struct layout stream = { stream_arena, stream_lay, stream_ops, stream_begin,
				      NULL, stream_end, perf_lay_finish };
static const struct layout pingpong = { stream_arena, pingpong_lay, stream_ops, stream_begin,
					NULL, stream_end, perf_lay_finish };
static const struct layout allreduce = { ring_arena, ring_lay, perf_ops_iters, allreduce_begin,
					 NULL, allreduce_end, perf_lay_finish };
static const struct layout ddp = { ddp_arena, ddp_lay, ddp_ops, ddp_begin, NULL, stream_end,
				   ddp_finish };

static const struct layout *const layouts[PERF_PATTERNS] = {
	[PERF_PINGPONG] = &pingpong, [PERF_ONEWAY] = &stream, [PERF_BIDIR] = &stream,
	[PERF_RATE] = &stream, [PERF_ALLREDUCE] = &allreduce, [PERF_ALLTOALL] = &stream,
	[PERF_INCAST] = &stream, [PERF_HIER] = &perf_layout_hier,
	[PERF_SPARSE] = &perf_layout_sparse, [PERF_SETUP] = &stream, [PERF_DDP] = &ddp,
};

uint64_t perf_arena_bytes(const struct perf_run *run, int nprocs)
{
	return layouts[run->pattern]->arena(run, nprocs);
}

/* -- running it --------------------------------------------------------------------------- */

static bool end_takes_part(const struct job *j, const struct perf_end *e)
{
	const struct perf_kind *kind = &perf_kinds[j->run->pattern];

	return e->idx < (int)j->run->comms && (e->is_send ? kind->edge(j->n, j->rank, e->peer)
							  : kind->edge(j->n, e->peer, j->rank));
}

static void flow_init(struct job *j, struct flow *f, const struct perf_end *e)
{
	*f = (struct flow){
		.fab = j->ends->fab, .comm = e->comm, .mr = e->mr, .is_send = e->is_send,
		.peer = e->peer, .idx = e->idx, .depth = j->run->inflight,
		.tag = e->is_send ? j->rank : e->peer,
	};
}

/* A comm's receive before its send, comms by number: the order in which a pass visits them. */
static int by_order(const void *a, const void *b)
{
	const struct flow *x = a, *y = b;
	int d = x->idx - y->idx;

	if (!d)
		d = (int)x->is_send - (int)y->is_send;
	return d ? d : x->peer - y->peer;
}

static void strand_take(struct job *j, unsigned t, unsigned *at)
{
	struct strand *s = &j->strands[t];
	unsigned i, first = *at;
	struct perf_end *e;

	s->job = j;
	s->pump = (struct pump){ .flows = j->flows + first, .stop = &j->stop,
				 .stall_ns = (uint64_t)(j->run->stall_s * 1e9) };
	for (i = 0; i < (unsigned)j->ends->n; i++) {
		e = &j->ends->v[i];
		if (end_takes_part(j, e) && (unsigned)e->idx % j->run->threads == t)
			flow_init(j, &j->flows[(*at)++], e);
	}
	s->pump.n = *at - first;
	qsort(s->pump.flows, s->pump.n, sizeof(struct flow), by_order);
}

static int job_init(struct job *j, int ctl_fd)
{
	unsigned t, threads = j->run->threads;

	j->flows = calloc((size_t)j->ends->n + 1, sizeof(*j->flows));
	j->strands = calloc(threads, sizeof(*j->strands));
	if (!j->flows || !j->strands)
		return -ENOMEM;
	for (t = 0; t < threads; t++) {
		strand_take(j, t, &j->nflows);
		j->strands[t].pump.ctl_fd = ctl_fd;
		j->strands[t].channels =
			calloc(j->strands[t].pump.n / 2 + 1, sizeof(struct channel));
		if (!j->strands[t].channels || perf_samples_init(&j->strands[t].lat) != 0)
			return -ENOMEM;
	}
	return 0;
}

static void job_fini(struct job *j)
{
	unsigned t;

	for (t = 0; j->strands && t < j->run->threads; t++) {
		perf_samples_fini(&j->strands[t].lat);
		free(j->strands[t].channels);
	}
	free(j->strands);
	free(j->flows);
}

static void *strand_main(void *arg)
{
	struct strand *s = arg;
	uint64_t op, ops = s->pump.n ? s->job->layout->ops(s->job) : 0, ns;

	s->start_ns = perf_now_ns();
	for (op = 0; op < ops && s->rc == 0; op++) {
		s->job->layout->begin(s, op);
		s->last_ns = ns = perf_now_ns();
		s->rc = s->job->layout->run ? s->job->layout->run(s) : pump_run(&s->pump);
		ns = perf_now_ns() - ns;
		s->ns += ns;
		if (ops > 1)
			perf_samples_add(&s->lat, ns);
		if (s->rc == 0)
			s->job->layout->end(s, op);
	}
	if (s->rc)
		atomic_store(&s->job->stop, true);
	return NULL;
}

static int strands_run(struct job *j)
{
	unsigned t, started = 1;
	int rc = 0;

	for (t = 1; t < j->run->threads; t++, started++)
		if (pthread_create(&j->strands[t].thread, NULL, strand_main, &j->strands[t]) != 0)
			break;
	if (started < j->run->threads)
		atomic_store(&j->stop, true);
	strand_main(&j->strands[0]);
	for (t = 1; t < started; t++)
		pthread_join(j->strands[t].thread, NULL);
	for (t = 0; t < started; t++)
		if (j->strands[t].rc && (!rc || rc == -ECANCELED))
			rc = j->strands[t].rc;
	return started < j->run->threads ? -EAGAIN : rc;
}

static void error_say(const struct job *j, int rc, char *err)
{
	unsigned t;

	snprintf(err, PERF_TEXT, "%s", strerror(-rc));
	for (t = 0; t < j->run->threads; t++)
		if (j->strands[t].rc == rc && j->strands[t].pump.err[0])
			snprintf(err, PERF_TEXT, "%s", j->strands[t].pump.err);
}

static void result_sum(struct job *j, struct perf_result *ret)
{
	struct perf_samples lat[PERF_THREADS_MAX];
	struct strand *s;
	struct flow *f;
	unsigned t;

	for (t = 0; t < j->run->threads; t++) {
		s = &j->strands[t];
		lat[t] = s->lat;
		if (s->ns > ret->ns)
			ret->ns = s->ns;
		if (s->pump.full_ns > s->start_ns)
			ret->rate += (double)s->pump.full_messages * 1e9 /
				     (double)(s->pump.full_ns - s->start_ns);
	}
	for (f = j->flows; f < j->flows + j->nflows; f++) {
		ret->bytes += f->is_send ? 0 : f->bytes;
		ret->messages += f->is_send ? 0 : f->done;
	}
	perf_latency_of(lat, j->run->threads, j->run->pattern == PERF_PINGPONG ? 2 : 1, &ret->lat);
	if (j->run->check || j->run->pattern == PERF_DDP)
		j->layout->finish(j);
	ret->values = j->values;
	ret->wrong = j->wrong;
}

int perf_pattern_run(const struct perf_run *run, int rank, int nprocs, struct perf_ends *ends,
		     struct perf_arena *arena, int ctl_fd, int (*go)(void *), void *go_arg,
		     struct perf_result *ret, char *err)
{
	struct job j = { .run = run, .rank = rank, .n = nprocs, .ends = ends, .arena = arena,
			 .layout = layouts[run->pattern] };
	struct perf_result r = { .ns = 0 };
	int rc = job_init(&j, ctl_fd);

	if (rc) {
		snprintf(err, PERF_TEXT, "%s", strerror(-rc));
		goto out;
	}
	if (j.nflows > 0)
		j.layout->lay(&j);
	rc = go(go_arg);
	if (rc)
		goto out;
	r.cpu_ns = perf_cpu_ns();
	rc = strands_run(&j);
	r.cpu_ns = perf_cpu_ns() - r.cpu_ns;
	if (rc) {
		error_say(&j, rc, err);
		goto out;
	}
	if (j.nflows > 0)
		result_sum(&j, &r);
	*ret = r;
out:
	job_fini(&j);
	return rc;
}
