/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * watched.h - links whose callers are away: the service thread watches their sockets.
 *
 * A link is in one of three modes.  *Active*: callers move it, and the thread only checks it every
 * tick.  *Watched*: no call came for a tick, and its sockets are in the thread's epoll set.
 * *Streaming*: no call came, and more arrives than one look takes, as at the target of large gets.
 * The thread moves it in turn with other links, and does not sleep.  Only the service thread calls
 * these functions.
 */
#ifndef BRAID_SETUP_WATCHED_H
#define BRAID_SETUP_WATCHED_H

#include <stdbool.h>
#include <stdint.h>

struct braid_lane;
struct braid_link;

/* An event of a watched lane: move its link, unless a caller is back. */
void braid_watched_event(struct braid_lane *lane);
/* A tick of a link that is up.  True: this link does not need the next tick soon. */
bool braid_watched_tick(struct braid_link *link, uint64_t now);
/* Move the streaming link whose turn it is, unless a caller is back.  NULL: there is none. */
struct braid_link *braid_watched_stream(void);
bool braid_watched_streams(void);	/* is there one? */
/* Watch the link no more, and move it no more. */
void braid_watched_end(struct braid_link *link);
/* Fence a lane that may be watched: as braid_lane_fence(). */
int braid_lane_shut(struct braid_lane *lane);

#endif
