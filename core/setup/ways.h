/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ways.h - the addresses of both ends of a path, and the order in which they are tried.
 *
 * A device listens at all of its addresses.  A device with RDMA also listens at the addresses of
 * the interfaces for handshakes: those of NCCL_SOCKET_IFNAME, which need not be its own.  The end
 * that dials tries each pair of an own address and a peer's (topo/pairs.h) until one works.
 *
 * These functions are called with braid_svc.lock held, except braid_shake_add() and those that list
 * interfaces or addresses.
 */
#ifndef BRAID_SETUP_WAYS_H
#define BRAID_SETUP_WAYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/link/paths.h"
#include "core/proto/handle.h"
#include "topo/pairs.h"

struct braid_dev;
struct ifaddrs;
struct braid_path;

enum {
	BRAID_SHAKES_MAX = 4,
	BRAID_HANDLE_ADDRS = 2 + BRAID_HANDLE_MORE,
};

/* Add an interface for the handshakes of devices with RDMA.  Called from init; false: no room. */
bool braid_shake_add(const struct braid_netdev *net);
/* Is `net` an interface for handshakes, and not a device's own? */
bool braid_shake_is(const struct braid_netdev *net);

/* Take over the addresses that they have now.  True: some have changed. */
bool braid_shakes_again(const struct ifaddrs *list);

/* The interfaces of a device (not one made of several): its own, then those for handshakes. */
unsigned braid_ways_nets(const struct braid_dev *dev,
			 const struct braid_netdev *ret[1 + BRAID_SHAKES_MAX]);
struct braid_at {			/* an interface, and one of its addresses */
	const struct braid_netdev *net;
	struct braid_netdev_ip ip;
};

/* List where a device (not one made of several) listens, best first.  Returns how many. */
unsigned braid_dev_addrs(const struct braid_dev *dev, struct braid_at ret[BRAID_HANDLE_ADDRS]);
/* List the addresses, with port, where the maker of this handle listens.  Returns how many. */
unsigned braid_handle_addrs(const struct braid_handle *h, union braid_netdev_addr *ret);
/* Is the maker of this handle on this host, in this network namespace? */
enum braid_pair_peer braid_handle_peer(const struct braid_handle *h);

/*
 * All ways from a device (not one made of several) to the peer's addresses.  shake_first: those by
 * interfaces for handshakes come first, as the link's first lane used one.
 */
void braid_ways_find(struct braid_ways *w, const struct braid_dev *dev,
		     const union braid_netdev_addr *to, unsigned n, enum braid_pair_peer peer,
		     bool shake_first);

/*
 * The device has other addresses now; or, if `more` is not NULL, the peer has that one as well,
 * which is dialled next.  Else the next dial goes to the same address of the peer as before.
 */
void braid_ways_again(struct braid_ways *w, const struct braid_dev *dev,
		      const union braid_netdev_addr *more);
/* Does a way lead to that address?  One that has not failed since is dialled next. */
bool braid_ways_lead_to(struct braid_ways *w, const union braid_netdev_addr *to);

/* The dial of way i failed.  bound: the socket was bound to its interface; connected: TCP was. */
void braid_way_failed(struct braid_ways *w, unsigned i, bool bound, bool connected, int err);
/* Choose the way to dial after way i failed.  True: every way has failed since one worked. */
bool braid_ways_next(struct braid_ways *w, unsigned i);
void braid_way_worked(struct braid_ways *w, unsigned i);

/* For people: "10.0.0.1 (eth0) to 10.0.0.2 in one subnet: No route to host; ..." */
void braid_ways_text(const struct braid_ways *w, char *ret, size_t len);

#endif
