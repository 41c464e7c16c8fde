/* SPDX-License-Identifier: BSD-3-Clause */
/* bind.c - see bind.h. */
#include "core/setup/bind.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/link/link.h"
#include "core/setup/conn.h"
#include "core/setup/links.h"
#include "core/setup/ways.h"
#include "topo/ips.h"
#include "topo/sys.h"

#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif
#ifndef IPV6_2292PKTOPTIONS
#define IPV6_2292PKTOPTIONS 6
#endif

static struct braid_log_gate gate_denied, gate_astray;

/* Another address of that subnet, whether in use or not: only its route matters. */
static bool neighbour(const struct braid_at *at, unsigned i, union braid_netdev_addr *ret)
{
	unsigned bits = at->ip.addr.sa.sa_family == AF_INET ? 32 : 128;
	uint8_t *last;

	*ret = at->ip.addr;
	last = bits == 32 ? (uint8_t *)&ret->in.sin_addr + 3 : &ret->in6.sin6_addr.s6_addr[15];
	*last = (uint8_t)(*last ^ i);
	return at->ip.prefix && at->ip.prefix + (i > 1) < bits;
}

bool braid_bind_listens(const struct braid_at *at)
{
	struct braid_pair p = { .net = at->net, .from = at->ip };
	int binds = -ENOENT;

	braid_svc_assert_locked();
	/* Try several: one may be this host's own address, or the subnet's. */
	for (unsigned i = 1; i <= 3 && binds < 0 && neighbour(at, i, &p.to); i++)
		binds = braid_pair_binds(&p, braid_os->route);
	return binds > 0;
}

static int bind_to_index(int fd, unsigned ifindex)
{
	int index = (int)ifindex;

	return braid_os->setsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &index, sizeof(index)) ?
		       -errno : 0;
}

int braid_bind_listener(int fd, const struct braid_netdev *net, bool to_interface)
{
	braid_svc_assert_locked();
	if (to_interface)
		return bind_to_index(fd, net->ifindex);
	return net->vrf ? bind_to_index(fd, net->vrf) : 0;
}

static bool bind_to(int fd, const struct braid_netdev *net)
{
	if (!bind_to_index(fd, net->ifindex))
		return true;
	if (braid_log_gate_open(&gate_denied, braid_os->now_ns()))
		braid_warn("device %s: its lanes leave by another interface, as routes decide, for "
			   "a socket can't be bound to an interface here: %s (without CAP_NET_RAW "
			   "it takes Linux 5.7) [not-by-device]", net->name, strerror(errno));
	return false;
}

bool braid_bind_dialler(int fd, const struct braid_way *way)
{
	const struct braid_netdev *net = way->pair.net;

	braid_svc_assert_locked();
	if (!way->loose && braid_pair_binds(&way->pair, braid_os->route) > 0 && bind_to(fd, net))
		return true;
	if (net->vrf)			/* if this fails, bind() fails too and is reported */
		bind_to_index(fd, net->vrf);
	return false;
}

/* --- accepted ------------------------------------------------------------------------------ */

/* The interface by which an accepted connection came in; 0: unknown. */
static unsigned came_by(int fd, bool v6)
{
	union {
		struct cmsghdr head;
		char room[256];
	} buf;
	socklen_t len = sizeof(buf);
	int on = 1, off = 0, level = v6 ? IPPROTO_IPV6 : IPPROTO_IP;
	int ask = v6 ? IPV6_RECVPKTINFO : IP_PKTINFO;
	struct msghdr msg = { .msg_control = &buf, .msg_controllen = 0 };
	unsigned index = 0;

	if (braid_os->setsockopt(fd, level, ask, &on, sizeof(on)))
		return 0;
	if (!braid_os->getsockopt(fd, level, v6 ? IPV6_2292PKTOPTIONS : IP_PKTOPTIONS, &buf, &len))
		msg.msg_controllen = len;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&msg); h; h = CMSG_NXTHDR(&msg, h)) {
		struct in6_pktinfo info6;
		struct in_pktinfo info;

		if (v6 && h->cmsg_type == IPV6_PKTINFO) {
			memcpy(&info6, CMSG_DATA(h), sizeof(info6));
			index = info6.ipi6_ifindex;
		} else if (!v6 && h->cmsg_type == IP_PKTINFO) {
			memcpy(&info, CMSG_DATA(h), sizeof(info));
			index = (unsigned)info.ipi_ifindex;
		}
	}
	braid_os->setsockopt(fd, level, ask, &off, sizeof(off));
	return index;
}

