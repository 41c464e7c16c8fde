/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rma_life.c - communicators, contexts and windows for one-sided traffic: made, used by several
 * threads, and ended in all the orders that NCCL may choose.
 */
#include "tests/abi/onesided.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((unsigned)(sizeof(a) / sizeof((a)[0])))

/* Put something to all ranks of the group, and look at what all have put here. */
static void all_to_all(struct group *g, unsigned rounds)
{
	enum { SIZE = 20000 };
	struct window src = window_new(g, SIZE), dst = window_new(g, (size_t)SIZE * g->n);
	struct window words = words_new(g, 2);

	for (unsigned i = 1; i <= rounds; i++) {
		fill(src.data, SIZE, i * 100 + g->rank);
		for (unsigned k = 0; k < g->n; k++)
			PUT(g, .src = &src, .dst = &dst, .dst_off = (size_t)g->rank * SIZE, .size = SIZE,
			    .rank = k, .words = &words, .word = 0);
		word_wait(g, &words, 0, (uint64_t)i * g->n);
		for (unsigned k = 0; k < g->n; k++)
			filled(dst.data + (size_t)k * SIZE, SIZE, i * 100 + k);
		for (unsigned k = 0; k < g->n; k++)
			PUT(g, .rank = k, .words = &words, .word = 1);
		word_wait(g, &words, 1, (uint64_t)i * g->n);
	}
	together(g->r);
	window_free(g, &words);
	window_free(g, &dst);
	window_free(g, &src);
}

/* -- ends --------------------------------------------------------------------------------- */

static void dereg_after_contexts(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window w = window_new(g, 100000), words = words_new(g, 1);

	PUT(g, .src = &w, .size = 50000, .dst = &w, .dst_off = 50000, .rank = 1 - r->rank,
	    .words = &words);
	word_wait(g, &words, 0, 1);
	together(r);
	quietly_together(r);
	OK(rma_context_end(r->rma, g->ctx));
	g->ctx = NULL;
	window_free(g, &words);
	window_free(g, &w);
	group_close(g);
}

static void dereg_last(struct abi *t)
{
	ranks_run_each(t, 2, dereg_after_contexts);
}

static void close_with_context(struct rank *r)
{
	struct group *g = group_new(r, 2);

	all_to_all(g, 2);
	quietly_together(r);
	g->ctx = NULL;			/* it is never ended */
	group_close(g);
	g = group_new(r, 1);		/* and all goes on */
	all_to_all(g, 2);
	groups_close(r);
}

static void contexts_left(struct abi *t)
{
	ranks_run_each(t, 2, close_with_context);
}

static void close_with_windows(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window w = window_new(g, 100000), words = words_new(g, 1);

	PUT(g, .src = &w, .size = 50000, .dst = &w, .dst_off = 50000, .rank = 1 - r->rank,
	    .words = &words);
	word_wait(g, &words, 0, 1);
	groups_close(r);
	memory_free(&w);		/* never deregistered */
	memory_free(&words);
}

static void windows_left(struct abi *t)
{
	ranks_run(t, 2, close_with_windows);
}

static void close_before_listen(struct rank *r)
{
	for (int i = 0; i < 2; i++) {
		struct group *g = group_connect(r, NULL, r->n, NULL);
		void *listen = g->listen;

		group_contexts(g, 1);
		all_to_all(g, 1);
		quietly_together(r);
		g->listen = NULL;
		group_close(g);
		OK(rma_close_listen(r->rma, listen));
	}
}

static void listen_last(struct abi *t)
{
	ranks_run_each(t, 2, close_before_listen);
}

static void listen_only(struct rank *r)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	void *listen;

	OK(rma_listen(r->rma, r->ctx, 0, handle, &listen));
	OK(rma_close_listen(r->rma, listen));
	OK(rma_close_listen(r->rma, NULL));
	OK(rma_close_coll(r->rma, NULL));
	OK(rma_context_end(r->rma, NULL));
}

static void unconnected(struct abi *t)
{
	ranks_run_each(t, 1, listen_only);
}

static void nothing_put(struct rank *r)
{
	struct group *g = group_new(r, 4);
	struct window w = window_new(g, 4096);

	for (unsigned i = 0; i < 100; i++)
		tick(r);
	together(r);
	window_free(g, &w);
	groups_close(r);
}

static void no_traffic(struct abi *t)
{
	ranks_run_each(t, 3, nothing_put);
}

