/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * abi.h - what the ABI tests are made of.
 *
 * They drive the built .so through tools/proxy.c as NCCL's proxy threads do, and know nothing of
 * what is inside.  A case is a promise in words, a body, and the ABI versions it is run for; each
 * run is a process of its own, so that a body may fork before anything is loaded, a crash or a
 * hang costs one case, and no state leaks into the next.  The runner never loads the plugin.
 *
 * A body fails by leaving the process: the macros below print and _exit(1).  Nothing may hang:
 * every wait has a deadline, every case has one over all.  A WARN from the plugin fails the case
 * unless the body has said warns_expected().
 *
 * Environment: BRAID_TEST_PLUGIN (path of the .so), BRAID_TEST_FILTER (cmocka's pattern, such as
 * "v12*"), BRAID_TEST_SEED, BRAID_TEST_SLOW (a factor on all deadlines, for valgrind),
 * BRAID_TEST_VERBOSE (log lines to stderr), BRAID_TEST_RDMA (set by tests/rdma: the kind of NIC
 * that device 0 is), BRAID_TEST_UCX (by tests/ucx), BRAID_TEST_SMC
 * (by tests/smc).  Other BRAID_* variables reach the plugin.
 */
#ifndef BRAID_TESTS_ABI_ABI_H
#define BRAID_TESTS_ABI_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/proxy.h"

enum { RECVS_MAX = 8, REQS_MAX = 32 };	/* what NCCL may have in flight on one comm */

/* -- cases -------------------------------------------------------------------------------- */

struct abi {				/* what a body is given */
	int abi;			/* the version to take */
	bool newest;			/* the row on which the long loops are run */
	const char *plugin;
	uint64_t seed;			/* of rnd() */
};

struct abi_case {
	const char *promise;
	void (*body)(struct abi *t);
	int since, until;		/* first and last version it is for; 0: all */
	int seconds;			/* deadline; 0: 20 */
};

/* CASE("promise", body), or with .since =, .until = or .seconds = after it. */
#define CASE(promise_, ...) { .promise = promise_, .body = __VA_ARGS__ }

int abi_main(const char *group, const struct abi_case *cases, size_t n);

#define ABI_MAIN(cases) \
	int main(void) { return abi_main(__FILE__, cases, sizeof(cases) / sizeof((cases)[0])); }

/* -- verdicts ----------------------------------------------------------------------------- */

