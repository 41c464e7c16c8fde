/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_group.c - communicators of one-sided operations: made, used, and closed in any order. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/validate/ranks.h"

/* -- made --------------------------------------------------------------------------------- */

static void listen_here(struct rank *r)
{
	enum { BEHIND = 64 };
	_Alignas(16) uint8_t room[NCCL_NET_HANDLE_MAXSIZE + BEHIND];
	void *listen = NULL;

	memset(room, 0xa5, sizeof(room));
	OK(rma_listen(r->rma, r->ctx, r->dev, room, &listen));
	for (size_t i = NCCL_NET_HANDLE_MAXSIZE; i < sizeof(room); i++)
		if (room[i] != 0xa5)
			FAIL("listen() wrote byte %zu of the handle, which has %d", i,
			     NCCL_NET_HANDLE_MAXSIZE);
	OK(rma_close_listen(r->rma, listen));
}

static void handle(struct validate *v)
{
	ranks_run(v, 1, listen_here);
}

static void one_round(struct rank *r)
{
	struct group *g = group_new(r, 1);

	all_to_all(g, 1);
	groups_close(r);
}

static void connects(struct validate *v)
{
	ranks_run(v, 4, one_round);
}

static void alone(struct validate *v)
{
	ranks_run(v, 1, one_round);
}

/* Its context is memory that nobody can touch. */
static void of_another(struct rank *r)
{
	void *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct group *g;

	TRUE(page != MAP_FAILED);
	at(r, "connect with a context of another plugin");
	g = group_connect(r, NULL, r->n, page);
	group_close_listen(g);
	group_contexts(g, 1);
	at(r, "after connect with a context of another plugin");
	all_to_all(g, 1);
	groups_close(r);
}

static void foreign_ctx(struct validate *v)
{
	ranks_run(v, 2, of_another);
}

/* Ranks 1 and 3 of four are a group with numbers 0 and 1, and so are 2 and 0. */
static void rails(struct rank *r)
{
	static const unsigned odd[] = { 1, 3 }, even[] = { 2, 0 };
	struct group *all = group_new(r, 1), *rail;

	rail = group_of(r, r->rank % 2 ? odd : even, 2, 1);
	at(r, "two of four ranks");
	all_to_all(rail, 2);
	at(r, "all four");
	all_to_all(all, 1);
	groups_close(r);
}

static void subset(struct validate *v)
{
	ranks_run(v, 4, rails);
}

/* With a stride of 2, ranks 0 and 2 have operations with each other, and so have 1 and 3. */
static void strides(struct rank *r)
{
	struct group *g = group_connect(r, NULL, r->n, r->ctx);
	unsigned peer = (r->rank + 2) % 4;
	struct flow *f;

	group_close_listen(g);
	at(r, "createContext with rankStride 2");
	OK(rma_context(r->rma, g->coll, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, 2, &g->ctx));
	f = FLOW(g, .peer = peer, .rounds = 5);
	flows_run(&f, 1);
	together(r);
	flow_free(f);
	groups_close(r);
}

static void stride(struct validate *v)
{
	ranks_run(v, 4, strides);
}

static void four_groups(struct rank *r)
{
	struct group *g[4];
	struct flow *f[4];

	for (unsigned i = 0; i < 4; i++) {
		at(r, "communicator %u", i + 1);
		g[i] = group_of(r, NULL, r->n, 1);
	}
	at(r, "puts through four communicators");
	for (unsigned i = 0; i < 4; i++)
		f[i] = FLOW(g[i], .peer = 1 - r->rank, .rounds = 5, .id = i,
			    .largest = 20000);
	flows_run(f, 4);
	together(r);
	for (unsigned i = 0; i < 4; i++)
		flow_free(f[i]);
	groups_close(r);
}

static void four_colls(struct validate *v)
{
	ranks_run(v, 2, four_groups);
}

/* -- contexts ----------------------------------------------------------------------------- */

