/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fault.c - peers that die or stop, strangers, and a process without resources (--faults): exact
 * data, or a clean error within a time; never a hang, never wrong data.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tools/perf/pattern.h"
#include "tools/tcp.h"
#include "tools/validate/far.h"
#include "tools/validate/path.h"

enum { DEATH_MS = 10000, PROMISED_MS = 100 };

/* -- peers -------------------------------------------------------------------------------- */

/* The other end is killed while an operation waits: its error must come soon and blame the peer. */
static void death(struct validate *v, bool out)
{
	struct order die = { .what = FAR_DIE };
	struct conn conn;
	struct buf b;
	struct op op;
	uint64_t began;
	double ms;

	both_up(v);
	conn = conn_open(v, out);
	b = buf_new(v->net, conn.comm, 64 << 20, 0);
	op = out ? op_send(v->net, conn.comm, &b, 64 << 20, 0) :
		   op_recv(v->net, conn.comm, &b, 64 << 20, 0);
	while (!op_post(&op))
		sched_yield();
	far_allow_exit(true);
	far_send(v, &die);
	began = now_us();
	step(v, "the other end was killed");
	while (!op.done && now_us() < began + DEATH_MS * UINT64_C(1000)) {
		op_test(&op);
		sched_yield();
	}
	ms = (double)(now_us() - began) / 1000;
	if (!op.done)
		FAIL("the other end was killed, and after %d s a %s is still under way: a hang",
		     DEATH_MS / 1000, out ? "send" : "receive");
	if (op.res == ncclSuccess)
		FAIL("the other end was killed, and a %s is a success", out ? "send" : "receive");
	if (op.res != ncclRemoteError && op.res != ncclSystemError)
		FAIL("the other end was killed, and that is %s, which is not a peer's fault",
		     net_result_name(op.res));
	figure(v, &(struct figure){ "death_noticed", "ms", ms, false, &ms, 1, NULL });
	saw(v, "%s after %.0f ms (Braid promises %d)", net_result_name(op.res), ms, PROMISED_MS);
	step(v, "closing what is left");
	if (out)
		net_close_send(v->net, conn.comm);
	else
		net_close_recv(v->net, conn.comm);
}

static void killed_receive(struct validate *v)
{
	death(v, false);
}

static void killed_send(struct validate *v)
{
	death(v, true);
}

static void killed_idle(struct validate *v)
{
	struct order die = { .what = FAR_DIE };
	struct msg m = { .size = 1000 };
	struct conn out, in;

	both_up(v);
	out = conn_open(v, true);
	in = conn_open(v, false);
	move(v, &out, &m, 1, 1, NULL, 0);
	far_allow_exit(true);
	far_send(v, &die);
	nap_ms(200);
	step(v, "closing comms whose other end was killed");
	net_close_send(v->net, out.comm);
	net_close_recv(v->net, in.comm);
	net_finalize(v->net);
	saw(v, "everything was closed");
}

static void apart(struct validate *v, enum far_what what, unsigned ms)
{
	struct order o = { .what = what, .ms = ms };
	struct msg m[4] = { { .size = 100 }, { .size = 100000 }, { .size = 4 << 20 },
			    { .size = 7 } };

	both_up(v);
	for (int i = 0; i < 2; i++) {
		struct conn conn = conn_open(v, i == 0);

		move(v, &conn, m, 4, 1, NULL, 0);
		far_call(v, &o);
		move(v, &conn, m, 4, 1, NULL, 0);
		conn_close(v, &conn);
	}
	saw(v, "all was there, %u ms later", ms);
}

static void stopped(struct validate *v)
{
	apart(v, FAR_FREEZE, 1500);
}

static void slow(struct validate *v)
{
	apart(v, FAR_HOLD, 1500);
}

/* -- strangers ---------------------------------------------------------------------------- */

