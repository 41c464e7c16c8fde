/* SPDX-License-Identifier: BSD-3-Clause */
/* probe_peer.c - whether a peer answers, by which route, and how large a packet may be. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/icmp6.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/child.h"
#include "tools/doctor/doctor.h"
#include "topo/ips.h"
#include "topo/netdev.h"

/* The kernel sends three requests for a neighbour's hardware address, one a second. */
enum { ANSWER_MS = 1000, NEIGHBOUR_MS = 3500, ECHO_MS = 250, EPHEMERAL = 50007 };

static socklen_t addr_len(const struct sockaddr *sa)
{
	return sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static void set_text(json_t *o, const char *key, const char *value)
{
	json_object_set_new(o, key, json_string(value));
}

/* Is `to` in the subnet of that entry, so that no router is between? */
static bool is_on_link(const struct ifaddrs *i, const struct sockaddr *to)
{
	size_t at = to->sa_family == AF_INET ? offsetof(struct sockaddr_in, sin_addr) :
					      offsetof(struct sockaddr_in6, sin6_addr);
	size_t len = to->sa_family == AF_INET ? 4 : 16;
	const uint8_t *a = (const uint8_t *)i->ifa_addr + at, *b = (const uint8_t *)to + at;

	for (size_t k = 0; i->ifa_netmask && k < len; k++)
		if ((a[k] ^ b[k]) & ((const uint8_t *)i->ifa_netmask)[at + k])
			return false;
	return i->ifa_netmask != NULL;
}

/* The source address and interface that the kernel would take. */
static void peer_route(json_t *o, const struct sockaddr *to)
{
	int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	union braid_netdev_addr own = { .sa = { .sa_family = AF_UNSPEC } };
	socklen_t len = sizeof(own);
	char name[INET6_ADDRSTRLEN];
	struct ifaddrs *all = NULL;

	if (connect(fd, to, addr_len(to)) < 0 || getsockname(fd, &own.sa, &len) < 0) {
		set_text(o, "route_error", strerror(errno));
		close(fd);
		return;
	}
	getnameinfo(&own.sa, len, name, sizeof(name), NULL, 0, NI_NUMERICHOST);
	set_text(o, "source", name);
	if (getifaddrs(&all) == 0) {
		for (struct ifaddrs *i = all; i; i = i->ifa_next) {
			struct ifreq r = { .ifr_name = "" };

			if (!i->ifa_addr || i->ifa_addr->sa_family != own.sa.sa_family ||
			    !braid_netdev_same_ip(i->ifa_addr, &own.sa))
				continue;
			set_text(o, "interface", i->ifa_name);
			json_object_set_new(o, "on_link", json_boolean(is_on_link(i, to)));
			snprintf(r.ifr_name, sizeof(r.ifr_name), "%.*s", IFNAMSIZ - 1, i->ifa_name);
			if (ioctl(fd, SIOCGIFMTU, &r) == 0)
				json_object_set_new(o, "mtu", json_integer(r.ifr_mtu));
		}
		freeifaddrs(all);
	}
	close(fd);
}

/* A refusal shows that the peer was reached. */
static void peer_connect(json_t *o, const struct sockaddr *to)
{
	int fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool on_link = json_is_true(json_object_get(o, "on_link"));
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	long long began = child_now();
	socklen_t len = sizeof(int);
	int err = 0;

	if (connect(fd, to, addr_len(to)) < 0)
		err = errno;
	if (err == EINPROGRESS) {
		err = ETIMEDOUT;
		if (poll(&p, 1, on_link ? NEIGHBOUR_MS : ANSWER_MS) > 0)
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	}
	close(fd);
	set_text(o, "connected", err ? strerror(err) : "yes");
	/* A firewall's refusal has the same error, and comes at once. */
	json_object_set_new(o, "no_neighbour", json_boolean(on_link && err == EHOSTUNREACH &&
							    child_now() - began > ANSWER_MS));
	json_object_set_new(o, "refused_here", json_boolean(err == EPERM || err == EACCES));
	json_object_set_new(o, "answered", json_boolean(!err || err == ECONNREFUSED));
}

/* RFC 792: the sum of 16-bit words; the kernel makes it for IPv6 and for a user's pings. */
static void checksum(unsigned char *icmp, unsigned n)
{
	uint32_t sum = 0;

	icmp[2] = icmp[3] = 0;
	for (unsigned i = 0; i + 1 < n; i += 2)
		sum += (uint32_t)icmp[i] << 8 | icmp[i + 1];
	if (n % 2)
		sum += (uint32_t)icmp[n - 1] << 8;
	sum = (sum & 0xffff) + (sum >> 16);
	sum = ~(sum + (sum >> 16));
	icmp[2] = (unsigned char)(sum >> 8);
	icmp[3] = (unsigned char)sum;
}

/* Send one echo of an IP packet of `size` bytes that may not be cut; was it answered? */
static bool echo(int fd, bool v6, bool raw, unsigned size)
{
	static unsigned char packet[65536], answer[65536];
	static uint16_t number;
	const unsigned head = v6 ? 40 : 20, skip = raw && !v6 ? 20 : 0;
	long long until = child_now() + ECHO_MS;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	if (size < head + 8 || size > sizeof(packet))
		return false;
	packet[0] = v6 ? ICMP6_ECHO_REQUEST : ICMP_ECHO;
	packet[6] = (unsigned char)(++number >> 8);
	packet[7] = (unsigned char)number;
	if (raw) {
		packet[4] = (unsigned char)(getpid() >> 8);
		packet[5] = (unsigned char)getpid();
	}
	if (raw && !v6)
		checksum(packet, size - head);
	if (send(fd, packet, size - head, 0) < 0)
		return false;
	while (poll(&p, 1, (int)(until - child_now())) > 0) {
		ssize_t n = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);

		if (n == (ssize_t)(size - head + skip) &&
		    answer[skip] == (v6 ? ICMP6_ECHO_REPLY : ICMP_ECHOREPLY) &&
		    memcmp(answer + skip + 6, packet + 6, 2) == 0)
			return true;
		if (n < 0 || child_now() >= until)
			break;
	}
	return false;
}

