/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_window.c - windows: registered late, often, twice, of different sizes; and gets from them. */
#include <string.h>

#include "tools/validate/ranks.h"

#define COUNT(a) ((unsigned)(sizeof(a) / sizeof((a)[0])))

/* -- gets --------------------------------------------------------------------------------- */

static void get_each(struct rank *r)
{
	static const size_t sizes[] = { 1, 7, 8, 9, 1000, 4096, 8192, 65536, 65537, 1 << 20,
					4 << 20 };
	struct group *g = group_new(r, 1);
	size_t room = (4 << 20) + 256;
	struct window from = window_new(g, room), to = window_new(g, room);
	struct window want = memory_new(room);
	unsigned peer = 1 - r->rank;

	fill(from.data, room, 40 + r->rank);
	fill(want.data, room, 40 + peer);
	together(r);
	for (unsigned i = 0; i < COUNT(sizes); i++) {
		size_t size = sizes[i], off = 64 + i;

		at(r, "a get of %zu bytes", size);
		GET(g, .from = &from, .from_off = i, .to = &to, .to_off = off, .size = size,
		    .rank = peer);
		flush_run(g, 0, &to, peer);
		for (size_t k = 0; k < size; k++)
			if (to.data[off + k] != want.data[i + k])
				FAIL("byte %zu of it is not that of the other rank", k);
		for (size_t k = 0; k < room; k++)
			if ((k < off || k >= off + size) && to.data[k] != 0xee)
				FAIL("byte %zu was written, of a get to offset %zu", k, off);
		blank(to.data + off, size);
	}
	together(r);
	memory_free(&want);
	window_free(g, &to);
	window_free(g, &from);
	groups_close(r);
}

static void gets(struct validate *v)
{
	ranks_run(v, 2, get_each);
}

static void get_many(struct rank *r)
{
	enum { SIZE = 3000 };
	static void *req[32 * RECVS_MAX];
	struct group *g = group_new(r, 1);
	struct window from = window_new(g, (size_t)r->budget * SIZE);
	struct window to = window_new(g, (size_t)r->budget * SIZE);

	fill(from.data, from.size, r->rank);
	together(r);
	for (unsigned i = 0; i < r->budget; i++)
		req[i] = get_post(g, &(struct get){ .from = &from, .from_off = (size_t)i * SIZE,
						    .to = &to, .to_off = (size_t)i * SIZE,
						    .size = SIZE, .rank = 1 - r->rank });
	for (unsigned i = 0; i < r->budget; i++)
		req_wait(g, req[i]);
	flush_run(g, 0, &to, 1 - r->rank);
	filled(to.data, to.size, 1 - r->rank);
	rank_saw("%u gets at once", r->budget);
	together(r);
	window_free(g, &to);
	window_free(g, &from);
	groups_close(r);
}

static void gets_many(struct validate *v)
{
	ranks_run(v, 2, get_many);
}

static void get_own(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window from = window_new(g, 70000), to = window_new(g, 70000);

	fill(from.data, from.size, r->rank);
	GET(g, .from = &from, .to = &to, .size = 70000, .rank = r->rank);
	flush_run(g, 0, &to, r->rank);
	filled(to.data, to.size, r->rank);
	together(r);
	window_free(g, &to);
	window_free(g, &from);
	groups_close(r);
}

static void get_loopback(struct validate *v)
{
	ranks_run(v, 2, get_own);
}

/* Of its signals, as GIN flushes, and of a window; to the other rank, and to itself. */
static void flush_each(struct rank *r)
{
	struct group *g = group_new(r, 2);
	struct window w = window_new(g, 50000), words = words_new(g, 1);

	if (!r->rma->has_flush)
		rank_skip("it has no iflush: --only rma-members judges that");
	at(r, "iflush before anything has come");
	flush_run(g, 0, &words, 1 - r->rank);
	fill(w.data, 25000, 9);
	PUT(g, .src = &w, .dst = &w, .dst_off = 25000, .size = 25000, .rank = 1 - r->rank,
	    .words = &words);
	word_wait(g, &words, 0, 1);
	at(r, "iflush after a put has come");
	flush_run(g, 0, &words, 1 - r->rank);
	flush_run(g, 1, &w, 1 - r->rank);
	flush_run(g, 1, &w, r->rank);
	filled(w.data + 25000, 25000, 9);
	together(r);
	window_free(g, &words);
	window_free(g, &w);
	groups_close(r);
}

static void flush(struct validate *v)
{
	ranks_run(v, 2, flush_each);
}

/* -- windows ------------------------------------------------------------------------------ */

