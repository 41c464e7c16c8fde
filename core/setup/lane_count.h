/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lane_count.h - how many lanes a link uses.
 *
 * A link starts with as many lanes as the NIC's speed suggests.  While chunks wait because every
 * lane is full, the sending end tries all lanes it may have.  The next try only doubles the present
 * number, as does every try where lanes are queue pairs of a NIC.
 *
 * A try goes back and forth between the two numbers a few times, and measures the bytes that get
 * acknowledged.  It keeps the larger number only if that was faster each time (a single comparison
 * could be noise), or at once if it was much faster.  Now and then half of the lanes are tried in
 * the same way.  Tries become rarer as they fail.  A link at rest goes back to its first number.
 *
 * Lanes no longer used stay open, and cost no system call.  Only the dialler dials; the other end
 * asks for lanes by a LANES frame.  Called by the service thread, with braid_svc.lock held.
 */
#ifndef BRAID_SETUP_LANE_COUNT_H
#define BRAID_SETUP_LANE_COUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/link/link.h"

unsigned braid_lane_count_first(int speed_mbps, bool speed_known);	/* lanes to start with */
void braid_lane_count_start(struct braid_link *link);
bool braid_lane_count_wants_dial(const struct braid_link *link);
/* Does the link want another lane, and is the dial due? */
bool braid_lane_count_may_dial(const struct braid_link *link, uint64_t now);
/* A lane that was dialled is up (err 0), or failed: then the next dial waits twice as long. */
void braid_lane_count_dialled(struct braid_link *link, int err, uint64_t now);
void braid_lane_count_tick(struct braid_link *link, uint64_t now);

#endif
