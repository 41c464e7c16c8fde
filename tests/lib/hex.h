/* SPDX-License-Identifier: BSD-3-Clause */
/* hex.h - bytes written as hex digits, for published test vectors. */
#ifndef BRAID_TEST_HEX_H
#define BRAID_TEST_HEX_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Returns the bytes that the text stands for. */
static inline size_t unhex(const char *text, uint8_t *ret)
{
	size_t n = strlen(text) / 2;

	for (size_t i = 0; i < n; i++) {
		unsigned byte = 0;

		sscanf(text + 2 * i, "%2x", &byte);
		ret[i] = (uint8_t)byte;
	}
	return n;
}

#endif
