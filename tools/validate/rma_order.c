/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_order.c - what a signal shows, how much may be under way, and what no call waits for. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "tools/validate/ranks.h"

/* -- order -------------------------------------------------------------------------------- */

/* Puts that have no signal, and then one that has; `size` of them each round. */
static void puts_then_signal(struct rank *r, size_t size, unsigned n, unsigned rounds)
{
	struct group *g = group_new(r, 1);
	struct window src = window_new(g, size * n), dst = window_new(g, size * n);
	struct window words = words_new(g, 2);
	void *req[16];

	for (unsigned i = 1; i <= rounds; i++) {
		if (r->rank == 1) {
			word_wait(g, &words, 0, i);
			for (unsigned k = 0; k < n; k++)
				if (fill_differs(dst.data + k * size, size, i * 16 + k) < size)
					FAIL("round %u: the strong signal is here, and put %u of "
					     "%zu bytes that was posted before is not", i, k,
					     size);
			PUT(g, .rank = 0, .words = &words, .word = 1);
			continue;
		}
		for (unsigned k = 0; k < n; k++) {
			fill(src.data + k * size, size, i * 16 + k);
			req[k] = POST(g, .src = &src, .src_off = k * size, .dst = &dst,
				      .dst_off = k * size, .size = size, .rank = 1);
		}
		PUT(g, .rank = 1, .words = &words);
		for (unsigned k = 0; k < n; k++)
			req_wait(g, req[k]);
		word_wait(g, &words, 1, i);
	}
	together(r);
	window_free(g, &words);
	window_free(g, &dst);
	window_free(g, &src);
	groups_close(r);
}

static void behind_small(struct rank *r)
{
	puts_then_signal(r, 3000, 8, 30);
}

static void strong(struct validate *v)
{
	ranks_run(v, 2, behind_small);
}

static void behind_large(struct rank *r)
{
	puts_then_signal(r, 2 << 20, 2, 5);
}

static void strong_large(struct validate *v)
{
	ranks_run(v, 2, behind_large);
}

/* Each put has a word of its own, and the receiver looks at the bytes once it sees the word. */
static void weak_each(struct rank *r)
{
	enum { N = 40, SLOT = 100000 };
	struct group *g = group_new(r, 1);
	struct window src = window_new(g, (size_t)N * SLOT), dst = window_new(g, (size_t)N * SLOT);
	struct window words = words_new(g, N);
	uint64_t end = deadline_ms(drive_hang_ms);
	unsigned seen = 0;
	void *req[N];

	for (unsigned i = 0; r->rank == 0 && i < N; i++) {
		size_t size = i % 3 ? 1 + i : SLOT - i;

		fill(src.data + (size_t)i * SLOT, size, i);
		req[i] = POST(g, .src = &src, .src_off = (size_t)i * SLOT, .dst = &dst,
			      .dst_off = (size_t)i * SLOT, .size = size, .rank = 1,
			      .words = &words, .word = i, .weak = true);
		if (i % 32 == 31)	/* no more than NCCL has under way */
			for (unsigned k = i - 31; k <= i; k++)
				req_wait(g, req[k]);
	}
	for (unsigned i = 32; r->rank == 0 && i < N; i++)
		req_wait(g, req[i]);
	while (r->rank == 1 && seen < N) {
		seen = 0;
		for (unsigned i = 0; i < N; i++) {
			size_t size = i % 3 ? 1 + i : SLOT - i;

			if (!word(&words, i))
				continue;
			seen++;
			if (fill_differs(dst.data + (size_t)i * SLOT, size, i) < size)
				FAIL("the weak signal of put %u, %zu bytes, is here, and the put "
				     "is not", i, size);
		}
		tick(g);
		wait_tick(end, __FILE__, __LINE__, "all weak signals");
	}
	together(r);
	window_free(g, &words);
	window_free(g, &dst);
	window_free(g, &src);
	groups_close(r);
}

static void weak(struct validate *v)
{
	ranks_run(v, 2, weak_each);
}

/* -- how much ----------------------------------------------------------------------------- */