/* Strangers connect to all our listening ports while messages are under way. */
static void strangers(struct validate *v, size_t say, int n)
{
	struct msg m[8];
	struct pair p;
	int fds[200], ports;
	union tcp_addr a[8];
	uint8_t noise[1024];
	struct conn conn;

	if (getrandom(noise, sizeof(noise), 0) < 0)
		memset(noise, 0x5a, sizeof(noise));
	both_up(v);
	conn = conn_open(v, false);
	pair_listen(v->net, &p);
	ports = listening(a, 8);
	if (!ports)
		skip(v, "it does not listen on a TCP port");
	for (int i = 0; i < n; i++) {
		fds[i] = tcp_dial(&a[i % ports], 500);
		if (fds[i] >= 0 && say)
			send(fds[i], noise, say, MSG_NOSIGNAL);
	}
	for (int i = 0; i < 8; i++)
		m[i] = (struct msg){ .size = 100000 };
	step(v, "messages, and a new comm, beside %d strangers", n);
	move(v, &conn, m, 8, 1, NULL, 0);
	WAIT_FOR(pair_step(v->net, &p));
	for (int i = 0; i < n; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	move(v, &conn, m, 8, 1, NULL, 0);
	pair_close(v->net, &p);
	conn_close(v, &conn);
	saw(v, "%d strangers at %d ports", n, ports);
}

static void garbage(struct validate *v)
{
	strangers(v, 1024, 100);
}

static void abandoned(struct validate *v)
{
	strangers(v, 0, 200);
}

static void half_hello(struct validate *v)
{
	strangers(v, 13, 50);
}

/* -- this process ------------------------------------------------------------------------- */

/* A macro, because the names of limits are ints in some libraries and an enum in others. */
#define LIMIT(what, most)							\
	do {									\
		struct rlimit l_;						\
										\
		getrlimit(what, &l_);						\
		l_.rlim_cur = (most) < l_.rlim_max ? (most) : l_.rlim_max;	\
		setrlimit(what, &l_);						\
	} while (0)

/* Connect pairs of comms until one fails; returns the error. */
static ncclResult_t pairs_until(struct validate *v, struct pair *p, int most, int *ret_n)
{
	ncclResult_t res = ncclSuccess;
	uint64_t end = deadline_ms(4000);

	for (*ret_n = 0; *ret_n < most; (*ret_n)++) {
		struct pair *q = &p[*ret_n];

		memset(q, 0, sizeof(*q));
		res = net_listen(v->net, v->dev, q->handle, &q->listen);
		while (res == ncclSuccess && (!q->send || !q->recv) && now_us() < end) {
			if (!q->send)
				res = net_connect(v->net, v->dev, q->handle, &q->send);
			if (res == ncclSuccess && !q->recv)
				res = net_accept(v->net, q->listen, &q->recv);
			usleep(100);
		}
		if (res != ncclSuccess || !q->send || !q->recv)
			break;
	}
	return res;
}

static void pairs_close(struct validate *v, struct pair *p, int n)
{
	for (int i = 0; i <= n; i++) {
		if (p[i].send)
			net_close_send(v->net, p[i].send);
		if (p[i].recv)
			net_close_recv(v->net, p[i].recv);
		if (p[i].listen)
			net_close_listen(v->net, p[i].listen);
	}
}

static void works_again(struct validate *v)
{
	struct pair p;

	step(v, "a comm once there is enough again");
	pair_open(v->net, &p);
	exchange(v->net, p.send, p.recv, 100000, 1);
	pair_close(v->net, &p);
}

static void few_fds(struct validate *v)
{
	enum { MOST = 64 };
	static struct pair p[MOST + 1];
	ncclResult_t res;
	int n;

	net_up(v);
	LIMIT(RLIMIT_NOFILE, (rlim_t)count_fds() + 6);
	step(v, "comms with 6 descriptors left");
	res = pairs_until(v, p, MOST, &n);
	saw(v, "%d pairs came up, then: %s", n, n == MOST ? "nothing" : res ?
	    net_result_name(res) : "none came up within 4 s");
	pairs_close(v, p, n < MOST ? n : MOST - 1);
	LIMIT(RLIMIT_NOFILE, 1024);
	works_again(v);
}

static void little_memory(struct validate *v)
{
	enum { MOST = 256 };
	static struct pair p[MOST + 1];
	unsigned long pages = 0;
	ncclResult_t res;
	FILE *f = fopen("/proc/self/statm", "re");
	int n;

	net_up(v);
	if (f && fscanf(f, "%lu", &pages) != 1)
		pages = 0;
	if (f)
		fclose(f);
	if (!pages)
		skip(v, "it is not known how much memory this process has");
	if (pages > (UINT64_C(1) << 40) / 4096)
		skip(v, "a sanitizer has taken all address space");
	LIMIT(RLIMIT_AS, (rlim_t)(pages * 4096 + (16 << 20)));
	step(v, "comms with 16 MiB left");
	res = pairs_until(v, p, MOST, &n);
	saw(v, "%d pairs came up, then: %s", n, n == MOST ? "nothing" : res ?
	    net_result_name(res) : "none came up within 4 s");
	pairs_close(v, p, n < MOST ? n : MOST - 1);
	LIMIT(RLIMIT_AS, RLIM_INFINITY);
	works_again(v);
}

/* Root may pin more than the limit. */
static void memlock(struct validate *v)
{
	struct pair p;

	LIMIT(RLIMIT_MEMLOCK, 64 << 10);
	net_up(v);
	pair_open(v->net, &p);
	step(v, "4 MiB with 64 KiB that may be pinned");
	exchange(v->net, p.send, p.recv, 4 << 20, 1);
	pair_close(v->net, &p);
	saw(v, "4 MiB were moved%s", geteuid() == 0 ? "; but root may pin what it likes" : "");
}

static bool cut(int fd)
{
	return shutdown(fd, SHUT_RDWR) == 0;
}

static bool reset(int fd)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };

	return connect(fd, &none, sizeof(none)) == 0;	/* the kernel sends RST */
}

