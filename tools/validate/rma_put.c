/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_put.c - puts of all sizes, from and to any place, between two ranks and among many. */
#include <string.h>

#include "tools/validate/ranks.h"

#define COUNT(a) ((unsigned)(sizeof(a) / sizeof((a)[0])))

/* -- sizes and places --------------------------------------------------------------------- */

struct place {
	size_t size, from, to;
};

static void blank_around(const struct window *w, size_t off, size_t size)
{
	for (size_t i = 0; i < w->size; i++)
		if ((i < off || i >= off + size) && w->data[i] != 0xee)
			FAIL("a put of size %zu to offset %zu: byte %zu of the window was "
			     "written", size, off, i);
}

/* Rank 0 puts each to rank 1, which looks at all of its window. */
static void put_each(struct rank *r, const struct place *p, unsigned n, size_t room)
{
	struct group *g = group_new(r, 1);
	struct window src = window_new(g, room), dst = window_new(g, room);
	struct window words = words_new(g, 2);

	memset(src.data, 0x5a, room);	/* not as blank(): more than was asked for is seen, too */
	for (unsigned i = 0; i < n; i++) {
		at(r, "size %zu from offset %zu to offset %zu", p[i].size, p[i].from, p[i].to);
		if (r->rank == 0) {
			fill(src.data + p[i].from, p[i].size, i);
			PUT(g, .src = &src, .src_off = p[i].from, .dst = &dst, .dst_off = p[i].to,
			    .size = p[i].size, .rank = 1, .words = &words, .add = 1);
			word_wait(g, &words, 1, i + 1);
		} else {
			word_wait(g, &words, 0, i + 1);
			filled(dst.data + p[i].to, p[i].size, i);
			blank_around(&dst, p[i].to, p[i].size);
			blank(dst.data + p[i].to, p[i].size);
			PUT(g, .rank = 0, .words = &words, .word = 1, .add = 1);
		}
	}
	together(r);
	window_free(g, &words);
	window_free(g, &dst);
	window_free(g, &src);
	groups_close(r);
}

static void of_all_sizes(struct rank *r)
{
	static const size_t sizes[] = { 1, 8, 64, 4095, 4096, 4097, 65535, 65536, 65537, 1 << 20,
					(1 << 20) + 1, 4 << 20 };
	struct place p[COUNT(sizes)];

	for (unsigned i = 0; i < COUNT(sizes); i++)
		p[i] = (struct place){ sizes[i], 64, 128 };
	put_each(r, p, COUNT(p), (4 << 20) + 256);
}

static void sizes(struct validate *v)
{
	ranks_run(v, 2, of_all_sizes);
}

static void of_64m(struct rank *r)
{
	put_each(r, (const struct place[]){ { 64 << 20, 0, 0 }, { (64 << 20) - 1, 1, 0 } }, 2,
		 64 << 20);
}

static void huge(struct validate *v)
{
	ranks_run(v, 2, of_64m);
}

static void from_anywhere(struct rank *r)
{
	static const struct place p[] = {
		{ 1000, 0, 1 }, { 1000, 1, 0 }, { 1000, 3, 5 }, { 1000, 63, 65 }, { 77, 13, 4095 },
		{ 70000, 1, 3 }, { 70000, 7, 64 }, { 300001, 9, 2 },
	};

	put_each(r, p, COUNT(p), 310000);
}

static void unaligned(struct validate *v)
{
	ranks_run(v, 2, from_anywhere);
}

/* NCCL puts a kernel's values of 1 to 8 bytes from a buffer of its own. */
static void small_values(struct rank *r)
{
	struct place p[16];

	for (unsigned i = 0; i < COUNT(p); i++)
		p[i] = (struct place){ 1 + i % 8, 8 * (size_t)i, 17 * (size_t)i };
	put_each(r, p, COUNT(p), 1000);
}

static void values(struct validate *v)
{
	ranks_run(v, 2, small_values);
}

static void at_edges(struct rank *r)
{
	enum { SIZE = 3 * 4096 + 1000 };
	static const struct place p[] = {
		{ SIZE, 0, 0 }, { 1, SIZE - 1, SIZE - 1 }, { 1, 0, SIZE - 1 },
		{ 4096, SIZE - 4096, 0 }, { 4096, 0, SIZE - 4096 },
	};

	put_each(r, p, COUNT(p), SIZE);
}

static void edges(struct validate *v)
{
	ranks_run(v, 2, at_edges);
}

