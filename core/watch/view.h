/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * view.h - a look at a link, its lanes and its messages, from outside and without waiting.
 *
 * Views are for a thread of their own (core/watch/stat.c), while NCCL's threads run or hang.  What
 * changes under the link's lock is copied with that lock held, for some microseconds.  The
 * lock is only tried for a bounded time.  If another thread keeps it, the view is `busy`: it has
 * what can be read without the lock, the lanes and their byte counts, but not the messages.
 *
 * Nothing that a view reads can be freed meanwhile: a link counts its viewers (braid_links_next),
 * and its lanes live as long as it does; comms and requests are read with the lock held.
 */
#ifndef BRAID_WATCH_VIEW_H
#define BRAID_WATCH_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/hist.h"
#include "core/link/link.h"
#include "core/transport.h"

enum { BRAID_VIEW_MESSAGES = 4096 };	/* of one link; the rest are counted */

enum braid_view_state {			/* of a message; words in view.c */
	BRAID_VIEW_NOT_POSTED,		/* a send: the peer has no receive for it */
	BRAID_VIEW_SENDING,
	BRAID_VIEW_NOT_ACKED,
	BRAID_VIEW_NOT_SENT,		/* a receive: the peer has nothing for it */
	BRAID_VIEW_ANNOUNCED,
	BRAID_VIEW_RECEIVING,
	BRAID_VIEW_NOT_REGISTERED,	/* an operation: the peer has no such window yet */
	BRAID_VIEW_ASKED,		/* a get: bytes are missing */
	BRAID_VIEW_DONE,		/* but test() has not been called since */
	BRAID_VIEW_STATES,
};
extern const char *const braid_view_words[BRAID_VIEW_STATES];

struct braid_view_message {
	const char *what;		/* "put", "signal", "get"; NULL: as `sender` says */
	uint32_t comm, seq;		/* seq: of the message, or of the receive */
	int32_t tag;			/* of an operation: the window */
	bool sender, failed;		/* failed: its comm has, and test() was not called since */
	bool ill;			/* part of it is on a lane that is down or suspect */
	enum braid_view_state state;
	uint64_t size, done;		/* bytes; of a receive without a message: the room */
	uint64_t age_ns;
};

struct braid_view_lane {
	const char *transport;		/* NULL: not known, the view is busy */
	bool up, home;
	uint64_t suspect_ns;		/* for how long it has been suspect; 0: it is not */
	uint64_t sent, received;	/* bytes of frames, ever; replayed ones count again */
	uint64_t queued, unacked;	/* bytes not handed to the wire; payload not acknowledged */
	unsigned lost, back;		/* times */
	unsigned corrupt;		/* of the losses: a checksum was wrong */
	bool thread_sends, thread_receives;	/* at the moment: core/link/mover.h */
	struct braid_wire_state wire;
	const char *nic;		/* the member of our device; NULL: the view is busy */
	struct braid_hist acks;		/* of frames timed: from queued to acknowledged */
};

struct braid_view {
	uint32_t number;
	const char *device;
	char peer[192];			/* "": not known yet, or the view is busy */
	enum braid_link_state state;
	int err;
	bool busy, dialler, silent, late;
	/* Percent: CPU that the peer's process uses; its thread waits for one.  -1: not known. */
	int peer_cpu, peer_wait;
	uint64_t silent_ns;		/* since something came; 0 if the link is not up */
	unsigned stalls;
	unsigned nlanes, ncomms;
	struct braid_view_lane lane[BRAID_LANES_MAX];
	struct braid_view_sum {
		uint64_t messages, bytes;
	} open[2], closed[2];		/* messages done; [0] received, [1] sent */
	struct braid_hist took[2];	/* sends timed, from isend() to done: small; large */
	uint64_t outstanding[2], oldest_ns;
	unsigned nchannels, windows;	/* of one-sided operations; windows that peers opened */
	unsigned signals_waiting;	/* here, for bytes that are on their way */
	unsigned nmsgs;			/* how many outstanding messages msg has */
	struct braid_view_message msg[BRAID_VIEW_MESSAGES];
};

/* *budget_ns: how long this call, and later ones for other links, may still wait for locks. */
void braid_view_link(struct braid_link *link, uint64_t *budget_ns, struct braid_view *ret);

#endif
