/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rma.c - puts, signals and gets between ranks, in host memory: every byte, and the order in
 * which signals are seen.
 */
#include "tests/abi/onesided.h"

#include <string.h>

enum { AROUND = 64 };			/* bytes on each side of a put that stay as they were */

#define COUNT(a) ((unsigned)(sizeof(a) / sizeof((a)[0])))

/* -- puts --------------------------------------------------------------------------------- */

static const size_t sizes[] = {
	1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 63, 64, 65, 1000, 4095, 4096, 8143, 8144, 8145, 8192, 8193,
	65535, 65536, 65537, 1 << 20, (1 << 20) + 1,
};

static void blank_around(const struct window *w, size_t off, size_t size)
{
	uint8_t as_was[AROUND];

	blank(as_was, AROUND);
	TRUE(!memcmp(w->data + off - AROUND, as_was, AROUND));
	TRUE(!memcmp(w->data + off + size, as_was, AROUND));
}

/* Rank 0 puts n sizes at some offsets to rank 1, one after the other; word 0 counts, word 1 acks. */
static void put_each(struct rank *r, const size_t *size, unsigned n)
{
	static const size_t offs[][2] = { { 0, 0 }, { 1, 3 }, { 7, 64 }, { 13, 8 } };
	struct group *g = group_new(r, 1);
	size_t room = size[n - 1] + 2 * AROUND + 128;
	struct window src = window_new(g, room), dst = window_new(g, room);
	struct window words = words_new(g, 2);
	uint64_t count = 0;

	blank(dst.data, dst.size);
	together(r);			/* else a put may come before the blanks */
	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < COUNT(offs); k++) {
			size_t from = offs[k][0], to = AROUND + offs[k][1];

			count++;
			if (r->rank == 0) {
				fill(src.data + from, size[i], count);
				PUT(g, .src = &src, .src_off = from, .dst = &dst, .dst_off = to,
				    .size = size[i], .rank = 1, .words = &words, .word = 0, .add = 1);
				word_wait(g, &words, 1, count);
			} else {
				word_wait(g, &words, 0, count);
				EQ(count, word(&words, 0));
				filled(dst.data + to, size[i], count);
				blank_around(&dst, to, size[i]);
				blank(dst.data + to, size[i]);
				PUT(g, .rank = 0, .words = &words, .word = 1, .add = 1);
			}
		}
	}
	together(r);
	window_free(g, &words);
	window_free(g, &dst);
	window_free(g, &src);
	groups_close(r);
}

static void put_sizes(struct rank *r)
{
	put_each(r, sizes, COUNT(sizes));
}

static void put_huge(struct rank *r)
{
	put_each(r, (const size_t[]){ 64 << 20 }, 1);
}

static void all_sizes(struct abi *t)
{
	ranks_run_each(t, 2, put_sizes);
}

static void huge(struct abi *t)
{
	ranks_run(t, 2, put_huge);
}

/* A put without a signal is seen once a later strong signal is. */
static void put_then_signal(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window src = window_new(g, 300000), dst = window_new(g, 300000);
	struct window words = words_new(g, 1);

	if (r->rank == 0) {
		void *req[3];

		fill(src.data, src.size, 5);
		req[0] = POST(g, .src = &src, .dst = &dst, .size = 200000, .rank = 1);
		req[1] = POST(g, .src = &src, .src_off = 200000, .dst = &dst, .dst_off = 200000,
			      .size = 100000, .rank = 1);
		req[2] = POST(g, .rank = 1, .words = &words, .add = 9);
		for (unsigned i = 0; i < 3; i++)
			req_wait(g, req[i]);
	} else {
		word_wait(g, &words, 0, 1);
		EQ(9, word(&words, 0));
		filled(dst.data, dst.size, 5);
	}
	together(r);
	window_free(g, &words);
	window_free(g, &dst);
	window_free(g, &src);
	groups_close(r);
}

static void later_signal(struct abi *t)
{
	ranks_run_each(t, 2, put_then_signal);
}

/* -- signals ------------------------------------------------------------------------------ */

