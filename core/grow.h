/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * grow.h - how many lanes a link uses.
 *
 * It starts with what the link speed suggests.  While chunks wait because every lane is full, the
 * sending end tries all lanes, and next time twice as many, or only ever that where lanes are queue
 * pairs of a NIC: it goes back and forth between the two numbers a few times, measuring what gets
 * acknowledged, and keeps the larger only if it was faster each time (one comparison would believe
 * noise), or at once if it was much faster.  Now and then it asks the other way round whether half
 * would do.  Tries become rarer as they fail.  A link that rests goes back to its start.  Lanes no
 * longer used stay open, and cost no call.  Only the dialler dials; the other end asks by a LANES
 * frame.  Called by the service thread.
 */
#ifndef BRAID_CORE_GROW_H
#define BRAID_CORE_GROW_H

#include <stdbool.h>
#include <stdint.h>

#include "core/link.h"

unsigned braid_grow_first(int speed_mbps, bool speed_known);	/* lanes to start with */
void braid_grow_start(struct braid_link *link);
bool braid_grow_wants_dial(const struct braid_link *link);
bool braid_grow_may_dial(const struct braid_link *link, uint64_t now);	/* and it is time to */
/* A lane that was dialled is up (err 0) or failed: it is dialled again, ever more seldom. */
void braid_grow_dialled(struct braid_link *link, int err, uint64_t now);
void braid_grow_tick(struct braid_link *link, uint64_t now);

#endif
