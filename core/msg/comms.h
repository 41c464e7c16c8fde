/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comms.h - all comms of one link, also for core/setup and core/watch.
 *
 * The counts may be read without the link's lock.
 */
#ifndef BRAID_MSG_COMMS_H
#define BRAID_MSG_COMMS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/link/link.h"
#include "core/msg/comm.h"

enum { BRAID_LINK_BUCKETS = 256 };	/* of a link's comms, by id */

/* The comm of that id, or NULL.  With the link's lock held. */
static inline struct braid_comm *braid_comm_find(const struct braid_link *link, uint32_t id)
{
	struct braid_comm *c = link->msg.bucket[id % BRAID_LINK_BUCKETS];

	braid_assert_locked(&link->lock);
	while (c && c->id != id)
		c = c->hash_next;
	return c;
}

/* The comms, by their `node`.  With the link's lock held. */
static inline struct braid_list *braid_comms(struct braid_link *link)
{
	return &link->msg.comms;
}

static inline unsigned braid_comms_count(const struct braid_link *link)
{
	return link->msg.ncomms;
}

/* Has the link ever had a comm? */
static inline bool braid_comms_were(const struct braid_link *link)
{
	return link->msg.used;
}

/* What closed comms have sent, or received.  With the link's lock held. */
static inline const struct braid_traffic *braid_comms_closed(const struct braid_link *link,
							     bool sender)
{
	return &link->msg.closed[sender];
}

/*
 * How long sends took from isend() to done: large ones, of more than BRAID_COPY_MAX bytes, until
 * the peer has acknowledged them, and others until a carrier has a copy.  Timed are one in 31
 * sends, and each of 64 KiB or more (send.c).  Without a lock.
 */
static inline void braid_comms_took(const struct braid_link *link, bool large,
				    struct braid_hist *ret)
{
	braid_hist_read(&link->msg.took[large], ret);
}

/* Are REFUSED frames due? */
static inline bool braid_comms_refuse(const struct braid_link *link)
{
	return link->msg.refusals;
}

/*
 * Set how many eager bytes this end may send (tx), and the peer (rx).  The pool has promised memory
 * for rx bytes; the promise ends with the link.
 */
static inline void braid_comms_set_windows(struct braid_link *link, uint64_t tx, uint64_t rx)
{
	link->msg.tx_window = tx;
	link->msg.rx_window = rx;
}

#endif