static void signal_ops(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window words = words_new(g, 3);

	if (r->rank == 0) {
		PUT(g, .rank = 1, .words = &words, .word = 0);	/* INC, with a value of 77 */
		PUT(g, .rank = 1, .words = &words, .word = 0, .weak = true);
		PUT(g, .rank = 1, .words = &words, .word = 1, .add = 1000);
		PUT(g, .rank = 1, .words = &words, .word = 1, .add = (uint64_t)1 << 40);
		PUT(g, .rank = 1, .words = &words, .word = 1, .add = (uint64_t)-1000);
		PUT(g, .rank = 1, .words = &words, .word = 2, .add = 1);
	} else {
		word_wait(g, &words, 2, 1);
		EQ(2, word(&words, 0));
		EQ((uint64_t)1 << 40, word(&words, 1));
	}
	together(r);
	EQ(r->rank, word(&words, 2));
	window_free(g, &words);
	groups_close(r);
}

static void signal_alone(struct abi *t)
{
	ranks_run_each(t, 2, signal_ops);
}

enum { ADDS = 2000 };

/* All ranks add to word 0 of rank 0, rank 0 itself among them, on two contexts. */
static void add_all(struct rank *r)
{
	struct group *g = group_new(r, 2);
	struct window words = words_new(g, 2);
	uint64_t sum = 0;
	void *req[64];

	for (unsigned i = 0; i < ADDS; i++) {
		if (i >= COUNT(req))
			req_wait(g, req[i % COUNT(req)]);
		req[i % COUNT(req)] = POST(g, .context = i % 2, .rank = 0, .words = &words,
					   .add = i * r->n + r->rank + 1, .weak = i % 3 == 0,
					   .more = i % 5 != 0);
	}
	for (unsigned i = 0; i < COUNT(req); i++)
		req_wait(g, req[i]);
	for (uint64_t i = 0; i < (uint64_t)ADDS * r->n; i++)
		sum += i + 1;
	if (r->rank == 0)
		word_wait(g, &words, 0, sum);
	together(r);
	EQ(r->rank == 0 ? sum : 0, word(&words, 0));
	EQ(0, word(&words, 1));
	window_free(g, &words);
	groups_close(r);
}

static void one_word(struct abi *t)
{
	ranks_run(t, 4, add_all);
}

/* -- order -------------------------------------------------------------------------------- */

static void flow_pair(struct rank *r)
{
	struct group *g = group_new(r, 2);
	struct flow *f[2];

	for (int i = 0; i < 2; i++)
		f[i] = flow_new(g, i, 1 - r->rank, 150, 1 + (unsigned)i);
	flows_run(f, 2);
	together(r);
	flow_free(f[1]);
	flow_free(f[0]);
	groups_close(r);
}

static void strong(struct abi *t)
{
	ranks_run_each(t, 2, flow_pair);
}

enum { WEAK = 60, WEAK_SLOT = 200000 };

static size_t weak_size(unsigned i)
{
	return i % 3 ? 1 + i : WEAK_SLOT - i;
}

/* Each put with a word of its own, of which the receiver sees the bytes as soon as it sees the word. */
static void weak_each(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window src = window_new(g, (size_t)WEAK * WEAK_SLOT);
	struct window dst = window_new(g, (size_t)WEAK * WEAK_SLOT), words = words_new(g, WEAK);
	uint64_t end = deadline_ms(drive_hang_ms);
	unsigned seen = 0;
	void *req[WEAK];

	for (unsigned i = 0; r->rank == 0 && i < WEAK; i++) {
		fill(src.data + i * WEAK_SLOT, weak_size(i), i);
		req[i] = POST(g, .src = &src, .src_off = i * WEAK_SLOT, .dst = &dst,
			      .dst_off = i * WEAK_SLOT, .size = weak_size(i), .rank = 1,
			      .words = &words, .word = i, .weak = true);
	}
	for (unsigned i = 0; r->rank == 0 && i < WEAK; i++)
		req_wait(g, req[i]);
	while (r->rank == 1 && seen < WEAK) {
		seen = 0;
		for (unsigned i = 0; i < WEAK; i++) {
			if (!word(&words, i))
				continue;
			seen++;
			EQ(1, word(&words, i));
			filled(dst.data + i * WEAK_SLOT, weak_size(i), i);
		}
		tick(r);
		wait_tick(end, __FILE__, __LINE__, "all weak signals");
	}
	together(r);
	window_free(g, &words);
	window_free(g, &dst);
	window_free(g, &src);
	groups_close(r);
}

