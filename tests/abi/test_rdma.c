/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rdma.c - RDMA fails in every way that the fake NICs know, and nothing is lost by it.
 *
 * Two processes send messages of all sizes to each other and check every byte, while their NIC is
 * taken away and given back, is full, or refuses the k-th call.  Each case is run over RoCE v2 and
 * iWARP, some over InfiniBand too.  BRAID_TEST_RDMA_CALLS=1 fails each call, not one in STRIDE; it
 * takes minutes, which BRAID_TEST_SLOW=20 gives it; so does BRAID_TEST_RDMA_ROUNDS=200, of faults of
 * two ports that were made one.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE			/* cpu_set_t */
#endif
#include "tests/abi/nics.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STALL_MS = 2000, RETURN_MS = 5000, NOTICE_MS = 2000, SLACK = 10, QPNS = 1 << 14, MRS_KEPT = 24,
       FLAP_MS = 5000, STRIDE = 61 };

static const char *const kinds[] = { "rocev2", "iwarp", "ib" };

static long sends(void)
{
	return ctl("count sends");
}

static bool fuses;			/* the first two devices are made one, which is used */

/* A port keeps the memory of some lanes. */
static void objects_gone(void)
{
	static const char *const what[] = { "live qp", "live cq", "live srq", "live ah", "live channel" };

	for (unsigned i = 0; i < 5; i++)
		if (ctl(what[i]))
			FAIL("%s is %ld after finalize", what[i], ctl(what[i]));
	if (ctl("live mr") > (fuses ? 2 : 1) * MRS_KEPT)
		FAIL("%ld registrations after finalize", ctl("live mr"));
}

static unsigned qps_left;		/* so many there are at the end, if not 0 */

static struct net *net_up(struct abi *t)
{
	struct net *net;

	if (fuses)
		return fused_up(t);
	net = abi_up(t);
	on_device(0);
	return net;
}

/* The other end: it does as it is told by the last messages. */
static void follow(struct abi *t, int fd)
{
	static struct job j;
	struct net *net = net_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);
	uint64_t end = deadline_ms(300000);

	warns_expected();
	job_new(&j, net, send, recv);
	while (!j.in.stops) {
		job_step(&j);
		wait_tick(end, __FILE__, __LINE__, "the first end to stop");
	}
	j.out.stop = true;
	job_finish(&j);
	if (qps_left)
		EQ(qps_left, ctl("live qp"));
	meet(fd);
	job_close(&j);
	objects_gone();
}

static struct job *start_with(struct abi *t, struct peer *p, void (*body)(struct abi *t, int fd))
{
	static struct job j;
	struct net *net;
	void *send, *recv;

	*p = peer_start(t, body);
	net = net_up(t);
	recv = recv_from(net, p->fd);
	send = send_to(net, p->fd);
	warns_expected();
	job_new(&j, net, send, recv);
	return &j;
}

static struct job *start(struct abi *t, struct peer *p)
{
	return start_with(t, p, follow);
}

/* Over that many lanes of such a NIC, and messages are under way. */
static struct job *start_lanes(struct abi *t, struct peer *p, const char *kind, const char *more,
			       const char *lanes)
{
	struct job *j;

	nic(kind, more);
	setenv("BRAID_LANES", lanes, 1);
	j = start(t, p);
	job_play(j, 100);
	return j;
}

static void finish(struct job *j, struct peer *p)
{
	j->out.stop = true;
	job_finish(j);
	meet(p->fd);
	job_close(j);
	objects_gone();
	peer_join(p);
}

/* Does what is sent go over RDMA? */
static bool uses_rdma(struct job *j)
{
	long before = sends();

	job_need(j, 16, 10000 * SLACK);
	return sends() - before > 16;
}

static void stall_ends(struct job *j, const char *what)
{
	job_need(j, 100, STALL_MS * SLACK);
	printf("%s: the longest stall was %llu ms\n", what, (unsigned long long)j->longest_us / 1000);
	TRUE(j->longest_us < deadline_ms(STALL_MS * SLACK) - now_us());
	j->longest_us = 0;
}

static void returns(struct job *j, const char *what)
{
	uint64_t from = now_us(), end = deadline_ms(RETURN_MS * SLACK);

	while (!uses_rdma(j))
		wait_tick(end, __FILE__, __LINE__, "RDMA to be used again");
	printf("%s: back on RDMA after %llu ms\n", what, (unsigned long long)(now_us() - from) / 1000);
	j->longest_us = 0;
}

/*
 * TCP carries it all.  Not at once: several lanes find out one after the other, and the first is
 * tried again after 2 s, when the last may not have.
 */
static void leaves(struct job *j)
{
	uint64_t end = deadline_ms(RETURN_MS * SLACK);

	while (uses_rdma(j))
		wait_tick(end, __FILE__, __LINE__, "TCP to carry it");
}

/* -- it fails and comes back -------------------------------------------------------------- */

static void down_and_up(struct abi *t, const char *kind, const char *lanes, const char *down,
			const char *up)
{
	struct peer p;
	struct job *j;
	char what[64];

	snprintf(what, sizeof(what), "%s, %s lanes, %s", kind, lanes, down);
	nic(kind, "");
	setenv("BRAID_LANES", lanes, 1);
	j = start(t, &p);
	job_play(j, 200);
	TRUE(uses_rdma(j));
	ctl(down);
	stall_ends(j, what);
	job_play(j, 500);
	leaves(j);
	ctl(up);
	returns(j, what);
	finish(j, &p);
}

#define EACH_KIND(body)							\
	static void body##_roce(struct abi *t) { body(t, kinds[0]); }	\
	static void body##_iwarp(struct abi *t) { body(t, kinds[1]); }

static void port_down(struct abi *t, const char *kind)
{
	down_and_up(t, kind, "1", "port nic0 down", "port nic0 up");
}

