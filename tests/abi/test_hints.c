/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_hints.c - calls that move no data: properties, the traffic class, the profiler.
 */
#include "tests/abi/abi.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* -- properties ------------------------------------------------------------------------------ */

static void properties(struct abi *t)
{
	struct net *net = abi_up(t);
	int ndev = 0;

	TRUE(!strcmp(net->name, "Braid"));
	OK(net_devices(net, &ndev));
	for (int i = 0; i < ndev; i++) {
		struct braid_net_props p, other;
		size_t tib = (size_t)1 << 40;

		memset(&p, 0xff, sizeof(p));
		OK(net_props(net, i, &p));
		TRUE(p.name && *p.name);
		TRUE(!p.pci_path || p.pci_path[0] == '/');
		TRUE(p.ptr_support & NCCL_PTR_HOST);
		TRUE(!(p.ptr_support & ~(NCCL_PTR_HOST | NCCL_PTR_CUDA | NCCL_PTR_DMABUF)));
		TRUE(p.speed_mbps >= 1000);
		TRUE(p.latency_us >= 0);
		TRUE(p.max_comms > 0);
		EQ(RECVS_MAX, p.max_recvs);
		EQ(0, p.reg_is_global);
		TRUE(p.max_p2p_bytes > 0 && p.max_p2p_bytes <= tib);
		TRUE(p.max_coll_bytes > 0 && p.max_coll_bytes <= tib);
		EQ(1, p.ndevs);
		EQ(i, p.devs[0]);
		EQ(1, p.max_multi_request);
		TRUE(p.rail >= -1 && p.plane >= -1);
		if (t->abi < 6)
			TRUE(!(p.ptr_support & NCCL_PTR_DMABUF));
		for (int k = 0; k < i; k++) {
			OK(net_props(net, k, &other));
			TRUE(strcmp(p.name, other.name));
		}
		OK(net_props(net, i, &other));
		TRUE(p.name == other.name);	/* the same string, not a new copy */
	}
	abi_down(net);
}

static void no_such_device(struct abi *t)
{
	struct net *net = abi_up(t);
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	struct braid_net_props p;
	void *comm = NULL;
	int ndev;

	warns_expected();
	OK(net_devices(net, &ndev));
	TRUE(net_props(net, -1, &p) != ncclSuccess);
	TRUE(net_props(net, ndev, &p) != ncclSuccess);
	TRUE(net_listen(net, ndev, handle, &comm) != ncclSuccess);
	TRUE(net_connect(net, -1, handle, &comm) != ncclSuccess);
	TRUE(!comm);
	abi_down(net);
}

/* regMr() must refuse memory of types that getProperties() did not offer: NCCL has no fallback. */
static void memory_not_offered(struct abi *t)
{
	struct net *net = abi_up(t);
	struct braid_net_props p;
	struct pair pair;
	char data[64];
	void *mr = NULL;

	OK(net_props(net, 0, &p));
	if (p.ptr_support & NCCL_PTR_CUDA)
		skip_because("this device takes GPU memory");
	warns_expected();
	pair_open(net, &pair);
	TRUE(net_reg(net, pair.send, data, sizeof(data), NCCL_PTR_CUDA, &mr) != ncclSuccess);
	exchange(net, pair.send, pair.recv, 100, 1);
	pair_close(net, &pair);
	abi_down(net);
}

static void no_such_congestion(struct abi *t)
{
	struct pair p;
	struct net *net;

	if (over_rdma())
		skip_because("there the kernel's congestion control is for the handshake alone");
	setenv("BRAID_CONGESTION", "nosuch", 1);
	net = abi_up(t);
	warns_expected();
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 100, 1);
	pair_close(net, &p);
	abi_down(net);
}

static void attributes(struct abi *t)
{
	struct net *net = abi_up(t);
	const ncclNet_v11_t *table = net->table;
	ncclNetAttr_v11_t attr = { .op = 1, .algo = 2, .proto = 4 };

	if (table->setNetAttr)
		OK(table->setNetAttr(net->ctx, &attr));
	abi_down(net);
}

/* -- traffic class --------------------------------------------------------------------------- */

enum { TRAFFIC_CLASS = 26 << 2 };	/* the whole byte, as NCCL means it: DSCP 26 (AF31) */

static bool is_marked(int fd)
{
	int v4 = 0, v6 = 0;
	socklen_t len = sizeof(int);

	getsockopt(fd, IPPROTO_IP, IP_TOS, &v4, &len);
	len = sizeof(int);
	getsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &v6, &len);
	return ((v4 | v6) & 0xfc) == TRAFFIC_CLASS;
}

static bool is_any(int fd)
{
	(void)fd;
	return true;
}

