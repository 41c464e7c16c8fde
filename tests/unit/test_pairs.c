/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_pairs.c - the order of pairs of addresses, and when a socket is bound to its interface, on
 * imaginary hosts: a table of routes replaces the kernel's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/ips.h"
#include "topo/pairs.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum { NETS_MAX = 4, ADDRS_MAX = 4, ROUTES_MAX = 8, VRF = 9 };

/*
 * "10.1.0.0/24 1": by interface 1; with " via" through a gateway, with " own" an own address, with
 * " vrf" only for a socket bound to the interface, or to the VRF of "eth0@9".
 */
struct host {
	const char *nets[NETS_MAX];		/* "eth0 10.1.0.1/24 fd00::1/64": 1, 2, ... */
	const char *routes[ROUTES_MAX];		/* those before win */
};

static struct braid_netdev nets[NETS_MAX];
static const struct host *host;
static bool silent;			/* routes can't be asked for */
static unsigned asked;

static void parse_ip(const char *text, struct braid_netdev_ip *ret)
{
	const char *slash = strchr(text, '/');
	char ip[64];

	memset(ret, 0, sizeof(*ret));
	snprintf(ip, sizeof(ip), "%.*s", (int)strcspn(text, "/"), text);
	ret->addr.sa.sa_family = strchr(ip, ':') ? AF_INET6 : AF_INET;
	ret->prefix = slash ? (unsigned)atoi(slash + 1) : 0;
	assert_int_equal(inet_pton(ret->addr.sa.sa_family, ip, strchr(ip, ':') ?
				   (void *)&ret->addr.in6.sin6_addr :
				   (void *)&ret->addr.in.sin_addr), 1);
}

static void parse_net(const char *text, unsigned index, struct braid_netdev *ret)
{
	struct braid_netdev_ip ip;
	char copy[256], *rest = copy, *word;
	unsigned n = 0;

	snprintf(copy, sizeof(copy), "%s", text);
	memset(ret, 0, sizeof(*ret));
	ret->ifindex = index;
	snprintf(ret->name, sizeof(ret->name), "%s", strtok_r(rest, " @", &rest));
	ret->vrf = text[strcspn(text, " @")] == '@' ? VRF : 0;
	if (ret->vrf)
		strtok_r(rest, " ", &rest);
	while ((word = strtok_r(rest, " ", &rest))) {
		parse_ip(word, &ip);
		if (!n++) {
			ret->addr = ip.addr;
			ret->prefix = ip.prefix;
		} else {
			ret->more[ret->nmore++] = ip;
		}
	}
}

static int get(const struct sockaddr *from, const struct sockaddr *to, unsigned ifindex,
	       struct braid_route *ret)
{
	(void)from;
	asked++;
	if (silent)
		return -ENOSYS;
	for (unsigned i = 0; i < ROUTES_MAX && host->routes[i]; i++) {
		const char *r = host->routes[i], *by = strchr(r, ' ');
		struct braid_netdev_ip dst;
		char text[64];
		bool all;

		snprintf(text, sizeof(text), "%.*s", (int)strcspn(r, " "), r);
		all = !strcmp(text, "default");
		if (!all)
			parse_ip(text, &dst);
		if ((!all && !braid_ip_near(&dst, to)) || (!ifindex && strstr(r, " vrf")) ||
		    (ifindex == VRF && !strstr(r, " vrf")) ||
		    (ifindex && ifindex != VRF && (unsigned)atoi(by) != ifindex &&
		     !strstr(r, " own")))
			continue;
		*ret = (struct braid_route){ .ifindex = (unsigned)atoi(by),
					     .local = strstr(r, " own"),
					     .gateway = all || strstr(r, " via") };
		return 0;
	}
	return -ENETUNREACH;
}

