/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * data.c - is what arrives what was sent, whatever its size, place, order and company?
 *
 * Every message is random and looked at byte by byte in the moment in which it is said to be there;
 * what lies behind and around it as well.  All are sent both ways.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/perf/stat.h"
#include "tools/validate/validate.h"

/* The same messages to the other end, and from there. */
static void both_ways(struct validate *v, const struct msg *m, int n, int group,
		      const unsigned *order, unsigned how)
{
	if (!v->net)
		both_up(v);
	for (int out = 1; out >= 0; out--) {
		struct way way = way_open(v, out);

		move(v, &way, m, n, group, order, how);
		way_close(v, &way);
	}
}

static void sizes(struct validate *v, const size_t *size, int n)
{
	struct msg m[REQS_MAX];

	for (int i = 0; i < n; i++)
		m[i] = (struct msg){ .size = size[i] };
	both_ways(v, m, n, 1, NULL, 0);
	saw(v, "%d sizes, both ways", n);
}

#define SIZES(...)								\
	do {									\
		static const size_t list_[] = { __VA_ARGS__ };			\
		sizes(v, list_, (int)(sizeof(list_) / sizeof(list_[0])));	\
	} while (0)

static void zero(struct validate *v)
{
	SIZES(0, 0, 1, 0);
}

static void small(struct validate *v)
{
	SIZES(1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65);
}

static void line(struct validate *v)
{
	SIZES(127, 128, 129, 255, 256, 257);
}

static void page(struct validate *v)
{
	SIZES(4095, 4096, 4097, 8191, 8192, 8193);
}

static void middle(struct validate *v)
{
	SIZES(16383, 16384, 16385, 32767, 32768, 32769, 65535, 65536, 65537);
}

static void large(struct validate *v)
{
	SIZES(262143, 1 << 20, (1 << 20) + 1, (4 << 20) - 1, 4 << 20);
}

static void huge(struct validate *v)
{
	SIZES(64 << 20, (64 << 20) + 1);
}

/* Is there memory for that much at both ends? */
static void needs_memory(struct validate *v, uint64_t bytes)
{
	uint64_t have = perf_memory_free();

	if (have < bytes)
		skip(v, "%.1f GiB are needed here, and %.1f are there", (double)bytes / (1 << 30),
		     (double)have / (1 << 30));
}

static void gigabyte(struct validate *v)
{
	needs_memory(v, UINT64_C(3) << 30);
	SIZES(1 << 30);
}

static void over_2g(struct validate *v)
{
	needs_memory(v, UINT64_C(6) << 30);
	both_up(v);
	needs_abi(v, 9);
	SIZES((UINT64_C(2) << 30) + 4097);
}

static void unaligned(struct validate *v)
{
	static const unsigned skews[] = { 1, 2, 3, 7, 8, 15, 31, 63 };
	struct msg m[16];

	for (int i = 0; i < 16; i++)
		m[i] = (struct msg){ .size = i < 8 ? 1000 : 100000, .skew = skews[i % 8] };
	both_ways(v, m, 16, 1, NULL, 0);
}

/* The place is larger than the message: NCCL asks for as much as there may be. */
static void smaller(struct validate *v)
{
	static const size_t size[] = { 0, 1, 100, 5000, 70000, 1000000 };
	struct msg m[6];

	for (int i = 0; i < 6; i++)
		m[i] = (struct msg){ .size = size[i], .room = size[i] * 2 + 64 };
	both_ways(v, m, 6, 1, NULL, 0);
}

/* NCCL's protocols of 128-byte lines: neighbours in one buffer are not touched. */
static void lines(struct validate *v)
{
	struct msg m[16];

	for (int i = 0; i < 16; i++)
		m[i] = (struct msg){ .size = (size_t)(i + 1) * 128 - (i % 2 ? 8 : 0),
				     .room = (size_t)(i + 1) * 128 + 256 };
	both_ways(v, m, 16, 1, NULL, 0);
}

