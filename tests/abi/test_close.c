/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_close.c - the end of a comm, orderly or not.
 *
 * NCCL aborts by deregistering and closing from its service thread with requests in flight, and
 * the application frees the memory at once: after deregMr() or close() the plugin may not touch it.
 * Here fresh zero pages take its place and must stay zero.  The other end gets ncclRemoteError and,
 * after the first error, the same error from every call.
 */
#include "tests/abi/abi.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/queued.h"

enum { FLIGHT = 8, BYTES = 1 << 20 };

static void flight_new(struct net *net, void *comm, bool is_recv, struct buf *b, struct op *ops)
{
	for (int i = 0; i < FLIGHT; i++) {
		b[i] = buf_new(net, comm, BYTES, 0);
		ops[i] = is_recv ? op_recv(net, comm, &b[i], BYTES, 0) :
				   op_send(net, comm, &b[i], BYTES, 0);
		if (!is_recv)
			fill(b[i].data, BYTES, (uint64_t)i);
	}
}

/* What the end that did not close sees: some messages may have come, the rest are lost. */
static void flight_lost(struct net *net, struct buf *b, struct op *ops)
{
	/* Includes the time to move messages; told_in_time() measures how soon the error comes. */
	uint64_t limit = deadline_ms(drive_hang_ms);

	ops_settle(ops, FLIGHT);
	for (int i = 0; i < FLIGHT; i++) {
		if (ops[i].res == ncclSuccess && ops[i].is_recv)
			filled(b[i].data, BYTES, (uint64_t)i);
		if (ops[i].res != ncclSuccess)
			RES(ncclRemoteError, ops[i].res);
	}
	while (ops[0].res == ncclSuccess) {	/* all messages had arrived: the next can't */
		struct op next = ops[0];

		next.posted = next.done = false;
		ops_settle(&next, 1);
		ops[0].res = next.res;
	}
	RES(ncclRemoteError, ops[0].res);
	if (now_us() > limit)
		FAIL("told, but late");
	for (int i = 0; i < FLIGHT; i++)
		buf_free(net, &b[i]);
}

