/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * setup_self.h - what the two lives of an end (setup.h) share: that of messages, and that of puts,
 * signals and gets (setup_puts.c).  setup_end.c is the frame of both.
 */
#ifndef BRAID_TESTS_FAULTS_SETUP_SELF_H
#define BRAID_TESTS_FAULTS_SETUP_SELF_H

#include "tests/faults/setup.h"

enum { SIZE = 4 << 20, FRESH_S = 60 };	/* bytes of what moves; a life without a fault */

struct net;
struct rma;

struct self {				/* an end */
	struct show *show;
	struct role *role;
	unsigned who;
	const struct life *life;
	struct net *net;		/* messages */
	void *comm, *mr, *req;
	struct rma *rma;		/* puts */
	void *rma_ctx;			/* of init; the plugin's */
	void *coll, *ctx, *mem_mh, *words_mh;
	_Atomic uint64_t word;		/* signals that came */
	void *listen;
	uint8_t *mem;
	bool failing;			/* fault_memory() is set */
};

struct life {				/* what differs */
	void *(*load)(struct self *s, char *err, size_t len);	/* its dlopen(); NULL: it fails */
	bool (*init)(struct self *s);	/* finds a device */
	ncclResult_t (*finalize)(struct self *s);
	/*
	 * Opens a pair in this process, moves `size` bytes, opens as many more inside, and closes it.
	 * ncclInternalError: not in time.
	 */
	ncclResult_t (*pair)(struct self *s, size_t size, unsigned inside);
	bool (*opens)(struct self *s);	/* true: the connection to the other end is open */
	void (*talks)(struct self *s);	/* comes to IS_DONE, unless it is to close before */
	void (*closes)(struct self *s);
};
extern const struct life life_messages, life_puts;

__attribute__((noreturn, format(printf, 2, 3)))
void is_broken(struct self *s, const char *fmt, ...);
int ordered(const struct self *s);
void turn(struct self *s);		/* of a wait; memory comes and goes here */
void waits_for(struct self *s, enum call entry);
void comes_to(struct self *s, enum phase phase);
bool has_error(struct self *s, ncclResult_t res);	/* then it comes to IS_DONE */

#define CALLED(s, which, expr) TIMED(&(s)->role->end, which, expr)

#endif
