/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mover.h - threads that move the bytes of lanes whose transport copies them (BRAID_THREADS).
 *
 * Each NIC has movers of its own, which all links of the process share.  A thread that meets a
 * large piece to send, or a large payload that is here, hands that direction of the lane over.  The
 * mover then calls push() or poll() under the locks under which every thread calls them, so
 * recovery, close and deregMr need to know nothing of movers.
 *
 *   - In a mover's hands for sending: others leave large pieces to it, and push small ones.
 *   - In a mover's hands for receiving: the mover counts as one that waits for the lane's io lock,
 *     so those that only try to take it pass the lane by.
 *   - After a moment in which nothing moves, the mover gives the lane back.  It sleeps only with
 *     empty hands, so nothing ever waits for a mover that sleeps.
 *   - A lane in its hands keeps the link from being freed.
 */
#ifndef BRAID_LINK_MOVER_H
#define BRAID_LINK_MOVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/link/link.h"


/*
 * Hand a direction of the lane, with `bytes` to move, over to its mover.  The caller holds the
 * link's lock (TX) or io (RX).  True: the mover has it, now or already.  False: there is none, or
 * its lock is taken, so the caller moves the bytes.
 */
bool braid_mover_take(struct braid_lane *lane, unsigned what, size_t bytes);

/* Is the lane's sending in a mover's hands?  A hint without the link's lock. */
static inline bool braid_mover_sends(const struct braid_lane *lane)
{
	return atomic_load_explicit(&lane->hand.what, memory_order_relaxed) & BRAID_HAND_TX;
}

/* The same for receiving; the lock is io. */
static inline bool braid_mover_receives(const struct braid_lane *lane)
{
	return atomic_load_explicit(&lane->hand.what, memory_order_relaxed) & BRAID_HAND_RX;
}

/* --- for the service thread ---------------------------------------------------------------- */

/* A link that is up: give its lanes the movers that it should have, and start these. */
void braid_movers_tick(struct braid_link *link, uint64_t now);
/*
 * End all movers.  Waits for each for a second at most, and for no other of its NIC once one did
 * not end.  Then no lane is in the hands of those that ended.
 */
void braid_movers_end(void);
void braid_movers_free(void);		/* after braid_movers_end(), once no lane is used */

/* --- for reports --------------------------------------------------------------------------- */

struct braid_movers_seen {		/* of one NIC */
	unsigned n, active;		/* threads; of these: in use */
	uint64_t taken;			/* times that a direction of a lane was handed over */
	uint64_t sent, received;	/* bytes that they moved */
};
/* Without a lock.  `dev` is a member of a device. */
void braid_movers_look(const struct braid_dev *dev, struct braid_movers_seen *ret);

#endif
