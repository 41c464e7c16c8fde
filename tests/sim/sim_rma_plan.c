/* SPDX-License-Identifier: BSD-3-Clause */
/* sim_rma_plan.c - what the ranks of a communicator do, chosen by the plan's generator. */
#include "tests/sim/sim_rma.h"

#include <stdlib.h>
#include <string.h>

static struct spot choose_spot(struct rank *r, bool lasting, uint64_t size, uint64_t align)
{
	struct sim_rng *rng = &sim.plan;
	struct spot s;
	struct window *w;

	do {
		s.window = (unsigned)sim_below(rng, r->g->nwindows);
		w = &r->window[s.window];
	} while (lasting && w->when == WHEN_MINE);
	s.offset = (w->used + 1 + sim_below(rng, GAP_MAX) + align - 1) / align * align;
	w->used = s.offset + size;
	return s;
}

static void choose_words(struct rank *r)
{
	r->nwords = 4 + (unsigned)sim_below(&sim.plan, WORDS_MAX - 3);
	for (unsigned i = 0; i < r->nwords; i++) {
		r->word[i].at = choose_spot(r, false, 8, 8);
		r->word[i].base = sim_chance(&sim.plan, 500) ? 0 : sim_next(&sim.plan);
	}
}

static void choose_signal(struct group *g, struct op *o)
{
	struct rank *t = &g->rank[o->to];

	do {
		o->word = (unsigned)sim_below(&sim.plan, t->nwords);
	} while (t->word[o->word].nfields == FIELDS);
	o->field = t->word[o->word].nfields++;
	o->strong = sim_chance(&sim.plan, 600);
}

static void choose_op(struct rank *r, struct op *o)
{
	struct sim_rng *rng = &sim.plan;
	struct group *g = r->g;
	unsigned kind = (unsigned)sim_below(rng, 10);
	static const char paints[] = { (char)UNTOUCHED, GONE, (char)JUDGED, (char)CLOSED, 0 };
	struct rank *t;
	char first;

	o->from = r->index;
	o->to = sim_chance(rng, 80) ? r->index : (unsigned)sim_below(rng, g->nranks);
	t = &g->rank[o->to];
	o->order = (unsigned)sim_below(rng, r->norders);
	o->gets = kind < 2;
	o->signals = kind > 3;
	o->more = sim_chance(rng, 300);
	do {				/* bytes that no paint looks like */
		o->salt = sim_next(rng);
		sim_fill(&first, 1, o->salt);
	} while (strchr(paints, first));
	if (kind < 8)
		o->size = sim_chance(rng, 100) ? sim_between(rng, 64 << 10, 2 << 20) :
						 sim_choose_size(rng);
	if (!o->size && !o->signals)
		o->size = 1;
	if (o->signals)
		choose_signal(g, o);
	if (!o->size)
		return;
	o->src = choose_spot(o->gets ? t : r, true, o->size, 1);
	o->dst = choose_spot(o->gets ? r : t, o->gets, o->size, 1);
}

static void choose_windows(struct rank *r)
{
	struct sim_rng *rng = &sim.plan;
	uint64_t at = r->g->start_ns;

	for (unsigned i = 0; i < r->g->nwindows; i++) {
		struct window *w = &r->window[i];

		if (sim_chance(rng, 300))
			at += sim_between(rng, 0, 50 * MS);
		w->open_at = at;
		w->close_at = r->g->start_ns + sim_between(rng, 0, 50 * MS);
		w->when = (enum when)sim_below(rng, 2);
		if (i && !sim.sabotage && sim_chance(rng, 150))
			w->when = WHEN_MINE;
	}
}

static void fill(struct rank *r)
{
	for (unsigned i = 0; i < r->g->nwindows; i++) {
		char **mem = &r->window[i].mem;

		*mem = aligned_alloc(4096, (r->g->size[i] + 4095) / 4096 * 4096);
		if (!*mem)
			abort();
		memset(*mem, UNTOUCHED, r->g->size[i]);
	}
	for (unsigned i = 0; i < r->nwords; i++) {
		r->word[i].last = r->word[i].base;
		memcpy(at(r, r->word[i].at), &r->word[i].base, 8);
	}
}

static void choose_ranks(struct group *g)
{
	struct sim_rng *rng = &sim.plan;
	unsigned first = (unsigned)sim_below(rng, sim.nprocs), n = 0;

	g->nranks = 2 + (unsigned)sim_between(rng, 0, RANKS_MAX - 2);
	for (unsigned i = 0; n < g->nranks; i++) {
		const struct sim_proc *p = &sim.proc[(first + i) % sim.nprocs];
		struct rank *r = &g->rank[n];

		if (!p->alive)
			continue;
		r->g = g;
		r->index = n++;
		r->proc = p->index;
		r->life = p->life;
		r->norders = 1 + (unsigned)sim_below(rng, ORDERS_MAX);
		r->depth = 1 + (unsigned)sim_between(rng, 0, 31);
		r->lifo = sim_chance(rng, 200);
		choose_windows(r);
		choose_words(r);
	}
	if (sim_chance(rng, 60))
		g->rank[sim_below(rng, n)].leave_at = g->start_ns + sim_between(rng, 1, 20 * MS);
}

void sim_rma_add(uint64_t start_ns)
{
	struct group *g = calloc(1, sizeof(*g));

	if (!g)
		abort();
	if (!braid_list_empty(&sim_rma_groups))
		g->index = braid_list_entry(sim_rma_groups.prev, struct group, node)->index + 1;
	g->start_ns = start_ns;
	g->nwindows = 1 + (unsigned)sim_below(&sim.plan, WINDOWS_MAX);
	g->together = sim_chance(&sim.plan, 500);
	choose_ranks(g);
	for (unsigned i = 0; i < g->nranks; i++) {
		struct rank *r = &g->rank[i];

		r->nops = 1 + (unsigned)sim_below(&sim.plan, OPS_MAX);
		for (unsigned k = 0; k < r->nops; k++)
			choose_op(r, &r->op[k]);
	}
	for (unsigned k = 0; k < g->nwindows; k++) {
		for (unsigned i = 0; i < g->nranks; i++) {
			if (g->size[k] < g->rank[i].window[k].used + GAP_MAX)
				g->size[k] = g->rank[i].window[k].used + GAP_MAX;
		}
	}
	for (unsigned i = 0; i < g->nranks; i++)
		fill(&g->rank[i]);
	for (unsigned i = 0; i < g->nranks; i++) {
		for (unsigned k = 0; k < g->rank[i].nops; k++) {
			const struct op *o = &g->rank[i].op[k];

			if (o->size)
				sim_fill(at(&g->rank[o->gets ? o->to : i], o->src), o->size, o->salt);
		}
	}
	braid_list_add_tail(&sim_rma_groups, &g->node);
	sim_event("rma", g->nranks, g->nwindows, g->rank[0].proc);
}
