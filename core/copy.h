/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy.h - copy into memory that a GPU may be polling.
 *
 * NCCL's LL and LL128 protocols read flags out of the very buffer that is being filled: bytes
 * must appear in address order, aligned 8-byte words whole.  memcpy() promises neither (it stores
 * the ends of a block first or last as it pleases), so arrivals that were staged go through this.
 */
#ifndef BRAID_CORE_COPY_H
#define BRAID_CORE_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void braid_copy_up(void *dst, const void *src, size_t n)
{
	volatile uint8_t *d = dst;
	const uint8_t *s = src;

	for (; n && ((uintptr_t)d & 7); n--)
		*d++ = *s++;
	for (; n >= 8; n -= 8) {
		uint64_t word;

		memcpy(&word, s, sizeof(word));
		*(volatile uint64_t *)(uintptr_t)d = word;
		d += 8;
		s += 8;
	}
	for (; n; n--)
		*d++ = *s++;
}

#endif
