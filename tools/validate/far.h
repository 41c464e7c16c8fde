/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * far.h - checks of two ends: one is here, the other in a servant.
 *
 * A servant is another process of this host, or with --connect one of another host.  The check
 * tells it what to do, call by call, so that each check is written once, from one side.
 */
#ifndef BRAID_TOOLS_VALIDATE_FAR_H
#define BRAID_TOOLS_VALIDATE_FAR_H

#include "tools/validate/validate.h"

/* -- the plugin (net.c) ------------------------------------------------------------------- */

void net_up(struct validate *v);	/* load it here, call init, choose a device */
void ipv6_only(void);			/* for plugins that are loaded from now on */
bool is_braid(const struct validate *v);
void needs_braid(struct validate *v);	/* else the check is skipped */
void needs_abi(struct validate *v, int abi);
/* The device's first transport, as Braid logs it at init; "" if it does not. */
const char *net_transport(void);

/* -- the other end (far.c) ---------------------------------------------------------------- */

enum {					/* flags of the servant's hello */
	FAR_TCP = 1,			/* it uses TCP only */
	FAR_IPV6 = 2,			/* and IPv6 addresses only */
	FAR_ANY_ORDER = 4,		/* it tests requests in any order */
};
enum { FAR_LATE = 1 };			/* flag of an answer: its error is a missed deadline */
void both_up(struct validate *v);	/* start the servant, then net_up() */
void both_up_as(struct validate *v, unsigned flags);

struct conn {				/* a comm between us and the servant */
	bool out;			/* we send */
	void *comm;
	int far;			/* its number in the servant */
};

struct conn conn_open(struct validate *v, bool out);
void conn_close(struct validate *v, struct conn *conn);

/* -- messages (job.c, move.c) ------------------------------------------------------------- */

struct msg {
	size_t size, room;		/* room 0: as large as the message */
	int tag;
	unsigned skew;			/* the buffer begins this far behind a multiple of 64 */
	uint64_t seed;			/* seed of its data; 0: any */
};

struct job {				/* an op with its buffers and their expected content */
	struct op op;
	struct buf buf[RECVS_MAX];
	struct msg msg[RECVS_MAX];
	int flush;			/* 1: to do; 2: under way; 3: done */
	void *flush_req;
	bool over;
	char bad[256];			/* an error in the data; "": none */
};

void job_begin(struct validate *v, struct job *j, void *comm, bool is_recv, const struct msg *m,
	       int n);
/* Post and test due jobs; true: all are over.  Data is checked as soon as test() reports it. */
bool jobs_step(struct job *j, size_t n);
void job_end(struct validate *v, struct job *j);

enum {					/* flags of move() */
	MOVE_SEND_FIRST = 1,		/* the receives are posted 20 ms later */
	MOVE_NO_SIZES = 2,		/* test() gets no room for sizes */
	MOVE_OPTIONAL = 4,		/* with NCCL's marker in *request */
	MOVE_FLUSH = 8,			/* flush each receive before its data is checked */
	MOVE_ERROR_OK = 16,		/* an error is allowed instead of the data */
};

/*
 * Move n messages, all under way at once, at most 32.  A receive takes `group` of them, in the
 * order of `order` (NULL: as they are sent).  An error is a FAIL(); with MOVE_ERROR_OK the first
 * error is returned, else "".
 */
const char *move(struct validate *v, struct conn *conn, const struct msg *m, int n, int group,
		 const unsigned *order, unsigned how);
/* Move one message each way, over two comms made for it. */
void move_one(struct validate *v, size_t size);

/* -- message after message (stream.c) ----------------------------------------------------- */

enum { STREAM_SLOTS = 8, STREAM_SIZE = 256 << 10 };

struct stream {
	struct net *net;
	void *comm;
	bool is_recv;
	bool ends;			/* the sender's: set it, and the stream ends soon */
	uint64_t seed, ready, posted, done, end;
	unsigned last;			/* messages sent that announce the end */
	struct op op[STREAM_SLOTS];
	struct buf buf[STREAM_SLOTS];
	uint64_t bytes;			/* of messages that are done */
	char bad[256];			/* an error, also in the data; "": none */
};

void stream_begin(struct validate *v, struct stream *s, void *comm, bool is_recv, uint64_t seed);
/* Post and test; true: it has ended, or s->bad says why not. */
bool stream_step(struct stream *s);
void stream_end(struct stream *s);

/* -- chance, time, leaks (watch.c) -------------------------------------------------------- */

uint64_t chance(struct validate *v, uint64_t below);
/* Of this process; they must not have grown once everything opened is closed. */
struct counts {
	unsigned fds, threads;
};
struct counts counts_now(void);
void check_growth(struct validate *v, struct counts a, struct counts b, int rounds);

/* How long calls were off the CPU and not queued for a CPU, in microseconds. */
struct watch {
	uint64_t wall, cpu, queued;
};
void watch_begin(struct watch *w);
double watch_blocked_us(const struct watch *w);

/* -- what a servant can do (order.c, servant.c) ------------------------------------------- */

enum far_what {
	FAR_HELLO = 1, FAR_LISTEN, FAR_ACCEPT, FAR_CONNECT, FAR_TOUCH, FAR_POST, FAR_WAIT,
	FAR_CLOSE, FAR_HOLD, FAR_FREEZE, FAR_DIE, FAR_COUNT, FAR_QUIT, FAR_STREAM,
};

struct order {				/* one order or answer; crosses hosts */
	uint32_t magic, what;
	int32_t status;			/* in an answer: 0, or -1 with a sentence */
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
/* Send or receive a whole order: 0 or -errno. */
int order_move(int fd, struct order *o, bool out, int ms);

/* Obey the orders from `fd` until it ends. */
_Noreturn void servant_serve(int fd, const struct options *w);

void far_send(struct validate *v, struct order *o);
/* Wait up to `ms` for an answer; false: none yet.  An error of the servant is a FAIL(). */
bool far_answer(struct validate *v, struct order *ret, int ms);
void far_call(struct validate *v, struct order *o);	/* send, and wait for the answer */
/* Send an order, and call ours() until it returns true and the answer has come. */
void far_call_stepping(struct validate *v, struct order *o, bool (*ours)(void *), void *arg);
void far_allow_exit(bool fine);

/* Obey `fd`: as a servant, or as a worker of braid perf if the first order is one for that. */
int validate_worker(int fd, const struct fabric_env *env);

#endif
