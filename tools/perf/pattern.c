/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pattern.c - runs a pattern: lays its flows over a worker's comms, and drives them by threads.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/layout.h"

static const struct layout *const layouts[PERF_PATTERNS] = {
	[PERF_PINGPONG] = &perf_layout_pingpong, [PERF_ONEWAY] = &perf_layout_stream,
	[PERF_BIDIR] = &perf_layout_stream, [PERF_RATE] = &perf_layout_stream,
	[PERF_ALLREDUCE] = &perf_layout_allreduce, [PERF_ALLTOALL] = &perf_layout_stream,
	[PERF_INCAST] = &perf_layout_stream, [PERF_HIER] = &perf_layout_hier,
	[PERF_SPARSE] = &perf_layout_sparse, [PERF_SETUP] = &perf_layout_stream,
	[PERF_DDP] = &perf_layout_ddp,
};

uint64_t perf_arena_bytes(const struct perf_run *run, int nprocs)
{
	return layouts[run->pattern]->arena(run, nprocs);
}

/* -- running it --------------------------------------------------------------------------- */

static bool end_is_used(const struct job *j, const struct perf_end *e)
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

/* Order flows as a pass visits them: comms by number, a comm's receive before its send. */
static int by_order(const void *a, const void *b)
{
	const struct flow *x = a, *y = b;
	int d = x->idx - y->idx;

	if (!d)
		d = (int)x->is_send - (int)y->is_send;
	return d ? d : x->peer - y->peer;
}

static void strand_init(struct job *j, unsigned t, unsigned *at)
{
	struct strand *s = &j->strands[t];
	unsigned i, first = *at;
	struct perf_end *e;

	s->job = j;
	s->pump = (struct pump){ .flows = j->flows + first, .stop = &j->stop,
				 .stall_ns = (uint64_t)(j->run->stall_s * 1e9) };
	for (i = 0; i < (unsigned)j->ends->n; i++) {
		e = &j->ends->v[i];
		if (end_is_used(j, e) && (unsigned)e->idx % j->run->threads == t)
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
		strand_init(j, t, &j->nflows);
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

static void format_error(const struct job *j, int rc, char *err)
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
	struct perf_segments tcp;
	int rc = job_init(&j, ctl_fd);

	ends->fab->batch = run->pattern == PERF_PINGPONG ? 1 : run->inflight;
	if (rc) {
		snprintf(err, PERF_TEXT, "%s", strerror(-rc));
		goto out;
	}
	if (j.nflows > 0)
		j.layout->lay(&j);
	rc = go(go_arg);
	if (rc)
		goto out;
	perf_segments(&tcp);
	r.cpu_ns = perf_cpu_ns();
	rc = strands_run(&j);
	r.cpu_ns = perf_cpu_ns() - r.cpu_ns;
	perf_segments(&r.tcp);
	r.tcp.sent -= tcp.sent;
	r.tcp.resent -= tcp.resent;
	if (rc) {
		format_error(&j, rc, err);
		goto out;
	}
	if (j.nflows > 0)
		result_sum(&j, &r);
	*ret = r;
out:
	job_fini(&j);
	return rc;
}
