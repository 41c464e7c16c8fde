/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_slow_nic.c - a NIC whose commands take long delays its own lanes, and nothing else.
 *
 * Each row makes one call of libibverbs or librdmacm slow, at one NIC of one process (tests/fake):
 * 2.5 s a call, or BRAID_TEST_SLOW_NIC_MS=30000, which takes minutes.  Meanwhile memory is
 * deregistered under a message, the NIC's port goes down and up with messages outstanding, and
 * connections are made and closed.  Another thread moves messages on another NIC all the time.
 * Where BRAID_TEST_ALL is not set, rows that are much like another are left out.
 */
#include "tests/abi/nics.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
	CALL_MS = 2500,
	OWN_MS = 1500,			/* of the slow NIC's messages: seven retries fail first */
	PAUSE_MS = 100, CALL_MAX_US = 5000,	/* on an idle host */
	FUSED_MS = 50,			/* until another lane of the link goes on */
	FLAP_MS = 60,			/* after both ports were down: connecting again */
	SMALL = 1000,			/* bytes: a message that needs no credit */
	BUSY = 10,			/* tolerance, times the lateness that watch() saw */
	PATTERN = 0x5a,
};

struct row {
	const char *call, *kind;
	bool deregs;			/* the slow call delays deregMr() */
	bool any;			/* the call comes before a NIC is known */
	bool often;			/* run it also without BRAID_TEST_ALL */
};

static unsigned slow_ms(void)
{
	const char *ms = getenv("BRAID_TEST_SLOW_NIC_MS");

	return ms ? (unsigned)atoi(ms) : CALL_MS;
}

/* -- how late threads are on this host ---------------------------------------------------- */

static _Atomic uint64_t late_us;
static atomic_bool over;

static void *watch(void *arg)
{
	(void)arg;
	while (!atomic_load(&over)) {
		uint64_t from = now_us(), late;

		nap_ms(1);
		late = now_us() - from;
		if (late > atomic_load(&late_us))
			atomic_store(&late_us, late);
	}
	return NULL;
}

/* Fails above ten times `most_us`, more on a late host, but at 3/4 of the slow call's time at the latest. */
static void within(const char *call, const char *what, uint64_t us, uint64_t most_us)
{
	uint64_t most = 10 * most_us + BUSY * atomic_load(&late_us);

	if (most > slow_ms() * 750)
		most = slow_ms() * 750;
	printf("%s: %s: %.1f ms\n", call, what, (double)us / 1000);
	if (us > most)
		FAIL("%s: %s: %.1f ms; at most %.1f", call, what, (double)us / 1000,
		     (double)most / 1000);
}

/* -- two NICs ----------------------------------------------------------------------------- */

static void nics(const char *kind)
{
	char more[64], names[64];

	setenv("BRAID_LANES", "2", 1);
	setenv("BRAID_IB_TIMEOUT", "15", 1);	/* 134 ms: see OWN_MS */
	setenv("BRAID_SHARE", "0", 1);
	setenv("BRAID_SOCKET_FAMILY", "AF_INET", 1);
	if (!strcmp(kind, "ib")) {
		nic(kind, ";nic1:ib");
		setenv("BRAID_SOCKET_IFNAME", "=lo", 1);
		return;
	}
	snprintf(more, sizeof(more), ";nic1:%s,netdev=%s", kind, second_interface());
	nic(kind, more);
	snprintf(names, sizeof(names), "=lo,%s", second_interface());
	setenv("BRAID_SOCKET_IFNAME", names, 1);
}


/* A thread that only moves messages. */
struct player {
	struct job job;
	atomic_bool stop;
	uint64_t longest_us, slowest_us;	/* until then */
	pthread_t thread;
};

static void *play(void *arg)
{
	struct player *p = arg;

	while (!atomic_load(&p->stop))
		job_step(&p->job);
	p->longest_us = p->job.longest_us;
	p->slowest_us = p->job.slowest_us;
	p->job.out.stop = true;
	job_finish(&p->job);
	return NULL;
}

