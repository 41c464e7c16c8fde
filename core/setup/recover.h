/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recover.h - links that lose their sockets and get them back, and peers that are gone for good.
 *
 * The service thread looks at every link that carries comms:
 *
 *   - A lane whose socket was lost is closed (fenced) and dialled again, by the end that dialled
 *     the link.  If the other end has no lane left, it asks the dialler to, by a connection of its
 *     own.  After a failed send, what arrived before is read first: the peer may have closed.
 *   - A lane on which nothing is acknowledged for long is suspect: another socket is dialled while
 *     the old one is still open, and the first of the two that works carries the lane.
 *   - A lane that is dialled again soon after gets small segments: perhaps large packets are lost.
 *   - An end that has nothing to send sends ALIVE now and then.  A silent peer is reported after
 *     some seconds, and counts as dead after BRAID_PEER_TIMEOUT.
 *   - If the peer's port refuses connections and no lane is left, the peer's process has ended.
 *
 * Time in which this process itself did not run (stopped, suspended) does not count.
 */
#ifndef BRAID_SETUP_RECOVER_H
#define BRAID_SETUP_RECOVER_H

#include <stdint.h>

#include "core/link/link.h"

struct braid_conn;

/* The link is up. */
void braid_recover_start(struct braid_link *link, uint64_t now);
/* A device has reported an event.  If a lane's port is down, the next tick closes the lane. */
void braid_recover_port(struct braid_link *link);
/* Tend a link that is up.  Returns the milliseconds until the next call is due, or -1. */
int braid_recover_tick(struct braid_link *link, uint64_t now);

/* The dial of a lost or suspect lane has ended.  err 0: the lane is back; otherwise why not. */
void braid_recover_dialled(struct braid_lane *lane, const struct braid_conn *c, int err,
			   uint64_t now);
/* A lane goes on over a new socket, at either end. */
void braid_recover_resumed(struct braid_lane *lane, uint64_t now);
/* Fits into any tunnel: the kernel's tcp_base_mss.  For lanes that are lost again and again. */
enum { BRAID_SMALL_SEGMENT = 1024 };
/* Has the lane been given a new socket just now (in the last 10 s)? */
bool braid_recover_again(const struct braid_lane *lane, uint64_t now);
/* The request that the peer dial has ended.  err 0: the peer will dial; otherwise why not. */
void braid_recover_asked(struct braid_link *link, const struct braid_conn *c, int err,
			 uint64_t now);
/* The peer has lost its home lane `index`, and asks us to dial; `epoch`: the last dial it saw. */
void braid_recover_wanted(struct braid_link *link, unsigned index, uint16_t epoch);
/* Is the connection that was dialled for this lane over that path still needed? */
bool braid_recover_wants(const struct braid_lane *lane, unsigned path);

#endif
