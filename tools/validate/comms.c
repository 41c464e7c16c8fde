/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comms.c - data over many comms at once, both ways and by threads; and whether isend(), irecv()
 * and test() wait for a peer.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "tools/validate/far.h"

static void comms(struct validate *v, int n)
{
	struct pair *p = calloc((size_t)n, sizeof(*p));
	struct buf *b = calloc((size_t)n * 2, sizeof(*b));
	struct op *ops = calloc((size_t)n * 2, sizeof(*ops));

	TRUE(p && b && ops);
	net_up(v);
	for (int i = 0; i < n; i++) {
		size_t size = (size_t)(1 + i * 3001 % 100000);

		step(v, "comm %d of %d", i + 1, n);
		pair_open(v->net, &p[i]);
		b[2 * i] = buf_new(v->net, p[i].send, size, 0);
		b[2 * i + 1] = buf_new(v->net, p[i].recv, size, 0);
		fill(b[2 * i].data, size, (uint64_t)i + 1);
		ops[2 * i] = op_recv(v->net, p[i].recv, &b[2 * i + 1], size, 0);
		ops[2 * i + 1] = op_send(v->net, p[i].send, &b[2 * i], size, 0);
	}
	step(v, "a message over each of %d comms", n);
	ops_run(ops, (size_t)n * 2);
	for (int i = 0; i < n; i++) {
		filled(b[2 * i + 1].data, b[2 * i + 1].size, (uint64_t)i + 1);
		buf_free(v->net, &b[2 * i]);
		buf_free(v->net, &b[2 * i + 1]);
		pair_close(v->net, &p[i]);
	}
	saw(v, "%d comms", n);
}

static void comms_8(struct validate *v)
{
	comms(v, 8);
}

static void comms_64(struct validate *v)
{
	comms(v, 64);
}

static void duplex(struct validate *v)
{
	enum { N = 8, SIZE = 150000 };
	struct pair p[2];
	struct buf b[2][2 * N];
	struct op ops[4 * N];

	net_up(v);
	for (int d = 0; d < 2; d++) {
		pair_open(v->net, &p[d]);
		for (int i = 0; i < N; i++) {
			b[d][i] = buf_new(v->net, p[d].send, SIZE, 0);
			b[d][N + i] = buf_new(v->net, p[d].recv, SIZE, 0);
			fill(b[d][i].data, SIZE, (uint64_t)(d * N + i + 1));
			ops[d * 2 * N + i] = op_recv(v->net, p[d].recv, &b[d][N + i], SIZE, 0);
			ops[d * 2 * N + N + i] = op_send(v->net, p[d].send, &b[d][i], SIZE, 0);
		}
	}
	ops_run(ops, 4 * N);
	for (int d = 0; d < 2; d++) {
		for (int i = 0; i < 2 * N; i++) {
			if (i >= N)
				filled(b[d][i].data, SIZE, (uint64_t)(d * N + i - N + 1));
			buf_free(v->net, &b[d][i]);
		}
		pair_close(v->net, &p[d]);
	}
}

struct threaded {
	pthread_t thread;
	struct net *net;
	struct pair pair;
	uint64_t seed;
};

static void *traffic(void *arg)
{
	struct threaded *t = arg;

	for (uint64_t i = 0; i < 20; i++)
		exchange(t->net, t->pair.send, t->pair.recv, (size_t)(1 + i * 7919), t->seed + i);
	return NULL;
}

static void threads(struct validate *v)
{
	enum { N = 4 };
	struct threaded t[N];

	net_up(v);
	for (int i = 0; i < N; i++) {
		t[i] = (struct threaded){ .net = v->net, .seed = (uint64_t)i * 1000 + 1 };
		pair_open(v->net, &t[i].pair);
	}
	step(v, "%d threads", N);
	for (int i = 0; i < N; i++)
		TRUE(pthread_create(&t[i].thread, NULL, traffic, &t[i]) == 0);
	for (int i = 0; i < N; i++) {
		pthread_join(t[i].thread, NULL);
		pair_close(v->net, &t[i].pair);
	}
}

struct calls {
	struct conn conn;
	struct op *op;
	double most;
	int n;
};

static void watched(struct calls *c, bool (*call)(struct op *op), struct op *op)
{
	struct watch w;
	double us;

	watch_begin(&w);
	call(op);
	us = watch_blocked_us(&w);
	c->most = us > c->most ? us : c->most;
	c->n += us > 10000;
}

/* A large message to a process that is stopped: neither isend() nor test() may wait. */
static void waits_not(struct validate *v)
{
	enum { SIZE = 32 << 20 };
	struct order o = { .what = FAR_FREEZE, .ms = 1200 };
	struct calls c = { .most = 0 };
	struct buf b;
	struct op op;

	both_up(v);
	c.conn = conn_open(v, true);
	b = buf_new(v->net, c.conn.comm, SIZE, 0);
	op = op_send(v->net, c.conn.comm, &b, SIZE, 0);
	far_call(v, &o);
	step(v, "calls while the other end is stopped");
	for (uint64_t end = deadline_ms(600); now_us() < end && c.n < 3;) {
		watched(&c, op.posted ? op_test : op_post, &op);
		if (op.done)
			break;
		usleep(200);
	}
	if (c.n > 2)
		FAIL("%d calls of isend() and test() were off the CPU for more than 10 ms, the "
		     "longest for %.1f ms", c.n, c.most / 1000);
	saw(v, "the longest wait was %.2f ms (promised: 1 ms, failed from 10 ms)", c.most / 1000);
}

static void receive_waits_not(struct validate *v)
{
	enum { N = 8, SIZE = 1 << 20 };
	struct calls c = { .most = 0 };
	struct buf b[N];
	struct op op[N];

	both_up(v);
	c.conn = conn_open(v, false);
	for (int i = 0; i < N; i++) {
		b[i] = buf_new(v->net, c.conn.comm, SIZE, 0);
		op[i] = op_recv(v->net, c.conn.comm, &b[i], SIZE, i);
	}
	step(v, "receives that nobody sends to");
	for (int i = 0; i < 300 && c.n < 3; i++) {
		struct op *o = &op[i < N ? i : 0];	/* NCCL tests the oldest alone */

		watched(&c, o->posted ? op_test : op_post, o);
		if (o->done)
			FAIL("a receive is done that nobody has sent to: %s",
			     net_result_name(o->res));
		usleep(200);
	}
	if (c.n > 2)
		FAIL("%d calls of irecv() and test() were off the CPU for more than 10 ms, the "
		     "longest for %.1f ms", c.n, c.most / 1000);
	saw(v, "the longest wait was %.2f ms (promised: 1 ms, failed from 10 ms)", c.most / 1000);
}

const struct vcheck validate_comms[] = {
	{ "data-comms", "8 comms at once", BROKEN, comms_8, V_HERE | V_SOAK, 0 },
	{ "data-comms-64", "64 comms at once", BROKEN, comms_64, V_HERE | V_FULL, 60 },
	{ "data-duplex", "Both ways at once", BROKEN, duplex, V_HERE | V_SOAK, 0 },
	{ "data-threads", "4 threads, each with its comm", BROKEN, threads, V_HERE | V_SOAK, 0 },
	{ "data-send-waits", "isend() and test() do not wait for a peer that is stopped", HUNG,
	  waits_not, 0, 0 },
	{ "data-recv-waits", "irecv() and test() do not wait for a message", HUNG,
	  receive_waits_not, 0, 0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
