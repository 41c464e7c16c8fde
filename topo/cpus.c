/* SPDX-License-Identifier: BSD-3-Clause */
/* cpus.c - see cpus.h. */
#include "topo/cpus.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Reads a number below BRAID_CPUS_MAX; -1: there is no number, or it is larger. */
static int parse_cpu(const char **text)
{
	const char *p = *text;
	int cpu = 0;

	if (!isdigit((unsigned char)*p))
		return -1;
	for (; isdigit((unsigned char)*p); p++) {
		cpu = 10 * cpu + *p - '0';
		if (cpu >= BRAID_CPUS_MAX)
			return -1;
	}
	*text = p;
	return cpu;
}

int braid_cpus_parse(const char *text, struct braid_cpus *ret)
{
	struct braid_cpus c = { .bits = { 0 } };

	while (*text) {
		int first = parse_cpu(&text), last = first;

		if (first >= 0 && *text == '-') {
			text++;
			last = parse_cpu(&text);
		}
		if (first < 0 || last < first)
			return -EINVAL;
		for (int i = first; i <= last; i++)
			c.bits[i / 64] |= 1ull << (i % 64);
		if (*text == ',' && text[1])
			text++;
		else if (*text)
			return -EINVAL;
	}
	*ret = c;
	return 0;
}

bool braid_cpus_has(const struct braid_cpus *c, unsigned cpu)
{
	return cpu < BRAID_CPUS_MAX && c->bits[cpu / 64] >> (cpu % 64) & 1;
}

size_t braid_cpus_format(const struct braid_cpus *c, char *ret, size_t len)
{
	size_t used = 0, all = 0;
	bool full = false;

	if (len)
		*ret = '\0';
	for (unsigned i = 0; i < BRAID_CPUS_MAX; i++) {
		unsigned first = i;
		const char *comma = all ? "," : "";
		char range[24];
		int n;

		if (!braid_cpus_has(c, i))
			continue;
		while (braid_cpus_has(c, i + 1))
			i++;
		n = i > first ? snprintf(range, sizeof(range), "%s%u-%u", comma, first, i) :
				snprintf(range, sizeof(range), "%s%u", comma, first);
		all += (size_t)n;
		full |= used + (size_t)n >= len;
		if (full)
			continue;
		memcpy(ret + used, range, (size_t)n + 1);
		used += (size_t)n;
	}
	return all;
}

bool braid_cpus_empty(const struct braid_cpus *c)
{
	for (unsigned i = 0; i < BRAID_CPUS_WORDS; i++) {
		if (c->bits[i])
			return false;
	}
	return true;
}

void braid_cpus_add(struct braid_cpus *c, const struct braid_cpus *more)
{
	for (unsigned i = 0; i < BRAID_CPUS_WORDS; i++)
		c->bits[i] |= more->bits[i];
}

void braid_cpus_keep(struct braid_cpus *c, const struct braid_cpus *only)
{
	for (unsigned i = 0; i < BRAID_CPUS_WORDS; i++)
		c->bits[i] &= only->bits[i];
}
