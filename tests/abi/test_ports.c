/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_ports.c - unusual RDMA ports: many of them, without some feature, addressed in other ways, or
 * changing while they are used.
 *
 * Each case describes a fake NIC (tests/fake/ctl.h), checks what the plugin logs about it, and sends
 * messages to itself or to another process, with every byte checked.
 */
#include "tests/abi/nics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MESSAGES = 40, BACK_MS = 20000, PAUSE_MS = 2000 };

static void one_lane(const char *text)
{
	fake_nics(text);
	setenv("BRAID_LANES", "1", 1);
}

/* -- messages ----------------------------------------------------------------------------- */

static size_t size_of(unsigned i)
{
	return sizes[i % 8];
}

/* Do messages of this process to itself arrive whole, and by the NIC?  The plugin stays up. */
static bool by_rdma(struct net *net)
{
	long before = ctl("count sends");
	struct pair p;

	pair_open(net, &p);
	for (unsigned i = 0; i < MESSAGES; i++)
		exchange(net, p.send, p.recv, size_of(i), i);
	pair_close(net, &p);
	return ctl("count sends") - before > MESSAGES / 2;
}

static void over(struct abi *t, const char *text, bool rdma)
{
	struct net *net;

	one_lane(text);
	net = heard_up(t);
	EQ(rdma, by_rdma(net));
	abi_down(net);
}

/* -- how many ----------------------------------------------------------------------------- */

/* NICs in switchdev mode have a port for each virtual function; one of them has addresses. */
static void many_ports(struct abi *t)
{
	uint64_t from = now_us();
	struct net *net;
	int ndev = 0;

	one_lane("nic0:rocev2,netdev=lo,ports=255,addressed=1");
	net = heard_up(t);
	printf("init took %llu ms\n", (unsigned long long)(now_us() - from) / 1000);
	OK(net_devices(net, &ndev));
	EQ(1, ndev);
	must_say("device 0: nic0:1 ");
	must_say("nic0:2-255 has no GID");
	TRUE(by_rdma(net));
	abi_down(net);
}

/* -- two ends that differ ----------------------------------------------------------------- */

static const char *far_nics;		/* NICs of the far process; NULL in the near one */

/* Sends messages each way; returns whether the NICs carried them. */
static bool talks(struct abi *t, int fd, struct net **ret)
{
	struct net *net = heard_up(t);
	void *a, *b;
	long before = ctl("count sends");

	if (far_nics) {
		a = recv_from(net, fd);
		b = send_to(net, fd);
	} else {
		b = send_to(net, fd);
		a = recv_from(net, fd);
	}
	for (unsigned i = 0; i < MESSAGES; i++) {
		if (far_nics) {
			send_one(net, b, size_of(i), i);
			recv_one(net, a, size_of(i), i);
		} else {
			recv_one(net, a, size_of(i), i);
			send_one(net, b, size_of(i), i);
		}
	}
	meet(fd);
	OK(net_close_send(net, b));
	OK(net_close_recv(net, a));
	*ret = net;
	return ctl("count sends") - before > MESSAGES;
}

static void far_end(struct abi *t, int fd)
{
	struct net *net;
	long dlid, ece;

	setenv("BRAID_TEST_FAKE_DEVICES", far_nics, 1);
	far_nics = NULL;
	talks(t, fd, &net);
	dlid = ctl("dlid");
	ece = ctl("ece");
	give(fd, &dlid, sizeof(dlid));
	give(fd, &ece, sizeof(ece));
	abi_down(net);
}

struct agreed {				/* what two ends use, this one first */
	bool rdma;
	long dlid[2], ece[2];
};

static struct agreed between(struct abi *t, const char *near, const char *far)
{
	struct agreed ret;
	struct net *net;
	struct peer p;

	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	one_lane(near);
	far_nics = far;
	p = peer_start(t, far_end);
	ret.rdma = talks(t, p.fd, &net);
	ret.dlid[0] = ctl("dlid");
	ret.ece[0] = ctl("ece");
	take(p.fd, &ret.dlid[1], sizeof(ret.dlid[1]));
	take(p.fd, &ret.ece[1], sizeof(ret.ece[1]));
	abi_down(net);
	peer_join(&p);
	return ret;
}