/* Maps zero pages in place of a buffer that the plugin must not touch any more. */
static void pull_away(struct buf *b)
{
	TRUE(mmap(b->map, b->map_len, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == b->map);
}

static void still_zero(const struct buf *b)
{
	for (size_t i = 0; i < b->map_len; i++)
		if (b->map[i])
			FAIL("byte %zu of a buffer was written after it was taken back", i);
}

static void step_for_us(struct op *ops, uint64_t us)
{
	uint64_t until = now_us() + us;

	while (now_us() < until)
		ops_step(ops, FLIGHT);
}

/* -- close with requests in flight --------------------------------------------------------- */

static int rounds(const struct abi *t)
{
	return t->newest ? 32 : 4;
}

static void in_flight_peer(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *other = send_to(net, fd);
	struct buf b[FLIGHT];
	struct op ops[FLIGHT];

	warns_expected();
	for (int i = 0; i < rounds(t); i++) {
		bool is_recv = i % 2;
		void *comm = is_recv ? recv_from(net, fd) : send_to(net, fd);

		flight_new(net, comm, is_recv, b, ops);
		flight_lost(net, b, ops);
		OK(is_recv ? net_close_recv(net, comm) : net_close_send(net, comm));
		send_one(net, other, 1000, (uint64_t)i);
		meet(fd);
	}
	OK(net_close_send(net, other));
	abi_down(net);
}

/*
 * The rounds differ in which end closes, in whether deregMr() comes before close (else close drops
 * the registration), and in whether the memory is unmapped or reused afterwards.
 */
static void in_flight(struct abi *t)
{
	struct peer peer = peer_start(t, in_flight_peer);
	struct net *net = abi_up(t);
	void *other = recv_from(net, peer.fd);
	struct buf b[FLIGHT];
	struct op ops[FLIGHT];

	warns_expected();
	for (int i = 0; i < rounds(t); i++) {
		bool is_recv = i % 2 == 0, dereg = i & 2, gone = i & 4;
		void *comm = is_recv ? recv_from(net, peer.fd) : send_to(net, peer.fd);

		flight_new(net, comm, is_recv, b, ops);
		step_for_us(ops, rnd_below(t, 3000));
		for (int k = 0; k < FLIGHT && dereg; k++)
			OK(net_dereg(net, comm, b[k].mr));
		OK(is_recv ? net_close_recv(net, comm) : net_close_send(net, comm));
		for (int k = 0; k < FLIGHT; k++) {
			if (gone)
				munmap(b[k].map, b[k].map_len);
			else
				pull_away(&b[k]);
		}
		recv_one(net, other, 1000, (uint64_t)i);
		meet(peer.fd);
		for (int k = 0; k < FLIGHT && !gone; k++) {
			still_zero(&b[k]);
			munmap(b[k].map, b[k].map_len);
		}
	}
	OK(net_close_recv(net, other));
	peer_join(&peer);
	abi_down(net);
}

/* -- how soon after close() the peer has its error ------------------------------------------ */

enum { TOLD_MS = 100 };			/* promised; ten times that fails */

/* Reports when its comm failed, by CLOCK_MONOTONIC, which all processes share. */
static void told_peer(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	struct buf b[FLIGHT];
	struct op ops[FLIGHT];

	warns_expected();
	for (int i = 0; i < rounds(t); i++) {
		bool is_recv = i % 2, told = false;
		void *comm = is_recv ? recv_from(net, fd) : send_to(net, fd);
		uint64_t at;

		flight_new(net, comm, is_recv, b, ops);
		while (!told) {
			ops_step(ops, FLIGHT);
			for (int k = 0; k < FLIGHT; k++) {
				told |= ops[k].res != ncclSuccess;
				if (ops[k].done && ops[k].res == ncclSuccess)
					ops[k].posted = ops[k].done = false;	/* post it again */
			}
		}
		at = now_us();
		give(fd, &at, sizeof(at));
		for (int k = 0; k < FLIGHT; k++)
			buf_free(net, &b[k]);
		OK(is_recv ? net_close_recv(net, comm) : net_close_send(net, comm));
		meet(fd);
	}
	abi_down(net);
}

static bool any(int fd)
{
	(void)fd;
	return true;
}

static void in_time(const char *what, uint64_t *most, uint64_t from, uint64_t limit)
{
	uint64_t now = now_us();

	if (now > limit)
		FAIL("%s %llu ms after close()", what, (unsigned long long)(now - from) / 1000);
	if (now - from > *most)
		*most = now - from;
}

/* Links are not kept, so the link and its sockets close with the last comm. */
static void told_in_time(struct abi *t)
{
	uint64_t most_told = 0, most_gone = 0;
	struct peer peer;
	struct net *net;

	setenv("BRAID_LINK_IDLE", "0", 1);
	peer = peer_start(t, told_peer);
	net = abi_up(t);
	warns_expected();
	for (int i = 0; i < rounds(t); i++) {
		bool is_recv = i % 2 == 0;
		void *comm = is_recv ? recv_from(net, peer.fd) : send_to(net, peer.fd);
		struct buf b[FLIGHT];
		struct op ops[FLIGHT];
		uint64_t from, told, limit;

		flight_new(net, comm, is_recv, b, ops);
		step_for_us(ops, rnd_below(t, 3000));
		OK(is_recv ? net_close_recv(net, comm) : net_close_send(net, comm));
		from = now_us();
		/* More time over RDMA: the NIC is emulated, and queue pairs may have to recover first. */
		limit = deadline_ms(TOLD_MS * (over_rdma() ? 100 : 10));
		take(peer.fd, &told, sizeof(told));
		if (told > from && told - from > most_told)
			most_told = told - from;
		in_time("the peer was told", &most_gone, from, limit);
		while (count_streams(any))
			in_time("there are still sockets", &most_gone, from, limit);
		in_time("the sockets were gone", &most_gone, from, limit);
		meet(peer.fd);
		for (int k = 0; k < FLIGHT; k++)
			munmap(b[k].map, b[k].map_len);
	}
	printf("v%d: after close() the peer was told within %llu us, the sockets were gone within %llu us\n",
	       t->abi, (unsigned long long)most_told, (unsigned long long)most_gone);
	peer_join(&peer);
	abi_down(net);
}

/* -- deregMr from another thread ------------------------------------------------------------ */

struct dereg {
	struct net *net;
	void *comm;
	struct buf *b;
	unsigned after_us;
	bool gone;
};

static void *dereg_main(void *arg)
{
	struct dereg *d = arg;

	usleep(d->after_us);
	for (int k = 0; k < FLIGHT; k++) {
		OK(net_dereg(d->net, d->comm, d->b[k].mr));
		if (d->gone)
			munmap(d->b[k].map, d->b[k].map_len);
		else
			pull_away(&d->b[k]);
	}
	return NULL;
}

static void dereg_other_thread(struct abi *t)
{
	struct peer peer = peer_start(t, in_flight_peer);
	struct net *net = abi_up(t);
	void *other = recv_from(net, peer.fd);
	struct buf b[FLIGHT];
	struct op ops[FLIGHT];

	warns_expected();
	for (int i = 0; i < rounds(t); i++) {
		bool is_recv = i % 2 == 0;
		void *comm = is_recv ? recv_from(net, peer.fd) : send_to(net, peer.fd);
		struct dereg d = { net, comm, b, 100 + rnd_below(t, 4000), i & 2 };
		pthread_t thread;

		flight_new(net, comm, is_recv, b, ops);
		ops_post(ops, FLIGHT);
		TRUE(!pthread_create(&thread, NULL, dereg_main, &d));
		ops_settle(ops, FLIGHT);	/* each is done or failed in bounded time */
		pthread_join(thread, NULL);
		OK(is_recv ? net_close_recv(net, comm) : net_close_send(net, comm));
		recv_one(net, other, 1000, (uint64_t)i);
		meet(peer.fd);
		for (int k = 0; k < FLIGHT && !d.gone; k++) {
			still_zero(&b[k]);
			munmap(b[k].map, b[k].map_len);
		}
	}
	OK(net_close_recv(net, other));
	peer_join(&peer);
	abi_down(net);
}

/* -- an orderly end ------------------------------------------------------------------------- */

enum { LAST_N = 16 };

static size_t last_size(int i)
{
	return i % 4 == 3 ? 400000 : (size_t)i * 1999;
}

static void leaves_at_once(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd);
	struct buf b[LAST_N];
	struct op ops[LAST_N];

	for (int i = 0; i < LAST_N; i++) {
		b[i] = buf_new(net, send, last_size(i), 0);
		fill(b[i].data, b[i].size, (uint64_t)i);
		ops[i] = op_send(net, send, &b[i], b[i].size, 0);
	}
	ops_run(ops, LAST_N);
	for (int i = 0; i < LAST_N; i++)
		buf_free(net, &b[i]);
	OK(net_close_send(net, send));
	abi_down(net);
	end_well();
}

