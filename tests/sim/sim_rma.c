/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_rma.c - communicators with one-sided operations, driven as NCCL's threads do, and their model.
 *
 * A rank's operations are chosen when its communicator is made.  No two write the same bytes.  Each
 * signal has two bits of a word, which many ranks and contexts may add to, so the word says which
 * signals were added, and which twice.  Words are looked at in every system call of any process.
 * When a signal appears, all that it promises must be there, byte by byte.
 *
 * Forbidden accesses show in memory: a source is overwritten as soon as its request is done, bytes
 * that have been judged are painted, and so is all memory of a window that is closed.  All of that
 * is checked once more at the end.
 *
 * An error is correct only if the plan gave a reason, as for messages.
 */
#include "tests/sim/sim_rma.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct braid_list sim_rma_groups;
static bool dropped;			/* a window was closed that others may still put to */

/* --- judging ------------------------------------------------------------------------------- */

static bool is_over(const struct rank *r)
{
	return r->state >= LEFT;
}

static void name(const struct rank *r, const struct op *o, char *ret, size_t len)
{
	snprintf(ret, len, "communicator %u, operation %u of rank %u (%s%s%s, %llu bytes, rank %u, "
		 "context %u)", r->g->index, (unsigned)(o - r->op), r->index, o->gets ? "get" : "put",
		 o->signals ? o->strong ? ", strong signal" : ", weak signal" : "",
		 o->more ? ", more" : "", (unsigned long long)o->size, o->to, o->order);
}

static void op_fails(const struct rank *r, const struct op *o, const char *what, uint64_t n)
{
	char text[160];

	name(r, o, text, sizeof(text));
	sim_fail("%s: %s %llu", text, what, (unsigned long long)n);
}

static void moved(void)
{
	sim_model_moved = sim.now;
}

/* The window that an operation's bytes, or its signal, go to, is closed or about to be. */
static bool is_shut(const struct rank *t, struct spot s)
{
	return t->window[s.window].closing;
}

/* The target has closed a window that the operation names: then it may be in vain. */
static bool may_be_vain(const struct rank *r, const struct op *o)
{
	const struct rank *t = &r->g->rank[o->to];

	if (o->gets)
		return r->g->doomed_at && is_shut(t, o->src);
	return (o->size && is_shut(t, o->dst)) || (o->signals && is_shut(t, t->word[o->word].at));
}

/* Are the bytes of a put at their target?  Then paint them. */
static bool lands(struct rank *r, struct op *o)
{
	struct rank *t = &r->g->rank[o->to];

	if (o->landed || !o->size)
		return true;
	if (sim_compare(at(t, o->dst), o->size, o->salt) != o->size)
		return false;
	o->landed = true;
	t->told[r->index] = true;
	memset(at(t, o->dst), JUDGED, o->size);
	moved();
	sim_event("landed", r->index, o - r->op, o->size);
	return true;
}

/* A signal promises that these bytes are there. */
static void must_have_landed(struct rank *r, struct op *o, const struct op *signal)
{
	if (may_be_vain(r, o) || lands(r, o))
		return;
	op_fails(r, o, o == signal ? "its signal is here, but its bytes are not from" :
				     "a later strong signal is here, but its bytes are not from",
		 sim_compare(at(&r->g->rank[o->to], o->dst), o->size, o->salt));
}

static void judge_signal(struct rank *r, struct op *o)
{
	must_have_landed(r, o, o);
	for (struct op *e = r->op; o->strong && e < o; e++) {
		if (e->gets || e->to != o->to || e->order != o->order)
			continue;
		must_have_landed(r, e, o);
		if (e->signals && !e->seen && !may_be_vain(r, e))
			op_fails(r, e, "its signal comes after that of operation",
				 (uint64_t)(o - r->op));
	}
}

/* One signal, by its two bits.  Has it just come? */
static bool look_at_signal(struct rank *r, struct op *o, uint64_t bits)
{
	if (bits > 1)
		op_fails(r, o, "its signal was added more than once:", bits);
	else if (bits && !o->posted)
		op_fails(r, o, "its signal is here before it was posted:", bits);
	else if (bits && o->vain)
		op_fails(r, o, "it was in vain, but its signal is here:", bits);
	else if (!bits && o->seen)
		op_fails(r, o, "its signal has gone again:", bits);
	if (!bits || o->seen)
		return false;
	o->seen = true;
	r->g->rank[o->to].told[r->index] = true;
	moved();
	sim_event("seen", r->index, o - r->op, o->to);
	return true;
}

