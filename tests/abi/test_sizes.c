/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_sizes.c - every byte of every size arrives in its place, and none beside it.
 *
 * Buffers lie at odd addresses between guard bytes.  The value of a byte depends on its place, so a
 * chunk at the wrong offset is noticed.  The sizes lie around those at which a plugin may switch
 * methods: a copy, an eager message, a chunk.  A send larger than its receive is the user's mistake,
 * and fails at both ends; NCCL's own InfiniBand code would truncate it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* memfd_create */
#endif
#include "tests/abi/abi.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t sizes[] = {
	0,	1,	2,	3,	7,	8,	9,	15,	16,	17,
	63,	64,	65,	127,	128,	129,	255,	256,	1000,	4095,
	4096,	4097,	8191,	8192,	8193,	16383,	16384,	16385,	32768,	65535,
	65536,	65537,	131071,	131072,	262145,	524287,	524288,	524289,	1048576, 1048577,
	/* from here on for the newest version only */
	4194307, 8388608, 16777229, 67108863, 67108864,
};

enum { ALL_SIZES = sizeof(sizes) / sizeof(sizes[0]), SMALL_SIZES = ALL_SIZES - 5 };

static void one_process(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;

	pair_open(net, &p);
	for (unsigned i = 0; i < (t->newest ? ALL_SIZES : SMALL_SIZES); i++) {
		bool recv_first = i % 2;
		struct buf from = buf_new(net, p.send, sizes[i], i * 3 % 64);
		struct buf to = buf_new(net, p.recv, sizes[i], i * 5 % 64);
		struct op ops[2];

		fill(from.data, sizes[i], i);
		ops[recv_first] = op_send(net, p.send, &from, sizes[i], 0);
		ops[!recv_first] = op_recv(net, p.recv, &to, sizes[i], 0);
		ops_post(&ops[0], 1);
		ops_run(ops, 2);
		EQ(sizes[i], ops[0].got[0]);
		EQ(sizes[i], ops[1].got[0]);
		filled(from.data, sizes[i], i);
		filled(to.data, sizes[i], i);
		buf_free(net, &from);
		buf_free(net, &to);
	}
	pair_close(net, &p);
	abi_down(net);
}

/* One side of a stream of messages; both sides draw all sizes from one seed. */
enum { FLIGHT = 8 };

static size_t drawn_size(struct abi *t)
{
	return rnd(t) % ((size_t)1 << rnd_below(t, t->newest ? 22 : 18));
}

static void stream_side(struct abi *t, struct net *net, void *comm, bool is_recv)
{
	struct buf b[FLIGHT];
	struct op ops[FLIGHT];
	unsigned n = t->newest ? 400 : 40;

	for (unsigned i = 0; i < n; i += FLIGHT) {
		for (unsigned k = 0; k < FLIGHT; k++) {
			size_t size = drawn_size(t), more = is_recv ? i % 3 : 0;

			b[k] = buf_new(net, comm, size + more, (i + k) % 64);
			if (is_recv) {
				blank(b[k].data, size + more);
				ops[k] = op_recv(net, comm, &b[k], size + more, (int)k);
			} else {
				fill(b[k].data, size, i + k);
				ops[k] = op_send(net, comm, &b[k], size, (int)k);
			}
		}
		ops_run(ops, FLIGHT);
		for (unsigned k = 0; k < FLIGHT; k++) {
			if (is_recv)
				filled(b[k].data, (size_t)ops[k].got[0], i + k);
			buf_free(net, &b[k]);
		}
	}
}

static void stream_peer(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd);

	t->seed = 99;
	stream_side(t, net, send, false);
	meet(fd);
	OK(net_close_send(net, send));
	abi_down(net);
}

static void two_processes(struct abi *t)
{
	struct peer peer = peer_start(t, stream_peer);
	struct net *net = abi_up(t);
	void *recv = recv_from(net, peer.fd);

	t->seed = 99;
	stream_side(t, net, recv, true);
	meet(peer.fd);
	OK(net_close_recv(net, recv));
	peer_join(&peer);
	abi_down(net);
}