static void flows_on(struct rank *r, struct group *const *g, const int *context, unsigned n)
{
	struct flow *f[8];

	for (unsigned i = 0; i < n; i++)
		f[i] = FLOW(g[i], .peer = 1 - r->rank, .rounds = 5, .id = i,
			    .context = context[i], .largest = 20000);
	flows_run(f, n);
	together(r);
	for (unsigned i = 0; i < n; i++)
		flow_free(f[i]);
}

static void eight_contexts(struct rank *r)
{
	static const int context[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	struct group *g = group_new(r, 8);

	at(r, "puts on 8 contexts of one createContext");
	flows_on(r, (struct group *[]){ g, g, g, g, g, g, g, g }, context, 8);
	groups_close(r);
}

static void contexts(struct validate *v)
{
	ranks_run(v, 2, eight_contexts);
}

/* As host RMA and GIN share a communicator. */
static void two_calls(struct rank *r)
{
	static const int context[] = { 0, 3 };
	struct group *g = group_new(r, 1), gin = *g;

	at(r, "a second createContext of one communicator");
	gin.ctx = NULL;
	group_contexts(&gin, 4);
	at(r, "puts on contexts of two calls of createContext");
	flows_on(r, (struct group *[]){ g, &gin }, context, 2);
	OK(rma_context_end(r->rma, gin.ctx));
	at(r, "after destroyContext of the second");
	all_to_all(g, 1);
	groups_close(r);
}

static void context_calls(struct validate *v)
{
	ranks_run(v, 2, two_calls);
}

static void with_class(struct rank *r)
{
	struct group *g = group_connect(r, NULL, r->n, r->ctx);

	group_close_listen(g);
	at(r, "createContext with traffic class 8");
	OK(rma_context(r->rma, g->coll, 1, 8, 1, &g->ctx));
	all_to_all(g, 1);
	groups_close(r);
}

static void traffic_class(struct validate *v)
{
	ranks_run(v, 2, with_class);
}

/* -- closed ------------------------------------------------------------------------------- */

static void listen_closed_last(struct rank *r)
{
	struct group *g = group_connect(r, NULL, r->n, r->ctx);
	void *listen = g->listen;

	group_contexts(g, 1);
	all_to_all(g, 1);
	quietly_together(r);
	g->listen = NULL;
	group_close(g);
	at(r, "closeListen after closeColl");
	OK(rma_close_listen(r->rma, listen));
}

static void listen_last(struct validate *v)
{
	ranks_run(v, 2, listen_closed_last);
}

static void context_left(struct rank *r)
{
	struct group *g = group_new(r, 2);

	all_to_all(g, 1);
	quietly_together(r);
	g->ctx = NULL;			/* never destroyed */
	at(r, "closeColl with a context");
	group_close(g);
	at(r, "a communicator after it");
	g = group_new(r, 1);
	all_to_all(g, 1);
	groups_close(r);
}

static void close_context(struct validate *v)
{
	ranks_run(v, 2, context_left);
}

static void dereg_after_context(struct rank *r)
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
	at(r, "deregMrSym after destroyContext");
	window_free(g, &words);
	window_free(g, &w);
	group_close(g);
}

static void dereg_last(struct validate *v)
{
	ranks_run(v, 2, dereg_after_context);
}

enum { REOPENED = 20 };

static void opened_again(struct rank *r)
{
	struct counts before = { 0, 0 }, after;

	for (int i = 0; i <= REOPENED; i++) {
		at(r, "communicator %d of %d", i, REOPENED);
		one_round(r);
		quietly_together(r);
		if (i == 0)
			before = counts_now();
	}
	after = counts_now();
	/* The connections of the last may still be there: what leaks does so for each. */
	if (after.fds > before.fds + REOPENED / 2 || after.threads > before.threads + REOPENED / 2)
		FAIL("%d communicators were made and closed; %u descriptors became %u, and %u "
		     "threads %u", REOPENED, before.fds, after.fds, before.threads, after.threads);
	rank_saw("%d communicators: %u descriptors, %u threads", REOPENED, after.fds,
		 after.threads);
}

static void reopen(struct validate *v)
{
	ranks_run(v, 2, opened_again);
}

