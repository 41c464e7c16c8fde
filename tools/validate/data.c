/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * data.c - does all data arrive as it was sent, whatever its size, address, order and neighbours?
 *
 * Every message is random, and compared byte by byte at the moment test() reports it, with the
 * memory behind and around it.  All are sent both ways.
 */
#include <string.h>
#include <unistd.h>

#include "tools/perf/stat.h"
#include "tools/validate/far.h"

/* Move the same messages to the other end, and from there to here. */
static void both_ways(struct validate *v, const struct msg *m, int n, int group,
		      const unsigned *order, unsigned how)
{
	if (!v->net)
		both_up(v);
	for (int out = 1; out >= 0; out--) {
		struct conn conn = conn_open(v, out);

		move(v, &conn, m, n, group, order, how);
		conn_close(v, &conn);
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

/* Skip the check if this host has less memory than that. */
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

/* The buffer is larger than the message: NCCL posts the largest size that may come. */
static void smaller(struct validate *v)
{
	static const size_t size[] = { 0, 1, 100, 5000, 70000, 1000000 };
	struct msg m[6];

	for (int i = 0; i < 6; i++)
		m[i] = (struct msg){ .size = size[i], .room = size[i] * 2 + 64 };
	both_ways(v, m, 6, 1, NULL, 0);
}

/* NCCL's protocols of 128-byte lines: a message must not change its neighbours in one buffer. */
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

/* 16 messages that differ in their content only. */
static void same_tag(struct validate *v)
{
	struct msg m[16];

	for (int i = 0; i < 16; i++)
		m[i] = (struct msg){ .size = 2000, .tag = 5 };
	both_ways(v, m, 16, 1, NULL, 0);
}

/* Small messages may not overtake large ones. */
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

static void any_order(struct validate *v)
{
	struct msg m[16];

	for (int i = 0; i < 16; i++)
		m[i] = (struct msg){ .size = i % 3 ? 100 : 200000 };
	drive_any_order(true);
	both_up_as(v, FAR_ANY_ORDER);
	both_ways(v, m, 16, 1, NULL, 0);
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
		struct conn conn = conn_open(v, out);

		for (int round = 0; round < 8; round++) {
			int n = 1 + (int)chance(v, REQS_MAX);

			for (int i = 0; i < n; i++) {
				uint64_t most = UINT64_C(1) << (1 + chance(v, 19));

				m[i] = (struct msg){ .size = chance(v, most),
						     .tag = (int)chance(v, 3),
						     .skew = (unsigned)chance(v, 64) };
				m[i].room = m[i].size + chance(v, 200);
			}
			move(v, &conn, m, n, 1, NULL, chance(v, 2) ? MOVE_SEND_FIRST : 0);
		}
		conn_close(v, &conn);
	}
	saw(v, "seed %llu", (unsigned long long)v->seed);
}

/* A receive that is smaller than its message may fail, but may not write behind its buffer. */
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

const struct vcheck validate_data[] = {
	{ "data-zero", "Messages without bytes", BROKEN, zero, V_SOAK, 0 },
	{ "data-small", "From 1 to 65 bytes", BROKEN, small, V_SOAK, 0 },
	{ "data-line", "About 128 and 256 bytes", BROKEN, line, V_SOAK, 0 },
	{ "data-page", "About one page and two", BROKEN, page, V_SOAK, 0 },
	{ "data-middle", "From 16 to 64 KiB", BROKEN, middle, V_SOAK, 0 },
	{ "data-large", "From 256 KiB to 4 MiB", BROKEN, large, V_SOAK, 0 },
	{ "data-huge", "64 MiB", BROKEN, huge, V_FULL, 60 },
	{ "data-1g", "1 GiB", BROKEN, gigabyte, V_FULL, 120 },
	{ "data-2g", "More than 2 GiB, in one message", BROKEN, over_2g, V_FULL, 300 },
	{ "data-unaligned", "From and to any address", BROKEN, unaligned, V_SOAK, 0 },
	{ "data-smaller", "Messages smaller than their place: nothing behind is written", BROKEN,
	  smaller, V_SOAK, 0 },
	{ "data-larger", "A message larger than its place does not overwrite its neighbour", BROKEN,
	  too_large, V_HERE, 0 },
	{ "data-lines", "Whole lines of 128 bytes", BROKEN, lines, V_SOAK, 0 },
	{ "data-inflight", "32 small messages under way", BROKEN, inflight, V_SOAK, 0 },
	{ "data-inflight-large", "32 large messages under way", BROKEN, inflight_large, V_SOAK,
	  40 },
	{ "data-group", "One grouped receive, its messages in any order", BROKEN, groups, V_SOAK,
	  0 },
	{ "data-groups", "Several grouped receives under way", BROKEN, groups_many, V_SOAK, 0 },
	{ "data-groups-large", "Grouped receives of large messages", BROKEN, groups_large, V_SOAK,
	  0 },
	{ "data-tags",
	  "More than NCCL asks: receives in another order than sends, by their tags", MORE, tags,
	  V_SOAK | V_MORE, 0 },
	{ "data-any-order", "More than NCCL asks: requests are tested in any order", MORE,
	  any_order, V_SOAK | V_MORE, 0 },
	{ "data-same-tag", "Messages of one tag arrive in their order", BROKEN, same_tag, V_SOAK,
	  0 },
	{ "data-overtake", "Small messages do not overtake large ones of their tag", BROKEN,
	  overtaking, V_SOAK, 0 },
	{ "data-send-first", "Sends before their receives are posted", BROKEN, send_first, V_SOAK,
	  0 },
	{ "data-no-sizes", "test() without room for sizes", REPORT, no_sizes, V_SOAK, 0 },
	{ "data-optional", "Receives whose completion NCCL does not need", REPORT, optional, V_SOAK,
	  0 },
	{ "data-random", "Any sizes, tags and places", BROKEN, at_random, V_SOAK, 40 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