static void play_start(struct player *p)
{
	EQ(0, pthread_create(&p->thread, NULL, play, p));
}

static void play_stop(struct player *p)
{
	atomic_store(&p->stop, true);
	pthread_join(p->thread, NULL);
}

/* The peer, whose own calls are not slow. */
static void follow(struct abi *t, int fd)
{
	static struct player p[2];
	struct job *j = &p[0].job;
	struct net *net = abi_up(t);

	warns_expected();
	for (int i = 0; i < 2; i++) {
		void *send, *recv;

		on_device(i);
		send = send_to(net, fd);
		recv = recv_from(net, fd);
		job_new(&p[i].job, net, send, recv);
	}
	play_start(&p[1]);
	while (!j->in.stops)
		job_step(j);
	j->out.stop = true;
	job_finish(j);
	play_stop(&p[1]);
	meet(fd);
	for (int i = 0; i < 2; i++) {
		OK(net_close_send(net, p[i].job.out.comm));
		OK(net_close_recv(net, p[i].job.in.comm));
	}
	abi_down(net);
}

/* -- memory is taken back ----------------------------------------------------------------- */

static void *send_late(void *arg)
{
	struct op *op = arg;
	uint64_t end = deadline_ms(60000);

	while (!op_post(op) && now_us() < end)
		nap_ms(1);
	for (unsigned i = 0; i < 200 && !op_test(op) && op->res == 0; i++)
		nap_ms(1);
	return NULL;
}

/* Deregisters a posted receive's memory while its message arrives: later nothing may change there. */
static uint64_t take_back(struct net *net, struct pair *p)
{
	struct buf to = buf_new(net, p->recv, MOST, 0), from = buf_new(net, p->send, MOST, 0);
	struct op recv = op_recv(net, p->recv, &to, MOST, 0);
	struct op send = op_send(net, p->send, &from, MOST, 0);
	pthread_t thread;
	uint64_t took;

	memset(from.data, 1, MOST);
	ops_post(&recv, 1);
	for (unsigned i = 0; i < 50; i++) {
		op_test(&recv);
		nap_ms(1);
	}
	EQ(0, pthread_create(&thread, NULL, send_late, &send));
	took = now_us();
	OK(net_dereg(net, p->recv, to.mr));
	took = now_us() - took;
	memset(to.data, PATTERN, MOST);
	pthread_join(thread, NULL);
	nap_ms(300);
	for (unsigned i = 0; i < MOST; i++) {
		if (to.data[i] != PATTERN)
			FAIL("byte %u was written after deregMr()", i);
	}
	return took;
}

/* -- one row ------------------------------------------------------------------------------ */

struct scene {
	struct net *net;
	struct peer peer;
	struct job a;			/* on the slow NIC */
	struct player b;		/* on the other NIC */
	struct pair victim;
	pthread_t watch;
};

static void begin(struct abi *t, struct scene *s, const struct row *row)
{
	void *send, *recv;

	nics(row->kind);
	s->peer = peer_start(t, follow);
	s->net = abi_up(t);
	warns_expected();
	for (int i = 0; i < 2; i++) {
		on_device(i);
		recv = recv_from(s->net, s->peer.fd);
		send = send_to(s->net, s->peer.fd);
		job_new(i ? &s->b.job : &s->a, s->net, send, recv);
	}
	on_device(0);
	pair_open(s->net, &s->victim);
	/* Once a message was large, the credit for a receive is sent before its message comes. */
	exchange(s->net, s->victim.send, s->victim.recv, MOST, 1);
	EQ(0, pthread_create(&s->watch, NULL, watch, NULL));
	play_start(&s->b);
	job_play(&s->a, 200);
	TRUE(ctl("count sends") > 32);
	s->a.longest_us = s->a.slowest_us = 0;
}

