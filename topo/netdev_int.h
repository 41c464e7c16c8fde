/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * netdev_int.h - what the files of netdev.h share: the search among all interfaces of this machine.
 *
 *	netdev.c	gathers the interfaces, and waits for addresses that the kernel still checks
 *	netdev_choose.c	chooses among the interfaces
 *	netdev_sys.c	describes those that were chosen
 */
#ifndef BRAID_TOPO_NETDEV_INT_H
#define BRAID_TOPO_NETDEV_INT_H

#include "topo/ips.h"
#include "topo/links.h"
#include "topo/netdev.h"

struct braid_cand {
	char name[BRAID_NETDEV_NAME];
	const char *left;		/* why it is left out though usable; or NULL */
	struct braid_lead_info where;
	unsigned flags;			/* IFF_* */
	unsigned ifindex;
	struct braid_ips ips;
};

struct braid_search {
	const char *sysroot;
	const char *filter_text;
	struct braid_netdev_filter filter;
	int family;
	struct braid_v6_flags *v6;
	struct braid_links *links;
	struct braid_cand *cands;
	size_t n_cands;
};

/* Why an interface can't be used; NULL: it can. */
const char *braid_cand_fault(const struct braid_search *s, const struct braid_cand *c);

/* Moves the usable candidates of the first group that has any to the front; returns how many. */
size_t braid_netdev_choose(struct braid_search *s);

/* False if /sys shows another network namespace, whose eth0 is not ours. */
bool braid_netdev_sysfs_is_ours(const struct braid_search *s, const struct braid_cand *c);
void braid_netdev_describe(const struct braid_search *s, const struct braid_cand *c,
			   struct braid_netdev *ret);

#endif
