/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * netdev_sys.c - what /sys says of an interface: its speed, its PCI card, and a guid.
 *
 * The interface that has an address need not be a PCI device itself: a VLAN, a bond or a
 * paravirtual interface stands on lower ones.  speed() and find_pci() walk down until one has the
 * answer.
 */
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/netdev_int.h"
#include "topo/pci.h"
#include "topo/sys.h"

enum {
	SPEED_GUESS = 10000,		/* Mb/s */
	SPEED_MOST = 10000000,		/* drivers report more if they do not know */
	SPEED_NONE_16 = 65535,		/* and older drivers this */
	LOWERS_MAX = 16,
	DEPTH_MAX = 4,			/* a VLAN on a bond of paravirtual interfaces needs three */
	FN_MAX = 8,			/* PCI functions of a device */
	PORT_MOST = 0xffff,
};

struct lowers {
	unsigned n;
	bool one_at_a_time;		/* a bond that uses one slave at a time */
	char names[LOWERS_MAX][BRAID_NETDEV_NAME];
};

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

static void net_path(const struct braid_search *s, const char *name, const char *file, char *ret)
{
	snprintf(ret, PATH_MAX, "%s/sys/class/net/%s/%s", s->sysroot, name, file);
}

static bool net_read(const struct braid_search *s, const char *name, const char *file, char *ret,
		     size_t len)
{
	char path[PATH_MAX];

	net_path(s, name, file, path);
	return braid_sys_line(path, ret, len);
}

/* Reads a number of 0 to most; 0: there is no such number. */
static int net_number(const struct braid_search *s, const char *name, const char *file, long most)
{
	char text[32];
	long v;

	if (!net_read(s, name, file, text, sizeof(text)))
		return 0;
	v = strtol(text, NULL, 10);
	return v < 0 || v > most ? 0 : (int)v;
}

static void lowers_add(struct lowers *l, const char *name)
{
	if (l->n < LOWERS_MAX && strlen(name) < BRAID_NETDEV_NAME)
		memcpy(l->names[l->n++], name, strlen(name) + 1);
}

static bool find_slaves(const struct braid_search *s, const char *bond, struct lowers *ret)
{
	char text[LOWERS_MAX * BRAID_NETDEV_NAME + 1], mode[32];
	char *rest = text, *name;

	if (!net_read(s, bond, "bonding/slaves", text, sizeof(text)))
		return false;
	while ((name = strtok_r(rest, " ", &rest)))
		lowers_add(ret, name);
	ret->one_at_a_time = net_read(s, bond, "bonding/mode", mode, sizeof(mode)) &&
			     has_prefix(mode, "active-backup");
	return true;
}

/* What an interface stands on: a bond's slaves; for others the lower device, if it has just one. */
static void find_lowers(const struct braid_search *s, const char *name, struct lowers *ret)
{
	static const char prefix[] = "lower_";
	char path[PATH_MAX];
	struct dirent *e;
	DIR *dir;

	*ret = (struct lowers){ .n = 0 };
	if (find_slaves(s, name, ret))
		return;
	net_path(s, name, "", path);
	dir = opendir(path);
	if (!dir)
		return;
	while ((e = readdir(dir))) {
		if (has_prefix(e->d_name, prefix))
			lowers_add(ret, e->d_name + sizeof(prefix) - 1);
	}
	closedir(dir);
	if (ret->n > 1)				/* a bridge: its packets may use any port */
		ret->n = 0;
}

/* In Mb/s; 0: unknown. */
static int speed(const struct braid_search *s, const char *name, unsigned depth)
{
	int v = net_number(s, name, "speed", SPEED_MOST);
	struct lowers l;

	if (v > 0 && v != SPEED_NONE_16)
		return v;
	if (depth == 0)
		return 0;
	v = 0;
	find_lowers(s, name, &l);
	for (unsigned i = 0; i < l.n; i++) {
		int lower = speed(s, l.names[i], depth - 1);

		if (l.one_at_a_time)
			v = lower > v ? lower : v;
		else
			v += lower;
	}
	return v > SPEED_MOST ? SPEED_MOST : v;
}