/* A put and a strong signal, which has no put of its own. */
static void signal_alone(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window w = window_new(g, 30000), words = words_new(g, 1);

	if (r->rank == 0) {
		void *req;

		fill(w.data, w.size, 5);
		req = POST(g, .src = &w, .dst = &w, .size = w.size, .rank = 1);
		at(r, "iputSignal of 0 bytes, with NULL for the windows");
		PUT(g, .rank = 1, .words = &words, .add = 9);
		req_wait(g, req);
	} else {
		word_wait(g, &words, 0, 1);
		settle(g);
		word_is(&words, 0, 9);
		filled(w.data, w.size, 5);
	}
	together(r);
	window_free(g, &words);
	window_free(g, &w);
	groups_close(r);
}

static void empty(struct validate *v)
{
	ranks_run(v, 2, signal_alone);
}

/* -- the source, and both ways ------------------------------------------------------------ */

/* Overwrite each source as soon as its request is done. */
static void reuse_sources(struct rank *r)
{
	enum { N = 12, SIZE = 1 << 20 };
	struct group *g = group_new(r, 1);
	struct window src = window_new(g, (size_t)N * SIZE), dst = window_new(g, (size_t)N * SIZE);
	struct window words = words_new(g, 1);
	unsigned done = 0;
	void *req[N];

	for (unsigned i = 0; r->rank == 0 && i < N; i++) {
		fill(src.data + (size_t)i * SIZE, SIZE, i);
		req[i] = POST(g, .src = &src, .src_off = (size_t)i * SIZE, .dst = &dst,
			      .dst_off = (size_t)i * SIZE, .size = SIZE, .rank = 1,
			      .words = &words);
	}
	for (; r->rank == 0 && done < N; done++) {
		req_wait(g, req[done]);
		memset(src.data + (size_t)done * SIZE, 0xdd, SIZE);
	}
	if (r->rank == 1)
		word_wait(g, &words, 0, N);
	for (unsigned i = 0; r->rank == 1 && i < N; i++)
		if (fill_differs(dst.data + (size_t)i * SIZE, SIZE, i) < SIZE)
			FAIL("put %u is not what its source was before its request was done", i);
	together(r);
	window_free(g, &words);
	window_free(g, &dst);
	window_free(g, &src);
	groups_close(r);
}

static void source(struct validate *v)
{
	ranks_run(v, 2, reuse_sources);
}

static void flows_of(struct rank *r, unsigned peer, unsigned rounds)
{
	struct group *g = group_new(r, 1);
	struct flow *f = FLOW(g, .peer = peer, .rounds = rounds, .weak = true);

	flows_run(&f, 1);
	together(r);
	flow_free(f);
	groups_close(r);
}

static void with_peer(struct rank *r)
{
	flows_of(r, 1 - r->rank, 40);
}

static void both_ways(struct validate *v)
{
	ranks_run(v, 2, with_peer);
}

static void with_itself(struct rank *r)
{
	flows_of(r, r->rank, 10);
}

static void loopback(struct validate *v)
{
	ranks_run(v, 2, with_itself);
}

/* In CUDA graphs NCCL flushes so, and tests until it is done, without calling anything else. */
static void spins(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window w = window_new(g, 16);
	uint64_t end = deadline_ms(drive_hang_ms);

	for (unsigned i = 0; i < 10; i++) {
		void *req = POST(g, .src = &w, .dst = &w, .dst_off = 8, .size = 8,
				 .rank = r->rank);

		while (!req_done(g, req))
			wait_tick(end, __FILE__, __LINE__,
				  "8 bytes to itself, with test() alone");
	}
	together(r);
	window_free(g, &w);
	groups_close(r);
}

static void spin(struct validate *v)
{
	ranks_run(v, 2, spins);
}

/* -- among many --------------------------------------------------------------------------- */

enum { TOKENS = 8, TOKEN = 7168 };

static size_t token_size(unsigned from, unsigned to, unsigned round, unsigned i)
{
	return 8 + mix(((from * 16 + to) * 16 + round) * 16 + i) % (TOKEN - 8);
}

struct dispatch {
	struct rank *r;
	struct group *g;
	struct window src, dst, words;
	void *req[RANKS_MAX * TOKENS];
	unsigned n;
};

