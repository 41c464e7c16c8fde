/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * crc32c.c - see crc32c.h.
 *
 * The instruction's result comes after three cycles, but a CPU begins one in each cycle.  So long
 * input is cut in three parts of equal size, whose checksums are computed side by side.  Then the
 * first is moved over the second, as if as many zero bytes followed it, and so on.  Moving over
 * zeros is linear: the results for each byte of a checksum are in a table.
 */
#include "core/base/crc32c.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define BY_CPU __attribute__((target("sse4.2")))
#define STEP8(crc, word) ((uint32_t)_mm_crc32_u64(crc, word))
#define STEP1(crc, byte) _mm_crc32_u8(crc, byte)
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#define BY_CPU
#define STEP8(crc, word) step("crc32cx %w0, %w1, %x2", crc, word)
#define STEP1(crc, byte) step("crc32cb %w0, %w1, %w2", crc, byte)
/* Assembler, since compilers differ in how they offer the instruction. */
#define step(insn, crc, in) ({						\
	uint32_t out_;							\
	__asm__(".arch_extension crc\n\t" insn : "=r"(out_) : "r"(crc), "r"(in));	\
	out_;								\
})
#endif

#define POLYNOMIAL 0x82f63b78u

enum { LARGE = 1024, SMALL = 128 };	/* bytes of a part */

typedef uint32_t run_fn(uint32_t crc, const uint8_t *p, size_t n);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t bytewise[256];

/* The functions from here on leave out the inversion at the beginning and the end. */
static uint32_t run_plain(uint32_t crc, const uint8_t *p, size_t n)
{
	while (n--)
		crc = bytewise[(crc ^ *p++) & 0xff] ^ crc >> 8;
	return crc;
}

#ifdef BY_CPU
static uint32_t over_large[4][256], over_small[4][256];

BY_CPU static uint32_t run_short(uint32_t crc, const uint8_t *p, size_t n)
{
	uint64_t word;

	for (; n >= 8; n -= 8, p += 8) {
		memcpy(&word, p, sizeof(word));
		crc = STEP8(crc, word);
	}
	while (n--)
		crc = STEP1(crc, *p++);
	return crc;
}

static uint32_t move(uint32_t (*over)[256], uint32_t crc)
{
	return over[0][crc & 0xff] ^ over[1][crc >> 8 & 0xff] ^ over[2][crc >> 16 & 0xff] ^
	       over[3][crc >> 24];
}

/* Three parts of `part` bytes. */
BY_CPU static uint32_t run_three(uint32_t crc, const uint8_t *p, size_t part,
				 uint32_t (*over)[256])
{
	uint32_t a = crc, b = 0, c = 0;
	uint64_t word[3];

	for (size_t at = 0; at < part; at += 8) {
		memcpy(&word[0], p + at, 8);
		memcpy(&word[1], p + part + at, 8);
		memcpy(&word[2], p + 2 * part + at, 8);
		a = STEP8(a, word[0]);
		b = STEP8(b, word[1]);
		c = STEP8(c, word[2]);
	}
	return move(over, move(over, a) ^ b) ^ c;
}

BY_CPU static uint32_t run_by_cpu(uint32_t crc, const uint8_t *p, size_t n)
{
	for (; n >= 3 * LARGE; n -= 3 * LARGE, p += 3 * LARGE)
		crc = run_three(crc, p, LARGE, over_large);
	for (; n >= 3 * SMALL; n -= 3 * SMALL, p += 3 * SMALL)
		crc = run_three(crc, p, SMALL, over_small);
	return run_short(crc, p, n);
}

static void make_table(uint32_t (*over)[256], size_t zeros)
{
	static const uint8_t zero[LARGE];

	for (unsigned i = 0; i < 4; i++) {
		for (unsigned bit = 0; bit < 8; bit++) {
			unsigned first = 1u << bit;

			over[i][first] = run_short((uint32_t)first << 8 * i, zero, zeros);
			for (unsigned k = 1; k < first; k++)
				over[i][first + k] = over[i][first] ^ over[i][k];
		}
	}
}

static _Bool cpu_can(void)
{
#if defined(__x86_64__)
	return __builtin_cpu_supports("sse4.2");
#else
	return getauxval(AT_HWCAP) & HWCAP_CRC32;
#endif
}
#endif

static run_fn choose;
static _Atomic(run_fn *) run = choose;

static void prepare(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (unsigned k = 0; k < 8; k++)
			crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
		bytewise[i] = crc;
	}
#ifdef BY_CPU
	if (cpu_can()) {
		make_table(over_large, LARGE);
		make_table(over_small, SMALL);
		atomic_store(&run, run_by_cpu);
		return;
	}
#endif
	atomic_store(&run, run_plain);
}

static uint32_t choose(uint32_t crc, const uint8_t *p, size_t n)
{
	pthread_once(&once, prepare);
	return atomic_load(&run)(crc, p, n);
}

uint32_t braid_crc32c(uint32_t crc, const void *p, size_t n)
{
	return ~atomic_load_explicit(&run, memory_order_acquire)(~crc, p, n);
}

uint32_t braid_crc32c_plain(uint32_t crc, const void *p, size_t n)
{
	pthread_once(&once, prepare);
	return ~run_plain(~crc, p, n);
}
