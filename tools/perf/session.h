/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * session.h - the coordinator's end of a session.
 *
 * A session has one coordinator and n workers, each a process of its own, forked before any
 * plugin is loaded; on another host a worker is a child of `braid perf --listen`.  The
 * coordinator speaks to each over a stream (a socketpair or TCP) in messages of one fixed size,
 * one question, one answer:
 *
 *	hello    who you are                         -> process id, host
 *	load     open a fabric (plugin or raw TCP)   -> what it is
 *	listen   for rank p's comm i                 -> a handle
 *	connect  to that handle / accept             -> how long it took
 *	arena    get memory, register it everywhere
 *	run      make ready                          -> ready; go -> a result
 *	close    a fabric's comms                    -> how long it took
 *
 * A worker's loops are NCCL's: per pass and comm post one if a slot is free, else test the oldest;
 * sched_yield when a whole pass moved nothing.
 */
#ifndef BRAID_TOOLS_PERF_SESSION_H
#define BRAID_TOOLS_PERF_SESSION_H

#include <signal.h>

#include "tools/perf/fabric.h"
#include "tools/perf/pattern.h"

struct perf_session {
	int nprocs;
	struct perf_worker {
		int fd;
		int pid;		/* 0: on another host */
		char where[96];		/* for messages: "rank 1 (pid 4711 on host)" */
		char host[PERF_HOST], kernel[PERF_HOST];	/* as it says */
		struct fabric_about about;	/* of the fabric loaded last */
	} w[PERF_PROCS_MAX];
	double timeout_s;		/* for one answer */
	double run_s;			/* and so much more where something is measured */
	const volatile sig_atomic_t *stop;	/* set: calls end with -EINTR; may be NULL */
	char err[PERF_TEXT * 2];
};

/* Parameters for a plugin before it is loaded: none (""), or a single transport, and lanes. */
struct perf_way {
	char transport[8];
	uint32_t lanes;			/* 0: the plugin's default */
};

struct perf_linked {			/* what one comm's set-up took */
	uint64_t connect_ns, accept_ns;
	uint32_t fds[2], threads[2];	/* afterwards, at sender and receiver */
};

/*
 * Start the workers: all here, or ranks from nprocs / 2 on by way of `braid perf --listen` at
 * `remote`.  All calls: 0 or -errno with a sentence in s->err; after a failure only close.
 */
int perf_session_open(struct perf_session *s, const struct fabric_env *env, int nprocs, bool pin,
		      const char *remote, double timeout_s);
/* The same with an address for each rank; NULL: this host. */
int perf_session_open_at(struct perf_session *s, const struct fabric_env *env, int nprocs, bool pin,
			 const char *const *where, double timeout_s);
/* `way` NULL: the workers' environment decides. */
int perf_session_load(struct perf_session *s, enum fabric_kind kind, const struct perf_way *way,
		      struct fabric_about *ret);
int perf_session_link(struct perf_session *s, enum fabric_kind kind, int src, int dst, int idx,
		      struct perf_linked *ret);
/* All comms of a pattern, `comms` for each edge. */
int perf_session_link_all(struct perf_session *s, enum fabric_kind kind, enum perf_pattern pattern,
			  int comms);
int perf_session_arena(struct perf_session *s, uint64_t bytes);
/* ret has room for nprocs results. */
int perf_session_run(struct perf_session *s, const struct perf_run *run, struct perf_result *ret);
/* The slowest worker's time goes to *ret_ns. */
int perf_session_unlink(struct perf_session *s, enum fabric_kind kind, uint64_t *ret_ns);
void perf_session_close(struct perf_session *s);

#endif