_Noreturn void fail_at(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
_Noreturn void skip_because(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void warns_expected(void);
_Noreturn void end_well(void);

void result_is(const char *file, int line, const char *call, ncclResult_t want, ncclResult_t res);
void equal(const char *file, int line, const char *what, uint64_t want, uint64_t got);

#define FAIL(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define TRUE(cond) ((cond) ? (void)0 : FAIL("not so: %s", #cond))
#define EQ(want, got) equal(__FILE__, __LINE__, #got, (uint64_t)(want), (uint64_t)(got))
#define RES(want, call) result_is(__FILE__, __LINE__, #call, want, call)
#define OK(call) RES(ncclSuccess, call)

/* -- time and chance ---------------------------------------------------------------------- */

uint64_t now_us(void);
uint64_t deadline_ms(unsigned ms);		/* from now, times BRAID_TEST_SLOW */
void wait_tick(uint64_t deadline, const char *file, int line, const char *what);
void nap_ms(unsigned ms);

/* Evaluate until true, giving way in between; ten seconds are a hang. */
#define WAIT_FOR(cond) WAIT_FOR_MS(10000, cond)
#define WAIT_FOR_MS(ms, cond)						\
	do {								\
		uint64_t wait_end_ = deadline_ms(ms);			\
									\
		while (!(cond))						\
			wait_tick(wait_end_, __FILE__, __LINE__, #cond);	\
	} while (0)

uint64_t rnd(struct abi *t);
unsigned rnd_below(struct abi *t, unsigned n);
void shuffle(struct abi *t, unsigned *v, unsigned n);	/* fills v with 0..n-1 in any order */

/* -- the plugin --------------------------------------------------------------------------- */

bool over_rdma(void);		/* or UCX: sockets are for the handshake alone */
void streams_are_ours(void);	/* or the case is skipped */
/* For init: net_log(), but what is always warned of over this kind of NIC is no WARN. */
void abi_log(int level, unsigned long flags, const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* The same, and of a line with `word` in it what stands from there on is kept. */
ncclDebugLogger_t abi_hear(const char *word);
/* The last that was kept, or "" for none, is `want`; it is forgotten. */
void abi_heard(const char *want);

struct net *abi_up(struct abi *t);		/* loaded, init called, at least one device */
struct net *abi_up_with(struct abi *t, int traffic_class, ncclProfilerCallback_t prof);
void abi_down(struct net *net);			/* finalized and closed */

/* -- buffers: guarded, registered, position-dependent ------------------------------------- */

struct buf {
	uint8_t *data;			/* `misaligned` bytes past a multiple of 64 */
	size_t size;
	void *mr;
	void *comm;
	uint8_t *map;
	size_t map_len;
};

struct buf buf_new(struct net *net, void *comm, size_t size, unsigned misaligned);
void buf_free(struct net *net, struct buf *b);	/* the guards must be whole */
void buf_guards(const struct buf *b);

/* What byte i of message `seed` is depends on both. */
void fill(void *data, size_t size, uint64_t seed);
void filled(const void *data, size_t size, uint64_t seed);	/* or fails, naming the offset */
void blank(void *data, size_t size);				/* what no fill() leaves */

/* -- operations --------------------------------------------------------------------------- */

struct op {				/* one isend, or one irecv of n buffers */
	struct net *net;
	void *comm;
	bool is_recv;
	bool optional;			/* *request arrives as 1 */
	bool no_sizes;			/* test() with sizes NULL */
	int n;
	void *data[RECVS_MAX];
	size_t size[RECVS_MAX];
	int tag[RECVS_MAX];
	void *mr[RECVS_MAX];
	void *phandle[RECVS_MAX];
	void *req;
	bool posted, done;		/* done: finished or failed */
	ncclResult_t res;
	int got[RECVS_MAX];
};

struct op op_send(struct net *net, void *comm, const struct buf *b, size_t size, int tag);
struct op op_recv(struct net *net, void *comm, const struct buf *b, size_t size, int tag);
struct op op_group(struct net *net, void *comm);	/* a receive of no entries yet */
void op_add(struct op *group, const struct buf *b, size_t size, int tag);

bool op_post(struct op *op);		/* one call; true when posted or failed */
bool op_test(struct op *op);		/* one call; true when done */
bool ops_step(struct op *ops, size_t n);	/* post what can be, test the rest; true: done */
void ops_run(struct op *ops, size_t n);	/* until done, all with success */
void ops_settle(struct op *ops, size_t n);	/* until done, as it may be */
void ops_post(struct op *ops, size_t n);	/* until all are posted; tests none */

/* One message, sent and checked; the other end is in another process. */
void send_one(struct net *net, void *send, size_t size, uint64_t seed);
void recv_one(struct net *net, void *recv, size_t size, uint64_t seed);
/* One message through a comm whose two ends are here. */
void exchange(struct net *net, void *send, void *recv, size_t size, uint64_t seed);

/* -- connections -------------------------------------------------------------------------- */

struct pair {				/* both ends in this process */
	void *listen, *send, *recv;
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
};

void pair_listen(struct net *net, struct pair *p);	/* listens, and no more */
void pair_open(struct net *net, struct pair *p);	/* the listen comm is closed again */
void pair_close(struct net *net, struct pair *p);	/* whatever of it is there */

/* One call each, if it is not there yet; true once it is. */
bool connect_step(struct net *net, void *handle, void **send);
bool accept_step(struct net *net, void *listen, void **recv);
bool pair_step(struct net *net, struct pair *p);

void on_device(int dev);	/* what is connected from now on, instead of 0 */
void *send_to(struct net *net, int fd);	/* with recv_from() at the other end of fd */
void *recv_from(struct net *net, int fd);

/* -- other processes ---------------------------------------------------------------------- */

struct peer {
	pid_t pid;
	int fd;				/* to the other's fd */
};

/*
 * Before anything is loaded here: run body in a new process, at ABI version t->abi.  That one
 * stays until peer_join(), so that nobody's comms are still open when its process ends; a body
 * that calls end_well() itself leaves at once.
 */
struct peer peer_start(const struct abi *t, void (*body)(struct abi *t, int fd));
void peer_join(struct peer *p);		/* must end well */
void peer_kill(struct peer *p);		/* SIGKILL, and reaped */

void give(int fd, const void *data, size_t len);
void take(int fd, void *data, size_t len);
void meet(int fd);			/* both ends wait for each other, calling nothing */

/* -- this process ------------------------------------------------------------------------- */

unsigned count_fds(void);
unsigned count_threads(void);
/* Calls each(fd) for every connected TCP socket of ours; returns how often it said true. */
unsigned count_streams(bool (*each)(int fd));

#endif
