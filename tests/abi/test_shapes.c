/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_shapes.c - the system calls behind a message: how many, and how large.
 *
 * Small messages cost what their system calls cost, so the number of calls is promised: one to send
 * and one to receive a message that the caller waits for, and fewer calls than messages when several
 * are sent at once.  Acknowledgements and the service thread's frames add to that; they are bounded
 * here too.
 */
#include "tests/abi/abi.h"
#include "tests/lib/count.h"

#include <stdio.h>
#include <stdlib.h>

enum { SMALL = 8, ROUNDS = 500, TRIES = 20, BURST = 8, BURSTS = 500,
       TICK_MS = 2 };			/* of the service thread */

/*
 * Calls test() until all are done, as an otherwise idle proxy does.  It does not pause after each
 * call, because the service thread might do the work in the pause.
 */
static void finish(struct op *ops, size_t n)
{
	uint64_t end = deadline_ms(drive_hang_ms);

	for (size_t i = 0; i < n; i++) {
		for (unsigned asked = 1; !ops[i].done && !op_test(&ops[i]); asked++) {
			if (asked % 100 == 0)
				wait_tick(end, __FILE__, __LINE__, "a message");
		}
		OK(ops[i].res);
	}
}

/* Calls and bytes of a handshake, whose end may come after connect() and accept() have returned. */
enum { HANDSHAKE_CALLS = 16, HANDSHAKE_BYTES = 4096 };

/* Over RDMA only the handshake goes through a socket (tests/rdma/test_counts counts RDMA's calls). */
static uint64_t at_most(uint64_t over_tcp)
{
	return over_rdma() ? HANDSHAKE_CALLS : over_tcp;
}

/* -- one at a time ---------------------------------------------------------------------------- */

struct end {
	struct net *net;
	void *send, *recv;
	struct buf out, in;
};

static void end_up(struct end *e, struct abi *t, int fd, bool first, size_t size)
{
	e->net = abi_up(t);
	if (first) {
		e->recv = recv_from(e->net, fd);
		e->send = send_to(e->net, fd);
	} else {
		e->send = send_to(e->net, fd);
		e->recv = recv_from(e->net, fd);
	}
	e->out = buf_new(e->net, e->send, size, 0);
	e->in = buf_new(e->net, e->recv, size, 0);
}

static void end_down(struct end *e, int fd)
{
	meet(fd);
	buf_free(e->net, &e->out);
	buf_free(e->net, &e->in);
	OK(net_close_send(e->net, e->send));
	OK(net_close_recv(e->net, e->recv));
	abi_down(e->net);
}

/* Messages to the peer and back; each receive is posted before its message can arrive. */
static void ping(struct end *e, unsigned rounds, bool first)
{
	for (unsigned i = 0; i < rounds; i++) {
		struct op in = op_recv(e->net, e->recv, &e->in, SMALL, 0);
		struct op out = op_send(e->net, e->send, &e->out, SMALL, 0);

		ops_post(&in, 1);
		if (!first)
			finish(&in, 1);
		ops_post(&out, 1);
		finish(&out, 1);
		if (first)
			finish(&in, 1);
	}
}

/* Answers pings until the other end asks for no more. */
static void pongs(struct end *e, int fd)
{
	char more = 1;

	while (more) {
		ping(e, ROUNDS, false);
		take(fd, &more, 1);
	}
}

static void pong_body(struct abi *t, int fd)
{
	struct end e = { 0 };

	end_up(&e, t, fd, false, SMALL);
	pongs(&e, fd);
	end_down(&e, fd);
}

struct shape {
	struct calls mine, all;
	uint64_t us;
};

static struct shape ping_shape(struct end *e)
{
	struct shape s = { .mine = calls_mine(), .all = calls_all(), .us = now_us() };

	ping(e, ROUNDS, true);
	s.us = now_us() - s.us;
	s.mine = calls_since(calls_mine(), s.mine);
	s.all = calls_since(calls_all(), s.all);
	return s;
}

/*
 * The service thread sends what is not urgent, every TICK_MS, so a slow run has more calls.  The best
 * of several runs shows the cost of a message; each tick may have added a call to it.
 */
static void per_message(struct abi *t)
{
	struct peer peer = peer_start(t, pong_body);
	struct shape s, best = { .all.sends = UINT64_MAX };
	struct end e = { 0 };
	uint64_t most;
	char more = 1;

	end_up(&e, t, peer.fd, true, SMALL);
	for (int tries = TRIES; more; tries--) {
		s = ping_shape(&e);
		EQ(0, s.mine.waits);
		if (s.all.sends < best.all.sends)
			best = s;
		more = tries > 1 && best.all.sends > ROUNDS + ROUNDS / 100;
		give(peer.fd, &more, 1);
	}
	printf("v%d: %d round trips of %d bytes in %llu us: %.3f sends, %.3f receives, %.1f that found "
	       "nothing each; %.3f sends and %.3f receives by all threads\n", t->abi, ROUNDS, SMALL,
	       (unsigned long long)best.us, (double)best.mine.sends / ROUNDS,
	       (double)best.mine.recvs / ROUNDS, (double)best.mine.empty / ROUNDS,
	       (double)best.all.sends / ROUNDS, (double)best.all.recvs / ROUNDS);
	most = at_most(ROUNDS + ROUNDS / 20 + best.us / (TICK_MS * 1000));
	if (best.all.sends > most)
		FAIL("%llu sends for %d messages", (unsigned long long)best.all.sends, ROUNDS);
	if (best.all.recvs > most)
		FAIL("%llu receives for %d messages", (unsigned long long)best.all.recvs, ROUNDS);
	end_down(&e, peer.fd);
	peer_join(&peer);
}

