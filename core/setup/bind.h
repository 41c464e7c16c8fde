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

/* Do routes use another interface for this subnet?  Then listen on a bound socket, too. */
bool braid_bind_listens(const struct braid_at *at);
/*
 * Before a listener's bind() to an address: tie its socket to the interface, or if !to_interface to
 * the interface's VRF, if any.  Outside that VRF the address does not exist.  0 or -errno.
 */
int braid_bind_listener(int fd, const struct braid_netdev *net, bool to_interface);
/* Tie a dialler's socket to its interface if needed, else to the VRF.  True: to the interface. */
bool braid_bind_dialler(int fd, const struct braid_way *way);
/* Bind an accepted socket, after the handshake, if the peer's packets come in by its interface. */
void braid_bind_accepted(struct braid_conn *c);
/* A dial worked with an unbound socket after it had failed with a bound one: one WARN per link. */
void braid_bind_failed(struct braid_link *link, const struct braid_way *way);

#endif
