/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_queue.c - many outstanding requests, and what NCCL may do with them.
 *
 * NCCL may test requests in any order, and may not ask for sizes.  From v9 on it may mark a receive,
 * in *request, as one whose completion is optional.  A comm whose receiver does nothing holds up no
 * other comm, and outstanding requests go on although one end stops calling.
 */
#include "tests/abi/abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE_MAX_BYTES = 100000 };

static size_t size_of(unsigned i)
{
	return (size_t)i * 7919 % SIZE_MAX_BYTES;
}

/* Posts N requests, then waits for each in random order. */
static void out_of_order_side(struct abi *t, struct net *net, void *comm, bool is_recv)
{
	struct buf b[REQS_MAX];
	struct op ops[REQS_MAX];
	unsigned order[REQS_MAX];

	for (int round = 0; round < (t->newest ? 20 : 3); round++) {
		for (unsigned i = 0; i < REQS_MAX; i++) {
			b[i] = buf_new(net, comm, size_of(i), 0);
			if (is_recv) {
				ops[i] = op_recv(net, comm, &b[i], size_of(i), 1);
			} else {
				fill(b[i].data, size_of(i), i);
				ops[i] = op_send(net, comm, &b[i], size_of(i), 1);
			}
		}
		ops_post(ops, REQS_MAX);
		shuffle(t, order, REQS_MAX);
		if (round == 0)
			for (unsigned i = 0; i < REQS_MAX; i++)
				order[i] = REQS_MAX - 1 - i;
		for (unsigned k = 0; k < REQS_MAX; k++)
			ops_run(&ops[order[k]], 1);
		for (unsigned i = 0; i < REQS_MAX; i++) {
			if (is_recv)
				filled(b[i].data, size_of(i), i);
			buf_free(net, &b[i]);
		}
	}
}

static void out_of_order_peer(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd);

	out_of_order_side(t, net, send, false);
	meet(fd);
	OK(net_close_send(net, send));
	abi_down(net);
}

static void out_of_order(struct abi *t)
{
	struct peer peer = peer_start(t, out_of_order_peer);
	struct net *net = abi_up(t);
	void *recv = recv_from(net, peer.fd);

	out_of_order_side(t, net, recv, true);
	meet(peer.fd);
	OK(net_close_recv(net, recv));
	peer_join(&peer);
	abi_down(net);
}

