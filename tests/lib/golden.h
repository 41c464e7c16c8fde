/* SPDX-License-Identifier: BSD-3-Clause */
/* golden.h - bytes that a test pins, written in hex. */
#ifndef BRAID_TESTS_LIB_GOLDEN_H
#define BRAID_TESTS_LIB_GOLDEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>

enum { GOLDEN_MAX = 512 };

/* Hex with blanks and newlines in it. */
static inline size_t unhex(const char *text, uint8_t *ret)
{
	size_t n = 0;

	while (*text) {
		unsigned byte;

		if (isspace((unsigned char)*text)) {
			text++;
			continue;
		}
		assert_int_equal(sscanf(text, "%2x", &byte), 1);
		assert_true(n < GOLDEN_MAX);
		ret[n++] = (uint8_t)byte;
		text += 2;
	}
	return n;
}

static inline void assert_golden(const void *got, size_t size, const char *hex)
{
	uint8_t want[GOLDEN_MAX];

	assert_int_equal(unhex(hex, want), size);
	assert_memory_equal(got, want, size);
}

#endif