static void port_down_lanes(struct abi *t, const char *kind)
{
	down_and_up(t, kind, "4", "port nic0 down", "port nic0 up");
}

static void black_hole(struct abi *t, const char *kind)
{
	down_and_up(t, kind, "1", "drop nic0 1", "drop nic0 0");
}

static void black_hole_lanes(struct abi *t, const char *kind)
{
	down_and_up(t, kind, "4", "drop nic0 1", "drop nic0 0");
}

EACH_KIND(port_down)
EACH_KIND(port_down_lanes)
EACH_KIND(black_hole)
EACH_KIND(black_hole_lanes)

/* -- it is gone for good ------------------------------------------------------------------- */

static void removed(struct abi *t, const char *kind)
{
	struct peer p;
	struct job *j;

	nic(kind, "");
	j = start(t, &p);
	job_play(j, 200);
	TRUE(uses_rdma(j));
	ctl("fatal nic0");
	stall_ends(j, "the NIC is removed");
	job_play(j, 2500);
	job_need(j, 100, STALL_MS * SLACK);
	finish(j, &p);
}

/* Its queue pairs end one by one, as fast as there are new ones: RDMA is left alone for longer. */
static void flaps(struct abi *t, const char *kind)
{
	uint64_t until;
	unsigned times = 0;
	struct peer p;
	struct job *j;

	j = start_lanes(t, &p, kind, "", "2");
	for (until = now_us() + FLAP_MS * 1000; now_us() < until; job_play(j, 20)) {
		for (unsigned qpn = 0; qpn < QPNS; qpn++) {
			char cmd[32];

			snprintf(cmd, sizeof(cmd), "qp %u error", qpn);
			times += fake_ctl(cmd) == 0;
		}
	}
	printf("%s: %u queue pairs failed in %u s, the longest stall was %llu ms\n", kind, times,
	       FLAP_MS / 1000, (unsigned long long)j->longest_us / 1000);
	TRUE(times >= 4 && times <= 100);
	TRUE(j->longest_us < deadline_ms(STALL_MS * SLACK) - now_us());
	returns(j, kind);
	finish(j, &p);
}

/* The next queue pair that there is, from one that is given. */
static bool break_one(unsigned from)
{
	char cmd[32];

	for (unsigned i = 0; i < QPNS; i++) {
		snprintf(cmd, sizeof(cmd), "qp %u error", (from + i) % QPNS);
		if (!fake_ctl(cmd))
			return true;
	}
	return false;
}

/* One at a time: what it carried goes on over the others, in the order that there was. */
static void lose_several(struct abi *t, struct job *j, const char *kind)
{
	unsigned times = 0;

	for (unsigned i = 0; i < 24; i++) {
		times += break_one(rnd_below(t, QPNS));
		job_play(j, 50 + rnd_below(t, 400));
	}
	printf("%s: %u queue pairs of four lanes failed, the longest stall was %llu ms\n", kind, times,
	       (unsigned long long)j->longest_us / 1000);
	TRUE(times > 4);
	TRUE(j->longest_us < deadline_ms(STALL_MS * SLACK) - now_us());
	returns(j, kind);
}

static void one_of_several(struct abi *t, const char *kind)
{
	struct peer p;
	struct job *j = start_lanes(t, &p, kind, "", "4");

	TRUE(uses_rdma(j));
	lose_several(t, j, kind);
	finish(j, &p);
}

/* One of two ports, or both, is down or loses everything for a moment, again and again. */
static void fused(struct abi *t, const char *kind)
{
	static const char *const faults[][2][2] = {	/* which, how; broken and mended */
		{ { "port nic0 down", "port nic0 up" }, { "port nic1 down", "port nic1 up" } },
		{ { "drop nic0 1", "drop nic0 0" }, { "drop nic1 1", "drop nic1 0" } },
	};
	const char *rounds = getenv("BRAID_TEST_RDMA_ROUNDS");
	unsigned n = rounds ? (unsigned)atoi(rounds) : 4;
	char more[64], names[64];
	struct peer p;
	struct job *j;

	snprintf(more, sizeof(more), ";nic1:%s,netdev=%s", kind, second_interface());
	nic(kind, more);
	snprintf(names, sizeof(names), "=lo,%s", second_interface());
	setenv("BRAID_SOCKET_IFNAME", names, 1);
	setenv("BRAID_SOCKET_FAMILY", "AF_INET", 1);
	unsetenv("BRAID_TEST_RDMA_ROUNDS");
	fuses = true;
	setenv("BRAID_FUSE", "any", 1);
	j = start(t, &p);
	job_play(j, 200);
	TRUE(uses_rdma(j));
	for (unsigned i = 0; i < n; i++) {
		unsigned which = 1 + rnd_below(t, 3), how = rnd_below(t, 2);

		for (unsigned mends = 0; mends < 2; mends++) {
			for (unsigned k = 0; k < 2; k++) {
				if (which & 1u << k)
					ctl(faults[how][k][mends]);
			}
			job_play(j, rnd_below(t, 2000));
		}
	}
	job_need(j, 100, STALL_MS * SLACK);
	printf("%s: the longest stall of %u was %llu ms, %llu messages came\n", kind, n,
	       (unsigned long long)j->longest_us / 1000, (unsigned long long)j->in.oldest);
	TRUE(j->longest_us < deadline_ms(STALL_MS * SLACK) - now_us());
	returns(j, kind);
	finish(j, &p);
}

/*
 * siw writes to a socket in the caller's name: the process must not die of that.  Nor one that
 * ignored the signal, so that it was not blocked, and has another mind now.
 */
static void sigpipe(struct abi *t)
{
	struct peer p;
	struct job *j;

	signal(SIGPIPE, SIG_IGN);
	j = start_lanes(t, &p, kinds[1], ",sigpipe=1", "4");
	TRUE(uses_rdma(j));
	job_play(j, 300);
	signal(SIGPIPE, SIG_DFL);
	job_play(j, 300);
	lose_several(t, j, kinds[1]);
	finish(j, &p);
}

