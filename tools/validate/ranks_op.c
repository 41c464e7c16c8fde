/* SPDX-License-Identifier: BSD-3-Clause */
/* ranks_op.c - see ranks.h: windows, one operation, and how its end and its signal are awaited. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "tools/validate/ranks.h"

enum { PAGE = 4096, REST_BYTE = 0xa5 };

/* -- windows ------------------------------------------------------------------------------ */

struct window memory_new(size_t size)
{
	struct window w = { .size = size, .body = (size + PAGE - 1) / PAGE * PAGE };
	uint8_t *map = mmap(NULL, w.body + 2 * (size_t)PAGE, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED || mprotect(map + PAGE, w.body, PROT_READ | PROT_WRITE) != 0)
		FAIL("no memory of %zu bytes: %s", size, strerror(errno));
	w.data = map + PAGE;
	blank(w.data, size);
	memset(w.data + size, REST_BYTE, w.body - size);
	return w;
}

void memory_free(struct window *w)
{
	for (size_t i = w->size; i < w->body; i++)
		if (w->data[i] != REST_BYTE)
			FAIL("byte %zu behind a window of %zu bytes was written", i - w->size,
			     w->size);
	munmap(w->data - PAGE, w->body + 2 * (size_t)PAGE);
	w->data = NULL;
}

void window_reg(struct group *g, struct window *w, uint64_t flags)
{
	OK(rma_reg(g->r->rma, g->coll, w->data, w->size, NCCL_PTR_HOST, flags, &w->mh));
	if (!w->mh)
		FAIL("regMrSym gave success, and no handle");
}

void window_dereg(struct group *g, struct window *w)
{
	OK(rma_dereg(g->r->rma, g->coll, w->mh));
	w->mh = NULL;
}

struct window window_new(struct group *g, size_t size)
{
	struct window w = memory_new(size);

	window_reg(g, &w, 0);
	quietly_together(g->r);		/* rma-window-late alone is about those who go on earlier */
	return w;
}

struct window words_new(struct group *g, unsigned n)
{
	struct window w = memory_new(n * sizeof(uint64_t));

	memset(w.data, 0, w.size);
	window_reg(g, &w, NCCL_RMA_FORCE_SO);
	quietly_together(g->r);
	return w;
}

void window_free(struct group *g, struct window *w)
{
	window_dereg(g, w);
	memory_free(w);
}

uint64_t word(const struct window *words, unsigned i)
{
	const uint64_t *w = (const uint64_t *)(const void *)words->data;

	TRUE((i + 1) * sizeof(*w) <= words->size);
	return __atomic_load_n(&w[i], __ATOMIC_ACQUIRE);
}

void word_wait(struct group *g, const struct window *words, unsigned i, uint64_t least)
{
	uint64_t end = deadline_ms(drive_hang_ms);

	while (word(words, i) < least) {
		tick(g);
		if (now_us() > end)
			LATE("a signal does not come: after %u s the word is %llu, not %llu",
			     drive_hang_ms / 1000, (unsigned long long)word(words, i),
			     (unsigned long long)least);
		wait_tick(end + 1000000, __FILE__, __LINE__, "a signal");
	}
}

void word_is(const struct window *words, unsigned i, uint64_t want)
{
	if (word(words, i) != want)
		FAIL("word %u is %llu, not %llu: signals were lost, doubled, or added wrong", i,
		     (unsigned long long)word(words, i), (unsigned long long)want);
}

void settle(struct group *g)
{
	enum { SETTLE_MS = 20 };

	for (uint64_t end = deadline_ms(SETTLE_MS); now_us() < end; nap_ms(1))
		tick(g);
}

/* -- operations --------------------------------------------------------------------------- */

ncclResult_t put_try(struct group *g, const struct put *p, void **req)
{
	void *src = p->src ? p->src->mh : NULL, *dst = p->dst ? p->dst->mh : NULL;
	uint32_t flags = p->more ? NCCL_RMA_AGGREGATE : 0;

	*req = NULL;
	if (!p->words)
		return rma_iput(g->r->rma, g->ctx, p->context, p->src_off, src, p->size,
				p->dst_off, dst, p->rank, flags, req);
	return rma_iput_signal(g->r->rma, g->ctx, p->context, p->src_off, src, p->size,
			       p->dst_off, dst, p->rank, p->word * sizeof(uint64_t),
			       p->words->mh, p->add ? p->add : 77,
			       p->add ? NCCL_RMA_SIGNAL_ADD : NCCL_RMA_SIGNAL_INC, !p->weak, flags,
			       req);
}

