/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * qp_gid.c - the GIDs that a queue pair offers to its peer, and the one that it takes.
 *
 * The dialler offers one GID of each type that it has.  The accepter takes the first type that it
 * has too, and answers with its own GID of that type.  Source: InfiniBand Architecture
 * Specification vol. 1, Annex A17 (RoCE v2).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/param.h"
#include "topo/netdev.h"
#include "verbs/qp.h"
#include "verbs/route.h"

/* Logs the chosen GID, unless the last line was the same. */
static void log_gid(struct braid_ibport *p, const struct braid_gid *g, const char *why)
{
	char text[512], addr[INET6_ADDRSTRLEN];

	braid_gid_text(g->raw, addr, sizeof(addr));
	snprintf(text, sizeof(text), "GID %u, %s, %s%s%.300s", g->index,
		 braid_gid_type_name(g->type), addr, why[0] ? "; passed over: " : "", why);
	if (!strcmp(text, p->chosen))
		return;
	strcpy(p->chosen, text);
	if (g->type == BRAID_GID_ROCE_V1)
		braid_warn("port %s: %s. RoCE v1 is not routed: both hosts must be in one "
			   "Ethernet segment [roce-v1-route]", p->name, text);
	else
		braid_info("port %s: %s", p->name, text);
}

/* The GID index that the user sets for this port alone, or BRAID_GID_NONE. */
static int own_gid(const struct braid_ibport *p)
{
	return braid_netdev_port_number(braid_param.ib_gid, p->ctx->device->name, p->num);
}

static int wanted_gid(const struct braid_ibport *p)
{
	int own = own_gid(p);

	return own == BRAID_GID_NONE ? (int)braid_param.ib_gid_index : own;
}

/* Chooses our GID of that type, for the address in use; logs it if it is final. */
int braid_qp_pick_gid(struct braid_qp *w, const struct braid_dev *dev, enum braid_gid_type type,
		      bool final, struct braid_gid *ret)
{
	struct braid_gid table[BRAID_GIDS_MAX];
	unsigned n = braid_ibport_gids(w->port, table, BRAID_GIDS_MAX);
	struct braid_gid_pref pref;
	char why[400];
	int i;

	braid_gid_pref_parse(braid_param_family(braid_param.ib_addr_family),
			     braid_param.ib_addr_range, &pref);
	i = braid_gid_choose(table, n, type, &dev->net.addr.sa, dev->net.ifindex,
			     wanted_gid(w->port), &pref, why, sizeof(why));
	if (i == BRAID_GID_NONE)
		return -EADDRNOTAVAIL;
	*ret = table[i];
	if (final)
		log_gid(w->port, ret, why);
	return 0;
}

/* The usual reason: the user has set an index that is right on another host only. */
int braid_qp_no_gid(struct braid_setup *s)
{
	const struct braid_ibport *p = braid_ibport_of(s->dev);
	char name[BRAID_PARAM_VARIABLE];
	int index = wanted_gid(p);

	if (index != BRAID_GID_NONE)
		snprintf(s->why, sizeof(s->why), "wrong GID: index %d is empty, or not of the "
			 "peer's RoCE version; unset %s", index, own_gid(p) == BRAID_GID_NONE ?
			 braid_param_variable("ib_gid_index", name) : "BRAID_IB_GID");
	return -EADDRNOTAVAIL;
}

static void add_gid(struct braid_qp_blob *b, const struct braid_gid *g)
{
	b->gid[b->ngids].type = (uint8_t)g->type;
	memcpy(b->gid[b->ngids++].raw, g->raw, 16);
}

/* The dialler offers one GID of each type; the accepter takes the first type that it has too. */
int braid_qp_gids(struct braid_qp *w, const struct braid_dev *dev,
		  const struct braid_qp_blob *peer, struct braid_qp_blob *b)
{
	enum braid_gid_type roce[] = { BRAID_GID_ROCE_V2, BRAID_GID_ROCE_V1 };
	struct braid_gid g, own[2];
	unsigned n;

	if (braid_param.ib_roce_version == 1) {
		roce[0] = BRAID_GID_ROCE_V1;
		roce[1] = BRAID_GID_ROCE_V2;
	}
	if (w->port->fabric == BRAID_FABRIC_IWARP)
		return 0;
	if (w->port->fabric == BRAID_FABRIC_IB) {
		n = braid_route_gids(w->port, own);
		for (unsigned i = 0; i < n; i++)
			add_gid(b, &own[i]);
		return 0;
	}
	for (unsigned i = 0; i < 2; i++) {
		enum braid_gid_type type = peer ? i < peer->ngids ? peer->gid[i].type :
					   BRAID_GID_IB : roce[i];

		if (type == BRAID_GID_IB || braid_qp_pick_gid(w, dev, type, peer, &g))
			continue;
		add_gid(b, &g);
		w->gid = (int)g.index;
		if (peer)
			break;
	}
	return b->ngids ? 0 : -EADDRNOTAVAIL;
}

/* At the dialler: uses our GID of the type that the accepter has chosen. */
int braid_qp_settle_gid(struct braid_qp *w, struct braid_setup *s,
			const struct braid_qp_blob *peer)
{
	struct braid_gid g;

	if (w->port->fabric == BRAID_FABRIC_IB)
		return braid_route_find(w, peer, s->why, sizeof(s->why));
	if (!peer->ngids)
		return -EPROTO;
	if (braid_qp_pick_gid(w, s->dev, peer->gid[0].type, true, &g))
		return braid_qp_no_gid(s);
	w->gid = (int)g.index;
	return 0;
}
