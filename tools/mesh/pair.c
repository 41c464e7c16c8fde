/* SPDX-License-Identifier: BSD-3-Clause */
/* pair.c - one pair of hosts: latency, and bandwidth in each direction, in one session of two. */
#include <errno.h>
#include <string.h>

#include "tools/mesh/mesh.h"

enum { MORE_S = 8, RUN_TIMES = 10, SMALL = 8 };

static struct perf_options options_of(const struct mesh_options *o, enum perf_pattern pattern)
{
	return (struct perf_options){
		.pattern = pattern, .env = o->env, .procs = 2, .comms = 1, .threads = 1,
		.inflight = perf_kinds[pattern].inflight, .warmup = -1,
		.seconds = pattern == PERF_PINGPONG ? o->seconds / 3 : o->seconds,
		.timeout_s = o->timeout_s,
	};
}

static int measure(struct perf_session *s, const struct mesh_options *o, enum perf_pattern pattern,
		   uint64_t size, struct perf_row *row)
{
	struct perf_options po = options_of(o, pattern);
	enum fabric_kind kind = o->raw ? FABRIC_RAW : FABRIC_PLUGIN;
	uint64_t iters = 0;
	int rc = perf_warm_up(s, &po, kind, size, &iters);

	return rc ? rc : perf_measure(s, &po, kind, size, &iters, row);
}

static int connect_both(struct perf_session *s, const struct mesh_options *o,
			struct mesh_took *ret)
{
	struct perf_options po = options_of(o, PERF_ONEWAY);
	enum fabric_kind kind = o->raw ? FABRIC_RAW : FABRIC_PLUGIN;
	struct perf_run run = perf_run_of(&po, kind, o->size, 1);
	struct fabric_about about;
	int i, rc;

	rc = perf_session_arena(s, perf_arena_bytes(&run, 2));
	if (!rc)
		rc = perf_session_load(s, kind, NULL, &about);
	if (rc)
		return rc;
	snprintf(ret->over, sizeof(ret->over), "%s", about.name);
	for (i = 0; i < 2; i++) {
		snprintf(ret->nic[i], sizeof(ret->nic[i]), "%s", s->w[i].about.dev);
		ret->speed_mbps[i] = s->w[i].about.speed_mbps;
	}
	return perf_session_link_all(s, kind, PERF_PINGPONG, 1);
}

/* With two ranks, incast is the stream from rank 1 to rank 0. */
static int measure_all(struct perf_session *s, const struct mesh_options *o, struct mesh_took *ret)
{
	static const enum perf_pattern ways[2] = { PERF_ONEWAY, PERF_INCAST };
	struct perf_row row;
	int i, rc = measure(s, o, PERF_PINGPONG, SMALL, &row);

	ret->latency_s = row.lat.p50 / 1e9;
	ret->least_s = row.cpu_share < MESH_CPU ? 0 : row.lat.min / 1e9;
	for (i = 0; i < 2 && !rc; i++) {
		rc = measure(s, o, ways[i], o->size, &row);
		ret->bytes_s[i] = row.msg_s * (double)o->size;
		ret->resent[i] = row.resent;
		ret->cpu[i] = row.cpu_share;
	}
	return rc;
}

void mesh_pair_measure(const struct mesh_report *r, const struct mesh_options *o, int a, int b,
		       struct mesh_took *ret)
{
	const char *where[PERF_PROCS_MAX] = { NULL };
	const int host[2] = { a, b };
	struct perf_session s;
	int i, tries = 2;

	*ret = (struct mesh_took){ .rc = 0 };
	for (i = 0; i < 2; i++)
		where[i] = r->hosts[host[i]].where[0] ? r->hosts[host[i]].where : NULL;
	do {
		ret->rc = perf_session_open_at(&s, &o->env, 2, false, where,
					       o->timeout_s + MORE_S);
		ret->unreached = !ret->rc ? 0 : s.w[0].fd < 0 ? 1 : s.w[1].fd < 0 ? 2 : 0;
		if (ret->unreached && tries > 1)
			perf_session_close(&s);
	} while (ret->unreached && --tries > 0);
	s.run_s = RUN_TIMES * o->seconds;
	for (i = 0; i < 2 && !ret->rc; i++) {
		snprintf(ret->host[i], sizeof(ret->host[i]), "%s", s.w[i].host);
		snprintf(ret->kernel[i], sizeof(ret->kernel[i]), "%s", s.w[i].kernel);
		snprintf(s.w[i].where, sizeof(s.w[i].where), "%.90s", r->hosts[host[i]].name);
	}
	if (!ret->rc)
		ret->rc = connect_both(&s, o, ret);
	if (!ret->rc)
		ret->rc = measure_all(&s, o, ret);
	if (ret->rc)
		snprintf(ret->err, sizeof(ret->err), "%s", s.err[0] ? s.err : strerror(-ret->rc));
	perf_session_close(&s);
}
