/* SPDX-License-Identifier: BSD-3-Clause */
/* ways.c - see ways.h. */
#include "core/setup/ways.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/self.h"
#include "core/dev.h"
#include "topo/ips.h"

static struct braid_netdev shake[BRAID_SHAKES_MAX];
static unsigned nshakes;

bool braid_shake_add(const struct braid_netdev *net)
{
	if (nshakes == BRAID_SHAKES_MAX)
		return false;
	shake[nshakes++] = *net;
	return true;
}

bool braid_shake_is(const struct braid_netdev *net)
{
	return net >= shake && net < shake + nshakes;
}

bool braid_shakes_again(const struct ifaddrs *list)
{
	int family = braid_param_family(braid_param.socket_family);
	bool any = false;

	for (unsigned i = 0; i < nshakes; i++)
		any |= braid_netdev_again(&shake[i], family, list);
	return any;
}

static bool has_ports(const struct braid_dev *dev)
{
	return dev->best && dev->best->ports;
}

unsigned braid_ways_nets(const struct braid_dev *dev,
			 const struct braid_netdev *ret[1 + BRAID_SHAKES_MAX])
{
	unsigned n = 0;

	ret[n++] = &dev->net;
	for (unsigned i = 0; i < nshakes && has_ports(dev); i++)
		ret[n++] = &shake[i];
	return n;
}

/* --- addresses for a handle ---------------------------------------------------------------- */

struct addrs {
	unsigned n, n4, n6, most4;
	struct braid_at *at;
};

static void addrs_add(struct addrs *a, const struct braid_netdev *net, unsigned most4)
{
	struct braid_netdev_ip ip[BRAID_NETDEV_IPS];
	unsigned n = braid_netdev_ips(net, ip);

	for (unsigned i = 0; i < n; i++) {
		bool v6 = ip[i].addr.sa.sa_family == AF_INET6;

		if (v6 ? a->n6 : a->n4 == most4)
			continue;
		a->n4 += !v6;
		a->n6 += v6;
		a->at[a->n++] = (struct braid_at){ net, ip[i] };
	}
}

unsigned braid_dev_addrs(const struct braid_dev *dev, struct braid_at ret[BRAID_HANDLE_ADDRS])
{
	const struct braid_netdev *nets[1 + BRAID_SHAKES_MAX];
	unsigned n = braid_ways_nets(dev, nets);
	struct addrs a = { .at = ret };

	addrs_add(&a, nets[0], n > 1 ? 2 : 3);	/* leave room for other interfaces' */
	for (unsigned i = 1; i < n; i++)
		addrs_add(&a, nets[i], 3);
	if (!a.n6 && n == 1) {
		a.n = a.n4 = 0;
		addrs_add(&a, nets[0], 1 + BRAID_HANDLE_MORE);
	}
	return a.n;
}

static void add4(union braid_netdev_addr *ret, const uint8_t ip[4], uint16_t port)
{
	memset(ret, 0, sizeof(*ret));
	ret->in.sin_family = AF_INET;
	ret->in.sin_port = htons(port);
	memcpy(&ret->in.sin_addr, ip, 4);
}

unsigned braid_handle_addrs(const struct braid_handle *h, union braid_netdev_addr *ret)
{
	static const uint8_t none[4];
	unsigned n = 0;

	if (h->has4)
		add4(&ret[n++], h->addr4, h->port);
	for (unsigned i = 0; h->has4 && i < BRAID_HANDLE_MORE; i++) {
		if (memcmp(h->more4[i], none, sizeof(none)))
			add4(&ret[n++], h->more4[i], h->port);
	}
	if (h->has6 && n < BRAID_HANDLE_ADDRS) {
		memset(&ret[n], 0, sizeof(ret[n]));
		ret[n].in6.sin6_family = AF_INET6;
		ret[n].in6.sin6_port = htons(h->port);
		memcpy(&ret[n++].in6.sin6_addr, h->addr6, sizeof(h->addr6));
	}
	return n;
}

enum braid_pair_peer braid_handle_peer(const struct braid_handle *h)
{
	return !h->place || !braid_self.place ? BRAID_PEER_UNKNOWN :
	       h->place == braid_self.place ? BRAID_PEER_HERE : BRAID_PEER_ELSEWHERE;
}