/* "eth0 10.1.0.1 10.1.0.2 near; eth1 ..."; a pair that is bound has a !. */
static const char *pairs(const struct host *h, const char *const *to, enum braid_pair_peer peer)
{
	static const char *const kinds[] = { "own", "near", "link", "routed", "astray", "none",
					     "mine" };
	static char text[1024];
	const struct braid_netdev *list[NETS_MAX];
	union braid_netdev_addr at[ADDRS_MAX];
	struct braid_netdev_ip ip;
	struct braid_pair pair[8];
	unsigned n_nets = 0, n_to = 0, n;
	size_t used = 0;

	host = h;
	for (; n_nets < NETS_MAX && h->nets[n_nets]; n_nets++) {
		parse_net(h->nets[n_nets], n_nets + 1, &nets[n_nets]);
		list[n_nets] = &nets[n_nets];
	}
	for (; n_to < ADDRS_MAX && to[n_to]; n_to++) {
		parse_ip(to[n_to], &ip);
		at[n_to] = ip.addr;
	}
	n = braid_pairs(list, n_nets, at, n_to, peer, get, pair, COUNT(pair));
	text[0] = '\0';
	for (unsigned i = 0; i < n; i++) {
		char from[64], dst[64];
		bool v6 = pair[i].to.sa.sa_family == AF_INET6;

		inet_ntop(v6 ? AF_INET6 : AF_INET, v6 ? (void *)&pair[i].from.addr.in6.sin6_addr :
			  (void *)&pair[i].from.addr.in.sin_addr, from, sizeof(from));
		inet_ntop(v6 ? AF_INET6 : AF_INET, v6 ? (void *)&pair[i].to.in6.sin6_addr :
			  (void *)&pair[i].to.in.sin_addr, dst, sizeof(dst));
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s %s %s%s",
					 i ? "; " : "", pair[i].net->name, from, dst,
					 kinds[pair[i].kind], pair[i].bind ? "!" : "");
		assert_int_equal(braid_pair_binds(&pair[i], get) > 0, pair[i].bind);
	}
	return text;
}

