/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf.c - performance figures of two processes, measured by the code of braid perf.
 *
 * Thresholds decide what a figure must be; without any the figures are reported, and the check is
 * skipped.
 */
#include <math.h>
#include <stdio.h>

#include "tools/compare/diff.h"
#include "tools/perf/session.h"
#include "tools/perf/stat.h"
#include "tools/validate/validate.h"

enum { ROUNDS = 7, ROUND_MS = 60, SLOW = 10 };

struct meter {
	struct perf_session s;
	struct fabric_about about;
	bool raw;
};

static void meter_open(struct validate *v, struct meter *m, enum perf_pattern pattern, int comms,
		       bool raw)
{
	struct fabric_env env = { .fabrics = fabric_table, .plugin = v->w->plugin,
				  .abi = v->w->abi, .dev = v->w->dev, .key = &v->w->key,
				  .cpu = -1 };
	struct perf_run most = { .pattern = pattern, .comms = (uint32_t)comms, .threads = 1,
				 .inflight = 16, .size = 4 << 20 };
	struct fabric_about unused;
	int rc;

	step(v, "two processes come up");
	rc = perf_session_open(&m->s, &env, 2, false, v->w->connect, 20);
	if (!rc)
		rc = perf_session_arena(&m->s, perf_arena_bytes(&most, 2));
	if (!rc)
		rc = perf_session_load(&m->s, FABRIC_PLUGIN, NULL, &m->about);
	if (!rc)
		rc = perf_session_link_all(&m->s, FABRIC_PLUGIN, pattern, comms);
	if (!rc && raw)
		rc = perf_session_load(&m->s, FABRIC_RAW, NULL, &unused);
	if (!rc && raw)
		rc = perf_session_link_all(&m->s, FABRIC_RAW, pattern, comms);
	if (rc)
		FAIL("%s", m->s.err);
	snprintf(v->nic, sizeof(v->nic), "%s", m->about.dev);
}

static void run(struct meter *m, const struct perf_run *r, struct perf_result *res)
{
	if (perf_session_run(&m->s, r, res) != 0)
		FAIL("%s", m->s.err);
}

/* Keep a round at ROUND_MS: the host may be slower than when it was calibrated. */
static void keep_pace(struct perf_run *r, const struct perf_result *res)
{
	double ns = fmax((double)res[0].ns, (double)res[1].ns);

	if (ns > SLOW * ROUND_MS * 1e6)
		r->iters = (uint64_t)fmax(2, (double)r->iters * ROUND_MS * 1e6 / ns);
}

/* The number of iterations that fill a round. */
static uint64_t calibrate(struct meter *m, struct perf_run r)
{
	struct perf_result res[2];
	double ns;

	for (r.iters = 4;; r.iters *= 4) {
		run(m, &r, res);
		ns = fmax((double)res[0].ns, (double)res[1].ns);
		if (ns > ROUND_MS * 1e6 / 8 || r.iters > 1000000)
			break;
	}
	return (uint64_t)fmax(2, (double)r.iters * ROUND_MS * 1e6 / fmax(ns, 1));
}

struct series {
	double share[ROUNDS];
	double p50[ROUNDS], p99[ROUNDS], p999[ROUNDS], rate[ROUNDS], gbit[ROUNDS], cpu[ROUNDS];
};

/* What part of a CPU the more starved of the two had: other programs may have taken the rest. */
static double share_of(const struct perf_result res[2])
{
	double share = 1;

	for (int i = 0; i < 2; i++)
		if (res[i].ns)
			share = fmin(share, (double)res[i].cpu_ns / (double)res[i].ns);
	return share;
}

static void measure(struct validate *v, struct meter *m, enum fabric_kind kind,
		    enum perf_pattern pattern, int comms, uint64_t size, struct series *ret)
{
	struct perf_run r = { .fabric = kind, .pattern = pattern, .comms = (uint32_t)comms,
			      .threads = 1, .inflight = pattern == PERF_PINGPONG ? 1 : 16,
			      .size = size, .stall_s = 10 };
	struct perf_result res[2];

	step(v, "%s of %llu bytes", perf_kinds[pattern].name, (unsigned long long)size);
	r.iters = calibrate(m, r);
	for (int i = 0; i < ROUNDS; i++) {
		double bytes, cpu;

		run(m, &r, res);
		keep_pace(&r, res);
		bytes = (double)(res[0].bytes + res[1].bytes);
		cpu = (double)(res[0].cpu_ns + res[1].cpu_ns) / 1e9;
		ret->share[i] = share_of(res);
		ret->p50[i] = res[0].lat.p50 / 1e3;
		ret->p99[i] = res[0].lat.p99 / 1e3;
		ret->p999[i] = res[0].lat.p999 / 1e3;
		ret->rate[i] = (res[0].rate + res[1].rate) / 1e6;
		ret->gbit[i] = (res[0].rate + res[1].rate) * (double)size * 8 / 1e9;
		ret->cpu[i] = bytes > 0 ? cpu / (bytes / 1e9) : 0;
	}
}

static void add_figure(struct validate *v, const char *name, const char *unit, bool more,
		       const double *samples, const double *shares)
{
	figure(v, &(struct figure){ name, unit, diff_median(samples, ROUNDS), more, samples,
				    ROUNDS, shares });
}

