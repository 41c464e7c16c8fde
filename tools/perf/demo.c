/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * demo.c - `braid demo`: the communication of a data-parallel training step, on this machine.
 *
 * Processes load the plugin by its NCCL interface, as NCCL's proxy threads would, and all-reduce
 * ResNet-50's gradients over TCP, bucket after bucket; every sum of every process is compared with
 * the known result.  Then come a ping-pong and a stream.  The same processes run the same algorithm
 * over raw TCP (raw.c) in turn, so the two columns compare.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/cmd.h"
#include "tools/opt.h"
#include "tools/perf/model.h"
#include "tools/perf/session.h"
#include "tools/perf/stat.h"

enum { STEPS_MAX = 100, SMALL = 8, MIDDLE = 64 << 10, LARGE = 1 << 20, PINGS = 3000, STREAM = 800 };
enum { COLUMNS = FABRIC_RAW + 1 };	/* the plugin and raw TCP: one-sided fabrics have no sums */

static const double ENOUGH_S = 10;	/* no further step after that */

struct demo {
	struct fabric_env env;
	int procs, steps;
	struct perf_session s;
	struct fabric_about about[COLUMNS];
	struct perf_model model;
	double step_s[COLUMNS][STEPS_MAX];
	int done[COLUMNS];
	uint64_t values, wrong;
};

/* -- running ------------------------------------------------------------------------------ */

static int run(struct demo *d, enum fabric_kind kind, enum perf_pattern pattern, uint64_t size,
	       uint64_t iters, uint32_t step, struct perf_result *res)
{
	const struct perf_run r = {
		.fabric = kind, .pattern = pattern, .comms = 1, .threads = 1,
		.inflight = (uint32_t)perf_kinds[pattern].inflight, .size = size, .iters = iters,
		.step = step, .check = 0, .stall_s = 20,
	};

	return perf_session_run(&d->s, &r, res);
}

/* One step over one fabric: the time of the slowest process; step 0 warms up. */
static int step(struct demo *d, enum fabric_kind kind, int nth)
{
	struct perf_result res[PERF_PROCS_MAX];
	double slowest = 0;
	int i, rc;

	rc = run(d, kind, PERF_DDP, 0, 1, (uint32_t)nth, res);
	for (i = 0; !rc && i < d->procs; i++) {
		slowest = fmax(slowest, (double)res[i].ns / 1e9);
		d->values += res[i].values;
		d->wrong += res[i].wrong;
	}
	if (!rc && nth > 0)
		d->step_s[kind][d->done[kind]++] = slowest;
	return rc;
}

static int steps(struct demo *d)
{
	uint64_t start = perf_now_ns();
	enum fabric_kind kind;
	int nth, rc;

	for (nth = 0; nth <= d->steps; nth++) {
		for (kind = 0; kind <= FABRIC_RAW; kind++) {
			rc = step(d, kind, nth);
			if (rc)
				return rc;
		}
		if (nth > 0 && (double)(perf_now_ns() - start) / 1e9 > ENOUGH_S)
			break;
	}
	return 0;
}

/* Make the ring's comms, and one from rank 1 to rank 0 if the ring has none. */
static int links(struct demo *d, enum fabric_kind kind)
{
	struct perf_linked unused;
	int rc = perf_session_load(&d->s, kind, NULL, &d->about[kind]);

	if (!rc)
		rc = perf_session_link_all(&d->s, kind, PERF_DDP, 1);
	if (!rc && d->procs > 2)
		rc = perf_session_link(&d->s, kind, 1, 0, 0, &unused);
	return rc;
}

static int start(struct demo *d)
{
	const struct perf_run stream = {
		.pattern = PERF_ONEWAY, .comms = 1, .inflight = 8, .size = LARGE};
	const struct perf_run ddp = { .pattern = PERF_DDP, .comms = 1, .inflight = 8 };
	uint64_t bytes = perf_arena_bytes(&ddp, d->procs),
		 other = perf_arena_bytes(&stream, d->procs);
	enum fabric_kind kind;
	int rc = perf_session_open(&d->s, &d->env, d->procs, false, NULL, 60);

	if (!rc)
		rc = perf_session_arena(&d->s, bytes > other ? bytes : other);
	for (kind = 0; kind <= FABRIC_RAW && !rc; kind++)
		rc = links(d, kind);
	return rc;
}

/* -- saying ------------------------------------------------------------------------------- */

/* One figure of both, and the plugin's divided by raw TCP's. */
static void line(const char *what, int digits, const double *v, const char *better)
{
	printf("  %-36s %11.*f %11.*f %7.2f  %s\n", what, digits, v[FABRIC_PLUGIN], digits,
	       v[FABRIC_RAW], v[FABRIC_PLUGIN] / v[FABRIC_RAW], better);
}

static void print_header(const struct demo *d)
{
	const struct fabric_about *a = &d->about[FABRIC_PLUGIN];

	printf("The communication of a training step, on this machine\n\n");
	printf("  plugin     %s, NCCL net ABI v%d, device %s\n", a->name, a->abi, a->dev);
	printf("  processes  %d on %d CPUs, each loads the plugin as NCCL's proxy does\n", d->procs,
	       perf_cpus());
	printf("  gradients  ResNet-50's: %u tensors, %llu float32, %u buckets\n", d->model.tensors,
	       (unsigned long long)d->model.params, d->model.buckets);
	printf("             as PyTorch DDP makes them, last layer first; ring all-reduce\n\n");
	fflush(stdout);
}