/* A router finds the other subnet by the FLID in the GID. */
static void by_flid(struct abi *t)
{
	struct agreed a = between(t, "nic0:ib,subnet=1,flid=101", "nic1:ib,subnet=2,flid=202");

	TRUE(a.rdma);
	EQ(202, a.dlid[0]);
	EQ(101, a.dlid[1]);
}

static void by_router(struct abi *t)
{
	struct agreed a;

	setenv("BRAID_IB_ROUTER_LID", "77", 1);
	a = between(t, "nic0:ib,subnet=1,router=77", "nic1:ib,subnet=2,router=77");
	TRUE(a.rdma);
	EQ(77, a.dlid[0]);
	EQ(77, a.dlid[1]);
}

static void no_router(struct abi *t)
{
	warns_expected();
	TRUE(!between(t, "nic0:ib,subnet=1", "nic1:ib,subnet=2").rdma);
	must_say("in another InfiniBand subnet and has no FLID");
}

/* FLIDs are for other subnets. */
static void one_subnet(struct abi *t)
{
	struct agreed a = between(t, "nic0:ib,lid=11,subnet=1,flid=101",
				  "nic1:ib,lid=12,subnet=1,flid=101");

	TRUE(a.rdma);
	EQ(12, a.dlid[0]);
	EQ(11, a.dlid[1]);
}

/* One of the two ports demands a GRH: both send it. */
static void one_grh(struct abi *t)
{
	TRUE(between(t, "nic0:ib,grh=1", "nic1:ib").rdma);
}

static void options(struct abi *t)
{
	struct agreed a = between(t, "nic0:ib,ece=7", "nic1:ib,ece=5");

	TRUE(a.rdma);
	EQ(5, a.ece[0]);
	EQ(5, a.ece[1]);
}

static void options_of_one(struct abi *t)
{
	struct agreed a = between(t, "nic0:ib,ece=7", "nic1:ib");

	TRUE(a.rdma);
	EQ(0, a.ece[0]);
	EQ(0, a.ece[1]);
}

static void options_off(struct abi *t)
{
	struct agreed a;

	setenv("NCCL_IB_ECE_ENABLE", "0", 1);
	a = between(t, "nic0:ib,ece=7", "nic1:ib,ece=7");
	TRUE(a.rdma);
	EQ(0, a.ece[0]);
	EQ(0, a.ece[1]);
}

/* -- what changes ------------------------------------------------------------------------- */

static bool carried(struct net *net, struct pair *p)
{
	long before = ctl("count sends");

	for (unsigned i = 0; i < 8; i++)
		exchange(net, p->send, p->recv, size_of(i), i);
	return ctl("count sends") - before > 8;
}

/* Runs the command `what`: RDMA is used again later, and no message is lost meanwhile. */
static uint64_t comes_back(struct abi *t, const char *text, const char *what, const char *then)
{
	uint64_t from, end;
	struct net *net;
	struct pair p;

	one_lane(text);
	warns_expected();
	net = heard_up(t);
	pair_open(net, &p);
	TRUE(carried(net, &p));
	ctl(what);
	if (then) {
		ctl("port nic0 down");
		for (unsigned i = 0; i < 8; i++)
			exchange(net, p.send, p.recv, size_of(i), i);
		ctl("port nic0 up");
	}
	from = now_us();
	end = deadline_ms(BACK_MS);
	while (!was_said(then ? then : "is lost") || !carried(net, &p))
		wait_tick(end, __FILE__, __LINE__, "RDMA to be used again");
	from = (now_us() - from) / 1000;
	pair_close(net, &p);
	abi_down(net);
	return from;
}

static void lid_changes(struct abi *t)
{
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	comes_back(t, "nic0:ib,lid=5", "lid nic0 99", NULL);
	EQ(99, ctl("dlid"));
	must_say("port nic0:1: LID 99, MTU 4096 from now on");
}

