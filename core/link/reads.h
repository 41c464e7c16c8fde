/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reads.h - bytes that a NIC reads from the peer's memory: gets, where the lane can do that.
 *
 * A read is no frame: the peer's CPU takes no part in it, and nothing acknowledges it.  Reads of
 * one lane end in the order in which they began.  Those that its carrier has not done when it is
 * closed are lost, and x->ops->read_over() says so.
 */
#ifndef BRAID_LINK_READS_H
#define BRAID_LINK_READS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/link/lane.h"
#include "core/link/xfer.h"

struct braid_link;

/*
 * NCCL may use one-sided operations in this process: carriers that are made from now on let the
 * peer's NIC read windows.  Until then no peer can read any memory.  Any thread may call.
 */
void braid_reads_allow(void);

/* --- with the link's lock held ------------------------------------------------------------- */

/*
 * Can the lane's NIC read from x->to into x->mr?  Not on a link with checksums, since a read has
 * none; and not by keys that the peer has revoked.
 */
bool braid_lane_can_read(const struct braid_lane *lane, const struct braid_xfer *x);
/*
 * Begin to read at most `len` bytes at `offset` of x->to, which go to `to` in x->mr.  Returns how
 * many; 0: the lane takes no more now.  x lives until read_over(), or braid_link_forget_reads().
 */
uint32_t braid_lane_read(struct braid_lane *lane, struct braid_xfer *x, char *to, uint64_t offset,
			 uint32_t len);
/* The lane's carrier is closed, and its NIC has stopped: what it has not read is lost. */
void braid_lane_reads_lost(struct braid_lane *lane);

/* Is the lane's NIC reading for that comm? */
bool braid_lane_is_reading(const struct braid_lane *lane, uint32_t comm);
/* Nothing waits for the comm's reads any more.  First stop the NICs: braid_link_revoke(). */
void braid_link_forget_reads(struct braid_link *link, uint32_t comm);

#endif
