/* SPDX-License-Identifier: BSD-3-Clause */
/* addr.c - see addr.h. */
#include "core/setup/addr.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "topo/ips.h"

static const uint8_t v4_prefix[12] = { [10] = 0xff, [11] = 0xff };

static bool is_v4(const struct braid_addr *a)
{
	return !memcmp(a->ip, v4_prefix, sizeof(v4_prefix));
}

static struct braid_addr addr_v4(const void *ip, uint16_t port)
{
	struct braid_addr a = { .port = port };

	memcpy(a.ip, v4_prefix, sizeof(v4_prefix));
	memcpy(a.ip + sizeof(v4_prefix), ip, 4);
	return a;
}

static struct braid_addr addr_v6(const void *ip, uint16_t port)
{
	struct braid_addr a = { .port = port };

	memcpy(a.ip, ip, sizeof(a.ip));
	return a;
}

struct braid_addr braid_addr_of(const struct sockaddr *sa)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

	return sa->sa_family == AF_INET ? addr_v4(&in->sin_addr, ntohs(in->sin_port)) :
					  addr_v6(&in6->sin6_addr, ntohs(in6->sin6_port));
}

socklen_t braid_addr_to_sockaddr(const struct braid_addr *a, unsigned scope,
				 struct sockaddr_storage *ret)
{
	struct sockaddr_in *in = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)ret;

	memset(ret, 0, sizeof(*ret));
	if (is_v4(a)) {
		in->sin_family = AF_INET;
		in->sin_port = htons(a->port);
		memcpy(&in->sin_addr, a->ip + 12, 4);
		return sizeof(*in);
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons(a->port);
	memcpy(&in6->sin6_addr, a->ip, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
		in6->sin6_scope_id = scope;
	return sizeof(*in6);
}

void braid_addr_text(const struct sockaddr_storage *sa, char *text, size_t len)
{
	char ip[INET6_ADDRSTRLEN] = "?";

	if (sa->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)sa;

		inet_ntop(AF_INET, &in->sin_addr, ip, sizeof(ip));
		snprintf(text, len, "%s:%u", ip, ntohs(in->sin_port));
	} else {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sa;

		inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof(ip));
		snprintf(text, len, "[%s]:%u", ip, ntohs(in6->sin6_port));
	}
}

const struct ifaddrs *braid_addr_in(const struct ifaddrs *list, const struct sockaddr *sa)
{
	while (list && !(list->ifa_addr && braid_netdev_same_ip(list->ifa_addr, sa)))
		list = list->ifa_next;
	return list;
}

bool braid_addr_is_own(const struct sockaddr *sa, char name[IF_NAMESIZE])
{
	const struct ifaddrs *own;
	struct ifaddrs *all;

	if (getifaddrs(&all))
		return false;
	own = braid_addr_in(all, sa);
	if (own)
		snprintf(name, IF_NAMESIZE, "%s", own->ifa_name);
	freeifaddrs(all);
	return own;
}