static void mtu_changes(struct abi *t)
{
	comes_back(t, "nic0:rocev2,netdev=lo", "mtu nic0 1024", "MTU 1024 from now on");
}

static void queue_breaks(struct abi *t)
{
	comes_back(t, "nic0:rocev2,netdev=lo", "cq error", NULL);
	must_say("is lost (Input/output error)");
}

/* The network drops everything for a while, during which messages are outstanding. */
static void pause_of(struct abi *t, unsigned ms)
{
	struct net *net;
	struct buf a, b;
	struct op ops[2];
	struct pair p;
	uint64_t until;

	one_lane("nic0:rocev2,netdev=lo");
	warns_expected();
	net = heard_up(t);
	pair_open(net, &p);
	TRUE(carried(net, &p));
	a = buf_new(net, p.send, MOST, 0);
	b = buf_new(net, p.recv, MOST, 0);
	fill(a.data, MOST, 5);
	ops[0] = op_send(net, p.send, &a, MOST, 0);
	ops[1] = op_recv(net, p.recv, &b, MOST, 0);
	ctl("drop nic0 1");
	for (until = now_us() + ms * 1000; now_us() < until; nap_ms(1))
		ops_step(ops, 2);
	ctl("drop nic0 0");
	ops_run(ops, 2);
	filled(b.data, MOST, 5);
	buf_free(net, &a);
	buf_free(net, &b);
	pair_close(net, &p);
	abi_down(net);
}

static void pause_survived(struct abi *t)
{
	pause_of(t, PAUSE_MS);
	must_not_say("is lost");
}

static void pause_too_long(struct abi *t)
{
	setenv("NCCL_IB_TIMEOUT", "13", 1);	/* a timeout of 34 ms, and seven retries */
	pause_of(t, PAUSE_MS);
	must_say("is lost");
}

/* -- how fast, how much ------------------------------------------------------------------- */

static void speed(struct abi *t, const char *text, const char *want)
{
	struct net *net;

	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	one_lane(text);
	net = heard_up(t);
	must_say(want);
	abi_down(net);
}

static void speed_xdr(struct abi *t)
{
	speed(t, "nic0:ib,speed=800", ", 800000 Mbit/s, verbs");
}

static void speed_ndr(struct abi *t)
{
	speed(t, "nic0:ib,speed=400", ", 400000 Mbit/s, verbs");
}

static void speed_of_bond(struct abi *t)
{
	speed(t, "nic0:rocev2,netdev=lo,speed=200,effective=400", ", 400000 Mbit/s, verbs");
}

static void few_requests(struct abi *t)
{
	over(t, "nic0:rocev2,netdev=lo,max_wr=64,max_cqe=128", true);
}

static void short_messages(struct abi *t)
{
	over(t, "nic0:rocev2,netdev=lo,max_msg=262144", true);
	must_not_say("is lost");
}

static void very_short_messages(struct abi *t)
{
	over(t, "nic0:rocev2,netdev=lo,max_msg=16384", true);
	must_not_say("is lost");
}

static void too_short_messages(struct abi *t)
{
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	over(t, "nic0:rocev2,netdev=lo,max_msg=4096", false);
	must_say("takes messages of at most 4096 bytes");
}

static void vectors(struct abi *t)
{
	struct net *net;

	one_lane("nic0:rocev2,netdev=lo");
	setenv("BRAID_LANES", "4", 1);
	net = heard_up(t);
	TRUE(by_rdma(net));
	EQ(4, ctl("vectors"));
	abi_down(net);
}

/*
 * How many writes had immediate data: for networks that spread packets, writes are plain ones, each
 * announced by a message.
 */
static long immediate(struct abi *t, const char *text, const char *routing)
{
	struct net *net;
	struct pair p;
	long before;

	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	setenv("NCCL_IB_ADAPTIVE_ROUTING", routing, 1);
	one_lane(text);
	net = heard_up(t);
	pair_open(net, &p);
	before = ctl("count imms");
	for (unsigned i = 0; i < MESSAGES; i++)
		exchange(net, p.send, p.recv, MOST, i);
	before = ctl("count imms") - before;
	printf("%ld of %d writes or more with immediate data\n", before, MESSAGES);
	pair_close(net, &p);
	abi_down(net);
	return before;
}

