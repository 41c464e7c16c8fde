/* SPDX-License-Identifier: BSD-3-Clause */
/* stage.c - see stage.h: the clock, chance, and how long calls take. */
#include "tests/faults/stage.h"

#include <string.h>
#include <time.h>

const char *const call_names[CALLS] = {
	"test", "isend", "irecv", "connect", "accept", "close", "listen", "regMr", "deregMr",
	"iflush", "finalize",
};

uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t x = a + (b + 1) * 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

enum { BUCKETS = sizeof(((struct spread *)0)->bucket) / sizeof(uint32_t) };

static unsigned bucket_of(uint64_t ns)
{
	unsigned top, i;

	if (ns < 8)
		return (unsigned)ns;
	top = 63 - (unsigned)__builtin_clzll(ns);
	i = (top - 2) * 8 + (unsigned)(ns >> (top - 3) & 7);
	return i < BUCKETS ? i : BUCKETS - 1;
}

static uint64_t bucket_end(unsigned i)
{
	return i < 8 ? i : ((8 + (uint64_t)(i % 8) + 1) << (i / 8 - 1)) - 1;
}

void spread_add(struct spread *s, uint64_t ns)
{
	s->n++;
	s->bucket[bucket_of(ns)]++;
	if (ns > s->max_ns)
		s->max_ns = ns;
}

void spread_merge(struct spread *s, const struct spread *from)
{
	s->n += from->n;
	if (from->max_ns > s->max_ns)
		s->max_ns = from->max_ns;
	for (unsigned i = 0; i < BUCKETS; i++)
		s->bucket[i] += from->bucket[i];
}

uint64_t spread_at(const struct spread *s, double share)
{
	uint64_t rest = s->n - (uint64_t)(share * (double)s->n), seen = 0;

	for (unsigned i = BUCKETS; i-- > 0;) {
		seen += s->bucket[i];
		if (seen > 0 && seen >= rest) {
			uint64_t end = bucket_end(i);

			return end < s->max_ns ? end : s->max_ns;
		}
	}
	return 0;
}
