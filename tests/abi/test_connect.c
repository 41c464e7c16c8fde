/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_connect.c - listen, connect and accept, in any order in which NCCL may call them.
 *
 * NCCL's service thread calls each pending connect and accept once a round; the two ends are not
 * in step, and some calls never come: a shared comm's listener is closed unaccepted, an aborted
 * job drops everything half-way.  Handles come from the network, so the plugin must not trust them.
 */
#include "tests/abi/abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { HANDLE_BITS = NCCL_NET_HANDLE_MAXSIZE * 8 };

static void connect_first(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;

	pair_listen(net, &p);
	WAIT_FOR(connect_step(net, p.handle, &p.send));
	nap_ms(20);
	WAIT_FOR(accept_step(net, p.listen, &p.recv));
	exchange(net, p.send, p.recv, 1000, 1);
	pair_close(net, &p);
	abi_down(net);
}

static void accept_first(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;

	pair_listen(net, &p);
	for (int i = 0; i < 200; i++)
		TRUE(!accept_step(net, p.listen, &p.recv));
	WAIT_FOR(pair_step(net, &p));
	exchange(net, p.send, p.recv, 1000, 1);
	pair_close(net, &p);
	abi_down(net);
}

/* Several pairs at once; the next call, and how often it is made, are random. */
static void any_interleaving(struct abi *t)
{
	enum { PAIRS = 4 };
	struct net *net = abi_up(t);

	for (int round = 0; round < (t->newest ? 100 : 8); round++) {
		unsigned bias = 1 + rnd_below(t, 15);	/* of 16 calls, those to connect */
		struct pair p[PAIRS];
		uint64_t end = deadline_ms(drive_hang_ms);
		unsigned up = 0;

		for (int i = 0; i < PAIRS; i++)
			pair_listen(net, &p[i]);
		while (up < PAIRS) {
			struct pair *one = &p[rnd_below(t, PAIRS)];
			bool was_up = one->send && one->recv;

			if (rnd_below(t, 16) < bias)
				connect_step(net, one->handle, &one->send);
			else
				accept_step(net, one->listen, &one->recv);
			up += !was_up && one->send && one->recv;
			wait_tick(end, __FILE__, __LINE__, "all pairs");
		}
		for (unsigned i = 0; i < PAIRS; i++)
			exchange(net, p[i].send, p[i].recv, 1 + rnd_below(t, 100), i);
		for (int i = 0; i < PAIRS; i++)
			pair_close(net, &p[i]);
	}
	abi_down(net);
}

static bool any_stream(int fd)
{
	(void)fd;
	return true;
}

/* All comms of one side: n that send and n that receive. */
struct many {
	unsigned n;
	void *listen[64], *send[64], *recv[64];
	_Alignas(16) uint8_t handle[64][NCCL_NET_HANDLE_MAXSIZE];
};

static bool many_step(struct net *net, struct many *m, unsigned n)
{
	bool all = true;

	for (unsigned i = 0; i < n; i++) {
		all = connect_step(net, m->handle[i], &m->send[i]) && all;
		all = accept_step(net, m->listen[i], &m->recv[i]) && all;
	}
	return all;
}

/* Opens comms until there are n, all at the same time. */
static void many_open(struct net *net, struct many *m, unsigned n, int fd)
{
	for (unsigned i = m->n; i < n; i++) {
		_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };

		OK(net_listen(net, 0, handle, &m->listen[i]));
		give(fd, handle, sizeof(handle));
	}
	for (unsigned i = m->n; i < n; i++)
		take(fd, m->handle[i], sizeof(m->handle[i]));
	WAIT_FOR(many_step(net, m, n));
	for (unsigned i = m->n; i < n; i++)
		OK(net_close_listen(net, m->listen[i]));
	m->n = n;
}

static void many_data(struct net *net, struct many *m, struct abi *t)
{
	struct buf from[64], to[64];
	struct op ops[128];

	for (unsigned i = 0; i < m->n; i++) {
		size_t size = rnd_below(t, 1 << (1 + i % 17));

		from[i] = buf_new(net, m->send[i], size, i);
		to[i] = buf_new(net, m->recv[i], 1 << (1 + i % 17), i);
		fill(from[i].data, size, i);
		ops[2 * i] = op_recv(net, m->recv[i], &to[i], to[i].size, 7);
		ops[2 * i + 1] = op_send(net, m->send[i], &from[i], size, 7);
	}
	ops_run(ops, 2 * m->n);
	for (unsigned i = 0; i < m->n; i++) {
		filled(to[i].data, (size_t)ops[2 * i].got[0], i);
		buf_free(net, &from[i]);
		buf_free(net, &to[i]);
	}
}

