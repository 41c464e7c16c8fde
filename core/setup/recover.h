/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recover.h - links that lose their sockets and get them back.
 *
 * The service thread looks at every link that carries comms:
 *
 *   - A lane whose socket was lost is closed (fenced) and dialled again, by the end that dialled
 *     the link.  An accepting end whose lanes are all lost asks for that by a new connection.
 *     After a failed send, what arrived before is read first: the peer may have closed.
 *   - health.c says which lanes work, silence.c whether the peer is there, and stall.c whether it
 *     is late.
 *
 * Time in which this process itself did not run (stopped, suspended) does not count.  Called with
 * braid_svc.lock held.
 */
#ifndef BRAID_SETUP_RECOVER_H
#define BRAID_SETUP_RECOVER_H

#include <stdint.h>

struct braid_link;

/* Tend a link that is up.  Returns the milliseconds until the next call is due, or -1. */
int braid_recover_tick(struct braid_link *link, uint64_t now);
/* The peer has lost its home lane `index`, and asks us to dial; `epoch`: the last dial it saw. */
void braid_recover_requested(struct braid_link *link, unsigned index, uint32_t epoch);

#endif
