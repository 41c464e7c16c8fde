/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * connect.c - do comms come up in any order, and does every call return at once?
 *
 * "No call waits" is measured as the time a call was off the CPU and not queued for a CPU.  1 ms is
 * the promise; three calls of more than 10 ms fail the check.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/tcp.h"
#include "tools/validate/far.h"
#include "tools/validate/path.h"

enum { GUARD = 512, BLOCKED_US = 10000, CALLS = 200, BLOCKED_MOST = 2 };

static void handle(struct validate *v)
{
	struct {
		_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE], behind[GUARD];
	} h;
	void *listen = NULL;

	net_up(v);
	memset(&h, 0xa5, sizeof(h));
	OK(net_listen(v->net, v->dev, h.handle, &listen));
	for (int i = 0; i < GUARD; i++)
		if (h.behind[i] != 0xa5)
			FAIL("byte %d was written of a handle of %d", NCCL_NET_HANDLE_MAXSIZE + i,
			     NCCL_NET_HANDLE_MAXSIZE);
	OK(net_close_listen(v->net, listen));
}

static void handles_differ(struct validate *v)
{
	struct pair a, b;

	net_up(v);
	pair_listen(v->net, &a);
	pair_listen(v->net, &b);
	if (memcmp(a.handle, b.handle, sizeof(a.handle)) == 0)
		FAIL("two listens have one handle");
	OK(net_close_listen(v->net, a.listen));
	OK(net_close_listen(v->net, b.listen));
}

static void out(struct validate *v)
{
	struct msg m = { .size = 1000 };
	struct conn conn;

	both_up(v);
	conn = conn_open(v, true);
	move(v, &conn, &m, 1, 1, NULL, 0);
	conn_close(v, &conn);
}

static void in(struct validate *v)
{
	struct msg m = { .size = 1000 };
	struct conn conn;

	both_up(v);
	conn = conn_open(v, false);
	move(v, &conn, &m, 1, 1, NULL, 0);
	conn_close(v, &conn);
}

/* One of the two ends is called 50 times before the other is called at all. */
static void one_first(struct validate *v, bool connect)
{
	struct pair p;

	net_up(v);
	pair_listen(v->net, &p);
	step(v, "%s alone", connect ? "connect" : "accept");
	for (int i = 0; i < 50; i++) {
		if (connect)
			connect_step(v->net, p.handle, &p.send);
		else
			accept_step(v->net, p.listen, &p.recv);
		nap_ms(1);
	}
	if (!connect && p.recv)
		FAIL("accept() gave a comm before anybody had connected");
	step(v, "both");
	WAIT_FOR(pair_step(v->net, &p));
	exchange(v->net, p.send, p.recv, 1000, 1);
	pair_close(v->net, &p);
}

static void connect_first(struct validate *v)
{
	one_first(v, true);
}

static void accept_first(struct validate *v)
{
	one_first(v, false);
}

/* Of many calls, how many were long off the CPU; the longest time goes to *ret_us. */
static int blocked(void (*call)(void *arg), void *arg, double *ret_us)
{
	struct watch w;
	int n = 0;

	*ret_us = 0;
	for (int i = 0; i < CALLS && n <= BLOCKED_MOST; i++) {
		double us;

		watch_begin(&w);
		call(arg);
		us = watch_blocked_us(&w);
		*ret_us = us > *ret_us ? us : *ret_us;
		n += us > BLOCKED_US;
		usleep(500);
	}
	return n;
}

static void judge(struct validate *v, const char *what, int n, double us)
{
	if (n > BLOCKED_MOST)
		FAIL("%s waits: %d calls were off the CPU for more than %d ms, the longest for "
		     "%.1f ms", what, n, BLOCKED_US / 1000, us / 1000);
	saw(v, "%s: the longest wait of %d calls was %.2f ms (promised: 1 ms, failed from %d ms)",
	    what, CALLS, us / 1000, BLOCKED_US / 1000);
}

struct calls {
	struct validate *v;
	struct order order;
	struct pair pair;
};

static void call_connect(void *arg)
{
	struct calls *c = arg;

	connect_step(c->v->net, c->order.handle, &c->pair.send);
}