static void full_queue(struct validate *v, size_t size)
{
	struct msg m[REQS_MAX];

	for (int i = 0; i < REQS_MAX; i++)
		m[i] = (struct msg){ .size = size + (size_t)i };
	both_ways(v, m, REQS_MAX, 1, NULL, 0);
}

static void inflight(struct validate *v)
{
	full_queue(v, 1000);
}

static void inflight_large(struct validate *v)
{
	full_queue(v, 200000);
}

static int max_recvs(struct validate *v)
{
	struct braid_net_props p;

	both_up(v);
	memset(&p, 0, sizeof(p));
	OK(net_props(v->net, v->dev, &p));
	if (p.max_recvs < 2)
		skip(v, "it has no grouped receives");
	return p.max_recvs < RECVS_MAX ? p.max_recvs : RECVS_MAX;
}

static void shuffled(struct validate *v, unsigned *order, unsigned from, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		unsigned j = (unsigned)chance(v, i + 1);

		order[from + i] = from + i;
		order[from + i] = order[from + j];
		order[from + j] = from + i;
	}
}

static void grouped(struct validate *v, size_t size, int groups)
{
	struct msg m[REQS_MAX];
	unsigned order[REQS_MAX];
	int group = max_recvs(v), n = groups * group;

	n = n > REQS_MAX ? REQS_MAX / group * group : n;
	for (int i = 0; i < n; i++) {
		m[i] = (struct msg){ .size = size * (size_t)(i % group + 1), .tag = i % group };
		if (i % group == 0)
			shuffled(v, order, (unsigned)i, (unsigned)group);
	}
	both_ways(v, m, n, group, order, 0);
	saw(v, "%d receives of %d", n / group, group);
}

static void groups(struct validate *v)
{
	grouped(v, 500, 1);
}

static void groups_many(struct validate *v)
{
	grouped(v, 3000, 4);
}

static void groups_large(struct validate *v)
{
	grouped(v, 100000, 2);
}

static void tags(struct validate *v)
{
	struct msg m[16];
	unsigned order[16];

	for (int i = 0; i < 16; i++)
		m[i] = (struct msg){ .size = (size_t)(i * 997 + 10), .tag = 1000 + i };
	shuffled(v, order, 0, 16);
	both_ways(v, m, 16, 1, order, 0);
}

/* 16 alike: only their content tells them apart. */
static void same_tag(struct validate *v)
{
	struct msg m[16];

	for (int i = 0; i < 16; i++)
		m[i] = (struct msg){ .size = 2000, .tag = 5 };
	both_ways(v, m, 16, 1, NULL, 0);
}

/* Small ones may not overtake large ones. */
static void overtaking(struct validate *v)
{
	struct msg m[16];

	for (int i = 0; i < 16; i++)
		m[i] = (struct msg){ .size = i % 2 ? 64 : 500000, .room = 500000, .tag = 5 };
	both_ways(v, m, 16, 1, NULL, 0);
}

static void send_first(struct validate *v)
{
	struct msg m[8];

	for (int i = 0; i < 8; i++)
		m[i] = (struct msg){ .size = i % 2 ? 100 : 300000, .tag = i };
	both_ways(v, m, 8, 1, NULL, MOVE_SEND_FIRST);
}

static void no_sizes(struct validate *v)
{
	struct msg m = { .size = 5000 };

	both_ways(v, &m, 1, 1, NULL, MOVE_NO_SIZES);
}

static void optional(struct validate *v)
{
	struct msg m[2] = { { .size = 300 }, { .size = 100000 } };

	both_up(v);
	needs_abi(v, 9);
	both_ways(v, m, 2, 1, NULL, MOVE_OPTIONAL);
}

