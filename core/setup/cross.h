/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cross.h - two processes dial each other at the same moment: one of the two dials makes the link.
 *
 * The process with the smaller id makes the link, if it can: it refuses the other's dial (CROSSED),
 * and the other end dials again after a while.  But perhaps only the other direction works, as with
 * a NAT or a firewall in between.  So a dial that TCP has not connected gives way at once, and
 * one that has connected but gets no answer gives way after about a second.
 */
#ifndef BRAID_SETUP_CROSS_H
#define BRAID_SETUP_CROSS_H

#include <stdbool.h>
#include <stdint.h>

struct braid_link;

/*
 * The peer dials the link that is being dialled here.  True: refuse the peer's dial, ours goes on.
 * False: admit it; our dial has been ended if it could have made a second link.
 */
bool braid_cross_refuse(struct braid_link *link, uint64_t now);
/* Has the peer reached us lately?  Then a failed dial of ours is not final. */
bool braid_cross_is_recent(const struct braid_link *link, uint64_t now);
/* The peer has refused our dial, because its own goes on: wait for that. */
void braid_cross_refused(struct braid_link *link, uint64_t now);

#endif
