/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rma_gpu.c - puts, signals and gets from and to memory of a GPU, words of signals too.
 *
 * The GPU's memory can't be touched by the CPU here, as in tests/abi/gpu.h: so what arrives was
 * brought there by the driver, by the NIC, or by the CPU through a mapping of GDRCopy's.
 */
#include "tests/abi/gpu.h"
#include "tests/abi/nics.h"
#include "tests/abi/onesided.h"

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 6, WORDS = 16, ADDS = 200, FEW = 20, SKIP = 4096 + 8 };

static const size_t lengths[] = { 8, 1, 8144, 8145, 65536, MEG };

struct mem {				/* memory of a GPU, and where a test may look at it */
	uint8_t *at, *bytes;
	size_t size, skip;		/* skip: of its allocation, before it */
	void *mh;
};

static struct mem mem_new(struct group *g, size_t size, uint64_t flags)
{
	struct mem m = { .size = size, .skip = size < MEG ? SKIP : 0 };
	struct buf b = { .size = size };
	uint64_t at;

	EQ(0, gpu_alloc(&at, m.skip + size));
	m.at = b.data = (uint8_t *)(uintptr_t)at + m.skip;
	m.bytes = bytes_of(&b);
	memset(m.bytes, 0, size);
	OK(rma_reg(g->r->rma, g->coll, m.at, size, CUDA, flags, &m.mh));
	return m;
}

static void mem_free(struct group *g, struct mem *m)
{
	OK(rma_dereg(g->r->rma, g->coll, m->mh));
	EQ(0, gpu_free((uint64_t)(uintptr_t)m->at - m->skip));
}

static uint8_t pattern(unsigned rank, unsigned round, size_t i)
{
	return (uint8_t)(mix(rank * 1000 + round) + i * 7 + (i >> 9));
}

static void paint(uint8_t *bytes, size_t n, unsigned rank, unsigned round)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = pattern(rank, round, i);
}

static void painted(const uint8_t *bytes, size_t n, unsigned rank, unsigned round)
{
	for (size_t i = 0; i < n; i++) {
		if (bytes[i] != pattern(rank, round, i))
			FAIL("byte %zu of %zu in round %u: %u, not %u", i, n, round, bytes[i],
			     pattern(rank, round, i));
	}
}

static uint64_t gpu_word(const struct mem *m, unsigned i)
{
	uint64_t v;

	memcpy(&v, m->bytes + 8 * i, sizeof(v));
	return v;
}

static void gpu_word_wait(struct rank *r, const struct mem *m, unsigned i, uint64_t least)
{
	uint64_t until = deadline_ms(10000);

	while (gpu_word(m, i) < least) {
		tick(r);
		if (now_us() > until)
			FAIL("word %u: %llu after 10 s, not %llu", i,
			     (unsigned long long)gpu_word(m, i), (unsigned long long)least);
	}
}

/* A signal alone to rank `peer`, of 1 more than this rank's number. */
static void signal_one(struct group *g, struct mem *words, unsigned peer, unsigned word)
{
	void *req = NULL;

	OK(rma_iput_signal(g->r->rma, g->ctx, 0, 0, NULL, 0, 0, NULL, peer, 8 * word, words->mh,
			   g->r->rank + 1, NCCL_RMA_SIGNAL_ADD, true, 0, &req));
	req_wait(g, req);
}

static void post_signal(struct group *g, struct mem *src, size_t size, struct mem *dst, struct mem *words,
			unsigned peer, unsigned word, bool strong)
{
	void *req = NULL;

	OK(rma_iput_signal(g->r->rma, g->ctx, 0, 0, src->mh, size, 0, dst->mh, peer, 8 * word,
			   words->mh, 1, NCCL_RMA_SIGNAL_ADD, strong, 0, &req));
	TRUE(req);
	req_wait(g, req);
}

/* Each round a put of one size from GPU to GPU, whose signal is a word of the GPU. */
static void rounds(struct rank *r, uint64_t flags, bool strong)
{
	struct group *g = group_new(r, 1);
	struct mem src = mem_new(g, MEG, 0), dst = mem_new(g, MEG, 0);
	struct mem words = mem_new(g, 8 * WORDS, NCCL_RMA_FORCE_SO | flags);
	unsigned peer = !r->rank;

	together(r);
	for (unsigned i = 0; i < ROUNDS; i++) {
		paint(src.bytes, lengths[i], r->rank, i);
		post_signal(g, &src, lengths[i], &dst, &words, peer, r->rank, strong);
		gpu_word_wait(r, &words, peer, i + 1);
		painted(dst.bytes, lengths[i], peer, i);
		together(r);
	}
	EQ(ROUNDS, gpu_word(&words, peer));
	EQ(0, gpu_word(&words, r->rank));
	together(r);
	mem_free(g, &src);
	mem_free(g, &dst);
	mem_free(g, &words);
	groups_close(r);
}

