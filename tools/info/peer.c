/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * peer.c - `braid info --peer HOST`: the ways by which Braid would reach HOST, in order.
 *
 * Nothing is sent: addresses come from the resolver, the rest from routes.  A peer lists its own
 * addresses in its handle, so those that its name does not resolve to are not known here.
 */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/param.h"
#include "tools/info/info.h"
#include "topo/ips.h"
#include "topo/pairs.h"

enum { PAIRS_MAX = 16, HANDSHAKES_MAX = 4 };	/* the same as in core/setup/ways.h */

struct hosts {
	struct braid_netdev net[BRAID_NETDEVS_MAX];
	unsigned n;
	union braid_netdev_addr to[BRAID_PAIR_ADDRS];
	unsigned nto;
};

/* "[V6]" is the address, as where a port follows it. */
static int resolve(struct hosts *h, const char *host)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *all, *a;
	size_t n = strlen(host);
	bool v6 = n > 2 && *host == '[' && host[n - 1] == ']';
	char *name = strndup(host + v6, n - 2 * v6);
	int err = name ? getaddrinfo(name, NULL, &hints, &all) : EAI_MEMORY;

	free(name);
	if (err)
		return err;
	for (a = all; a && h->nto < BRAID_PAIR_ADDRS; a = a->ai_next) {
		if (a->ai_family == AF_INET || a->ai_family == AF_INET6)
			memcpy(&h->to[h->nto++], a->ai_addr, a->ai_addrlen);
	}
	freeaddrinfo(all);
	return 0;
}

/* All interfaces, loopback too. */
static void find_interfaces(struct hosts *h)
{
	const char *is = braid_param.socket_family;
	int n, family = !strcmp(is, "AF_INET") ? AF_INET : !strcmp(is, "AF_INET6") ? AF_INET6 :
								AF_UNSPEC;

	braid_ips_choose(braid_param.address);
	n = braid_netdev_find("^=-", family, "", h->net, BRAID_NETDEVS_MAX - 1, NULL, 0);
	h->n = n > 0 ? (unsigned)n : 0;
	n = braid_netdev_find("=lo", family, "", &h->net[h->n], 1, NULL, 0);
	h->n += n > 0 ? (unsigned)n : 0;
}

static void text_of(const union braid_netdev_addr *a, char ret[INET6_ADDRSTRLEN])
{
	const void *ip = a->sa.sa_family == AF_INET ? (const void *)&a->in.sin_addr :
						      (const void *)&a->in6.sin6_addr;

	if (!inet_ntop(a->sa.sa_family, ip, ret, INET6_ADDRSTRLEN))
		snprintf(ret, INET6_ADDRSTRLEN, "?");
}

static const struct braid_netdev *net_of_address(const struct hosts *h, const char *address)
{
	struct braid_netdev_ip ip[BRAID_NETDEV_IPS];
	char text[INET6_ADDRSTRLEN];

	for (unsigned i = 0; i < h->n; i++) {
		unsigned n = braid_netdev_ips(&h->net[i], ip);

		for (unsigned k = 0; k < n; k++) {
			text_of(&ip[k].addr, text);
			if (!strcmp(text, address))
				return &h->net[i];
		}
	}
	return NULL;
}

/* The interfaces that the plugin keeps for handshakes, from its notes. */
static unsigned add_handshakes(const struct hosts *h, const json_t *notes,
			       const struct braid_netdev **ret, unsigned n, unsigned max)
{
	char name[BRAID_NETDEV_NAMES];
	json_t *x;
	size_t i;

	json_array_foreach(notes, i, x) {
		if (sscanf(json_string_value(x), "interfaces: %63s is for handshakes", name) != 1)
			continue;
		for (unsigned k = 0; k < h->n && n < max; k++) {
			if (!strcmp(h->net[k].name, name))
				ret[n++] = &h->net[k];
		}
	}
	return n;
}

static bool has_rdma(const json_t *dev)
{
	json_t *x;
	size_t i;

	json_array_foreach(json_object_get(dev, "transports"), i, x) {
		if (!strcmp(json_string_value(x), "verbs"))
			return true;
	}
	return false;
}

