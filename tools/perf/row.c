/* SPDX-License-Identifier: BSD-3-Clause */
/* row.c - one measurement: how many iterations it has, and all workers' results as one row. */
#include <math.h>

#include "tools/perf/perf.h"

enum { SEGMENTS_LEAST = 20, SEGMENT_MOST = 65536 };

enum fabric_kind perf_first(const struct perf_options *o)
{
	return o->raw_only ? FABRIC_RAW : o->one_sided;
}

enum fabric_kind perf_base(const struct perf_options *o)
{
	if (o->raw_only)
		return FABRIC_KINDS;
	return o->raw ? FABRIC_RAW : o->one_sided != FABRIC_PLUGIN ? FABRIC_PLUGIN : FABRIC_KINDS;
}

struct perf_run perf_run_of(const struct perf_options *o, enum fabric_kind kind, uint64_t size,
			    uint64_t iters)
{
	return (struct perf_run){
		.fabric = kind, .pattern = o->pattern, .comms = (uint32_t)o->comms,
		.threads = (uint32_t)o->threads, .inflight = (uint32_t)o->inflight,
		.check = o->check, .size = size, .iters = iters, .stall_s = o->timeout_s / 2,
	};
}

/* All workers' results as one: the slowest worker's time; messages, bytes and CPU of all. */
static void row_sum(const struct perf_result *res, int nprocs, struct perf_row *row)
{
	uint64_t sent = 0, resent = 0;
	double cpu = 0;
	int i;

	row->cpu_share = 1;
	for (i = 0; i < nprocs; i++) {
		row->seconds = fmax(row->seconds, (double)res[i].ns / 1e9);
		row->bytes += (double)res[i].bytes;
		row->messages += (double)res[i].messages;
		row->msg_s += res[i].rate;
		row->values += res[i].values;
		row->wrong += res[i].wrong;
		sent = sent > res[i].tcp.sent ? sent : res[i].tcp.sent;
		resent = resent > res[i].tcp.resent ? resent : res[i].tcp.resent;
		cpu += (double)res[i].cpu_ns / 1e9;
		if (res[i].ns)
			row->cpu_share =
				fmin(row->cpu_share, (double)res[i].cpu_ns / (double)res[i].ns);
	}
	row->lat = res[0].lat;
	/* Fewer segments than the data would fill: something else than TCP carried them. */
	if (sent >= SEGMENTS_LEAST && (double)sent * SEGMENT_MOST >= row->bytes)
		row->resent = fmin((double)resent / (double)sent, 1);
	if (row->seconds <= 0)
		return;
	row->gbit_s = row->msg_s * (double)row->size * 8 / 1e9;
	row->cpu_s_per_gb = row->bytes > 0 ? cpu / (row->bytes / 1e9) : 0;
}

int perf_once(struct perf_session *s, const struct perf_options *o, enum fabric_kind kind,
	      uint64_t size, uint64_t iters, struct perf_row *ret)
{
	struct perf_run run = perf_run_of(o, kind, size, iters);
	struct perf_result res[PERF_PROCS_MAX];
	int rc = perf_session_run(s, &run, res);

	*ret = (struct perf_row){ .kind = kind, .size = size, .iters = iters };
	if (!rc)
		row_sum(res, s->nprocs, ret);
	return rc;
}

uint64_t perf_pace(const struct perf_options *o, const struct perf_row *row)
{
	return (uint64_t)fmin(fmax((double)row->iters * o->seconds / fmax(row->seconds, 1e-9), 1),
			      2e9);
}

int perf_measure(struct perf_session *s, const struct perf_options *o, enum fabric_kind kind,
		 uint64_t size, uint64_t *iters, struct perf_row *ret)
{
	int rc, tries = 3;
	double n;

	do {
		rc = perf_once(s, o, kind, size, *iters, ret);
		if (rc || o->iters > 0)
			return rc;
		/* A pause counts no more than twice; a few iterations are not scaled up too far. */
		n = (double)*iters;
		*iters = (uint64_t)fmin(fmax((double)perf_pace(o, ret), fmax(n / 2, 1)), n * 100);
	} while (ret->seconds < o->seconds / 4 && --tries > 0);
	return 0;
}

/* Find how many iterations fill o->seconds, which warms everything up. */
static int calibrate(struct perf_session *s, const struct perf_options *o, enum fabric_kind kind,
		     uint64_t size, uint64_t *iters)
{
	double want = o->seconds, grow, n = 2;
	struct perf_row row;
	int rc;

	for (;;) {
		rc = perf_once(s, o, kind, size, (uint64_t)n, &row);
		if (rc)
			return rc;
		if (row.seconds >= want / 10 || n >= 1e9)
			break;
		grow = want / 8 / fmax(row.seconds, 1e-9);
		n = floor(n * fmin(fmax(grow, 2), 16));
	}
	*iters = perf_pace(o, &row);
	return 0;
}

int perf_warm_up(struct perf_session *s, const struct perf_options *o, enum fabric_kind kind,
		 uint64_t size, uint64_t *iters)
{
	double warmup = o->warmup;
	struct perf_row unused;

	if (o->iters == 0 && *iters == 0)
		return calibrate(s, o, kind, size, iters);
	if (o->iters > 0)
		*iters = (uint64_t)o->iters;
	if (warmup < 0)
		warmup = fmax(1, floor((double)*iters / 10));
	return warmup > 0 ? perf_once(s, o, kind, size, (uint64_t)warmup, &unused) : 0;
}

const struct perf_row *perf_row_find(const struct perf_report *rep, enum fabric_kind kind,
				     uint64_t size, int round)
{
	const struct perf_row *r;

	for (r = rep->rows; r < rep->rows + rep->nrows; r++)
		if (r->kind == kind && r->size == size && r->round == round)
			return r;
	return NULL;
}