/* A send that is done arrives even if the sender's process ends at once. */
static void all_arrives(struct abi *t)
{
	enum { LEAVERS = 12 };
	unsigned n = t->newest ? LEAVERS : 2;
	struct peer peers[LEAVERS];
	struct net *net;

	for (unsigned i = 0; i < n; i++)
		peers[i] = peer_start(t, leaves_at_once);
	net = abi_up(t);
	for (unsigned i = 0; i < n; i++) {
		void *recv = recv_from(net, peers[i].fd);

		nap_ms(rnd_below(t, 40));
		for (int k = 0; k < LAST_N; k++)
			recv_one(net, recv, last_size(k), (uint64_t)k);
		OK(net_close_recv(net, recv));
	}
	for (unsigned i = 0; i < n; i++)
		peer_join(&peers[i]);
	abi_down(net);
}

static void send_small(struct net *net, void *send)
{
	for (int i = 0; i < LAST_N; i++)
		send_one(net, send, (size_t)i * 199, (uint64_t)i);
}

static void recv_small(struct net *net, void *recv)
{
	for (int i = 0; i < LAST_N; i++)
		recv_one(net, recv, (size_t)i * 199, (uint64_t)i);
}

static void leaves_small(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd);

	send_small(net, send);
	OK(net_close_send(net, send));
	abi_down(net);
	end_well();
}

