/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_order.c - bytes become visible in an order that a GPU polling them can trust.
 *
 * NCCL's LL and LL128 protocols do not wait for test(): a kernel polls the buffer itself.  LL128
 * looks at the last 8 bytes of a line of 128 and, once its flag is there, takes the other 120
 * for arrived.  LL looks at 8-byte words, half data and half flag, which must arrive whole.  Here
 * a thread stands in for the GPU while a large message comes in over several lanes.
 */
#include "tests/abi/abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 16, LINES = 24576, BYTES = LINES * WORDS * 8 };	/* 3 MiB */

struct poller {
	const uint64_t *words;
	atomic_uint round;		/* the message to look for; 0: stop */
	atomic_uint seen;		/* the round of which every line has been seen */
	atomic_uint early, torn;	/* flags before their data; halves that differ */
	unsigned during;		/* lines seen before the last: it did run alongside */
	bool whole_words;		/* LL instead of LL128 */
};

static uint64_t word_of(unsigned round, size_t i)
{
	return (i + 1) * 0x9e3779b97f4a7c15 ^ (uint64_t)round << 32;
}

/* Both halves say which round it is. */
static uint64_t half_of(unsigned round, size_t i)
{
	uint64_t half = (uint32_t)(i * 2654435761u) ^ (round << 24);

	return half << 32 | half;
}

static uint64_t load(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* The flag is there: is what came before it? */
static bool line_whole(const uint64_t *line, unsigned round, size_t l)
{
	for (size_t i = 0; i < WORDS - 1; i++)
		if (load(&line[i]) != word_of(round, l * WORDS + i))
			return false;
	return true;
}

static void poll_lines(struct poller *p, unsigned round)
{
	for (size_t l = 0; l < LINES && p->round == round; l++) {
		const uint64_t *line = p->words + l * WORDS;

		while (load(&line[WORDS - 1]) != word_of(round, l * WORDS + WORDS - 1))
			if (p->round != round)
				return;
		p->early += !line_whole(line, round, l);
		p->during++;
	}
}

static void poll_words(struct poller *p, unsigned round)
{
	for (size_t i = 0; i < LINES * WORDS && p->round == round; i++) {
		uint64_t x = load(&p->words[i]);

		while ((uint32_t)x != (uint32_t)half_of(round, i)) {
			p->torn += (uint32_t)x != x >> 32;
			if (p->round != round)
				return;
			x = load(&p->words[i]);
		}
		p->torn += (uint32_t)x != x >> 32;
		p->during++;
	}
}

static void *poller_main(void *arg)
{
	struct poller *p = arg;
	unsigned done = 0, round;

	while ((round = p->round)) {
		if (round == done)
			continue;
		if (p->whole_words)
			poll_words(p, round);
		else
			poll_lines(p, round);
		done = round;
		p->seen = round;
	}
	return NULL;
}

static void order_send(struct abi *t, int fd, bool whole_words)
{
	struct net *net;
	void *send;
	struct buf b;

	setenv("BRAID_LANES", "4", 1);
	net = abi_up(t);
	send = send_to(net, fd);
	b = buf_new(net, send, BYTES, 0);
	for (unsigned round = 1; round <= (t->newest ? 40 : 4); round++) {
		struct op op = op_send(net, send, &b, BYTES, 0);
		uint64_t *words = (uint64_t *)(void *)b.data;

		for (size_t i = 0; i < LINES * WORDS; i++)
			words[i] = whole_words ? half_of(round, i) : word_of(round, i);
		meet(fd);
		ops_run(&op, 1);
	}
	meet(fd);
	buf_free(net, &b);
	OK(net_close_send(net, send));
	abi_down(net);
}

static void order_recv(struct abi *t, int fd, bool whole_words)
{
	struct poller p = { .whole_words = whole_words };
	struct net *net;
	void *recv;
	struct buf b;
	pthread_t thread;

	setenv("BRAID_LANES", "4", 1);
	net = abi_up(t);
	recv = recv_from(net, fd);
	b = buf_new(net, recv, BYTES, 0);
	memset(b.data, 0, BYTES);
	p.words = (const uint64_t *)(const void *)b.data;
	p.round = 1;
	TRUE(!pthread_create(&thread, NULL, poller_main, &p));
	for (unsigned round = 1; round <= (t->newest ? 40 : 4); round++) {
		struct op op = op_recv(net, recv, &b, BYTES, 0);

		p.round = round;
		meet(fd);
		ops_run(&op, 1);
		WAIT_FOR(p.seen == round);
	}
	p.round = 0;
	pthread_join(thread, NULL);
	meet(fd);
	TRUE(p.during > 0);
	if (p.early || p.torn)
		FAIL("%u lines had their flag before their data, %u words came in halves", p.early,
		     p.torn);
	buf_free(net, &b);
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static void lines_peer(struct abi *t, int fd)
{
	order_send(t, fd, false);
}

static void lines(struct abi *t)
{
	struct peer peer = peer_start(t, lines_peer);

	order_recv(t, peer.fd, false);
	peer_join(&peer);
}

static void words_peer(struct abi *t, int fd)
{
	order_send(t, fd, true);
}

static void words(struct abi *t)
{
	struct peer peer = peer_start(t, words_peer);

	order_recv(t, peer.fd, true);
	peer_join(&peer);
}

static const struct abi_case cases[] = {
	CASE("the last 8 bytes of a 128-byte line are not seen before the rest", lines,
	     .seconds = 60),
	CASE("an aligned word of 8 bytes is never seen in halves", words, .seconds = 60),
};

ABI_MAIN(cases)