/* As many as NCCL may have under way for each context and target. */
static void as_many(struct rank *r)
{
	enum { CONTEXTS = 2, SIZE = 2000, TARGETS = 3 };
	struct group *g = group_new(r, CONTEXTS);
	static void *req[CONTEXTS][TARGETS][32 * RECVS_MAX];
	unsigned each = r->budget;
	struct window src = window_new(g, (size_t)each * SIZE);
	struct window dst = window_new(g, (size_t)each * SIZE * r->n);
	struct window words = words_new(g, CONTEXTS);

	fill(src.data, src.size, r->rank);
	for (unsigned i = 0; i < each; i++)
		for (unsigned c = 0; c < CONTEXTS; c++)
			for (unsigned k = 0; k < r->n; k++)
				req[c][k][i] = POST(g, .context = (int)c, .src = &src,
						    .src_off = (size_t)i * SIZE, .dst = &dst,
						    .dst_off = (size_t)(r->rank * each + i) * SIZE,
						    .size = SIZE, .rank = k, .words = &words,
						    .word = c);
	for (unsigned c = 0; c < CONTEXTS; c++)
		for (unsigned k = 0; k < r->n; k++)
			for (unsigned i = 0; i < each; i++)
				req_wait(g, req[c][k][i]);
	for (unsigned c = 0; c < CONTEXTS; c++)
		word_wait(g, &words, c, (uint64_t)each * r->n);
	for (unsigned k = 0; k < r->n; k++)
		filled(dst.data + (size_t)k * each * SIZE, (size_t)each * SIZE, k);
	rank_saw("%u requests for each of %u targets on each of %d contexts", each, r->n,
		 CONTEXTS);
	together(r);
	window_free(g, &words);
	window_free(g, &dst);
	window_free(g, &src);
	groups_close(r);
}

static void outstanding(struct validate *v)
{
	ranks_run(v, 3, as_many);
}

/* NCCL has a queue for each target: those to rank 1 end though rank 2 was first. */
static void in_any_order(struct rank *r)
{
	enum { N = 16 };
	struct group *g = group_new(r, 1);
	struct window w = window_new(g, 64 << 10), words = words_new(g, 1);
	void *req[2][N];

	for (unsigned i = 0; r->rank == 0 && i < N; i++) {
		req[1][i] = POST(g, .src = &w, .dst = &w, .size = 32 << 10, .rank = 2,
				 .words = &words);
		req[0][i] = POST(g, .src = &w, .dst = &w, .size = 8, .rank = 1, .words = &words);
	}
	for (unsigned k = 0; r->rank == 0 && k < 2; k++)
		for (unsigned i = 0; i < N; i++)
			req_wait(g, req[k][i]);
	if (r->rank > 0)
		word_wait(g, &words, 0, N);
	together(r);
	window_free(g, &words);
	window_free(g, &w);
	groups_close(r);
}

static void targets(struct validate *v)
{
	ranks_run(v, 3, in_any_order);
}

/* All but the last of a batch say that more will follow. */
static void batches(struct rank *r)
{
	enum { BATCHES = 30, BATCH = 32 };
	struct group *g = group_new(r, 1);
	struct window src = window_new(g, 8 * BATCH), dst = window_new(g, 8 * BATCH);
	struct window words = words_new(g, 2);
	void *req[BATCH];

	for (unsigned b = 1; b <= BATCHES; b++) {
		if (r->rank == 1) {
			word_wait(g, &words, 0, b);
			filled(dst.data, dst.size, b);
			PUT(g, .rank = 0, .words = &words, .word = 1);
			continue;
		}
		fill(src.data, src.size, b);
		for (unsigned i = 0; i < BATCH; i++) {
			bool last = i == BATCH - 1;

			req[i] = POST(g, .src = &src, .src_off = 8 * (size_t)i, .dst = &dst,
				      .dst_off = 8 * (size_t)i, .size = 8, .rank = 1,
				      .words = last ? &words : NULL, .more = !last);
		}
		for (unsigned i = 0; i < BATCH; i++)
			req_wait(g, req[i]);
		word_wait(g, &words, 1, b);
	}
	together(r);
	window_free(g, &words);
	window_free(g, &dst);
	window_free(g, &src);
	groups_close(r);
}

static void aggregate(struct validate *v)
{
	ranks_run(v, 2, batches);
}

/* -- what no call waits for --------------------------------------------------------------- */

struct longest {
	double us;
	unsigned n;			/* calls of more than 10 ms off the CPU */
};

static void measure(struct longest *l, const struct watch *w)
{
	double us = watch_blocked_us(w);

	l->us = us > l->us ? us : l->us;
	l->n += us > 10000;
}