static void look_at_rank(struct rank *t)
{
	uint64_t now[WORDS_MAX], changed = 0;
	struct op *fresh[RANKS_MAX * OPS_MAX];
	unsigned n = 0;

	for (unsigned i = 0; i < t->nwords; i++) {
		memcpy(&now[i], at(t, t->word[i].at), 8);
		if (t->window[t->word[i].at.window].closed || now[i] == t->word[i].last)
			continue;
		changed |= 1u << i;
		t->word[i].last = now[i];
		if (t->word[i].nfields < FIELDS && (now[i] - t->word[i].base) >> 2 * t->word[i].nfields)
			sim_fail("communicator %u, rank %u, word %u: %llx more than it was, which "
				 "nobody posted", t->g->index, t->index, i,
				 (unsigned long long)(now[i] - t->word[i].base));
	}
	for (unsigned k = 0; changed && k < t->g->nranks; k++) {
		struct rank *r = &t->g->rank[k];

		for (struct op *o = r->op; o < r->op + r->nops; o++) {
			if (o->to == t->index && o->signals && changed >> o->word & 1 &&
			    look_at_signal(r, o, (now[o->word] - t->word[o->word].base) >>
							 2 * o->field & 3))
				fresh[n++] = o;
		}
	}
	for (unsigned i = 0; i < n; i++)
		judge_signal(&t->g->rank[fresh[i]->from], fresh[i]);
}

void sim_rma_look(void)
{
	struct group *g;

	braid_list_for(g, &sim_rma_groups, node) {
		for (unsigned i = 0; i < g->nranks; i++) {
			if (g->rank[i].state == RUN)
				look_at_rank(&g->rank[i]);
		}
	}
}

/* Has the operation done all that it is to do at its target? */
static bool is_fulfilled(struct rank *r, struct op *o)
{
	bool shut = may_be_vain(r, o);

	if (!o->posted)
		return false;
	if (o->gets || o->vain || shut)
		return o->done;
	/* Bytes may be there although their frame has not ended: then they are not to be used. */
	return (!o->signals || o->seen) && (!o->size || o->landed || (o->done && lands(r, o)));
}

/* Bytes of a put that need not have come: each is right, or as it was. */
static void judge_part(const struct rank *r, const struct op *o, const char *mem)
{
	char *right;

	if (sim_all_are(mem, o->size, UNTOUCHED) || (o->posted && sim.flipped))
		return;
	right = malloc(o->size);
	if (!right)
		abort();
	sim_fill(right, o->size, o->salt);
	for (uint64_t i = 0; i < o->size; i++) {
		if (mem[i] != (char)UNTOUCHED && (!o->posted || mem[i] != right[i])) {
			op_fails(r, o, "wrong at its target at byte", i);
			break;
		}
	}
	free(right);
}

/* The bytes of one operation in a window that has not been closed. */
static void judge_op(const struct rank *r, const struct op *o, const struct rank *at_rank, unsigned k)
{
	const struct rank *src = &r->g->rank[o->gets ? o->to : o->from];
	const struct rank *dst = &r->g->rank[o->gets ? o->from : o->to];

	if (!o->size)
		return;
	if (src == at_rank && o->src.window == k) {
		const char *mem = at(src, o->src);

		if (o->done && !o->gets ? !sim_all_are(mem, o->size, GONE) :
					  sim_compare(mem, o->size, o->salt) != o->size)
			op_fails(r, o, "its source was written; of its bytes:", o->size);
	}
	if (dst != at_rank || o->dst.window != k)
		return;
	if (!o->landed)
		judge_part(r, o, at(dst, o->dst));
	else if (!sim_all_are(at(dst, o->dst), o->size, JUDGED))
		op_fails(r, o, "written again; of its bytes:", o->size);
}

/* Takes out of `mem` what may have been written, so that the rest shows. */
static void blank(struct rank *r, unsigned k)
{
	for (unsigned i = 0; i < r->g->nranks; i++) {
		const struct rank *by = &r->g->rank[i];

		for (const struct op *o = by->op; o < by->op + by->nops; o++) {
			if (!o->size)
				continue;
			if ((o->gets ? o->to : o->from) == r->index && o->src.window == k)
				memset(at(r, o->src), UNTOUCHED, o->size);
			if ((o->gets ? o->from : o->to) == r->index && o->dst.window == k)
				memset(at(r, o->dst), UNTOUCHED, o->size);
		}
	}
	for (unsigned i = 0; i < r->nwords; i++) {
		if (r->word[i].at.window == k)
			memset(at(r, r->word[i].at), UNTOUCHED, 8);
	}
}

