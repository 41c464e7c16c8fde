/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_order.c - bytes become visible in an order that a GPU polling them can trust.
 *
 * NCCL's LL and LL128 protocols do not wait for test(): a kernel polls the buffer itself.  LL
 * looks at 8-byte words, 4 bytes of data before 4 of flag.  LL128 looks at the last 8 bytes of a
 * line of 128 and, once its flag is there, uses the other 120.  Here a thread stands
 * in for the GPU while a large message comes in over several lanes.  In some rounds it watches a
 * place that is about to be written, in others it looks at all places.
 *
 * LL's order must hold without exception.  LL128's can't, on a transport whose bytes the kernel
 * copies: on processors with fast short string moves (fsrm) a plain recv() in pieces of 4 KiB,
 * with no plugin at all, shows some 10 of a million flags before the first word of their line
 * (measured on a Xeon, Linux 6.18; none of 7 million with whole recv()s).  NCCL knows: it does
 * not offer LL128 to host memory by default.  Data that such a copy writes after its flag follows at
 * once.  It is counted and printed, and over UCX, which copies by itself, never fails the case.  A
 * line cut in two by a chunk's end waits for another packet or lane: that fails.
 */
#include "tests/abi/abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 16, LINES = 24576, BYTES = LINES * WORDS * 8 };	/* 3 MiB */
enum { STRAY_US = 20 };

struct poller {
	const uint64_t *words;
	atomic_uint round;		/* the message to look for; 0: stop */
	atomic_uint seen;		/* the round of which every line has been seen */
	unsigned early;			/* flags that were there before their data, */
	unsigned late;			/* and of those, data that took longer than STRAY_US */
	unsigned watched;		/* flags that were not there yet at the first look */
	bool words_only;		/* LL instead of LL128 */
	bool checked[LINES * WORDS];
};

static uint64_t word_of(unsigned round, size_t i)
{
	return (i + 1) * 0x9e3779b97f4a7c15 ^ (uint64_t)round << 32;
}

/* A word of LL: data and flag, four bytes each. */
static uint64_t half_of(unsigned round, size_t i)
{
	uint64_t half = (uint32_t)(i * 2654435761u) ^ (round << 24);

	return half << 32 | half;
}

static uint64_t load(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

/* The flag of the line is there: is all of its data there too? */
static bool line_whole(const uint64_t *line, unsigned round, size_t l)
{
	for (size_t i = 0; i < WORDS - 1; i++)
		if (load(&line[i]) != word_of(round, l * WORDS + i))
			return false;
	return true;
}

/* Is the flag of place i there, a word of LL or a line of LL128?  It must not come before the data. */
static bool flag_there(const struct poller *p, unsigned round, size_t i)
{
	if (p->words_only)
		return load(&p->words[i]) >> 32 == half_of(round, i) >> 32;
	i = i * WORDS + WORDS - 1;
	return load(&p->words[i]) == word_of(round, i);
}

static bool data_there(const struct poller *p, unsigned round, size_t i)
{
	if (p->words_only)
		return load(&p->words[i]) == half_of(round, i);
	return line_whole(p->words + i * WORDS, round, i);
}

static void check_place(struct poller *p, unsigned round, size_t i)
{
	uint64_t until;

	if (data_there(p, round, i))
		return;
	until = now_us() + STRAY_US;
	p->early++;
	while (now_us() <= until && !data_there(p, round, i))
		;
	p->late += !data_there(p, round, i);
}

/*
 * Watches one place until its flag is there, then one further on.  A thread that looked at every place
 * would fall behind the writer at once, and would see only finished lines.
 */
static void watch(struct poller *p, unsigned round, size_t n, bool backward)
{
	for (size_t k = round % 64; k < n; k += 1 + k * 2654435761u % 127) {
		size_t i = backward ? n - 1 - k : k;

		p->watched += !flag_there(p, round, i);
		while (!flag_there(p, round, i))
			if (p->round != round)
				return;
		check_place(p, round, i);
	}
}

/* Looks at all places again and again; checks each once, when its flag is there. */
static void sweep(struct poller *p, unsigned round, size_t n)
{
	size_t left = n;

	memset(p->checked, 0, n);
	while (left && p->round == round) {
		for (size_t i = 0; i < n; i++) {
			if (p->checked[i] || !flag_there(p, round, i))
				continue;
			check_place(p, round, i);
			p->checked[i] = true;
			left--;
		}
	}
}

static void poll_round(struct poller *p, unsigned round)
{
	size_t n = p->words_only ? LINES * WORDS : LINES;

	if (round % 4 == 0)
		sweep(p, round, n);
	else
		watch(p, round, n, round % 2);
}

static void *poller_main(void *arg)
{
	struct poller *p = arg;
	unsigned done = 0, round;

	while ((round = p->round)) {
		if (round == done)
			continue;
		poll_round(p, round);
		done = round;
		p->seen = round;
	}
	return NULL;
}

static void order_send(struct abi *t, int fd, bool words_only)
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
			words[i] = words_only ? half_of(round, i) : word_of(round, i);
		meet(fd);
		ops_run(&op, 1);
	}
	meet(fd);
	buf_free(net, &b);
	OK(net_close_send(net, send));
	abi_down(net);
}

static void order_recv(struct abi *t, int fd, bool words_only)
{
	static struct poller p;
	struct net *net;
	void *recv;
	struct buf b;
	pthread_t thread;

	setenv("BRAID_LANES", "4", 1);
	net = abi_up(t);
	recv = recv_from(net, fd);
	p.words_only = words_only;
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
	TRUE(p.watched > 0);
	if (p.early)
		printf("v%d: %u of %u flags watched were there before their data\n", t->abi,
		       p.early, p.watched);
	/* UCX copies in an order of its own (docs/user/ucx.md). */
	if (!getenv("BRAID_TEST_UCX") && (p.late || p.early > 1 + p.watched / 8))
		FAIL("of %u flags watched %u were there before their data, %u long before",
		     p.watched, p.early, p.late);
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
	CASE("the last 8 bytes of a line of 128 are not seen before the rest", lines),
	CASE("the second half of a word of 8 bytes is not seen before the first", words),
};

ABI_MAIN(cases)
