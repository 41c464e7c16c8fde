/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_signal.c - signals: what is added, how often, to which word, and by whom. */
#include <string.h>

#include "tools/validate/ranks.h"

/* Rank 0 sends signals to words 0 to 2 of rank 1, and then one to word 3. */
static void signals(struct rank *r, void (*send)(struct group *g, const struct window *words),
		    const uint64_t want[3])
{
	struct group *g = group_new(r, 1);
	struct window words = words_new(g, 4);

	if (r->rank == 0) {
		send(g, &words);
		PUT(g, .rank = 1, .words = &words, .word = 3, .add = 1);
	} else {
		word_wait(g, &words, 3, 1);
		settle(g);
		for (unsigned i = 0; i < 3; i++)
			word_is(&words, i, want[i]);
	}
	together(r);
	for (unsigned i = 0; r->rank == 0 && i < 4; i++)
		word_is(&words, i, 0);
	window_free(g, &words);
	groups_close(r);
}

static void send_inc(struct group *g, const struct window *words)
{
	PUT(g, .rank = 1, .words = words, .word = 0);	/* with a value of 77 */
	PUT(g, .rank = 1, .words = words, .word = 0, .weak = true);
	PUT(g, .rank = 1, .words = words, .word = 1);
}

static void incs(struct rank *r)
{
	signals(r, send_inc, (const uint64_t[]){ 2, 1, 0 });
}

static void inc(struct validate *v)
{
	ranks_run(v, 2, incs);
}

static void send_add(struct group *g, const struct window *words)
{
	PUT(g, .rank = 1, .words = words, .word = 0, .add = 1000);
	PUT(g, .rank = 1, .words = words, .word = 0, .add = (uint64_t)1 << 40);
	PUT(g, .rank = 1, .words = words, .word = 1, .add = (uint64_t)-1);
	PUT(g, .rank = 1, .words = words, .word = 1, .add = 6, .weak = true);
	PUT(g, .rank = 1, .words = words, .word = 2, .add = (uint64_t)-3);
}

static void adds(struct rank *r)
{
	signals(r, send_add,
		(const uint64_t[]){ ((uint64_t)1 << 40) + 1000, 5, (uint64_t)-3 });
}

static void add(struct validate *v)
{
	ranks_run(v, 2, adds);
}

enum { ADDS = 600, AT_ONCE = 32 };

/* All ranks add to word 0 of rank 0, rank 0 itself among them if there are more than two. */
static void one_word(struct rank *r)
{
	struct group *g = group_new(r, 2);
	struct window words = words_new(g, 3);
	bool adds_here = r->n > 2 || r->rank == 1;
	uint64_t sum = 0, ranks = r->n > 2 ? r->n : 1;
	void *req[AT_ONCE];

	for (unsigned i = 0; adds_here && i < ADDS; i++) {
		if (i >= AT_ONCE)
			req_wait(g, req[i % AT_ONCE]);
		req[i % AT_ONCE] = POST(g, .context = i % 2, .rank = 0, .words = &words, .word = 1,
					.add = i + 1, .weak = i % 3 == 0, .more = i % 5 != 4);
	}
	for (unsigned i = 0; adds_here && i < AT_ONCE; i++)
		req_wait(g, req[(ADDS + i) % AT_ONCE]);
	for (uint64_t i = 0; i < ADDS; i++)
		sum += (i + 1) * ranks;
	if (r->rank == 0) {
		word_wait(g, &words, 1, sum);
		settle(g);
		word_is(&words, 1, sum);
		word_is(&words, 0, 0);
		word_is(&words, 2, 0);
	}
	together(r);
	window_free(g, &words);
	groups_close(r);
}

static void once(struct validate *v)
{
	ranks_run(v, 2, one_word);
}

static void many_ranks(struct validate *v)
{
	ranks_run(v, 4, one_word);
}

/* The words at both sides of one belong to others. */
static void neighbours(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window words = words_new(g, 8);

	if (r->rank == 0) {
		for (unsigned i = 1; i < 8; i += 2)
			PUT(g, .rank = 1, .words = &words, .word = i, .add = i);
	} else {
		for (unsigned i = 1; i < 8; i += 2)
			word_wait(g, &words, i, i);
		settle(g);
		for (unsigned i = 0; i < 8; i++)
			word_is(&words, i, i % 2 ? i : 0);
	}
	together(r);
	window_free(g, &words);
	groups_close(r);
}

static void neighbour(struct validate *v)
{
	ranks_run(v, 2, neighbours);
}

/* Without SIGNAL_NEVER_RESET the owner may write the word, while no signal is under way. */
static void set_back(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window words = words_new(g, 1);

	for (unsigned i = 1; i <= 20; i++) {
		if (r->rank == 0) {
			PUT(g, .rank = 1, .words = &words, .add = i);
		} else {
			word_wait(g, &words, 0, 1);
			EQ(i, word(&words, 0));
			memset(words.data, 0, words.size);
		}
		together(r);
	}
	window_free(g, &words);
	groups_close(r);
}

static void reset(struct validate *v)
{
	ranks_run(v, 2, set_back);
}

static void never_set_back(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window words = memory_new(2 * sizeof(uint64_t));

	memset(words.data, 0, words.size);
	at(r, "regMrSym with FORCE_SO and SIGNAL_NEVER_RESET");
	window_reg(g, &words, NCCL_RMA_FORCE_SO | NCCL_RMA_NEVER_RESET);
	quietly_together(r);
	at(r, "signals to it");
	for (unsigned i = 1; i <= 20; i++) {
		PUT(g, .rank = 1 - r->rank, .words = &words, .add = i);
		PUT(g, .rank = 1 - r->rank, .words = &words, .word = 1);
	}
	word_wait(g, &words, 0, 210);
	word_wait(g, &words, 1, 20);
	settle(g);
	word_is(&words, 0, 210);
	word_is(&words, 1, 20);
	together(r);
	window_free(g, &words);
	groups_close(r);
}

static void never_reset(struct validate *v)
{
	ranks_run(v, 2, never_set_back);
}

#define MISCOUNTED "Whoever waits for the word goes on too early, or hangs: report it"

const struct vcheck validate_rma_signal[] = {
	{ "rma-signal-inc", "INC adds one, whatever the value", MISCOUNTED, inc, V_HERE, 0 },
	{ "rma-signal-add", "ADD adds all 64 bits of its value", MISCOUNTED, add, V_HERE, 0 },
	{ "rma-signal-once", "Each of many signals is added once", MISCOUNTED, once,
	  V_HERE | V_SOAK, 0 },
	{ "rma-signal-ranks", "Four ranks add to one word", MISCOUNTED, many_ranks,
	  V_HERE | V_SOAK, 0 },
	{ "rma-signal-word", "A signal changes its word alone", MISCOUNTED, neighbour, V_HERE, 0 },
	{ "rma-signal-reset", "A word that its owner sets back counts anew", MISCOUNTED, reset,
	  V_HERE, 0 },
	{ "rma-signal-never", "Signals that are never reset",
	  "NCCL registers those of ncclWaitSignal() so: report it", never_reset, V_HERE, 0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