static void at_random(struct validate *v)
{
	struct msg m[REQS_MAX];

	both_up(v);
	for (int out = 0; out < 2; out++) {
		struct way way = way_open(v, out);

		for (int round = 0; round < 8; round++) {
			int n = 1 + (int)chance(v, REQS_MAX);

			for (int i = 0; i < n; i++) {
				uint64_t most = UINT64_C(1) << (1 + chance(v, 19));

				m[i] = (struct msg){ .size = chance(v, most),
						     .tag = (int)chance(v, 3),
						     .skew = (unsigned)chance(v, 64) };
				m[i].room = m[i].size + chance(v, 200);
			}
			move(v, &way, m, n, 1, NULL, chance(v, 2) ? MOVE_SEND_FIRST : 0);
		}
		way_close(v, &way);
	}
	saw(v, "seed %llu", (unsigned long long)v->seed);
}

/* -- both ends here ----------------------------------------------------------------------- */

static void comms(struct validate *v, int n)
{
	struct pair *p = calloc((size_t)n, sizeof(*p));
	struct buf *b = calloc((size_t)n * 2, sizeof(*b));
	struct op *ops = calloc((size_t)n * 2, sizeof(*ops));

	TRUE(p && b && ops);
	net_up(v);
	for (int i = 0; i < n; i++) {
		size_t size = (size_t)(1 + i * 3001 % 100000);

		step(v, "comm %d of %d", i + 1, n);
		pair_open(v->net, &p[i]);
		b[2 * i] = buf_new(v->net, p[i].send, size, 0);
		b[2 * i + 1] = buf_new(v->net, p[i].recv, size, 0);
		fill(b[2 * i].data, size, (uint64_t)i + 1);
		ops[2 * i] = op_recv(v->net, p[i].recv, &b[2 * i + 1], size, 0);
		ops[2 * i + 1] = op_send(v->net, p[i].send, &b[2 * i], size, 0);
	}
	step(v, "a message over each of %d comms", n);
	ops_run(ops, (size_t)n * 2);
	for (int i = 0; i < n; i++) {
		filled(b[2 * i + 1].data, b[2 * i + 1].size, (uint64_t)i + 1);
		buf_free(v->net, &b[2 * i]);
		buf_free(v->net, &b[2 * i + 1]);
		pair_close(v->net, &p[i]);
	}
	saw(v, "%d comms", n);
}

static void comms_8(struct validate *v)
{
	comms(v, 8);
}

static void comms_64(struct validate *v)
{
	comms(v, 64);
}

static void duplex(struct validate *v)
{
	enum { N = 8, SIZE = 150000 };
	struct pair p[2];
	struct buf b[2][2 * N];
	struct op ops[4 * N];

	net_up(v);
	for (int d = 0; d < 2; d++) {
		pair_open(v->net, &p[d]);
		for (int i = 0; i < N; i++) {
			b[d][i] = buf_new(v->net, p[d].send, SIZE, 0);
			b[d][N + i] = buf_new(v->net, p[d].recv, SIZE, 0);
			fill(b[d][i].data, SIZE, (uint64_t)(d * N + i + 1));
			ops[d * 2 * N + i] = op_recv(v->net, p[d].recv, &b[d][N + i], SIZE, 0);
			ops[d * 2 * N + N + i] = op_send(v->net, p[d].send, &b[d][i], SIZE, 0);
		}
	}
	ops_run(ops, 4 * N);
	for (int d = 0; d < 2; d++) {
		for (int i = 0; i < 2 * N; i++) {
			if (i >= N)
				filled(b[d][i].data, SIZE, (uint64_t)(d * N + i - N + 1));
			buf_free(v->net, &b[d][i]);
		}
		pair_close(v->net, &p[d]);
	}
}

struct threaded {
	pthread_t thread;
	struct net *net;
	struct pair pair;
	uint64_t seed;
};

static void *traffic(void *arg)
{
	struct threaded *t = arg;

	for (uint64_t i = 0; i < 20; i++)
		exchange(t->net, t->pair.send, t->pair.recv, (size_t)(1 + i * 7919), t->seed + i);
	return NULL;
}