static void strong_rounds(struct rank *r)
{
	rounds(r, 0, true);
	together(r);
	rounds(r, NCCL_RMA_NEVER_RESET, true);
}

static void weak_rounds(struct rank *r)
{
	rounds(r, 0, false);
}

/* All ranks add to the same words of rank 0's GPU.  `half` runs there once half of it is done. */
static void adders_to(struct rank *r, struct group *g, struct mem *words, void (*half)(void))
{
	together(r);
	for (unsigned i = 0; i < ADDS; i++) {
		if (r->rank)
			signal_one(g, words, 0, i % 3);
		if (i != ADDS / 2 || !half)
			continue;
		if (!r->rank) {
			gpu_word_wait(r, words, 0, 9);
			half();
		}
		together(r);
	}
	if (!r->rank) {
		gpu_word_wait(r, words, 0, 9 * 67);
		gpu_word_wait(r, words, 1, 9 * 67);
		gpu_word_wait(r, words, 2, 9 * 66);
	}
	together(r);
	if (!r->rank)
		EQ(9 * 67, gpu_word(words, 0));
}

static void adders(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct mem words = mem_new(g, 8 * WORDS, NCCL_RMA_FORCE_SO);

	adders_to(r, g, &words, NULL);
	mem_free(g, &words);
	groups_close(r);
}

/* Gets into a GPU and out of one, a flush, and operations of a rank on itself. */
static void gets(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct mem src = mem_new(g, MEG, 0), dst = mem_new(g, MEG, 0);
	struct mem words = mem_new(g, 8 * WORDS, NCCL_RMA_FORCE_SO);

	paint(src.bytes, MEG, r->rank, 9);
	together(r);
	for (unsigned k = 0; k < 2; k++) {
		unsigned from = k ? r->rank : !r->rank;
		void *req = NULL;

		memset(dst.bytes, 0, MEG);
		OK(rma_iget(r->rma, g->ctx, 0, 0, src.mh, MEG, 0, dst.mh, from, 0, &req));
		req_wait(g, req);
		OK(rma_iflush(r->rma, g->ctx, 0, dst.mh, from, &req));
		if (req)
			req_wait(g, req);
		painted(dst.bytes, MEG, from, 9);
	}
	memset(dst.bytes, 0, MEG);
	post_signal(g, &src, MEG, &dst, &words, r->rank, 5, true);
	gpu_word_wait(r, &words, 5, 1);
	painted(dst.bytes, MEG, r->rank, 9);
	together(r);
	mem_free(g, &src);
	mem_free(g, &dst);
	mem_free(g, &words);
	groups_close(r);
}

/* The target's process calls nothing while puts and signals for its GPU arrive. */
static void unattended(struct rank *r)
{
	struct group *g = group_new(r, 1);
	struct mem src = mem_new(g, MEG, 0), dst = mem_new(g, MEG, 0);
	struct mem words = mem_new(g, 8 * WORDS, NCCL_RMA_FORCE_SO);
	uint64_t until = deadline_ms(10000);

	paint(src.bytes, MEG, r->rank, 3);
	together(r);
	if (!r->rank) {
		post_signal(g, &src, MEG, &dst, &words, 1, 0, true);
		post_signal(g, &src, 8, &dst, &words, 1, 0, true);
	} else {
		while (gpu_word(&words, 0) < 2 && now_us() < until)
			nap_ms(1);
		EQ(2, gpu_word(&words, 0));
		painted(dst.bytes, MEG, 0, 3);
	}
	together(r);
	mem_free(g, &src);
	mem_free(g, &dst);
	mem_free(g, &words);
	groups_close(r);
}

/* --- words through GDRCopy ------------------------------------------------------------------- */

static void load_gdr(void)
{
	fakecuda_load();
	fake_load("fakecuda", "libgdrapi.so.2");
}