static void warn_astray(const struct braid_conn *c, const struct braid_pair *p, unsigned by)
{
	char mine[IF_NAMESIZE] = "?", other[IF_NAMESIZE] = "?";

	if_indextoname(p->net->ifindex, mine);
	if_indextoname(by, other);
	if (!braid_log_gate_open(&gate_astray, braid_os->now_ns()))
		return;
	braid_warn("device %s, peer %s: what it sends to this device's address comes in by %s, not "
		   "by %s, so answers leave as routes decide. Where several interfaces are in one "
		   "subnet, each should answer ARP for itself: sysctl "
		   "net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 "
		   "[not-by-device]", c->met->net.name, c->addr, other, mine);
}

/* Find the device's interface that has the address at which the connection was accepted. */
static bool find_pair(const struct braid_conn *c, struct braid_pair *ret)
{
	struct braid_netdev_ip ip[BRAID_NETDEV_IPS];
	const struct braid_netdev *nets[1 + BRAID_SHAKES_MAX];
	union braid_netdev_addr at;
	socklen_t len = sizeof(at);
	unsigned nnets = braid_ways_nets(c->met, nets);

	if (braid_os->getsockname(c->fd, &at.sa, &len))
		return false;
	for (unsigned i = 0; i < nnets; i++) {
		unsigned n = braid_netdev_ips(nets[i], ip);

		for (unsigned k = 0; k < n; k++) {
			if (!braid_netdev_same_ip(&ip[k].addr.sa, &at.sa))
				continue;
			*ret = (struct braid_pair){ .net = nets[i], .from = ip[k] };
			memcpy(&ret->to, &c->to, sizeof(ret->to));
			return ret->to.sa.sa_family == at.sa.sa_family;
		}
	}
	return false;
}

static bool is_bound(int fd)
{
	socklen_t len = sizeof(int);
	int index = 0;

	return !braid_os->getsockopt(fd, SOL_SOCKET, SO_BINDTOIFINDEX, &index, &len) && index;
}

void braid_bind_accepted(struct braid_conn *c)
{
	struct braid_pair p;
	unsigned by;

	braid_svc_assert_locked();
	c->bound = is_bound(c->fd);		/* inherited from the listener */
	if (c->bound || !find_pair(c, &p) || braid_pair_binds(&p, braid_os->route) <= 0)
		return;
	by = came_by(c->fd, p.to.sa.sa_family == AF_INET6);
	if (by == p.net->ifindex)
		c->bound = bind_to(c->fd, p.net);
	else if (by)
		warn_astray(c, &p, by);
}

/* --- binding does not help ----------------------------------------------------------------- */

static long rp_filter(const char *name)
{
	char path[96];
	long v = 0;

	snprintf(path, sizeof(path), "/proc/sys/net/ipv4/conf/%s/rp_filter", name);
	braid_sys_number(path, 0, 2, &v);
	return v;
}

void braid_bind_failed(struct braid_link *link, const struct braid_way *way)
{
	char name[IF_NAMESIZE] = "?";
	bool strict;

	braid_svc_assert_locked();
	if (link->setup.warned_loose || braid_pair_binds(&way->pair, braid_os->route) <= 0)
		return;
	link->setup.warned_loose = true;
	if_indextoname(way->pair.net->ifindex, name);
	strict = way->pair.to.sa.sa_family == AF_INET && rp_filter(name) != 2 &&
		 rp_filter("all") != 2 && (rp_filter(name) || rp_filter("all"));
	braid_warn("device %s, peer %s: what leaves by %s gets no answer, and what leaves as "
		   "routes decide does: so this link's lanes use another interface. %s "
		   "[not-by-device]",
		   link->key.dev->net.name, link->peer, name,
		   strict ? "Strict rp_filter may be why: it drops what comes in by an interface "
			    "that routes do not use for that host; 2 in its place does not" :
			    "Answers must come in by the same interface: see ip neigh and ip route "
			    "on both hosts");
}
