/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cross.h - two processes dial each other at the same moment: one of the two dials makes the link.
 *
 * That of the process with the smaller id does, if it can: the other one is refused (CROSSED), and
 * asks again after a while.  But perhaps only the other's direction works, as with a NAT or a
 * firewall between.  So a dial that has not connected gives way to the peer's at once, and one that
 * has connected but gets no answer gives way after a second.
 */
#ifndef BRAID_CORE_CROSS_H
#define BRAID_CORE_CROSS_H

#include <stdbool.h>
#include <stdint.h>

struct braid_link;

/*
 * The peer asks for the link that is being dialled here.  True: refuse it, ours goes on.  False:
 * let it in; our dial has been given up if it could have made a second link.
 */
bool braid_cross_refuse(struct braid_link *link, uint64_t now);
/* Has the peer shown of late that it can reach us?  Then a dial that fails is not the last word. */
bool braid_cross_heard(const struct braid_link *link, uint64_t now);
/* The peer has refused our dial: its own goes on. */
void braid_cross_refused(struct braid_link *link, uint64_t now);

#endif
