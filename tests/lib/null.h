/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * null.h - a transport without a network: the two ends of a link in one process.
 *
 * Each lane has a wire in both directions.  A direct wire is empty all the time: what one end
 * pushes is in the other end's hands before push() returns.  A held wire keeps the bytes until
 * the test delivers them, whole frames or pieces of them, so that a test chooses every
 * interleaving of lanes and directions; it may be short, so that push() is cut off in the middle
 * of a frame and told to come back later, as by a full socket.
 *
 * There is one thread, a clock that stands still until the test moves it, no service thread and
 * no descriptor.  braid_os is replaced for as long as a pair exists.
 */
#ifndef BRAID_TESTS_LIB_NULL_H
#define BRAID_TESTS_LIB_NULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/comm.h"
#include "core/dev.h"
#include "core/link.h"
#include "core/transport.h"

enum { NULL_TRANSPORT_ID = 200 };

extern const struct braid_transport null_transport;

struct null_config {
	unsigned lanes;			/* 0: 1 */
	uint64_t window;		/* that each end grants */
	bool held;
	size_t limit;			/* bytes a held wire takes; 0: any number */
	size_t bite;			/* bytes that one push moves at most; 0: any number */
};

struct null_pair {
	struct braid_link *end[2];	/* 0 is the dialler */
	struct braid_dev dev[2];
	struct null_config config;
};

/* Both ends are up, with all lanes open and attached, and all of them active. */
void null_pair_init(struct null_pair *p, const struct null_config *config);
/* Any state; comms that are left are freed. */
void null_pair_fini(struct null_pair *p);
void null_pair_add_lane(struct null_pair *p);

/* A comm that both ends know, sending from end `from`. */
void null_comms(struct null_pair *p, unsigned from, struct braid_comm **ret_send,
		struct braid_comm **ret_recv);

/*
 * Held wires, by the end that sends.  deliver() hands over what is left of the first frame, if
 * all of it is there; deliver_some() at most n bytes of payload, and a header in any case.  Both:
 * 1 if anything moved, 0 if not, or what the receiving link said: the lane is dead then, and the
 * next call on that link finds out.
 */
int null_deliver(struct null_pair *p, unsigned from, unsigned lane);
int null_deliver_some(struct null_pair *p, unsigned from, unsigned lane, size_t n);
size_t null_waiting(const struct null_pair *p, unsigned from, unsigned lane);	/* bytes */
/* The header of the next frame on a wire, or false. */
bool null_peek(const struct null_pair *p, unsigned from, unsigned lane, struct braid_hdr *ret);
/* Everything on every wire, in the order of lanes; returns frames, or an error. */
int null_deliver_all(struct null_pair *p);
/* Until nothing moves any more, with the service thread's help (braid_link_tidy). */
void null_settle(struct null_pair *p);

/* A frame that the core of end `from` has not sent: the numbers of its own are made to fit. */
int null_forge(struct null_pair *p, unsigned from, unsigned lane, struct braid_hdr *h,
	       const void *payload);
/* A message of its comm that comes without a header, but for what braid_short() says of it. */
int null_bare(struct null_pair *p, unsigned from, unsigned lane, uint32_t what,
	      const void *payload, size_t n, bool in_short);

/* Nothing queued, lent, owed or counted is left at either end: NULL, or what is. */
const char *null_not_idle(const struct null_pair *p);

/* What everything waits for, to stderr. */
void null_dump(const struct null_pair *p);

/* --- the process around it ----------------------------------------------------------------- */

extern uint64_t null_now_ns;

extern unsigned null_posts;	/* messages that left before they were booked, ever */

/* WARN lines since null_warns_clear(), and the last of them. */
extern unsigned null_warns;
extern char null_warn[1024];
void null_warns_clear(void);

/* Deterministic numbers: xorshift, so that a seed means the same everywhere. */
struct null_rnd {
	uint64_t s;
};
uint64_t null_rnd(struct null_rnd *r);
/* In [0, n). */
uint64_t null_below(struct null_rnd *r, uint64_t n);

#endif
