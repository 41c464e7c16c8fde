/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ips.h - the addresses of one interface, the best first.
 *
 * IPv4 before IPv6; an address with a subnet before one of a host alone (/32, /128), which is
 * often a service's and moves; IPv6 global before unique-local, lasting before temporary; then
 * link-local ones, then loopback's.  The last two are left out where there is a better one.
 */
#ifndef BRAID_TOPO_IPS_H
#define BRAID_TOPO_IPS_H

#include <stdbool.h>
#include <stddef.h>

#include "topo/netdev.h"

struct braid_ips {
	unsigned n;
	bool routable;			/* the first is neither link-local nor loopback's */
	bool link_local;		/* the first is link-local, and so are all */
	bool tentative;			/* a routable one is still being checked by the kernel */
	bool refused;			/* BRAID_ADDRESS excludes one that could be used */
	int rank[BRAID_NETDEV_IPS];
	struct braid_netdev_ip ip[BRAID_NETDEV_IPS];
};

struct braid_v6_flags;			/* the kernel's, of all IPv6 addresses of this machine */

/* 0 or -ENOMEM.  Without /proc/net/if_inet6 no address has flags. */
int braid_v6_flags_load(const char *sysroot, struct braid_v6_flags **ret);
void braid_v6_flags_free(struct braid_v6_flags *f);

/*
 * One more address of the interface `name`.  Those of another version than `family` (AF_UNSPEC:
 * either), those outside the subnets that the user asked for, and those that can't be used are
 * ignored, and so is the worst where there are too many.
 */
void braid_ips_add(struct braid_ips *ips, int family, const struct braid_v6_flags *flags,
		   const char *name, const struct sockaddr *sa, const struct sockaddr *mask);
/* All addresses have been added. */
void braid_ips_done(struct braid_ips *ips);

/*
 * From now on only addresses in these subnets are used, those of the first subnet first:
 * "10.0.0.0/8,fd00::/8,192.168.3.7"; with a leading ^ those in none of them.  Empty: all.  0, or
 * -EINVAL and nothing has changed.  Not thread-safe: called from init.
 */
int braid_ips_choose(const char *subnets);

/* One IP address, whatever the ports. */
bool braid_netdev_same_ip(const struct sockaddr *a, const struct sockaddr *b);

/* Is that address in this one's subnet? */
bool braid_ip_near(const struct braid_netdev_ip *ip, const struct sockaddr *sa);

#endif