/*
 * Requests come when it is too late for them.  Nobody waits until they are answered, as who ended
 * the queue pair would have to; and they are answered, although nobody expects them any more.
 */
static void late_requests(struct abi *t)
{
	enum { LATE_MS = 8000, GIVEN_UP_MS = 900 };
	uint64_t end;
	struct peer p;
	struct job *j;

	nic(kinds[1], ",mpa=60000");
	setenv("BRAID_LANES", "1", 1);
	qps_left = 1;			/* the peer has dialled: its send is connected first */
	j = start(t, &p);
	job_play(j, 200);
	TRUE(uses_rdma(j));
	ctl("requests nic0 8000");
	ctl("port nic0 down");
	stall_ends(j, "a port goes down");
	ctl("port nic0 up");
	end = deadline_ms(20000);
	while (j->longest_us < GIVEN_UP_MS * 1000) {
		job_step(j);
		wait_tick(end, __FILE__, __LINE__, "RDMA to be tried in vain");
	}
	printf("requests are late: the longest stall was %llu ms\n",
	       (unsigned long long)j->longest_us / 1000);
	TRUE(j->longest_us < (LATE_MS - 2000) * 1000);
	ctl("requests nic0 0");
	returns(j, "requests are late");
	job_play(j, LATE_MS);
	finish(j, &p);
}

/* There is nothing else that a link could have: then slow is not too slow. */
static void slow_alone(struct abi *t)
{
	struct peer p;
	struct job *j;

	nic(kinds[1], "");
	setenv("BRAID_LANES", "1", 1);
	setenv("BRAID_TRANSPORTS", "verbs", 1);
	setenv("BRAID_TEST_FAKE_CTL", "requests nic0 2500", 1);
	j = start(t, &p);
	job_play(j, 200);
	TRUE(uses_rdma(j));
	finish(j, &p);
}

/* The address of a NIC moves to another entry, then is gone: the next lanes take what there is. */
static void gid_moves(struct abi *t)
{
	struct peer p;
	struct job *j;

	nic(kinds[0], "");
	j = start(t, &p);
	job_play(j, 100);
	for (unsigned i = 0; i < 2; i++) {
		ctl(i ? "gid nic0 9 none" : "gid nic0 9 127.0.0.1");
		ctl("gid nic0 3 none");
		stall_ends(j, "a GID changes");
		ctl("port nic0 down");
		stall_ends(j, "a port goes down");
		ctl("port nic0 up");
		returns(j, "with another GID");
	}
	finish(j, &p);
}

/* The entry of one port, whatever that of all is; one that is not there leaves it to TCP. */
static void gid_wanted(struct abi *t, const char *port, const char *all, bool is_there)
{
	struct net *net;
	struct pair p;

	nic(kinds[0], "");
	setenv("BRAID_IB_GID", port, 1);
	setenv("BRAID_IB_GID_INDEX", all, 1);
	if (!is_there)
		warns_expected();
	net = abi_up(t);
	pair_open(net, &p);
	for (unsigned i = 0; i < 8; i++)
		exchange(net, p.send, p.recv, sizes[i], i);
	EQ(is_there, sends() > 8);
	pair_close(net, &p);
	abi_down(net);
	objects_gone();
}

static void gid_of_port(struct abi *t)
{
	gid_wanted(t, "nic0=3", "200", true);
}

static void gid_of_all(struct abi *t)
{
	gid_wanted(t, "nic1=200,nic0:2=200", "3", true);
}

static void gid_missing(struct abi *t)
{
	gid_wanted(t, "nic0:1=200", "3", false);
}

static void marked(struct abi *t, int traffic_class, long tos)
{
	struct net *net;
	struct pair p;

	net = abi_up_with(t, traffic_class, NULL);
	pair_open(net, &p);
	exchange(net, p.send, p.recv, MOST, 1);
	TRUE(sends() > 0);
	EQ(tos, ctl("tos"));
	pair_close(net, &p);
	abi_down(net);
	objects_gone();
}

static void marked_by_nccl(struct abi *t)
{
	nic(kinds[1], "");
	marked(t, 104, 104);
}

static void marked_by_dscp(struct abi *t)
{
	nic(kinds[1], "");
	setenv("BRAID_DSCP", "46", 1);
	marked(t, 104, 46 << 2);
}

static void marked_by_nobody(struct abi *t)
{
	nic(kinds[1], "");
	marked(t, NCCL_NET_TRAFFIC_CLASS_UNDEF, 0);
	ctl("fail 1 rdma_set_option on");
	marked(t, 104, 0);
}

/* -- the peer ------------------------------------------------------------------------------ */

static void killed(struct abi *t, const char *kind)
{
	uint64_t from, end;
	struct peer p;
	struct job *j;

	nic(kind, "");
	setenv("BRAID_IB_TIMEOUT", "21", 1);	/* not by packets that are sent in vain for 60 s */
	j = start(t, &p);
	job_play(j, 200);
	TRUE(uses_rdma(j));
	kill(p.pid, SIGKILL);
	from = now_us();
	end = deadline_ms(NOTICE_MS * SLACK);
	for (;;) {
		struct op *op = &j->in.op[j->in.oldest % DEPTH];

		if (!op->posted && !op_post(op))
			continue;
		if ((op->done || op_test(op)) && op->res)
			break;
		if (op->done)
			op->posted = op->done = false;
		wait_tick(end, __FILE__, __LINE__, "an error");
	}
	printf("%s: %s after %llu ms\n", kind, net_result_name(j->in.op[j->in.oldest % DEPTH].res),
	       (unsigned long long)(now_us() - from) / 1000);
	OK(net_close_send(j->net, j->out.comm));
	OK(net_close_recv(j->net, j->in.comm));
	abi_down(j->net);
	objects_gone();
	peer_kill(&p);
}

