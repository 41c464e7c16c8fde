/* SPDX-License-Identifier: BSD-3-Clause */
/* kinds.c - the patterns: their names and defaults, and which ranks send to which. */
#include "tools/perf/pattern.h"

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

int perf_hier_group(int n)
{
	return n % 2 ? n : n / 2;
}

static bool edge_hier(int n, int src, int dst)
{
	int g = perf_hier_group(n);

	if (src == dst || src >= n || dst >= n)
		return false;
	return src / g == dst / g ? (src % g + 1) % g == dst % g : src % g == dst % g;
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
		       PERF_SHOWS_COLL, 2, PERF_PROCS_MAX, 4, 4, "64k:64m", edge_hier},
	[PERF_SPARSE] = {"sparse", "all-gather of a hundredth: values and their indices",
			 PERF_SHOWS_COLL, 2, PERF_PROCS_MAX, 4, 4, "64k:64m", edge_ring},
	[PERF_SETUP] = {"setup", "connection set-up, one comm after another", PERF_SHOWS_SETUP, 2,
			2, 2, 1, "8", edge_forward},
	[PERF_DDP] = {"ddp", "a training step of ResNet-50", PERF_SHOWS_COLL, 2, PERF_PROCS_MAX, 4,
		      8, "8", edge_ring},
};