/* --- finding ways -------------------------------------------------------------------------- */

void braid_ways_find(struct braid_ways *w, const struct braid_dev *dev,
		     const union braid_netdev_addr *to, unsigned n, enum braid_pair_peer peer,
		     bool shake_first)
{
	const struct braid_netdev *nets[1 + BRAID_SHAKES_MAX];
	struct braid_pair pair[BRAID_WAYS_MAX];
	unsigned npairs = braid_pairs(nets, braid_ways_nets(dev, nets), to, n, peer,
				      braid_os->route, pair, BRAID_WAYS_MAX);

	memset(w, 0, sizeof(*w));
	for (unsigned turn = 0; turn < 2; turn++) {
		for (unsigned i = 0; i < npairs; i++) {
			bool first = !shake_first || braid_shake_is(pair[i].net);

			if (first == (turn == 0))
				w->way[w->n++].pair = pair[i];
		}
	}
}

static bool same_to(const struct braid_way *way, const union braid_netdev_addr *to)
{
	return braid_netdev_same_ip(&way->pair.to.sa, &to->sa);
}

/* Add an address that is not in the list yet. */
static void to_add(union braid_netdev_addr *to, unsigned *n, const union braid_netdev_addr *a)
{
	for (unsigned i = 0; i < *n; i++) {
		if (braid_netdev_same_ip(&to[i].sa, &a->sa))
			return;
	}
	if (*n < BRAID_HANDLE_ADDRS)
		to[(*n)++] = *a;
}

void braid_ways_again(struct braid_ways *w, const struct braid_dev *dev,
		      const union braid_netdev_addr *more)
{
	const struct braid_way *last = &w->way[w->now];
	union braid_netdev_addr to[BRAID_HANDLE_ADDRS];
	struct braid_ways now;
	unsigned n = 0;

	if (!w->n)
		return;
	to_add(to, &n, more ? more : &last->pair.to);
	for (unsigned i = 0; i < w->n; i++)
		to_add(to, &n, &w->way[i].pair.to);
	braid_ways_find(&now, dev, to, n, BRAID_PEER_UNKNOWN, braid_shake_is(last->pair.net));
	while (now.now < now.n && !same_to(&now.way[now.now], &to[0]))
		now.now++;
	if (now.now < now.n)		/* else no address of ours is of that IP version */
		*w = now;
}

bool braid_ways_lead_to(struct braid_ways *w, const union braid_netdev_addr *to)
{
	bool any = false;

	for (unsigned i = 0; i < w->n; i++) {
		if (!same_to(&w->way[i], to))
			continue;
		any = true;
		if (!w->way[i].err && !same_to(&w->way[w->now], to))
			w->now = i;
	}
	return any;
}

/* --- trying ways --------------------------------------------------------------------------- */

void braid_way_failed(struct braid_ways *w, unsigned i, bool bound, bool connected, int err)
{
	w->way[i].err = err;
	w->way[i].loose = bound && !connected;
}

bool braid_ways_next(struct braid_ways *w, unsigned i)
{
	if (w->failed <= w->n)
		w->failed++;
	/* Try the same way again at once, this time not bound to its interface. */
	if (w->way[i].loose)
		w->failed--;
	else if (i == w->now)
		w->now = (i + 1) % w->n;
	return w->failed >= w->n;
}

void braid_way_worked(struct braid_ways *w, unsigned i)
{
	w->failed = 0;
	w->now = i;
	w->way[i].err = 0;
}

void braid_ways_text(const struct braid_ways *w, char *ret, size_t len)
{
	char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];
	size_t used = 0;

	*ret = '\0';
	for (unsigned i = 0; i < w->n && used < len; i++) {
		const struct braid_way *way = &w->way[i];

		braid_ip_text(&way->pair.from.addr, from, sizeof(from));
		braid_ip_text(&way->pair.to, to, sizeof(to));
		used += (size_t)snprintf(ret + used, len - used, "%s%s of %s to %s, %s%s%s",
					 i ? "; " : "", from, way->pair.net->name, to,
					 braid_pair_text(way->pair.kind), way->err ? ": " : "",
					 way->err ? strerror(-way->err) : "");
	}
}
