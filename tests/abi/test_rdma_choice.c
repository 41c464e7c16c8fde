/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rdma_choice.c - what the user chooses: GIDs, rails, traffic class, relaxed ordering. */
#include "tests/abi/rdma.h"

#include <stdlib.h>

/* NCCL gets the rails that the user names; for two ports made one, what both have in common. */
static void rails(struct abi *t)
{
	static const int members[] = { 0, 1 };
	struct braid_net_props p;
	struct net *net;
	int dev;

	nic("ib", ";nic1:ib;nic2:ib");
	setenv("NCCL_IB_HCA", "=nic0:1:3:0,nic1:1:3:1,nic2:1", 1);
	setenv("BRAID_FUSE", "any", 1);
	net = abi_up(t);
	OK(net_props(net, 0, &p));
	EQ(3, p.rail);
	EQ(0, p.plane);
	OK(net_props(net, 1, &p));
	EQ(3, p.rail);
	EQ(1, p.plane);
	OK(net_props(net, 2, &p));
	EQ(-1, p.rail);
	EQ(-1, p.plane);
	OK(net_fuse(net, 2, members, &dev));
	OK(net_props(net, dev, &p));
	EQ(3, p.rail);
	EQ(-1, p.plane);
	abi_down(net);
}

/* The NIC's address moves to another GID entry, then is gone: new lanes use an existing entry. */
static void gid_moves(struct abi *t)
{
	struct peer p;
	struct job *j;

	nic(nic_kinds[0], "");
	j = rdma_start(t, &p);
	job_play(j, 100);
	for (unsigned i = 0; i < 2; i++) {
		ctl(i ? "gid nic0 9 none" : "gid nic0 9 127.0.0.1");
		ctl("gid nic0 3 none");
		stall_ends(j, "a GID changes");
		ctl("port nic0 down");
		stall_ends(j, "a port goes down");
		ctl("port nic0 up");
		rdma_returns(j, "with another GID");
	}
	rdma_finish(j, &p);
}

/* A port's own GID setting wins over the common one; with a missing entry TCP carries messages. */
static void gid_wanted(struct abi *t, const char *port, const char *all, bool is_there)
{
	struct net *net;
	struct pair p;

	nic(nic_kinds[0], "");
	setenv("BRAID_IB_GID", port, 1);
	setenv("BRAID_IB_GID_INDEX", all, 1);
	if (!is_there)
		warns_expected();
	net = abi_up(t);
	pair_open(net, &p);
	for (unsigned i = 0; i < 8; i++)
		exchange(net, p.send, p.recv, sizes[i], i);
	EQ(is_there, nic_sends() > 8);
	pair_close(net, &p);
	abi_down(net);
	objects_gone();
}

static void gid_of_port(struct abi *t)
{
	gid_wanted(t, "nic0=3", "200", true);
}

static void gid_of_all(struct abi *t)
{
	gid_wanted(t, "nic1=200,nic0:2=200", "3", true);
}

static void gid_missing(struct abi *t)
{
	gid_wanted(t, "nic0:1=200", "3", false);
}

static void marked(struct abi *t, int traffic_class, long tos)
{
	struct net *net;
	struct pair p;

	net = abi_up_with(t, traffic_class, NULL);
	pair_open(net, &p);
	exchange(net, p.send, p.recv, MOST, 1);
	TRUE(nic_sends() > 0);
	EQ(tos, ctl("tos"));
	pair_close(net, &p);
	abi_down(net);
	objects_gone();
}

static void marked_by_nccl(struct abi *t)
{
	nic(nic_kinds[1], "");
	marked(t, 104, 104);
}

static void marked_by_dscp(struct abi *t)
{
	nic(nic_kinds[1], "");
	setenv("BRAID_DSCP", "46", 1);
	marked(t, 104, 46 << 2);
}

static void marked_by_nobody(struct abi *t)
{
	nic(nic_kinds[1], "");
	marked(t, NCCL_NET_TRAFFIC_CLASS_UNDEF, 0);
	ctl("fail 1 rdma_set_option on");
	marked(t, 104, 0);
}

/* Buffers that NCCL registers have relaxed ordering, Braid's own never. */
static void relaxed_as(struct abi *t, const char *wanted, long ret)
{
	struct net *net;
	struct pair p;
	struct buf b;

	nic(nic_kinds[0], "");
	setenv("BRAID_IB_PCI_RELAXED_ORDERING", wanted, 1);
	net = abi_up(t);
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 8, 0);
	TRUE(ctl("live mr") > 0);
	EQ(0, ctl("live relaxed"));
	b = buf_new(net, p.recv, MOST, 0);
	EQ(ret, ctl("live relaxed"));
	buf_free(net, &b);
	EQ(0, ctl("live relaxed"));
	pair_close(net, &p);
	abi_down(net);
	objects_gone();
}

static void relaxed(struct abi *t)
{
	relaxed_as(t, "2", 1);
}

static void strict(struct abi *t)
{
	relaxed_as(t, "0", 0);
}

static const struct abi_case cases[] = {
	CASE("rails and planes of BRAID_IB_HCA are those that NCCL gets", rails, .since = 12),
	CASE("RoCE: writes into NCCL's buffers may overtake each other, no others", relaxed, LONG),
	CASE("RoCE: no writes may overtake each other if the user wants that", strict, LONG),
	CASE("iWARP: packets have NCCL's traffic class", marked_by_nccl, LONG),
	CASE("iWARP: BRAID_DSCP wins over NCCL's traffic class", marked_by_dscp, LONG),
	CASE("iWARP: without BRAID_DSCP and class, or if they can't be set, nothing is marked",
	     marked_by_nobody, LONG),
	CASE("RoCE: BRAID_IB_GID chooses for one port", gid_of_port, LONG),
	CASE("RoCE: BRAID_IB_GID leaves other ports to BRAID_IB_GID_INDEX", gid_of_all, LONG),
	CASE("RoCE: a GID index that does not exist makes the port use TCP", gid_missing, LONG),
	CASE("RoCE: a GID that changes is followed", gid_moves, LONG),
};

RDMA_MAIN(cases)
