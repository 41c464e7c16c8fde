/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bind.h - make a lane's packets leave by the interface that the lane is for.
 *
 * A source address is not enough: with two interfaces in one subnet, routes send everything by the
 * first.  A socket that is bound to its interface sends by it, and receives only what comes in by
 * it.  So a socket is bound only where that makes a difference, and where the interface leads to
 * the peer (topo/pairs.h).
 *
 * All calls are made with the service's lock held.
 */
#ifndef BRAID_SETUP_BIND_H
#define BRAID_SETUP_BIND_H

#include <stdbool.h>

struct braid_at;
struct braid_conn;
struct braid_link;
struct braid_netdev;
struct braid_way;

/* Do routes use another interface for that address's subnet?  Then a bound socket listens, too. */
bool braid_bind_listens(const struct braid_at *at);
/*
 * For a listener, before bind(): bind it to the interface, or else to the interface's VRF, if any,
 * without which the address does not exist.  0 or a negative errno.
 */
int braid_bind_listener(int fd, const struct braid_netdev *net, bool to_interface);
/* The same for a dialler's socket.  True: it is bound to the interface now. */
bool braid_bind_dialler(int fd, const struct braid_way *way);
/* Bind an accepted socket, after the handshake, if the peer's packets come in by its interface. */
void braid_bind_accepted(struct braid_conn *c);
/* A dial worked unbound after it failed bound: one WARN for each link. */
void braid_bind_failed(struct braid_link *link, const struct braid_way *way);

#endif
