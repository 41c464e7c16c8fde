/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * watched.h - links whose callers are away: the service thread watches their sockets.
 *
 * A link is in one of two modes.  *Active*: callers move it, and the thread only checks it every
 * tick.  *Watched*: no call came for a tick, and its sockets are in the thread's epoll set.  Only
 * the service thread calls these functions.
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
/* Watch the link no more. */
void braid_watched_end(struct braid_link *link);
/* Fence a lane that may be watched: as braid_lane_fence(). */
int braid_lane_shut(struct braid_lane *lane);

#endif