static void many_side(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	struct many *m = calloc(1, sizeof(*m));
	unsigned before;

	TRUE(m);
	many_open(net, m, 1, fd);
	many_data(net, m, t);
	meet(fd);
	before = count_streams(any_stream);
	many_open(net, m, t->newest ? 64 : 8, fd);
	many_data(net, m, t);
	meet(fd);
	if (count_streams(any_stream) > before + 2)
		FAIL("%u TCP streams with one comm, %u with %u", before, count_streams(any_stream),
		     m->n);
	for (unsigned i = 0; i < m->n; i++) {
		OK(net_close_send(net, m->send[i]));
		OK(net_close_recv(net, m->recv[i]));
	}
	meet(fd);
	free(m);
	abi_down(net);
}

static void many_comms(struct abi *t)
{
	struct peer p;

	setenv("BRAID_LANES", "1", 1);
	p = peer_start(t, many_side);
	many_side(t, p.fd);
	peer_join(&p);
}

static void listener_unaccepted(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;

	for (int i = 0; i < 20; i++) {
		pair_listen(net, &p);
		OK(net_close_listen(net, p.listen));
	}
	abi_down(net);
}

/* Sends until the comm fails; returns the error.  The peer receives nothing. */
static ncclResult_t probe_error(struct net *net, void *send)
{
	struct buf b = buf_new(net, send, 100, 0);
	ncclResult_t res = ncclSuccess;
	uint64_t end = deadline_ms(drive_hang_ms);

	while (res == ncclSuccess) {
		struct op op = op_send(net, send, &b, 100, 0);

		op_post(&op);
		for (int i = 0; i < 100 && op.posted && !op.done; i++)
			op_test(&op);
		res = op.res;
		wait_tick(end, __FILE__, __LINE__, "an error of a comm nobody accepts");
	}
	buf_free(net, &b);
	return res;
}

static void listener_closed_under_connect(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;

	warns_expected();
	pair_listen(net, &p);
	WAIT_FOR(connect_step(net, p.handle, &p.send));
	OK(net_close_listen(net, p.listen));
	RES(ncclRemoteError, probe_error(net, p.send));
	OK(net_close_send(net, p.send));

	pair_open(net, &p);		/* other connections still work */
	exchange(net, p.send, p.recv, 1000, 1);
	pair_close(net, &p);
	abi_down(net);
}

/* A listener keeps at most MOST comms that were not accepted, and refuses the next. */
static void too_many_unaccepted(struct abi *t)
{
	enum { MOST = 1024 };
	static void *send[MOST + 1];
	_Alignas(16) uint8_t copy[NCCL_NET_HANDLE_MAXSIZE];
	struct net *net = abi_up(t);
	ncclResult_t res = ncclSuccess;
	uint64_t end = deadline_ms(drive_hang_ms);
	unsigned n = 0;
	struct pair p;

	warns_expected();
	pair_listen(net, &p);
	while (!res && n <= MOST) {
		memcpy(copy, p.handle, sizeof(copy));
		do {
			res = net_connect(net, 0, copy, &send[n]);
			wait_tick(end, __FILE__, __LINE__, "connect");
		} while (!res && !send[n]);
		n += !res;
	}
	RES(ncclRemoteError, res);
	EQ(MOST, n);
	for (unsigned i = 0; i < n; i++)
		OK(net_close_send(net, send[i]));
	OK(net_close_listen(net, p.listen));
	abi_down(net);
}

/* Calls connect() until it fails or returns a comm; *send is NULL unless it succeeds. */
static ncclResult_t connect_result(struct net *net, void *handle, void **send)
{
	uint64_t end = deadline_ms(2000);
	ncclResult_t res;

	*send = NULL;
	do {
		res = net_connect(net, 0, handle, send);
		if (res != ncclSuccess && *send)
			FAIL("connect said %s and left a comm", net_result_name(res));
		if (now_us() > end)
			FAIL("connect to a bad handle neither fails nor succeeds in 2 s");
	} while (res == ncclSuccess && !*send);
	return res;
}

static void listener_gone(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p, other;

	warns_expected();
	pair_open(net, &other);		/* keeps the port */
	pair_listen(net, &p);
	OK(net_close_listen(net, p.listen));
	RES(ncclRemoteError, connect_result(net, p.handle, &p.send));
	exchange(net, other.send, other.recv, 1000, 1);
	pair_close(net, &other);
	abi_down(net);
}

