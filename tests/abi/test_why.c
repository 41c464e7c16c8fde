/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_why.c - what a warning says is what happened: a peer that never answers, one that is stopped,
 * memory that nobody offered to take.  Causes that need two hosts are in tests/net/why.sh.
 */
#include "tests/abi/abi.h"

#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
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

/* -- lanes ----------------------------------------------------------------------------------- */

enum { LANES = 4 };

static atomic_uint opened[LANES];		/* the count in a lane's first line "is back" */

__attribute__((format(printf, 5, 6)))
static void opened_log(int level, unsigned long flags, const char *file, int line, const char *fmt,
		       ...)
{
	char text[1024];
	const char *at;
	unsigned lane, times;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	at = strstr(text, ": lane ");
	if (at && sscanf(at, ": lane %u is back (opened %u times)", &lane, &times) == 2 &&
	    lane < LANES && !opened[lane])
		opened[lane] = times;
	abi_log(level, flags, file, line, "%s", text);
}

static struct net *lanes_up(struct abi *t)
{
	struct net *net;
	char err[512];

	net = net_load(t->plugin, t->abi, err, sizeof(err));
	if (!net)
		FAIL("%s", err);
	OK(net_init(net, rnd(t), NCCL_NET_TRAFFIC_CLASS_UNDEF, opened_log, NULL));
	return net;
}

static bool any(int fd)
{
	(void)fd;
	return true;
}

static bool shut(int fd)
{
	return !shutdown(fd, SHUT_RDWR);
}

static bool all_are_back(void)
{
	for (unsigned i = 0; i < LANES; i++) {
		if (!opened[i])
			return false;
	}
	return true;
}

/* All lanes are lost once; `shuts`: it is this end that has done it. */
static void lose_once(struct net *net, void *comm, bool is_recv, int fd, bool shuts)
{
	if (is_recv)
		recv_one(net, comm, 1 << 20, 1);
	else
		send_one(net, comm, 1 << 20, 1);
	WAIT_FOR(count_streams(any) >= LANES);
	meet(fd);
	if (shuts)
		TRUE(count_streams(shut) >= LANES);
	WAIT_FOR(all_are_back());
	for (unsigned i = 0; i < LANES; i++)
		EQ(2, opened[i]);
	meet(fd);
	if (is_recv)
		recv_one(net, comm, 1000, 2);
	else
		send_one(net, comm, 1000, 2);
}

static void loses_peer(struct abi *t, int fd)
{
	struct net *net = lanes_up(t);
	void *recv = recv_from(net, fd);

	lose_once(net, recv, true, fd, false);
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static void lanes_are_counted(struct abi *t)
{
	struct peer peer;
	struct net *net;
	void *send;

	setenv("BRAID_LANES", "4", 1);
	peer = peer_start(t, loses_peer);
	net = lanes_up(t);
	send = send_to(net, peer.fd);
	lose_once(net, send, false, peer.fd, true);
	OK(net_close_send(net, send));
	peer_join(&peer);
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
	CASE("a lane that is lost once is back, opened twice, at both ends", lanes_are_counted,
	     ONCE),
	CASE("memory of a GPU that nobody offered to take names the topology file", gpu_memory),
};

ABI_MAIN(cases)