static void stopped(struct abi *t, const char *kind)
{
	struct peer p;
	struct job *j;

	nic(kind, "");
	j = start(t, &p);
	job_play(j, 200);
	TRUE(uses_rdma(j));
	kill(p.pid, SIGSTOP);
	job_play(j, 4500);
	kill(p.pid, SIGCONT);
	job_need(j, 100, STALL_MS * SLACK);
	returns(j, kind);
	finish(j, &p);
}

static void without(struct abi *t, int fd)
{
	setenv("BRAID_TRANSPORTS", "tcp", 1);
	follow(t, fd);
}

static void elsewhere(struct abi *t, int fd)
{
	const char *other = strstr(getenv("BRAID_TEST_FAKE_DEVICES"), kinds[0]) ? kinds[1] : kinds[0];
	char text[64];

	setenv("BRAID_TEST_FAKE_HOST", "elsewhere", 1);
	snprintf(text, sizeof(text), "nic0:%s,netdev=lo", other);
	setenv("BRAID_TEST_FAKE_DEVICES", text, 1);
	follow(t, fd);
}

static void unlike(struct abi *t, const char *kind, void (*body)(struct abi *t, int fd))
{
	struct peer p;
	struct job *j;

	nic(kind, "");
	j = start_with(t, &p, body);
	job_need(j, 200, STALL_MS * SLACK);
	job_play(j, 3000);
	TRUE(!uses_rdma(j));
	EQ(1, net_warn_count());
	printf("%s: %s\n", kind, net_last_warn());
	finish(j, &p);
}

static void peer_has_none(struct abi *t, const char *kind)
{
	unlike(t, kind, without);
}

static void peer_has_other(struct abi *t, const char *kind)
{
	unlike(t, kind, elsewhere);
}

/* -- memory -------------------------------------------------------------------------------- */

enum { BIG = 9 << 20, BATCH = 4 };

static void plain_messages(struct net *net, void *send, void *recv)
{
	struct buf out = buf_new(net, NULL, BIG, 1), in = buf_new(net, NULL, BIG, 3);

	for (unsigned i = 0; i < 6; i++) {
		struct op ops[] = { op_recv(net, recv, &in, BIG, 0), op_send(net, send, &out, BIG, 0) };

		if (i & 1)
			OK(net_reg(net, send, out.data, BIG, NCCL_PTR_HOST, &ops[1].mr[0]));
		fill(out.data, BIG, i);
		blank(in.data, BIG);
		/* What is only there to be read is sent as well. */
		TRUE(!mprotect(out.map, out.map_len, PROT_READ));
		ops_run(ops, 2);
		filled(in.data, BIG, i);
		if (ops[1].mr[0])
			OK(net_dereg(net, send, ops[1].mr[0]));
		TRUE(!mprotect(out.map, out.map_len, PROT_READ | PROT_WRITE));
	}
	buf_free(net, &out);
	buf_free(net, &in);
}

static void plain_other(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);

	plain_messages(net, send, recv);
	meet(fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	objects_gone();
}

/* Chunks of unregistered memory that take more slots than there are, both ways, nothing inline. */
static void plain_memory(struct abi *t, const char *kind)
{
	struct peer p;
	struct net *net;
	void *send, *recv;

	nic(kind, ",max_inline=0");
	setenv("BRAID_CHUNK", "4m", 1);
	p = peer_start(t, plain_other);
	net = abi_up(t);
	recv = recv_from(net, p.fd);
	send = send_to(net, p.fd);
	plain_messages(net, send, recv);
	TRUE(sends() > BIG / 8240);
	meet(p.fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	objects_gone();
	peer_join(&p);
}

enum { DEREG_RECV, CLOSE_RECV, DEREG_SEND, ROUND_KINDS, ROUNDS = 24 };

/* Of each round, the end that sends: the first message shows that they are large. */
static void round_send(struct abi *t, struct job *j, int fd, char kind)
{
	uint64_t end = deadline_ms(20000);
	struct buf b[BATCH];
	struct op ops[BATCH];
	void *comm = send_to(j->net, fd);
	bool over = false;

	send_one(j->net, comm, MOST, 7);
	for (unsigned i = 0; i < BATCH; i++) {
		b[i] = buf_new(j->net, comm, MOST, 0);
		fill(b[i].data, MOST, i);
		/* What the NIC knows of this stays: it is registered twice. */
		OK(net_reg(j->net, j->out.comm, b[i].data, MOST, NCCL_PTR_HOST, &b[i].comm));
		ops[i] = op_send(j->net, comm, &b[i], MOST, 0);
	}
	for (uint64_t until = now_us() + rnd_below(t, 4000); now_us() < until;) {
		ops_step(ops, BATCH);
		job_step(j);
	}
	for (unsigned i = 0; kind == DEREG_SEND && i < BATCH; i++) {
		OK(net_dereg(j->net, comm, b[i].mr));
		blank(b[i].data, MOST);
	}
	while (kind != DEREG_SEND && !over) {
		over = ops_step(ops, BATCH);
		job_step(j);
		wait_tick(end, __FILE__, __LINE__, "sends to end");
	}
	for (unsigned i = 0; i < BATCH; i++) {
		if (kind != DEREG_SEND)
			OK(net_dereg(j->net, comm, b[i].mr));
		OK(net_dereg(j->net, j->out.comm, b[i].comm));
		b[i].comm = NULL;
		buf_free(j->net, &b[i]);
	}
	OK(net_close_send(j->net, comm));
}

/* The end that receives: what is taken back is not written any more. */
static void round_recv(struct abi *t, struct job *j, int fd, char kind)
{
	uint64_t end = deadline_ms(20000);
	struct buf b[BATCH];
	struct op ops[BATCH];
	void *comm = recv_from(j->net, fd);
	bool over = false;

	recv_one(j->net, comm, MOST, 7);
	for (unsigned i = 0; i < BATCH; i++) {
		b[i] = buf_new(j->net, comm, MOST, 0);
		OK(net_reg(j->net, j->in.comm, b[i].data, MOST, NCCL_PTR_HOST, &b[i].comm));
		ops[i] = op_recv(j->net, comm, &b[i], MOST, 0);
	}
	for (unsigned i = 0; i < BATCH; i++)	/* who sends may have taken his back already */
		WAIT_FOR(op_post(&ops[i]));
	for (uint64_t until = now_us() + rnd_below(t, 3000); now_us() < until;) {
		ops_step(ops, BATCH);
		job_step(j);
	}
	while (kind == DEREG_SEND && !over) {
		over = ops_step(ops, BATCH);
		job_step(j);
		wait_tick(end, __FILE__, __LINE__, "receives to end");
	}
	for (unsigned i = 0; i < BATCH; i++)
		if (ops[i].done && !ops[i].res)
			filled(b[i].data, MOST, i);
	if (kind == CLOSE_RECV)
		OK(net_close_recv(j->net, comm));
	for (unsigned i = 0; kind != CLOSE_RECV && i < BATCH; i++)
		OK(net_dereg(j->net, comm, b[i].mr));
	for (unsigned i = 0; i < BATCH; i++)
		memset(b[i].data, 0x77, MOST);
	job_play(j, 30);
	for (unsigned i = 0; i < BATCH; i++) {
		for (size_t k = 0; k < MOST; k++)
			if (b[i].data[k] != 0x77)
				FAIL("byte %zu was written after it was taken back", k);
		OK(net_dereg(j->net, j->in.comm, b[i].comm));
		b[i].comm = NULL;
		buf_free(j->net, &b[i]);
	}
	if (kind != CLOSE_RECV)
		OK(net_close_recv(j->net, comm));
}

static bool recv_now(int fd, char *ret)
{
	return recv(fd, ret, 1, MSG_DONTWAIT) == 1;
}

static void follow_rounds(struct abi *t, int fd)
{
	static struct job j;
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);
	char kind;

	warns_expected();
	job_new(&j, net, send, recv);
	while (!j.in.stops) {
		job_step(&j);
		if (recv_now(fd, &kind))
			round_send(t, &j, fd, kind);
	}
	j.out.stop = true;
	job_finish(&j);
	meet(fd);
	job_close(&j);
	objects_gone();
}