void *put_post(struct group *g, const struct put *p)
{
	ncclResult_t res;
	void *req;

	res = put_try(g, p, &req);
	if (res != ncclSuccess)
		FAIL("%s of %zu bytes to rank %u: %s", p->words ? "iputSignal" : "iput", p->size,
		     p->rank, net_result_name(res));
	if (!req)
		FAIL("%s of %zu bytes gave success, and no request: NCCL ends the job then",
		     p->words ? "iputSignal" : "iput", p->size);
	return req;
}

void *get_post(struct group *g, const struct get *o)
{
	void *req = NULL;
	ncclResult_t res;

	if (!g->r->rma->has_get)
		rank_skip("it has no iget: --only rma-members judges that");
	res = rma_iget(g->r->rma, g->ctx, o->context, o->from_off, o->from->mh, o->size,
		       o->to_off, o->to->mh, o->rank, 0, &req);
	if (res != ncclSuccess)
		FAIL("iget of %zu bytes from rank %u: %s", o->size, o->rank, net_result_name(res));
	if (!req)
		FAIL("iget of %zu bytes gave success, and no request", o->size);
	return req;
}

bool req_done(struct group *g, void *req)
{
	int done = 0;

	OK(rma_test(g->r->rma, g->coll, req, &done));
	return done;
}

void req_wait(struct group *g, void *req)
{
	uint64_t end = deadline_ms(drive_hang_ms);

	while (!req_done(g, req)) {
		tick(g);
		wait_tick(end, __FILE__, __LINE__, "a request to be done");
	}
}

ncclResult_t req_settle(struct group *g, void *req)
{
	uint64_t end = deadline_ms(drive_hang_ms);
	ncclResult_t res;
	int done = 0;

	while ((res = rma_test(g->r->rma, g->coll, req, &done)) == ncclSuccess && !done)
		wait_tick(end, __FILE__, __LINE__, "a request to be done, or to fail");
	return res;
}

void put_run(struct group *g, const struct put *p)
{
	req_wait(g, put_post(g, p));
}

void flush_run(struct group *g, int context, const struct window *w, unsigned rank)
{
	void *req = NULL;

	if (!g->r->rma->has_flush)
		return;
	OK(rma_iflush(g->r->rma, g->ctx, context, w->mh, rank, &req));
	if (req)
		req_wait(g, req);
}

/* -- a pattern that many checks use ------------------------------------------------------- */

static uint64_t seed_of(unsigned round, unsigned from, unsigned to)
{
	return (round * 16 + from) * 16 + to;
}

void all_to_all(struct group *g, unsigned rounds)
{
	enum { SIZE = 20000 };
	struct window src = window_new(g, (size_t)SIZE * g->n);
	struct window dst = window_new(g, (size_t)SIZE * g->n), words = words_new(g, 2);

	for (unsigned i = 1; i <= rounds; i++) {
		for (unsigned k = 0; k < g->n; k++) {
			size_t off = (size_t)k * SIZE;

			fill(src.data + off, SIZE, seed_of(i, g->rank, k));
			PUT(g, .src = &src, .src_off = off, .dst = &dst,
			    .dst_off = (size_t)g->rank * SIZE, .size = SIZE, .rank = k,
			    .words = &words);
		}
		word_wait(g, &words, 0, (uint64_t)i * g->n);
		for (unsigned k = 0; k < g->n; k++)
			if (fill_differs(dst.data + (size_t)k * SIZE, SIZE,
					 seed_of(i, k, g->rank)) < SIZE)
				FAIL("what rank %u has put here, %u, is not there", k, g->rank);
		for (unsigned k = 0; k < g->n; k++)
			PUT(g, .rank = k, .words = &words, .word = 1);
		word_wait(g, &words, 1, (uint64_t)i * g->n);
	}
	together(g->r);
	window_free(g, &words);
	window_free(g, &dst);
	window_free(g, &src);
}
