/* SPDX-License-Identifier: BSD-3-Clause */
/* pairs.c - see pairs.h. */
#include "topo/pairs.h"

#include <errno.h>

#include "topo/ips.h"

const char *braid_pair_text(enum braid_pair_kind kind)
{
	static const char *const text[] = {
		[BRAID_PAIR_OWN] = "this host itself",
		[BRAID_PAIR_NEAR] = "in one subnet",
		[BRAID_PAIR_LINK] = "on its link, by a route",
		[BRAID_PAIR_ROUTED] = "by a route",
		[BRAID_PAIR_ASTRAY] = "the route leads there by another interface",
		[BRAID_PAIR_NONE] = "no route",
		[BRAID_PAIR_MINE] = "this host has that address itself",
	};

	return text[kind];
}

/* Our address whose subnet has `to` and the longest prefix, else our first of that IP version. */
static bool nearest(const struct braid_netdev *net, const struct sockaddr *to,
		    struct braid_netdev_ip *ret)
{
	struct braid_netdev_ip ip[BRAID_NETDEV_IPS];
	unsigned n = braid_netdev_ips(net, ip), bits = 0;
	bool found = false;

	for (unsigned i = 0; i < n; i++) {
		bool near = braid_ip_near(&ip[i], to) && ip[i].prefix > bits;

		if (ip[i].addr.sa.sa_family != to->sa_family || (found && !near))
			continue;
		*ret = ip[i];
		bits = near ? ip[i].prefix : bits;
		found = true;
	}
	return found;
}

/* `to` is an address of this host: the best pair, unless the peer is known to be elsewhere. */
static enum braid_pair_kind kind_of_local(enum braid_pair_peer peer)
{
	return peer == BRAID_PEER_ELSEWHERE ? BRAID_PAIR_MINE : BRAID_PAIR_OWN;
}

/*
 * The route of a socket that is not bound.  For an interface in a VRF, only the VRF's count.  From
 * an address to itself the kernel need not be asked, which takes four system calls.
 */
static int unbound(const struct braid_pair *p, braid_route_fn *get, struct braid_route *ret)
{
	*ret = (struct braid_route){ .local = braid_netdev_same_ip(&p->from.addr.sa, &p->to.sa) };
	if (ret->local)
		return 0;
	return p->net->ifindex ? get(&p->from.addr.sa, &p->to.sa, p->net->vrf, ret) : -ENOSYS;
}

/* any: the route of a socket that is not bound, unless `err` says why there is none. */
static void judge(struct braid_pair *p, enum braid_pair_peer peer, braid_route_fn *get, int err,
		  struct braid_route any)
{
	const struct sockaddr *from = &p->from.addr.sa, *to = &p->to.sa;
	bool near = braid_ip_near(&p->from, to) && !braid_netdev_same_ip(from, to);
	struct braid_route by = { 0 };
	bool has_any, has_by;

	p->bind = false;
	if (err == -ENOSYS || any.local) {
		p->kind = any.local || braid_netdev_same_ip(from, to) ? kind_of_local(peer) :
			  near ? BRAID_PAIR_NEAR : BRAID_PAIR_ROUTED;
		return;
	}
	has_any = !err;
	has_by = !get(from, to, p->net->ifindex, &by) && by.ifindex == p->net->ifindex;
	if (has_by && !by.gateway)
		p->kind = near ? BRAID_PAIR_NEAR : BRAID_PAIR_LINK;
	else if (has_any)
		p->kind = any.ifindex == p->net->ifindex ? BRAID_PAIR_ROUTED : BRAID_PAIR_ASTRAY;
	else
		p->kind = has_by ? BRAID_PAIR_ROUTED : BRAID_PAIR_NONE;
	/* Obey a route that leads by another interface's gateway: somebody set it on purpose. */
	p->bind = p->kind <= BRAID_PAIR_ROUTED && has_by &&
		  (!has_any || (any.ifindex != p->net->ifindex && !any.gateway));
}

int braid_pair_binds(const struct braid_pair *p, braid_route_fn *get)
{
	struct braid_pair now = *p;
	struct braid_route any;
	int err = unbound(p, get, &any);

	if (err == -ENOSYS || any.local)
		return -ENOENT;
	if (!err && (any.gateway || any.ifindex == p->net->ifindex))
		return 0;
	judge(&now, BRAID_PEER_UNKNOWN, get, err, any);
	return now.bind || !err ? now.bind : -ENOENT;
}

static void insert(struct braid_pair *list, unsigned *n, unsigned max, const struct braid_pair *p)
{
	unsigned at = *n;

	while (at && (list[at - 1].worse > p->worse ||
		      (list[at - 1].worse == p->worse && list[at - 1].kind > p->kind)))
		at--;
	if (at == max)
		return;
	if (*n < max)
		++*n;
	for (unsigned i = *n - 1; i > at; i--)
		list[i] = list[i - 1];
	list[at] = *p;
}

unsigned braid_pairs(const struct braid_netdev *const *nets, unsigned n_nets,
		     const union braid_netdev_addr *to, unsigned n_to, enum braid_pair_peer peer,
		     braid_route_fn *get, struct braid_pair *ret, unsigned max)
{
	bool led[BRAID_PAIR_ADDRS] = { false };	/* an interface reaches this address */
	unsigned n = 0;

	for (unsigned i = 0; i < n_nets; i++) {
		for (unsigned k = 0; k < n_to && k < BRAID_PAIR_ADDRS; k++) {
			struct braid_pair p = { .net = nets[i], .to = to[k] };
			struct braid_route any;
			int err;

			if (!nearest(nets[i], &to[k].sa, &p.from))
				continue;
			if (to[k].sa.sa_family == AF_INET6 &&
			    IN6_IS_ADDR_LINKLOCAL(&to[k].in6.sin6_addr))
				p.to.in6.sin6_scope_id = nets[i]->ifindex;
			err = unbound(&p, get, &any);
			judge(&p, peer, get, err, any);
			p.worse = led[k] && p.kind > BRAID_PAIR_ROUTED;
			led[k] |= p.kind <= BRAID_PAIR_ROUTED;
			insert(ret, &n, max, &p);
		}
	}
	return n;
}