static void listener_closed_under_data(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;
	struct buf from, to;
	struct op ops[2];

	pair_listen(net, &p);
	WAIT_FOR(pair_step(net, &p));
	from = buf_new(net, p.send, 1 << 20, 0);
	to = buf_new(net, p.recv, 1 << 20, 0);
	fill(from.data, from.size, 5);
	ops[0] = op_recv(net, p.recv, &to, to.size, 0);
	ops[1] = op_send(net, p.send, &from, from.size, 0);
	ops_post(ops, 2);
	OK(net_close_listen(net, p.listen));
	p.listen = NULL;
	ops_run(ops, 2);
	filled(to.data, to.size, 5);
	buf_free(net, &from);
	buf_free(net, &to);
	exchange(net, p.send, p.recv, 3, 6);
	pair_close(net, &p);
	abi_down(net);
}

static void close_null(struct abi *t)
{
	struct net *net = abi_up(t);

	OK(net_close_send(net, NULL));
	OK(net_close_recv(net, NULL));
	OK(net_close_listen(net, NULL));
	abi_down(net);
	if (t->abi >= 11) {
		net = abi_up(t);
		OK(net_finalize_ctx(net, NULL));
		abi_down(net);
	}
}

/* Each copy of a handle holds the state of its own dial. */
static void two_copies(struct abi *t)
{
	struct net *net = abi_up(t);
	_Alignas(16) uint8_t copy[NCCL_NET_HANDLE_MAXSIZE];
	void *send[2] = { NULL, NULL }, *recv[2] = { NULL, NULL };
	bool crossed;
	struct buf from, to[2];
	struct op op, in[2];
	struct pair p;

	pair_listen(net, &p);
	memcpy(copy, p.handle, sizeof(copy));
	WAIT_FOR(connect_step(net, p.handle, &send[0]) && connect_step(net, copy, &send[1]));
	TRUE(send[0] != send[1]);
	WAIT_FOR(accept_step(net, p.listen, &recv[0]));
	WAIT_FOR(accept_step(net, p.listen, &recv[1]));
	TRUE(recv[0] != recv[1]);

	from = buf_new(net, send[0], 10, 0);
	fill(from.data, 10, 3);
	op = op_send(net, send[0], &from, 10, 0);
	for (int i = 0; i < 2; i++) {
		to[i] = buf_new(net, recv[i], 10, 0);
		in[i] = op_recv(net, recv[i], &to[i], 10, 0);
		ops_post(&in[i], 1);
	}
	ops_run(&op, 1);
	WAIT_FOR(op_test(&in[0]) || op_test(&in[1]));
	crossed = in[1].done;
	filled(to[crossed].data, 10, 3);
	TRUE(!op_test(&in[!crossed]));
	buf_free(net, &from);

	from = buf_new(net, send[1], 10, 0);
	fill(from.data, 10, 4);
	op = op_send(net, send[1], &from, 10, 0);
	ops_run(&op, 1);
	ops_run(&in[!crossed], 1);
	filled(to[!crossed].data, 10, 4);
	buf_free(net, &from);
	for (int i = 0; i < 2; i++) {
		buf_free(net, &to[i]);
		OK(net_close_send(net, send[i]));
		OK(net_close_recv(net, recv[i]));
	}
	OK(net_close_listen(net, p.listen));
	abi_down(net);
}

static void handle_random(struct abi *t)
{
	struct net *net = abi_up(t);
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	void *send;

	warns_expected();
	for (int i = 0; i < (t->newest ? 500 : 50); i++) {
		if (i < 2)
			memset(handle, i ? 0xff : 0, sizeof(handle));
		else
			fill(handle, sizeof(handle), rnd(t));
		if (connect_result(net, handle, &send) == ncclSuccess)
			FAIL("connected to random bytes");
	}
	abi_down(net);
}

static void handle_flips(struct abi *t)
{
	struct net *net = abi_up(t);
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	struct pair p;
	void *send;

	warns_expected();
	pair_listen(net, &p);
	for (unsigned bit = 0; bit < HANDLE_BITS; bit += t->newest ? 1 : 13) {
		memcpy(handle, p.handle, sizeof(handle));
		handle[bit / 8] ^= (uint8_t)(1u << bit % 8);
		if (connect_result(net, handle, &send) == ncclSuccess)
			FAIL("connected though bit %u of byte %u is flipped", bit % 8, bit / 8);
	}
	WAIT_FOR(pair_step(net, &p));	/* the listener still works */
	exchange(net, p.send, p.recv, 1000, 1);
	pair_close(net, &p);
	abi_down(net);
}