static void lost_sockets(struct validate *v, bool (*each)(int fd))
{
	struct msg m[4] = { { .size = 1 << 20 }, { .size = 100 }, { .size = 3 << 20 },
			    { .size = 4096 } };
	unsigned lost = 0;
	const char *what = "";

	both_up(v);
	for (int i = 0; i < 2; i++) {
		struct conn conn = conn_open(v, i == 0);

		move(v, &conn, m, 4, 1, NULL, 0);
		lost += count_streams(each);
		step(v, "messages after %u connections were lost", lost);
		what = move(v, &conn, m, 4, 1, NULL, MOVE_ERROR_OK);
		if (*what)
			break;
		conn_close(v, &conn);
	}
	if (!lost)
		skip(v, "it has no TCP connections");
	saw(v, "%u connections were lost: %s", lost, *what ? what : "all data came");
}

static void shut(struct validate *v)
{
	lost_sockets(v, cut);
}

static void rst(struct validate *v)
{
	lost_sockets(v, reset);
}

static const char death_mend[] = "Jobs hang when a host dies: report it";

const struct vcheck validate_fault[] = {
	{ "fault-kill-receive", "A receive from a process that is killed is an error, soon",
	  death_mend, killed_receive, V_FAULT | V_SOAK, 30 },
	{ "fault-kill-send", "A send to a process that is killed is an error, soon", death_mend,
	  killed_send, V_FAULT | V_SOAK, 30 },
	{ "fault-kill-idle", "Comms whose other end was killed can be closed", death_mend,
	  killed_idle, V_FAULT | V_SOAK, 30 },
	{ "fault-stop", "Nothing is lost while a process is stopped", HANGS, stopped,
	  V_FAULT | V_SOAK, 40 },
	{ "fault-slow", "Nothing is lost while a process makes no call", HANGS, slow,
	  V_FAULT | V_SOAK, 40 },
	{ "fault-garbage", "100 strangers that talk nonsense do no harm",
	  "Close the port to strangers, and report it", garbage, V_FAULT, 30 },
	{ "fault-abandoned", "200 connections that are left alone do no harm",
	  "Close the port to strangers, and report it", abandoned, V_FAULT, 40 },
	{ "fault-half-hello", "50 strangers that begin and stop do no harm",
	  "Close the port to strangers, and report it", half_hello, V_FAULT, 30 },
	{ "fault-fds", "Without descriptors: an error or patience, and it goes on with some",
	  "ulimit -n higher, and report it", few_fds, V_FAULT | V_HERE, 40 },
	{ "fault-memory", "Without memory: an error or patience, and it goes on with some", HANGS,
	  little_memory, V_FAULT | V_HERE, 40 },
	{ "fault-memlock", "With little memory that may be pinned data moves all the same",
	  "ulimit -l unlimited", memlock, V_FAULT | V_HERE, 0 },
	{ "fault-cut", "Connections that end: the data, or an error", HANGS, shut, V_FAULT | V_SOAK,
	  40 },
	{ "fault-reset", "Connections that are reset: the data, or an error", HANGS, rst,
	  V_FAULT | V_SOAK, 40 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
