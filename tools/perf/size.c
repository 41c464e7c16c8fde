/* SPDX-License-Identifier: BSD-3-Clause */
/* size.c - message sizes as text: "8,1k,64k:1m". */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/perf/perf.h"

/* Parse a number with k, m or g; *end is where it stops. */
static int64_t size_parse(const char *text, char **end)
{
	static const char units[] = "kmg";
	const char *unit;
	uint64_t x;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	x = strtoull(text, end, 10);
	unit = **end ? strchr(units, **end | 0x20) : NULL;
	if (errno || x > PERF_SIZE_MAX)
		return -EINVAL;
	if (unit) {
		x <<= 10 * (unit - units + 1);
		(*end)++;
	}
	return x <= PERF_SIZE_MAX ? (int64_t)x : -EINVAL;
}

/* Parse a list of sizes and of ranges FROM:TO by doubling. */
int perf_sizes_parse(const char *text, uint64_t *sizes, int max)
{
	int64_t from, to, x;
	char *at = (char *)(uintptr_t)text;
	int n = 0;

	do {
		from = to = size_parse(at, &at);
		if (from >= 0 && *at == ':')
			to = size_parse(at + 1, &at);
		if (from < 0 || to < from)
			return -EINVAL;
		for (x = from; x <= to; x = x > 0 ? 2 * x : 1) {
			if (n == max)
				return -EINVAL;
			sizes[n++] = (uint64_t)x;
		}
	} while (*at++ == ',');
	return at[-1] == 0 ? n : -EINVAL;
}

const char *perf_size_name(uint64_t size, char room[24])
{
	static const char units[] = " kmg";
	unsigned u = 0;

	while (u < 3 && size >= 1024 && size % 1024 == 0) {
		size /= 1024;
		u++;
	}
	snprintf(room, 24, u ? "%llu%c" : "%llu", (unsigned long long)size, units[u]);
	return room;
}
