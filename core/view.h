/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * view.h - a look at a link, its lanes and its messages, from outside and without waiting.
 *
 * It is for a thread that does nothing else (core/stat.c), while NCCL's threads go on or hang
 * somewhere.  What changes under the link's lock is copied with that lock held, for some
 * microseconds.  It is only tried for a bounded time: where a thread sits on it, the look is `busy`
 * and has what can be read without: the lanes and what they carried, not the messages.
 *
 * Nothing that is looked at can be freed: a link counts who looks at it (braid_links_next), and its
 * lanes live as long as it does; comms and requests are looked at with the lock held.
 */
#ifndef BRAID_CORE_VIEW_H
#define BRAID_CORE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "core/link.h"
#include "core/transport.h"

enum { BRAID_VIEW_MESSAGES = 4096 };	/* of one link; the rest are counted */

enum braid_view_state {			/* of a message; words in view.c */
	BRAID_VIEW_NOT_POSTED,		/* a send: the peer has no receive for it */
	BRAID_VIEW_SENDING,
	BRAID_VIEW_NOT_ACKED,
	BRAID_VIEW_NOT_SENT,		/* a receive: the peer has nothing for it */
	BRAID_VIEW_ANNOUNCED,
	BRAID_VIEW_RECEIVING,
	BRAID_VIEW_DONE,		/* but nobody has asked: test() was not called */
	BRAID_VIEW_STATES,
};
extern const char *const braid_view_words[BRAID_VIEW_STATES];

struct braid_view_message {
	uint32_t comm, seq;		/* seq: of the message, or of the receive */
	int32_t tag;
	bool sender, failed;		/* failed: its comm has, the caller has not asked yet */
	bool ill;			/* part of it is on a lane that is down or suspect */
	enum braid_view_state state;
	uint64_t size, done;		/* bytes; of a receive without a message: the room */
	uint64_t age_ns;
};

struct braid_view_lane {
	const char *transport;		/* NULL: not known, the look is busy */
	bool up, home;
	uint64_t suspect_ns;		/* nothing has been acknowledged for; 0: all is well */
	uint64_t sent, received;	/* bytes of frames, ever; what went twice counts twice */
	uint64_t queued, unacked;	/* bytes not handed to the wire; payload not acknowledged */
	unsigned lost, back;		/* times */
	struct braid_wire_state wire;
};

struct braid_view {
	uint32_t number;
	const char *device;
	char peer[192];			/* "": not known yet, or the look is busy */
	enum braid_link_state state;
	int err;
	bool busy, dialler, silent, late;
	uint64_t heard_ns;		/* ago; 0: the link is not up */
	unsigned stalls;
	unsigned nlanes, ncomms;
	struct braid_view_lane lane[BRAID_LANES_MAX];
	struct braid_view_sum {
		uint64_t messages, bytes;
	} open[2], closed[2];		/* done, of comms that are: received, sent */
	uint64_t outstanding[2], oldest_ns;
	unsigned nmsgs;			/* of those, below */
	struct braid_view_message msg[BRAID_VIEW_MESSAGES];
};

/* *patience_ns is what may still be waited for locks, of this link and the next ones. */
void braid_view_link(struct braid_link *link, uint64_t *patience_ns, struct braid_view *ret);

/* --- the time of day, at a glance ---------------------------------------------------------- */

/*
 * Milliseconds will do for the age of a message: the service thread keeps the time as it comes by,
 * every two to sixteen while links are in use.
 */
extern _Atomic uint64_t braid_view_clock;

uint64_t braid_view_wind(void);		/* set it, and say what it is */

/* For the data path: the thread sleeps while it watches the link. */
static inline uint64_t braid_view_now(const struct braid_link *link)
{
	if (__builtin_expect(atomic_load_explicit(&link->watched, memory_order_relaxed), false))
		return braid_view_wind();
	return atomic_load_explicit(&braid_view_clock, memory_order_relaxed);
}

#endif
