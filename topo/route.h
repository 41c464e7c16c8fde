/* SPDX-License-Identifier: BSD-3-Clause */
/* route.h - ask rtnetlink how the kernel would send a packet; it answers at once. */
#ifndef BRAID_TOPO_ROUTE_H
#define BRAID_TOPO_ROUTE_H

#include <stdbool.h>
#include <sys/socket.h>

struct braid_route {
	unsigned ifindex;		/* the interface by which packets leave */
	bool local;			/* the address is one of this host's */
	bool gateway;			/* another host is to forward them; or the default route */
};

/*
 * The route from an address of this host to `to`.  ifindex: as a socket that is bound to that
 * interface would send; 0: as one that is not bound.  Returns 0, a negative errno if no route
 * exists, or -ENOSYS: rtnetlink can't be asked.
 */
int braid_route_get(const struct sockaddr *from, const struct sockaddr *to, unsigned ifindex,
		    struct braid_route *ret);

typedef int braid_route_fn(const struct sockaddr *from, const struct sockaddr *to, unsigned ifindex,
			   struct braid_route *ret);

#endif
