/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route.h - how a peer over InfiniBand is addressed.
 *
 * Within a subnet its LID does, with a GRH where a port demands one.  A packet for another subnet
 * goes to a router: its local LID is the FLID that the peer's GID has (one entry of the GID table
 * may have one), or what BRAID_IB_ROUTER_LID says.  Sources: IBTA vol. 1, 8.3 (GRH) and 19
 * (routers); the bits of a GID in which there is a FLID, NCCL's transport of InfiniBand.
 */
#ifndef BRAID_VERBS_ROUTE_H
#define BRAID_VERBS_ROUTE_H

#include "verbs/wire.h"

/* Of ours, what the peer is told: the port's own GID and, if there is one, that with a FLID. */
unsigned braid_route_gids(const struct braid_port *p, struct braid_gid ret[2]);

/*
 * Sets w->dlid, w->gid and w->peer_gid.  0, or a negative errno: the peer can't be reached, and if
 * `why` is not empty then, it says why.
 */
int braid_route_find(struct braid_wire *w, const struct braid_wire_blob *peer, char *why,
		     size_t len);

#endif