/*
 * Rank 1 registers the window 200 ms later.  Rank 0 puts to it as soon as regMrSym() has returned,
 * which may be at once or only then.
 */
static void late_window(struct rank *r)
{
	enum { LATER_MS = 200, SIZE = 200000 };
	struct group *g = group_new(r, 1);
	struct window words = words_new(g, 1), w = memory_new(SIZE);

	if (r->rank == 0) {
		void *req[3];

		window_reg(g, &w, 0);
		fill(w.data, w.size, 1);
		at(r, "puts to a window that is registered later");
		req[0] = POST(g, .src = &w, .dst = &w, .size = 8, .rank = 1);
		req[1] = POST(g, .src = &w, .src_off = 8, .dst = &w, .dst_off = 8, .size = 8,
			      .rank = 1, .more = true);
		req[2] = POST(g, .src = &w, .src_off = 16, .dst = &w, .dst_off = 16,
			      .size = SIZE - 16, .rank = 1, .words = &words);
		for (unsigned i = 0; i < 3; i++)
			req_wait(g, req[i]);
	} else {
		for (uint64_t until = deadline_ms(LATER_MS); now_us() < until; nap_ms(1))
			tick(g);
		if (word(&words, 0))
			FAIL("the signal of a put came before the put's window was there");
		window_reg(g, &w, 0);
		word_wait(g, &words, 0, 1);
		filled(w.data, w.size, 1);
	}
	together(r);
	window_free(g, &w);
	window_free(g, &words);
	groups_close(r);
}

static void late(struct validate *v)
{
	ranks_run(v, 2, late_window);
}

static void windows_200(struct rank *r)
{
	enum { N = 200, SIZE = 1000, AT_ONCE = 25 };
	struct group *g = group_new(r, 1);
	struct window w[N], words = words_new(g, 1);
	void *req[AT_ONCE];

	for (unsigned i = 0; i < N; i++) {
		w[i] = window_new(g, 2 * SIZE + i);
		fill(w[i].data, SIZE, i * 2 + r->rank);
	}
	for (unsigned i = 0; i < N; i++) {
		if (i >= AT_ONCE)
			req_wait(g, req[i % AT_ONCE]);
		req[i % AT_ONCE] = POST(g, .src = &w[i], .dst = &w[i * 7 % N], .dst_off = SIZE,
					.size = SIZE, .rank = 1 - r->rank, .words = &words);
	}
	for (unsigned i = 0; i < AT_ONCE; i++)
		req_wait(g, req[i]);
	word_wait(g, &words, 0, N);
	for (unsigned i = 0; i < N; i++)
		if (fill_differs(w[i * 7 % N].data + SIZE, SIZE, i * 2 + 1 - r->rank) < SIZE)
			FAIL("what was put to window %u is not there", i * 7 % N);
	together(r);
	for (unsigned i = 0; i < N; i++)
		window_free(g, &w[i]);
	window_free(g, &words);
	groups_close(r);
}

static void many(struct validate *v)
{
	ranks_run(v, 2, windows_200);
}

enum { GONE = 100 };

/* The next window has the address of the last, and other memory. */
static void come_and_go(struct rank *r)
{
	enum { SIZE = 10000 };
	struct group *g = group_new(r, 1);
	struct window words = words_new(g, 1);
	struct counts before = { 0, 0 }, after;

	for (unsigned i = 1; i <= GONE; i++) {
		struct window w = window_new(g, 2 * SIZE);

		fill(w.data, SIZE, i);
		PUT(g, .src = &w, .dst = &w, .dst_off = SIZE, .size = SIZE, .rank = 1 - r->rank,
		    .words = &words);
		word_wait(g, &words, 0, i);
		if (fill_differs(w.data + SIZE, SIZE, i) < SIZE)
			FAIL("window %u has not what was put there", i);
		together(r);
		window_free(g, &w);
		if (i == 1)
			before = counts_now();
	}
	after = counts_now();
	/* Connections may be made anew meanwhile: what leaks does so for each window. */
	if (after.fds > before.fds + GONE / 2 || after.threads > before.threads + GONE / 2)
		FAIL("%d windows came and went; %u descriptors became %u, and %u threads %u", GONE,
		     before.fds, after.fds, before.threads, after.threads);
	rank_saw("%d windows: %u descriptors, %u threads", GONE, after.fds, after.threads);
	together(r);
	window_free(g, &words);
	groups_close(r);
}

static void come(struct validate *v)
{
	ranks_run(v, 2, come_and_go);
}

