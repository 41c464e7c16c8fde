/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf.h - the measuring machine behind braid perf, braid demo and rawtcp.
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
#ifndef BRAID_TOOLS_PERF_H
#define BRAID_TOOLS_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/perf/fabric.h"
#include "tools/perf/key.h"

enum {
	PERF_PROCS_MAX = 64,
	PERF_COMMS_MAX = 1024,		/* idx of the comms from one rank to another */
	PERF_THREADS_MAX = 64,
	PERF_INFLIGHT_MAX = 32,		/* NCCL's own bound for one comm */
	PERF_SIZES_MAX = 64,
	PERF_TEXT = 480,
};

#define PERF_SIZE_MAX (UINT64_C(1) << 30)
#define PERF_ARENA_MAX (UINT64_C(16) << 30)

/* -- patterns (pattern.c) ------------------------------------------------------------ */

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

struct perf_kind {			/* what the outside must know of a pattern */
	const char *name;
	const char *help;
	enum perf_shows shows;
	int procs_least, procs_most, procs;	/* and the default */
	int inflight;			/* the default */
	const char *sizes;		/* the default */
	bool (*edge)(int n, int src, int dst);	/* is there a comm from src to dst */
};

extern const struct perf_kind perf_kinds[PERF_PATTERNS];

struct perf_run {			/* crosses hosts: fixed types, no pointers */
	uint32_t fabric, pattern;
	uint32_t comms, threads, inflight;
	uint32_t check;
	uint32_t step;			/* varies the data */
	uint32_t pad;
	uint64_t size, iters;
	double stall_s;			/* nothing moves for so long: give up */
};

struct perf_latency {			/* nanoseconds; n 0: none taken */
	uint64_t n;
	double min, p50, p90, p99, p999, max, mean;
	double jitter;			/* how much neighbours differ, on average */
};

struct perf_result {
	uint64_t ns;			/* go to the last completion, here */
	uint64_t messages, bytes;	/* received here */
	double rate;			/* messages received a second while all comms were busy */
	uint64_t cpu_ns;		/* user and system, all threads of the process */
	uint64_t values, wrong;		/* checked, and found wrong */
	struct perf_latency lat;
};

/* Memory a worker needs for `run` at its largest size. */
uint64_t perf_arena_bytes(const struct perf_run *run, int nprocs);

/* -- one end of a comm, and the loop over many (pattern.c) --------------------------- */

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

/* Run on `ends`; go() is called when everything is ready and returns when the others are too. */
int perf_pattern_run(const struct perf_run *run, int rank, int nprocs, struct perf_ends *ends,
		     struct perf_arena *arena, int ctl_fd, int (*go)(void *), void *go_arg,
		     struct perf_result *ret, char *err);

/* -- models for the ddp pattern (model.c) -------------------------------------------- */

enum { PERF_BUCKETS_MAX = 64 };

struct perf_model {
	unsigned tensors;
	uint64_t params;
	unsigned buckets;
	uint64_t bucket_params[PERF_BUCKETS_MAX];	/* in the order they are sent */
};

/* ResNet-50's parameters in DDP's buckets. */
void perf_resnet50(struct perf_model *ret);

/* -- statistics, time, processors (stat.c) ------------------------------------------- */

struct perf_samples {
	uint32_t *v;			/* nanoseconds, cut at 4 s */
	uint32_t n, every, skip;	/* full: every second is dropped, from then on taken */
	uint32_t min, max, last;
	uint64_t seen, sum, steps;	/* steps: from each to the next, summed */
};

int perf_samples_init(struct perf_samples *s);
void perf_samples_fini(struct perf_samples *s);
void perf_samples_add(struct perf_samples *s, uint64_t ns);
/* Of several threads' samples, each divided by `div`; sorts them. */
void perf_latency_of(struct perf_samples *s, unsigned n, unsigned div, struct perf_latency *ret);

/* An array of n that has room for one more; NULL: no memory, and the old one is as it was. */
void *perf_grown(void *v, int n, int *room, size_t each);
double perf_median(double *v, int n);	/* sorts v */

uint64_t perf_now_ns(void);
uint64_t perf_cpu_ns(void);		/* used by this process so far */
int perf_cpu_nth(int n);		/* the n-th CPU we may run on, modulo their number; -1 */
int perf_cpus(void);
uint64_t perf_memory_free(void);	/* without swapping; 0: not known */
void perf_cpu_pin(int cpu);
/* Nanoseconds for a cache line to get from CPU a to b, or 0 if that can't be measured. */
double perf_bounce_ns(int a, int b);

/* -- the coordinator's end (session.c) ----------------------------------------------- */

struct perf_session {
	int nprocs;
	struct perf_worker {
		int fd;
		int pid;		/* 0: on another host */
		char where[96];		/* for messages: "rank 1 (pid 4711 on host)" */
	} w[PERF_PROCS_MAX];
	double timeout_s;		/* for one answer */
	char err[PERF_TEXT * 2];
};