/* Opens and closes a connection on the slow NIC's device, over TCP if need be. */
static void connect_and_close(struct scene *s, const char *call)
{
	uint64_t end = deadline_ms(30000), from, took, slowest = 0;
	struct pair p;
	bool done;

	pair_listen(s->net, &p);
	do {
		from = now_us();
		done = pair_step(s->net, &p);
		took = now_us() - from;
		slowest = took > slowest ? took : slowest;
		job_step(&s->a);
		wait_tick(end, __FILE__, __LINE__, "a connection");
	} while (!done);
	within(call, "connect() and accept()", slowest, CALL_MAX_US);
	from = now_us();
	pair_close(s->net, &p);
	within(call, "all of close", now_us() - from, 3 * CALL_MAX_US);
}

static void finish(struct scene *s)
{
	s->a.out.stop = true;
	job_finish(&s->a);
	play_stop(&s->b);
	atomic_store(&over, true);
	pthread_join(s->watch, NULL);
	meet(s->peer.fd);
	pair_close(s->net, &s->victim);
	OK(net_close_send(s->net, s->a.out.comm));
	OK(net_close_recv(s->net, s->a.in.comm));
	job_close(&s->b.job);
	peer_join(&s->peer);
}

/* Judges a time: registering and deregistering memory may take as long as `calls` slow calls. */
static void may_wait(const struct row *row, const char *what, uint64_t us, unsigned calls)
{
	uint64_t most = (calls * slow_ms() + 1000) * 1000;

	if (!calls) {
		within(row->call, what, us, OWN_MS * 1000);
		return;
	}
	printf("%s: %s: %.1f ms\n", row->call, what, (double)us / 1000);
	if (us > most)
		FAIL("%s: %s: %.1f ms", row->call, what, (double)us / 1000);
}

static void slow(struct abi *t, const struct row *row)
{
	static struct scene s;
	uint64_t took;
	char cmd[96];
	long before;

	if (!row->often && !getenv("BRAID_TEST_ALL"))
		skip_because("much like another row: set BRAID_TEST_ALL=1 to run it");
	begin(t, &s, row);
	snprintf(cmd, sizeof(cmd), "slow %s %u%s", row->call, slow_ms(), row->any ? "" : " nic0");
	ctl(cmd);
	before = ctl("slept");
	took = take_back(s.net, &s.victim);
	may_wait(row, "deregMr()", took, row->deregs ? 2 : 0);
	job_need(&s.a, 4, 60000 + 20 * slow_ms());	/* nothing has called test() for it meanwhile */
	s.a.longest_us = 0;
	ctl("port nic0 down");
	job_play(&s.a, 600);
	job_need(&s.a, 16, 60000 + 20 * slow_ms());
	took = s.a.longest_us;
	may_wait(row, "its own messages, as the port goes down", took, 0);
	ctl("port nic0 up");
	connect_and_close(&s, row->call);
	job_play(&s.a, 1500);
	connect_and_close(&s, row->call);
	job_play(&s.a, 500);
	within(row->call, "isend(), irecv(), test()", s.a.slowest_us, CALL_MAX_US);
	printf("%s: %ld calls were slow; threads were late by %.1f ms\n", row->call,
	       ctl("slept") - before, (double)atomic_load(&late_us) / 1000);
	TRUE(ctl("slept") > before);
	ctl("slow none");
	finish(&s);
	within(row->call, "the same on the other NIC", s.b.slowest_us, CALL_MAX_US);
	within(row->call, "a pause on the other NIC", s.b.longest_us, PAUSE_MS * 1000);
}

/* -- both NICs are one device ------------------------------------------------------------- */

/* Two comms of one link. */
static struct job large, small;

static void both_new(struct net *net, int fd, bool leads)
{
	for (int i = 0; i < 2; i++) {
		void *recv = leads ? recv_from(net, fd) : NULL, *send = send_to(net, fd);

		recv = leads ? recv : recv_from(net, fd);
		job_new_small(i ? &small : &large, net, send, recv, i ? SMALL : 0);
	}
}