/* Rank 0 closes all while the others go on, with nothing under way to it. */
static void one_leaves(struct rank *r)
{
	struct group *g = group_new(r, 1);

	all_to_all(g, 2);
	quietly_together(r);
	if (r->rank == 0) {
		group_close(g);
		atomic_store(note(0), 1);
	} else {
		struct window w = memory_new(1000);	/* registered by these two alone: nobody misses it */
		struct window words = memory_new(8);

		WAIT_FOR(atomic_load(note(0)) || (tick(r), false));
		window_reg(g, &w, 0);
		window_reg(g, &words, NCCL_RMA_FORCE_SO);
		fill(w.data, 500, 1);
		PUT(g, .src = &w, .size = 500, .dst = &w, .dst_off = 500, .rank = 3 - r->rank,
		    .words = &words);
		word_wait(g, &words, 0, 1);
		filled(w.data + 500, 500, 1);
		for (unsigned i = 0; i < 1000; i++)
			tick(r);
		atomic_fetch_add(note(1), 1);
		WAIT_FOR(atomic_load(note(1)) == 2 || (tick(r), false));
		nap_ms(20);
		window_free(g, &words);
		window_free(g, &w);
		group_close(g);
	}
}

static void leaves(struct abi *t)
{
	ranks_run(t, 3, one_leaves);
}

/* Rank 1 closes all as soon as it has the last signal, when rank 0 may not know yet that all has come. */
static void close_after_signal(struct rank *r)
{
	enum { SIZE = 200000, PUTS = 4 };

	for (unsigned round = 0; round < 60; round++) {
		struct group *g = group_new(r, 1);
		struct window src = window_new(g, SIZE), dst = window_new(g, (size_t)PUTS * SIZE);
		struct window words = words_new(g, 1);
		void *req[PUTS];

		if (r->rank == 0) {
			for (unsigned i = 0; i < PUTS; i++)
				req[i] = POST(g, .src = &src, .dst = &dst, .dst_off = (size_t)i * SIZE,
					      .size = SIZE, .rank = 1, .words = &words);
			if (round % 2) {	/* its news of all lanes, and of the end, come at once */
				for (uint64_t until = now_us() + 50 * round; now_us() < until;)
					tick(r);
				nap_ms(10);
			}
			for (unsigned i = 0; i < PUTS; i++)
				req_wait(g, req[i]);
			for (unsigned i = 0; i < 50; i++)
				tick(r);
		} else {
			word_wait(g, &words, 0, PUTS);
		}
		window_free(g, &words);
		window_free(g, &dst);
		window_free(g, &src);
		group_close(g);
		quietly_together(r);
	}
}

static void closes_first(struct abi *t)
{
	setenv("BRAID_LANES", "4", 1);
	ranks_run(t, 2, close_after_signal);
}

/* Rank 1 closes as soon as rank 0 says that it has got all. */
static void close_after_get(struct rank *r)
{
	enum { SIZE = 1 << 20 };

	for (unsigned round = 1; round <= 100; round++) {
		struct group *g = group_new(r, 1);
		struct window w = memory_new(SIZE), to = window_new(g, SIZE);

		fill(w.data, w.size, r->rank);
		window_reg(g, &w, 0);
		if (r->rank == 0) {
			req_wait(g, get_post(g, 0, 1, &w, 8, SIZE - 8, &to, 8));
			atomic_store(note(0), round);
			for (unsigned i = 0; i < 200; i++)
				tick(r);
		} else {
			WAIT_FOR(atomic_load(note(0)) == round || (tick(r), false));
		}
		if (round % 2)
			window_free(g, &w);
		group_close(g);
		quietly_together(r);
		if (!(round % 2))
			memory_free(&w);
		memory_free(&to);
	}
}

static void closes_after_get(struct abi *t)
{
	setenv("BRAID_LANES", "4", 1);
	ranks_run(t, 2, close_after_get);
}

/* -- NCCL's two contexts, and its groups -------------------------------------------------- */

static void init_twice(struct rank *r)
{
	struct group *g;
	void *second;

	OK(rma_init(r->rma, &second, 42, abi_log));	/* the id of the first */
	TRUE(second);
	g = group_new(r, 1);
	all_to_all(g, 1);
	OK(rma_finalize(r->rma, second));
	all_to_all(g, 1);		/* the first goes on */
	groups_close(r);
}

