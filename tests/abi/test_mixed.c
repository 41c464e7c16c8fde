/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_mixed.c - the two ends of a connection may use different ABI versions.
 *
 * A cluster in the middle of an upgrade runs two releases of NCCL.  What is on the wire depends on
 * Braid's release, never on NCCL's.
 */
#include "tests/abi/abi.h"

#include <string.h>

static int other_abi;			/* the ABI version of the second process */

static const size_t sizes[] = { 0, 100, 70000, 300000 };

enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), GROUP = 3 };

static void group_send(struct net *net, void *send)
{
	struct buf b = buf_new(net, send, GROUP * 1000, 0);
	struct op ops[GROUP];

	for (int i = 0; i < GROUP; i++) {
		ops[i] = op_send(net, send, &b, 1000, GROUP - 1 - i);
		ops[i].data[0] = b.data + (GROUP - 1 - i) * 1000;
	}
	fill(b.data, b.size, 7);
	ops_run(ops, GROUP);
	buf_free(net, &b);
}

static void group_recv(struct net *net, void *recv)
{
	struct buf b = buf_new(net, recv, GROUP * 1000, 0);
	struct op op = op_group(net, recv);

	for (int i = 0; i < GROUP; i++) {
		op_add(&op, &b, 1000, i);
		op.data[i] = b.data + i * 1000;
	}
	ops_run(&op, 1);
	filled(b.data, b.size, 7);
	buf_free(net, &b);
}

static void second(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);

	for (unsigned i = 0; i < SIZES; i++) {
		send_one(net, send, sizes[i], i);
		recv_one(net, recv, sizes[i], i);
	}
	group_send(net, send);
	group_recv(net, recv);
	meet(fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static void first(struct abi *t, int fd)
{
	struct abi theirs = *t;
	struct peer peer;
	struct net *net;
	void *recv, *send;

	(void)fd;
	theirs.abi = other_abi;
	peer = peer_start(&theirs, second);
	net = abi_up(t);
	recv = recv_from(net, peer.fd);
	send = send_to(net, peer.fd);
	for (unsigned i = 0; i < SIZES; i++) {
		recv_one(net, recv, sizes[i], i);
		send_one(net, send, sizes[i], i);
	}
	group_recv(net, recv);
	group_send(net, send);
	meet(peer.fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	peer_join(&peer);
	abi_down(net);
}

/* This ABI version with every version at the other end. */
static void every_other(struct abi *t)
{
	for (other_abi = NET_ABI_OLDEST; other_abi <= NET_ABI_NEWEST; other_abi++) {
		struct peer p = peer_start(t, first);

		peer_join(&p);
	}
}

static const struct abi_case cases[] = {
	CASE("talks to every other version", every_other),
};

ABI_MAIN(cases)