/* FEW signals alone from each rank to the next, whose word is `before` first. */
static void signals(struct rank *r, struct group *g, struct mem *words, uint64_t before)
{
	unsigned from = (r->rank + r->n - 1) % r->n;

	memcpy(words->bytes + 8 * from, &before, sizeof(before));
	together(r);
	for (unsigned i = 0; i < FEW; i++)
		signal_one(g, words, (r->rank + 1) % r->n, r->rank);
	gpu_word_wait(r, words, from, before + FEW * (from + 1));
	EQ(before + FEW * (from + 1), gpu_word(words, from));
	together(r);
}

/* How FEW words got into a GPU's memory: `stored` by the CPU, and read by it `seen` times. */
static void words_go(struct rank *r, size_t size, uint64_t flags, long stored, long seen)
{
	long were[] = { gpu_do("stored"), gpu_do("seen"), gpu_do("pinned"), gpu_do("copies") };
	struct group *g = group_new(r, 1);
	struct mem words = mem_new(g, size, flags);

	EQ(stored ? 1 : 0, gpu_do("pinned") - were[2]);
	signals(r, g, &words, flags & NCCL_RMA_NEVER_RESET ? 0 : 1000);
	EQ(stored, gpu_do("stored") - were[0]);
	EQ(seen, gpu_do("seen") - were[1]);
	if (stored)
		EQ(0, gpu_do("copies") - were[3]);
	mem_free(g, &words);
	EQ(0, gpu_do("pinned") - were[2]);
	groups_close(r);
}

static void words_by_cpu(struct rank *r)
{
	words_go(r, 8 * WORDS, NCCL_RMA_FORCE_SO, FEW, FEW);
	words_go(r, 8 * WORDS, NCCL_RMA_FORCE_SO | NCCL_RMA_NEVER_RESET, FEW, 0);
}

/* What holds no signals is not mapped, nor what is large. */
static void words_by_copies(struct rank *r)
{
	words_go(r, 8 * WORDS, 0, 0, 0);
	words_go(r, MEG + 8, NCCL_RMA_FORCE_SO, 0, 0);
	words_go(r, MEG, NCCL_RMA_FORCE_SO, FEW, FEW);
}

/* A call of GDRCopy's that fails makes the words go by copies, and leaves nothing pinned. */
static void words_refused(struct rank *r)
{
	static const char *const fails[] = {
		"fail 1 gdr_open", "fail 1 gdr_pin_buffer", "fail 1 gdr_map",
	};

	for (unsigned i = 0; i < 3; i++) {
		gpu_do(fails[i]);
		words_go(r, 8 * WORDS, NCCL_RMA_FORCE_SO, 0, 0);
		EQ(1, gpu_do("calls"));
	}
	gpu_do("fail 0");
	words_go(r, 8 * WORDS, NCCL_RMA_FORCE_SO, FEW, FEW);
}

static void take_mappings(void)
{
	TRUE(gpu_do("stored") > 0);
	EQ(0, gpu_do("copies"));
	gpu_do("take");
}

/* The mapping disappears while all ranks add: the rest go by copies, and all count. */
static void taken(struct rank *r, uint64_t flags)
{
	struct group *g = group_new(r, 1);
	struct mem words = mem_new(g, 8 * WORDS, NCCL_RMA_FORCE_SO | flags);

	adders_to(r, g, &words, take_mappings);
	if (!r->rank)
		TRUE(gpu_do("copies") > 0);
	mem_free(g, &words);
	EQ(0, gpu_do("pinned"));
	groups_close(r);
}

static void taken_plain(struct rank *r)
{
	taken(r, 0);
}

static void taken_never_reset(struct rank *r)
{
	taken(r, NCCL_RMA_NEVER_RESET);
}

static void adders_by_cpu(struct rank *r)
{
	adders(r);
	if (!r->rank)
		EQ((r->n - 1) * ADDS, gpu_do("stored"));
	EQ(0, gpu_do("copies"));
}

static void strong_by_cpu(struct rank *r)
{
	strong_rounds(r);
	EQ(2 * ROUNDS, gpu_do("stored"));
}

/* --- over what ------------------------------------------------------------------------------- */

static void over_tcp(struct abi *t, unsigned n, void (*body)(struct rank *r))
{
	ranks_prepare = fakecuda_load;
	setenv("BRAID_TRANSPORTS", "tcp", 1);
	ranks_run(t, n, body);
}

static void tcp_strong(struct abi *t)
{
	over_tcp(t, 2, strong_rounds);
}

static void tcp_weak(struct abi *t)
{
	over_tcp(t, 2, weak_rounds);
}

