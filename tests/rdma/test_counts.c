/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_counts.c - what a message costs a NIC: work requests, receives and packets, counted by the
 * fake one (tests/fake).
 *
 * A small message costs one send request and one receive.  Acknowledgements cost nothing more: they
 * ride on messages the other way, of which one in HEADERS has a header.  Occasional frames (window
 * updates, ALIVE) are allowed for: one for ten messages, and one for each tick of the service
 * thread.  The best of several runs counts, because a busy machine adds requests.
 */
#include "tests/abi/abi.h"
#include "tests/fake/ctl.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	ROUNDS = 500, MESSAGES = 2 * ROUNDS, TRIES = 10, TICK_MS = 2, HDR = 48, MTU = 4096,
	LATE = 8,			/* posted before the count, and sent after it */
	HEADERS = 4,			/* one message in so many has one, to acknowledge others */
};

/* -- counting --------------------------------------------------------------------------------- */

struct counts {				/* of all NICs */
	long sends, recvs, packets, retries;
	uint64_t us;
};

static long count(const char *what)
{
	static long (*ctl)(const char *cmd);
	void *lib, *at;
	long n;

	if (!ctl) {
		lib = dlopen("libibverbs.so.1", RTLD_NOW);
		at = lib ? dlsym(lib, "braid_fake_ctl") : NULL;
		if (!at)
			skip_because("no fake NIC: tests/rdma/*.sh have one");
		memcpy(&ctl, &at, sizeof(ctl));
	}
	n = ctl(what);
	TRUE(n >= 0);
	return n;
}

static struct counts counts_now(void)
{
	return (struct counts){
		count("count sends"), count("count recvs"), count("count packets"),
		count("count retries"), now_us(),
	};
}

static struct counts counts_since(struct counts then)
{
	struct counts c = counts_now();

	c.sends -= then.sends;
	c.recvs -= then.recvs;
	c.packets -= then.packets;
	c.retries -= then.retries;
	c.us -= then.us;
	return c;
}

static void counts_say(const struct abi *t, size_t size, const struct counts *c)
{
	double n = MESSAGES;

	printf("v%d: %d messages of %zu bytes, there and back, in %llu us: each %.3f requests to send, "
	       "%.3f receives, %.3f packets; %ld sent again\n", t->abi, MESSAGES, size,
	       (unsigned long long)c->us, (double)c->sends / n, (double)c->recvs / n,
	       (double)c->packets / n, c->retries);
	fflush(stdout);
}

/* -- there and back --------------------------------------------------------------------------- */

struct end {
	struct net *net;
	void *send, *recv;
	struct buf out, in;
	size_t size;
};

static void end_up(struct end *e, struct abi *t, int fd, bool first, size_t size)
{
	*e = (struct end){ .net = abi_up(t), .size = size };
	if (first)
		e->recv = recv_from(e->net, fd);
	e->send = send_to(e->net, fd);
	if (!first)
		e->recv = recv_from(e->net, fd);
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

static void finish(struct op *op)
{
	uint64_t end = deadline_ms(10000);

	for (unsigned asked = 1; !op->done && !op_test(op); asked++) {
		if (asked % 100 == 0)
			wait_tick(end, __FILE__, __LINE__, "a message");
	}
	OK(op->res);
}

/* The receive is posted before its message can arrive. */
static void ping(struct end *e, bool first)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct op in = op_recv(e->net, e->recv, &e->in, e->size, 0);
		struct op out = op_send(e->net, e->send, &e->out, e->size, 0);

		ops_post(&in, 1);
		if (!first)
			finish(&in);
		ops_post(&out, 1);
		finish(&out);
		if (first)
			finish(&in);
	}
}

static void pong(struct abi *t, int fd)
{
	struct end e;
	uint64_t size;
	char more = 1;

	take(fd, &size, sizeof(size));
	end_up(&e, t, fd, false, size);
	while (more) {
		meet(fd);
		ping(&e, false);
		take(fd, &more, 1);
	}
	end_down(&e, fd);
}

/* The run with the fewest send requests, or the first run with about `wanted`. */
static struct counts cost(struct abi *t, uint64_t size, long wanted)
{
	struct counts c, best = { .sends = LONG_MAX };
	struct peer peer = peer_start(t, pong);
	struct end e;
	char more = 1;

	give(peer.fd, &size, sizeof(size));
	end_up(&e, t, peer.fd, true, size);
	for (int tries = TRIES; more; tries--) {
		meet(peer.fd);
		c = counts_now();
		ping(&e, true);
		c = counts_since(c);
		if (c.sends < best.sends)
			best = c;
		more = tries > 1 && best.sends > wanted + wanted / 50;
		give(peer.fd, &more, 1);
	}
	counts_say(t, size, &best);
	end_down(&e, peer.fd);
	peer_join(&peer);
	return best;
}

static void between(const char *what, long least, long most, long n)
{
	if (n < least || n > most)
		FAIL("%ld %s, not %ld to %ld", n, what, least, most);
}

/* How many packets `bytes` take, beyond the first. */
static long more_packets(size_t bytes)
{
	return (long)((bytes + MTU - 1) / MTU) - 1;
}