static const struct row {
	struct host host;
	const char *to[ADDRS_MAX];
	enum braid_pair_peer peer;
	const char *pairs;
} rows[] = {
	/* One NIC. */
	{ { { "eth0 10.1.0.1/24" }, { "10.1.0.0/24 1" } }, { "10.1.0.2" }, BRAID_PEER_ELSEWHERE,
	  "eth0 10.1.0.1 10.1.0.2 near" },
	{ { { "eth0 10.1.0.1/24" }, { "10.1.0.0/24 1", "default 1 via" } }, { "10.9.0.2" },
	  BRAID_PEER_ELSEWHERE, "eth0 10.1.0.1 10.9.0.2 routed" },
	{ { { "eth0 10.1.0.1/24" }, { "10.1.0.0/24 1" } }, { "10.9.0.2" }, BRAID_PEER_ELSEWHERE,
	  "eth0 10.1.0.1 10.9.0.2 none" },
	/* Two interfaces in one subnet: the kernel's route names only the first. */
	{ { { "eth1 10.1.0.11/24" }, { "10.1.0.0/24 2", "10.1.0.0/24 1" } }, { "10.1.0.20" },
	  BRAID_PEER_ELSEWHERE, "eth1 10.1.0.11 10.1.0.20 near!" },
	/* A host route sends the address elsewhere. */
	{ { { "eth1 10.1.0.11/24" }, { "10.1.0.20/32 2 via", "10.1.0.0/24 1" } }, { "10.1.0.20" },
	  BRAID_PEER_ELSEWHERE, "eth1 10.1.0.11 10.1.0.20 near" },
	/* In a VRF only a bound socket has a route. */
	{ { { "eth0 10.1.0.1/24" }, { "10.1.0.0/24 1 vrf", "default 1 via vrf" } }, { "10.1.0.2" },
	  BRAID_PEER_ELSEWHERE, "eth0 10.1.0.1 10.1.0.2 near!" },
	{ { { "eth0 10.1.0.1/24" }, { "10.1.0.0/24 1 vrf", "default 1 via vrf" } }, { "10.9.0.2" },
	  BRAID_PEER_ELSEWHERE, "eth0 10.1.0.1 10.9.0.2 routed!" },
	/* The socket is bound to the VRF, so it need not be bound to the interface. */
	{ { { "eth0@9 10.1.0.1/24" }, { "10.1.0.0/24 1 vrf", "default 3 via" } }, { "10.1.0.2" },
	  BRAID_PEER_ELSEWHERE, "eth0 10.1.0.1 10.1.0.2 near" },
	{ { { "eth0@9 10.1.0.1/24" }, { "10.1.0.0/24 1 vrf", "default 1 via vrf", "default 3 via" } },
	  { "10.9.0.2" }, BRAID_PEER_ELSEWHERE, "eth0 10.1.0.1 10.9.0.2 routed" },
	{ { { "eth0@9 10.1.0.1/24" }, { "10.1.0.0/24 1 vrf", "default 3 via" } }, { "10.9.0.2" },
	  BRAID_PEER_ELSEWHERE, "eth0 10.1.0.1 10.9.0.2 none" },
	/* The route to another rail's subnet leads through the other NIC. */
	{ { { "eth0 10.1.0.1/24" }, { "10.1.0.0/24 1", "10.2.0.0/24 2" } }, { "10.2.0.2" },
	  BRAID_PEER_ELSEWHERE, "eth0 10.1.0.1 10.2.0.2 astray" },
	/* Of several addresses at each end, the two in one subnet are paired first. */
	{ { { "eth0 10.1.0.1/24 10.2.0.1/24" }, { "10.1.0.0/24 1", "10.2.0.0/24 1" } },
	  { "10.5.5.1", "10.2.0.2" }, BRAID_PEER_ELSEWHERE,
	  "eth0 10.2.0.1 10.2.0.2 near; eth0 10.1.0.1 10.5.5.1 none" },
	{ { { "eth0 10.1.0.1/16 10.1.2.1/24" }, { "10.1.0.0/16 1" } }, { "10.1.2.2" },
	  BRAID_PEER_ELSEWHERE, "eth0 10.1.2.1 10.1.2.2 near" },
	/* A route without a gateway is as good as a subnet, nearly. */
	{ { { "lo 10.5.5.1/32", "eth0 10.1.0.1/24" }, { "10.5.5.2/32 2", "10.1.0.0/24 2" } },
	  { "10.5.5.2", "10.1.0.2" }, BRAID_PEER_ELSEWHERE,
	  "eth0 10.1.0.1 10.1.0.2 near; eth0 10.1.0.1 10.5.5.2 link; "
	  "lo 10.5.5.1 10.5.5.2 astray; lo 10.5.5.1 10.1.0.2 astray" },
	/* Only addresses of one IP version are paired. */
	{ { { "eth0 10.1.0.1/24 fd00::1/64" }, { "10.1.0.0/24 1", "fd00::/64 1" } }, { "fd00::2" },
	  BRAID_PEER_ELSEWHERE, "eth0 fd00::1 fd00::2 near" },
	{ { { "eth0 10.1.0.1/24 fd00::1/64" }, { "fd00::/64 1" } }, { "10.7.0.2", "fd00::2" },
	  BRAID_PEER_ELSEWHERE, "eth0 fd00::1 fd00::2 near; eth0 10.1.0.1 10.7.0.2 none" },
	{ { { "eth0 10.1.0.1/24" }, { "10.1.0.0/24 1" } }, { "fd00::2" }, BRAID_PEER_ELSEWHERE, "" },
	/* The peer has an address of ours: it runs on this host, or both hosts have that address. */
	{ { { "br0 172.18.0.1/16" }, { "172.18.0.1/32 9 own", "172.18.0.0/16 1" } }, { "172.18.0.1" },
	  BRAID_PEER_ELSEWHERE, "br0 172.18.0.1 172.18.0.1 mine" },
	{ { { "br0 172.18.0.1/16" }, { "172.18.0.1/32 9 own", "172.18.0.0/16 1" } }, { "172.18.0.1" },
	  BRAID_PEER_HERE, "br0 172.18.0.1 172.18.0.1 own" },
	{ { { "br0 172.18.0.1/16", "m0 10.1.0.1/24" },
	    { "172.18.0.1/32 9 own", "172.18.0.0/16 1", "10.1.0.0/24 2" } },
	  { "172.18.0.1", "10.1.0.2" }, BRAID_PEER_ELSEWHERE,
	  "m0 10.1.0.1 10.1.0.2 near; br0 172.18.0.1 10.1.0.2 astray; "
	  "br0 172.18.0.1 172.18.0.1 mine; m0 10.1.0.1 172.18.0.1 mine" },
	{ { { "eth0 10.1.0.1/24" }, { "10.1.0.2/32 9 own", "10.1.0.0/24 1" } }, { "10.1.0.2" },
	  BRAID_PEER_UNKNOWN, "eth0 10.1.0.1 10.1.0.2 own" },
	/* Handshakes by another interface: after the device's own, where both will do. */
	{ { { "eth0 10.2.0.1/24", "m0 10.1.0.1/24" }, { "10.1.0.0/24 2", "10.2.0.0/24 1" } },
	  { "10.2.0.2", "10.1.0.2" }, BRAID_PEER_ELSEWHERE,
	  "eth0 10.2.0.1 10.2.0.2 near; m0 10.1.0.1 10.1.0.2 near; "
	  "eth0 10.2.0.1 10.1.0.2 astray; m0 10.1.0.1 10.2.0.2 astray" },
};

