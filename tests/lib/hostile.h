/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hostile.h - what tests with somebody hostile in them share: a plugin whose log lines are kept,
 * calls whose time is taken, and a friend, an honest process that must be served all the same.
 */
#ifndef BRAID_TESTS_LIB_HOSTILE_H
#define BRAID_TESTS_LIB_HOSTILE_H

#include "tests/abi/abi.h"
#include "tests/lib/speak.h"

/* -- the plugin, and what it logs --------------------------------------------------------- */

/* As abi_up(), with warns_expected(): the tests look at the lines themselves. */
struct net *hostile_up(struct abi *t);
unsigned warns(void);			/* lines so far */
unsigned infos(void);
/* The last WARN has all of these words in it; NULL ends the list. */
void warned(const char *first, ...) __attribute__((sentinel));

/* -- how long a call takes ---------------------------------------------------------------- */

/*
 * A call that waits for something is found by the clock, and so is a machine that has better
 * things to do than to run us: the time we stood in line for a CPU is taken off, and a call that
 * neither slept nor computed that long has met a virtual machine's own host.
 */
struct lap {
	uint64_t wall_ns, queued_ns, cpu_ns;
	long slept;
};

struct lap lap_start(void);
void lap_end(const struct lap *lap, unsigned limit_ms, const char *file, int line,
	     const char *what);
void laps_say(struct abi *t, const char *what);	/* print the longest and start again */

/* The promises are 5 ms for set-up and close, 1 ms for data; ten times that fails. */
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
/* A handle for whoever listens on that port, of a process nobody has met. */
void handle_forge(void *handle, uint16_t port, struct braid_handle *ret);
/* Call connect() until it says something; each call is timed.  *ret_ms: all of them together. */
ncclResult_t connect_for(struct net *net, void *handle, unsigned ms, void **ret_send,
			 unsigned *ret_ms);

/* Call connect() until it has begun to dial that listener; each call is timed. */
void connect_begins(struct net *net, void *handle, int listener, void **ret_send);

/* -- the friend --------------------------------------------------------------------------- */

/* Before hostile_up().  It is ready when friend_ready() returns, and serves once. */
struct peer friend_start(const struct abi *t);
void friend_ready(struct peer *p);
/*
 * It gets through to this listen, whose handle may be a doctored one, and moves data both of us
 * check.  Prints how long that took; a second is promised, ten fail.
 */
void friend_served(struct abi *t, struct net *net, void *listen, const void *handle,
		   struct peer *p, const char *while_);

#endif
