/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * netdev.h - which network interfaces of this machine Braid may use.
 *
 * Reads getifaddrs() and /sys/class/net; called at init, and when an address has changed; never on
 * the data path.
 *
 * An interface is usable if it is up and running, and has an address of the family asked for.  The
 * filter text is as in filter.h.  Without one NCCL's order and exclusions hold: names that start
 * with ib; else all but docker*, lo and virbr*; else docker*; else lo; else virbr*.  Of these, only
 * interfaces that lead to other hosts are used, if any does (links.h).  Loopback is used only if
 * the filter asks for it, or if there is no other interface.
 *
 * While an interface has only IPv6 addresses that the kernel still checks, braid_netdev_find()
 * waits for some seconds.
 */
#ifndef BRAID_TOPO_NETDEV_H
#define BRAID_TOPO_NETDEV_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "topo/filter.h"

enum { BRAID_NETDEV_NAME = 16, BRAID_NETDEV_NAMES = 64, BRAID_NETDEV_PATH = 512,
       BRAID_NETDEVS_MAX = 128, BRAID_NETDEV_IPS = 8 };

union braid_netdev_addr {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;	/* with scope for link-local */
};

struct braid_netdev_ip {
	union braid_netdev_addr addr;
	unsigned prefix;		/* the length of its subnet's prefix, in bits */
};

struct braid_netdev {
	char name[BRAID_NETDEV_NAMES];	/* a fused device's: its members', joined by + */
	char interface[BRAID_NETDEV_NAME];	/* whose addresses it has; a port's name differs */
	union braid_netdev_addr addr;	/* the best address, and its prefix */
	unsigned prefix;
	struct braid_netdev_ip more[BRAID_NETDEV_IPS - 1];	/* others, best first: ips.h */
	unsigned nmore;
	unsigned ifindex;
	unsigned vrf;			/* the ifindex of the VRF whose routes it has; 0: none */
	int speed_mbps;			/* a bond's: its slaves' sum; a VLAN's: its lower device's;
					 * 10000 where the kernel does not know */
	bool speed_known;
	bool loopback;
	char pci_path[BRAID_NETDEV_PATH];	/* "" if not PCI; else a real directory under /sys
						 * whose subsystem is pci; of the lower device for
						 * a VLAN, of the first slave for a bond */
	uint64_t guid;			/* of the card: equal for the ports of one card and for
					 * its virtual functions, differs between hosts, lasts until
					 * the next boot; the MAC address for the rest; never 0 */
	int port;			/* tells the ports of one card apart, equal for the virtual
					 * functions of one port: 8 * dev_port + PCI function */
};

/* The rank of a name in NCCL's order: only usable interfaces of the lowest rank are used. */
unsigned braid_netdev_rank(const struct braid_netdev_filter *f, const char *name, bool loopback);

/*
 * Find usable interfaces, each with its addresses of `family` (AF_UNSPEC: either) in the order of
 * ips.h.  Returns how many (0 is no error), or -errno.  why, if not NULL: why none was found, or
 * which were left out, in one line, or "".  sysroot: "", or a directory that stands for / (tests).
 */
int braid_netdev_find(const char *filter, int family, const char *sysroot, struct braid_netdev *ret,
		      unsigned max, char *why, unsigned why_len);

/* Writes all addresses of an interface, the best first; returns how many. */
unsigned braid_netdev_ips(const struct braid_netdev *net,
			  struct braid_netdev_ip ret[BRAID_NETDEV_IPS]);

struct ifaddrs;

/*
 * The interface may have other addresses now, or another index if it was removed and made anew.
 * Takes them over from `list`, the kernel's.  True: something has changed, but for an interface
 * that has no usable address at present, which keeps those it had.
 */
bool braid_netdev_again(struct braid_netdev *net, int family, const struct ifaddrs *list);

/* Is that interface of this host down, or without a carrier?  False, too, if there is none such. */
bool braid_netdev_is_down(const char *name);

#endif