static void both_play(unsigned ms)
{
	for (uint64_t until = now_us() + ms * 1000; now_us() < until;) {
		job_step(&large);
		job_step(&small);
	}
}

/* Goes on until n more messages of each job have come in. */
static void both_need(unsigned n, unsigned ms)
{
	uint64_t want[] = { large.in.oldest + n, small.in.oldest + n }, end = deadline_ms(ms);

	while (large.in.oldest < want[0] || small.in.oldest < want[1]) {
		both_play(1);
		wait_tick(end, __FILE__, __LINE__, "messages");
	}
}

static void both_close(struct net *net, int fd)
{
	uint64_t end = deadline_ms(60000);

	large.out.stop = small.out.stop = true;
	while (!job_over(&large) || !job_over(&small)) {
		both_play(1);
		wait_tick(end, __FILE__, __LINE__, "the last messages");
	}
	job_finish(&large);
	job_finish(&small);
	meet(fd);
	OK(net_close_send(net, small.out.comm));
	OK(net_close_recv(net, small.in.comm));
	job_close(&large);
}

static void follow_fused(struct abi *t, int fd)
{
	struct net *net = fused_up(t);

	both_new(net, fd, false);
	warns_expected();
	while (!large.in.stops || !small.in.stops)
		both_play(1);
	both_close(net, fd);
}

/*
 * The NIC is slow at this end alone.  Only messages that the peer was writing over it have to wait,
 * since the NIC might still write them.
 */
static void port_goes_down(const char *call)
{
	job_rest(&large);
	job_rest(&small);
	ctl("port nic0 down");
	both_play(1000);
	both_need(16, 60000 + 20 * slow_ms());
	within(call, "a pause of what comes by large messages", large.in.longest_us, OWN_MS * 1000);
	within(call, "a pause of what leaves by large messages", large.out.longest_us, FUSED_MS * 1000);
	within(call, "a pause of what comes by small messages", small.in.longest_us, FUSED_MS * 1000);
	within(call, "a pause of what leaves by small messages", small.out.longest_us, FUSED_MS * 1000);
}

struct fused {
	struct net *net;
	struct peer peer;
	pthread_t watch;
};

static void fused_begin(struct abi *t, struct fused *f, const char *call)
{
	char cmd[96];

	nics("ib");
	setenv("BRAID_SHARE", "1", 1);
	setenv("BRAID_LANES", "4", 1);
	setenv("BRAID_FUSE", "any", 1);	/* "any": fake NICs have no PCI path */
	f->peer = peer_start(t, follow_fused);
	f->net = fused_up(t);
	warns_expected();
	both_new(f->net, f->peer.fd, true);
	EQ(0, pthread_create(&f->watch, NULL, watch, NULL));
	both_play(200);
	snprintf(cmd, sizeof(cmd), "slow %s %u nic0", call, slow_ms());
	ctl(cmd);
}

static void fused_end(struct fused *f)
{
	TRUE(ctl("slept") > 0);
	ctl("slow none");
	both_close(f->net, f->peer.fd);
	atomic_store(&over, true);
	pthread_join(f->watch, NULL);
	peer_join(&f->peer);
}

/* Messages of the slow NIC's lanes go on over the other NIC, even if the home lane was lost. */
static void fused_slow(struct abi *t, const char *call)
{
	struct fused f;

	fused_begin(t, &f, call);
	for (unsigned i = 0; i < 2; i++) {
		port_goes_down(call);
		ctl("port nic0 up");
		both_play(1500);
	}
	fused_end(&f);
}

