/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * validate.h - what a check of `braid validate` is, and what it may ask and say.
 *
 * A check is a row of its group's table, as in braid doctor, and runs in a process of its own that
 * has not loaded the plugin yet.  It fails by leaving that process: FAIL() and its like (drive.h)
 * hand their sentence to the report.  So does a crash, and a hang when the row's seconds are over.
 *
 * What takes two ends has one here and one with a servant (far.c): another process of this host,
 * or with --connect one of another host.  The check tells it what to do, call by call, so that each
 * check is written once, from one side.
 */
#ifndef BRAID_TOOLS_VALIDATE_H
#define BRAID_TOOLS_VALIDATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/drive.h"
#include "tools/perf/key.h"
#include "tools/perf/fabric.h"
#include "tools/says.h"

enum { VALIDATE_VERSION = 1 };

enum profile { PROFILE_QUICK, PROFILE_FULL, PROFILE_SOAK };

struct wishes {
	const char *plugin, *dev, *connect, *only, *port_down, *port_up;
	const char *json, *junit, *thresholds;
	const char *key_file;
	struct perf_key key;		/* of the listener, there or here */
	int abi;
	enum profile profile;
	double hours;
	double seed;			/* a whole number; 0: of the clock */
	bool faults, tap;
};

/* When a check is left out. */
enum {
	V_FULL = 1,			/* takes long: not of the quick profile */
	V_FAULT = 2,			/* breaks things: with --faults */
	V_SOAK = 4,			/* repeated by soak */
	V_HERE = 8,			/* both ends are here, with --connect as well */
};

struct validate;

struct vcheck {
	const char *id;			/* "data-zero": its group is what is before the dash */
	const char *title;		/* the promise, in words */
	const char *mend;		/* what to do where it is not kept */
	void (*run)(struct validate *v);
	unsigned flags;
	int seconds;			/* 0: 20 */
};

#define REPORT "Report it to who made the plugin"

/* Each in a file of that name; the last row of each is empty. */
extern const struct vcheck validate_load[], validate_props[], validate_connect[], validate_data[],
	validate_flush[], validate_mr[], validate_path[], validate_iwarp[], validate_smc[],
	validate_fault[], validate_scale[], validate_perf[];

struct validate {			/* of the check that runs */
	const struct wishes *w;
	const struct vcheck *check;
	const json_t *limits;		/* of --thresholds; or NULL */
	struct says says;
	json_t *figures;
	int out;
	int abi;
	uint64_t seed;
	struct net *net;		/* after net_up() */
	int dev, ndev;
	char nic[64];			/* the device's name */
	int far;			/* the servant's socket */
	pid_t far_pid;			/* 0: on another host */
};

/* -- what a check says (run.c) ------------------------------------------------------------ */

