/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_loss.c - connections are lost under load, but no message.
 *
 * One of two processes shuts some of its own sockets, or all, at moments that follow from the
 * seed, while both send messages of all sizes to each other and check every byte.
 */
#include "tests/abi/loss.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum { ROUNDS = 400 };

static const size_t sizes[] = { 8, 0, 5000, 65536, 8193, 300001, 64, 1 << 20 };

static struct loss loss = { .sizes = sizes, .rounds = ROUNDS };	/* at both ends */

static void other(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);

	both_ways(t, net, send, recv, &loss);
	meet(fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
}

/* Lets the process open new descriptors, or not; those that are open stay open. */
static void descriptors(bool more)
{
	struct rlimit lim;

	TRUE(!getrlimit(RLIMIT_NOFILE, &lim));
	lim.rlim_cur = more ? lim.rlim_max : 3;
	TRUE(!setrlimit(RLIMIT_NOFILE, &lim));
}

static void stuck_other(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);

	warns_expected();
	meet(fd);
	descriptors(false);
	both_ways(t, net, send, recv, &loss);
	meet(fd);
	descriptors(true);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static bool any_stream(int fd)
{
	(void)fd;
	return true;
}

/* All lanes but one close for good, home among them: the job goes on over the last. */
static void all_but_one(struct abi *t)
{
	struct peer peer;
	struct net *net;
	void *send, *recv;

	if (getenv("BRAID_TEST_UCX"))
		skip_because("UCX does not do without descriptors: docs/user/ucx.md");
	streams_are_ours();
	setenv("BRAID_LANES", "4", 1);
	peer = peer_start(t, stuck_other);
	net = abi_up(t);
	recv = recv_from(net, peer.fd);
	send = send_to(net, peer.fd);
	warns_expected();
	WAIT_FOR(count_streams(any_stream) == 4);
	nap_ms(50);
	meet(peer.fd);
	descriptors(false);
	loss.one_in = 1;
	loss.most = 3;
	both_ways(t, net, send, recv, &loss);
	EQ(3, loss.shut);
	meet(peer.fd);
	descriptors(true);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	peer_join(&peer);
}

static void lose(struct abi *t, const char *lanes, unsigned one_in)
{
	struct peer peer;
	struct net *net;
	void *send, *recv;

	streams_are_ours();
	setenv("BRAID_LANES", lanes, 1);
	peer = peer_start(t, other);
	net = abi_up(t);
	recv = recv_from(net, peer.fd);
	send = send_to(net, peer.fd);
	loss.one_in = one_in;
	both_ways(t, net, send, recv, &loss);
	printf("v%d: %u sockets of %s lanes were shut while %d messages went each way\n", t->abi,
	       loss.shut, lanes, ROUNDS * LOSS_DEPTH);
	TRUE(loss.shut > 5);
	meet(peer.fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	peer_join(&peer);
}

static void only_lane(struct abi *t)
{
	lose(t, "1", 1);
}

static void some_lanes(struct abi *t)
{
	lose(t, "4", 3);
}

static void all_lanes(struct abi *t)
{
	lose(t, "4", 1);
}

static const struct abi_case cases[] = {
	CASE("the only lane is lost again and again, and nothing else", only_lane, ONCE),
	CASE("some of four lanes are lost, and nothing else", some_lanes, ONCE),
	CASE("all of four lanes are lost, and nothing else", all_lanes, ONCE),
	CASE("three of four are lost for good, home among them, and nothing else", all_but_one, ONCE),
};

ABI_MAIN(cases)