/* -- several in one go ------------------------------------------------------------------------ */

static void burst_in(struct end *e, unsigned bursts)
{
	for (unsigned i = 0; i < bursts; i++) {
		struct op in[BURST], out = op_send(e->net, e->send, &e->out, SMALL, 0);

		for (int k = 0; k < BURST; k++)
			in[k] = op_recv(e->net, e->recv, &e->in, SMALL, k);
		ops_post(in, BURST);
		finish(in, BURST);
		ops_post(&out, 1);
		finish(&out, 1);
	}
}

static void burst_body(struct abi *t, int fd)
{
	struct end e = { 0 };
	struct calls c;

	end_up(&e, t, fd, false, SMALL);
	burst_in(&e, 100);
	meet(fd);
	c = calls_all();
	burst_in(&e, BURSTS);
	c = calls_since(calls_all(), c);
	printf("v%d: bursts of %d: %.3f receives for each burst\n", t->abi, BURST,
	       (double)c.recvs / BURSTS);
	if (c.recvs > at_most(BURSTS * (BURST / 2)))
		FAIL("%llu receives for %d bursts of %d", (unsigned long long)c.recvs, BURSTS, BURST);
	end_down(&e, fd);
}

static void burst_out(struct end *e, unsigned bursts)
{
	for (unsigned i = 0; i < bursts; i++) {
		struct op out[BURST], in = op_recv(e->net, e->recv, &e->in, SMALL, 0);

		for (int k = 0; k < BURST; k++)
			out[k] = op_send(e->net, e->send, &e->out, SMALL, k);
		ops_post(&in, 1);
		ops_post(out, BURST);
		finish(out, BURST);
		finish(&in, 1);
	}
}

static void per_burst(struct abi *t)
{
	struct peer peer = peer_start(t, burst_body);
	struct end e = { 0 };
	struct calls c;

	end_up(&e, t, peer.fd, true, SMALL);
	burst_out(&e, 100);
	meet(peer.fd);
	c = calls_all();
	burst_out(&e, BURSTS);
	c = calls_since(calls_all(), c);
	printf("v%d: bursts of %d messages of %d bytes: %.3f sends for each burst\n", t->abi, BURST,
	       SMALL, (double)c.sends / BURSTS);
	if (c.sends > at_most(BURSTS * (BURST / 2)))
		FAIL("%llu sends for %d bursts of %d", (unsigned long long)c.sends, BURSTS, BURST);
	end_down(&e, peer.fd);
	peer_join(&peer);
}

/* -- large ones ------------------------------------------------------------------------------- */

enum { LARGE = 4 << 20, LARGES = 8 };

static void large_body(struct abi *t, int fd)
{
	struct end e = { 0 };
	struct calls c = calls_mine();

	end_up(&e, t, fd, false, LARGE);
	for (int i = 0; i < LARGES; i++) {
		struct op in = op_recv(e.net, e.recv, &e.in, LARGE, 0);

		ops_run(&in, 1);
	}
	c = calls_since(calls_all(), c);
	printf("v%d: %d messages of %d MiB: %.1f KiB for each receive\n", t->abi, LARGES, LARGE >> 20,
	       (double)c.received / 1024 / (double)c.recvs);
	end_down(&e, fd);
}

/* Headers add at most 0.1 % to the data, and are sent with it. */
static void per_large(struct abi *t)
{
	struct peer peer = peer_start(t, large_body);
	struct end e = { 0 };
	struct calls c;

	end_up(&e, t, peer.fd, true, LARGE);
	c = calls_all();
	for (int i = 0; i < LARGES; i++) {
		struct op out = op_send(e.net, e.send, &e.out, LARGE, 0);

		ops_run(&out, 1);
	}
	c = calls_since(calls_all(), c);
	printf("v%d: %d messages of %d MiB: %.1f KiB for each send, %.3f %% beside the data\n", t->abi,
	       LARGES, LARGE >> 20, (double)c.sent / 1024 / (double)c.sends,
	       100.0 * ((double)c.sent / LARGE / LARGES - 1));
	if (over_rdma()) {
		TRUE(c.sent <= HANDSHAKE_BYTES);
	} else {
		TRUE(c.sent >= (uint64_t)LARGE * LARGES);
		TRUE(c.sent <= (uint64_t)LARGE * LARGES / 1000 * 1001);
	}
	end_down(&e, peer.fd);
	peer_join(&peer);
}

/* -- the service thread ----------------------------------------------------------------------- */

enum { LAST = 256 << 10, LOOKS_MS = 300, LEFT_MS = 32 };