/* The largest packet that arrives, among usual sizes below our MTU. */
static void peer_mtu(json_t *o, const struct sockaddr *to)
{
	static const unsigned sizes[] = { 9000, 8192, 4200, 2048, 1500, 1450, 1400, 1280, 1200,
		576 };
	unsigned own = (unsigned)json_integer_value(json_object_get(o, "mtu"));
	bool v6 = to->sa_family == AF_INET6;
	int fd = socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC,
			v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
	int probe = IP_PMTUDISC_PROBE, room = 1 << 20;
	unsigned least = v6 ? 1280 : 576;
	bool raw = fd < 0;

	if (raw)			/* root may, where a sysctl keeps users from it */
		fd = socket(to->sa_family, SOCK_RAW | SOCK_CLOEXEC,
			    v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
	if (fd < 0) {
		set_text(o, "mtu_error", "this user may not ping: sudo sysctl -w "
			 "net.ipv4.ping_group_range='0 2147483647'");
		return;
	}
	own = own > 65535 ? 65535 : own;
	setsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER,
		   &probe, sizeof(probe));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
	if (connect(fd, to, addr_len(to)) < 0 ||
	    (!echo(fd, v6, raw, 84) && !echo(fd, v6, raw, 84))) {
		set_text(o, "mtu_error", "the peer does not answer pings");
	} else if (echo(fd, v6, raw, own) || echo(fd, v6, raw, own)) {
		json_object_set_new(o, "path_mtu", json_integer(own));
	} else {
		for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			if (sizes[i] >= own || sizes[i] < least ||
			    (!echo(fd, v6, raw, sizes[i]) && sizes[i] > least))
				continue;
			json_object_set_new(o, "path_mtu", json_integer(sizes[i]));
			break;
		}
	}
	close(fd);
}

static json_t *peer(struct doctor *d)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
	char port[16], name[INET6_ADDRSTRLEN];
	json_t *o = json_object();
	int err;

	snprintf(port, sizeof(port), "%d", doctor_port(d) ? doctor_port(d) : EPHEMERAL);
	json_object_set_new(o, "port", json_integer(atoi(port)));
	err = getaddrinfo(doctor_host(d), port, &hints, &list);
	if (err) {
		set_text(o, "name_error", gai_strerror(err));
		return o;
	}
	getnameinfo(list->ai_addr, list->ai_addrlen, name, sizeof(name), NULL, 0, NI_NUMERICHOST);
	set_text(o, "address", name);
	peer_route(o, list->ai_addr);
	peer_connect(o, list->ai_addr);
	peer_mtu(o, list->ai_addr);
	freeaddrinfo(list);
	return o;
}

const struct probe probe_peer = { "peer", peer, 8000 };
