/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bind.h - a lane of an interface leaves by that interface.
 *
 * An address does not do it: with two interfaces in one subnet, routes send everything by the
 * first.  A socket that is bound to its interface leaves by it, and takes only what comes in by it.
 * So it is bound only where that makes a difference and the peer is on the interface's link.
 *
 * All of this is the service thread's.
 */
#ifndef BRAID_CORE_BIND_H
#define BRAID_CORE_BIND_H

#include <stdbool.h>

struct braid_at;
struct braid_conn;
struct braid_link;
struct braid_netdev;
struct braid_way;

/* Do routes use another interface for the subnet of that address?  Then one listens for each. */
bool braid_bind_listens(const struct braid_at *at);
/*
 * Before bind, a listener's: to the interface, or else to its VRF, without which the address is
 * nobody's.  0 or a negative errno.
 */
int braid_bind_listener(int fd, const struct braid_netdev *net, bool to_interface);
/* Before bind, a dialler's, the same: is it bound to the interface now? */
bool braid_bind_dialler(int fd, const struct braid_way *way);
/* An accepted one that has proved itself, if what the peer sends comes in by its interface. */
void braid_bind_accepted(struct braid_conn *c);
/* Without being bound it works, and bound it did not: one WARN for each link. */
void braid_bind_failed(struct braid_link *link, const struct braid_way *way);

#endif