/* A window has just been closed: judge its memory, and paint it. */
static void window_closed(struct rank *r, unsigned k)
{
	struct window *w = &r->window[k];

	for (unsigned i = 0; i < r->g->nranks; i++) {
		const struct rank *by = &r->g->rank[i];

		for (const struct op *o = by->op; o < by->op + by->nops; o++)
			judge_op(by, o, r, k);
	}
	blank(r, k);
	if (!sim_all_are(w->mem, r->g->size[k], UNTOUCHED))
		sim_fail("communicator %u, rank %u, window %u: written where no operation writes",
			 r->g->index, r->index, k);
	memset(w->mem, CLOSED, r->g->size[k]);
	w->closing = w->closed = true;
	w->w = NULL;
	moved();
	sim_event("win closed", r->index, k, r->state);
}

/* --- errors -------------------------------------------------------------------------------- */

static bool must_be_told(const struct rank *r)
{
	const struct group *g = r->g;

	return g->killed_at && r->told[g->killed] && !sim.lossy && !sim.short_of_memory;
}

static void judge_told(const struct rank *r)
{
	if (must_be_told(r) && sim.now > r->g->killed_at + sim_told_ns())
		sim_fail("communicator %u, rank %u: not told within %llu ms of the end of rank %u",
			 r->g->index, r->index,
			 (unsigned long long)((sim.now - r->g->killed_at) / MS), r->g->killed);
}

static void rank_fails(struct rank *r, int err, const char *what)
{
	struct group *g = r->g;

	if (r->err)
		return;
	r->err = err;
	/* Canceled: a reply could not be copied when its window was closed. */
	if ((err == -ENOMEM || err == -ECANCELED) && sim.short_of_memory)
		;
	else if (!g->doomed_at && !sim.short_of_memory)
		sim_fail("communicator %u, rank %u: %s says %s without a reason", g->index, r->index,
			 what, strerror(-err));
	else if (!sim_remote_error(err))
		sim_fail("communicator %u, rank %u: %s says %s, not that a peer is gone", g->index,
			 r->index, what, strerror(-err));
	judge_told(r);
	if (!g->doomed_at)
		g->doomed_at = sim.now;
	sim_event("rma error", g->index, r->index, -err);
}

/* --- windows ------------------------------------------------------------------------------- */

static bool open_window(struct rank *r, unsigned k)
{
	struct window *w = &r->window[k];
	struct braid_mem mem = { .data = w->mem, .size = r->g->size[k], .gpu_index = -1, .fd = -1 };
	int err;

	if (w->opened || sim.now < w->open_at || (k && !r->window[k - 1].opened))
		return false;
	err = sim_proc()->node->coll_open(r->coll, &mem, false, false, &w->w);
	if (err == -ENOMEM && sim.short_of_memory)
		return false;
	if (err)
		sim_fail("communicator %u: a window says %s", r->g->index, strerror(-err));
	w->opened = true;
	sim_event("win", r->index, k, mem.size);
	return true;
}

/* Does the operation, which is not over at its own rank, name a window of that number? */
static bool names(const struct rank *r, const struct op *o, unsigned k)
{
	return (o->size && (o->src.window == k || o->dst.window == k)) ||
	       (o->signals && r->g->rank[o->to].word[o->word].at.window == k);
}

static bool is_used(struct rank *r, unsigned k)
{
	struct group *g = r->g;

	for (const struct op *o = r->op; o < r->op + r->nops; o++) {
		if (!o->done && names(r, o, k))
			return true;
	}
	for (unsigned i = 0; r->window[k].when != WHEN_MINE && i < g->nranks; i++) {
		struct rank *by = &g->rank[i];

		for (struct op *o = by->op; o < by->op + by->nops; o++) {
			if (o->to == r->index && names(by, o, k) && !is_fulfilled(by, o))
				return true;
		}
	}
	return false;
}