static void tcp_adders(struct abi *t)
{
	over_tcp(t, 4, adders);
}

static void tcp_gets(struct abi *t)
{
	over_tcp(t, 2, gets);
}

static void tcp_unattended(struct abi *t)
{
	over_tcp(t, 2, unattended);
}

static void over_tcp_gdr(struct abi *t, unsigned n, void (*body)(struct rank *r))
{
	ranks_prepare = load_gdr;
	setenv("BRAID_TRANSPORTS", "tcp", 1);
	ranks_run(t, n, body);
}

static void gdr_words(struct abi *t)
{
	over_tcp_gdr(t, 2, words_by_cpu);
}

static void gdr_not_mapped(struct abi *t)
{
	over_tcp_gdr(t, 2, words_by_copies);
}

static void gdr_refused(struct abi *t)
{
	over_tcp_gdr(t, 2, words_refused);
}

static void gdr_strong(struct abi *t)
{
	over_tcp_gdr(t, 2, strong_by_cpu);
}

static void gdr_adders(struct abi *t)
{
	over_tcp_gdr(t, 4, adders_by_cpu);
}

static void gdr_taken(struct abi *t)
{
	over_tcp_gdr(t, 4, taken_plain);
}

static void gdr_taken_never_reset(struct abi *t)
{
	over_tcp_gdr(t, 4, taken_never_reset);
}

/* RoCE, by a NIC that reaches the GPU itself. */
static void over_nic(struct abi *t, const char *more, void (*body)(struct rank *r))
{
	ranks_prepare = fakecuda_load;
	nic("rocev2", more);
	ranks_run(t, 2, body);
}

/* What the NIC writes is late: a word that the CPU writes brings none of it along. */
static void nic_gdr(struct abi *t)
{
	ranks_prepare = load_gdr;
	nic("rocev2", ALL_WAYS ",late=1");
	ranks_run(t, 2, strong_by_cpu);
}

static void nic_strong(struct abi *t)
{
	over_nic(t, ALL_WAYS, strong_rounds);
}

static void nic_weak(struct abi *t)
{
	over_nic(t, ALL_WAYS, weak_rounds);
}

static void nic_direct(struct abi *t)
{
	over_nic(t, ALL_WAYS DIRECT, strong_rounds);
}

static void nic_gets(struct abi *t)
{
	over_nic(t, ALL_WAYS, gets);
}

static void nic_unattended(struct abi *t)
{
	over_nic(t, ALL_WAYS, unattended);
}

static const struct abi_case cases[] = {
	CASE("over TCP puts reach a GPU before its words do", tcp_strong, ONCE),
	CASE("over TCP a weak signal follows its own put into a GPU", tcp_weak, ONCE),
	CASE("adds of several ranks to one word of a GPU all count", tcp_adders, ONCE),
	CASE("gets, flushes and puts to itself work with a GPU's memory", tcp_gets, ONCE),
	CASE("puts and signals reach a GPU whose process calls nothing", tcp_unattended, ONCE),
	CASE("over RDMA puts reach a GPU before its words do", nic_strong, ONCE),
	CASE("over RDMA a weak signal follows its own put into a GPU", nic_weak, ONCE),
	CASE("over RDMA what took another path than its word is flushed first", nic_direct, ONCE),
	CASE("over RDMA gets, flushes and puts to itself work with a GPU's memory", nic_gets, ONCE),
	CASE("with GDRCopy the CPU writes a signal's word: nothing is copied", gdr_words, ONCE),
	CASE("GDRCopy maps no window without signals, and no large one", gdr_not_mapped, ONCE),
	CASE("words are copied if GDRCopy refuses", gdr_refused, ONCE),
	CASE("with GDRCopy puts reach a GPU before its words do", gdr_strong, ONCE),
	CASE("with GDRCopy adds of several ranks to one word all count", gdr_adders, ONCE),
	CASE("words are copied once GDRCopy's mapping is taken away", gdr_taken, ONCE),
	CASE("... words that are never reset, too", gdr_taken_never_reset, ONCE),
	CASE("with GDRCopy a put over RDMA is flushed before its word is written", nic_gdr, ONCE),
	CASE("over RDMA puts reach a GPU whose process calls nothing", nic_unattended, ONCE),
};

int main(void)
{
	int failed;

	fakes_load();
	failed = abi_main(__FILE__, cases, sizeof(cases) / sizeof(cases[0]));
	fakes_forget();
	return failed;
}