static void latency(struct validate *v)
{
	struct meter m;
	struct series s;

	meter_open(v, &m, PERF_PINGPONG, 1, false);
	measure(v, &m, FABRIC_PLUGIN, PERF_PINGPONG, 1, 8, &s);
	perf_session_close(&m.s);
	add_figure(v, "latency_8B_p50", "us", false, s.p50, s.share);
	add_figure(v, "latency_8B_p99", "us", false, s.p99, s.share);
	add_figure(v, "latency_8B_p999", "us", false, s.p999, s.share);
}

static void latency_large(struct validate *v)
{
	struct meter m;
	struct series s;

	meter_open(v, &m, PERF_PINGPONG, 1, false);
	measure(v, &m, FABRIC_PLUGIN, PERF_PINGPONG, 1, 65536, &s);
	perf_session_close(&m.s);
	add_figure(v, "latency_64K_p50", "us", false, s.p50, s.share);
}

static void jitter(struct validate *v)
{
	double ratio[ROUNDS];
	struct meter m;
	struct series s;

	meter_open(v, &m, PERF_PINGPONG, 1, false);
	measure(v, &m, FABRIC_PLUGIN, PERF_PINGPONG, 1, 8, &s);
	perf_session_close(&m.s);
	for (int i = 0; i < ROUNDS; i++)
		ratio[i] = s.p99[i] / s.p50[i];
	add_figure(v, "jitter_p99_over_p50", "times", false, ratio, s.share);
}

static void bandwidth(struct validate *v, enum perf_pattern pattern, int comms, uint64_t size,
		      const char *name)
{
	struct meter m;
	struct series s;

	meter_open(v, &m, pattern, comms, false);
	measure(v, &m, FABRIC_PLUGIN, pattern, comms, size, &s);
	perf_session_close(&m.s);
	add_figure(v, name, "Gbit/s", true, s.gbit, s.share);
}

static void one_way(struct validate *v)
{
	bandwidth(v, PERF_ONEWAY, 1, 1 << 20, "bw_1M");
}

static void one_way_middle(struct validate *v)
{
	bandwidth(v, PERF_ONEWAY, 1, 65536, "bw_64K");
}

static void four_comms(struct validate *v)
{
	bandwidth(v, PERF_ONEWAY, 4, 1 << 20, "bw_1M_4_comms");
}

static void both_ways(struct validate *v)
{
	bandwidth(v, PERF_BIDIR, 1, 1 << 20, "bw_1M_both_ways");
}

static void rate(struct validate *v)
{
	struct meter m;
	struct series s;

	meter_open(v, &m, PERF_RATE, 1, false);
	measure(v, &m, FABRIC_PLUGIN, PERF_RATE, 1, 8, &s);
	perf_session_close(&m.s);
	add_figure(v, "rate_8B", "million/s", true, s.rate, s.share);
}

static void cpu(struct validate *v)
{
	struct meter m;
	struct series s;

	meter_open(v, &m, PERF_ONEWAY, 1, false);
	measure(v, &m, FABRIC_PLUGIN, PERF_ONEWAY, 1, 1 << 20, &s);
	perf_session_close(&m.s);
	add_figure(v, "cpu_1M", "s/GB", false, s.cpu, s.share);
}

/* Compare with plain TCP, between the same processes. */
static void beside(struct validate *v, bool lat)
{
	enum perf_pattern pattern = lat ? PERF_PINGPONG : PERF_ONEWAY;
	double ratio[ROUNDS];
	struct meter m;
	struct series ours, raw;

	meter_open(v, &m, pattern, 1, true);
	measure(v, &m, FABRIC_PLUGIN, pattern, 1, lat ? 8 : 1 << 20, &ours);
	measure(v, &m, FABRIC_RAW, pattern, 1, lat ? 8 : 1 << 20, &raw);
	perf_session_close(&m.s);
	for (int i = 0; i < ROUNDS; i++)
		ratio[i] = lat ? ours.p50[i] / raw.p50[i] : ours.gbit[i] / raw.gbit[i];
	add_figure(v, lat ? "latency_8B_over_tcp" : "bw_1M_over_tcp", "times", !lat, ratio,
		   ours.share);
}

static void beside_latency(struct validate *v)
{
	beside(v, true);
}

static void beside_bandwidth(struct validate *v)
{
	beside(v, false);
}

static const char slow[] =
	"braid doctor says what makes a host slow; braid topo, whether the NIC is far from the CPU";

const struct vcheck validate_perf[] = {
	{ "perf-latency", "Latency of 8 bytes", slow, latency, 0, 40 },
	{ "perf-latency-64k", "Latency of 64 KiB", slow, latency_large, 0, 40 },
	{ "perf-jitter", "How much the slowest hundredth is slower", slow, jitter, V_FULL, 40 },
	{ "perf-bandwidth", "Bandwidth of messages of 1 MiB", slow, one_way, 0, 40 },
	{ "perf-bandwidth-64k", "Bandwidth of messages of 64 KiB", slow, one_way_middle, V_FULL,
	  40 },
	{ "perf-bandwidth-4", "Bandwidth of 4 comms", slow, four_comms, V_FULL, 40 },
	{ "perf-bandwidth-both", "Bandwidth of both ways together", slow, both_ways, V_FULL, 40 },
	{ "perf-rate", "Messages of 8 bytes a second", slow, rate, 0, 40 },
	{ "perf-cpu", "CPU time for each GB", slow, cpu, 0, 40 },
	{ "perf-tcp-latency", "Latency beside plain TCP", slow, beside_latency, V_FULL, 60 },
	{ "perf-tcp-bandwidth", "Bandwidth beside plain TCP", slow, beside_bandwidth, V_FULL, 60 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