static void send_tokens(struct dispatch *d, unsigned round)
{
	size_t part = (size_t)TOKENS * TOKEN;
	struct rank *r = d->r;

	d->n = 0;
	for (unsigned i = 0; i < TOKENS; i++) {
		for (unsigned k = 0; k < r->n; k++) {
			unsigned to = (r->rank + k) % r->n;
			size_t from = to * part + (size_t)i * TOKEN;
			size_t size = token_size(r->rank, to, round, i);

			fill(d->src.data + from, size, round * 7 + i + r->rank * 1000);
			d->req[d->n++] = POST(d->g, .context = i % 2, .src = &d->src,
					      .src_off = from, .dst = &d->dst,
					      .dst_off = r->rank * part + (size_t)i * TOKEN,
					      .size = size, .rank = to, .words = &d->words,
					      .word = r->rank, .weak = i % 3 == 0,
					      .more = k < r->n - 1);
		}
		tick(d->g);
	}
}

static void take_tokens(struct dispatch *d, unsigned round)
{
	size_t part = (size_t)TOKENS * TOKEN;
	struct rank *r = d->r;

	for (unsigned i = 0; i < d->n; i++)
		req_wait(d->g, d->req[i]);
	for (unsigned k = 0; k < r->n; k++) {
		word_wait(d->g, &d->words, k, (uint64_t)TOKENS * (round + 1));
		for (unsigned i = 0; i < TOKENS; i++)
			filled(d->dst.data + k * part + (size_t)i * TOKEN,
			       token_size(k, r->rank, round, i), round * 7 + i + k * 1000);
	}
	for (unsigned k = 0; k < r->n; k++)
		PUT(d->g, .rank = k, .words = &d->words, .word = RANKS_MAX);
	word_wait(d->g, &d->words, RANKS_MAX, (uint64_t)r->n * (round + 1));
}

/* As experts' tokens are sent: from all ranks to all, a signal with each, on two contexts. */
static void dispatch(struct rank *r)
{
	enum { ROUNDS = 3 };
	size_t all = (size_t)TOKENS * TOKEN * r->n;
	struct group *g = group_new(r, 2);
	struct dispatch d = { .r = r, .g = g };

	d.src = window_new(g, all);
	d.dst = window_new(g, all);
	d.words = words_new(g, RANKS_MAX + 1);
	for (unsigned round = 0; round < ROUNDS; round++) {
		at(r, "round %u", round);
		send_tokens(&d, round);
		take_tokens(&d, round);
	}
	together(r);
	for (unsigned k = 0; k < r->n; k++)
		EQ(TOKENS * ROUNDS, word(&d.words, k));
	window_free(g, &d.words);
	window_free(g, &d.dst);
	window_free(g, &d.src);
	groups_close(r);
}

static void all_four(struct validate *v)
{
	ranks_run(v, 4, dispatch);
}

static void all_eight(struct validate *v)
{
	ranks_run(v, 8, dispatch);
}

const struct vcheck validate_rma_put[] = {
	{ "rma-put-sizes", "Puts from 1 byte to 4 MiB", BROKEN, sizes, V_HERE | V_SOAK, 0 },
	{ "rma-put-huge", "Puts of 64 MiB", BROKEN, huge, V_HERE | V_FULL, 60 },
	{ "rma-put-unaligned", "Puts from and to any address", BROKEN, unaligned, V_HERE | V_SOAK,
	  0 },
	{ "rma-put-values", "Puts of 1 to 8 bytes",
	  "Kernels that put one value write elsewhere: report it", values, V_HERE, 0 },
	{ "rma-put-edges", "Puts to the first and the last byte of a window", BROKEN, edges,
	  V_HERE, 0 },
	{ "rma-put-empty", "A signal without a put", "ncclSignal() fails: report it", empty, V_HERE,
	  0 },
	{ "rma-source", "Once a request is done its source may change",
	  "Data of the next step is sent instead: report it", source, V_HERE | V_SOAK, 0 },
	{ "rma-both-ways", "Puts and signals both ways at once", BROKEN, both_ways,
	  V_HERE | V_SOAK, 0 },
	{ "rma-loopback", "Puts and signals of a rank to itself", HANGS, loopback, V_HERE, 0 },
	{ "rma-spin", "A put to itself is done by test() alone",
	  "CUDA graphs hang: NCCL flushes so, and calls nothing else meanwhile: report it", spin,
	  V_HERE, 0 },
	{ "rma-all-to-all", "Four ranks put to all", BROKEN, all_four, V_HERE | V_SOAK, 0 },
	{ "rma-all-to-all-8", "Eight ranks put to all", BROKEN, all_eight, V_HERE | V_FULL, 60 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