/*
 * A message costs `least` to `most` send requests, of which `quiet` consume no receive at the peer.
 * One of them carries `bytes`; for one message in HEADERS it carries `hdr` bytes more.
 */
static void costs(struct abi *t, size_t size, long least, long most, long quiet, size_t bytes,
		  size_t hdr)
{
	struct counts c = cost(t, size, least * MESSAGES);
	long extra = MESSAGES / 10 + (long)(c.us / (TICK_MS * 1000));
	long few = c.sends + more_packets(bytes) * MESSAGES;
	long headers = (more_packets(bytes + hdr) - more_packets(bytes)) * (MESSAGES / HEADERS + extra);

	between("requests to send", least * MESSAGES, most * MESSAGES + extra, c.sends);
	between("receives", (least - quiet) * MESSAGES, (most - quiet) * MESSAGES + extra, c.recvs);
	if (!c.retries)
		between("packets", few - LATE, few + LATE + headers, c.packets);
}

static bool is_nic(const char *kind)
{
	const char *nic = getenv("BRAID_TEST_RDMA");

	return nic && !strcmp(nic, kind);
}

/* A small message sent by itself has no header, except on iWARP, which lacks immediate data. */
static void eager(struct abi *t, size_t size)
{
	size_t hdr = is_nic("iwarp") ? HDR : 0;

	costs(t, size, 1, 1, 0, hdr + size, HDR - hdr);
}

/*
 * A credit and a write; a header where the write has no immediate data (iWARP; InfiniBand: see
 * BRAID_IB_AR_THRESHOLD); and at most one request for a START or an acknowledgement that found no
 * frame to ride on.
 */
static void large(struct abi *t, size_t size)
{
	long header = is_nic("iwarp") || is_nic("ib");

	costs(t, size, 2 + header, 3 + header, header, size, 0);
}

static void eight(struct abi *t)
{
	eager(t, 8);
}

static void page(struct abi *t)
{
	eager(t, 4096);
}

static void two_pages(struct abi *t)
{
	eager(t, 8192);
}

static void large64(struct abi *t)
{
	large(t, 64 << 10);
}

static void large512(struct abi *t)
{
	large(t, 512 << 10);
}

/* -- calls that find nothing ------------------------------------------------------------------ */

/* How often one test() polls a completion queue, while `n` pending receives are tested in turn. */
static double looks(struct op *ops, unsigned n)
{
	enum { CALLS = 2000, SETTLE_MS = 100 };	/* for the service thread to notice the calls */
	long polls;

	for (unsigned ms = 0; ms < SETTLE_MS; ms++) {
		for (unsigned i = 0; i < n; i++)
			TRUE(!op_test(&ops[i]));
		nap_ms(1);
	}
	count("fail 1000000000 poll");	/* so late that none fails: it only counts polls */
	for (unsigned i = 0; i < CALLS; i++)
		TRUE(!op_test(&ops[i % n]));
	polls = count("calls");
	count("fail 0");
	return (double)polls / CALLS;
}

/* test() polls several times if its link is the only one in use; once if there are others. */
static void in_vain(struct abi *t)
{
	struct pair p[2];
	struct buf b[2];
	struct op in[2];
	struct net *net;
	double alone = 0, not_alone = 2;

	setenv("BRAID_SHARE", "0", 1);	/* a link each */
	net = abi_up(t);
	for (int i = 0; i < 2; i++) {
		pair_open(net, &p[i]);
		exchange(net, p[i].send, p[i].recv, 8, 1);
		b[i] = buf_new(net, p[i].recv, 8, 0);
		in[i] = op_recv(net, p[i].recv, &b[i], 8, 0);
		ops_post(&in[i], 1);
	}
	/* A link whose caller had no CPU for a while counts as one that is not called. */
	for (int tries = 10; tries && (alone <= 4 || not_alone >= 2); tries--) {
		alone = looks(in, 1);
		not_alone = looks(in, 2);
	}
	printf("v%d: a call in vain looks %.2f times at completions, %.2f times if there is another link\n",
	       t->abi, alone, not_alone);
	fflush(stdout);
	TRUE(alone > 4 && not_alone < 2);
	for (int i = 0; i < 2; i++) {
		send_one(net, p[i].send, 8, 2);
		WAIT_FOR(op_test(&in[i]));
		buf_free(net, &b[i]);
		pair_close(net, &p[i]);
	}
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("8 bytes are one request to send, one receive, one packet", eight, ONCE),
	CASE("4 KiB are one request to send, one receive, one packet", page, ONCE),
	CASE("8 KiB are one request to send and one receive", two_pages, ONCE),
	CASE("64 KiB are a credit, a write, and at most one request more", large64, ONCE),
	CASE("a caller that waits for one peer alone polls several times a call", in_vain, ONCE),
	CASE("512 KiB are a credit, a write, and at most one request more", large512, ONCE),
};

int main(void)
{
	setenv("BRAID_LANES", "1", 0);
	return abi_main(__FILE__, cases, sizeof(cases) / sizeof(cases[0]));
}