/* Puts to a rank that is stopped: iputSignal(), test() and rmaProgress() may not wait for it. */
static void to_stopped(struct rank *r)
{
	enum { N = 16, SIZE = 1 << 20, STOPPED_MS = 400 };
	struct group *g = group_new(r, 1);
	struct window src = window_new(g, SIZE), dst = window_new(g, (size_t)N * SIZE);
	struct window words = words_new(g, 1);
	struct longest longest = { 0, 0 };
	void *req[N];

	fill(src.data, SIZE, 3);
	PUT(g, .src = &src, .dst = &dst, .size = SIZE, .rank = 1 - r->rank, .words = &words);
	word_wait(g, &words, 0, 1);
	together(r);
	if (r->rank == 0) {
		uint64_t end = deadline_ms(STOPPED_MS);
		struct watch w;
		unsigned i = 0;

		at(r, "calls while the target is stopped");
		rank_stop(r, 1, true);
		for (; now_us() < end && longest.n < 3; i++) {
			watch_begin(&w);
			if (i < N)
				req[i] = POST(g, .src = &src, .dst = &dst,
					      .dst_off = (size_t)i * SIZE, .size = SIZE,
					      .rank = 1, .words = &words);
			else
				tick(g);
			measure(&longest, &w);
			usleep(200);
		}
		rank_stop(r, 1, false);
		if (longest.n > 2)
			FAIL("%u calls were off the CPU for more than 10 ms, the longest for "
			     "%.1f ms", longest.n, longest.us / 1000);
		at(r, "after the target was stopped");
		for (i = 0; i < N; i++)
			req_wait(g, req[i]);
		rank_saw("the longest wait was %.2f ms (failed from 10 ms)", longest.us / 1000);
	} else {
		word_wait(g, &words, 0, 1 + N);
		for (unsigned i = 0; i < N; i++)
			filled(dst.data + (size_t)i * SIZE, SIZE, 3);
	}
	together(r);
	window_free(g, &words);
	window_free(g, &dst);
	window_free(g, &src);
	groups_close(r);
}

static void waits(struct validate *v)
{
	ranks_run(v, 2, to_stopped);
}

/* -- threads ------------------------------------------------------------------------------ */

struct worker {
	pthread_t thread;
	struct group g;
	struct flow *f;
};

static void *flow_thread(void *arg)
{
	struct worker *w = arg;

	flows_run(&w->f, 1);
	return NULL;
}

/* The application's thread registers windows while NCCL's RMA thread and a GIN thread put. */
static void three_threads(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct worker w[2];

	for (unsigned i = 0; i < 2; i++) {
		w[i].g = *g;
		if (i == 1)
			group_contexts(&w[i].g, 4);
		w[i].f = FLOW(&w[i].g, .peer = 1 - r->rank, .rounds = 40, .id = i,
			      .context = i ? 3 : 0, .largest = 20000);
	}
	at(r, "windows are registered while two threads put");
	for (unsigned i = 0; i < 2; i++)
		TRUE(!pthread_create(&w[i].thread, NULL, flow_thread, &w[i]));
	for (unsigned i = 0; i < 20; i++) {
		struct window x = memory_new(100000);

		window_reg(g, &x, i % 2 ? NCCL_RMA_FORCE_SO : 0);
		window_free(g, &x);
	}
	for (unsigned i = 0; i < 2; i++)
		pthread_join(w[i].thread, NULL);
	together(r);
	for (unsigned i = 0; i < 2; i++)
		flow_free(w[i].f);
	quietly_together(r);
	OK(rma_context_end(r->rma, w[1].g.ctx));
	groups_close(r);
}

static void threads(struct validate *v)
{
	ranks_run(v, 2, three_threads);
}

const struct vcheck validate_rma_order[] = {
	{ "rma-strong-order", "A strong signal comes after all puts before it", HANGS, strong,
	  V_HERE | V_SOAK, 0 },
	{ "rma-strong-large", "A strong signal does not overtake large puts", HANGS, strong_large,
	  V_HERE | V_SOAK, 0 },
	{ "rma-weak-order", "A weak signal comes after its own put", HANGS, weak, V_HERE | V_SOAK,
	  0 },
	{ "rma-outstanding", "As many requests as NCCL has are all accepted",
	  "NCCL ends the job at the first one that is not: report it", outstanding,
	  V_HERE | V_SOAK, 0 },
	{ "rma-targets", "Requests to one rank end while older ones to another are not tested",
	  "NCCL has a queue for each rank, and hangs: report it", targets, V_HERE, 0 },
	{ "rma-aggregate", "What is posted with \"more follows\" comes with the last", HANGS,
	  aggregate, V_HERE, 0 },
	{ "rma-waits", "No call waits for a rank that is stopped, and all comes later", HUNG, waits,
	  V_HERE, 0 },
	{ "rma-threads", "Windows are registered while two threads put",
	  "NCCL's proxies and the application do so at once: report it", threads, V_HERE | V_SOAK,
	  0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
