/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job.h - a job of NCCL's on GPUs that the CPU plays: ranks are processes, or threads of one, and each
 * runs the body of a case.  A body returns 0, or 77 with skip_why, or fails by fail(); what NCCL and
 * it print goes into a file of its own, shown if the case fails.
 */
#ifndef BRAID_TESTS_NCCL_JOB_H
#define BRAID_TESTS_NCCL_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/nccl/gpu.h"

enum { RANKS_MAX = 16, MARKS_MAX = 8 };

/* ncclResult_t, ncclRedOp_t, ncclDataType_t */
enum { NCCL_OK = 0, NCCL_REMOTE = 6 };
enum { OP_SUM, OP_PROD, OP_MAX, OP_MIN, OP_AVG, OP_USER };
enum { T_I8, T_U8, T_I32, T_U32, T_I64, T_U64, T_F16, T_F32, T_F64, T_BF16, T_E4M3, T_E5M2 };

struct nccl_id {
	char bytes[128];
};

struct nccl_api {
	int (*get_unique_id)(struct nccl_id *ret);
	int (*comm_init_rank)(void **ret, int nranks, struct nccl_id id, int rank);
	int (*comm_split)(void *comm, int color, int key, void **ret, void *config);
	int (*comm_destroy)(void *comm);
	int (*comm_abort)(void *comm);
	int (*comm_get_async_error)(void *comm, int *ret);
	const char *(*get_error_string)(int code);
	const char *(*get_last_error)(void *comm);
	int (*group_start)(void);
	int (*group_end)(void);
	int (*all_reduce)(const void *from, void *to, size_t n, int type, int op, void *comm, void *stream);
	int (*reduce)(const void *from, void *to, size_t n, int type, int op, int root, void *comm,
		void *stream);
	int (*broadcast)(const void *from, void *to, size_t n, int type, int root, void *comm, void *stream);
	int (*all_gather)(const void *from, void *to, size_t n, int type, void *comm, void *stream);
	int (*reduce_scatter)(const void *from, void *to, size_t n, int type, int op, void *comm, void *stream);
	int (*send)(const void *from, size_t n, int type, int peer, void *comm, void *stream);
	int (*recv)(void *to, size_t n, int type, int peer, void *comm, void *stream);
	int (*op_create)(int *ret, void *scalar, int type, int residence, void *comm);
	int (*op_destroy)(int op, void *comm);
};

/* Memory that all ranks share. */
struct board {
	struct nccl_id ids[MARKS_MAX];
	unsigned has_id[MARKS_MAX];
	unsigned arrived[64];			/* ranks at each meeting, used in turn */
	unsigned marks[MARKS_MAX];		/* a case's own */
	pid_t pids[RANKS_MAX];
};

struct rank {
	int rank, nranks;
	const struct nccl_api *nccl;
	struct board *board;
	void *comm;
	struct gpu_stream *stream;
	const char *log;			/* its file */
	unsigned meetings;
	unsigned seconds;			/* how long the case may take */
};

/* Prints the message and ends the rank; so does skip(), with the reason. */
__attribute__((noreturn, format(printf, 3, 4))) void fail_at(const char *file, int line, const char *fmt, ...);
#define fail(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
__attribute__((noreturn)) void skip(const char *why);

#define OK(expr)	do { \
	int ok_code_ = (expr); \
	if (ok_code_) \
		fail("%s: %d, %s", #expr, ok_code_, last_error(r)); \
} while (0)
const char *last_error(struct rank *r);

/* -- for bodies: job_rank.c ------------------------------------------------------------------------- */

void rank_init(struct rank *r);			/* makes r->comm with all ranks, by id 0 */
void rank_init_id(struct rank *r, void **ret, unsigned id, int rank, int nranks);
/*
 * Every rank calls this at its end.  Fails if its log has more WARN lines than BRAID_TEST_NCCL_WARNS
 * (0), or no line with BRAID_TEST_NCCL_SAYS, or if NCCL called something that is not supported.
 */
void rank_finish(struct rank *r);
void rank_check_log(struct rank *r, unsigned warns);
void meet(struct rank *r);			/* waits for all ranks; fails after a time */
/* Waits for the stream: 0, or NCCL's error code as soon as the communicator has one. */
int stream_done(struct rank *r, struct gpu_stream *s, void *comm, double seconds);
double now_s(void);
void sleep_ms(unsigned ms);
/* A mark is a number that one rank sets and others wait for. */
void mark_set(struct rank *r, unsigned mark, unsigned value);
void mark_wait_for(struct rank *r, unsigned mark, unsigned value);
unsigned log_count(struct rank *r, const char *what);	/* lines of its log with `what` */

struct usage {
	long descriptors, threads, kib;
};
struct usage usage_now(void);

/* -- values: values.c ------------------------------------------------------------------------------- */

enum coll_kind { C_ALL_REDUCE, C_REDUCE, C_BROADCAST, C_ALL_GATHER, C_REDUCE_SCATTER, C_SEND_RECV, C_ALL_TO_ALL,
	C_KINDS };

struct trial {
	enum coll_kind kind;
	unsigned type, op;
	size_t n;			/* elements: of one rank's share, if there are shares */
	int root;
	bool in_place;
	unsigned salt;
};

struct bufs {
	char *send, *recv;
	size_t size;
};
void bufs_new(struct rank *r, struct bufs *b, size_t size);
void bufs_free(struct rank *r, struct bufs *b);

/* Fills the input, runs the collective, and compares every byte; returns NCCL's code. */
int trial_run(struct rank *r, const struct bufs *b, const struct trial *t);
int trial_start(struct rank *r, const struct bufs *b, const struct trial *t);
void trial_fill(struct rank *r, const struct bufs *b, const struct trial *t);
void trial_check(struct rank *r, const struct bufs *b, const struct trial *t);
/* Flips one bit of the result, so that trial_check() must fail. */
void trial_spoil(struct rank *r, const struct bufs *b, const struct trial *t, size_t at);
const char *trial_name(const struct trial *t);

/* -- cases ------------------------------------------------------------------------------------------ */

struct nccl_case {
	const char *name, *promise;
	int (*body)(struct rank *r);
	int ranks;			/* their number without --ranks */
	unsigned seconds;
	bool loses_rank;		/* one rank is killed */
	bool unknown_too;		/* needs no kernels: run with an NCCL of unknown layouts too */
};
extern const struct nccl_case cases_values[], cases_life[], cases_faults[], cases_bench[];

#endif
