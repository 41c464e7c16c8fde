/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy.h - copy into memory that a GPU may be polling.
 *
 * NCCL's LL and LL128 protocols poll flags inside the buffer that is being filled.  So bytes must
 * appear in address order, and aligned 8-byte words must appear whole.  memcpy() promises neither:
 * it may store the ends of a block first or last.  Payload that was staged is copied by this file.
 */
#ifndef BRAID_BASE_COPY_H
#define BRAID_BASE_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { BRAID_LINE = 128 };		/* a line of LL128: its flag is the last word */

typedef uint64_t braid_copy_pair __attribute__((vector_size(16), may_alias));

/* These functions return the number of bytes copied. */
static inline size_t braid_copy_bytes(uint8_t *dst, const uint8_t *src, size_t n)
{
	for (size_t i = 0; i < n; i++)
		*(volatile uint8_t *)(dst + i) = src[i];
	return n;
}

static inline size_t braid_copy_words(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t at;

	for (at = 0; at + 8 <= n; at += 8) {
		uint64_t word;

		memcpy(&word, src + at, sizeof(word));
		*(volatile uint64_t *)(void *)(dst + at) = word;
	}
	return at;
}

static inline void braid_copy_two(uint8_t *dst, const uint8_t *src)
{
	braid_copy_pair pair;

	memcpy(&pair, src, sizeof(pair));
	*(volatile braid_copy_pair *)(void *)dst = pair;
}

/*
 * Whole lines, in pairs of words.  The last two words go singly: a pair may be seen end first.
 * Unrolled by hand, as compilers keep a loop.
 */
static inline size_t braid_copy_lines(uint8_t *dst, const uint8_t *src, size_t n)
{
	size_t at;

	for (at = 0; at + BRAID_LINE <= n; at += BRAID_LINE) {
		uint64_t last[2];

		braid_copy_two(dst + at, src + at);
		braid_copy_two(dst + at + 16, src + at + 16);
		braid_copy_two(dst + at + 32, src + at + 32);
		braid_copy_two(dst + at + 48, src + at + 48);
		braid_copy_two(dst + at + 64, src + at + 64);
		braid_copy_two(dst + at + 80, src + at + 80);
		braid_copy_two(dst + at + 96, src + at + 96);
		memcpy(last, src + at + BRAID_LINE - sizeof(last), sizeof(last));
		*(volatile uint64_t *)(void *)(dst + at + BRAID_LINE - 16) = last[0];
		/* The flag: ordered after the rest, also on CPUs that reorder stores. */
		__atomic_store_n((volatile uint64_t *)(void *)(dst + at + BRAID_LINE - 8), last[1],
				 __ATOMIC_RELEASE);
	}
	return at;
}

static inline size_t braid_copy_gap(const uint8_t *dst, size_t align, size_t n)
{
	size_t gap = -(uintptr_t)dst & (align - 1);

	return gap < n ? gap : n;
}

static inline void braid_copy_any(uint8_t *d, const uint8_t *s, size_t n)
{
	size_t at = braid_copy_bytes(d, s, braid_copy_gap(d, 8, n));

	if (n - at >= BRAID_LINE) {
		at += braid_copy_words(d + at, s + at, braid_copy_gap(d + at, BRAID_LINE, n - at));
		at += braid_copy_lines(d + at, s + at, n - at);
	}
	at += braid_copy_words(d + at, s + at, n - at);
	braid_copy_bytes(d + at, s + at, n - at);
}

/* Small messages are aligned words, as a rule.  dst may be NULL if n is 0. */
static inline void braid_copy_up(void *dst, const void *src, size_t n)
{
	uint8_t *d = dst;
	const uint8_t *s = src;

	if (n >= BRAID_LINE || ((uintptr_t)d | n) % 8)
		braid_copy_any(d, s, n);
	else
		braid_copy_words(d, s, n);
}

#endif