static bool close_window(struct rank *r, unsigned k)
{
	struct window *w = &r->window[k];
	int err;

	w->closing = true;
	dropped |= w->when == WHEN_MINE;
	err = sim_proc()->node->coll_close_window(r->coll, w->w);
	if (err == -ENOMEM && sim.short_of_memory)
		return false;
	if (err)
		sim_fail("communicator %u: the end of a window says %s", r->g->index, strerror(-err));
	window_closed(r, k);
	return true;
}

static bool move_windows(struct rank *r)
{
	bool any = false;

	for (unsigned k = 0; k < r->g->nwindows; k++) {
		const struct window *w = &r->window[k];

		any |= open_window(r, k);
		if (w->w && w->when != WHEN_OVER && sim.now >= w->close_at && !is_used(r, k))
			any |= close_window(r, k);
	}
	return any;
}

/* --- operations ---------------------------------------------------------------------------- */

static int call(struct rank *r, struct op *o)
{
	const struct sim_node *node = sim_proc()->node;
	const struct word *word = &r->g->rank[o->to].word[o->word];
	const struct braid_rma_window *src = r->window[o->src.window].w;
	const struct braid_rma_window *dst = r->window[o->dst.window].w;
	struct braid_put put = {
		.rank = o->to, .order = r->order[o->order], .size = o->size, .more = o->more,
	};
	struct braid_get get = {
		.rank = o->to, .order = r->order[o->order], .size = o->size, .more = o->more,
		.remote = src, .remote_off = o->src.offset, .local = dst, .local_off = o->dst.offset,
	};

	if (o->gets)
		return node->coll_get(r->coll, &get, &o->req);
	if (o->size) {
		put.src = src;
		put.src_off = o->src.offset;
		put.dst = dst;
		put.dst_off = o->dst.offset;
	}
	if (o->signals) {
		put.word = r->window[word->at.window].w;
		put.word_off = word->at.offset;
		put.value = 1ull << 2 * o->field;
		put.strong = o->strong;
	}
	return node->coll_put(r->coll, &put, &o->req);
}

static bool can_post(const struct rank *r, const struct op *o)
{
	for (unsigned k = 0; k < r->g->nwindows; k++) {
		if (names(r, o, k) && !r->window[k].w)
			return false;
	}
	return true;
}

static bool post(struct rank *r, unsigned order)
{
	struct op *o;
	int err;

	while (r->next[order] < r->nops && r->op[r->next[order]].order != order)
		r->next[order]++;
	o = &r->op[r->next[order]];
	if (r->next[order] == r->nops || r->flying[order] == r->depth || !can_post(r, o))
		return false;
	r->next[order]++;
	r->flying[order]++;
	o->posted = true;
	sim_event("post", r->index, o - r->op, o->size);
	err = call(r, o);
	if (err)
		rank_fails(r, err, o->gets ? "a get" : "a put");
	return true;
}

static void judge_get(struct rank *r, struct op *o)
{
	uint64_t same = sim_compare(at(r, o->dst), o->size, o->salt);

	if (same != o->size)
		op_fails(r, o, "done, but its bytes are wrong from", same);
	o->landed = true;
	memset(at(r, o->dst), JUDGED, o->size);
}

static bool test(struct rank *r, struct op *o)
{
	int res;

	if (!o->posted || !o->req || o->done)
		return false;
	res = sim_proc()->node->coll_test(r->coll, o->req);
	if (!res)
		return false;
	o->vain = res == -EINVAL && may_be_vain(r, o);
	if (res < 0 && !o->vain) {
		rank_fails(r, res, "test");
		return true;
	}
	o->done = true;
	o->req = NULL;
	r->flying[o->order]--;
	if (!o->vain && o->to != r->index)
		r->told[o->to] = true;
	if (o->gets && o->vain)
		;
	else if (o->gets && o->size)
		judge_get(r, o);
	else if (o->size)
		memset(at(r, o->src), GONE, o->size);
	moved();
	sim_event("rma done", r->index, o - r->op, o->vain);
	return true;
}