static void sizes_unasked(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;
	struct buf from, to;

	pair_open(net, &p);
	from = buf_new(net, p.send, 200000, 0);
	to = buf_new(net, p.recv, 200000, 0);
	for (unsigned i = 0; i < 10; i++) {
		size_t size = i % 2 ? 200000 : 100;
		struct op ops[] = {
			op_recv(net, p.recv, &to, size, 0),
			op_send(net, p.send, &from, size, 0),
		};

		ops[0].no_sizes = true;
		ops[1].no_sizes = true;
		fill(from.data, size, i);
		ops_run(ops, 2);
		filled(to.data, size, i);
	}
	buf_free(net, &from);
	buf_free(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

static bool is_filled(const void *data, size_t size, void *scratch, uint64_t seed)
{
	fill(scratch, size, seed);
	return !memcmp(data, scratch, size);
}

/*
 * A marked request may be done early and with size 0, but its bytes arrive all the same.  For old
 * ABI versions the proxy removes the mark, as NCCL does.
 */
static void optional_completion(struct abi *t)
{
	enum { SIZE = 65536 };
	struct net *net = abi_up(t);
	struct pair p;
	struct buf from, to;
	uint8_t *scratch = malloc(SIZE);

	TRUE(scratch);
	pair_open(net, &p);
	from = buf_new(net, p.send, SIZE, 0);
	to = buf_new(net, p.recv, SIZE, 0);
	for (unsigned i = 0; i < 20; i++) {
		size_t size = i % 2 ? SIZE : 128;
		struct op ops[] = {
			op_recv(net, p.recv, &to, size, 0),
			op_send(net, p.send, &from, size, 0),
		};

		fill(from.data, size, i);
		blank(to.data, size);
		ops[0].optional = true;
		ops_run(ops, 2);
		WAIT_FOR(is_filled(to.data, size, scratch, i));
	}
	buf_free(net, &from);
	buf_free(net, &to);
	free(scratch);
	pair_close(net, &p);
	abi_down(net);
}

static void flush(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;
	struct buf from, to;

	pair_open(net, &p);
	from = buf_new(net, p.send, 1000, 0);
	to = buf_new(net, p.recv, 1000, 0);
	for (unsigned i = 0; i < 50; i++) {
		struct op ops[] = {
			op_recv(net, p.recv, &to, 1000, 0),
			op_send(net, p.send, &from, 1000, 0),
		};
		struct op flushed = { .net = net, .n = 1, .no_sizes = true, .posted = true };
		int size = 1000;

		fill(from.data, 1000, i);
		ops_run(ops, 2);
		flushed.req = &flushed;
		OK(net_iflush(net, p.recv, 1, ops[0].data, &size, ops[0].mr, &flushed.req));
		TRUE(flushed.req != &flushed);
		if (flushed.req)	/* NULL: it is done */
			ops_run(&flushed, 1);
		filled(to.data, 1000, i);
	}
	buf_free(net, &from);
	buf_free(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

/* -- a receiver that does nothing ---------------------------------------------------------- */

enum { STREAM = 100 };

static size_t idle_size(unsigned i)
{
	return i % 2 ? 65536 : i % 3 ? 300000 : 8000;
}

/* The sends may wait long on a slow machine, so the WARN about waiting comes late. */
static struct net *up_patiently(struct abi *t)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", 10 * drive_slow());
	setenv("BRAID_STALL_WARN", text, 1);
	return abi_up(t);
}

static void idle_peer(struct abi *t, int fd)
{
	struct net *net = up_patiently(t);
	void *idle = send_to(net, fd), *busy = send_to(net, fd), *back = recv_from(net, fd);
	struct buf b[REQS_MAX];
	struct op ops[REQS_MAX];

	for (unsigned i = 0; i < REQS_MAX; i++) {
		b[i] = buf_new(net, idle, idle_size(i), 0);
		fill(b[i].data, b[i].size, i);
		ops[i] = op_send(net, idle, &b[i], b[i].size, 0);
	}
	ops_post(ops, REQS_MAX);
	meet(fd);
	for (unsigned i = 0; i < STREAM; i++) {
		send_one(net, busy, i % 10 ? 1000 : 700000, i);
		recv_one(net, back, i % 10 ? 1000 : 700000, i);
	}
	ops_run(ops, REQS_MAX);
	for (unsigned i = 0; i < REQS_MAX; i++)
		buf_free(net, &b[i]);
	meet(fd);
	OK(net_close_send(net, idle));
	OK(net_close_send(net, busy));
	OK(net_close_recv(net, back));
	abi_down(net);
}

static void idle_receiver(struct abi *t)
{
	struct peer peer = peer_start(t, idle_peer);
	struct net *net = abi_up(t);
	void *idle = recv_from(net, peer.fd), *busy = recv_from(net, peer.fd);
	void *back = send_to(net, peer.fd);

	meet(peer.fd);
	for (unsigned i = 0; i < STREAM; i++) {
		recv_one(net, busy, i % 10 ? 1000 : 700000, i);
		send_one(net, back, i % 10 ? 1000 : 700000, i);
	}
	for (unsigned i = 0; i < REQS_MAX; i++)
		recv_one(net, idle, idle_size(i), i);
	meet(peer.fd);
	OK(net_close_recv(net, idle));
	OK(net_close_recv(net, busy));
	OK(net_close_send(net, back));
	peer_join(&peer);
	abi_down(net);
}

/* -- a side that stops calling -------------------------------------------------------------- */

enum { QUIET_SIZE = 1 << 20, QUIET_N = 8 };

/* Posts all requests; then either runs them, or calls nothing until the other end is done. */
static void quiet_half(struct net *net, void *comm, bool is_recv, bool calls, int fd)
{
	struct buf b[QUIET_N];
	struct op ops[QUIET_N];

	for (unsigned i = 0; i < QUIET_N; i++) {
		b[i] = buf_new(net, comm, QUIET_SIZE, 0);
		if (is_recv) {
			ops[i] = op_recv(net, comm, &b[i], QUIET_SIZE, 0);
		} else {
			fill(b[i].data, QUIET_SIZE, i);
			ops[i] = op_send(net, comm, &b[i], QUIET_SIZE, 0);
		}
	}
	ops_post(ops, QUIET_N);
	if (calls)
		ops_run(ops, QUIET_N);
	meet(fd);
	ops_run(ops, QUIET_N);
	for (unsigned i = 0; i < QUIET_N; i++) {
		if (is_recv)
			filled(b[i].data, QUIET_SIZE, i);
		buf_free(net, &b[i]);
	}
}

static void quiet_peer(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd);

	quiet_half(net, send, false, true, fd);
	quiet_half(net, send, false, false, fd);
	meet(fd);
	OK(net_close_send(net, send));
	abi_down(net);
}

static void quiet(struct abi *t)
{
	struct peer peer = peer_start(t, quiet_peer);
	struct net *net = abi_up(t);
	void *recv = recv_from(net, peer.fd);

	quiet_half(net, recv, true, false, peer.fd);
	quiet_half(net, recv, true, true, peer.fd);
	meet(peer.fd);
	OK(net_close_recv(net, recv));
	peer_join(&peer);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("32 requests may be tested in any order, each to its end", out_of_order),
	CASE("sizes need not be asked for", sizes_unasked),
	CASE("a receive that may complete early overwrites the mark and gets its bytes",
	     optional_completion, .every = true),
	CASE("a flush is done at once or becomes a request", flush, .every = true),
	CASE("32 sends without a receive hold up no other comm", idle_receiver),
	CASE("messages in flight arrive although one end stops calling", quiet),
};

ABI_MAIN(cases)
