/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * drive.h - calls a plugin as NCCL's proxy does, from a process that does nothing else: for the ABI
 * tests and the checks of braid validate.
 *
 * A failed expectation ends the process: the macros pass a sentence to the function that
 * drive_set() named, and _exit(1).  Nothing may hang: every wait has a deadline.
 */
#ifndef BRAID_TOOLS_DRIVE_H
#define BRAID_TOOLS_DRIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/proxy.h"

enum { RECVS_MAX = 8, REQS_MAX = 32 };	/* NCCL's limits for one comm */

/* The function that gets failures, and the factor on all deadlines. */
void drive_set(void (*fail)(const char *file, int line, const char *text), unsigned slower);
unsigned drive_slow(void);
/*
 * By default ops_step() tests as NCCL does: of a comm only the oldest request that is not done.
 * With `any`, all of them.
 */
void drive_any_order(bool any);
bool drive_in_order(void);
extern bool drive_late;			/* the failure is of a deadline: nothing was seen wrong */
extern unsigned drive_hang_ms;			/* a longer wait is a hang; by default 10 s */

_Noreturn void fail_at(const char *file, int line, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void result_is(const char *file, int line, const char *call, ncclResult_t want, ncclResult_t res);
void equal(const char *file, int line, const char *what, uint64_t want, uint64_t got);

#define FAIL(...) fail_at(__FILE__, __LINE__, __VA_ARGS__)
#define LATE(...) (drive_late = true, FAIL(__VA_ARGS__))
#define TRUE(cond) ((cond) ? (void)0 : FAIL("not so: %s", #cond))
#define EQ(want, got) equal(__FILE__, __LINE__, #got, (uint64_t)(want), (uint64_t)(got))
#define RES(want, call) result_is(__FILE__, __LINE__, #call, want, call)
#define OK(call) RES(ncclSuccess, call)

/* -- time --------------------------------------------------------------------------------- */

uint64_t mix(uint64_t x);			/* splitmix64 */
uint64_t now_us(void);
uint64_t deadline_ms(unsigned ms);		/* from now, times BRAID_TEST_SLOW */
/*
 * One turn of a wait: yield, or sleep 50 us if the wait has had many turns.  Fails after the
 * deadline.  A call with another deadline begins a new wait.
 */
void wait_tick(uint64_t deadline, const char *file, int line, const char *what);
void nap_ms(unsigned ms);

/* Evaluate until true, yielding in between; fail after drive_hang_ms. */
#define WAIT_FOR(cond) WAIT_FOR_MS(drive_hang_ms, cond)
#define WAIT_FOR_MS(ms, cond)						\
	do {								\
		uint64_t wait_end_ = deadline_ms(ms);			\
									\
		while (!(cond))						\
			wait_tick(wait_end_, __FILE__, __LINE__, #cond);	\
	} while (0)

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

/* Byte i of message `seed` depends on both. */
void fill(void *data, size_t size, uint64_t seed);
void filled(const void *data, size_t size, uint64_t seed);	/* or fail, naming the offset */
/* The first offset that differs from fill(); `size`: none does. */
size_t fill_differs(const void *data, size_t size, uint64_t seed);
void blank(void *data, size_t size);				/* with bytes of one fixed value */

/* -- operations --------------------------------------------------------------------------- */

struct op {				/* one isend, or one irecv of n buffers */
	struct net *net;
	void *comm;
	bool is_recv;
	bool optional;			/* irecv() is called with *request 1 */
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
struct op op_group(struct net *net, void *comm);	/* a grouped receive, without entries yet */
void op_add(struct op *group, const struct buf *b, size_t size, int tag);

bool op_post(struct op *op);		/* one call; true when posted or failed */
bool op_test(struct op *op);		/* one call; true when done */
bool ops_step(struct op *ops, size_t n);	/* post or test each; true: all done */
void ops_run(struct op *ops, size_t n);	/* until done, all with success */
void ops_settle(struct op *ops, size_t n);	/* until done, with success or not */
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

void pair_listen(struct net *net, struct pair *p);	/* listens only */
void pair_open(struct net *net, struct pair *p);	/* the listen comm is closed again */
void pair_close(struct net *net, struct pair *p);	/* closes those ends that are open */

/* One call each, unless the comm is up already; true once it is up. */
bool connect_step(struct net *net, void *handle, void **send);
bool accept_step(struct net *net, void *listen, void **recv);
bool pair_step(struct net *net, struct pair *p);

void on_device(int dev);	/* the device of later connections, instead of 0 */
int the_device(void);
/* -- this process ------------------------------------------------------------------------- */

unsigned count_fds(void);
unsigned count_threads(void);
/* Call each(fd) for every connected TCP socket of this process; how often it returned true. */
unsigned count_streams(bool (*each)(int fd));

#endif