static void large_peer(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd);

	for (unsigned i = SMALL_SIZES; i < ALL_SIZES; i++)
		send_one(net, send, sizes[i], i);
	meet(fd);
	OK(net_close_send(net, send));
	abi_down(net);
}

static void large(struct abi *t)
{
	struct peer peer = peer_start(t, large_peer);
	struct net *net = abi_up(t);
	void *recv = recv_from(net, peer.fd);

	for (unsigned i = SMALL_SIZES; i < ALL_SIZES; i++)
		recv_one(net, recv, sizes[i], i);
	meet(peer.fd);
	OK(net_close_recv(net, recv));
	peer_join(&peer);
	abi_down(net);
}

static void sent_less(struct abi *t)
{
	static const size_t rows[][2] = {	/* sent, room */
		{ 0, 1 },	   { 0, 100000 },      { 1, 2 },	   { 99, 100 },
		{ 4096, 1 << 20 }, { 65537, 1 << 20 }, { 1 << 20, 4194305 },
	};
	struct net *net = abi_up(t);
	struct pair p;

	pair_open(net, &p);
	for (unsigned i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
		bool recv_first = i % 2;
		size_t sent = rows[i / 2][0], room = rows[i / 2][1];
		struct buf from = buf_new(net, p.send, sent, 1);
		struct buf to = buf_new(net, p.recv, room, 3);
		struct op ops[2];

		fill(from.data, sent, i);
		blank(to.data, room);
		ops[recv_first] = op_send(net, p.send, &from, sent, 0);
		ops[!recv_first] = op_recv(net, p.recv, &to, room, 0);
		ops_post(&ops[0], 1);
		ops_run(ops, 2);
		EQ(sent, ops[0].got[0]);
		EQ(sent, ops[1].got[0]);
		filled(to.data, sent, i);
		for (size_t k = sent; k < room; k++)
			EQ(0xee, to.data[k]);
		buf_free(net, &from);
		buf_free(net, &to);
	}
	pair_close(net, &p);
	abi_down(net);
}

/* -- send larger than its receive --------------------------------------------------------- */

struct excess {
	size_t sent, room;
	bool recv_first;
};

static const struct excess excesses[] = {
	{ 1, 0, true },
	{ 100, 99, false },
	{ 10007, 1009, true },
	{ 65537, 65536, false },
	{ 1048577, 1048576, true },
	{ 4194304, 13, false },
};

enum { EXCESSES = sizeof(excesses) / sizeof(excesses[0]) };

static void names_both(const struct excess *e)
{
	const char *warn = net_last_warn();
	char sent[32], room[32];

	snprintf(sent, sizeof(sent), "%zu", e->sent);
	snprintf(room, sizeof(room), "%zu", e->room);
	if (!strstr(warn, sent) || !strstr(warn, room))
		FAIL("WARN names not both %s and %s: \"%s\"", sent, room, warn);
}

/* Sends until the comm fails: the large send may be done before the receiver finds it too large. */
static void send_excess(struct net *net, void *comm, const struct excess *e)
{
	struct buf b = buf_new(net, comm, e->sent, 0);
	struct op op = op_send(net, comm, &b, e->sent, 0);

	ops_settle(&op, 1);
	while (op.res == ncclSuccess) {
		op = op_send(net, comm, &b, 0, 0);
		ops_settle(&op, 1);
	}
	RES(ncclInvalidUsage, op.res);
	names_both(e);
	buf_free(net, &b);
}

static void recv_excess(struct net *net, void *comm, const struct excess *e)
{
	struct buf b = buf_new(net, comm, e->room, 0);
	struct op op = op_recv(net, comm, &b, e->room, 0);

	ops_settle(&op, 1);
	RES(ncclInvalidUsage, op.res);
	names_both(e);
	buf_free(net, &b);
}

