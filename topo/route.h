/* SPDX-License-Identifier: BSD-3-Clause */
/* route.h - how the kernel would send a packet, asked of rtnetlink; it answers without waiting. */
#ifndef BRAID_TOPO_ROUTE_H
#define BRAID_TOPO_ROUTE_H

#include <stdbool.h>
#include <sys/socket.h>

struct braid_route {
	unsigned ifindex;		/* the interface by which it leaves */
	bool local;			/* the address is one of this host's */
	bool gateway;			/* another host is to forward it; or the default route */
};

/*
 * From an address of this host to `to`; ifindex: by that interface, as a socket bound to it would
 * send, 0: by any.  0, a negative errno if there is no such route, or -ENOSYS: can't be asked.
 */
int braid_route_get(const struct sockaddr *from, const struct sockaddr *to, unsigned ifindex,
		    struct braid_route *ret);

typedef int braid_route_fn(const struct sockaddr *from, const struct sockaddr *to, unsigned ifindex,
			   struct braid_route *ret);

#endif
