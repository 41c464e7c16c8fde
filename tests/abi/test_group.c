/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_group.c - grouped receives: one request, up to eight buffers, each with its tag.
 *
 * NCCL posts them on comms that several ranks share.  The k-th send with a tag meets the k-th
 * entry with that tag.  Sends of different tags come in any order, may come before their receive,
 * and may be several groups ahead of each other.  The request is done when every entry is done, and
 * returns the size of each.
 */
#include "tests/abi/abi.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH = 6 };

/* One group of n messages, sent in another order, before or after the receive is posted. */
static void one_group(struct abi *t, struct net *net, const struct pair *p, unsigned n,
		      size_t room_max)
{
	struct op ops[1 + RECVS_MAX];
	struct buf from[RECVS_MAX], to[RECVS_MAX];
	size_t sent[RECVS_MAX];
	unsigned tags[64], order[RECVS_MAX], seed = rnd_below(t, 1 << 30);
	bool recv_first = rnd_below(t, 2);

	shuffle(t, tags, 64);
	shuffle(t, order, n);
	ops[0] = op_group(net, p->recv);
	for (unsigned i = 0; i < n; i++) {
		size_t room = rnd_below(t, (unsigned)room_max);

		sent[i] = rnd_below(t, (unsigned)room + 1);
		to[i] = buf_new(net, p->recv, room, i);
		from[i] = buf_new(net, p->send, sent[i], 64 - i);
		fill(from[i].data, sent[i], seed + i);
		op_add(&ops[0], &to[i], room, (int)tags[i]);
	}
	for (unsigned k = 0; k < n; k++) {
		unsigned i = order[k];

		ops[1 + k] = op_send(net, p->send, &from[i], sent[i], (int)tags[i]);
	}
	if (recv_first)
		ops_post(&ops[0], 1);
	else
		ops_post(&ops[1], n);
	ops_run(ops, 1 + n);
	for (unsigned i = 0; i < n; i++) {
		EQ(sent[i], ops[0].got[i]);
		filled(to[i].data, sent[i], seed + i);
		buf_free(net, &from[i]);
		buf_free(net, &to[i]);
	}
}

static void any_order(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;

	pair_open(net, &p);
	for (unsigned n = 1; n <= RECVS_MAX; n++)
		for (int i = 0; i < (t->newest ? 60 : 5); i++)
			one_group(t, net, &p, n, i % 4 ? 5000 : 300000);
	pair_close(net, &p);
	abi_down(net);
}

/* DEPTH groups under way with the same tags, whose ranks do not keep step with each other. */
static void ahead_of_each_other(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;

	pair_open(net, &p);
	for (int round = 0; round < (t->newest ? 20 : 3); round++) {
		struct op ops[DEPTH + DEPTH * RECVS_MAX];
		struct buf from[RECVS_MAX][DEPTH], to[RECVS_MAX][DEPTH];
		unsigned sent[RECVS_MAX] = { 0 }, nops = 0, order[RECVS_MAX];

		for (unsigned g = 0; g < DEPTH; g++) {
			struct op *group = &ops[nops++];

			*group = op_group(net, p.recv);
			shuffle(t, order, RECVS_MAX);
			for (unsigned i = 0; i < RECVS_MAX; i++) {
				unsigned tag = order[i];
				size_t size = rnd_below(t, tag == 3 ? 200000 : 2000);

				to[tag][g] = buf_new(net, p.recv, size, 0);
				from[tag][g] = buf_new(net, p.send, size, 0);
				fill(from[tag][g].data, size, tag * 100 + g);
				op_add(group, &to[tag][g], size, (int)tag);
			}
		}
		while (nops < DEPTH + DEPTH * RECVS_MAX) {
			unsigned tag = rnd_below(t, RECVS_MAX);
			unsigned g = sent[tag];

			if (g == DEPTH)
				continue;
			sent[tag]++;
			ops[nops++] = op_send(net, p.send, &from[tag][g], from[tag][g].size,
					      (int)tag);
		}
		ops_run(ops, nops);
		for (unsigned tag = 0; tag < RECVS_MAX; tag++) {
			for (unsigned g = 0; g < DEPTH; g++) {
				filled(to[tag][g].data, to[tag][g].size, tag * 100 + g);
				buf_free(net, &from[tag][g]);
				buf_free(net, &to[tag][g]);
			}
		}
	}
	pair_close(net, &p);
	abi_down(net);
}

/* Groups with tags {1,2}, {2}, {1,2,2}: the k-th send with tag 2 meets the k-th entry with tag 2. */
static void kth_meets_kth(struct abi *t)
{
	static const int tags[] = { 1, 2, 2, 1, 2, 2 };
	static const int first[] = { 0, 2, 3, 6 };	/* index of each group's first entry */
	static const int order[] = { 1, 2, 4, 5, 0, 3 };	/* all tags 2 before any 1 */
	struct net *net = abi_up(t);
	struct pair p;
	struct op ops[3 + 6];
	struct buf from[6], to[6];

	pair_open(net, &p);
	for (int i = 0; i < 6; i++) {
		size_t size = 1000 + (size_t)i;

		to[i] = buf_new(net, p.recv, 2000, 0);
		from[i] = buf_new(net, p.send, size, 0);
		fill(from[i].data, size, (uint64_t)i);
	}
	for (int g = 0; g < 3; g++) {
		ops[g] = op_group(net, p.recv);
		for (int i = first[g]; i < first[g + 1]; i++)
			op_add(&ops[g], &to[i], 2000, tags[i]);
	}
	for (int k = 0; k < 6; k++) {
		int i = order[k];

		ops[3 + k] = op_send(net, p.send, &from[i], from[i].size, tags[i]);
	}
	ops_run(ops, 9);
	for (int g = 0; g < 3; g++) {
		for (int i = first[g]; i < first[g + 1]; i++) {
			EQ(1000 + i, ops[g].got[i - first[g]]);
			filled(to[i].data, 1000 + (size_t)i, (uint64_t)i);
		}
	}
	for (int i = 0; i < 6; i++) {
		buf_free(net, &from[i]);
		buf_free(net, &to[i]);
	}
	pair_close(net, &p);
	abi_down(net);
}

