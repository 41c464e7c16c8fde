/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * route.h - how a peer over InfiniBand is addressed.
 *
 * Within a subnet the peer's LID is enough, with a GRH if a port demands one.  A packet for another
 * subnet goes to a router.  The router's local LID is the FLID in the peer's GID (one entry of the
 * GID table may have one), or BRAID_IB_ROUTER_LID.  Sources: IBTA vol. 1, 8.3 (GRH) and 19
 * (routers); NCCL's InfiniBand transport for the place of the FLID in a GID.
 */
#ifndef BRAID_VERBS_ROUTE_H
#define BRAID_VERBS_ROUTE_H

#include "verbs/qp.h"

/* GIDs for the peer: the port's own and, if there is one, that with a FLID.  Returns the count. */
unsigned braid_route_gids(const struct braid_ibport *p, struct braid_gid ret[2]);

/*
 * Sets w->dlid, w->gid and w->peer_gid.  0, or a negative errno if the peer can't be reached; `why`
 * then has the reason in one line.
 */
int braid_route_find(struct braid_qp *w, const struct braid_qp_blob *peer, char *why,
		     size_t len);

#endif
