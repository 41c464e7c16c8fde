/* SPDX-License-Identifier: BSD-3-Clause */
/* test_port_range.c - BRAID_PORT_RANGE: the ports that a firewall lets through, and no others. */
#include "tests/abi/abi.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PORTS = 24, FDS = 1024 };

static char range[32];
static unsigned first, last;

static void set_range(unsigned n)
{
	last = first + n - 1;
	snprintf(range, sizeof(range), "%u-%u", first, last);
	setenv("BRAID_PORT_RANGE", range, 1);
}

static unsigned port_of(int fd)
{
	union {
		struct sockaddr sa;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} at = { .sa.sa_family = AF_UNSPEC };
	socklen_t len = sizeof(at);

	if (getsockname(fd, &at.sa, &len))
		return 0;
	return at.sa.sa_family == AF_INET ? ntohs(at.in.sin_port) :
	       at.sa.sa_family == AF_INET6 ? ntohs(at.in6.sin6_port) : 0;
}

/* How many of this process's sockets have a port, all of them in the range. */
static unsigned sockets(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < FDS; fd++) {
		unsigned port = port_of(fd);

		if (!port)
			continue;
		if (port < first || port > last)
			FAIL("descriptor %d has port %u, which is not in %s", fd, port, range);
		n++;
	}
	return n;
}

static void says(const char *id, const char *word)
{
	warned_with(id);
	if (!strstr(net_last_warn(), word))
		FAIL("\"%s\" is not in: %s", word, net_last_warn());
}

/* A range of one port, which a socket of our own has at all addresses of both IP versions. */
static int taken_range(void)
{
	struct sockaddr_in6 at6 = { .sin6_family = AF_INET6 };
	struct sockaddr_in at = { .sin_family = AF_INET };
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&at6, sizeof(at6)) || listen(fd, 1)) {
		close(fd);		/* a host without IPv6 */
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		TRUE(fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof(at)) && !listen(fd, 1));
	}
	first = port_of(fd);
	set_range(1);
	return fd;
}

/* -- in the range ------------------------------------------------------------------------- */

static void far_end(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *recv = recv_from(net, fd);

	recv_one(net, recv, 1 << 20, 1);
	TRUE(sockets() >= 2);
	meet(fd);
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static void all_in_range(struct abi *t)
{
	struct peer peer;
	struct net *net;
	void *send;

	first = 10000 + (unsigned)getpid() % 20000;	/* outside of the kernel's own range */
	set_range(PORTS);
	setenv("BRAID_LANES", "4", 1);
	peer = peer_start(t, far_end);
	net = abi_up(t);
	send = send_to(net, peer.fd);
	send_one(net, send, 1 << 20, 1);
	TRUE(sockets() >= 1);
	meet(peer.fd);
	OK(net_close_send(net, send));
	peer_join(&peer);
	abi_down(net);
}

/* -- no port is free ---------------------------------------------------------------------- */

static void no_port_to_listen(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	void *listen = NULL;
	struct net *net;
	int fd;

	fd = taken_range();
	net = abi_up(t);
	warns_expected();
	TRUE(net_listen(net, the_device(), handle, &listen) != ncclSuccess && !listen);
	says("port-range", range);
	close(fd);
	OK(net_listen(net, the_device(), handle, &listen));	/* it is free again */
	TRUE(sockets() >= 1);
	OK(net_close_listen(net, listen));
	abi_down(net);
}

static void listens(struct abi *t, int fd)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	struct net *net = abi_up(t);
	void *listen;

	OK(net_listen(net, the_device(), handle, &listen));
	give(fd, handle, sizeof(handle));
	meet(fd);
	OK(net_close_listen(net, listen));
	abi_down(net);
}

static void no_port_to_dial(struct abi *t)
{
	struct peer peer = peer_start(t, listens);
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	void *send = NULL;
	struct net *net;
	ncclResult_t res;
	int fd;

	setenv("BRAID_CONNECT_TIMEOUT", "1", 1);
	fd = taken_range();
	net = abi_up(t);
	warns_expected();
	take(peer.fd, handle, sizeof(handle));
	do {
		res = net_connect(net, the_device(), handle, &send);
		nap_ms(1);
	} while (res == ncclSuccess && !send);
	TRUE(res != ncclSuccess);
	says("port-range", range);
	meet(peer.fd);
	peer_join(&peer);
	abi_down(net);
	close(fd);
}

static const struct abi_case cases[] = {
	CASE("all ports that Braid uses are in the range", all_in_range, ONCE),
	CASE("a range without a free port to listen on is named", no_port_to_listen, ONCE,
	     .warns = "port-range"),
	CASE("a range without a free port to dial from is named", no_port_to_dial, ONCE,
	     .warns = "port-range"),
};

ABI_MAIN(cases)