static void not_before_the_last(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;
	struct op group, sends[4];
	struct buf from[4], to[4];
	uint64_t until;

	pair_open(net, &p);
	group = op_group(net, p.recv);
	for (int i = 0; i < 4; i++) {
		to[i] = buf_new(net, p.recv, 500, 0);
		from[i] = buf_new(net, p.send, 500, 0);
		fill(from[i].data, 500, (uint64_t)i);
		op_add(&group, &to[i], 500, i);
		sends[i] = op_send(net, p.send, &from[i], 500, i);
	}
	ops_post(&group, 1);
	ops_run(&sends[1], 3);
	until = now_us() + 30000;
	while (now_us() < until)
		TRUE(!op_test(&group));
	ops_run(&sends[0], 1);
	ops_run(&group, 1);
	for (int i = 0; i < 4; i++) {
		filled(to[i].data, 500, (uint64_t)i);
		buf_free(net, &from[i]);
		buf_free(net, &to[i]);
	}
	pair_close(net, &p);
	abi_down(net);
}

/* As many requests as NCCL may have outstanding on one comm are posted before any is tested. */
static void full_house(struct abi *t)
{
	enum { N = REQS_MAX * RECVS_MAX, SIZE = 3000 };
	struct net *net = abi_up(t);
	struct op *recvs = calloc(REQS_MAX + N, sizeof(*recvs)), *sends = recvs + REQS_MAX;
	unsigned order[RECVS_MAX];
	struct buf from, to;
	struct pair p;

	TRUE(recvs);
	pair_open(net, &p);
	from = buf_new(net, p.send, (size_t)N * SIZE, 0);
	to = buf_new(net, p.recv, (size_t)N * SIZE, 0);
	for (unsigned round = 0; round < (t->newest ? 6 : 2); round++) {
		fill(from.data, from.size, round);
		blank(to.data, to.size);
		for (unsigned g = 0; g < REQS_MAX; g++) {
			recvs[g] = op_group(net, p.recv);
			shuffle(t, order, RECVS_MAX);
			for (unsigned i = 0; i < RECVS_MAX; i++) {
				unsigned at = g * RECVS_MAX + i;

				op_add(&recvs[g], &to, SIZE, (int)i);
				recvs[g].data[i] = to.data + (size_t)at * SIZE;
				at = g * RECVS_MAX + order[i];
				sends[g * RECVS_MAX + i] =
					op_send(net, p.send, &from, SIZE, (int)order[i]);
				sends[g * RECVS_MAX + i].data[0] = from.data + (size_t)at * SIZE;
			}
		}
		if (round % 2) {
			ops_post(sends, N);
			ops_post(recvs, REQS_MAX);
		} else {
			ops_post(recvs, REQS_MAX);
			ops_post(sends, N);
		}
		ops_run(recvs, REQS_MAX + N);
		filled(to.data, to.size, round);
	}
	buf_free(net, &from);
	buf_free(net, &to);
	free(recvs);
	pair_close(net, &p);
	abi_down(net);
}

static void one_too_large(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;
	struct op ops[4];
	struct buf from, to;

	warns_expected();
	pair_open(net, &p);
	from = buf_new(net, p.send, 1000, 0);
	to = buf_new(net, p.recv, 900, 0);
	ops[0] = op_group(net, p.recv);
	for (int i = 0; i < 3; i++) {
		op_add(&ops[0], &to, 300, i);
		ops[0].data[i] = to.data + 300 * i;
		ops[1 + i] = op_send(net, p.send, &from, i == 1 ? 301 : 300, i);
	}
	ops_settle(ops, 4);
	RES(ncclInvalidUsage, ops[0].res);
	buf_free(net, &from);
	buf_free(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

static void too_many(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;
	struct buf to;
	size_t sizes[RECVS_MAX + 1];
	int tags[RECVS_MAX + 1];
	void *data[RECVS_MAX + 1], *mrs[RECVS_MAX + 1], *req = NULL;

	warns_expected();
	pair_open(net, &p);
	to = buf_new(net, p.recv, 100, 0);
	for (int i = 0; i <= RECVS_MAX; i++) {
		sizes[i] = 10;
		tags[i] = i;
		data[i] = to.data + 10 * i;
		mrs[i] = to.mr;
	}
	TRUE(net_irecv(net, p.recv, RECVS_MAX + 1, data, sizes, tags, mrs, NULL, &req));
	TRUE(net_irecv(net, p.recv, -1, data, sizes, tags, mrs, NULL, &req));
	buf_free(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("groups of 1 to 8 take their tags in any order, with a size for each", any_order, .every = true),
	CASE("sends of one tag may be groups ahead of another's", ahead_of_each_other),
	CASE("the k-th send of a tag meets the k-th entry with it", kth_meets_kth),
	CASE("a group is not done before its last entry", not_before_the_last),
	CASE("32 receives of 8 and their 256 sends are all taken before one is tested",
	     full_house),
	CASE("one entry too small fails the group", one_too_large),
	CASE("a group of 9 or of -1 is refused", too_many),
};

ABI_MAIN(cases)