static void call_accept(void *arg)
{
	struct calls *c = arg;

	accept_step(c->v->net, c->pair.listen, &c->pair.recv);
}

/* The other end is stopped, with its listen comm open. */
static void connect_waits_not(struct validate *v)
{
	struct calls c = { .v = v, .order = { .what = FAR_LISTEN } };
	struct order freeze = { .what = FAR_FREEZE, .ms = 1500 };
	double us;
	int n;

	both_up(v);
	far_call(v, &c.order);
	far_call(v, &freeze);
	step(v, "connect() to a process that is stopped");
	n = blocked(call_connect, &c, &us);
	judge(v, "connect()", n, us);
}

static void accept_waits_not(struct validate *v)
{
	struct calls c = { .v = v };
	double us;
	int n;

	net_up(v);
	pair_listen(v->net, &c.pair);
	step(v, "accept() while nobody connects");
	n = blocked(call_accept, &c, &us);
	OK(net_close_listen(v->net, c.pair.listen));
	judge(v, "accept()", n, us);
}

static void many(struct validate *v)
{
	enum { CONNS = 16 };
	struct msg m = { .size = 5000 };
	struct conn conn[CONNS];

	both_up(v);
	for (int i = 0; i < CONNS; i++)
		conn[i] = conn_open(v, i % 2);
	for (int i = 0; i < CONNS; i++)
		move(v, &conn[i], &m, 1, 1, NULL, 0);
	for (int i = 0; i < CONNS; i++)
		conn_close(v, &conn[i]);
	saw(v, "%d comms, both ways", CONNS);
}

/* Several connects to one listen comm are accepted one by one, each with its own peer. */
static void shared_listen(struct validate *v)
{
	enum { N = 4 };
	struct pair p, first;
	void *send[N] = { NULL }, *recv[N] = { NULL };

	net_up(v);
	pair_listen(v->net, &p);
	first = p;
	for (int i = 0; i < N; i++) {
		p = first;		/* a connect writes into its handle */
		step(v, "comm %d of one listen comm", i);
		WAIT_FOR(pair_step(v->net, &p));
		send[i] = p.send;
		recv[i] = p.recv;
	}
	for (int i = 0; i < N; i++)
		exchange(v->net, send[i], recv[i], 3000, (uint64_t)i + 1);
	for (int i = 0; i < N; i++) {
		OK(net_close_send(v->net, send[i]));
		OK(net_close_recv(v->net, recv[i]));
	}
	OK(net_close_listen(v->net, p.listen));
}

static void listen_leak(struct validate *v)
{
	enum { ROUNDS = 100 };
	struct counts first = { 0, 0 }, last;
	struct pair p;

	net_up(v);
	for (int i = 0; i < ROUNDS; i++) {
		pair_listen(v->net, &p);
		OK(net_close_listen(v->net, p.listen));
		if (i == 4)
			first = counts_now();
	}
	last = counts_now();
	check_growth(v, first, last, ROUNDS);
}

static void leak(struct validate *v, int rounds)
{
	struct counts first = { 0, 0 }, last;
	struct order far = { .what = FAR_COUNT }, far_last = { .what = FAR_COUNT };
	struct msg m = { .size = 100 };
	struct conn conn;

	both_up(v);
	for (int i = 0; i < rounds; i++) {
		conn = conn_open(v, i % 2);
		if (i % 8 == 0)
			move(v, &conn, &m, 1, 1, NULL, 0);
		conn_close(v, &conn);
		if (i == 9) {
			first = counts_now();
			far_call(v, &far);
		}
	}
	last = counts_now();
	far_call(v, &far_last);
	check_growth(v, first, last, rounds);
	check_growth(v, (struct counts){ far.fds, far.threads },
		     (struct counts){ far_last.fds, far_last.threads }, rounds);
}

static void leak_100(struct validate *v)
{
	leak(v, 100);
}

static void leak_1000(struct validate *v)
{
	leak(v, 1000);
}

