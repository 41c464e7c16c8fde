/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_threads.c - several of NCCL's threads in one process.
 *
 * A comm's data calls come from one thread at a time.  Meanwhile NCCL's own service thread registers
 * and deregisters memory on that comm, and connects and closes others.  Each GPU or communicator
 * brings such a pair of threads, all on the same device and the same link.
 */
#include "tests/abi/abi.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_bool stop;

/* -- registration while data moves ------------------------------------------------------------ */

struct hammer {
	struct net *net;
	struct pair *p;
	const struct buf *from, *to;	/* registered again and again, while in use */
	atomic_ulong n;
};

static void *hammer_main(void *arg)
{
	struct hammer *h = arg;
	uint8_t own[4096];

	for (; !stop; h->n++) {
		void *mr[4];

		OK(net_reg(h->net, h->p->send, own, sizeof(own), NCCL_PTR_HOST, &mr[0]));
		OK(net_reg(h->net, h->p->recv, own, sizeof(own), NCCL_PTR_HOST, &mr[1]));
		OK(net_reg(h->net, h->p->send, h->from->data, h->from->size, NCCL_PTR_HOST,
			   &mr[2]));
		OK(net_reg(h->net, h->p->recv, h->to->data, h->to->size, NCCL_PTR_HOST, &mr[3]));
		OK(net_dereg(h->net, h->p->recv, mr[3]));
		OK(net_dereg(h->net, h->p->send, mr[2]));
		OK(net_dereg(h->net, h->p->recv, mr[1]));
		OK(net_dereg(h->net, h->p->send, mr[0]));
	}
	return NULL;
}

static void registration(struct abi *t)
{
	struct net *net = abi_up(t);
	struct pair p;
	struct buf from, to;
	struct hammer h = { .net = net, .p = &p, .from = &from, .to = &to };
	pthread_t thread;

	pair_open(net, &p);
	from = buf_new(net, p.send, 300000, 0);
	to = buf_new(net, p.recv, 300000, 0);
	TRUE(!pthread_create(&thread, NULL, hammer_main, &h));
	for (unsigned i = 0; i < (t->newest ? 1000 : 100); i++) {
		size_t size = i % 3 ? 1000 : 300000;
		struct op ops[] = {
			op_recv(net, p.recv, &to, size, 0),
			op_send(net, p.send, &from, size, 0),
		};

		fill(from.data, size, i);
		ops_run(ops, 2);
		filled(to.data, size, i);
	}
	WAIT_FOR(h.n > 0 || (nap_ms(1), false));
	stop = true;
	pthread_join(thread, NULL);
	buf_free(net, &from);
	buf_free(net, &to);
	pair_close(net, &p);
	abi_down(net);
}

/* -- several threads, each with its own comms -------------------------------------------------- */

enum { THREADS = 4 };

struct worker {
	struct abi t;
	struct net *net;
	struct pair *p;			/* a pair that another thread has connected; NULL: connect one */
	unsigned rounds;
};

static void *data_main(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < w->rounds; i++)
		exchange(w->net, w->p->send, w->p->recv, rnd(&w->t) % 200000, rnd(&w->t));
	return NULL;
}

static void *connect_main(void *arg)
{
	struct worker *w = arg;

	for (unsigned i = 0; i < w->rounds; i++) {
		struct pair p;

		pair_open(w->net, &p);
		exchange(w->net, p.send, p.recv, rnd(&w->t) % 2000, i);
		pair_close(w->net, &p);
	}
	return NULL;
}

static void together(struct abi *t, void *(*main_of)(void *), bool connected, bool also_connect)
{
	struct net *net = abi_up(t);
	struct worker workers[THREADS + 1];
	struct pair pairs[THREADS];
	pthread_t threads[THREADS + 1];
	unsigned n = THREADS + also_connect;

	for (unsigned i = 0; i < n; i++) {
		bool connects = i == THREADS;

		if (connected && !connects)
			pair_open(net, &pairs[i]);
		workers[i] = (struct worker){
			.t = *t,
			.net = net,
			.p = connects ? NULL : &pairs[i],
			.rounds = t->newest ? 150 : 15,
		};
		workers[i].t.seed += i;
		TRUE(!pthread_create(&threads[i], NULL, connects ? connect_main : main_of,
				     &workers[i]));
	}
	for (unsigned i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < THREADS && connected; i++)
		pair_close(net, &pairs[i]);
	abi_down(net);
}

static void data_together(struct abi *t)
{
	together(t, data_main, true, false);
}

static void connect_together(struct abi *t)
{
	together(t, connect_main, false, false);
}

static void connect_beside_data(struct abi *t)
{
	together(t, data_main, true, true);
}

static const struct abi_case cases[] = {
	CASE("memory is registered on a comm while it moves data", registration),
	CASE("threads move data on comms of one link", data_together),
	CASE("threads connect and close at the same time", connect_together),
	CASE("comms come and go while others move data", connect_beside_data),
};

ABI_MAIN(cases)
