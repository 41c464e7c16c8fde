/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * litmus.h - a kernel that looks at what arrives while it arrives, as NCCL's kernels do.
 *
 * A watch is a kernel that looks at one buffer while it is filled in rounds.  The round and a
 * line's place determine the line's content.  The flag of LL and LL128 is the round's number:
 *
 *	Simple	16 bytes of data, whole once lm_ready() has raised the counter to the round
 *	LL	16 bytes: data, flag, data, flag, of 4 bytes each, read in one load
 *	LL128	128 bytes: 120 of data, 8 of flag; read by 8 lanes, again once the flag is there
 *
 * A line is early if its flags (its counter) were there before its data, and torn if the data has
 * not come 20 us later either.
 */
#ifndef BRAID_TESTS_GPU_LITMUS_H
#define BRAID_TESTS_GPU_LITMUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define LM_BOTH static __host__ __device__ inline
#else
#define LM_BOTH static inline
#endif

enum lm_kind { LM_SIMPLE, LM_LL, LM_LL128, LM_KINDS };
enum { LM_MOST = 1 << 20 };		/* bytes of a round */

struct lm_count {
	uint64_t lines, early, torn;
	int whole;			/* 1: the watch has seen all rounds; 0: it gave up */
};

LM_BOTH uint32_t lm_line(int kind)
{
	return kind == LM_LL128 ? 128 : 16;
}

/* The bytes of a round: whole lines, from one line to LM_MOST bytes. */
LM_BOTH uint32_t lm_bytes(int kind, uint32_t round)
{
	uint32_t n = (uint32_t)LM_MOST >> (round * 5 % 7 * 2);

	n -= round % 3 * (n / 16);
	n -= n % lm_line(kind);
	return n ? n : lm_line(kind);
}

/* The i-th 4 bytes of a round's data. */
LM_BOTH uint32_t lm_word(uint32_t round, uint32_t i)
{
	uint32_t x = round * 0x9e3779b9u ^ i * 0x85ebca6bu;

	x ^= x >> 15;
	x *= 0x2c1b3c6du;
	return x ^ x >> 13;
}

struct lm_watch;

#ifdef __cplusplus
extern "C" {
#endif

const char *lm_init(void);		/* takes the first GPU; NULL, or CUDA's error */
void *lm_host(size_t size);		/* zeroed, pinned, mapped for the GPU; NULL: no memory */
void *lm_gpu(size_t size);		/* zeroed GPU memory */
void lm_host_free(void *p);
void lm_gpu_free(void *p);

/* Watches rounds 1 to `rounds`; gives up after `seconds`.  NULL: the kernel can't be started. */
struct lm_watch *lm_start(int kind, const void *buf, uint32_t rounds, unsigned seconds);
void lm_ready(struct lm_watch *w, uint32_t round);
int lm_seen(const struct lm_watch *w, uint32_t round);	/* has it looked at every line? */
/* Ends the watch if it still runs.  NULL, or what went wrong. */
const char *lm_end(struct lm_watch *w, struct lm_count *ret);

#ifdef __cplusplus
}
#endif

#endif