static void two_inits(struct abi *t)
{
	ranks_run_each(t, 2, init_twice);
}

static void four_groups(struct rank *r)
{
	struct group *g[4];
	struct flow *f[4];

	for (unsigned i = 0; i < 4; i++)
		g[i] = group_of(r, NULL, r->n, 1 + (int)i);
	for (unsigned i = 0; i < 4; i++)
		f[i] = flow_new(g[i], (int)i, r->rank ^ 1, 40, i);
	flows_run(f, 4);
	together(r);
	for (unsigned i = 0; i < 4; i++)
		flow_free(f[i]);
	groups_close(r);
}

static void four(struct abi *t)
{
	ranks_run(t, 2, four_groups);
}

/* Ranks 1 and 3 of four are a group with numbers 0 and 1, and so are 2 and 0. */
static void rails(struct rank *r)
{
	static const unsigned odd[] = { 1, 3 }, even[] = { 2, 0 };
	struct group *all = group_new(r, 1), *rail = group_of(r, r->rank % 2 ? odd : even, 2, 2);

	EQ(r->rank == 3 || r->rank == 0, rail->rank);
	all_to_all(rail, 3);
	all_to_all(all, 3);
	groups_close(r);
}

static void subsets(struct abi *t)
{
	ranks_run_each(t, 4, rails);
}

static void many_groups(struct rank *r)
{
	for (unsigned i = 0; i < 30; i++) {
		struct group *g = group_new(r, 1 + (int)i % 3);

		all_to_all(g, 1);
		groups_close(r);
	}
}

static void again(struct abi *t)
{
	ranks_run(t, 2, many_groups);
}

/* -- windows ------------------------------------------------------------------------------ */

static void windows_200(struct rank *r)
{
	enum { N = 200, SIZE = 10000 };
	struct group *g = group_new(r, 1);
	struct window w[N], words = words_new(g, N);
	void *req[N];

	for (unsigned i = 0; i < N; i++)
		w[i] = window_new(g, SIZE + i);
	for (unsigned i = 0; i < N; i++)
		fill(w[i].data, SIZE / 2, i * 2 + r->rank);
	for (unsigned i = 0; i < N; i++)
		req[i] = POST(g, .src = &w[i], .dst = &w[(i * 7) % N], .dst_off = SIZE / 2, .size = SIZE / 2,
			      .rank = 1 - r->rank, .words = &words, .word = i);
	for (unsigned i = 0; i < N; i++)
		req_wait(g, req[i]);
	for (unsigned i = 0; i < N; i++) {
		word_wait(g, &words, i, 1);
		filled(w[(i * 7) % N].data + SIZE / 2, SIZE / 2, i * 2 + 1 - r->rank);
	}
	together(r);
	for (unsigned i = 0; i < N; i++)
		window_free(g, &w[i]);
	window_free(g, &words);
	groups_close(r);
}

static void many_windows(struct abi *t)
{
	ranks_run(t, 2, windows_200);
}

static void windows_500(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window words = words_new(g, 1);

	for (unsigned i = 1; i <= 500; i++) {
		size_t size = i % 5 ? 1000 : 100000;
		struct window w = window_new(g, 2 * size);

		fill(w.data, size, i);
		PUT(g, .src = &w, .dst = &w, .dst_off = size, .size = size, .rank = 1 - r->rank,
		    .words = &words);
		word_wait(g, &words, 0, i);
		filled(w.data + size, size, i);
		/* The peer is done with it once it has this rank's signal, which it has not yet. */
		if (i % 2)
			together(r);
		else
			quietly_together(r);
		window_free(g, &w);
	}
	together(r);
	window_free(g, &words);
	groups_close(r);
}

static void windows_come_and_go(struct abi *t)
{
	ranks_run(t, 2, windows_500);
}