/* Messages that were sent are received; a receive for one that was never sent fails. */
static void takes_what_was_left(struct net *net, void *recv)
{
	struct buf b = buf_new(net, recv, 1000, 0);
	struct op op;

	recv_small(net, recv);
	warns_expected();
	op = op_recv(net, recv, &b, 1000, 0);
	ops_settle(&op, 1);
	RES(ncclRemoteError, op.res);
	buf_free(net, &b);
	OK(net_close_recv(net, recv));
}

/* Receives are posted after the sender's process has ended. */
static void late_takes(struct abi *t)
{
	struct peer peer = peer_start(t, leaves_small);
	struct net *net = abi_up(t);
	void *recv = recv_from(net, peer.fd);

	peer_join(&peer);
	nap_ms(50);
	takes_what_was_left(net, recv);
	abi_down(net);
}

/* accept() is called after the sender's process has ended; a second sender is never accepted. */
static void late_accepts(struct abi *t)
{
	struct peer peers[] = { peer_start(t, leaves_small), peer_start(t, leaves_small) };
	struct net *net = abi_up(t);
	void *listen[2], *recv = NULL;

	for (int i = 0; i < 2; i++) {
		_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };

		OK(net_listen(net, 0, handle, &listen[i]));
		give(peers[i].fd, handle, sizeof(handle));
		peer_join(&peers[i]);
	}
	nap_ms(50);
	WAIT_FOR(accept_step(net, listen[0], &recv));
	takes_what_was_left(net, recv);
	OK(net_close_listen(net, listen[0]));
	OK(net_close_listen(net, listen[1]));
	abi_down(net);
}

/* A peer that is stopped while the other end leaves, and then sends before it reads. */
static void speaks_first(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *recv = recv_from(net, fd), *send = send_to(net, fd);
	struct buf b = buf_new(net, send, 1000, 0);
	struct op op;

	warns_expected();
	raise(SIGSTOP);
	for (int i = 0; i < 4; i++) {
		op = op_send(net, send, &b, 1000, 0);
		op_post(&op);
		if (op.posted)
			op_test(&op);
	}
	recv_small(net, recv);
	buf_free(net, &b);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	end_well();
}

/* A connection on which writes fail may still hold data that arrived before. */
static void arrives_before_all_fails(struct abi *t)
{
	enum { PEERS = 5 };
	struct peer peers[PEERS];
	const char *ucx = getenv("BRAID_TEST_UCX");
	struct net *net;

	if (getenv("BRAID_TEST_FAKE_DEVICES"))
		skip_because("a NIC that exists in memory only stops with its process");
	if (ucx && !strcmp(ucx, "tcp"))
		skip_because("UCX drops what it has not read when a send fails: docs/user/ucx.md");
	for (int i = 0; i < PEERS; i++)
		peers[i] = peer_start(t, speaks_first);
	net = abi_up(t);
	for (int i = 0; i < PEERS; i++) {
		void *send = send_to(net, peers[i].fd), *recv = recv_from(net, peers[i].fd);

		peer_stopped(&peers[i]);
		send_small(net, send);
		OK(net_close_send(net, send));
		OK(net_close_recv(net, recv));
	}
	abi_down(net);
	for (int i = 0; i < PEERS; i++) {
		kill(peers[i].pid, SIGCONT);
		peer_join(&peers[i]);
	}
}