/* While it dials, connect() keeps its state in the handle.  A bit of it flips: no crash, no hang. */
static void handle_flips_midway(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;

	warns_expected();
	for (unsigned bit = 0; bit < HANDLE_BITS; bit += t->newest ? 7 : 61) {
		void *send = NULL;
		ncclResult_t res;

		pair_listen(net, &p);
		res = net_connect(net, 0, p.handle, &send);
		if (res == ncclSuccess && !send) {
			p.handle[bit / 8] ^= (uint8_t)(1u << bit % 8);
			res = connect_result(net, p.handle, &send);
		}
		if (res == ncclSuccess)
			OK(net_close_send(net, send));
		OK(net_close_listen(net, p.listen));
	}
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	pair_close(net, &p);
	abi_down(net);
}

static void left_half_way(struct abi *t)
{
	struct net *net = abi_up(t);
	unsigned fds, threads;

	OK(net_finalize(net));		/* now it has all that it never frees */
	fds = count_fds();
	threads = count_threads();
	OK(net_init(net, 1, -1, abi_log, NULL));
	warns_expected();		/* a dial may come after its listen was closed */
	for (int i = 0; i < 20; i++) {
		struct pair p;

		pair_listen(net, &p);
		for (int k = 0; k < i; k++)
			connect_step(net, p.handle, &p.send);
		for (int k = 0; k < i % 5; k++)
			accept_step(net, p.listen, &p.recv);
	}
	OK(net_finalize(net));
	WAIT_FOR(count_threads() <= threads);	/* the kernel lists a joined thread a little longer */
	WAIT_FOR(count_fds() <= fds);		/* fake NICs, which are threads, end a little later too */
	net_unload(net);
}

/* -- no descriptors --------------------------------------------------------------------------- */

static void descriptors(rlim_t n)
{
	struct rlimit limit;

	TRUE(!getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = n;
	TRUE(!setrlimit(RLIMIT_NOFILE, &limit));
}

static void accepts_one(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *recv = recv_from(net, fd);

	recv_one(net, recv, 1000, 1);
	meet(fd);
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static void short_of_descriptors(struct abi *t, bool too_long)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	ncclResult_t res = ncclSuccess;
	struct peer peer;
	struct net *net;
	void *send = NULL;

	setenv("BRAID_CONNECT_TIMEOUT", too_long ? "1" : "60", 1);
	peer = peer_start(t, accepts_one);
	net = abi_up(t);
	warns_expected();
	take(peer.fd, handle, sizeof(handle));
	descriptors(3);
	for (int i = 0; i < 300 * (too_long ? 10 : 1) && res == ncclSuccess; i++) {
		res = net_connect(net, the_device(), handle, &send);
		TRUE(!send);
		nap_ms(1);
	}
	RES(too_long ? ncclSystemError : ncclSuccess, res);
	EQ(too_long ? 2 : 1, net_warn_count());
	if (!strstr(net_last_warn(), "Too many open files") ||
	    !strstr(net_last_warn(), too_long ? "[no-start]" : "[no-descriptors]"))
		FAIL("this was warned: %s", net_last_warn());
	descriptors(1024);
	WAIT_FOR(connect_step(net, handle, &send));
	send_one(net, send, 1000, 1);
	meet(peer.fd);
	OK(net_close_send(net, send));
	EQ(too_long ? 2 : 1, net_warn_count());
	peer_join(&peer);
	abi_down(net);
}

static void waits_for_descriptors(struct abi *t)
{
	short_of_descriptors(t, false);
}

static void tries_again(struct abi *t)
{
	short_of_descriptors(t, true);
}

static const struct abi_case cases[] = {
	CASE("connect is done before accept is called", connect_first),
	CASE("accept returns no comm until a peer connects", accept_first),
	CASE("connect and accept interleave in any order", any_interleaving, .every = true),
	CASE("many comms in both directions share the streams of one", many_comms),
	CASE("a listener may be closed with no accept", listener_unaccepted),
	CASE("an unaccepted connect fails when the listener is closed",
	     listener_closed_under_connect),
	CASE("a connect to a closed listener fails", listener_gone, .warns = "not-listening"),
	CASE("a connect beyond the limit of unaccepted comms is refused: no room",
	     too_many_unaccepted, ONCE, .warns = "peer-no-room"),
	CASE("a recv comm outlives its listener", listener_closed_under_data),
	CASE("closing NULL is success", close_null, .every = true),
	CASE("two copies of one handle are two comms", two_copies),
	CASE("a handle of random bytes is an error", handle_random, .warns = "other-plugin"),
	CASE("a handle with any bit flipped is an error", handle_flips, .warns = "bad-handle"),
	CASE("a handle that changes while connecting does no harm", handle_flips_midway),
	CASE("the first connect waits for descriptors", waits_for_descriptors, ONCE),
	CASE("a connect that failed without descriptors may be tried again", tries_again, ONCE),
	CASE("finalize cleans up unfinished connects and accepts",
	     left_half_way, .since = 11, .every = true),
};

ABI_MAIN(cases)
