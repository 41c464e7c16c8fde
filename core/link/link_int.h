/* SPDX-License-Identifier: BSD-3-Clause */
/* link_int.h - what the files of core/link ask of each other. */
#ifndef BRAID_LINK_LINK_INT_H
#define BRAID_LINK_LINK_INT_H

#include "core/link/link.h"
#include "core/link/recover.h"
#include "core/link/state.h"

static inline bool braid_link_is_stalled(const struct braid_link *link)
{
	return atomic_load_explicit(&link->tx.stalled, memory_order_relaxed);
}

/* Memory for traffic on one lane: 0 or -ENOMEM. */
int braid_lane_attach(struct braid_lane *lane);
void braid_lane_detach(struct braid_lane *lane);
/* Take over a new carrier for the lane. */
int braid_lane_take(struct braid_lane *lane, const struct braid_carrier *c);
/* Was memory given back since the carrier's set-up?  The peer's NIC could still write there. */
bool braid_carrier_is_outdated(const struct braid_link *link, const struct braid_carrier *c);

/*
 * Push one lane, with the link's lock held, which the transport may drop and retake.  Returns the
 * bytes sent: callers bound the bytes of one call over all lanes.
 */
size_t braid_lane_push(struct braid_lane *lane);
size_t braid_lane_push_now(struct braid_lane *lane);	/* by the lane's mover: mover.h */
/* Poll one lane, with its io lock held: as lane_poll() of progress.c. */
int braid_lane_poll_held(struct braid_lane *lane);
/* Send control frames if much was received that is not acknowledged, or if nothing more is here. */
void braid_link_ack_backlog(struct braid_link *link, bool dry);
void braid_link_forget_deferred(struct braid_link *link);
void braid_link_forget_woken(struct braid_link *link);	/* it is about to be freed */

/*
 * A lane's carrier failed.  A new one may work, unless the peer sent malformed data, which `broken`
 * then names.
 */
void braid_lane_died(struct braid_lane *lane, const char *broken, int err);
/*
 * If err is -EBADMSG or -EPROTO, note that the peer sent a malformed `what`; returns err, for
 * poll().  Without this call these errors are the kernel's or a library's: the lane is just lost.
 */
int braid_rx_broken(struct braid_lane *lane, const char *what, int err);
/*
 * A poll of a lane with a carrier of its own found nothing (n is 0), or failed.  Returns n, or
 * -ENOTCONN if the peer has closed lane->fd.  What came before the end is read first.
 */
int braid_lane_final_poll(struct braid_lane *lane, int n);
/* Give a lane that is closed at both ends to feed_orphans(), once the peer's NIC has stopped. */
void braid_lane_orphan(struct braid_lane *lane);
/* A lane that can become home, or NULL. */
struct braid_lane *braid_link_another_home(const struct braid_link *link);

#endif