static void weak(struct abi *t)
{
	ranks_run(t, 2, weak_each);
}

/* -- this rank itself --------------------------------------------------------------------- */

static void to_itself(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct window a = window_new(g, 100000), b = window_new(g, 100000);
	struct window words = words_new(g, 1);
	struct flow *f = flow_new(g, 0, r->rank, 20, 7);

	fill(a.data, a.size, 3);
	PUT(g, .src = &a, .dst = &b, .size = 100000, .rank = r->rank, .words = &words);
	EQ(1, word(&words, 0));
	filled(b.data, b.size, 3);
	blank(a.data, a.size);
	req_wait(g, get_post(g, 0, r->rank, &b, 1, 99999, &a, 1));
	flush_run(g, 0, &a, r->rank);
	TRUE(!memcmp(a.data + 1, b.data + 1, 99999));
	PUT(g, .src = &a, .dst = &b, .size = 8, .rank = r->rank);	/* NCCL's flush in graphs */
	flows_run(&f, 1);
	together(r);
	flow_free(f);
	window_free(g, &words);
	window_free(g, &b);
	window_free(g, &a);
	groups_close(r);
}

static void loopback(struct abi *t)
{
	ranks_run_each(t, 2, to_itself);
}

static void alone(struct abi *t)
{
	ranks_run(t, 1, to_itself);
}

/* -- gets --------------------------------------------------------------------------------- */

static void get_each(struct rank *r)
{
	static const size_t size[] = { 0, 1, 7, 8, 9, 1000, 8144, 8192, 65536, 65537, 1 << 20, 16 << 20 };
	struct group *g = group_new(r, 2);
	size_t room = (16 << 20) + 256;
	struct window theirs = window_new(g, room), here = window_new(g, room);
	unsigned peer = 1 - r->rank;

	fill(theirs.data, theirs.size, 40 + r->rank);
	together(r);
	for (unsigned i = 0; i < COUNT(size); i++) {
		struct window want = memory_new(room);
		size_t off = AROUND + i;

		blank(here.data, here.size);
		fill(want.data, want.size, 40 + peer);
		req_wait(g, get_post(g, i % 2, peer, &theirs, i, size[i], &here, off));
		flush_run(g, i % 2, &here, peer);
		TRUE(!memcmp(here.data + off, want.data + i, size[i]));
		blank_around(&here, off, size[i]);
		memory_free(&want);
	}
	together(r);
	window_free(g, &here);
	window_free(g, &theirs);
	groups_close(r);
}

static void gets(struct abi *t)
{
	ranks_run_each(t, 2, get_each);
}

/* Gets, puts and signals both ways at once. */
static void mixed(struct rank *r)
{
	enum { N = 200, PART = 20000 };
	struct group *g = group_new(r, 2);
	struct window src = window_new(g, (size_t)N * PART), dst = window_new(g, (size_t)N * PART);
	struct window back = window_new(g, (size_t)N * PART);
	struct flow *f = flow_new(g, 1, 1 - r->rank, 40, 11);
	void *put[N], *get[N];
	bool flowed = false;

	fill(src.data, src.size, r->rank);
	together(r);			/* a get reads what is there when it comes */
	for (size_t i = 0; i < N; i++) {
		size_t size = i % 2 ? PART : i;

		put[i] = POST(g, .src = &src, .src_off = i * PART, .dst = &dst, .dst_off = i * PART,
			      .size = size ? size : 1, .rank = 1 - r->rank, .more = i % 4 != 0);
		get[i] = get_post(g, 0, 1 - r->rank, &src, i * PART, PART, &back, i * PART);
		flowed = flow_step(f);
	}
	for (unsigned i = 0; i < N; i++) {
		req_wait(g, get[i]);
		req_wait(g, put[i]);
	}
	filled(back.data, back.size, 1 - r->rank);
	if (!flowed)
		flows_run(&f, 1);
	together(r);
	flow_free(f);
	window_free(g, &back);
	window_free(g, &dst);
	window_free(g, &src);
	groups_close(r);
}

