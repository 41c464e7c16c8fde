/* SPDX-License-Identifier: BSD-3-Clause */
/* tcp.c - see tcp.h: addresses and sockets of plain TCP. */
#include "tools/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

socklen_t tcp_addr_len(const union tcp_addr *a)
{
	return a->sa.sa_family == AF_INET6 ? sizeof(a->in6) : sizeof(a->in);
}

int tcp_tune(int fd)
{
	int one = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0 ||
	    fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
		return -errno;
	return 0;
}

static bool is_any6(const union tcp_addr *a)
{
	return a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr);
}

int tcp_listen(union tcp_addr *a)
{
	socklen_t len = sizeof(*a);
	int fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int one = 1, none = 0, err;

	if (fd < 0 && errno == EAFNOSUPPORT && is_any6(a)) {	/* a kernel without IPv6 */
		a->in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = a->in6.sin6_port };
		return tcp_listen(a);
	}
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
	    (is_any6(a) && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &none, sizeof(none)) != 0) ||
	    bind(fd, &a->sa, tcp_addr_len(a)) != 0 || listen(fd, 128) != 0 ||
	    getsockname(fd, &a->sa, &len) != 0) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

static int dial_wait(int fd, int timeout_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	socklen_t len = sizeof(int);
	int err = 0, n;

	n = poll(&p, 1, timeout_ms);
	if (n <= 0)
		return n < 0 ? -errno : -ETIMEDOUT;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
		return -errno;
	return -err;
}

int tcp_dial(const union tcp_addr *a, int timeout_ms)
{
	int fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err;

	if (fd < 0)
		return -errno;
	err = connect(fd, &a->sa, tcp_addr_len(a)) == 0 ? 0 : -errno;
	if (err == -EINPROGRESS)
		err = dial_wait(fd, timeout_ms);
	if (!err)
		err = tcp_tune(fd);
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

void tcp_addr_text(const union tcp_addr *a, char *room, size_t n)
{
	room[0] = 0;
	if (a->sa.sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr)) {
		inet_ntop(AF_INET, &a->in6.sin6_addr.s6_addr[12], room, (socklen_t)n);
		return;
	}
	if (a->sa.sa_family == AF_INET)
		inet_ntop(AF_INET, &a->in.sin_addr, room, (socklen_t)n);
	else
		inet_ntop(AF_INET6, &a->in6.sin6_addr, room, (socklen_t)n);
}

void tcp_addr_local(int fd, char *room, size_t n)
{
	union tcp_addr a;
	socklen_t len = sizeof(a);

	room[0] = 0;
	if (getsockname(fd, &a.sa, &len) == 0)
		tcp_addr_text(&a, room, n);
}

int tcp_addr_of_if(const char *ifname, union tcp_addr *ret)
{
	struct ifaddrs *all, *i;
	int err = -ENODEV;

	if (getifaddrs(&all) != 0)
		return -errno;
	for (i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr || strcmp(i->ifa_name, ifname) != 0)
			continue;
		if (i->ifa_addr->sa_family == AF_INET) {
			memcpy(&ret->in, i->ifa_addr, sizeof(ret->in));
			err = 0;
			break;
		}
		if (i->ifa_addr->sa_family == AF_INET6 && err) {
			memcpy(&ret->in6, i->ifa_addr, sizeof(ret->in6));
			err = 0;
		}
	}
	freeifaddrs(all);
	return err;
}

/* Cut "[V6]:PORT" or "HOST:PORT" or "PORT" in two, in place. */
static char *port_cut(char *text, char **ret_host)
{
	char *colon = strrchr(text, ':');
	char *end;

	*ret_host = NULL;
	if (!colon)
		return text;
	*colon = 0;
	*ret_host = text;
	if (*text == '[' && (end = strchr(text, ']')) != NULL && end[1] == 0) {
		*end = 0;
		*ret_host = text + 1;
	}
	return colon + 1;
}

int tcp_addr_parse(const char *text, bool host_needed, union tcp_addr *ret, char *err, size_t n)
{
	struct addrinfo hint = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
	struct addrinfo *found;
	char room[300], *host, *port, *end;
	long p;
	int rc;

	if (snprintf(room, sizeof(room), "%s", text) >= (int)sizeof(room))
		room[0] = 0;
	port = port_cut(room, &host);
	p = strtol(port, &end, 10);
	if (*port == 0 || *end || p < 0 || p > 65535 ||
	    (host_needed && (!host || !*host || p == 0))) {
		snprintf(err, n, "'%.100s' is not %s:PORT with a port from %d to 65535", text,
			 host_needed ? "HOST" : "[ADDR]", host_needed ? 1 : 0);
		return -EINVAL;
	}
	rc = getaddrinfo(host && *host ? host : "::", port, &hint, &found);
	if (rc != 0) {
		snprintf(err, n, "%s: %s", host, gai_strerror(rc));
		return -EHOSTUNREACH;
	}
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return 0;
}
