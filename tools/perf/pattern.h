/* SPDX-License-Identifier: BSD-3-Clause */
/* pattern.h - what a worker runs: a pattern of messages over its comms, and what it measured. */
#ifndef BRAID_TOOLS_PERF_PATTERN_H
#define BRAID_TOOLS_PERF_PATTERN_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/perf/fabric.h"
#include "tools/perf/stat.h"

enum {
	PERF_PROCS_MAX = 64,
	PERF_COMMS_MAX = 1024,		/* idx of the comms from one rank to another */
	PERF_THREADS_MAX = 64,
	PERF_INFLIGHT_MAX = 32,		/* NCCL's own bound for one comm */
	PERF_SIZES_MAX = 64,
	PERF_TEXT = 1024,		/* a plugin's longest line, and whose it is */
	PERF_HOST = 64,			/* a host's name, or its kernel's */
};

#define PERF_SIZE_MAX (UINT64_C(1) << 30)
#define PERF_ARENA_MAX (UINT64_C(16) << 30)

enum perf_pattern {
	PERF_PINGPONG,
	PERF_ONEWAY,
	PERF_BIDIR,
	PERF_RATE,
	PERF_ALLREDUCE,
	PERF_ALLTOALL,
	PERF_INCAST,
	PERF_HIER,
	PERF_SPARSE,
	PERF_SETUP,
	PERF_DDP,
	PERF_PATTERNS,
};

enum perf_shows { PERF_SHOWS_LATENCY, PERF_SHOWS_BANDWIDTH, PERF_SHOWS_RATE, PERF_SHOWS_COLL,
		  PERF_SHOWS_SETUP };

struct perf_kind {			/* a pattern as the command line and the reports see it */
	const char *name;
	const char *help;
	enum perf_shows shows;
	int procs_least, procs_most, procs;	/* and the default */
	int inflight;			/* the default */
	const char *sizes;		/* the default */
	bool (*edge)(int n, int src, int dst);	/* is there a comm from src to dst */
};

extern const struct perf_kind perf_kinds[PERF_PATTERNS];

/* Hierarchical: how many ranks share a host; the first half is on one, the rest on another. */
int perf_hier_group(int n);

struct perf_run {			/* crosses hosts: fixed types, no pointers */
	uint32_t fabric, pattern;
	uint32_t comms, threads, inflight;
	uint32_t check;
	uint32_t step;			/* varies the data */
	uint32_t pad;
	uint64_t size, iters;
	double stall_s;			/* give up if nothing moves for so long */
};

struct perf_result {
	uint64_t ns;			/* go to the last completion, here */
	uint64_t messages, bytes;	/* received here */
	double rate;			/* messages received a second while all comms were busy */
	uint64_t cpu_ns;		/* user and system, all threads of the process */
	uint64_t values, wrong;		/* checked, and found wrong */
	struct perf_latency lat;
	struct perf_segments tcp;	/* of this host meanwhile */
};

/* Memory a worker needs for `run` at its largest size. */
uint64_t perf_arena_bytes(const struct perf_run *run, int nprocs);

struct perf_end {			/* of a worker's table */
	int peer, idx;
	bool is_send;
	void *comm;
	void *mr;
};

struct perf_ends {			/* all of one fabric */
	struct fabric *fab;
	int n, room;
	struct perf_end *v;
};

struct perf_arena {
	char *base;
	uint64_t size;
};

/* Run on `ends`.  go() is called when this worker is ready, and returns when all are. */
int perf_pattern_run(const struct perf_run *run, int rank, int nprocs, struct perf_ends *ends,
		     struct perf_arena *arena, int ctl_fd, int (*go)(void *), void *go_arg,
		     struct perf_result *ret, char *err);

#endif
