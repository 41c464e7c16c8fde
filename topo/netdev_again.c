/* SPDX-License-Identifier: BSD-3-Clause */
/* netdev_again.c - the addresses that an interface has now: see netdev.h. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <string.h>

#include "topo/ips.h"
#include "topo/links.h"
#include "topo/netdev.h"

static bool has_v6(const struct ifaddrs *list)
{
	for (; list; list = list->ifa_next) {
		if (list->ifa_addr && list->ifa_addr->sa_family == AF_INET6)
			return true;
	}
	return false;
}

/* An entry of an alias, such as "eth0:1", is its interface's. */
static bool is_of(const struct ifaddrs *e, const char *interface)
{
	size_t len = strcspn(e->ifa_name, ":");

	return e->ifa_addr && strlen(interface) == len && !strncmp(e->ifa_name, interface, len);
}

static void collect(const struct ifaddrs *list, const char *interface, int family,
		    struct braid_ips *ips, unsigned *ret_ifindex)
{
	struct braid_v6_flags *v6 = NULL;

	if (family != AF_INET && has_v6(list))
		braid_v6_flags_load("", &v6);
	for (; list; list = list->ifa_next) {
		if (!is_of(list, interface))
			continue;
		if (list->ifa_addr->sa_family == AF_PACKET)
			*ret_ifindex =
				(unsigned)((struct sockaddr_ll *)list->ifa_addr)->sll_ifindex;
		else
			braid_ips_add(ips, family, v6, interface, list->ifa_addr,
				      list->ifa_netmask);
	}
	braid_v6_flags_free(v6);
	braid_ips_done(ips);
}

static unsigned vrf_of(unsigned ifindex)
{
	struct braid_links *links = braid_links_load();
	unsigned vrf = braid_link_vrf(links, ifindex);

	braid_links_free(links);
	return vrf;
}

bool braid_netdev_again(struct braid_netdev *net, int family, const struct ifaddrs *list)
{
	struct braid_netdev_ip was[BRAID_NETDEV_IPS];
	struct braid_ips ips = { .n = 0 };
	unsigned ifindex = net->ifindex, n = braid_netdev_ips(net, was);
	bool same;

	collect(list, net->interface, family, &ips, &ifindex);
	if (!ips.n)
		return false;
	for (unsigned i = 0; i < ips.n; i++)
		braid_ip_give_scope(&ips.ip[i].addr, ifindex);
	same = ips.n == n && ifindex == net->ifindex;
	for (unsigned i = 0; same && i < n; i++)
		same = ips.ip[i].prefix == was[i].prefix &&
		       braid_netdev_same_ip(&ips.ip[i].addr.sa, &was[i].addr.sa);
	if (same)
		return false;
	net->addr = ips.ip[0].addr;
	net->prefix = ips.ip[0].prefix;
	net->nmore = ips.n - 1;
	memcpy(net->more, &ips.ip[1], net->nmore * sizeof(net->more[0]));
	if (ifindex != net->ifindex)
		net->vrf = vrf_of(ifindex);
	net->ifindex = ifindex;
	return true;
}