static void threads(struct validate *v)
{
	enum { N = 4 };
	struct threaded t[N];

	net_up(v);
	for (int i = 0; i < N; i++) {
		t[i] = (struct threaded){ .net = v->net, .seed = (uint64_t)i * 1000 + 1 };
		pair_open(v->net, &t[i].pair);
	}
	step(v, "%d threads", N);
	for (int i = 0; i < N; i++)
		TRUE(pthread_create(&t[i].thread, NULL, traffic, &t[i]) == 0);
	for (int i = 0; i < N; i++) {
		pthread_join(t[i].thread, NULL);
		pair_close(v->net, &t[i].pair);
	}
}

/* A receive that is smaller than its message may fail; it may not write behind its place. */
static void too_large(struct validate *v)
{
	struct pair p;
	struct buf from, to;
	struct op ops[2];

	net_up(v);
	pair_open(v->net, &p);
	from = buf_new(v->net, p.send, 1000, 0);
	to = buf_new(v->net, p.recv, 500, 0);
	fill(from.data, 1000, 1);
	ops[0] = op_recv(v->net, p.recv, &to, 500, 0);
	ops[1] = op_send(v->net, p.send, &from, 1000, 0);
	for (uint64_t end = deadline_ms(3000); !ops_step(ops, 2) && now_us() < end;)
		usleep(100);
	buf_guards(&to);
	if (ops[0].done && ops[0].res == ncclSuccess && ops[0].got[0] > 500)
		FAIL("test() says that %d bytes came into a place of 500", ops[0].got[0]);
	saw(v, "the receive: %s", !ops[0].done ? "under way for ever" :
	    net_result_name(ops[0].res));
}

struct calls {
	struct way way;
	struct op *op;
	double most;
	int n;
};

static void watched(struct calls *c, bool (*call)(struct op *op), struct op *op)
{
	struct watch w;
	double us;

	watch_begin(&w);
	call(op);
	us = watch_blocked_us(&w);
	c->most = us > c->most ? us : c->most;
	c->n += us > 10000;
}

/* A large message to a process that is stopped: neither isend() nor test() may wait. */
static void waits_not(struct validate *v)
{
	enum { SIZE = 32 << 20 };
	struct order o = { .what = FAR_FREEZE, .ms = 1200 };
	struct calls c = { .most = 0 };
	struct buf b;
	struct op op;

	both_up(v);
	c.way = way_open(v, true);
	b = buf_new(v->net, c.way.comm, SIZE, 0);
	op = op_send(v->net, c.way.comm, &b, SIZE, 0);
	far_ask(v, &o);
	step(v, "calls while the other end is stopped");
	for (uint64_t end = deadline_ms(600); now_us() < end && c.n < 3;) {
		watched(&c, op.posted ? op_test : op_post, &op);
		if (op.done)
			break;
		usleep(200);
	}
	if (c.n > 2)
		FAIL("%d calls of isend() and test() were off the CPU for more than 10 ms, the "
		     "longest for %.1f ms", c.n, c.most / 1000);
	saw(v, "the longest wait was %.2f ms (promised: 1 ms, failed from 10 ms)", c.most / 1000);
}

static void receive_waits_not(struct validate *v)
{
	enum { N = 8, SIZE = 1 << 20 };
	struct calls c = { .most = 0 };
	struct buf b[N];
	struct op op[N];

	both_up(v);
	c.way = way_open(v, false);
	for (int i = 0; i < N; i++) {
		b[i] = buf_new(v->net, c.way.comm, SIZE, 0);
		op[i] = op_recv(v->net, c.way.comm, &b[i], SIZE, i);
	}
	step(v, "receives that nobody sends to");
	for (int i = 0; i < 300 && c.n < 3; i++) {
		struct op *o = &op[i % N];

		watched(&c, o->posted ? op_test : op_post, o);
		if (o->done)
			FAIL("a receive is done that nobody has sent to: %s",
			     net_result_name(o->res));
		usleep(200);
	}
	if (c.n > 2)
		FAIL("%d calls of irecv() and test() were off the CPU for more than 10 ms, the "
		     "longest for %.1f ms", c.n, c.most / 1000);
	saw(v, "the longest wait was %.2f ms (promised: 1 ms, failed from 10 ms)", c.most / 1000);
}

