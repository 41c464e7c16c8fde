/* SPDX-License-Identifier: BSD-3-Clause */
/* neigh.h - does an address of our own subnet answer ARP, or IPv6's neighbour discovery? */
#ifndef BRAID_TOPO_NEIGH_H
#define BRAID_TOPO_NEIGH_H

#include <sys/socket.h>

enum braid_neigh {
	BRAID_NEIGH_UNKNOWN,		/* no entry: the address need not be on that link */
	BRAID_NEIGH_ANSWERS,
	BRAID_NEIGH_SILENT,
};

/* Reads the kernel's table of that interface: sends nothing to the network, waits for nothing. */
enum braid_neigh braid_neigh_get(const struct sockaddr *to, unsigned ifindex);

#endif
