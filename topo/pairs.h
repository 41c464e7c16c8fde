/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pairs.h - which of our interfaces and addresses meet which of a peer's, and in what order.
 *
 * Each of our interfaces makes a pair with each address of the peer; our side is the interface's
 * nearest address.  Order: pairs marked `worse` last; then by kind; then by interface and address,
 * as they were given.
 */
#ifndef BRAID_TOPO_PAIRS_H
#define BRAID_TOPO_PAIRS_H

#include <stdbool.h>

#include "topo/netdev.h"
#include "topo/route.h"

enum { BRAID_PAIR_ADDRS = 16 };		/* a peer's addresses, at most */

enum braid_pair_kind {			/* the best first */
	BRAID_PAIR_OWN,			/* the peer is on this host */
	BRAID_PAIR_NEAR,		/* in one subnet, and on this interface's link */
	BRAID_PAIR_LINK,		/* on this interface's link by a route, not by a subnet */
	BRAID_PAIR_ROUTED,		/* a route leads there by this interface */
	BRAID_PAIR_ASTRAY,		/* a route leads there by another one */
	BRAID_PAIR_NONE,		/* no route leads there */
	BRAID_PAIR_MINE,		/* the address is this host's, and the peer is on another */
};

enum braid_pair_peer { BRAID_PEER_UNKNOWN, BRAID_PEER_HERE, BRAID_PEER_ELSEWHERE };

struct braid_pair {
	const struct braid_netdev *net;
	struct braid_netdev_ip from;	/* one of net's addresses */
	union braid_netdev_addr to;	/* with port and, if link-local, scope */
	enum braid_pair_kind kind;
	bool bind;			/* bind sockets to net, or packets leave by another one */
	bool worse;			/* another pair to the same address is better */
};

/*
 * get: braid_route_get(), or a test's; it is not called for an interface whose ifindex is 0.
 * Returns the number of pairs, at most max.
 */
unsigned braid_pairs(const struct braid_netdev *const *nets, unsigned n_nets,
		     const union braid_netdev_addr *to, unsigned n_to, enum braid_pair_peer peer,
		     braid_route_fn *get, struct braid_pair *ret, unsigned max);

/*
 * Would packets of that pair leave by another interface now, unless the socket is bound?  1: yes;
 * 0: no; -ENOENT: no route says so, since the address is this host's own or none leads there.
 */
int braid_pair_binds(const struct braid_pair *p, braid_route_fn *get);

/* Text for logs: "in one subnet". */
const char *braid_pair_text(enum braid_pair_kind kind);

#endif