static const char broken[] =
	"Data is not safe over this path. Try --transport tcp to see whose fault it is; update "
	"firmware and driver; report it";
static const char hung[] = "NCCL's thread stands still for all its peers: report it";

const struct vcheck validate_data[] = {
	{ "data-zero", "Messages without bytes", broken, zero, V_SOAK, 0 },
	{ "data-small", "From 1 to 65 bytes", broken, small, V_SOAK, 0 },
	{ "data-line", "About 128 and 256 bytes", broken, line, V_SOAK, 0 },
	{ "data-page", "About one page and two", broken, page, V_SOAK, 0 },
	{ "data-middle", "From 16 to 64 KiB", broken, middle, V_SOAK, 0 },
	{ "data-large", "From 256 KiB to 4 MiB", broken, large, V_SOAK, 0 },
	{ "data-huge", "64 MiB", broken, huge, V_FULL, 60 },
	{ "data-1g", "1 GiB", broken, gigabyte, V_FULL, 120 },
	{ "data-2g", "More than 2 GiB, in one message", broken, over_2g, V_FULL, 300 },
	{ "data-unaligned", "From and to any address", broken, unaligned, V_SOAK, 0 },
	{ "data-smaller", "Messages smaller than their place: nothing behind is written", broken,
	  smaller, V_SOAK, 0 },
	{ "data-larger", "A message larger than its place does not overwrite its neighbour", broken,
	  too_large, V_HERE, 0 },
	{ "data-lines", "Whole lines of 128 bytes", broken, lines, V_SOAK, 0 },
	{ "data-inflight", "32 small messages under way", broken, inflight, V_SOAK, 0 },
	{ "data-inflight-large", "32 large messages under way", broken, inflight_large, V_SOAK,
	  40 },
	{ "data-group", "One grouped receive, its messages in any order", broken, groups, V_SOAK,
	  0 },
	{ "data-groups", "Several grouped receives under way", broken, groups_many, V_SOAK, 0 },
	{ "data-groups-large", "Grouped receives of large messages", broken, groups_large, V_SOAK,
	  0 },
	{ "data-tags", "Receives in another order than sends, by their tags", broken, tags, V_SOAK,
	  0 },
	{ "data-same-tag", "Messages of one tag arrive in their order", broken, same_tag, V_SOAK,
	  0 },
	{ "data-overtake", "Small messages do not overtake large ones of their tag", broken,
	  overtaking, V_SOAK, 0 },
	{ "data-send-first", "Sends before their receives are posted", broken, send_first, V_SOAK,
	  0 },
	{ "data-no-sizes", "test() without room for sizes", REPORT, no_sizes, V_SOAK, 0 },
	{ "data-optional", "Receives whose completion NCCL does not need", REPORT, optional, V_SOAK,
	  0 },
	{ "data-random", "Any sizes, tags and places", broken, at_random, V_SOAK, 40 },
	{ "data-comms", "8 comms at once", broken, comms_8, V_HERE | V_SOAK, 0 },
	{ "data-comms-64", "64 comms at once", broken, comms_64, V_HERE | V_FULL, 60 },
	{ "data-duplex", "Both ways at once", broken, duplex, V_HERE | V_SOAK, 0 },
	{ "data-threads", "4 threads, each with its comm", broken, threads, V_HERE | V_SOAK, 0 },
	{ "data-send-waits", "isend() and test() do not wait for a peer that is stopped", hung,
	  waits_not, 0, 0 },
	{ "data-recv-waits", "irecv() and test() do not wait for a message", hung,
	  receive_waits_not, 0, 0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
