/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pair.h - the two ends of a link in one process, over the null transport.
 *
 * Each lane has a wire in each direction.  A direct wire is always empty: the other end has
 * received what one end pushes before push() returns.  A held wire keeps the bytes until the test
 * delivers them, whole frames or pieces of them, so that a test chooses every interleaving of lanes
 * and directions.  A held wire may be limited: then push() returns -EAGAIN in the middle of a
 * frame, as with a full socket.
 *
 * There is one thread, a clock that stands still until the test moves it, no service thread and
 * no descriptor.  braid_os is replaced for as long as a pair exists.
 */
#ifndef BRAID_TESTS_LIB_PAIR_H
#define BRAID_TESTS_LIB_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/link/control.h"
#include "core/msg/comm.h"
#include "core/dev.h"
#include "core/link/link.h"
#include "core/transport.h"
#include "tests/lib/null.h"
#include "tests/lib/warns.h"

struct null_config {
	unsigned lanes;			/* 0: 1 */
	uint64_t window;		/* bytes that each end grants */
	bool held;
	size_t limit;			/* bytes a held wire takes; 0: any number */
	size_t bite;			/* bytes that one push moves at most; 0: any number */
};

struct null_pair {
	struct braid_link *end[2];	/* 0 is the dialler */
	struct braid_dev dev[2];
	struct null_config config;
};

/* Makes both ends, with all lanes open, attached and active. */
void null_pair_init(struct null_pair *p, const struct null_config *config);
/* In any state; frees the comms that are left. */
void null_pair_fini(struct null_pair *p);
void null_link_free(struct braid_link *link);	/* and its comms */
void null_pair_add_lane(struct null_pair *p);

/* Makes a comm at both ends, which sends from end `from`. */
void null_comms(struct null_pair *p, unsigned from, struct braid_comm **ret_send,
		struct braid_comm **ret_recv);

/*
 * Held wires, named by the sending end.  null_deliver() delivers the rest of the first frame, if
 * all of it was pushed; null_deliver_some() a header and at most n bytes of payload.  1: something
 * moved; 0: nothing did; else the receiving link's error, which the lane's next poll() returns too.
 */
int null_deliver(struct null_pair *p, unsigned from, unsigned lane);
int null_deliver_some(struct null_pair *p, unsigned from, unsigned lane, size_t n);
size_t null_waiting(const struct null_pair *p, unsigned from, unsigned lane);	/* bytes */
/* The header of the next frame on a wire, or false. */
bool null_peek(const struct null_pair *p, unsigned from, unsigned lane, struct braid_hdr *ret);
/* Delivers everything on every wire, in the order of lanes.  Returns frames, or an error. */
int null_deliver_all(struct null_pair *p);
/*
 * Moves both ends until nothing moves any more; also does the service thread's
 * braid_link_try_flush_control().
 */
void null_settle(struct null_pair *p);

/* Forges a frame that the core of end `from` has not sent: it has the number of the next one. */
int null_forge(struct null_pair *p, unsigned from, unsigned lane, struct braid_hdr *h,
	       const void *payload);
/* Forges a message without a header, but with the 32 bits `what` of braid_short(). */
int null_bare(struct null_pair *p, unsigned from, unsigned lane, uint32_t what,
	      const void *payload, size_t n, bool in_short);
/* The same of a chunk of n bytes that a NIC has written. */
int null_written(struct null_pair *p, unsigned from, unsigned lane, uint32_t imm, size_t n);

/* A lane is lost with all that is on its way, and both ends get another carrier for it. */
void null_lose(struct null_pair *p, unsigned lane);

/* NULL if nothing queued, pending, lent or counted is left at either end; else what is left. */
const char *null_not_idle(const struct null_pair *p);

/* Prints to stderr what everything waits for. */
void null_dump(const struct null_pair *p);

/* --- the process around it ----------------------------------------------------------------- */

extern uint64_t null_now_ns, null_tick_ns;	/* the clock; what each look at it adds, at first 0 */

extern unsigned null_posts;	/* messages sent by post(), before they were queued, ever */

/* Pseudo-random numbers by xorshift: a seed gives the same ones everywhere. */
struct null_rnd {
	uint64_t s;
};
uint64_t null_rnd(struct null_rnd *r);
/* In [0, n). */
uint64_t null_below(struct null_rnd *r, uint64_t n);

#endif
