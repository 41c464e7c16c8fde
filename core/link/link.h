/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * link.h - all that two processes share over one pair of devices.
 *
 * A link owns lanes and carries the comms of both directions.  The end that connects first makes it
 * (core/setup/dial.c and core/setup/accept.c), keyed by peer process, both devices and traffic
 * class.
 *
 * Locks, in this order: a lane's io lock, for the thread that reads it; the link's lock.  A thread
 * that sends a lot drops the link's lock meanwhile, and `pushing` keeps others off the lane.  The
 * data path only tries to take these locks; set-up, close and cancel wait for them.
 *
 * Each end sends its eager messages and control frames over one lane, its home: lane 0 until that
 * lane dies.
 *
 * Progress: any data call moves all of a link.  If no call came for a tick, the service thread
 * watches the link's descriptors instead, and moves it when something arrives.
 */
#ifndef BRAID_LINK_LINK_H
#define BRAID_LINK_LINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/dev.h"
#include "core/link/lane.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/link/parts.h"
#include "core/proto/handle.h"
#include "core/proto/frame.h"

enum braid_link_state {
	BRAID_LINK_DIALING,		/* our own dial is in progress */
	BRAID_LINK_WAITING,		/* both ends dialled, and the peer's dial goes on */
	BRAID_LINK_UP,
	BRAID_LINK_DEAD,
};

struct braid_link_key {
	uint8_t process[BRAID_ID_SIZE];
	uint16_t peer_dev;
	int16_t traffic_class;
	struct braid_dev *dev;
	bool self_accepted;		/* the accepting end of a link to our own process */
};

struct braid_link {
	/* What it is; set before other threads know the link. */
	uint32_t number;		/* in this process, for people; from 1 */
	struct braid_link_key key;

	/* Set by core/setup before the link is up: under the lock, as the viewer reads these. */
	bool dialler;
	char peer[192];			/* "host (pid N) at address", for people */
	atomic_bool spare;		/* while it is dialled: the callers have another one */
	/* Also set before the link is up; no other thread reads these until then. */
	unsigned lanes_max;		/* the smaller of both ends' limits */
	unsigned npaths;		/* between the two devices: core/setup/path.h */
	bool checksums;			/* headers are sealed: core/proto/frame.h */

	_Atomic int state;		/* enum braid_link_state */
	atomic_int err;			/* once dead */

	struct braid_lock lock;
	struct braid_lane *lane[BRAID_LANES_MAX];
	atomic_uint nlanes;		/* never decreases while the link lives */

	/* Its parts: only their owner's folder uses these (core/link/parts.h). */
	struct braid_link_lanes lanes;
	struct braid_link_tx tx;
	struct braid_link_rx rx;
	struct braid_link_thread thread;
	struct braid_link_msg msg;
	struct braid_link_table table;
	struct braid_link_setup setup;
	struct braid_link_dial dial;
	struct braid_link_tries tries;
	struct braid_link_tick tick;
	struct braid_link_reap reap;
	struct braid_link_recover recover;
	struct braid_link_share share;
	struct braid_link_lane_count lane_count;
};

struct braid_conn;

struct braid_link *braid_link_new(const struct braid_link_key *key);
void braid_link_free(struct braid_link *link);

/* Allocate rings and buffers for traffic; 0 or -ENOMEM.  Idle links free them. */
int braid_link_attach(struct braid_link *link);
void braid_link_detach(struct braid_link *link);
/*
 * Give back what the link's buffers use, but keep these: its comms are at rest.  False: not all of
 * it yet, since a thread or a NIC uses some.
 */
bool braid_link_trim(struct braid_link *link);

/* Fail the link and every comm on it with err.  One WARN, if a caller is affected. */
void braid_link_fail(struct braid_link *link, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Fail the link with its lock held.  The service thread closes the lanes later. */
void braid_link_down(struct braid_link *link, int err, const char *why);

/*
 * Make progress from a data call: the service thread then leaves the link alone for a while.
 * `idle`, of the caller's comm: the link's isend_epoch at the comm's last idle test().  `done`: set
 * once the caller's request is done.  Both may be NULL.
 */
void braid_link_progress(struct braid_link *link, uint64_t *idle, const atomic_bool *done);
/* Make progress from the service thread: > 0 if frames came or left. */
int braid_link_move(struct braid_link *link);

/*
 * Make every lane stand still: takes all io locks and the link's lock, until braid_link_go().
 * Waits for other threads' calls on the link to end.  Returns the number of lanes, for go().
 */
unsigned braid_link_stop(struct braid_link *link);
void braid_link_go(struct braid_link *link, unsigned n);

/* With the link's lock held: */
bool braid_link_ctl(struct braid_link *link, struct braid_hdr *h, const void *payload);
void braid_link_pending(struct braid_link *link, struct braid_xfer *x);	/* chunks to cut */
/* If the payload goes to a receive in GPU memory, receive it into host memory first. */
int braid_rx_stage(struct braid_lane *lane);
/* The bytes of each chunk of a message, except the last. */
uint32_t braid_link_chunk_len(const struct braid_link *link, uint64_t size);
void braid_link_feed(struct braid_link *link);	/* cut chunks; push their lanes */
/* An isend has queued its first frame, of a burst perhaps: cut chunks, and if `now`, push home. */
void braid_link_send(struct braid_link *link, bool now);
void braid_link_flush(struct braid_link *link);	/* push home, unless another thread does */
void braid_link_unpark(struct braid_link *link);	/* the service thread stops watching */

/* Without any lock: */
/* Have the service thread look at the link soon: something has changed that it must act upon. */
void braid_link_wake(struct braid_link *link);
/* For the service thread: a link that was woken, each once; NULL: none is left. */
struct braid_link *braid_link_woken(void);

/* A data call was made: the service thread leaves the link to its caller for a tick. */
static inline void braid_link_touch(struct braid_link *link)
{
	unsigned long touched = atomic_load_explicit(&link->thread.touched, memory_order_relaxed);

	atomic_store_explicit(&link->thread.touched, touched + 1, memory_order_relaxed);
	if (atomic_load_explicit(&link->thread.watched, memory_order_relaxed))
		braid_link_unpark(link);
}

static inline struct braid_lane *braid_link_home(const struct braid_link *link)
{
	return link->lane[link->lanes.home];
}

/* Home has only STARTs to send, and no lane takes their chunks now: send both together later. */
static inline bool braid_link_only_starts(const struct braid_link *link)
{
	const struct braid_txq *q = &braid_link_home(link)->tx;

	return q->unsent == q->starts && !braid_list_empty(&link->tx.pending);
}

#endif
