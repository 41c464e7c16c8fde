/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_why.c - what a warning says is what happened: a peer that never answers, one that is stopped,
 * memory that nobody offered to take.  Causes that need two hosts are in tests/net/why.sh.
 */
#include "tests/abi/abi.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void says(const char *id, const char *word, const char *not)
{
	warned_with(id);
	if (!strstr(net_last_warn(), word))
		FAIL("\"%s\" is not in: %s", word, net_last_warn());
	if (not && strstr(net_last_warn(), not))
		FAIL("\"%s\" is in: %s", not, net_last_warn());
}

/* -- before the first contact ---------------------------------------------------------------- */

static void listens_and_stops(struct abi *t, int fd)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	struct net *net = abi_up(t);
	void *listen;

	OK(net_listen(net, the_device(), handle, &listen));
	give(fd, handle, sizeof(handle));
	raise(SIGSTOP);
}

/* Its kernel takes connections; `handshake` is how often they are made anew. */
static void never_answers(struct abi *t, const char *handshake)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct peer peer;
	struct net *net;
	void *send = NULL;
	ncclResult_t res;

	setenv("BRAID_CONNECT_TIMEOUT", "3", 1);
	setenv("BRAID_HANDSHAKE_TIMEOUT", handshake, 1);
	peer = peer_start(t, listens_and_stops);
	net = abi_up(t);
	warns_expected();
	take(peer.fd, handle, sizeof(handle));
	peer_stopped(&peer);
	do {
		res = net_connect(net, the_device(), handle, &send);
		nap_ms(1);
	} while (res == ncclSuccess && !send);
	RES(ncclRemoteError, res);
	says("no-answer", "takes the connection", "firewall");
	peer_kill(&peer);
	abi_down(net);
}

static void stopped_before(struct abi *t)
{
	never_answers(t, "5");
}

static void stopped_before_often(struct abi *t)
{
	never_answers(t, "1");
}

/* -- later ----------------------------------------------------------------------------------- */

static void stops(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *recv = recv_from(net, fd);

	recv_one(net, recv, 1000, 1);
	raise(SIGSTOP);
}

static void stopped_later(struct abi *t)
{
	struct peer peer;
	struct net *net;
	struct buf b;
	struct op op;
	void *send;

	setenv("BRAID_PEER_TIMEOUT", "5", 1);
	peer = peer_start(t, stops);
	net = abi_up(t);
	warns_expected();
	send = send_to(net, peer.fd);
	send_one(net, send, 1000, 1);
	peer_stopped(&peer);
	b = buf_new(net, send, 1 << 20, 0);
	op = op_send(net, send, &b, b.size, 0);
	ops_post(&op, 1);
	while (!net_warn_count()) {
		op_test(&op);
		nap_ms(1);
	}
	says("peer-silent", "is stopped, by SIGSTOP or a debugger (pid ", "the process does not run");
	ops_settle(&op, 1);
	RES(ncclRemoteError, op.res);
	says("peer-lost", "in state T", NULL);
	buf_free(net, &b);
	OK(net_close_send(net, send));
	peer_kill(&peer);
	abi_down(net);
}

/* -- memory ----------------------------------------------------------------------------------- */

/* As where a topology file has gdr="1" at a NIC that offers host memory alone. */
static void gpu_memory(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;
	char data[64];
	void *mr;

	warns_expected();
	pair_open(net, &p);
	RES(ncclInternalError, net_reg(net, p.send, data, sizeof(data), NCCL_PTR_CUDA, &mr));
	says("gpu-memory-not-offered", "NCCL_TOPO_FILE", "type 2");
	RES(ncclInternalError, net_reg(net, p.send, data, sizeof(data), 99, &mr));
	says("bad-memory-type", "type 99", NULL);
	pair_close(net, &p);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("a peer that is stopped before it answers is no firewall", stopped_before, ONCE),
	CASE("nor is it when it is asked again and again", stopped_before_often, ONCE),
	CASE("a peer on this host that is stopped is told so", stopped_later, ONCE),
	CASE("memory of a GPU that nobody offered to take names the topology file", gpu_memory),
};

ABI_MAIN(cases)
