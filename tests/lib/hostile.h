/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hostile.h - shared by the tests with a hostile peer: a plugin whose log lines are counted, calls
 * whose time is measured, and a friend, an honest process that must be served all the same.
 */
#ifndef BRAID_TESTS_LIB_HOSTILE_H
#define BRAID_TESTS_LIB_HOSTILE_H

#include "tests/abi/abi.h"
#include "tests/lib/speak.h"

/* -- the plugin, and what it logs --------------------------------------------------------- */

/* As abi_up(), with warns_expected(): the tests check the lines themselves. */
struct net *hostile_up(struct abi *t);
unsigned warns(void);			/* lines so far */
unsigned infos(void);
/* The last WARN has all of these words in it; NULL ends the list. */
void warned(const char *first, ...) __attribute__((sentinel));

/* -- how long a call takes ---------------------------------------------------------------- */

/*
 * The clock finds a call that waits, but also a machine too busy to run us.  So the time queued for
 * a CPU is subtracted.  A call that never slept counts only with its CPU time: the rest was taken
 * by a virtual machine's host.
 */
struct lap {
	uint64_t wall_ns, queued_ns, cpu_ns;
	long slept;
};

struct lap lap_start(void);
void lap_end(const struct lap *lap, unsigned limit_ms, const char *file, int line,
	     const char *what);
void laps_say(struct abi *t, const char *what);	/* print the longest and start again */

/* Promised are 5 ms for set-up and close, and 1 ms for data; ten times that fails. */
enum { SETUP_MS = 50, DATA_MS = 10 };

#define TIMED(limit_ms, expr)							\
	({									\
		struct lap lap_ = lap_start();					\
		__typeof__(expr) timed_ = (expr);				\
										\
		lap_end(&lap_, limit_ms, __FILE__, __LINE__, #expr);		\
		timed_;								\
	})

/* -- what we know of a listen ------------------------------------------------------------- */

struct braid_handle handle_of(const void *handle);
/* A handle of an unknown process that listens on that port. */
void handle_forge(void *handle, uint16_t port, struct braid_handle *ret);
/* Calls connect() until it succeeds or fails; each call is timed.  *ret_ms: how long in all. */
ncclResult_t connect_for(struct net *net, void *handle, unsigned ms, void **ret_send,
			 unsigned *ret_ms);

/* Calls connect() until it has begun to dial that listener; each call is timed. */
void connect_begins(struct net *net, void *handle, int listener, void **ret_send);

/* -- a listen for strangers --------------------------------------------------------------- */

struct stage {				/* a listen that everybody knows of */
	struct net *net;
	void *listen;
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct braid_handle to;
	unsigned warns, infos;
};

void stage_up(struct abi *t, struct stage *s);
void stage_empty(struct stage *s);	/* no stranger has been accepted */
void stage_down(struct stage *s);
/* Strangers are counted, not logged one by one: few lines, whatever their number. */
void stage_quiet(struct stage *s, unsigned warns_most);

size_t rss_kib(void);			/* this process's memory */

/* -- the friend --------------------------------------------------------------------------- */

/* Call it before hostile_up().  The friend is ready when friend_ready() returns, and serves once. */
struct peer friend_start(const struct abi *t);
void friend_ready(struct peer *p);
/*
 * The friend connects to this listen, whose handle may be doctored, and moves data that both ends
 * check.  Prints how long that took: one second is promised, ten fail.
 */
void friend_served(struct abi *t, struct net *net, void *listen, const void *handle,
		   struct peer *p, const char *while_);

/* -- a tap ---------------------------------------------------------------------------------- */

struct record {				/* of a handshake that was overheard */
	uint8_t m1[BRAID_HELLO_SIZE], m2[BRAID_HELLO_SIZE], proof[BRAID_PROOF_SIZE];
};

/* A process that relays one connection to a listener, and records its handshake. */
struct peer relay_start(const struct abi *t);
/* Make the handle by which a peer dials the relay instead of the listener. */
void relay_through(struct peer *relay, const struct braid_handle *to, void *ret_handle);
void relay_record(struct peer *relay, struct record *ret);	/* once */
void relay_end(struct peer *relay);

#endif