static void pairs_come_in_order(void **state)
{
	(void)state;
	silent = false;
	for (size_t i = 0; i < COUNT(rows); i++) {
		const char *got = pairs(&rows[i].host, rows[i].to, rows[i].peer);

		if (strcmp(got, rows[i].pairs))
			fail_msg("row %zu: '%s', not '%s'", i, got, rows[i].pairs);
	}
}

static void without_routes_subnets_decide(void **state)
{
	static const struct host h = { .nets = { "eth0 10.1.0.1/24", "eth1 10.2.0.1/24" } };
	static const char *const to[] = { "10.2.0.2", NULL };

	(void)state;
	silent = true;
	assert_string_equal(pairs(&h, to, BRAID_PEER_ELSEWHERE),
			    "eth1 10.2.0.1 10.2.0.2 near; eth0 10.1.0.1 10.2.0.2 routed");
}

static void from_an_address_to_itself_no_route_is_asked_for(void **state)
{
	static const struct host h = { .nets = { "eth0 10.1.0.1/24" }, .routes = { "10.1.0.0/24 1" } };
	static const char *const to[] = { "10.1.0.1", NULL };
	struct braid_pair p = { .net = &nets[0] };

	(void)state;
	silent = false;
	asked = 0;
	assert_string_equal(pairs(&h, to, BRAID_PEER_HERE), "eth0 10.1.0.1 10.1.0.1 own");
	p.from.addr = p.to = nets[0].addr;
	assert_int_equal(braid_pair_binds(&p, get), -ENOENT);
	assert_int_equal(asked, 0);
}

static void no_more_than_max_are_kept_and_the_best(void **state)
{
	static const struct host h = { .nets = { "eth0 10.1.0.1/24" }, .routes = { "10.1.0.0/24 1" } };
	const struct braid_netdev *list[] = { &nets[0] };
	union braid_netdev_addr at[3];
	struct braid_netdev_ip ip;
	struct braid_pair pair[2];

	(void)state;
	silent = false;
	host = &h;
	parse_net(h.nets[0], 1, &nets[0]);
	for (unsigned i = 0; i < 3; i++) {
		parse_ip(i == 2 ? "10.1.0.2" : "10.9.0.2", &ip);
		at[i] = ip.addr;
	}
	assert_int_equal(braid_pairs(list, 1, at, 3, BRAID_PEER_ELSEWHERE, get, pair, 2), 2);
	assert_int_equal(pair[0].kind, BRAID_PAIR_NEAR);
	assert_int_equal(pair[1].kind, BRAID_PAIR_NONE);
}

static void the_kernel_says_how_loopback_is_routed(void **state)
{
	struct braid_netdev_ip lo;
	struct braid_route r;

	(void)state;
	parse_ip("127.0.0.1/8", &lo);
	if (braid_route_get(&lo.addr.sa, &lo.addr.sa, 0, &r) == -ENOSYS)
		skip();
	assert_int_equal(braid_route_get(&lo.addr.sa, &lo.addr.sa, 0, &r), 0);
	assert_true(r.local);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pairs_come_in_order),
		cmocka_unit_test(without_routes_subnets_decide),
		cmocka_unit_test(from_an_address_to_itself_no_route_is_asked_for),
		cmocka_unit_test(no_more_than_max_are_kept_and_the_best),
		cmocka_unit_test(the_kernel_says_how_loopback_is_routed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