/* The other NIC's lanes are lost as well, and come back without waiting for the slow one. */
static void fused_flap(struct abi *t)
{
	const char *call = "ibv_modify_qp:ERR";
	struct fused f;

	fused_begin(t, &f, call);
	job_rest(&small);
	ctl("port nic0 down");
	both_play(20);
	ctl("port nic1 down");
	both_play(20);
	ctl("port nic1 up");
	both_play(1000);
	both_need(16, 60000 + 20 * slow_ms());
	within(call, "a pause of what leaves by small messages", small.out.longest_us,
	       FLAP_MS * 1000);
	ctl("port nic0 up");
	both_play(500);
	fused_end(&f);
}

static void fused_destroy(struct abi *t)
{
	fused_slow(t, "ibv_destroy_qp");
}

static void fused_stop(struct abi *t)
{
	fused_slow(t, "ibv_modify_qp:ERR");
}

static void fused_all(struct abi *t)
{
	fused_slow(t, "all");
}

/* -- the end ------------------------------------------------------------------------------ */

/* finalize() waits for a NIC that never answers, but only for a moment. */
static void stuck_at_the_end(struct abi *t)
{
	enum { STUCK_MS = 60000, HANGS_MS = 7000, MOST_MS = 4000 };
	struct net *net;
	struct pair p;
	uint64_t took;
	char cmd[64];

	nics("ib");
	net = abi_up(t);
	warns_expected();
	pair_open(net, &p);
	exchange(net, p.send, p.recv, MOST, 1);
	snprintf(cmd, sizeof(cmd), "slow all %u nic0", STUCK_MS);
	ctl(cmd);
	pair_close(net, &p);
	nap_ms(HANGS_MS);
	took = now_us();
	abi_down(net);
	took = now_us() - took;
	printf("finalize() took %.1f ms\n", (double)took / 1000);
	TRUE(took < deadline_ms(MOST_MS) - now_us());
	/* The next communicator uses the other NIC. */
	net = abi_up(t);
	on_device(1);
	pair_open(net, &p);
	exchange(net, p.send, p.recv, MOST, 1);
	pair_close(net, &p);
	abi_down(net);
	end_well();
}

/* -- memory that a NIC keeps -------------------------------------------------------------- */

static atomic_uint ahead_s;		/* seconds by which this process's clock is ahead */

__attribute__((visibility("default")))
int clock_gettime(clockid_t id, struct timespec *ts)
{
	static _Atomic(void *) next;
	int rc;

	if (!next)
		next = dlsym(RTLD_NEXT, "clock_gettime");
	rc = ((int (*)(clockid_t, struct timespec *))next)(id, ts);
	if (id == CLOCK_MONOTONIC)
		ts->tv_sec += atomic_load(&ahead_s);
	return rc;
}

static void *time_passes(void *arg)
{
	(void)arg;
	nap_ms(500);
	atomic_store(&ahead_s, 80);
	return NULL;
}

/* The NIC may still write to the memory, so deregMr() fails after 75 s, which a fake clock shortens. */
static void keeps_memory(struct abi *t)
{
	struct net *net;
	struct pair p;
	struct buf to;
	struct op recv;
	pthread_t thread;
	long mrs;

	nics("ib");
	net = abi_up(t);
	warns_expected();
	pair_open(net, &p);
	exchange(net, p.send, p.recv, MOST, 1);
	to = buf_new(net, p.recv, MOST, 0);
	recv = op_recv(net, p.recv, &to, MOST, 0);
	ops_post(&recv, 1);
	for (unsigned i = 0; i < 50; i++) {
		op_test(&recv);
		nap_ms(1);
	}
	ctl("slow ibv_modify_qp:ERR 5000 nic0");
	ctl("fail 1 post EIO on");	/* nor do completions show that the NIC has stopped */
	mrs = ctl("live mr");
	EQ(0, pthread_create(&thread, NULL, time_passes, NULL));
	TRUE(net_dereg(net, p.recv, to.mr) != ncclSuccess);
	pthread_join(thread, NULL);
	warned_with("nic-keeps-memory");
	TRUE(ctl("live mr") >= mrs);	/* a new lane may have registered memory of its own */
	end_well();
}