static void nothing_put(struct rank *r)
{
	struct group *g = group_new(r, 4);
	struct window w = window_new(g, 4096);

	for (unsigned i = 0; i < 100; i++)
		tick(g);
	together(r);
	window_free(g, &w);
	groups_close(r);
}

static void idle(struct validate *v)
{
	ranks_run(v, 3, nothing_put);
}

/* Rank 0 closes all while the other two go on with each other. */
static void one_leaves(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window w = window_new(g, 1000), words = words_new(g, 2);

	PUT(g, .rank = (r->rank + 1) % 3, .words = &words);
	word_wait(g, &words, 0, 1);
	together(r);
	quietly_together(r);
	if (r->rank == 0) {
		window_free(g, &words);
		window_free(g, &w);
		group_close(g);
		atomic_store(note_of_all(0), 1);
		return;
	}
	WAIT_FOR(atomic_load(note_of_all(0)) || (tick(g), false));
	at(r, "another rank has closed all");
	for (unsigned i = 0; i < 30; i++) {
		tick(g);
		nap_ms(1);
	}
	fill(w.data, 500, 1);
	PUT(g, .src = &w, .size = 500, .dst = &w, .dst_off = 500, .rank = 3 - r->rank,
	    .words = &words, .word = 1);
	word_wait(g, &words, 1, 1);
	filled(w.data + 500, 500, 1);
	atomic_fetch_add(note_of_all(1), 1);
	WAIT_FOR(atomic_load(note_of_all(1)) == 2 || (tick(g), false));
	window_free(g, &words);
	window_free(g, &w);
	group_close(g);
}

static void leaves(struct validate *v)
{
	ranks_run(v, 3, one_leaves);
}

#define NO_RMA "NCCL has no one-sided operations then, or the job ends: report it"

const struct vcheck validate_rma_group[] = {
	{ "rma-handle", "A handle has at most 128 bytes", "NCCL's memory is overwritten: report it",
	  handle, V_HERE, 0 },
	{ "rma-connect", "Four ranks connect", NO_RMA, connects, V_HERE | V_SOAK, 0 },
	{ "rma-alone", "A rank connects with itself alone", NO_RMA, alone, V_HERE, 0 },
	{ "rma-foreign-ctx", "connect() does without its context",
	  "NCCL passes that of the net plugin there, perhaps another's: a crash: report it",
	  foreign_ctx, V_HERE, 0 },
	{ "rma-subset", "Some ranks are a group with numbers of their own",
	  "Data goes to the wrong rank where NCCL groups ranks by rail: report it", subset, V_HERE,
	  0 },
	{ "rma-stride", "A context for every second rank", NO_RMA, stride, V_HERE, 0 },
	{ "rma-four-colls", "Four communicators of the same ranks at once",
	  "NCCL has one for each NIC of a rank: report it", four_colls, V_HERE, 0 },
	{ "rma-contexts", "8 contexts of one call carry data at once", HANGS, contexts, V_HERE, 0 },
	{ "rma-context-calls", "createContext() twice for one communicator",
	  "NCCL calls it for each of its proxies: report it", context_calls, V_HERE, 0 },
	{ "rma-class", "A context with a class of traffic", NO_RMA, traffic_class, V_HERE, 0 },
	{ "rma-listen-last", "closeListen() may come after closeColl()",
	  "No order is promised to plugins: jobs crash at their end: report it",
	  listen_last, V_HERE, 0 },
	{ "rma-close-context", "closeColl() while there is a context",
	  "NCCL may leave contexts to it: jobs end with an error: report it",
	  close_context, V_HERE, 0 },
	{ "rma-dereg-last", "deregMrSym() after destroyContext()",
	  "NCCL ends its signals in this order: report it", dereg_last, V_HERE, 0 },
	{ "rma-reopen", "20 communicators, one after the other, leave nothing behind",
	  "Jobs that make many communicators run out of it: report it", reopen, V_HERE, 0 },
	{ "rma-idle", "A communicator that nobody uses", NO_RMA, idle, V_HERE, 0 },
	{ "rma-leaves", "A rank that closes first leaves the others alone",
	  "Ranks end at different times, and jobs end with an error: report it", leaves, V_HERE,
	  0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