/* All sockets that carry data have the class: at least two, since both ends are in this process. */
static void marked(struct abi *t, int traffic_class, unsigned least)
{
	struct net *net = abi_up_with(t, traffic_class, NULL);
	struct pair p;

	if (over_rdma())
		skip_because("a NIC is told the class, not a socket of which we could ask");
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1 << 20, 1);
	TRUE(count_streams(is_any) >= 2);
	if (least)
		TRUE(count_streams(is_marked) >= least);
	else
		EQ(0, count_streams(is_marked));
	pair_close(net, &p);
	abi_down(net);
}

static void class_marks(struct abi *t)
{
	marked(t, TRAFFIC_CLASS, 2);
}

static void class_undefined(struct abi *t)
{
	marked(t, -1, 0);
}

static void dscp_marks(struct abi *t)
{
	setenv("BRAID_DSCP", "26", 1);
	marked(t, -1, 2);
}

static void dscp_wins(struct abi *t)
{
	setenv("BRAID_DSCP", "0", 1);
	marked(t, TRAFFIC_CLASS, 0);
}

/* -- profiler --------------------------------------------------------------------------------- */

enum { EVENTS = 256 };

static struct {
	atomic_uint starts, stops, wrong;
	char parents[EVENTS];		/* their addresses are the phandles */
	atomic_uint started[EVENTS], stopped[EVENTS];
} prof;

static ncclResult_t profiler(void **event, int type, void *parent, int64_t plugin_id, void *data)
{
	ptrdiff_t i = (char *)parent - prof.parents;

	(void)plugin_id;
	(void)data;
	if (type == NCCL_PROFILER_START) {
		if (i < 0 || i >= EVENTS) {
			prof.wrong++;
			return ncclSuccess;
		}
		prof.starts++;
		prof.started[i]++;
		*event = &prof.started[i];
	}
	if (type == NCCL_PROFILER_STOP || type == NCCL_PROFILER_UPDATE_STOP) {
		i = (atomic_uint *)*event - prof.started;
		if (i < 0 || i >= EVENTS) {
			prof.wrong++;
			return ncclSuccess;
		}
		prof.stops++;
		prof.stopped[i]++;
	}
	return ncclSuccess;
}

static void profiled(struct abi *t)
{
	struct net *net = abi_up_with(t, -1, profiler);
	struct pair p;
	struct buf from, to;

	pair_open(net, &p);
	from = buf_new(net, p.send, 200000, 0);
	to = buf_new(net, p.recv, 200000, 0);
	for (unsigned i = 0; i < EVENTS; i += 4) {
		size_t size = i % 3 ? 100 : 100000;
		struct op ops[] = {
			op_recv(net, p.recv, &to, size, 0),
			op_send(net, p.send, &from, size, 0),
			op_send(net, p.send, &from, size, 1),
		};

		op_add(&ops[0], &to, size, 1);
		ops[0].data[1] = to.data + 100000;
		ops[0].phandle[0] = &prof.parents[i];
		ops[0].phandle[1] = &prof.parents[i + 1];
		ops[1].phandle[0] = &prof.parents[i + 2];
		ops[2].phandle[0] = &prof.parents[i + 3];
		ops_run(ops, 3);
	}
	EQ(0, prof.wrong);
	EQ(EVENTS, prof.starts);
	EQ(EVENTS, prof.stops);
	for (unsigned i = 0; i < EVENTS; i++) {
		EQ(1, prof.started[i]);
		EQ(1, prof.stopped[i]);
	}
	exchange(net, p.send, p.recv, 1000, 1);	/* without a phandle no event is reported */
	EQ(EVENTS, prof.starts);
	EQ(0, prof.wrong);
	buf_free(net, &from);
	buf_free(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("properties are complete, sane and lasting", properties, .every = true),
	CASE("a device that is not there is an error", no_such_device, .every = true, .warns = "bad-call"),
	CASE("memory of a kind not offered is refused", memory_not_offered, .every = true),
	CASE("a congestion control that the kernel lacks is named, and costs nothing",
	     no_such_congestion, ONCE, .warns = "no-congestion-control"),
	CASE("attributes are taken", attributes, .since = 11, .every = true),
	CASE("NCCL's traffic class marks every packet", class_marks, .since = 10, .every = true),
	CASE("without a traffic class nothing is marked", class_undefined),
	CASE("BRAID_DSCP marks every packet", dscp_marks),
	CASE("BRAID_DSCP 0 wins over NCCL's traffic class", dscp_wins, .since = 10),
	CASE("the profiler gets start and stop of each message, with its phandle", profiled,
	     .since = 10, .every = true),
};

ABI_MAIN(cases)
