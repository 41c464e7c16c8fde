/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_loss.c - connections are lost under load, and nothing else is.
 *
 * One of two processes shuts some of its own sockets, or all, at moments that follow from the
 * seed, while both send messages of all sizes to each other and check every byte.
 */
#include "tests/abi/abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum {
	DEPTH = 4, ROUNDS = 400, MOST = 1 << 20,
	BETWEEN = 32,			/* messages between two losses, over RDMA */
};

static const size_t sizes[] = { 8, 0, 5000, 65536, 8193, 300001, 64, MOST };

static struct {
	struct abi *t;
	unsigned one_in;		/* of the sockets, 1: all */
	unsigned most;			/* of them, 0: any number */
	unsigned shut;
} killer;

static bool shut_some(int fd)
{
	if (rnd_below(killer.t, killer.one_in) || (killer.most && killer.shut == killer.most))
		return false;
	shutdown(fd, SHUT_RDWR);
	killer.shut++;
	return true;
}

struct talk {
	void *comm;
	struct buf buf[DEPTH];
	struct op op[DEPTH];
	uint64_t next[DEPTH];		/* number of the message in each */
	bool is_recv;
};

static size_t size_of(uint64_t i)
{
	return sizes[i * 2654435761u % 4294967296u >> 13 & 7];
}

static void again(struct net *net, struct talk *k, unsigned i)
{
	size_t size = size_of(k->next[i]);

	if (k->is_recv) {
		k->op[i] = op_recv(net, k->comm, &k->buf[i], MOST, 0);
	} else {
		fill(k->buf[i].data, size, k->next[i]);
		k->op[i] = op_send(net, k->comm, &k->buf[i], size, 0);
	}
}

static void talk_new(struct net *net, struct talk *k, void *comm, bool is_recv)
{
	k->comm = comm;
	k->is_recv = is_recv;
	for (unsigned i = 0; i < DEPTH; i++) {
		k->buf[i] = buf_new(net, comm, MOST, i);
		k->next[i] = i;
		again(net, k, i);
	}
}

/* In the order in which they were posted; true when all rounds are through. */
static bool talk_step(struct net *net, struct talk *k, uint64_t *oldest)
{
	while (*oldest < (uint64_t)ROUNDS * DEPTH) {
		unsigned i = *oldest % DEPTH;

		for (unsigned n = 0; n < DEPTH && *oldest + n < (uint64_t)ROUNDS * DEPTH; n++) {
			unsigned o = (unsigned)((*oldest + n) % DEPTH);

			if (!k->op[o].posted && !op_post(&k->op[o]))
				break;
		}
		if (!k->op[i].posted || !op_test(&k->op[i]))
			return false;
		OK(k->op[i].res);
		if (k->is_recv) {
			EQ(size_of(k->next[i]), k->op[i].got[0]);
			filled(k->buf[i].data, size_of(k->next[i]), k->next[i]);
		}
		k->next[i] += DEPTH;
		again(net, k, i);
		++*oldest;
	}
	return true;
}

static void talk_free(struct net *net, struct talk *k)
{
	for (unsigned i = 0; i < DEPTH; i++)
		buf_free(net, &k->buf[i]);
}

static void both_ways(struct abi *t, struct net *net, void *send, void *recv, bool kills)
{
	static struct talk out, in;
	uint64_t out_n = 0, in_n = 0, end = deadline_ms(60000), next = now_us() + 5000, had = 0;
	bool done = false;

	talk_new(net, &out, send, false);
	talk_new(net, &in, recv, true);
	while (!done) {
		done = talk_step(net, &out, &out_n);
		done = talk_step(net, &in, &in_n) && done;
		/* A queue pair takes some drivers 100 ms, and only what is up can be lost. */
		if (kills && now_us() >= next && (!over_rdma() || out_n + in_n >= had + BETWEEN)) {
			count_streams(shut_some);
			had = out_n + in_n;
			next = now_us() + 1000 + rnd_below(t, 20000);
		}
		wait_tick(end, __FILE__, __LINE__, "all messages");
	}
	talk_free(net, &out);
	talk_free(net, &in);
}

static void other(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);

	both_ways(t, net, send, recv, false);
	meet(fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
}

/* Descriptors that are open stay so; there will be no new ones, or there will again. */
static void descriptors(bool more)
{
	struct rlimit lim;

	TRUE(!getrlimit(RLIMIT_NOFILE, &lim));
	lim.rlim_cur = more ? lim.rlim_max : 3;
	TRUE(!setrlimit(RLIMIT_NOFILE, &lim));
}

static void stuck_other(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);

	warns_expected();
	meet(fd);
	descriptors(false);
	both_ways(t, net, send, recv, false);
	meet(fd);
	descriptors(true);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static bool any_stream(int fd)
{
	(void)fd;
	return true;
}

/* All but one of the lanes go, home among them, for good: the job goes on over the last. */
static void all_but_one(struct abi *t)
{
	struct peer peer;
	struct net *net;
	void *send, *recv;

	if (getenv("BRAID_TEST_UCX"))
		skip_because("UCX does not do without descriptors: docs/user/ucx.md");
	streams_are_ours();
	setenv("BRAID_LANES", "4", 1);
	peer = peer_start(t, stuck_other);
	net = abi_up(t);
	recv = recv_from(net, peer.fd);
	send = send_to(net, peer.fd);
	warns_expected();
	WAIT_FOR(count_streams(any_stream) == 4);
	nap_ms(50);
	meet(peer.fd);
	descriptors(false);
	killer.t = t;
	killer.one_in = 1;
	killer.most = 3;
	both_ways(t, net, send, recv, true);
	EQ(3, killer.shut);
	meet(peer.fd);
	descriptors(true);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	peer_join(&peer);
}

static void lose(struct abi *t, const char *lanes, unsigned one_in)
{
	struct peer peer;
	struct net *net;
	void *send, *recv;

	streams_are_ours();
	setenv("BRAID_LANES", lanes, 1);
	peer = peer_start(t, other);
	net = abi_up(t);
	recv = recv_from(net, peer.fd);
	send = send_to(net, peer.fd);
	killer.t = t;
	killer.one_in = one_in;
	both_ways(t, net, send, recv, true);
	printf("v%d: %u sockets of %s lanes were shut while %d messages went each way\n", t->abi,
	       killer.shut, lanes, ROUNDS * DEPTH);
	TRUE(killer.shut > 5);
	meet(peer.fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	peer_join(&peer);
}

static void only_lane(struct abi *t)
{
	lose(t, "1", 1);
}

static void some_lanes(struct abi *t)
{
	lose(t, "4", 3);
}

static void all_lanes(struct abi *t)
{
	lose(t, "4", 1);
}

static const struct abi_case cases[] = {
	CASE("the only lane is lost again and again, and nothing else", only_lane, ONCE),
	CASE("some of four lanes are lost, and nothing else", some_lanes, ONCE),
	CASE("all of four lanes are lost, and nothing else", all_lanes, ONCE),
	CASE("three of four are lost for good, home among them, and nothing else", all_but_one, ONCE),
};

ABI_MAIN(cases)
