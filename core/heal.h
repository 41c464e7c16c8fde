/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * heal.h - links that lose their sockets and get them back, and peers that are gone for good.
 *
 * The service thread looks at every link that carries comms:
 *
 *   - A lane whose socket was lost is closed (fenced) and dialled again, by the end that dialled
 *     the link; the other end asks it to, by a connection of its own, if it has no lane left.
 *     If a send failed, what had come before is read first: the peer may have left for good.
 *   - A lane on which nothing is acknowledged for long is suspect: another socket is dialled while
 *     the old one still stands, and whichever comes to life first carries on.
 *   - One that is dialled again soon after has small segments: perhaps what is long is lost.
 *   - Who has nothing to say says ALIVE now and then.  Silence is told after some seconds, and is
 *     the peer's end after BRAID_PEER_TIMEOUT.
 *   - Nobody listens where the peer did, and no lane is left: its process has ended.
 *
 * Time in which this process itself did not run (stopped, suspended) does not count.
 */
#ifndef BRAID_CORE_HEAL_H
#define BRAID_CORE_HEAL_H

#include <stdint.h>

#include "core/link.h"

struct braid_conn;

/* The link is up. */
void braid_heal_start(struct braid_link *link, uint64_t now);
/* A device has said something.  If a lane's port is down, the next tick closes it. */
void braid_heal_port(struct braid_link *link);
/* Look at a link that is up: the milliseconds until it wants to be looked at again, or -1. */
int braid_heal_tick(struct braid_link *link, uint64_t now);

/* A lane that was lost or suspect was dialled: 0 and it is back, or why not. */
void braid_heal_dialled(struct braid_lane *lane, const struct braid_conn *c, int err, uint64_t now);
/* A lane goes on over a new socket, at either end. */
void braid_heal_resumed(struct braid_lane *lane, uint64_t now);
/* What fits into any tunnel, the kernel's tcp_base_mss: for lanes that are lost again and again. */
enum { BRAID_SMALL_SEGMENT = 1024 };
/* Has it done so just now? */
bool braid_heal_again(const struct braid_lane *lane, uint64_t now);
/* The peer was asked to dial: 0 and it will, or why not. */
void braid_heal_asked(struct braid_link *link, const struct braid_conn *c, int err, uint64_t now);
/* The peer has lost its home, and asks us to dial; it tells the last dial of it that it saw. */
void braid_heal_wanted(struct braid_link *link, unsigned index, uint16_t epoch);
/* Is there still need of the connection that was dialled for this lane, over that path? */
bool braid_heal_wants(const struct braid_lane *lane, unsigned path);

#endif
