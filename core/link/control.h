/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * control.h - when the control frames of a link leave: credits, acknowledgements and the like.
 *
 * They ride on the next data frame.  If they are urgent, or no data follows, they go alone.
 */
#ifndef BRAID_LINK_CONTROL_H
#define BRAID_LINK_CONTROL_H

#include "core/link/link.h"

/*
 * The last posted receive is done, so calls on this link may pause.  Urgent control frames leave
 * with the link's next post, or at the next idle test() of another link.  The caller has a comm on
 * the link.
 */
void braid_link_defer_control(struct braid_link *link);

/*
 * Queue all control frames that are due and push home.  False: nothing was queued, since another
 * thread has the lock.
 */
bool braid_link_try_flush_control(struct braid_link *link);
/* As braid_link_try_flush_control(), but wait for the lock and for a push in progress. */
void braid_link_flush_control(struct braid_link *link);
/*
 * Push home; first queue control frames if they are urgent, or if `all`.  True: urgent control
 * frames were due since the last call, or frames are held back at home.  Then call again soon: the
 * callers may have stopped calling.
 */
bool braid_link_flush_if_urgent(struct braid_link *link, bool all);

/* Queue a frame without payload, and push home.  Waits for the lock.  False: there was no room. */
bool braid_link_ctl_now(struct braid_link *link, struct braid_hdr *h);

/* Queue the control frames that are due; false: no room for all.  With the link's lock held. */
bool braid_link_send_control(struct braid_link *link);

static inline bool braid_link_is_urgent(const struct braid_link *link)
{
	return atomic_load_explicit(&link->tx.control_urgent, memory_order_relaxed);
}

/* The peer waits for a control frame that is due, or soon will. */
static inline void braid_link_urge_once(struct braid_link *link)
{
	braid_hint(&link->tx.control_urgent, true);
}

/* As braid_link_urge_once(); braid_link_flush_if_urgent() asks for another call soon. */
static inline void braid_link_urge(struct braid_link *link)
{
	braid_link_urge_once(link);
	braid_hint(&link->tx.control_was_urgent, true);
}

/* Ask the peer, which dials, for n lanes in all. */
static inline void braid_link_ask_lanes(struct braid_link *link, unsigned n)
{
	atomic_store(&link->lanes.ask, n);
	braid_link_urge(link);
}

/* The lane for which the peer, which can't dial, asks us to connect, + 1; 0: it does not. */
static inline unsigned braid_link_take_call(struct braid_link *link)
{
	return atomic_exchange(&link->lanes.call, 0);
}

/* Seconds between two signs of life while both ends are at rest, as the peer wants; 0: one. */
static inline unsigned braid_link_peer_rest(const struct braid_link *link)
{
	return link->rx.peer_rest_s;
}

#endif