/* The contexts are shared out among the drivers of the process. */
static bool work(struct rank *r, unsigned driver, unsigned ndrivers)
{
	uint64_t begin = sim.now;
	bool any = false;
	int err;

	for (unsigned order = driver; order < r->norders && !r->err; order += ndrivers) {
		while (!r->err && post(r, order))
			any = true;
	}
	for (unsigned i = 0; i < r->nops && !r->err; i++) {
		struct op *o = &r->op[r->lifo ? r->nops - 1 - i : i];

		if (o->order % ndrivers == driver)
			any |= test(r, o);
	}
	err = r->err ? 0 : sim_proc()->node->coll_progress(r->coll);
	if (err)
		rank_fails(r, err, "progress");
	if (sim.now - begin > SIM_CALLS_MS * MS && !sim.lossy)
		sim_fail("communicator %u, rank %u: a round of calls took %llu ms", r->g->index,
			 r->index, (unsigned long long)((sim.now - begin) / MS));
	sim_rma_look();
	return any;
}

/* --- the life of a rank -------------------------------------------------------------------- */

static bool is_ready(struct rank *r)
{
	struct group *g = r->g;

	for (unsigned k = 0; k < g->nwindows; k++) {
		if (!r->window[k].opened)
			return false;
	}
	for (unsigned i = 0; i < g->nranks; i++) {
		struct rank *by = &g->rank[i];

		for (struct op *o = by->op; o < by->op + by->nops; o++) {
			if ((by == r && !o->done) || (o->to == r->index && !is_fulfilled(by, o)))
				return false;
		}
	}
	return true;
}

/* Nothing can come any more: other ranks have failed. */
static bool is_forlorn(const struct rank *r)
{
	const struct group *g = r->g;

	for (const struct op *o = r->op; g->doomed_at && o < r->op + r->nops; o++) {
		if (!o->done)
			return false;
	}
	return g->doomed_at && !must_be_told(r) && sim.now > g->doomed_at + ALONE_MS * MS;
}

static bool may_leave(struct rank *r)
{
	struct group *g = r->g;

	if (!is_ready(r))
		return is_forlorn(r);
	for (unsigned i = 0; g->together && !g->doomed_at && i < g->nranks; i++) {
		if (!is_over(&g->rank[i]) && !is_ready(&g->rank[i]))
			return false;
	}
	return true;
}

static void stop_listening(struct rank *r)
{
	if (r->listening)
		sim_proc()->node->coll_close_listen(r->coll);
	r->listening = false;
}

static void close_rank(struct rank *r, enum state state)
{
	const struct sim_node *node = sim_proc()->node;

	for (unsigned k = 0; k < r->g->nwindows; k++) {
		r->window[k].closing = true;
		if (r->window[k].w && sim_chance(&sim.sched, 300))
			close_window(r, k);
	}
	if (sim_chance(&sim.sched, 500))
		stop_listening(r);
	node->coll_close(r->coll);
	stop_listening(r);
	r->state = state;
	for (unsigned k = 0; k < r->g->nwindows; k++) {
		if (!r->window[k].closed)
			window_closed(r, k);
	}
	moved();
	sim_event("rma over", r->g->index, r->index, state);
}

static bool rank_listen(struct rank *r)
{
	struct sim_proc *p = sim_proc();
	int err;

	if (sim.now < r->g->start_ns)
		return false;
	err = p->node->coll_listen(p->dev, r->handle, &r->coll);
	if (err == -ENOMEM && sim.short_of_memory)
		return false;
	if (err)
		sim_fail("communicator %u: listen says %s", r->g->index, strerror(-err));
	r->state = LISTEN;
	r->listening = true;
	return true;
}

static bool rank_connect(struct rank *r)
{
	const struct sim_node *node = sim_proc()->node;
	struct group *g = r->g;
	void *handle[RANKS_MAX];
	int err;

	for (unsigned i = 0; i < g->nranks; i++) {
		if (g->rank[i].state == WAIT)
			return false;
		handle[i] = g->rank[i].handle;
	}
	err = node->coll_connect(r->coll, handle, g->nranks, r->index);
	if (err) {
		rank_fails(r, err, "connect");
		stop_listening(r);
		r->state = FAILED;
		return true;
	}
	for (unsigned i = 0; i < r->norders; i++)
		r->order[i] = node->coll_order(r->coll);
	r->state = RUN;
	if (sim_chance(&sim.sched, 300))
		stop_listening(r);
	return true;
}