static void spread(struct abi *t)
{
	EQ(0, immediate(t, "nic0:rocev2,netdev=lo", "1"));
}

static void not_spread(struct abi *t)
{
	TRUE(immediate(t, "nic0:ib", "0") >= MESSAGES);
}

/* -- memory ------------------------------------------------------------------------------- */

/* Memory that can't be registered is copied; no peer gets a key that does not let it write. */
static void no_memory(struct abi *t)
{
	struct net *net;
	struct pair p;

	one_lane("nic0:rocev2,netdev=lo");
	warns_expected();
	net = heard_up(t);
	pair_open(net, &p);
	ctl("fail 1 ibv_reg_mr_iova2 EIO on");
	for (unsigned i = 0; i < MESSAGES; i++)
		exchange(net, p.send, p.recv, MOST, i);
	TRUE(carried(net, &p));
	must_say("Input/output error; messages there are copied [not-pinned]");
	must_not_say("is lost");
	pair_close(net, &p);
	abi_down(net);
}

/* Messages can be sent from memory that can't be written. */
static void read_only(struct abi *t)
{
	uint8_t *data = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct buf from = { .data = data, .size = MOST }, to;
	struct net *net;
	struct op ops[2];
	struct pair p;

	TRUE(data != MAP_FAILED);
	fill(data, MOST, 7);
	TRUE(!mprotect(data, MOST, PROT_READ));
	one_lane("nic0:rocev2,netdev=lo");
	net = heard_up(t);
	pair_open(net, &p);
	OK(net_reg(net, p.send, data, MOST, NCCL_PTR_HOST, &from.mr));
	to = buf_new(net, p.recv, MOST, 0);
	ops[0] = op_send(net, p.send, &from, MOST, 0);
	ops[1] = op_recv(net, p.recv, &to, MOST, 0);
	ops_run(ops, 2);
	filled(to.data, MOST, 7);
	must_not_say("not-pinned");
	OK(net_dereg(net, p.send, from.mr));
	buf_free(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

/* -- features that a port lacks ----------------------------------------------------------- */

static void no_rc(struct abi *t)
{
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	over(t, "efa0:efa;nic0:rocev2,netdev=lo", true);
	must_say("efa0 has no RC queue pairs");
	must_not_say("subnet manager");
}

static void no_handles(struct abi *t)
{
	over(t, "nic0:rocev2,netdev=lo,ah=0", true);
	must_not_say("immediate data");
}

/* The message names the call that failed, not a consequence. */
static void no_loop(struct abi *t)
{
	setenv("BRAID_TEST_FAKE_CTL", "fail 1 ibv_create_ah ETIMEDOUT", 1);
	over(t, "nic0:rocev2,netdev=lo", true);
	must_say("nic0:1 can't be connected to itself (ibv_create_ah: Connection timed out)");
	must_not_say("immediate data");
}

static void no_pkey(struct abi *t)
{
	warns_expected();
	setenv("BRAID_IB_PKEY", "3", 1);
	over(t, "nic0:rocev2,netdev=lo", false);
	must_say("partition key index 3 is not in the port's table, or empty (1 entries); "
		 "BRAID_IB_PKEY or NCCL_IB_PKEY asks for it [no-pkey]");
	must_not_say("immediate data");
}

/* A NIC that has immediate data, but can't say how long a write was. */
static void no_length(struct abi *t)
{
	over(t, "nic0:rocev2,netdev=lo,imm=2", true);
	must_say("nic0:1 shows no immediate data");
}

/* -- whose addresses ---------------------------------------------------------------------- */

/* The NIC's interface is in another network namespace, and has the index of this one's lo. */
static void foreign_index(struct abi *t)
{
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	over(t, "nic0:rocev2,addr=198.51.100.7,ifindex=1", false);
	must_say("nic0:1 has no GID of an interface that is used");
}

/* The NIC's interface is in another network namespace, and has lo's addresses but another name. */
static void foreign_name(struct abi *t)
{
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	over(t, "nic0:rocev2,netdev=lo,path=0000:01:00.0,ndev=eth7", false);
	must_say("nic0:1 has no GID of an interface that is used");
}

static void own_name(struct abi *t)
{
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	over(t, "nic0:rocev2,netdev=lo,path=0000:01:00.0,ndev=lo", true);
}

/* The GID table has our address and a foreign one of equal rank: ours is used. */
static void foreign_beside_own(struct abi *t)
{
	setenv("BRAID_SOCKET_IFNAME", "lo", 1);
	setenv("BRAID_TEST_FAKE_CTL", "gid nic0 3 none;gid nic0 2 none;gid nic0 9 198.51.100.7", 1);
	over(t, "nic0:rocev2,netdev=lo", true);
	must_not_say("GID 9");
}

static const struct abi_case cases[] = {
	CASE("IB: a peer in another subnet is reached by its FLID", by_flid, ONCE),
	CASE("IB: a peer in another subnet is reached by the router that is named",
	     by_router, ONCE),
	CASE("IB: without FLID or router, TCP is used and the log says why", no_router, ONCE),
	CASE("IB: within a subnet LIDs are used, even if FLID and router are there",
	     one_subnet, ONCE),
	CASE("IB: a port that demands a GRH gets it", one_grh, ONCE),
	CASE("IB: the options that both ends have are used", options, ONCE),
	CASE("IB: no options are used if one end has none", options_of_one, ONCE),
	CASE("IB: no options are used if the user wants none", options_off, ONCE),
	CASE("IB: a LID that changes is followed", lid_changes, ONCE),
	CASE("RoCE: an MTU that changes is followed", mtu_changes, ONCE),
	CASE("RoCE: a completion queue that breaks is replaced", queue_breaks, ONCE),
	CASE("RoCE: a pause of two seconds costs no lane", pause_survived, ONCE),
	CASE("RoCE: NCCL_IB_TIMEOUT decides how long a pause may be", pause_too_long, ONCE),
	CASE("IB: XDR is known", speed_xdr, ONCE),
	CASE("IB: NDR is known", speed_ndr, ONCE),
	CASE("RoCE: of a bond the speed is that of both ports", speed_of_bond, ONCE),
	CASE("RoCE: a lane has as many requests as the device takes", few_requests, ONCE),
	CASE("RoCE: large writes are cut for a device that takes short ones", short_messages, ONCE),
	CASE("RoCE: large messages are sent if they would need too many writes",
	     very_short_messages, ONCE),
	CASE("RoCE: a device whose messages are too short is not used", too_short_messages, ONCE),
	CASE("RoCE: completion queues take turns with the vectors", vectors, ONCE),
	CASE("RoCE: adaptive routing can be asked for", spread, ONCE),
	CASE("IB: adaptive routing can be switched off", not_spread, ONCE),
	CASE("RoCE: memory that can't be registered is copied", no_memory, ONCE),
	CASE("RoCE: memory that can't be written is sent from", read_only, ONCE),
	CASE("a device without RC queue pairs is named as such", no_rc, ONCE),
	CASE("RoCE: a driver without address handles is used", no_handles, ONCE),
	CASE("RoCE: a port that can't reach itself says why", no_loop, ONCE),
	CASE("RoCE: a partition key that is not there is named", no_pkey, ONCE),
	CASE("RoCE: immediate data without a length is none", no_length, ONCE),
	CASE("RoCE: an address of another network namespace is not ours", foreign_index, ONCE),
	CASE("RoCE: an interface of another name is not ours", foreign_name, ONCE),
	CASE("RoCE: an interface of our name is ours", own_name, ONCE),
	CASE("RoCE: addresses of others are passed over", foreign_beside_own, ONCE),
	CASE("RoCE: of 255 ports the one with addresses is used", many_ports, ONCE, .seconds = 60),
};

int main(void)
{
	int failed;

	fakes_load();
	failed = abi_main(__FILE__, cases, sizeof(cases) / sizeof(cases[0]));
	fakes_forget();
	return failed;
}