static void ends_in_order(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);

	send_one(net, send, 1000, 1);
	recv_one(net, recv, 1000, 2);
	meet(fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
	end_well();
}

/* Ranks do not leave at the same moment.  The slower one has lost nothing, so no WARN is logged. */
static void no_warn(struct abi *t)
{
	struct peer peer = peer_start(t, ends_in_order);
	struct net *net = abi_up(t);
	void *recv = recv_from(net, peer.fd), *send = send_to(net, peer.fd);

	recv_one(net, recv, 1000, 1);
	send_one(net, send, 1000, 2);
	meet(peer.fd);
	peer_join(&peer);
	nap_ms(30);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static void delivered_then_error(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;
	struct buf b;
	struct op op;

	warns_expected();
	pair_open(net, &p);
	for (uint64_t i = 0; i < 3; i++)
		send_one(net, p.send, 1000, i);
	OK(net_close_send(net, p.send));
	nap_ms(10);
	for (uint64_t i = 0; i < 3; i++)
		recv_one(net, p.recv, 1000, i);
	b = buf_new(net, p.recv, 1000, 0);
	op = op_recv(net, p.recv, &b, 1000, 0);
	ops_settle(&op, 1);
	RES(ncclRemoteError, op.res);
	buf_free(net, &b);
	OK(net_close_recv(net, p.recv));
	abi_down(net);
}

/* isend() succeeds and test() fails, as in NCCL's own transports: an error of isend() looks local. */
static void taken_then_error(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p, bystander;
	struct buf b;
	struct op op;

	warns_expected();
	pair_open(net, &bystander);
	pair_open(net, &p);
	exchange(net, p.send, p.recv, 1000, 1);
	b = buf_new(net, p.send, BYTES, 0);
	OK(net_close_recv(net, p.recv));
	for (int i = 0; i < 20; i++) {
		exchange(net, bystander.send, bystander.recv, 1000, 2);
		nap_ms(1);
	}
	op = op_send(net, p.send, &b, BYTES, 0);
	WAIT_FOR(op_post(&op));
	RES(ncclSuccess, op.res);
	TRUE(op.req);
	ops_settle(&op, 1);
	RES(ncclRemoteError, op.res);
	buf_free(net, &b);
	OK(net_close_send(net, p.send));
	pair_close(net, &bystander);
	abi_down(net);
}

/* -- an abort ------------------------------------------------------------------------------- */

enum { COMMS = 8 };			/* of one link; every other one receives */

static struct net *up_counting(struct abi *t, const char *word)
{
	abi_hear(word);
	return abi_up(t);
}

struct rank {
	struct net *net;
	void *comm[COMMS];
	struct buf b[COMMS];
	struct op op[COMMS];		/* none of them can finish */
};

static void rank_open(struct rank *r, struct net *net, int fd, bool first)
{
	r->net = net;
	for (int i = 0; i < COMMS; i++) {
		bool is_recv = i % 2 == first;

		r->comm[i] = is_recv ? recv_from(net, fd) : send_to(net, fd);
		r->b[i] = buf_new(net, r->comm[i], BYTES, 0);
		/* The tags of sends and receives differ, so none matches. */
		r->op[i] = is_recv ? op_recv(net, r->comm[i], &r->b[i], BYTES, 1) :
				     op_send(net, r->comm[i], &r->b[i], BYTES, 2);
	}
	ops_post(r->op, COMMS);
}

/* As NCCL does: deregisters memory first, then closes. */
static void rank_abort(struct rank *r)
{
	for (int i = 0; i < COMMS; i++)
		buf_free(r->net, &r->b[i]);
	for (int i = 0; i < COMMS; i++)
		OK(r->op[i].is_recv ? net_close_recv(r->net, r->comm[i]) :
				      net_close_send(r->net, r->comm[i]));
}

static void aborts(struct abi *t, int fd)
{
	struct net *net = up_counting(t, "ncclCommAbort");
	struct rank r;

	rank_open(&r, net, fd, true);
	meet(fd);
	rank_abort(&r);
	meet(fd);
	abi_down(net);
	EQ(1, abi_heard_lines(false));
	EQ(0, net_warn_count());
}

/* A watchdog makes all ranks abort.  The end of the other rank's comms is then worth no WARN. */
static void abort_of_all(struct abi *t)
{
	struct peer peer = peer_start(t, aborts);
	struct net *net = up_counting(t, "ncclCommAbort");
	struct rank r;

	rank_open(&r, net, peer.fd, false);
	meet(peer.fd);
	WAIT_FOR(abi_heard_lines(false));		/* the peer has closed, while this rank calls nothing */
	nap_ms(50);
	rank_abort(&r);
	meet(peer.fd);
	EQ(1, abi_heard_lines(false));
	EQ(0, net_warn_count());
	peer_join(&peer);
	abi_down(net);
}

/* One rank aborts, and the other goes on: its log gives the reason once. */
static void abort_of_one(struct abi *t)
{
	struct peer peer = peer_start(t, aborts);
	struct net *net = up_counting(t, "ncclCommAbort");
	struct rank r;

	warns_expected();
	rank_open(&r, net, peer.fd, false);
	meet(peer.fd);
	WAIT_FOR(abi_heard_lines(false));
	nap_ms(50);
	EQ(0, net_warn_count());
	ops_settle(r.op, COMMS);
	for (int i = 0; i < COMMS; i++)
		RES(ncclRemoteError, r.op[i].res);
	EQ(1, net_warn_count());
	EQ(1, abi_heard_lines(true));
	if (strstr(net_last_warn(), "its own log says why"))
		FAIL("sends the reader to a log without a word: %s", net_last_warn());
	rank_abort(&r);
	meet(peer.fd);
	peer_join(&peer);
	abi_down(net);
}

/* -- after an error ------------------------------------------------------------------------- */

/* After the error of one request, every call for the same comm returns the same error, at once. */
static void sticks(struct net *net, void *comm, struct buf *b, struct op *ops, ncclResult_t res)
{
	uint64_t from, queued;

	ops_settle(ops, 1);
	RES(res, ops[0].res);
	from = now_us();
	queued = queued_ns();
	for (int i = 0; i < 20; i++) {
		struct op again = ops[1];

		op_test(&again);
		RES(res, again.res);
		op_post(&again);
		RES(res, again.res);
	}
	/* Time for which the thread waited for a CPU does not count. */
	if (now_us() - from > (queued_ns() - queued) / 1000 + 100000 * drive_slow())
		FAIL("40 calls after an error took more than 100 ms");
	buf_free(net, b);
	OK(ops[0].is_recv ? net_close_recv(net, comm) : net_close_send(net, comm));
}

static void sticky(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p, bystander;
	struct buf b, other;
	struct op ops[2], small;

	warns_expected();
	pair_open(net, &bystander);

	pair_open(net, &p);		/* the sender leaves */
	b = buf_new(net, p.recv, BYTES, 0);
	ops[0] = ops[1] = op_recv(net, p.recv, &b, BYTES, 0);
	ops_post(ops, 2);
	OK(net_close_send(net, p.send));
	sticks(net, p.recv, &b, ops, ncclRemoteError);
	exchange(net, bystander.send, bystander.recv, 1000, 1);

	pair_open(net, &p);		/* the receiver leaves */
	b = buf_new(net, p.send, BYTES, 0);
	ops[0] = ops[1] = op_send(net, p.send, &b, BYTES, 0);
	ops_post(ops, 2);
	OK(net_close_recv(net, p.recv));
	sticks(net, p.send, &b, ops, ncclRemoteError);
	exchange(net, bystander.send, bystander.recv, 1000, 2);

	pair_open(net, &p);		/* both ends fail: the message is larger than its receive */
	b = buf_new(net, p.recv, 10, 0);
	other = buf_new(net, p.send, BYTES, 0);
	ops[0] = ops[1] = op_send(net, p.send, &other, BYTES, 0);
	ops_post(ops, 2);
	small = op_recv(net, p.recv, &b, 10, 0);
	ops_settle(&small, 1);
	RES(ncclInvalidUsage, small.res);
	sticks(net, p.send, &other, ops, ncclInvalidUsage);
	buf_free(net, &b);
	OK(net_close_recv(net, p.recv));
	exchange(net, bystander.send, bystander.recv, 1000, 3);

	pair_close(net, &bystander);
	abi_down(net);
}

/* -- finalize with everything open ---------------------------------------------------------- */

static void abort_peer(struct abi *t, int fd)
{
	struct net *net = abi_up(t);
	void *send = send_to(net, fd), *recv = recv_from(net, fd);
	struct buf out[FLIGHT], in[FLIGHT];
	struct op sends[FLIGHT], recvs[FLIGHT];

	warns_expected();
	flight_new(net, send, false, out, sends);
	flight_new(net, recv, true, in, recvs);
	flight_lost(net, out, sends);
	flight_lost(net, in, recvs);
	meet(fd);
	OK(net_close_send(net, send));
	OK(net_close_recv(net, recv));
	abi_down(net);
}

static void finalize_in_flight(struct abi *t)
{
	struct peer peer = peer_start(t, abort_peer);
	struct net *net = abi_up(t);
	void *recv = recv_from(net, peer.fd), *send = send_to(net, peer.fd);
	struct buf out[FLIGHT], in[FLIGHT];
	struct op sends[FLIGHT], recvs[FLIGHT];

	warns_expected();
	flight_new(net, send, false, out, sends);
	flight_new(net, recv, true, in, recvs);
	step_for_us(sends, 500);
	step_for_us(recvs, 500);
	OK(net_finalize(net));
	for (int i = 0; i < FLIGHT; i++) {
		pull_away(&out[i]);
		pull_away(&in[i]);
	}
	meet(peer.fd);
	for (int i = 0; i < FLIGHT; i++)
		still_zero(&in[i]);
	net_unload(net);
	peer_join(&peer);
}

static const struct abi_case cases[] = {
	CASE("close takes the memory back at once and reports it to the peer", in_flight),
	CASE("soon after close the peer knows of it, and a link that is not shared has no sockets",
	     told_in_time),
	CASE("deregMr on another thread takes the memory back at once", dereg_other_thread),
	CASE("data arrives although its sender exits at once, without a WARN",
	     all_arrives),
	CASE("data is delivered to a receive posted long after the sender exited",
	     late_takes),
	CASE("data is delivered to a comm accepted after the sender exited", late_accepts),
	CASE("data sent before the sender exited arrives although a send back fails",
	     arrives_before_all_fails, .since = 11),
	CASE("a peer that closes and ends in order is no cause for a WARN", no_warn),
	CASE("receives return the data sent before the sender closed, then the error",
	     delivered_then_error),
	CASE("a send to a closed receiver is accepted, and test() returns the error",
	     taken_then_error, .warns = "peer-closed"),
	CASE("when all ranks abort, no rank warns of the others", abort_of_all),
	CASE("when one rank aborts, the other warns once per link, at its next call",
	     abort_of_one, .warns = "peer-gave-up"),
	CASE("after an error every call returns it again at once, and close succeeds", sticky),
	CASE("finalize with everything open takes the memory back", finalize_in_flight,
	     .since = 11),
};

ABI_MAIN(cases)