/* What only one driver does. */
static bool live(struct rank *r)
{
	if (r->state == WAIT || r->state == LISTEN) {
		if (!r->g->doomed_at)
			return r->state == WAIT ? rank_listen(r) : rank_connect(r);
		stop_listening(r);	/* the others will never connect */
		r->state = FAILED;
		return true;
	}
	if (r->leave_at && sim.now >= r->leave_at && !r->g->doomed_at) {
		r->g->doomed_at = sim.now;
		r->closing = true;
	}
	r->closing |= r->err || may_leave(r);
	if (r->closing && !r->inside)
		close_rank(r, r->err ? FAILED : LEFT);
	return !r->closing && move_windows(r);
}

bool sim_rma_step(struct sim_proc *p, unsigned driver, unsigned ndrivers)
{
	bool any = false;
	struct group *g;

	braid_list_for(g, &sim_rma_groups, node) {
		for (unsigned i = 0; i < g->nranks; i++) {
			struct rank *r = &g->rank[i];

			if (r->proc != p->index || r->life != p->life || is_over(r))
				continue;
			if (i % ndrivers == driver)
				any |= live(r);
			if (r->state != RUN || r->closing)
				continue;
			r->inside++;
			any |= work(r, driver, ndrivers);
			r->inside--;
			judge_told(r);
		}
	}
	return any;
}

/* --- for the plan -------------------------------------------------------------------------- */

void sim_rma_begin(void)
{
	braid_list_init(&sim_rma_groups);
	dropped = false;
}

void sim_rma_end(void)
{
	struct group *g, *tmp;

	braid_list_for_safe(g, tmp, &sim_rma_groups, node) {
		for (unsigned i = 0; i < g->nranks; i++) {
			for (unsigned k = 0; k < g->nwindows; k++) {
				const struct window *w = &g->rank[i].window[k];

				if (w->closed && !sim_all_are(w->mem, g->size[k], CLOSED))
					sim_fail("communicator %u, rank %u, window %u: written after "
						 "it was closed", g->index, i, k);
				free(w->mem);
			}
		}
		free(g);
	}
	braid_list_init(&sim_rma_groups);
}

void sim_rma_killed(unsigned proc)
{
	struct group *g;

	braid_list_for(g, &sim_rma_groups, node) {
		for (unsigned i = 0; i < g->nranks; i++) {
			struct rank *r = &g->rank[i];

			if (r->proc != proc || r->life != sim.proc[proc].life)
				continue;
			/* Also one that has left: others may not know yet that it has taken all. */
			if (!g->doomed_at)
				g->doomed_at = sim.now;
			if (is_over(r))
				continue;
			r->state = KILLED;
			if (!g->killed_at) {
				g->killed_at = sim.now;
				g->killed = i;
			}
		}
	}
}

void sim_rma_doom(unsigned a, unsigned b)
{
	struct group *g;

	braid_list_for(g, &sim_rma_groups, node) {
		bool has_a = false, has_b = false;

		for (unsigned i = 0; i < g->nranks; i++) {
			has_a |= g->rank[i].proc == a;
			has_b |= g->rank[i].proc == b;
		}
		if (has_a && has_b && !g->doomed_at)
			g->doomed_at = sim.now;
	}
}

bool sim_rma_doomed(void)
{
	struct group *g;

	braid_list_for(g, &sim_rma_groups, node) {
		if (g->doomed_at)
			return true;
	}
	return false;
}

bool sim_rma_dropped(void)
{
	return dropped;
}

bool sim_rma_over(void)
{
	struct group *g;

	braid_list_for(g, &sim_rma_groups, node) {
		for (unsigned i = 0; i < g->nranks; i++) {
			if (!is_over(&g->rank[i]))
				return false;
		}
	}
	return true;
}

void sim_rma_tell(void)
{
	static const char *const states[] = { "waits", "listens", "runs", "left", "failed", "killed" };
	struct group *g;
	char text[160];

	braid_list_for(g, &sim_rma_groups, node) {
		for (unsigned i = 0; i < g->nranks; i++) {
			struct rank *r = &g->rank[i];

			fprintf(stderr, "communicator %u, rank %u in process %u %s, %u operations\n",
				g->index, i, r->proc, states[r->state], r->nops);
			for (struct op *o = r->op; o < r->op + r->nops; o++) {
				if (o->done && is_fulfilled(r, o))
					continue;
				name(r, o, text, sizeof(text));
				fprintf(stderr, "  %s:%s%s%s%s\n", text, o->posted ? " posted" : "",
					o->done ? " done" : "", o->landed ? " landed" : "",
					o->seen ? " seen" : "");
			}
		}
	}
}