/* One sentence without its full stop, that names the thing and its value. */
void saw(struct validate *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void note(struct validate *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void skip(struct validate *v, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* What it is at: a check that hangs is told by that. */
void step(struct validate *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A figure, with what was measured to make it; `least` or `most` of the thresholds may fail it. */
struct figure {
	const char *name, *unit;
	double value;
	bool more_is_better;
	const double *samples;
	unsigned n;
};
void figure(struct validate *v, const struct figure *f);
enum limit { LIMIT_NONE, LIMIT_KEPT, LIMIT_BROKEN };	/* broken: with a sentence */
enum limit limits_hold(const json_t *limits, const char *nic, const struct figure *f, char *ret,
		       size_t len);

/* -- the plugin, and the other end (far.c) ------------------------------------------------ */

void net_up(struct validate *v);	/* loaded here, init called, a device chosen */
bool is_braid(const struct validate *v);
void needs_braid(struct validate *v);	/* or the check is skipped */
void needs_abi(struct validate *v, int abi);
/* The name of the device's first transport, as Braid tells it at init; "" if it does not. */
const char *net_transport(void);

enum { FAR_TCP = 1 };			/* the servant does without what is not TCP */
void both_up(struct validate *v);	/* the servant first, then net_up() */
void both_up_as(struct validate *v, unsigned flags);

struct way {				/* a comm between us and the servant */
	bool out;			/* we send */
	void *comm;
	int far;			/* its number there */
};

struct way way_open(struct validate *v, bool out);
void way_close(struct validate *v, struct way *way);

struct msg {
	size_t size, room;		/* room 0: as large as the message */
	int tag;
	unsigned skew;			/* begins so many bytes behind a multiple of 64 */
	uint64_t seed;			/* of its data; 0: any */
};

struct job {				/* an op with its buffers and what they should hold */
	struct op op;
	struct buf buf[RECVS_MAX];
	struct msg msg[RECVS_MAX];
	int flush;			/* 1: to do; 2: under way; 3: done */
	void *flush_req;
	bool over;
	char bad[256];			/* what was wrong with what came; "" */
};

void job_begin(struct validate *v, struct job *j, void *comm, bool is_recv, const struct msg *m,
	       int n);
/* Post and test what can be; true: all are over.  What came is looked at in that very moment. */
bool jobs_step(struct job *j, size_t n);
void job_end(struct validate *v, struct job *j);

enum {					/* how messages go */
	MOVE_SEND_FIRST = 1,		/* the receives are posted 20 ms later */
	MOVE_NO_SIZES = 2,		/* test() gets no room for sizes */
	MOVE_OPTIONAL = 4,		/* with NCCL's marker in *request */
	MOVE_FLUSH = 8,			/* each receive is flushed before its data is looked at */
	MOVE_ERROR_OK = 16,		/* an error is as good as the data */
};

/*
 * n messages, all under way at once, at most 32; each receive is of `group` of them, in the order
 * of `order` (NULL: as they are sent).  Whatever is not as it should be is a FAIL(); with
 * MOVE_ERROR_OK what the first error was comes back, else "".
 */
const char *move(struct validate *v, struct way *way, const struct msg *m, int n, int group,
		 const unsigned *order, unsigned how);
/* One message each way, over two comms that are made for it. */
void move_one(struct validate *v, size_t size);

uint64_t chance(struct validate *v, uint64_t below);
/* Of this process: they may not grow with what was closed again. */
struct counts {
	unsigned fds, threads;
};
struct counts counts_now(void);
void not_grown(struct validate *v, struct counts a, struct counts b, int rounds);

/* How long calls have been off the CPU without waiting for one; microseconds. */
struct watch {
	uint64_t wall, cpu, queued;
};
void watch_begin(struct watch *w);
double watch_blocked_us(const struct watch *w);

/* -- what a servant can do --------------------------------------------------------------- */

enum far_what {
	FAR_HELLO = 1, FAR_LISTEN, FAR_ACCEPT, FAR_CONNECT, FAR_TOUCH, FAR_POST, FAR_WAIT,
	FAR_CLOSE, FAR_HOLD, FAR_FREEZE, FAR_DIE, FAR_COUNT, FAR_QUIT,
};

struct order {				/* one question or answer; crosses hosts */
	uint32_t magic, what;
	int32_t status;			/* of an answer: 0, or -1 with a sentence */
	int32_t comm, n, abi;
	uint32_t flags;
	uint32_t fds, threads;
	int32_t tag[RECVS_MAX];
	uint32_t skew[RECVS_MAX];
	uint64_t size[RECVS_MAX], room[RECVS_MAX], seed[RECVS_MAX];
	uint64_t ms;
	uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	char text[400];
};

void far_send(struct validate *v, struct order *o);
/* false: not yet.  A servant that failed is a FAIL(). */
bool far_answer(struct validate *v, struct order *ret, int ms);
void far_ask(struct validate *v, struct order *o);	/* both */
/* Ask, and call our own end until the answer is there. */
void far_ask_stepping(struct validate *v, struct order *o, bool (*ours)(void *), void *arg);
void far_gone_is_fine(bool fine);

/* A process that obeys `fd`: a servant, or if that is what it is told a worker of braid perf. */
int validate_worker(int fd, const struct fabric_env *env);

/* -- between its files -------------------------------------------------------------------- */

const struct vcheck *validate_at(unsigned i);		/* NULL: no more */
const char *validate_profile(const struct vcheck *c);	/* "quick", "full", "faults" */
bool validate_known(const char *only, char *ret, size_t len);
void validate_list(void);
/* Runs what is wished for and writes the reports; the exit status. */
int validate_run(const struct wishes *w);

json_t *host_inventory(const struct wishes *w);

/* NULL with a sentence: unreadable, malformed, newer. */
json_t *limits_load(const char *path, char *err, size_t len);

/* As a check ends; each line of TAP and of the text. */
void report_begin(const struct wishes *w, unsigned n);
void report_check(const struct wishes *w, const json_t *c, unsigned nth);
/* 0, or -1 with a line on stderr. */
int report_end(const struct wishes *w, const json_t *report);

#endif
