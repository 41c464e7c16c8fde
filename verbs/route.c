/* SPDX-License-Identifier: BSD-3-Clause */
/* route.c - see route.h. */
#include "verbs/route.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/param.h"

enum { PREFIX = 8 };

static uint16_t flid_of(const uint8_t *raw)
{
	return (uint16_t)(raw[4] << 8 | raw[5]);
}

unsigned braid_route_gids(const struct braid_ibport *p, struct braid_gid ret[2])
{
	int index = (int)braid_param.ib_flid_gid_index;
	union ibv_gid gid;

	if (!braid_ibport_gids(p, ret, 1))
		return 0;
	ret[0].type = BRAID_GID_IB;
	if (!index || braid_ibv.query_gid(p->ctx, p->num, index, &gid) || !flid_of(gid.raw))
		return 1;
	ret[1] = (struct braid_gid){ .index = (unsigned)index, .type = BRAID_GID_IB };
	memcpy(ret[1].raw, gid.raw, sizeof(gid.raw));
	return 2;
}

/* The peer is in another subnet: finds the LID of the router on the way. */
static int by_router(struct braid_qp *w, const struct braid_qp_blob *peer, char *why,
		     size_t len)
{
	for (unsigned i = 0; i < peer->ngids; i++) {
		w->dlid = flid_of(peer->gid[i].raw);
		w->peer_gid = i;
		if (w->dlid)
			return 0;
	}
	w->peer_gid = 0;
	w->dlid = (uint16_t)braid_param.ib_router_lid;
	if (w->dlid)
		return 0;
	snprintf(why, len, "the peer's port is in another InfiniBand subnet and has no FLID, and "
		 "the router's LID is not known: set BRAID_IB_ROUTER_LID");
	return -EHOSTUNREACH;
}

int braid_route_find(struct braid_qp *w, const struct braid_qp_blob *peer, char *why,
		     size_t len)
{
	bool grh = w->port->grh || peer->grh, far;
	struct braid_gid own[2];
	unsigned n = braid_route_gids(w->port, own);

	w->gid = BRAID_GID_NONE;
	w->dlid = peer->lid;
	w->peer_gid = 0;
	if (!n || !peer->ngids) {
		if (grh)
			snprintf(why, len, "a port demands a GRH, and its GID or the peer's can't "
				 "be read");
		return grh ? -EADDRNOTAVAIL : 0;
	}
	far = memcmp(own[0].raw, peer->gid[0].raw, PREFIX);
	if (!far && !grh)
		return 0;
	w->gid = (int)own[far ? n - 1 : 0].index;
	return far ? by_router(w, peer, why, len) : 0;
}