/* The last 8 bytes of the hardware address: all of an Ethernet one, the port's GUID of IPoIB's. */
static uint64_t mac(const struct braid_search *s, const char *name)
{
	char text[3 * 32];
	uint64_t v = 0;

	if (!net_read(s, name, "address", text, sizeof(text)))
		return 0;
	for (char *p = text, *end; isxdigit((unsigned char)*p); p = *end ? end + 1 : end)
		v = v << 8 | (strtoul(p, &end, 16) & 0xff);
	return v;
}

/*
 * A number for this boot of this machine, which goes into guids.  NCCL may join hosts into one
 * graph (MNNVL); two machines with cards in the same slots must not seem to share these cards.
 */
static uint64_t host_salt(const struct braid_search *s)
{
	uint64_t hash = 0xcbf29ce484222325u;	/* FNV-1a */
	char path[PATH_MAX], text[64];

	snprintf(path, sizeof(path), "%s/proc/sys/kernel/random/boot_id", s->sysroot);
	if (!braid_sys_line(path, text, sizeof(text)))
		return 0;
	for (const char *p = text; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 0x100000001b3u;
	return hash;
}

/* Makes a guid, never 0, of an id that is only known to be unique on this host. */
static uint64_t host_guid(const struct braid_search *s, uint64_t kind, uint64_t id)
{
	uint64_t x = (kind << 56 | id) ^ host_salt(s);

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;	/* splitmix64's last steps: one to one */
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	x ^= x >> 31;
	return x ? x : 1;
}

/* Sets path, port and guid from the PCI device below an interface; false: there is none. */
static bool find_pci(const struct braid_search *s, const char *name, unsigned depth,
		     struct braid_netdev *dev)
{
	struct braid_pci_addr card;
	char path[PATH_MAX];
	struct lowers l;

	/* braid_pci_find() puts the sysroot before the path. */
	snprintf(path, sizeof(path), "/sys/class/net/%s/device", name);
	if (braid_pci_find(s->sysroot, path, dev->pci_path, sizeof(dev->pci_path)) == 0 &&
	    braid_pci_physfn(s->sysroot, dev->pci_path, &card) == 0) {
		dev->port = FN_MAX * net_number(s, name, "dev_port", PORT_MOST) + card.fn;
		dev->guid = host_guid(s, 'p', (uint64_t)card.domain << 16 |
				      (uint64_t)card.bus << 8 | (uint64_t)card.dev << 3);
		return true;
	}
	if (depth == 0)
		return false;
	find_lowers(s, name, &l);
	return l.n && find_pci(s, l.names[0], depth - 1, dev);
}

/* False if /sys shows another network namespace, whose eth0 is not ours. */
bool braid_netdev_sysfs_is_ours(const struct braid_search *s, const struct braid_cand *c)
{
	int ifindex = net_number(s, c->name, "ifindex", INT_MAX);

	return ifindex == 0 || (unsigned)ifindex == c->ifindex;
}

void braid_netdev_describe(const struct braid_search *s, const struct braid_cand *c,
			   struct braid_netdev *ret)
{
	struct braid_netdev dev = {
		.addr = c->ips.ip[0].addr,
		.prefix = c->ips.ip[0].prefix,
		.nmore = c->ips.n - 1,
		.ifindex = c->ifindex ? c->ifindex : if_nametoindex(c->name),
		.loopback = c->flags & IFF_LOOPBACK,
		.vrf = braid_link_vrf(s->links, c->ifindex),
	};

	memcpy(dev.name, c->name, sizeof(c->name));
	memcpy(dev.interface, c->name, sizeof(c->name));
	memcpy(dev.more, &c->ips.ip[1], dev.nmore * sizeof(dev.more[0]));
	braid_ip_give_scope(&dev.addr, dev.ifindex);
	for (unsigned i = 0; i < dev.nmore; i++)
		braid_ip_give_scope(&dev.more[i].addr, dev.ifindex);
	if (braid_netdev_sysfs_is_ours(s, c)) {
		dev.speed_mbps = speed(s, c->name, DEPTH_MAX);
		if (!find_pci(s, c->name, DEPTH_MAX, &dev)) {
			dev.port = FN_MAX * net_number(s, c->name, "dev_port", PORT_MOST);
			dev.guid = mac(s, c->name);
		}
	}
	if (!dev.guid)
		dev.guid = host_guid(s, 'i', dev.ifindex);
	dev.speed_known = dev.speed_mbps > 0;
	if (!dev.speed_known)
		dev.speed_mbps = SPEED_GUESS;
	*ret = dev;
}
