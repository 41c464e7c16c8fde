/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * far.h - checks of two ends: one is here, the other with a servant.
 *
 * A servant is another process of this host, or with --connect one of another host.  The check
 * tells it what to do, call by call, so that each check is written once, from one side.
 */
#ifndef BRAID_TOOLS_VALIDATE_FAR_H
#define BRAID_TOOLS_VALIDATE_FAR_H

#include "tools/validate/validate.h"

/* -- the plugin (net.c) ------------------------------------------------------------------- */

void net_up(struct validate *v);	/* loaded here, init called, a device chosen */
bool is_braid(const struct validate *v);
void needs_braid(struct validate *v);	/* or the check is skipped */
void needs_abi(struct validate *v, int abi);
/* The name of the device's first transport, as Braid tells it at init; "" if it does not. */
const char *net_transport(void);

/* -- the other end (far.c) ---------------------------------------------------------------- */

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

/* -- messages (job.c, move.c) -------------------------------------------------------------- */

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

/* -- chance, time, leaks (watch.c) -------------------------------------------------------- */

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

/* -- what a servant can do (order.c, servant.c) ------------------------------------------- */

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

enum { ANSWER_MS = 15000, WAIT_MS = 8000 };

extern const uint32_t order_magic;
/* All of an order, out or in: 0 or -errno. */
int order_move(int fd, struct order *o, bool out, int ms);

/* Obey the orders that come over `fd`, until it ends. */
_Noreturn void servant_serve(int fd, const struct wishes *w);

void far_send(struct validate *v, struct order *o);
/* false: not yet.  A servant that failed is a FAIL(). */
bool far_answer(struct validate *v, struct order *ret, int ms);
void far_ask(struct validate *v, struct order *o);	/* both */
/* Ask, and call our own end until the answer is there. */
void far_ask_stepping(struct validate *v, struct order *o, bool (*ours)(void *), void *arg);
void far_gone_is_fine(bool fine);

/* A process that obeys `fd`: a servant, or if that is what it is told a worker of braid perf. */
int validate_worker(int fd, const struct fabric_env *env);

#endif