/* Ranks register at different times: puts wait for the target's window. */
static void late_window(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window words = words_new(g, 1);
	struct window w = memory_new(400000);

	if (r->rank == 0) {
		void *req[3];

		window_reg(g, &w, 0);
		fill(w.data, w.size, 1);
		req[0] = POST(g, .src = &w, .dst = &w, .size = 200000, .rank = 1);
		req[1] = POST(g, .src = &w, .src_off = 200000, .dst = &w, .dst_off = 200000, .size = 8,
			      .rank = 1, .more = true);
		req[2] = POST(g, .src = &w, .src_off = 200008, .dst = &w, .dst_off = 200008,
			      .size = 199992, .rank = 1, .words = &words);
		atomic_store(note(0), 1);
		for (unsigned i = 0; i < 3; i++)
			req_wait(g, req[i]);
	} else {
		uint64_t until;

		WAIT_FOR(atomic_load(note(0)) || (tick(r), false));
		for (until = now_us() + 300000; now_us() < until;) {
			tick(r);
			EQ(0, word(&words, 0));
			nap_ms(1);
		}
		window_reg(g, &w, 0);
		word_wait(g, &words, 0, 1);
		filled(w.data, w.size, 1);
	}
	together(r);
	window_free(g, &w);
	window_free(g, &words);
	groups_close(r);
}

static void late(struct abi *t)
{
	ranks_run_each(t, 2, late_window);
}

/* -- many ranks --------------------------------------------------------------------------- */

enum { TOKENS = 8, TOKEN = 7168 };

static size_t token_size(unsigned from, unsigned to, unsigned round, unsigned i)
{
	return 8 + mix(((from * 16 + to) * 16 + round) * 16 + i) % (TOKEN - 8);
}

/* As experts' tokens are sent: from all ranks to all, a signal with each, on two contexts. */
static void dispatch(struct rank *r)
{
	enum { ROUNDS = 3 };
	struct group *g = group_new(r, 2);
	size_t part = (size_t)TOKENS * TOKEN;
	struct window src = window_new(g, part * r->n), dst = window_new(g, part * r->n);
	struct window words = words_new(g, RANKS_MAX + 1);
	void *req[RANKS_MAX * TOKENS];

	for (unsigned round = 0; round < ROUNDS; round++) {
		unsigned n = 0;

		for (unsigned i = 0; i < TOKENS; i++) {
			for (unsigned k = 0; k < r->n; k++) {
				unsigned to = (r->rank + k) % r->n;
				size_t at = to * part + (size_t)i * TOKEN;
				size_t size = token_size(r->rank, to, round, i);

				fill(src.data + at, size, round * 7 + i + r->rank * 1000);
				req[n++] = POST(g, .context = i % 2, .src = &src, .src_off = at, .dst = &dst,
						.dst_off = r->rank * part + (size_t)i * TOKEN, .size = size,
						.rank = to, .words = &words, .word = r->rank,
						.weak = i % 3 == 0, .more = k < r->n - 1);
			}
			tick(r);
		}
		for (unsigned i = 0; i < n; i++)
			req_wait(g, req[i]);
		for (unsigned k = 0; k < r->n; k++) {
			word_wait(g, &words, k, (uint64_t)TOKENS * (round + 1));
			for (unsigned i = 0; i < TOKENS; i++)
				filled(dst.data + k * part + (size_t)i * TOKEN,
				       token_size(k, r->rank, round, i), round * 7 + i + k * 1000);
		}
		for (unsigned k = 0; k < r->n; k++)
			PUT(g, .rank = k, .words = &words, .word = RANKS_MAX);
		word_wait(g, &words, RANKS_MAX, (uint64_t)r->n * (round + 1));
	}
	together(r);
	for (unsigned k = 0; k < r->n; k++)
		EQ(TOKENS * ROUNDS, word(&words, k));
	window_free(g, &words);
	window_free(g, &dst);
	window_free(g, &src);
	groups_close(r);
}

static void sixteen(struct abi *t)
{
	ranks_run(t, over_rdma() ? 6 : 16, dispatch);	/* fake NICs have few file descriptors */
}

/* -- threads ------------------------------------------------------------------------------ */

struct worker {
	struct group *g;
	struct flow *f;
	atomic_bool done;
};

static void *flow_thread(void *arg)
{
	struct worker *w = arg;

	flows_run(&w->f, 1);
	w->done = true;
	return NULL;
}

/* The application's thread registers windows while NCCL's RMA thread and a GIN thread put. */
static void three_threads(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct group gin = *g;
	struct flow *f[2] = { flow_new(g, 0, 1 - r->rank, 150, 1), flow_new(g, 0, 1 - r->rank, 150, 2) };
	struct worker w[2] = { { .g = g, .f = f[0] }, { .g = &gin, .f = f[1] } };
	pthread_t thread[2];
	unsigned n = 0;

	group_contexts(&gin, 4);
	f[1]->g = &gin;
	f[1]->context = 3;
	for (int i = 0; i < 2; i++)
		TRUE(!pthread_create(&thread[i], NULL, flow_thread, &w[i]));
	while (n < 50) {
		struct window x = memory_new(100000);
		void *ctx = NULL;

		window_reg(g, &x, n % 2 ? NCCL_RMA_FORCE_SO : 0);
		OK(rma_context(r->rma, g->coll, 1, -1, 1, &ctx));
		OK(rma_context_end(r->rma, ctx));
		window_free(g, &x);
		n++;
	}
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	together(r);
	flow_free(f[0]);
	f[1]->g = g;
	flow_free(f[1]);
	OK(rma_context_end(r->rma, gin.ctx));
	groups_close(r);
}

