/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_vdevice.c - NCCL makes one device of several (makeVDevice, from v9 on).
 *
 * Two interfaces are needed: loopback, which has no PCI path, and another one that is up.
 */
#include "tests/abi/abi.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { MEMBERS = 2 };

static const int members[MEMBERS] = { 0, 1 };

static struct net *two_up(struct abi *t)
{
	struct net *net;
	int n = 0;

	setenv("BRAID_SOCKET_IFNAME", "lo,e", 1);	/* eth0, eno1, enp3s0, ... */
	setenv("BRAID_SOCKET_FAMILY", "AF_INET", 1);
	setenv("BRAID_LANES", "2", 1);
	setenv("BRAID_FUSE", "any", 0);
	net = abi_up(t);
	OK(net_devices(net, &n));
	if (n < MEMBERS)
		skip_because("only one interface is up");
	return net;
}

static void made(struct abi *t)
{
	struct net *net = two_up(t);
	struct braid_net_props one[MEMBERS], both;
	int before = 0, n = 0, dev = -1, again = -1;

	OK(net_devices(net, &before));
	for (int i = 0; i < MEMBERS; i++)
		OK(net_props(net, i, &one[i]));
	OK(net_fuse(net, MEMBERS, members, &dev));
	EQ(before, dev);			/* appended after the existing devices */
	OK(net_devices(net, &n));
	EQ(before + 1, n);
	OK(net_props(net, dev, &both));
	EQ(MEMBERS, both.ndevs);
	EQ(0, both.devs[0]);
	EQ(1, both.devs[1]);
	EQ(one[0].speed_mbps + one[1].speed_mbps, both.speed_mbps);
	TRUE(strstr(both.name, one[0].name) && strstr(both.name, one[1].name));
	OK(net_fuse(net, MEMBERS, members, &again));
	EQ(dev, again);
	OK(net_devices(net, &n));
	EQ(before + 1, n);
	abi_down(net);
}

static void refused(struct abi *t)
{
	struct net *net = two_up(t);
	const int same[] = { 0, 0 }, none[] = { 0, 99 }, negative[] = { -1, 0 };
	int dev = -1, nested[2] = { 0 };

	RES(ncclInvalidUsage, net_fuse(net, 2, same, &dev));
	RES(ncclInvalidUsage, net_fuse(net, 2, none, &dev));
	RES(ncclInvalidUsage, net_fuse(net, 2, negative, &dev));
	OK(net_fuse(net, MEMBERS, members, &nested[1]));
	RES(ncclInvalidUsage, net_fuse(net, 2, nested, &dev));
	abi_down(net);
}

/* A fused NIC without a PCI path must be refused: NCCL would find no path to it from any GPU. */
static void pathless(struct abi *t)
{
	const int alone[] = { 0 };
	struct braid_net_props p;
	struct net *net;
	int before, n, dev = -1;

	setenv("BRAID_FUSE", "pci", 1);
	net = two_up(t);
	OK(net_devices(net, &before));
	OK(net_props(net, 0, &p));
	EQ(NULL, p.pci_path);
	RES(ncclInvalidUsage, net_fuse(net, MEMBERS, members, &dev));
	EQ(-1, dev);
	OK(net_devices(net, &n));
	EQ(before, n);
	OK(net_fuse(net, 1, alone, &dev));
	EQ(0, dev);
	abi_down(net);
}

/* The plugin must log the reason: NCCL only reports that its variable is not valid. */
static void pathless_forced(struct abi *t)
{
	struct net *net;

	setenv("NCCL_NET_FORCE_MERGE", "no0,no1;lo,e", 1);
	warns_expected();
	net = two_up(t);
	TRUE(strstr(net_last_warn(), "NCCL_NET_FORCE_MERGE names lo, which has no PCI path"));
	TRUE(strstr(net_last_warn(), "[merge-without-path]"));
	abi_down(net);
}

static void other(struct abi *t, int fd)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	struct net *net = two_up(t);
	void *listen, *recv = NULL;
	int dev;

	OK(net_fuse(net, MEMBERS, members, &dev));
	OK(net_listen(net, dev, handle, &listen));
	give(fd, handle, sizeof(handle));
	WAIT_FOR(accept_step(net, listen, &recv));
	OK(net_close_listen(net, listen));
	for (unsigned i = 0; i < 20; i++)
		recv_one(net, recv, i * 100000, i);
	OK(net_close_recv(net, recv));
	meet(fd);
	abi_down(net);
}

static unsigned local_addresses;

static bool has_address(int fd)
{
	struct sockaddr_in in = { 0 };
	socklen_t len = sizeof(in);

	if (!getsockname(fd, (struct sockaddr *)&in, &len) &&
	    in.sin_addr.s_addr == htonl(INADDR_LOOPBACK))
		local_addresses |= 1;
	else
		local_addresses |= 2;
	return true;
}

/* Both members carry lanes. */
static void carries(struct abi *t)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct peer peer = peer_start(t, other);
	struct net *net = two_up(t);
	void *send = NULL;
	int dev;

	OK(net_fuse(net, MEMBERS, members, &dev));
	take(peer.fd, handle, sizeof(handle));
	for (uint64_t end = deadline_ms(drive_hang_ms); !send;
	     wait_tick(end, __FILE__, __LINE__, "connect"))
		OK(net_connect(net, dev, handle, &send));
	for (unsigned i = 0; i < 20; i++)
		send_one(net, send, i * 100000, i);
	WAIT_FOR(count_streams(has_address) >= 2 && local_addresses == 3);
	OK(net_close_send(net, send));
	meet(peer.fd);
	abi_down(net);
	peer_join(&peer);
}

#define SINCE .since = 9

static const struct abi_case cases[] = {
	CASE("two devices are fused into one, once", made, SINCE, .every = true),
	CASE("devices that can't be fused are refused", refused, SINCE),
	CASE("a member without a PCI path is refused", pathless, SINCE),
	CASE("NCCL_NET_FORCE_MERGE with a member without PCI path is reported at once",
	     pathless_forced, SINCE),
	CASE("a device made of two carries data over both", carries, SINCE),
};

ABI_MAIN(cases)