/* The connecting end calls connect() once and goes away. */
static void half(struct validate *v)
{
	struct pair p;
	void *never = NULL;

	both_up(v);
	pair_listen(v->net, &p);
	for (int i = 0; i < 8; i++) {
		struct order o = { .what = FAR_TOUCH };

		step(v, "half a connect, %d of 8", i + 1);
		memcpy(o.handle, p.handle, sizeof(o.handle));
		far_call(v, &o);
		if (i % 2)
			accept_step(v->net, p.listen, &never);
	}
	OK(net_close_listen(v->net, p.listen));
	if (never)
		OK(net_close_recv(v->net, never));
	step(v, "a comm after them");
	move_one(v, 1000);
}

static void listen_gone(struct validate *v)
{
	struct pair p;
	void *send = NULL;
	ncclResult_t res = ncclSuccess;
	uint64_t end = deadline_ms(2000);

	net_up(v);
	pair_listen(v->net, &p);
	OK(net_close_listen(v->net, p.listen));
	step(v, "connect() to a listen comm that is closed");
	while (res == ncclSuccess && !send && now_us() < end) {
		res = net_connect(v->net, v->dev, p.handle, &send);
		usleep(1000);
	}
	if (send)
		FAIL("connect() gave a comm, and nobody accepts");
	saw(v, "%s", res == ncclSuccess ? "no comm after 2 s, as while a peer is late" :
	    net_result_name(res));
	step(v, "a comm after that");
	pair_open(v->net, &p);
	exchange(v->net, p.send, p.recv, 100, 1);
	pair_close(v->net, &p);
}

static void close_early(struct validate *v)
{
	struct msg m = { .size = 100000 };
	struct conn a, b;

	both_up(v);
	a = conn_open(v, true);
	b = conn_open(v, false);
	move(v, &a, &m, 1, 1, NULL, 0);
	conn_close(v, &a);
	step(v, "the other comm, after one is closed");
	move(v, &b, &m, 1, 1, NULL, 0);
	conn_close(v, &b);
}

static const char firewall[] = "braid doctor --peer HOST looks at the way there: name, route, "
			       "firewall";

const struct vcheck validate_connect[] = {
	{ "connect-handle", "A handle has at most 128 bytes", REPORT, handle, V_HERE, 0 },
	{ "connect-handles", "Two listens have two handles", REPORT, handles_differ, V_HERE, 0 },
	{ "connect-out", "A comm to the other end comes up", firewall, out, V_SOAK, 0 },
	{ "connect-in", "A comm from the other end comes up", firewall, in, V_SOAK, 0 },
	{ "connect-first", "Who connects may begin", REPORT, connect_first, V_HERE, 0 },
	{ "connect-accept-first", "Who accepts may begin", REPORT, accept_first, V_HERE, 0 },
	{ "connect-waits", "connect() does not wait for a peer that is stopped",
	  "NCCL's thread stands still for all its peers: report it", connect_waits_not, 0, 0 },
	{ "connect-accept-waits", "accept() does not wait while nobody connects",
	  "NCCL's thread stands still for all its peers: report it", accept_waits_not, V_HERE, 0 },
	{ "connect-many", "16 comms, both ways", firewall, many, 0, 0 },
	{ "connect-shared", "A listen comm can be accepted from several times", REPORT,
	  shared_listen, V_HERE, 0 },
	{ "connect-listens", "100 listens leave nothing behind", REPORT, listen_leak, V_HERE, 0 },
	{ "connect-leak", "100 comms leave nothing behind",
	  "Long jobs run out of descriptors: ulimit -n higher, and report it", leak_100, 0,
	  40 },
	{ "connect-leak-1000", "1000 comms leave nothing behind",
	  "Long jobs run out of descriptors: ulimit -n higher, and report it", leak_1000,
	  V_FULL, 200 },
	{ "connect-half", "Half a connect does not keep the next from coming up", REPORT, half, 0,
	  0 },
	{ "connect-gone", "A listen comm that is closed gives no comm", REPORT, listen_gone, V_HERE,
	  0 },
	{ "connect-close", "A comm that is closed leaves others alone", REPORT, close_early, V_SOAK,
	  0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