static void silent_body(struct abi *t, int fd)
{
	struct end e = { 0 };

	end_up(&e, t, fd, false, LAST);
	pongs(&e, fd);
	for (int i = 0; i < 2; i++) {
		struct op in = op_recv(e.net, e.recv, &e.in, LAST, 0);

		ops_run(&in, 1);
	}
	end_down(&e, fd);		/* only once the other end's last message is acknowledged */
}

/* How often the service thread polls in LOOKS_MS of a ping-pong that lasts at least so long. */
static uint64_t looks(struct end *e, int fd, bool last)
{
	uint64_t before = calls_all().waits, from = now_us(), took;
	bool over;
	char more;

	do {
		ping(e, ROUNDS, true);
		took = now_us() - from;
		over = took >= LOOKS_MS * 1000;
		more = !(last && over);
		give(fd, &more, 1);
	} while (!over);
	return (calls_all().waits - before) * LOOKS_MS * 1000 / took;
}

/*
 * During a ping-pong the service thread rarely polls.  Yet when the receiver then stops calling, the
 * service thread soon acknowledges its last message.
 */
static void seldom(struct abi *t)
{
	struct peer peer = peer_start(t, silent_body);
	struct end e = { 0 };
	uint64_t best = UINT64_MAX, us[2];

	end_up(&e, t, peer.fd, true, LAST);
	for (int i = 0; i < 4; i++) {
		uint64_t n = looks(&e, peer.fd, i == 3);

		best = n < best ? n : best;
	}
	for (int i = 0; i < 2; i++) {
		struct op out = op_send(e.net, e.send, &e.out, LAST, 0);

		us[i] = now_us();
		ops_run(&out, 1);
		us[i] = now_us() - us[i];
	}
	printf("v%d: %llu looks in %d ms of ping-pong; of two messages of %d KiB then, whose receiver "
	       "fell silent, the sender knew after %.1f and %.1f ms\n", t->abi,
	       (unsigned long long)best, LOOKS_MS, LAST >> 10, (double)us[0] / 1000,
	       (double)us[1] / 1000);
	if (best > LOOKS_MS / 6)
		FAIL("the service thread looked by %llu times in %d ms", (unsigned long long)best,
		     LOOKS_MS);
	if (us[1] > 10 * LEFT_MS * 1000)
		FAIL("%llu us until the last message was acknowledged", (unsigned long long)us[1]);
	end_down(&e, peer.fd);
	peer_join(&peer);
}

/* -- nothing at all --------------------------------------------------------------------------- */

static void quiet(struct abi *t)
{
	enum { NAP_MS = 500 };
	struct net *net = abi_up(t);
	struct pair p;
	struct calls c;

	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	nap_ms(100);
	c = calls_all();
	nap_ms(NAP_MS);
	c = calls_since(calls_all(), c);
	printf("v%d: %d ms of quiet: %llu epoll_wait, %llu sends, %llu receives\n", t->abi, NAP_MS,
	       (unsigned long long)c.waits, (unsigned long long)c.sends,
	       (unsigned long long)(c.recvs + c.empty));
	EQ(0, c.sends);
	if (c.waits > NAP_MS / 50)
		FAIL("the service thread woke %llu times in %d ms", (unsigned long long)c.waits,
		     NAP_MS);
	pair_close(net, &p);
	abi_down(net);
}

/* A test() that finds nothing makes one system call. */
static void in_vain(struct abi *t)
{
	enum { TESTS = 1000 };
	struct net *net = abi_up(t);
	struct pair p;
	struct buf b;
	struct op op;
	struct calls c;

	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	b = buf_new(net, p.recv, SMALL, 0);
	op = op_recv(net, p.recv, &b, SMALL, 0);
	ops_post(&op, 1);
	for (int i = 0; i < 10; i++)
		op_test(&op);
	c = calls_mine();
	for (int i = 0; i < TESTS; i++)
		TRUE(!op_test(&op));
	c = calls_since(calls_mine(), c);
	printf("v%d: a test in vain: %.3f receives, %.3f sends, %.3f epoll_wait\n", t->abi,
	       (double)(c.empty + c.recvs) / TESTS, (double)(c.sends + c.full) / TESTS,
	       (double)c.waits / TESTS);
	if (c.empty + c.recvs + c.sends + c.full + c.waits > TESTS + TESTS / 50)
		FAIL("more than one system call for each test");
	send_one(net, p.send, SMALL, 2);
	WAIT_FOR(op_test(&op));
	filled(b.data, SMALL, 2);
	buf_free(net, &b);
	pair_close(net, &p);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("a small message is one call to send and one to receive", per_message, ONCE),
	CASE("a burst of small messages is fewer calls than messages", per_burst, ONCE),
	CASE("a large message is little beside its data", per_large, ONCE),
	CASE("small messages alone need the service thread rarely", seldom, ONCE),
	CASE("an idle link makes no system call", quiet, ONCE),
	CASE("a test() that finds nothing is one call", in_vain, ONCE),
};

int main(void)
{
	setenv("BRAID_LANES", "1", 0);
	return abi_main(__FILE__, cases, sizeof(cases) / sizeof(cases[0]));
}