#define ROWS(X)									\
	X(destroy_qp, "ibv_destroy_qp", "ib", .often = true)			\
	X(destroy_cq, "ibv_destroy_cq", "ib")					\
	X(destroy_comp_channel, "ibv_destroy_comp_channel", "ib")		\
	X(destroy_srq, "ibv_destroy_srq", "ib")					\
	X(dereg_mr, "ibv_dereg_mr", "ib", .deregs = true, .often = true)	\
	X(reg_mr, "ibv_reg_mr", "ib")						\
	X(reg_mr_iova2, "ibv_reg_mr_iova2", "ib", .deregs = true)		\
	X(create_comp_channel, "ibv_create_comp_channel", "ib")			\
	X(create_cq, "ibv_create_cq", "ib")					\
	X(create_qp, "ibv_create_qp", "ib", .often = true)			\
	X(create_srq, "ibv_create_srq", "ib")					\
	X(to_init, "ibv_modify_qp:INIT", "ib")					\
	X(to_rtr, "ibv_modify_qp:RTR", "ib")					\
	X(to_rts, "ibv_modify_qp:RTS", "ib")					\
	X(to_err, "ibv_modify_qp:ERR", "ib", .often = true)			\
	X(query_port, "ibv_query_port", "ib")					\
	X(query_gid, "_ibv_query_gid_ex", "ib")					\
	X(all, "all", "ib", .deregs = true, .often = true)			\
	X(create_ah, "ibv_create_ah", "rocev2", .often = true)			\
	X(destroy_ah, "ibv_destroy_ah", "rocev2")				\
	X(roce_destroy_qp, "ibv_destroy_qp", "rocev2")				\
	X(iwarp_destroy_qp, "ibv_destroy_qp", "iwarp", .often = true)		\
	X(iwarp_to_err, "ibv_modify_qp:ERR", "iwarp")				\
	X(create_id, "rdma_create_id", "iwarp", .any = true)			\
	X(resolve_addr, "rdma_resolve_addr", "iwarp", .any = true)		\
	X(resolve_route, "rdma_resolve_route", "iwarp", .often = true)		\
	X(rdma_create_qp, "rdma_create_qp", "iwarp")				\
	X(connect, "rdma_connect", "iwarp", .often = true)			\
	X(accept, "rdma_accept", "iwarp")					\
	X(destroy_id, "rdma_destroy_id", "iwarp")

#define BODY(name, call_, kind_, ...)					\
	static void name##_is_slow(struct abi *t)			\
	{								\
		slow(t, &(struct row){ .call = call_, .kind = kind_, __VA_ARGS__ });	\
	}
ROWS(BODY)

#define ENTRY(name, call_, kind_, ...)					\
	CASE(kind_ ": " call_ " costs nobody else anything", name##_is_slow, ONCE, .seconds = 240),

static const struct abi_case cases[] = {
	ROWS(ENTRY)
	CASE("two NICs as one: ibv_destroy_qp", fused_destroy, ONCE, .seconds = 240),
	CASE("two NICs as one: ibv_modify_qp:ERR", fused_stop, ONCE, .seconds = 240),
	CASE("two NICs as one: all calls", fused_all, ONCE, .seconds = 240),
	CASE("two NICs as one: the second NIC's port goes down, too",
	     fused_flap, ONCE, .seconds = 240),
	CASE("finalize() does not wait for a NIC that never answers",
	     stuck_at_the_end, ONCE, .warns = "nic-hangs"),
	CASE("memory that a NIC may still write is not given back, and that is reported", keeps_memory, ONCE),
};

int main(void)
{
	int failed;

	fakes_load();
	failed = abi_main(__FILE__, cases, sizeof(cases) / sizeof(cases[0]));
	fakes_forget();
	return failed;
}
