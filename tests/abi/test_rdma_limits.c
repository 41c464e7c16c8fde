/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rdma_limits.c - a NIC that has too little of something, and receives that lanes share. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* cpu_set_t */
#endif
#include "tests/abi/rdma.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* -- limits -------------------------------------------------------------------------------- */

static void limit(struct abi *t, const char *kind, const char *more, const char *warn, const char *id)
{
	struct net *net;
	struct pair p;

	nic(kind, more);
	warns_expected();
	net = heard_up(t);
	pair_open(net, &p);
	for (unsigned i = 0; i < 8; i++)
		exchange(net, p.send, p.recv, sizes[i], i);
	pair_close(net, &p);
	abi_down(net);
	objects_gone();
	must_say(warn);
	must_say(id);
}

static void few_qps(struct abi *t, const char *kind)
{
	limit(t, kind, ",max_qp=1", "1 queue pair", "[rdma-limit]");
}

static void few_cqs(struct abi *t, const char *kind)
{
	limit(t, kind, ",max_cq=1", "1 completion queue", "[lesser-transport]");
}

static void few_cqes(struct abi *t, const char *kind)
{
	limit(t, kind, ",max_cqe=64", "64", "");
}

static void few_mrs(struct abi *t, const char *kind)
{
	limit(t, kind, ",max_mr=2", "2 registrations", "[rdma-limit]");
}

static void few_wrs(struct abi *t, const char *kind)
{
	limit(t, kind, ",max_wr=32", "32", "");
}

static void memlock(struct abi *t, const char *kind)
{
	limit(t, kind, ",memlock=65536", "ulimit -l unlimited", "[memlock-small]");
}

/* The limit suffices for a lane's own memory, not for the messages, which are copied. */
static void memlock_messages(struct abi *t, const char *kind)
{
	setenv("BRAID_LANES", "1", 1);
	limit(t, kind, ",memlock=2000000", "are copied", "[memlock-small]");
	TRUE(nic_sends() > 100);
}

/* -- receives that lanes share ------------------------------------------------------------- */

enum { LINKS = 16, PORT_MRS = 4 + 8, BURST = 40, BURST_SIZE = 5000 };	/* each takes one receive */

/* Each link's sender has BURST messages under way before any receive is posted. */
static void burst(struct net *net, struct pair *p, uint64_t seed)
{
	static struct op send[LINKS][BURST];
	static struct buf buf[LINKS][BURST];
	uint64_t end = deadline_ms(60000);

	for (unsigned i = 0; i < LINKS * BURST; i++) {
		unsigned link = i % LINKS, k = i / LINKS;

		buf[link][k] = buf_new(net, p[link].send, BURST_SIZE, 0);
		fill(buf[link][k].data, BURST_SIZE, seed + i);
		send[link][k] = op_send(net, p[link].send, &buf[link][k], BURST_SIZE, 0);
		while (!op_post(&send[link][k]))
			wait_tick(end, __FILE__, __LINE__, "a send to be taken");
	}
	for (unsigned i = 0; i < LINKS * BURST; i++) {
		struct buf to = buf_new(net, p[i % LINKS].recv, BURST_SIZE, 0);
		struct op op = op_recv(net, p[i % LINKS].recv, &to, BURST_SIZE, 0);

		ops_run(&op, 1);
		EQ(BURST_SIZE, op.got[0]);
		filled(op.data[0], BURST_SIZE, seed + i);
		buf_free(net, &to);
	}
	for (unsigned i = 0; i < LINKS * BURST; i++) {
		ops_run(&send[i % LINKS][i / LINKS], 1);
		buf_free(net, &buf[i % LINKS][i / LINKS]);
	}
}

/* 32 lanes share 256 receives, and each may use 56 at a time. */
static void shared(struct abi *t)
{
	struct pair p[LINKS];
	struct net *net;
	cpu_set_t cpus;

	/* On one CPU a whole burst is sent before any of it is received. */
	TRUE(!sched_getaffinity(0, sizeof(cpus), &cpus));
	for (unsigned i = 0; CPU_COUNT(&cpus) > 1; i++)
		CPU_CLR(i, &cpus);
	TRUE(!sched_setaffinity(0, sizeof(cpus), &cpus));
	nic("rocev2", ",max_wr=256");
	setenv("BRAID_SHARE", "0", 1);
	setenv("BRAID_LANES", "1", 1);
	net = abi_up(t);
	for (unsigned i = 0; i < LINKS; i++)
		pair_open(net, &p[i]);
	EQ(2 * LINKS, ctl("live qp"));
	EQ(1, ctl("live srq"));
	/* The port's: receives, memory to copy into.  The lanes have the rest, each link as many. */
	WAIT_FOR((ctl("live mr") - PORT_MRS) % LINKS == 0);
	printf("%ld registrations for %d lanes\n", ctl("live mr"), 2 * LINKS);
	for (unsigned i = 0; i < 4; i++)
		burst(net, p, i * 1000);
	printf("%ld messages had to be sent again, for there was no receive\n", ctl("count rnr"));
	for (unsigned i = 0; i < LINKS; i++)
		pair_close(net, &p[i]);
	abi_down(net);
	objects_gone();
}

/* Messages without a shared receive queue: the device has none, or the user wants none. */
static void unshared(struct abi *t, const char *more, const char *wanted)
{
	struct net *net;
	struct pair p;

	nic("rocev2", more);
	setenv("BRAID_IB_SRQ", wanted, 1);
	net = abi_up(t);
	pair_open(net, &p);
	for (unsigned i = 0; i < 8; i++)
		exchange(net, p.send, p.recv, sizes[i], i);
	TRUE(ctl("live qp") > 0 && nic_sends() > 8);
	EQ(0, ctl("live srq"));
	pair_close(net, &p);
	abi_down(net);
	objects_gone();
}

static void has_no_srq(struct abi *t)
{
	unshared(t, ",srq=0", "1");
}

static void few_srqs(struct abi *t)
{
	unshared(t, ",max_srq=0", "1");
}

static void wants_no_srq(struct abi *t)
{
	unshared(t, "", "0");
}

EACH_KIND(few_qps)
EACH_KIND(few_cqs)
EACH_KIND(few_cqes)
EACH_KIND(few_mrs)
EACH_KIND(few_wrs)
EACH_KIND(memlock)
EACH_KIND(memlock_messages)

static const struct abi_case cases[] = {
	BOTH("too few queue pairs", few_qps),
	BOTH("too few completion queues", few_cqs),
	BOTH("completion queues too short", few_cqes),
	BOTH("too few registrations", few_mrs),
	BOTH("too few work requests", few_wrs),
	BOTH("memlock too small for a lane", memlock),
	BOTH("memlock too small for messages", memlock_messages),
	CASE("RoCE: receives are shared, and there may be too few", shared, LONG),
	CASE("RoCE: a device has no shared receive queue", has_no_srq, LONG),
	CASE("RoCE: all shared receive queues are taken", few_srqs, LONG),
	CASE("RoCE: each lane has its own receives if that is wanted", wants_no_srq, LONG),
};

RDMA_MAIN(cases)