/* What a plugin is told before it is loaded: nothing (""), or one transport alone, and lanes. */
struct perf_way {
	char transport[8];
	uint32_t lanes;			/* 0: as the plugin likes */
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
/* The same with a place for each rank: NULL is here. */
int perf_session_open_at(struct perf_session *s, const struct fabric_env *env, int nprocs, bool pin,
			 const char *const *where, double timeout_s);
/* `way` NULL: as the workers' environment says. */
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

/* -- the worker's end (worker.c, serve.c) --------------------------------------- */

/* Obey `fd` until it ends; the process should then exit with what is returned. */
int perf_worker_main(int fd, const struct fabric_env *env);
/* Listen at addr ("[ADDR:]PORT"); a socket and its port, or -errno and a sentence. */
int perf_worker_listen(const char *addr, int *ret_port, char *err);
/* The port, and the line to type on the other host; key: its text, NULL if the user gave it. */
void perf_listen_say(const char *prog, int fd, int port, const char *key);
/* May this worker's buffers come to so many bytes?  All workers of a listener have one bound. */
bool perf_room(uint64_t bytes);
/*
 * Serve coordinators that know env->key, each by `worker` in a process of its own, until killed;
 * with `once`, the first only; with until_fd >= 0 until that is at its end.
 */
typedef int perf_worker_fn(int fd, const struct fabric_env *env);
int perf_worker_serve(int listen_fd, const struct fabric_env *env, perf_worker_fn *worker, bool pin,
		      bool once, int until_fd);

/* -- messages between them (ctl.c) --------------------------------------------------- */

enum perf_ctl_type {
	PERF_CTL_HELLO = 1, PERF_CTL_LOAD, PERF_CTL_LISTEN, PERF_CTL_CONNECT, PERF_CTL_ACCEPT,
	PERF_CTL_ARENA, PERF_CTL_RUN, PERF_CTL_READY, PERF_CTL_GO, PERF_CTL_CLOSE, PERF_CTL_QUIT,
	PERF_CTL_MEET,			/* of a launcher's rank to rank 0 (compare/launch.c) */
};

struct perf_ctl {
	uint32_t magic, type;
	int32_t status;			/* answers: 0 or -errno, and then text */
	uint32_t fabric;
	int32_t rank, nprocs, peer, idx;
	uint64_t bytes, ns;
	uint32_t fds, threads;
	union {
		char text[PERF_TEXT];
		uint8_t handle[FABRIC_HANDLE];
		struct fabric_about about;
		struct perf_way way;
		struct perf_run run;
		struct perf_result result;
	};
};

/* All of n bytes, out or in; as perf_ctl_recv(). */
int perf_ctl_move(int fd, char *p, size_t n, bool out, int timeout_ms);
int perf_ctl_send(int fd, struct perf_ctl *m);
/* 0; -EPIPE if the other end is gone, -ETIMEDOUT, -EPROTO, or another -errno. */
int perf_ctl_recv(int fd, struct perf_ctl *ret, int timeout_ms);

/* -- the command proper (perf.c, print.c) -------------------------------------------- */

/* Seconds that the plugin takes to give a peer up which can't be connected to. */
unsigned perf_connect_s(void);

struct perf_options {
	enum perf_pattern pattern;
	struct fabric_env env;
	int procs, comms, threads, inflight;
	uint64_t sizes[PERF_SIZES_MAX];
	int nsizes;
	double seconds;
	double iters, warmup;		/* iters 0: as many as fill `seconds` */
	int rounds;
	double timeout_s;		/* by default 15 more than perf_connect_s() */
	bool check, raw, raw_only, pin, json, csv;
	const char *remote, *key_file;
	struct perf_key key;		/* of the listener, there or here */
};

struct perf_row {			/* one size over one fabric, all workers put together */
	enum fabric_kind kind;
	int round;
	uint64_t size, iters;
	double seconds;
	double bytes, messages;
	double gbit_s, msg_s, cpu_s_per_gb;
	double bounce_ns;		/* before or after, whichever is more; 0: not measured */
	bool regime_moved;		/* before and after differ by half or more */
	double cpu_share;		/* of the time, that the worst-off process had a CPU */
	uint64_t values, wrong;
	struct perf_latency lat;
	struct perf_linked linked;	/* setup: of comm number `iters` */
};

struct perf_report {
	const struct perf_options *opt;
	struct fabric_about about[FABRIC_KINDS];
	bool have[FABRIC_KINDS];
	struct perf_row *rows;
	int nrows, room;
	uint64_t close_ns[FABRIC_KINDS];
};

/* -- one row (row.c) ----------------------------------------------------------------- */

struct perf_run perf_run_of(const struct perf_options *o, enum fabric_kind kind, uint64_t size,
			    uint64_t iters);
int perf_once(struct perf_session *s, const struct perf_options *o, enum fabric_kind kind,
	      uint64_t size, uint64_t iters, struct perf_row *ret);
/*
 * *iters 0: find how many fill o->seconds (or take o->iters), which warms everything up;
 * otherwise o->warmup iterations, or a tenth.
 */
int perf_warm_up(struct perf_session *s, const struct perf_options *o, enum fabric_kind kind,
		 uint64_t size, uint64_t *iters);
/* How many iterations fill o->seconds as fast as `row` was. */
uint64_t perf_pace(const struct perf_options *o, const struct perf_row *row);
/*
 * As perf_once(), and *iters follows the pace: what was found while another program had the CPU
 * is too few when that ends. Measured again, twice at most, if it was over in a quarter of
 * o->seconds.
 */
int perf_measure(struct perf_session *s, const struct perf_options *o, enum fabric_kind kind,
		 uint64_t size, uint64_t *iters, struct perf_row *ret);

int perf_sizes_parse(const char *text, uint64_t *sizes, int max);	/* how many, or -EINVAL */
const char *perf_size_name(uint64_t size, char room[24]);
int perf_main(const char *prog, bool raw_only, int argc, char **argv);
void perf_print(const struct perf_report *rep);
int perf_row_add(struct perf_report *rep, const struct perf_row *row);

#endif