static void excess_peer(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *other = send_to(net, fd);

	warns_expected();
	for (unsigned i = 0; i < EXCESSES; i++) {
		void *send = send_to(net, fd);

		if (excesses[i].recv_first)
			meet(fd);
		send_excess(net, send, &excesses[i]);
		if (!excesses[i].recv_first)
			meet(fd);
		OK(net_close_send(net, send));
		send_one(net, other, 1000, i);
	}
	meet(fd);
	OK(net_close_send(net, other));
	abi_down(net);
}

static void excess(struct abi *t)
{
	struct peer peer = peer_start(t, excess_peer);
	struct net *net = abi_up(t);
	void *other = recv_from(net, peer.fd);

	warns_expected();
	for (unsigned i = 0; i < EXCESSES; i++) {
		void *recv = recv_from(net, peer.fd);

		/* The end that is to come second waits here until the other one is done. */
		if (excesses[i].recv_first)
			meet(peer.fd);
		recv_excess(net, recv, &excesses[i]);
		if (!excesses[i].recv_first)
			meet(peer.fd);
		OK(net_close_recv(net, recv));
		recv_one(net, other, 1000, i);	/* the other comm still works */
	}
	meet(peer.fd);
	OK(net_close_recv(net, other));
	peer_join(&peer);
	abi_down(net);
}

/* -- beyond int --------------------------------------------------------------------------- */

enum { BLOCK = 4096 * 4099 };		/* of the sender's memory, mapped again and again */

static const size_t huge_sizes[] = { INT_MAX, (size_t)INT_MAX + 6 };
static const size_t huge_map = ((size_t)INT_MAX / BLOCK + 2) * BLOCK;

static uint8_t *huge_source(void)
{
	uint8_t *base = mmap(NULL, huge_map, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = memfd_create("block", MFD_CLOEXEC);

	TRUE(base != MAP_FAILED && fd >= 0 && !ftruncate(fd, BLOCK));
	for (size_t at = 0; at < huge_map; at += BLOCK)
		TRUE(mmap(base + at, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
			  0) != MAP_FAILED);
	close(fd);
	fill(base, BLOCK, 1);
	return base;
}

static void huge_peer(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd);
	struct buf b = { .data = huge_source(), .size = huge_map };

	OK(net_reg(net, send, b.data, b.size, NCCL_PTR_HOST, &b.mr));
	for (int i = 0; i < 2; i++) {
		struct op op = op_send(net, send, &b, huge_sizes[i], 0);

		WAIT_FOR_MS(40000, ops_step(&op, 1));
		OK(op.res);
		EQ(INT_MAX, op.got[0]);
	}
	meet(fd);
	OK(net_dereg(net, send, b.mr));
	OK(net_close_send(net, send));
	abi_down(net);
}

static unsigned long available_mb(void)
{
	unsigned long kb = 0;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && !kb && fgets(line, sizeof(line), f))
		sscanf(line, "MemAvailable: %lu", &kb);
	if (f)
		fclose(f);
	return kb / 1024;
}

static void huge(struct abi *t)
{
	struct peer peer;
	struct net *net;
	void *recv;
	struct buf b;

#ifdef __SANITIZE_THREAD__
	skip_because("the sanitizer for threads keeps 8 GiB for the message's 2");
#endif
	if (available_mb() < 3500)
		skip_because("needs 3500 MiB of memory, %lu are available", available_mb());
	peer = peer_start(t, huge_peer);
	net = abi_up(t);
	recv = recv_from(net, peer.fd);
	b = buf_new(net, recv, huge_sizes[1], 0);
	madvise(b.map, b.map_len, MADV_HUGEPAGE);
	for (int i = 0; i < 2; i++) {
		struct op op = op_recv(net, recv, &b, huge_sizes[i], 0);

		b.data[huge_sizes[i] - 1] = 0;
		WAIT_FOR_MS(40000, ops_step(&op, 1));
		OK(op.res);
		EQ(INT_MAX, op.got[0]);
		filled(b.data, BLOCK, 1);
		for (size_t at = BLOCK; at < huge_sizes[i]; at += BLOCK) {
			size_t left = huge_sizes[i] - at;

			if (memcmp(b.data, b.data + at, left < BLOCK ? left : BLOCK) != 0)
				FAIL("the block at %zu is not what was sent", at);
		}
		for (size_t at = 0; at < huge_sizes[i]; at += 1 << 20)
			b.data[at] ^= 0xff;	/* so that the second message must write it all again */
	}
	meet(peer.fd);
	buf_free(net, &b);
	OK(net_close_recv(net, recv));
	peer_join(&peer);
	abi_down(net);
}