static void taken_back(struct abi *t, const char *kind, const char *lanes)
{
	struct peer p;
	struct job *j;

	nic(kind, "");
	setenv("BRAID_LANES", lanes, 1);
	j = start_with(t, &p, follow_rounds);
	job_play(j, 100);
	for (unsigned i = 0; i < ROUNDS; i++) {
		char how = (char)(i % ROUND_KINDS);

		give(p.fd, &how, 1);
		round_recv(t, j, p.fd, how);
		job_need(j, 4, STALL_MS * SLACK);
	}
	returns(j, kind);
	finish(j, &p);
}

static void memory(struct abi *t, const char *kind)
{
	taken_back(t, kind, "1");
}

static void memory_lanes(struct abi *t, const char *kind)
{
	taken_back(t, kind, "4");
}

/* Ports that rdma_cm hands out may be TCP's already: the next will do, and RDMA it is. */
static void ports_taken(struct abi *t)
{
	struct peer p;
	struct job *j;

	nic(kinds[1], ",busy=7,busy_dials=9");
	setenv("BRAID_TRANSPORTS", "verbs", 1);
	j = start(t, &p);
	job_play(j, 100);
	TRUE(uses_rdma(j));
	finish(j, &p);
}

/* -- limits -------------------------------------------------------------------------------- */

static void limit(struct abi *t, const char *kind, const char *more, const char *warn, const char *id)
{
	struct net *net;
	struct pair p;

	nic(kind, more);
	warns_expected();
	net = heard_up(t);
	pair_open(net, &p);
	for (unsigned i = 0; i < 8; i++)
		exchange(net, p.send, p.recv, sizes[i], i);
	pair_close(net, &p);
	abi_down(net);
	objects_gone();
	must_say(warn);
	must_say(id);
}

static void few_qps(struct abi *t, const char *kind)
{
	limit(t, kind, ",max_qp=1", "1 queue pair", "[rdma-limit]");
}

static void few_cqs(struct abi *t, const char *kind)
{
	limit(t, kind, ",max_cq=1", "1 completion queue", "[lesser-transport]");
}

static void few_cqes(struct abi *t, const char *kind)
{
	limit(t, kind, ",max_cqe=64", "64", "");
}

static void few_mrs(struct abi *t, const char *kind)
{
	limit(t, kind, ",max_mr=2", "2 registrations", "[rdma-limit]");
}

static void few_wrs(struct abi *t, const char *kind)
{
	limit(t, kind, ",max_wr=32", "32", "");
}

static void memlock(struct abi *t, const char *kind)
{
	limit(t, kind, ",memlock=65536", "ulimit -l unlimited", "[memlock-small]");
}

/* Enough for a lane, not for the messages: those are copied. */
static void memlock_messages(struct abi *t, const char *kind)
{
	setenv("BRAID_LANES", "1", 1);
	limit(t, kind, ",memlock=2000000", "are copied", "[memlock-small]");
	TRUE(sends() > 100);
}

/* -- calls --------------------------------------------------------------------------------- */

static long *most_calls;		/* that a life has made, of all of them */
static atomic_long *calls_named;	/* WARNs that had to say which it was */

