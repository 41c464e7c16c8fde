/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks_flow.c - see ranks.h: rounds of puts of all sizes, each checked once its signal came. */
#include <stdlib.h>
#include <string.h>

#include "tools/validate/ranks.h"

enum { QUEUE = 256, GAP = 9 };
enum { WORD_ROUNDS, WORD_ACKS, WORD_WEAK, FLOW_WORDS };

static size_t slot(const struct flow *f)
{
	return FLOW_PIECES * (f->largest + GAP);
}

struct flow *flow_new(struct group *g, const struct flow *like)
{
	struct flow *f = calloc(1, sizeof(*f));

	TRUE(f);
	_Static_assert(sizeof(f->queue) / sizeof(f->queue[0]) == QUEUE, "its length");
	*f = *like;
	f->g = g;
	if (!f->largest)
		f->largest = 150000;
	f->src = window_new(g, FLOW_SLOTS * slot(f));
	f->dst = window_new(g, FLOW_SLOTS * slot(f));
	f->words = words_new(g, FLOW_WORDS);
	return f;
}

/* One put of a round: its size and place follow from the numbers. */
static size_t piece(const struct flow *f, unsigned round, unsigned i, size_t *off, uint64_t *seed)
{
	static const size_t sizes[] = { 1, 8, 130, 4000, 8144, 8145, 30001, 65536, 150000 };
	size_t from = round % FLOW_SLOTS * slot(f), size = 0;

	for (unsigned k = 0; k <= i; k++) {
		uint64_t x = mix(f->id * 1000003u + round * FLOW_PIECES + k);

		from += size + x % GAP;
		size = sizes[x / 16 % (sizeof(sizes) / sizeof(sizes[0]))];
		size = size > f->largest ? f->largest : size;
		*seed = x;
	}
	*off = from;
	return size;
}

static void keep(struct flow *f, void *req, uint8_t *src, size_t size)
{
	unsigned i = f->tail++ % QUEUE;

	TRUE(f->tail - f->head <= QUEUE);
	f->queue[i].req = req;
	f->queue[i].src = src;
	f->queue[i].size = size;
}

/* NCCL tests the oldest alone.  Once it is done its source is overwritten. */
static void test_oldest(struct flow *f)
{
	while (f->head != f->tail) {
		unsigned i = f->head % QUEUE;

		if (!req_done(f->g, f->queue[i].req))
			return;
		if (f->queue[i].size)
			memset(f->queue[i].src, 0xdd, f->queue[i].size);
		f->head++;
	}
}

static void post_round(struct flow *f)
{
	struct put p = { .context = f->context, .rank = f->peer, .weak = true };

	for (unsigned i = 0; i < FLOW_PIECES; i++) {
		uint64_t seed;

		p.src = &f->src;
		p.dst = &f->dst;
		p.size = piece(f, f->sent, i, &p.src_off, &seed);
		p.dst_off = p.src_off;
		p.more = seed & 1 << 20;
		p.words = f->weak && seed & 1 << 21 ? &f->words : NULL;
		p.word = WORD_WEAK;
		f->weak_sent += p.words != NULL;
		fill(f->src.data + p.src_off, p.size, seed);
		keep(f, put_post(f->g, &p), f->src.data + p.src_off, p.size);
	}
	keep(f, POST(f->g, .context = f->context, .rank = f->peer, .words = &f->words,
		     .word = WORD_ROUNDS, .add = 1), NULL, 0);
	f->posted[f->sent++ % FLOW_SLOTS] = f->tail;
}

static void look_at_round(struct flow *f)
{
	for (unsigned i = 0; i < FLOW_PIECES; i++) {
		uint64_t seed;
		size_t off, size = piece(f, f->seen, i, &off, &seed);
		size_t bad = fill_differs(f->dst.data + off, size, seed);

		if (bad < size)
			FAIL("round %u has its signal, but put %u of it, %zu bytes, is not there "
			     "from byte %zu on", f->seen, i, size, bad);
		blank(f->dst.data + off, size);
	}
	f->seen++;
	keep(f, POST(f->g, .context = f->context, .rank = f->peer, .words = &f->words,
		     .word = WORD_ACKS), NULL, 0);
}

bool flow_step(struct flow *f)
{
	uint64_t acked = word(&f->words, WORD_ACKS), rounds = word(&f->words, WORD_ROUNDS);

	if (acked > f->sent || rounds > f->seen + FLOW_SLOTS)
		FAIL("signals came that nobody sent");
	test_oldest(f);
	if (f->sent < f->rounds && f->sent < acked + FLOW_SLOTS &&
	    (int)(f->head - f->posted[f->sent % FLOW_SLOTS]) >= 0)
		post_round(f);
	while (word(&f->words, WORD_ROUNDS) > f->seen)
		look_at_round(f);
	tick(f->g);
	return acked == f->rounds && f->seen == f->rounds && f->head == f->tail;
}

void flows_run(struct flow **f, unsigned n)
{
	uint64_t end = deadline_ms(drive_hang_ms);
	bool all = false;

	while (!all) {
		all = true;
		for (unsigned i = 0; i < n; i++)
			all = flow_step(f[i]) && all;
		if (!all)
			wait_tick(end, __FILE__, __LINE__, "all puts and their signals");
	}
	settle(f[0]->g);
}

void flow_free(struct flow *f)
{
	word_is(&f->words, WORD_ROUNDS, f->rounds);
	word_is(&f->words, WORD_ACKS, f->rounds);
	word_is(&f->words, WORD_WEAK, f->weak_sent);
	window_free(f->g, &f->words);
	window_free(f->g, &f->dst);
	window_free(f->g, &f->src);
	free(f);
}