static void absurd(struct abi *t)
{
	static const size_t bad[] = { (1ull << 38) + 1, 1ull << 63, SIZE_MAX };
	struct net *net = abi_up(t);
	struct pair p;
	struct buf b;
	char what[64];

	warns_expected();
	pair_open(net, &p);
	b = buf_new(net, p.recv, 100, 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		size_t size = bad[i];
		void *data = b.data, *req = NULL;
		int tag = 0;

		RES(ncclInvalidUsage, net_isend(net, p.send, data, size, tag, NULL, NULL, &req));
		snprintf(what, sizeof(what), "isend of %lld bytes", (long long)size);
		TRUE(!req && strstr(net_last_warn(), what));
		RES(ncclInvalidUsage, net_irecv(net, p.recv, 1, &data, &size, &tag, &b.mr, NULL,
						&req));
		snprintf(what, sizeof(what), "irecv of %lld bytes", (long long)size);
		TRUE(!req && strstr(net_last_warn(), what));
	}
	buf_free(net, &b);
	exchange(net, p.send, p.recv, 100, 1);
	pair_close(net, &p);
	abi_down(net);
}

/* Up to v8 sizes are ints, so a size of more than INT_MAX reaches the plugin as a negative one. */
static void negative(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;
	struct buf b;
	const ncclNet_v5_t *v5 = net->table;
	const ncclNet_v6_t *v6 = net->table;
	nccl_isend_v5 *isend = t->abi == 5 ? v5->isend : v6->isend;
	nccl_irecv_v5 *irecv = t->abi == 5 ? v5->irecv : v6->irecv;
	int size = -5, tag = 0;
	void *data, *mr, *req = NULL;

	warns_expected();
	pair_open(net, &p);
	b = buf_new(net, p.recv, 100, 0);
	data = b.data;
	RES(ncclInvalidUsage, isend(p.send, data, size, tag, NULL, &req));
	TRUE(strstr(net_last_warn(), "isend of -5 bytes"));
	RES(ncclInvalidUsage, irecv(p.recv, 1, &data, &size, &tag, &b.mr, &req));
	TRUE(strstr(net_last_warn(), "irecv of -5 bytes"));
	if (t->abi < 8)
		RES(ncclInternalError, v5->regMr(p.recv, data, size, NCCL_PTR_HOST, &mr));
	buf_free(net, &b);
	exchange(net, p.send, p.recv, 100, 1);
	pair_close(net, &p);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("every size arrives whole at any address, one process", one_process),
	CASE("a stream of random sizes arrives whole, two processes", two_processes),
	CASE("64 MiB arrive whole, two processes", large, ONCE),
	CASE("both ends get the size of a send smaller than its receive", sent_less, .every = true),
	CASE("a send larger than its receive is invalid usage at both ends, with both sizes",
	     excess, .every = true, .warns = "size-mismatch"),
	CASE("negative sizes are refused and do no harm", negative, .until = 8, .every = true),
	CASE("absurd sizes are invalid usage, and do no harm",
	     absurd, .since = 9, .every = true, .warns = "bad-size"),
	CASE("2^31 - 1 bytes and more are one message, reported as INT_MAX", huge, ONCE),
};

ABI_MAIN(cases)