static void print_steps(struct demo *d)
{
	double s[COLUMNS], ms[COLUMNS], gb_s[COLUMNS], n = d->procs;
	enum fabric_kind kind;
	char what[64];

	for (kind = 0; kind <= FABRIC_RAW; kind++) {
		s[kind] = perf_median(d->step_s[kind], d->done[kind]);
		ms[kind] = s[kind] * 1e3;
		gb_s[kind] =
			(double)d->model.params * sizeof(float) * 2 * (n - 1) / n / 1e9 / s[kind];
	}
	printf("  %-36s %11.11s %11s %7s  %s\n", "", d->about[FABRIC_PLUGIN].name, "raw TCP",
	       "ratio", "better");
	snprintf(what, sizeof(what), "all-reduce, ms per step, median of %d",
		 d->done[FABRIC_PLUGIN]);
	line(what, 1, ms, "less");
	line("all-reduce, bus bandwidth, GB/s", 3, gb_s, "more");
	fflush(stdout);
}

static int pings(struct demo *d, uint64_t size, const char *name)
{
	struct perf_result res[PERF_PROCS_MAX];
	double p50[COLUMNS], p99[COLUMNS];
	enum fabric_kind kind;
	char what[64];
	int rc;

	for (kind = 0; kind <= FABRIC_RAW; kind++) {
		rc = run(d, kind, PERF_PINGPONG, size, PINGS / 10, 0, res);
		if (!rc)
			rc = run(d, kind, PERF_PINGPONG, size, PINGS, 0, res);
		if (rc)
			return rc;
		p50[kind] = res[0].lat.p50 / 1e3;
		p99[kind] = res[0].lat.p99 / 1e3;
	}
	snprintf(what, sizeof(what), "%s, half a round trip, us, median", name);
	line(what, 2, p50, "less");
	snprintf(what, sizeof(what), "%s, 99th percentile", name);
	line(what, 2, p99, "less");
	fflush(stdout);
	return 0;
}

static int stream(struct demo *d)
{
	struct perf_result res[PERF_PROCS_MAX];
	double gbit_s[COLUMNS];
	enum fabric_kind kind;
	int rc;

	for (kind = 0; kind <= FABRIC_RAW; kind++) {
		rc = run(d, kind, PERF_ONEWAY, LARGE, STREAM / 10, 0, res);
		if (!rc)
			rc = run(d, kind, PERF_ONEWAY, LARGE, STREAM, 0, res);
		if (rc)
			return rc;
		gbit_s[kind] = (double)res[1].bytes * 8 / (double)res[1].ns;
	}
	line("1 MiB messages one way, Gbit/s", 2, gbit_s, "more");
	return 0;
}

static int verdict(const struct demo *d)
{
	printf("\n%llu sums were compared with the known result, over both: ",
	       (unsigned long long)d->values);
	if (d->wrong)
		printf("%llu are WRONG.\n", (unsigned long long)d->wrong);
	else
		printf("all are right.\n");
	return d->wrong ? 1 : 0;
}

static int demo(struct demo *d)
{
	int rc = start(d);

	if (!rc) {
		print_header(d);
		rc = steps(d);
	}
	if (!rc)
		print_steps(d);
	if (!rc)
		rc = pings(d, SMALL, "8 B");
	if (!rc)
		rc = pings(d, MIDDLE, "64 KiB");
	if (!rc)
		rc = stream(d);
	if (rc) {
		fflush(stdout);
		opt_fail("braid demo", "[not-measured]", "%s", d->s.err);
	}
	rc = rc ? 1 : verdict(d);
	perf_session_close(&d->s);
	return rc;
}

int cmd_demo(int argc, char **argv)
{
	struct demo d = { .procs = 4, .steps = 3,
			  .env = { .fabrics = fabric_table, .cpu = -1 } };
	const struct opt rows[] = {
		{OPT_INT, "procs", "N", "processes (4)", &d.procs, 2, 16},
		{OPT_INT, "steps", "N", "training steps that are timed (3)", &d.steps, 1,
		 STEPS_MAX},
		{OPT_TEXT, "plugin", "PATH", "any NCCL net plugin's .so", &d.env.plugin, 0, 0},
		{OPT_INT, "abi", "V", "its ABI version (the newest)", &d.env.abi, 5, 12},
		{OPT_TEXT, "dev", "DEV", "device, by number or name", &d.env.dev, 0, 0},
		{OPT_FLAG, "verbose", NULL, "print what the plugin logs", &d.env.verbose, 0, 0},
		OPT_SUCH_AS("braid demo", "gradients of four processes, and raw TCP beside them"),
		OPT_SUCH_AS("braid demo --plugin /opt/other/libnccl-net.so",
			    "the same with another plugin"),
		{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
	};
	enum opt_end end;

	end = opt_parse("braid demo",
			"All-reduce ResNet-50's gradients, check every sum, compare with raw TCP.",
			rows, argc, argv);
	if (end != OPT_RUN)
		return end;
	if (plugin_find("braid demo", &d.env.plugin))
		return 1;
	perf_resnet50(&d.model);
	return demo(&d);
}
