/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ips.h - the addresses of one interface, the best first.
 *
 * IPv4 comes before IPv6.  An address with a subnet comes before one of a single host (/32, /128),
 * which often belongs to a service and may move to another host.  IPv6: global before unique-local,
 * permanent before temporary.  Link-local addresses come next, those of loopback last; these two
 * kinds are left out if there is a better address.
 */
#ifndef BRAID_TOPO_IPS_H
#define BRAID_TOPO_IPS_H

#include <stdbool.h>
#include <stddef.h>

#include "topo/netdev.h"

struct braid_ips {
	unsigned n;
	bool routable;			/* the first address is neither link-local nor loopback's */
	bool link_local;		/* the first address is link-local, and so are all */
	bool tentative;			/* the kernel still checks a routable address */
	bool refused;			/* BRAID_ADDRESS excludes a usable address */
	int rank[BRAID_NETDEV_IPS];
	struct braid_netdev_ip ip[BRAID_NETDEV_IPS];
};

struct braid_v6_flags;			/* the kernel's flags of all our IPv6 addresses */

/* 0 or -ENOMEM.  Without /proc/net/if_inet6 no address has flags. */
int braid_v6_flags_load(const char *sysroot, struct braid_v6_flags **ret);
void braid_v6_flags_free(struct braid_v6_flags *f);

/*
 * Adds an address of the interface `name`.  An address is ignored if it is not of `family`
 * (AF_UNSPEC: any), not in a subnet that the user asked for, or not usable.  If there is no room,
 * the worst address is dropped.
 */
void braid_ips_add(struct braid_ips *ips, int family, const struct braid_v6_flags *flags,
		   const char *name, const struct sockaddr *sa, const struct sockaddr *mask);
/* Call it once all addresses have been added. */
void braid_ips_done(struct braid_ips *ips);

/*
 * From now on only addresses in these subnets are used, those of the first subnet first:
 * "10.0.0.0/8,fd00::/8,192.168.3.7"; with a leading ^ those in none of them.  Empty: all.  0, or
 * -EINVAL and nothing has changed.  Not thread-safe: called from init.
 */
int braid_ips_choose(const char *subnets);

/* Are these the same IP address?  Ports do not count. */
bool braid_netdev_same_ip(const struct sockaddr *a, const struct sockaddr *b);

/* The address as text, without a port; returns `ret`. */
const char *braid_ip_text(const union braid_netdev_addr *a, char *ret, size_t len);
/* A link-local address of IPv6 needs its interface: name it, unless it is named. */
void braid_ip_give_scope(union braid_netdev_addr *a, unsigned ifindex);

/* Is `sa` in the subnet of `ip`? */
bool braid_ip_near(const struct braid_netdev_ip *ip, const struct sockaddr *sa);

#endif