/* Who is told that a lane has no queue pair is told which call it was. */
static void names_call(const char *which)
{
	static const char *const calls[] = { "ibv_create_comp_channel", "ibv_create_cq", "ibv_create_qp",
					     "ibv_create_ah", "ibv_modify_qp", "rdma_create_id",
					     "rdma_resolve_addr", "rdma_resolve_route", "rdma_connect" };
	const char *name = fake_failed(), *line = was_said("this end can't have verbs (");

	if (!line || !name || strcmp(which, "setup"))
		return;
	for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (!strcmp(name, calls[i]) && strncmp(strchr(line, '(') + 1, name, strlen(name)))
			FAIL("%s failed, and what was said is: %.200s", name, line);
	atomic_fetch_add(calls_named, 1);
}

/* Two comms; one receive is taken back on the way, so that the lane is made anew. */
static void life(struct abi *t, unsigned k, const char *which)
{
	struct pair a, b;
	struct net *net;
	struct buf buf;
	struct op op;
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "fail %u %s", k, which);
	ctl(cmd);
	net = heard_up(t);
	pair_open(net, &a);
	exchange(net, a.send, a.recv, 100, 1);
	exchange(net, a.send, a.recv, MOST, 2);
	pair_open(net, &b);
	exchange(net, b.send, b.recv, MOST, 3);
	buf = buf_new(net, b.recv, MOST, 0);
	op = op_recv(net, b.recv, &buf, MOST, 0);
	ops_post(&op, 1);
	for (unsigned i = 0; i < 8; i++)
		exchange(net, a.send, a.recv, sizes[i], i);
	buf_free(net, &buf);
	for (unsigned i = 0; i < 8; i++)
		exchange(net, a.send, a.recv, sizes[i], i);
	pair_close(net, &b);
	pair_close(net, &a);
	abi_down(net);
	objects_gone();
	names_call(which);
	if (ctl("calls") > *most_calls)
		*most_calls = ctl("calls");
}

