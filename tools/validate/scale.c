/* SPDX-License-Identifier: BSD-3-Clause */
/* scale.c - what many comms and many processes cost, and whether close frees it. */
#include <stdio.h>

#include "tools/perf/session.h"
#include "tools/perf/stat.h"
#include "tools/validate/far.h"

/* All-to-all among n processes, `comms` comms each, in one byte-checked round. */
static void mesh(struct validate *v, int n, int comms)
{
	struct fabric_env env = { .fabrics = fabric_table, .plugin = v->w->plugin,
				  .abi = v->w->abi, .dev = v->w->dev, .key = &v->w->key,
				  .cpu = -1 };
	struct perf_run run = { .fabric = FABRIC_PLUGIN, .pattern = PERF_ALLTOALL,
				.comms = (uint32_t)comms, .threads = 1, .inflight = 1, .check = 1,
				.size = 20000, .iters = 3, .stall_s = 10 };
	struct perf_result res[PERF_PROCS_MAX];
	struct fabric_about about;
	struct perf_session s;
	uint64_t began = perf_now_ns(), ns, wrong = 0;
	double ms;

	step(v, "%d processes", n);
	if (perf_session_open(&s, &env, n, false, v->w->connect, 30) != 0 ||
	    perf_session_arena(&s, perf_arena_bytes(&run, n)) != 0 ||
	    perf_session_load(&s, FABRIC_PLUGIN, NULL, &about) != 0)
		FAIL("%s", s.err);
	step(v, "a comm from each of %d processes to each", n);
	if (perf_session_link_all(&s, FABRIC_PLUGIN, PERF_ALLTOALL, comms) != 0)
		FAIL("%s", s.err);
	ms = (double)(perf_now_ns() - began) / 1e6;
	step(v, "messages from each of %d processes to each", n);
	if (perf_session_run(&s, &run, res) != 0 ||
	    perf_session_unlink(&s, FABRIC_PLUGIN, &ns) != 0)
		FAIL("%s", s.err);
	for (int i = 0; i < n; i++)
		wrong += res[i].wrong;
	perf_session_close(&s);
	if (wrong)
		FAIL("%llu values are wrong", (unsigned long long)wrong);
	figure(v, &(struct figure){ "mesh_setup", "ms", ms, false, &ms, 1, NULL });
	saw(v, "%d comms", n * (n - 1) * comms);
}

static void mesh_4(struct validate *v)
{
	mesh(v, 4, 1);
}

static void mesh_8(struct validate *v)
{
	mesh(v, 8, 4);
}

static long resident_kb(void)
{
	char line[128];
	long kb = 0;
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %ld", &kb) == 1)
			break;
	if (f)
		fclose(f);
	return kb;
}

enum { MANY = 128 };

struct cost {
	double fds, threads, kb;
};

/* MANY comms with both ends here; returns the cost of one. */
static struct cost many(struct validate *v, struct pair *p)
{
	struct counts a, b;
	long kb;

	net_up(v);
	pair_open(v->net, &p[0]);
	exchange(v->net, p[0].send, p[0].recv, 1000, 1);
	a = counts_now();
	kb = resident_kb();
	for (int i = 1; i < MANY; i++) {
		step(v, "comm %d of %d", i + 1, MANY);
		pair_open(v->net, &p[i]);
	}
	b = counts_now();
	return (struct cost){
		.fds = ((double)b.fds - a.fds) / (MANY - 1),
		.threads = ((double)b.threads - a.threads) / (MANY - 1),
		.kb = (double)(resident_kb() - kb) / (MANY - 1),
	};
}

static struct pair pairs[MANY];

static void descriptors(struct validate *v)
{
	struct cost c = many(v, pairs);

	figure(v, &(struct figure){ "fds_per_comm", "descriptors", c.fds, false, &c.fds, 1, NULL });
	if (c.fds > 32)
		FAIL("%.1f descriptors for each comm: %d comms take %.0f", c.fds, 1000,
		     c.fds * 1000);
}

static void threads(struct validate *v)
{
	struct cost c = many(v, pairs);

	figure(v, &(struct figure){ "threads_per_comm", "threads", c.threads, false, &c.threads,
				    1, NULL });
	if (c.threads > 4.5)
		FAIL("%.1f threads for each comm", c.threads);
}

static void memory(struct validate *v)
{
	struct cost c = many(v, pairs);

	figure(v, &(struct figure){ "kb_per_comm", "KiB", c.kb, false, &c.kb, 1, NULL });
	if (c.kb > 64 * 1024)
		FAIL("%.0f KiB for each comm", c.kb);
}

/* All resources must be free again within 10 s of the last close. */
static void reaped(struct validate *v)
{
	struct counts before, after;
	uint64_t began, end;
	double s;

	net_up(v);
	before = counts_now();
	for (int i = 0; i < MANY; i++) {
		pair_open(v->net, &pairs[i]);
		exchange(v->net, pairs[i].send, pairs[i].recv, 100, 1);
	}
	for (int i = 0; i < MANY; i++)
		pair_close(v->net, &pairs[i]);
	began = now_us();
	end = deadline_ms(15000);
	step(v, "waiting for descriptors to be given back");
	do {
		nap_ms(20);
		after = counts_now();
	} while (after.fds > before.fds + 8 && now_us() < end);
	if (after.fds > before.fds + 8)
		FAIL("%u descriptors, %u 15 s after the last of %d comms was closed", before.fds,
		     after.fds, MANY);
	s = (double)(now_us() - began) / 1e6;
	figure(v, &(struct figure){ "reap", "s", s, false, &s, 1, NULL });
}

static void setup(struct validate *v)
{
	enum { N = 32 };
	double ms[N], sum = 0;

	both_up(v);
	for (int i = 0; i < N; i++) {
		uint64_t began = now_us();
		struct conn conn = conn_open(v, true);

		ms[i] = (double)(now_us() - began) / 1000;
		sum += i ? ms[i] : 0;
		conn_close(v, &conn);
	}
	figure(v, &(struct figure){ "setup_first", "ms", ms[0], false, ms, 1, NULL });
	figure(v, &(struct figure){ "setup_next", "ms", sum / (N - 1), false, ms + 1, N - 1,
				    NULL });
}

static const char report[] = "Large jobs run out of it: ulimit -n higher, and report it";

const struct vcheck validate_scale[] = {
	{ "scale-mesh", "4 processes, each with each", "braid doctor --only limits,net", mesh_4,
	  V_SOAK, 40 },
	{ "scale-mesh-8", "8 processes, each with each, 4 comms",
	  "braid doctor --only limits,net", mesh_8, V_FULL, 120 },
	{ "scale-fds", "Descriptors for each comm", report, descriptors, V_HERE, 40 },
	{ "scale-threads", "Threads for each comm", report, threads, V_HERE | V_FULL, 40 },
	{ "scale-memory", "Memory for each comm", report, memory, V_HERE | V_FULL, 40 },
	{ "scale-reap", "What closed comms had is given back", report, reaped, V_HERE | V_FULL,
	  60 },
	{ "scale-setup", "Comms come up one after the other", "braid doctor --peer HOST", setup, 0,
	  40 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