static void threads(struct abi *t)
{
	ranks_run(t, 2, three_threads);
}

/* -- properties --------------------------------------------------------------------------- */

static void properties(struct rank *r)
{
	ncclNetProperties_v12_t p;
	struct group *g = group_new(r, 1);
	bool all = true;
	char err[512];
	struct braid_net_props n;
	struct net *net = net_load(r->t->plugin, NET_ABI_NEWEST, err, sizeof(err));
	int rma = 0, nets = 0;

	if (!net)
		FAIL("%s", err);
	OK(net_init(net, 42, NCCL_NET_TRAFFIC_CLASS_UNDEF, abi_log, NULL));
	OK(rma_devices(r->rma, &rma));
	OK(net_devices(net, &nets));
	EQ(nets, rma);
	for (int i = 0; i < rma; i++) {
		OK(rma_props(r->rma, i, &p));
		OK(net_props(net, i, &n));
		TRUE(!strcmp(n.name, p.name));
		TRUE(!n.pci_path == !p.pciPath && (!p.pciPath || !strcmp(n.pci_path, p.pciPath)));
		EQ(NCCL_NET_DEVICE_GIN_PROXY, p.netDeviceType);
		TRUE(p.maxRecvs >= 1);
	}
	OK(rma_flushes_all(r->rma, g->coll, &all));
	TRUE(!all);
	groups_close(r);
	OK(net_finalize(net));
	net_unload(net);
}

static void each_properties(struct abi *t)
{
	ranks_run_each(t, 2, properties);
}

static void off(struct abi *t)
{
	for (int v = RMA_ABI_OLDEST; v <= RMA_ABI_NEWEST; v++) {
		struct rma *rma;
		char err[512];
		void *ctx;
		int n = 1;

		setenv("BRAID_RMA", "off", 1);
		rma = rma_load(t->plugin, v, err, sizeof(err));
		if (!rma)
			FAIL("%s", err);
		if (rma_init(rma, &ctx, 42, abi_log) == ncclSuccess) {
			OK(rma_devices(rma, &n));
			EQ(0, n);
			OK(rma_finalize(rma, ctx));
		}
		rma_unload(rma);
	}
}

static const struct abi_case cases[] = {
	CASE("windows may be deregistered after the contexts have ended", dereg_last, ONCE),
	CASE("a communicator closes with contexts that nobody ended", contexts_left, ONCE),
	CASE("a communicator closes with windows that nobody deregistered", windows_left, ONCE),
	CASE("a communicator closes before its listen", listen_last, ONCE),
	CASE("a listen that nobody connects to closes, and NULL does", unconnected, ONCE),
	CASE("a communicator that nobody puts to ends well", no_traffic, ONCE),
	CASE("a rank that closes does not disturb those that go on", leaves, ONCE),
	CASE("a target closes once it has the last signal", closes_first, ONCE),
	CASE("a rank closes once another has got all", closes_after_get, ONCE),
	CASE("two inits with one id are ended each by itself", two_inits, ONCE),
	CASE("four communicators carry traffic at once", four, ONCE),
	CASE("groups of some ranks have numbers of their own", subsets, ONCE),
	CASE("communicators are made and closed again and again", again, ONCE),
	CASE("puts go to any of 200 windows", many_windows, ONCE),
	CASE("windows come and go 500 times", windows_come_and_go, ONCE),
	CASE("a put waits for a window that its target registers later", late, ONCE),
	CASE("sixteen ranks put to all others, with a signal each", sixteen, ONCE),
	CASE("windows are registered while two threads put", threads, ONCE),
	CASE("devices are those of the net plugin, and proxied", each_properties, ONCE),
	CASE("BRAID_RMA=off leaves NCCL without devices", off, ONCE),
};

ABI_MAIN(cases)