static void all_at_once(struct abi *t)
{
	ranks_run(t, 2, mixed);
}

/* -- queues ------------------------------------------------------------------------------- */

/* As many as NCCL may have outstanding: 32 * maxRecvs for each context and target. */
static void many_outstanding(struct rank *r)
{
	enum { CONTEXTS = 2, EACH_MAX = 256, SIZE = 3000 };
	struct group *g = group_new(r, CONTEXTS);
	ncclNetProperties_v12_t props;
	static void *req[CONTEXTS][3][EACH_MAX];
	unsigned each;
	struct window src, dst, words;

	OK(rma_props(r->rma, 0, &props));
	each = 32 * (unsigned)props.maxRecvs;
	TRUE(each && each <= EACH_MAX);
	src = window_new(g, (size_t)each * SIZE);
	dst = window_new(g, (size_t)each * SIZE * r->n);
	words = words_new(g, CONTEXTS);
	fill(src.data, src.size, r->rank);
	for (unsigned i = 0; i < each; i++) {
		for (unsigned c = 0; c < CONTEXTS; c++) {
			for (unsigned k = 0; k < r->n; k++)
				req[c][k][i] = POST(g, .context = (int)c, .src = &src, .src_off = i * SIZE,
						    .dst = &dst, .dst_off = (r->rank * each + i) * SIZE,
						    .size = SIZE, .rank = k, .words = &words, .word = c);
		}
	}
	for (unsigned c = 0; c < CONTEXTS; c++) {
		for (unsigned k = 0; k < r->n; k++) {
			for (unsigned i = 0; i < each; i++)
				req_wait(g, req[c][k][i]);
		}
	}
	for (unsigned c = 0; c < CONTEXTS; c++)
		word_wait(g, &words, c, (uint64_t)each * r->n);
	together(r);
	for (unsigned k = 0; k < r->n; k++)
		filled(dst.data + (size_t)k * each * SIZE, (size_t)each * SIZE, k);
	window_free(g, &words);
	window_free(g, &dst);
	window_free(g, &src);
	groups_close(r);
}

static void outstanding(struct abi *t)
{
	ranks_run_each(t, 3, many_outstanding);
}

/* All but the last of a batch say that more will follow. */
static void batches(struct rank *r)
{
	enum { BATCHES = 50, BATCH = 32 };
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
		for (unsigned i = 0; i < BATCH; i++)
			req[i] = POST(g, .src = &src, .src_off = 8 * i, .dst = &dst, .dst_off = 8 * i,
				      .size = 8, .rank = 1, .words = i == BATCH - 1 ? &words : NULL,
				      .more = i < BATCH - 1);
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

static void aggregate(struct abi *t)
{
	ranks_run_each(t, 2, batches);
}

static const struct abi_case cases[] = {
	CASE("puts of all sizes and offsets arrive, and change nothing around", all_sizes, ONCE),
	CASE("puts of 64 MiB arrive", huge, ONCE),
	CASE("a strong signal shows the puts that were posted before it", later_signal, ONCE),
	CASE("INC ignores the value, ADD adds it", signal_alone, ONCE),
	CASE("all that four ranks add to one word is there", one_word, ONCE),
	CASE("a strong signal is seen after all earlier puts of its context", strong, ONCE),
	CASE("a weak signal is seen after its own put", weak, ONCE),
	CASE("a rank puts to itself, and gets from itself", loopback, ONCE),
	CASE("a rank that is alone puts to itself", alone, ONCE),
	CASE("gets of all sizes bring every byte", gets, ONCE),
	CASE("puts, gets and signals both ways do not disturb each other", all_at_once, ONCE),
	CASE("as many puts as NCCL has outstanding are all taken", outstanding, ONCE),
	CASE("puts that say more will follow arrive with the last", aggregate, ONCE),
};

ABI_MAIN(cases)