static json_t *ways_json(const struct hosts *h, const json_t *dev, const json_t *notes)
{
	const char *address = json_string_value(json_object_get(dev, "address"));
	const struct braid_netdev *nets[1 + HANDSHAKES_MAX];
	char from[INET6_ADDRSTRLEN], to[INET6_ADDRSTRLEN];
	struct braid_pair pair[PAIRS_MAX];
	json_t *list = json_array();
	unsigned n = 0;

	nets[0] = net_of_address(h, address ? address : "");
	if (nets[0])
		n = has_rdma(dev) ? add_handshakes(h, notes, nets, 1, 1 + HANDSHAKES_MAX) : 1;
	n = braid_pairs(nets, n, h->to, h->nto, BRAID_PEER_UNKNOWN, braid_route_get, pair,
			PAIRS_MAX);
	for (unsigned i = 0; i < n; i++) {
		text_of(&pair[i].from.addr, from);
		text_of(&pair[i].to, to);
		json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:b}", "interface",
						      pair[i].net->name, "from", from, "to", to,
						      "why", braid_pair_text(pair[i].kind), "bound",
						      pair[i].bind));
	}
	return list;
}

/* Addresses that no device can reach. */
static json_t *left_json(const struct hosts *h, const json_t *devices)
{
	json_t *list = json_array(), *dev, *way;
	char to[INET6_ADDRSTRLEN];
	size_t d, w;

	for (unsigned i = 0; i < h->nto; i++) {
		bool met = false;

		text_of(&h->to[i], to);
		json_array_foreach(devices, d, dev) {
			json_array_foreach(json_object_get(dev, "ways"), w, way)
				met |= !strcmp(json_string_value(json_object_get(way, "to")), to);
		}
		if (!met)
			json_array_append_new(list, json_string(to));
	}
	return list;
}

json_t *info_peer(const json_t *plugin, const char *host, char *err)
{
	struct hosts *h = calloc(1, sizeof(*h));
	json_t *devices = json_array(), *dev, *ret = NULL;
	int failed = h ? resolve(h, host) : EAI_MEMORY;
	size_t i;

	if (failed) {
		snprintf(err, INFO_ERR, "%.200s: %s", host, gai_strerror(failed));
		json_decref(devices);
		free(h);
		return NULL;
	}
	find_interfaces(h);
	json_array_foreach(json_object_get(plugin, "devices"), i, dev) {
		json_t *ways = ways_json(h, dev, json_object_get(plugin, "notes"));

		json_array_append_new(devices, json_pack("{s:O, s:O, s:o}", "index",
							 json_object_get(dev, "index"), "name",
							 json_object_get(dev, "name"), "ways",
							 ways));
	}
	ret = json_pack("{s:s, s:o, s:o}", "host", host, "left", left_json(h, devices), "devices",
			devices);
	free(h);
	return ret;
}

void info_peer_print(const json_t *peer)
{
	const json_t *left = json_object_get(peer, "left");
	json_t *dev, *way, *x;
	size_t d, w;

	json_array_foreach(json_object_get(peer, "devices"), d, dev) {
		const json_t *ways = json_object_get(dev, "ways");

		printf("%sdevice %lld, %s, to %s, tried in this order:\n", d ? "\n" : "",
		       json_integer_value(json_object_get(dev, "index")),
		       json_string_value(json_object_get(dev, "name")),
		       json_string_value(json_object_get(peer, "host")));
		if (!json_array_size(ways))
			puts("  none: no IP version in common");
		json_array_foreach(ways, w, way)
			printf("  %zu  %s of %s to %s: %s%s\n", w + 1,
			       json_string_value(json_object_get(way, "from")),
			       json_string_value(json_object_get(way, "interface")),
			       json_string_value(json_object_get(way, "to")),
			       json_string_value(json_object_get(way, "why")),
			       json_is_true(json_object_get(way, "bound")) ?
				       "; bound to it, for routes use another interface" : "");
	}
	json_array_foreach(left, w, x)
		printf("%s%s\n", w ? "  " : "\nleft, no device has an address of that version: ",
		       json_string_value(x));
}