static void each_call(struct abi *t, const char *kind, const char *which)
{
	/* Where no events can be had, who ends a queue pair that has asked does wait. */
	const char *more = strstr(which, " on") ? ",mpa=200" : "";
	unsigned step = getenv("BRAID_TEST_RDMA_CALLS") ? 1 : STRIDE, k = 0;
	int status = 0;

	most_calls = mmap(NULL, 2 * sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	TRUE(most_calls != MAP_FAILED);
	calls_named = (atomic_long *)&most_calls[1];
	unsetenv("BRAID_TEST_RDMA_CALLS");
	setenv("BRAID_LINK_IDLE", "1", 1);
	/* The first life is without a fault, and counts. */
	for (; k <= *most_calls; k += k ? step : 1 + rnd_below(t, step)) {
		pid_t pid;

		fflush(NULL);
		nic(kind, more);
		pid = fork();
		TRUE(pid >= 0);
		if (!pid) {
			nic(kind, more);
			warns_expected();
			life(t, k, which);
			_exit(0);
		}
		TRUE(waitpid(pid, &status, 0) == pid);
		if (status)
			FAIL("call %u of %s of %s: status %x", k, which, kind, status);
	}
	TRUE(*most_calls > 50);
	printf("%s, %s: %ld calls, one in %u was failed; %ld times a lane had to do without\n", kind,
	       which, *most_calls, step, (long)*calls_named);
}

static void setup_calls(struct abi *t, const char *kind)
{
	each_call(t, kind, "setup");
}

static void setup_calls_on(struct abi *t, const char *kind)
{
	each_call(t, kind, "setup EIO on");
}

static void post_calls(struct abi *t, const char *kind)
{
	each_call(t, kind, "post");
}

/* -- the end comes early ------------------------------------------------------------------- */

/* Finalize finds a connection that is half made, or a lane that is being dialled again. */
static void early(struct abi *t, const char *kind)
{
	warns_expected();
	setenv("BRAID_LANES", "2", 1);
	for (unsigned i = 0; i < 60; i++) {
		uint64_t until;
		struct net *net;
		struct pair p;

		nic(kind, "");
		net = abi_up(t);
		pair_listen(net, &p);
		if (i % 3 == 2) {
			WAIT_FOR(pair_step(net, &p));
			exchange(net, p.send, p.recv, MOST, i);
			while (break_one(rnd_below(t, QPNS)))
				;
		}
		for (until = now_us() + rnd_below(t, 6000); now_us() < until;)
			pair_step(net, &p);
		pair_close(net, &p);
		if (i % 3)
			nap_ms(rnd_below(t, 4));
		abi_down(net);
		objects_gone();
	}
}

/* -- again and again ----------------------------------------------------------------------- */

static void cycles(struct abi *t, const char *kind)
{
	uint64_t from = now_us();
	unsigned fds = 0;
	struct net *net;

	nic(kind, "");
	setenv("BRAID_SHARE", "0", 1);
	setenv("BRAID_STAT", "0", 1);	/* whose thread opens a socket in its own time */
	net = abi_up(t);
	for (unsigned i = 0; i < 1000; i++) {
		struct pair p;

		pair_open(net, &p);
		exchange(net, p.send, p.recv, i % 2 ? 100 : 20000, i);
		pair_close(net, &p);
		if (i == 100)
			fds = count_fds();
	}
	printf("%s: %u us a cycle\n", kind, (unsigned)((now_us() - from) / 1000));
	WAIT_FOR(!ctl("live qp") && ctl("live mr") <= MRS_KEPT && !ctl("live cq"));
	TRUE(count_fds() <= fds);
	abi_down(net);
	objects_gone();
}

/* -- receives that lanes share ------------------------------------------------------------- */

enum { LINKS = 16, BURST = 40, BURST_SIZE = 5000 };	/* a receive each */

/* Each link's sender has BURST messages under way, for which nobody has asked. */
static void burst(struct net *net, struct pair *p, uint64_t seed)
{
	static struct op send[LINKS][BURST];
	static struct buf buf[LINKS][BURST];
	uint64_t end = deadline_ms(60000);

	for (unsigned i = 0; i < LINKS * BURST; i++) {
		unsigned link = i % LINKS, k = i / LINKS;

		buf[link][k] = buf_new(net, p[link].send, BURST_SIZE, 0);
		fill(buf[link][k].data, BURST_SIZE, seed + i);
		send[link][k] = op_send(net, p[link].send, &buf[link][k], BURST_SIZE, 0);
		while (!op_post(&send[link][k]))
			wait_tick(end, __FILE__, __LINE__, "a send to be taken");
	}
	for (unsigned i = 0; i < LINKS * BURST; i++) {
		struct buf to = buf_new(net, p[i % LINKS].recv, BURST_SIZE, 0);
		struct op op = op_recv(net, p[i % LINKS].recv, &to, BURST_SIZE, 0);

		ops_run(&op, 1);
		EQ(BURST_SIZE, op.got[0]);
		filled(op.data[0], BURST_SIZE, seed + i);
		buf_free(net, &to);
	}
	for (unsigned i = 0; i < LINKS * BURST; i++) {
		ops_run(&send[i % LINKS][i / LINKS], 1);
		buf_free(net, &buf[i % LINKS][i / LINKS]);
	}
}

/* There are 256 receives for 32 lanes, each of which may use 56 at one time. */
static void shared(struct abi *t)
{
	struct pair p[LINKS];
	struct net *net;
	cpu_set_t cpus;
	long mrs;

	/* With one CPU a burst is out before anybody takes of it. */
	TRUE(!sched_getaffinity(0, sizeof(cpus), &cpus));
	for (unsigned i = 0; CPU_COUNT(&cpus) > 1; i++)
		CPU_CLR(i, &cpus);
	TRUE(!sched_setaffinity(0, sizeof(cpus), &cpus));
	nic("rocev2", ",max_wr=256");
	setenv("BRAID_SHARE", "0", 1);
	setenv("BRAID_LANES", "1", 1);
	net = abi_up(t);
	pair_open(net, &p[0]);
	mrs = ctl("live mr");
	for (unsigned i = 1; i < LINKS; i++)
		pair_open(net, &p[i]);
	EQ(2 * LINKS, ctl("live qp"));
	EQ(1, ctl("live srq"));
	/* The first link's two lanes have brought one piece of memory each, the next two as well. */
	printf("%ld registrations for 2 lanes, %ld for %d\n", mrs, ctl("live mr"), 2 * LINKS);
	EQ(mrs + 2 + (LINKS - 1) * (mrs - 2), ctl("live mr"));
	for (unsigned i = 0; i < 4; i++)
		burst(net, p, i * 1000);
	printf("%ld messages had to be sent again, for there was no receive\n", ctl("count rnr"));
	for (unsigned i = 0; i < LINKS; i++)
		pair_close(net, &p[i]);
	abi_down(net);
	objects_gone();
}

/* The same on a device that has none, and where the user does not want one. */
static void unshared(struct abi *t, const char *more, const char *wanted)
{
	struct net *net;
	struct pair p;

	nic("rocev2", more);
	setenv("BRAID_IB_SRQ", wanted, 1);
	net = abi_up(t);
	pair_open(net, &p);
	for (unsigned i = 0; i < 8; i++)
		exchange(net, p.send, p.recv, sizes[i], i);
	TRUE(ctl("live qp") > 0 && sends() > 8);
	EQ(0, ctl("live srq"));
	pair_close(net, &p);
	abi_down(net);
	objects_gone();
}

static void has_no_srq(struct abi *t)
{
	unshared(t, ",srq=0", "1");
}

static void few_srqs(struct abi *t)
{
	unshared(t, ",max_srq=0", "1");
}

static void wants_no_srq(struct abi *t)
{
	unshared(t, "", "0");
}

/* What NCCL has registered is, what Braid has for itself never. */
static void relaxed_as(struct abi *t, const char *wanted, long ret)
{
	struct net *net;
	struct pair p;
	struct buf b;

	nic(kinds[0], "");
	setenv("BRAID_IB_PCI_RELAXED_ORDERING", wanted, 1);
	net = abi_up(t);
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 8, 0);
	TRUE(ctl("live mr") > 0);
	EQ(0, ctl("live relaxed"));
	b = buf_new(net, p.recv, MOST, 0);
	EQ(ret, ctl("live relaxed"));
	buf_free(net, &b);
	EQ(0, ctl("live relaxed"));
	pair_close(net, &p);
	abi_down(net);
	objects_gone();
}

static void relaxed(struct abi *t)
{
	relaxed_as(t, "2", 1);
}

static void strict(struct abi *t)
{
	relaxed_as(t, "0", 0);
}

/* With it all queue pairs of this end fail, and nobody joins it any more. */
static void srq_fails(struct abi *t, const char *kind)
{
	struct peer p;
	struct job *j;

	j = start_lanes(t, &p, kind, "", "4");
	TRUE(uses_rdma(j));
	for (unsigned i = 0; i < 2; i++) {
		TRUE(ctl("srq error") > 0);
		stall_ends(j, "a shared receive queue fails");
		returns(j, kind);
	}
	finish(j, &p);
}

static void srq_fails_roce(struct abi *t)
{
	srq_fails(t, kinds[0]);
}

static void srq_fails_ib(struct abi *t)
{
	srq_fails(t, kinds[2]);
}

EACH_KIND(removed)
EACH_KIND(flaps)
EACH_KIND(killed)
EACH_KIND(stopped)
EACH_KIND(peer_has_none)
EACH_KIND(peer_has_other)
EACH_KIND(plain_memory)
EACH_KIND(memory)
EACH_KIND(memory_lanes)
EACH_KIND(few_qps)
EACH_KIND(few_cqs)
EACH_KIND(few_cqes)
EACH_KIND(few_mrs)
EACH_KIND(few_wrs)
EACH_KIND(memlock)
EACH_KIND(memlock_messages)
EACH_KIND(setup_calls)
EACH_KIND(setup_calls_on)
EACH_KIND(post_calls)
EACH_KIND(cycles)
EACH_KIND(one_of_several)
EACH_KIND(fused)
EACH_KIND(early)