/* Rank 0 has a small window, and rank 1 a large one. */
static void of_two_sizes(struct rank *r)
{
	enum { SMALL = 5000, LARGE = 90000 };
	struct group *g = group_new(r, 1);
	struct window w = memory_new(r->rank ? LARGE : SMALL), words;

	at(r, "a window of %zu bytes", w.size);
	window_reg(g, &w, 0);
	words = words_new(g, 1);
	if (r->rank == 0) {
		fill(w.data, SMALL, 1);
		PUT(g, .src = &w, .dst = &w, .dst_off = LARGE - SMALL, .size = SMALL, .rank = 1,
		    .words = &words);
	} else {
		word_wait(g, &words, 0, 1);
		filled(w.data + LARGE - SMALL, SMALL, 1);
	}
	together(r);
	window_free(g, &words);
	window_free(g, &w);
	groups_close(r);
}

static void differ(struct validate *v)
{
	ranks_run(v, 2, of_two_sizes);
}

/* One of two registrations of the same memory goes, and the other is used. */
static void of_same_memory(struct rank *r)
{
	enum { SIZE = 40000 };
	struct group *g = group_new(r, 1);
	struct window a = window_new(g, SIZE), b = a, words = words_new(g, 1);

	at(r, "the same memory once more");
	window_reg(g, &b, 0);
	quietly_together(r);
	window_dereg(g, &a);
	quietly_together(r);
	at(r, "the second registration, after the first went");
	fill(b.data, SIZE / 2, r->rank);
	PUT(g, .src = &b, .dst = &b, .dst_off = SIZE / 2, .size = SIZE / 2, .rank = 1 - r->rank,
	    .words = &words);
	word_wait(g, &words, 0, 1);
	filled(b.data + SIZE / 2, SIZE / 2, 1 - r->rank);
	together(r);
	window_free(g, &words);
	window_free(g, &b);
	groups_close(r);
}

static void twice(struct validate *v)
{
	ranks_run(v, 2, of_same_memory);
}

/* Put from one window to another of the same communicator, whichever was registered first. */
static void across(struct rank *r)
{
	enum { SIZE = 10000 };
	struct group *g = group_new(r, 1);
	struct window a = window_new(g, SIZE), words = words_new(g, 2), b = window_new(g, SIZE);

	fill(a.data, SIZE, r->rank);
	PUT(g, .src = &a, .dst = &b, .size = SIZE, .rank = 1 - r->rank, .words = &words);
	word_wait(g, &words, 0, 1);
	filled(b.data, SIZE, 1 - r->rank);
	together(r);
	fill(b.data, SIZE, 10 + r->rank);
	together(r);
	PUT(g, .src = &b, .dst = &a, .size = SIZE, .rank = 1 - r->rank, .words = &words,
	    .word = 1);
	word_wait(g, &words, 1, 1);
	filled(a.data, SIZE, 11 - r->rank);
	together(r);
	window_free(g, &b);
	window_free(g, &words);
	window_free(g, &a);
	groups_close(r);
}

static void between(struct validate *v)
{
	ranks_run(v, 2, across);
}

const struct vcheck validate_rma_window[] = {
	{ "rma-get", "Gets from 1 byte to 4 MiB, and nothing around is written", BROKEN, gets,
	  V_HERE | V_SOAK, 0 },
	{ "rma-get-many", "As many gets as NCCL has are all accepted",
	  "NCCL ends the job at the first one that is not: report it", gets_many, V_HERE, 0 },
	{ "rma-get-loopback", "A rank gets from itself", HANGS, get_loopback, V_HERE, 0 },
	{ "rma-flush", "iflush() ends, of signals and of windows",
	  "Kernels that get data hang: report it", flush, V_HERE, 0 },
	{ "rma-window-late", "Puts to a window that its rank registers later",
	  "Ranks register at different times, and jobs end or hang: report it", late, V_HERE, 0 },
	{ "rma-windows-many", "200 windows at once", BROKEN, many, V_HERE, 0 },
	{ "rma-windows-gone", "100 windows, one after the other, leave nothing behind",
	  "Jobs that register buffers run out of it: report it", come, V_HERE | V_SOAK, 0 },
	{ "rma-window-sizes", "A window has a size of its own at each rank",
	  "NCCL registers what each rank has: report it", differ, V_HERE, 0 },
	{ "rma-window-twice", "Memory is registered twice, and goes once",
	  "NCCL registers the same memory for several uses: report it", twice, V_HERE, 0 },
	{ "rma-window-other", "Puts from one window to another", BROKEN, between, V_HERE, 0 },
	{ NULL, NULL, NULL, NULL, 0, 0 },
};
