/* SPDX-License-Identifier: BSD-3-Clause */
/* words.c - see words.h. */
#include "core/base/words.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { COMPARE_MAX = 64 };

unsigned braid_distance(const char *a, const char *b)
{
	unsigned row[COMPARE_MAX + 1];
	size_t na = strnlen(a, COMPARE_MAX), nb = strnlen(b, COMPARE_MAX);

	for (unsigned j = 0; j <= nb; j++)
		row[j] = j;
	for (unsigned i = 1; i <= na; i++) {
		unsigned corner = row[0];

		row[0] = i;
		for (size_t j = 1; j <= nb; j++) {
			unsigned best = corner + (a[i - 1] != b[j - 1]);

			corner = row[j];
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			if (row[j] + 1 < best)
				best = row[j] + 1;
			row[j] = best;
		}
	}
	return row[nb];
}

bool braid_ports_parse(const char *text, uint16_t *ret_low, uint16_t *ret_high)
{
	unsigned long low, high;
	char *end;

	if (!isdigit((unsigned char)*text))
		return false;
	low = strtoul(text, &end, 10);
	if (*end != '-' || !isdigit((unsigned char)end[1]))
		return false;
	high = strtoul(end + 1, &end, 10);
	*ret_low = (uint16_t)low;
	*ret_high = (uint16_t)high;
	return !*end && low && low <= high && high <= UINT16_MAX;
}