static void port_down_ib(struct abi *t)
{
	port_down(t, kinds[2]);
}

static void memory_ib(struct abi *t)
{
	memory_lanes(t, kinds[2]);
}

#define LONG ONCE, .seconds = 120

#define BOTH(promise, body)						\
	CASE("RoCE: " promise, body##_roce, LONG), CASE("iWARP: " promise, body##_iwarp, LONG)

/* What the user tells of rails, NCCL hears; with two ports as one, what both have. */
static void rails(struct abi *t)
{
	static const int members[] = { 0, 1 };
	struct braid_net_props p;
	struct net *net;
	int dev;

	nic("ib", ";nic1:ib;nic2:ib");
	setenv("NCCL_IB_HCA", "=nic0:1:3:0,nic1:1:3:1,nic2:1", 1);
	setenv("BRAID_FUSE", "any", 1);
	net = abi_up(t);
	OK(net_props(net, 0, &p));
	EQ(3, p.rail);
	EQ(0, p.plane);
	OK(net_props(net, 1, &p));
	EQ(3, p.rail);
	EQ(1, p.plane);
	OK(net_props(net, 2, &p));
	EQ(-1, p.rail);
	EQ(-1, p.plane);
	OK(net_fuse(net, 2, members, &dev));
	OK(net_props(net, dev, &p));
	EQ(3, p.rail);
	EQ(-1, p.plane);
	abi_down(net);
}

static const struct abi_case cases[] = {
	CASE("rails and planes that BRAID_IB_HCA tells of are NCCL's", rails, .since = 12),
	CASE("RoCE: a port that goes down costs a moment", port_down_roce, LONG),
	CASE("iWARP: a port that goes down costs a moment", port_down_iwarp, LONG),
	CASE("RoCE: so it does with several lanes", port_down_lanes_roce, LONG),
	CASE("iWARP: so it does with several lanes", port_down_lanes_iwarp, LONG),
	CASE("RoCE: packets that vanish cost a moment", black_hole_roce, LONG),
	CASE("iWARP: packets that vanish cost a moment", black_hole_iwarp, LONG),
	CASE("RoCE: so they do with several lanes", black_hole_lanes_roce, LONG),
	CASE("iWARP: so they do with several lanes", black_hole_lanes_iwarp, LONG),
	BOTH("a NIC that is removed costs a moment", removed),
	BOTH("queue pairs that fail again and again are left alone", flaps),
	BOTH("a peer that is killed is noticed at once", killed),
	BOTH("a peer that is stopped is waited for", stopped),
	BOTH("a peer without RDMA is met over TCP", peer_has_none),
	BOTH("a peer with another kind of NIC is met over TCP", peer_has_other),
	BOTH("memory that the NIC does not know is sent and received", plain_memory),
	BOTH("memory that is taken back is left alone", memory),
	BOTH("so it is with several lanes", memory_lanes),
	BOTH("too few queue pairs", few_qps),
	BOTH("too few completion queues", few_cqs),
	BOTH("completion queues too short", few_cqes),
	BOTH("too few registrations", few_mrs),
	BOTH("too few work requests", few_wrs),
	BOTH("memlock too small for a lane", memlock),
	BOTH("memlock too small for messages", memlock_messages),
	CASE("RoCE: receives are shared, and there may be too few", shared, LONG),
	CASE("RoCE: a device has no shared receive queue", has_no_srq, LONG),
	CASE("RoCE: all shared receive queues are taken", few_srqs, LONG),
	CASE("RoCE: each lane has its own receives if that is wanted", wants_no_srq, LONG),
	CASE("RoCE: a shared receive queue that fails costs a moment", srq_fails_roce, LONG),
	CASE("IB: a shared receive queue that fails costs a moment", srq_fails_ib, LONG),
	BOTH("each call that sets something up fails", setup_calls),
	BOTH("each call that sets something up fails, and all that follow", setup_calls_on),
	BOTH("each call that moves data fails", post_calls),
	BOTH("a thousand connections leave nothing", cycles),
	BOTH("some queue pairs of several fail", one_of_several),
	BOTH("two ports that were made one fail", fused),
	CASE("iWARP: a port that is in use costs nothing", ports_taken, LONG),
	CASE("iWARP: nobody hears of a SIGPIPE of the driver's", sigpipe, LONG),
	CASE("iWARP: a request that comes too late costs a moment", late_requests, LONG),
	CASE("iWARP: alone, a link has time to come up", slow_alone, LONG),
	BOTH("the end comes while a connection is made", early),
	CASE("RoCE: writes into NCCL's buffers may overtake each other, no others", relaxed, LONG),
	CASE("RoCE: none may if that is wanted", strict, LONG),
	CASE("iWARP: NCCL's traffic class is that of the packets", marked_by_nccl, LONG),
	CASE("iWARP: BRAID_DSCP wins over it", marked_by_dscp, LONG),
	CASE("iWARP: without either, or if it can't be had, nothing is marked", marked_by_nobody, LONG),
	CASE("RoCE: BRAID_IB_GID chooses for one port", gid_of_port, LONG),
	CASE("RoCE: and leaves others to BRAID_IB_GID_INDEX", gid_of_all, LONG),
	CASE("RoCE: an entry that is not there leaves it to TCP", gid_missing, LONG),
	CASE("RoCE: a GID that changes is followed", gid_moves, LONG),
	CASE("IB: a port that goes down costs a moment", port_down_ib, LONG),
	CASE("IB: memory that is taken back is left alone", memory_ib, LONG),
};

int main(void)
{
	int failed;

	fakes_load();
	failed = abi_main(__FILE__, cases, sizeof(cases) / sizeof(cases[0]));
	fakes_forget();
	return failed;
}
