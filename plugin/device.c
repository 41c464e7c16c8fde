/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device.c - the table of devices, and the one list of transports.
 *
 * A device is an interface that topo/ found usable, or several that NCCL has fused; in this release
 * TCP serves all of them.
 */
#include "plugin/device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "core/param.h"
#include "core/transport.h"

extern const struct braid_transport braid_tcp;

const struct braid_transport *const braid_transports[] = { &braid_tcp, NULL };

static struct braid_dev table[BRAID_NETDEVS_MAX];
static unsigned count;

const struct braid_transport *braid_transport_find(uint8_t id)
{
	for (unsigned i = 0; braid_transports[i]; i++) {
		if (braid_transports[i]->id == id)
			return braid_transports[i];
	}
	return NULL;
}

static int family(void)
{
	return !strcmp(braid_param.socket_family, "AF_INET") ? AF_INET :
	       !strcmp(braid_param.socket_family, "AF_INET6") ? AF_INET6 : AF_UNSPEC;
}

int braid_devices_find(void)
{
	static struct braid_netdev found[BRAID_NETDEVS_MAX];
	char why[512] = "";
	int n;

	if (count)
		return (int)count;
	n = braid_netdev_find(braid_param.socket_ifname, family(), "", found, BRAID_NETDEVS_MAX,
			      why, sizeof(why));
	if (n <= 0) {
		braid_warn("%s. Set NCCL_SOCKET_IFNAME to one that is up and has an address", why);
		return n;
	}
	for (int i = 0; i < n; i++) {
		struct braid_dev *dev = &table[i];

		dev->index = (unsigned)i;
		dev->net = found[i];
		dev->nmembers = 1;
		dev->member[0] = dev;
		inet_ntop(found[i].addr.sa.sa_family,
			  found[i].addr.sa.sa_family == AF_INET
				  ? (const void *)&found[i].addr.in.sin_addr
				  : (const void *)&found[i].addr.in6.sin6_addr,
			  dev->addr, sizeof(dev->addr));
		braid_info("device %d: %s %s, %d Mbit/s%s, tcp", i, dev->net.name, dev->addr,
			   dev->net.speed_mbps, dev->net.speed_known ? "" : " (assumed)");
	}
	count = (unsigned)n;
	return n;
}

static bool same_members(const struct braid_dev *a, const struct braid_dev *b)
{
	return a->nmembers == b->nmembers &&
	       !memcmp(a->member, b->member, a->nmembers * sizeof(a->member[0]));
}

int braid_devices_fuse(unsigned n, const int *indices)
{
	struct braid_dev dev = { .index = count, .nmembers = n };
	size_t len = 0;

	if (!n || n > BRAID_PATHS_MAX || count == BRAID_NETDEVS_MAX)
		return -EINVAL;
	for (unsigned i = 0; i < n; i++) {
		dev.member[i] = braid_device(indices[i]);
		if (!dev.member[i] || dev.member[i]->nmembers != 1)
			return -EINVAL;
		for (unsigned k = 0; k < i; k++) {
			if (dev.member[k] == dev.member[i])
				return -EINVAL;
		}
	}
	for (unsigned i = 0; i < count; i++) {
		if (same_members(&table[i], &dev))
			return (int)i;
	}
	dev.net = dev.member[0]->net;
	memcpy(dev.addr, dev.member[0]->addr, sizeof(dev.addr));
	for (unsigned i = 0; i < n; i++) {
		const struct braid_netdev *net = &dev.member[i]->net;

		len += (size_t)snprintf(dev.net.name + len, sizeof(dev.net.name) - len, "%s%s",
					i ? "+" : "", net->name);
		if (i)
			dev.net.speed_mbps += net->speed_mbps;
		dev.net.speed_known &= net->speed_known;
	}
	table[count] = dev;
	braid_info("device %u: %s, %d Mbit/s, made of %u", count, dev.net.name,
		   dev.net.speed_mbps, n);
	return (int)count++;
}

unsigned braid_devices_count(void)
{
	return count;
}

struct braid_dev *braid_device(int index)
{
	return index >= 0 && (unsigned)index < count ? &table[index] : NULL;
}
