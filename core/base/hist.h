/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hist.h - a histogram of times, in 900 bytes whatever their number.
 *
 * Buckets are log-linear: four to each power of two from 1,024 ns to 2^37 ns (137 s), and four of
 * 256 ns below.  The last also has all that is longer.  So a percentile is never too low, and at
 * most a quarter, or 256 ns, too high.
 *
 * The command `braid` reads histograms as the plugin does, so all but the writing is here.
 */
#ifndef BRAID_BASE_HIST_H
#define BRAID_BASE_HIST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
	BRAID_HIST_FIRST = 10,		/* buckets up to 2^10 ns are of one width */
	BRAID_HIST_END = 37,		/* the last bucket begins below 2^37 ns */
	BRAID_HIST_BUCKETS = 4 * (BRAID_HIST_END - BRAID_HIST_FIRST + 1),
};

struct braid_hist {			/* a copy, which stands still */
	uint64_t n[BRAID_HIST_BUCKETS];
	uint64_t count, sum_ns, max_ns;
};

/* One writer at a time; readers need no lock.  All zero: it has no times, and no memory. */
struct braid_hist_live {
	struct braid_hist_cells {
		_Atomic uint64_t n[BRAID_HIST_BUCKETS], sum_ns, max_ns;
	} *_Atomic cells;
};

/* Add a time.  The first allocates the memory; if there is none, the time is not counted. */
void braid_hist_note(struct braid_hist_live *h, uint64_t ns);
void braid_hist_read(const struct braid_hist_live *h, struct braid_hist *ret);
void braid_hist_free(struct braid_hist_live *h);	/* once nobody reads it */

static inline unsigned braid_hist_bucket(uint64_t ns)
{
	unsigned e = 63 - (unsigned)__builtin_clzll(ns | 1);

	if (e < BRAID_HIST_FIRST)
		return (unsigned)(ns >> (BRAID_HIST_FIRST - 2));
	if (e >= BRAID_HIST_END)
		return BRAID_HIST_BUCKETS - 1;
	return 4 * (e - BRAID_HIST_FIRST + 1) + (unsigned)(ns >> (e - 2) & 3);
}

/* The shortest time that is too long for the bucket; of the last, which takes all, the most. */
static inline uint64_t braid_hist_bound(unsigned bucket)
{
	if (bucket >= BRAID_HIST_BUCKETS - 1)
		return INT64_MAX;
	if (bucket < 4)
		return (uint64_t)(bucket + 1) << (BRAID_HIST_FIRST - 2);
	return (uint64_t)(bucket % 4 + 5) << (bucket / 4 + BRAID_HIST_FIRST - 3);
}

static inline void braid_hist_merge(struct braid_hist *to, const struct braid_hist *from)
{
	for (unsigned i = 0; i < BRAID_HIST_BUCKETS; i++)
		to->n[i] += from->n[i];
	to->count += from->count;
	to->sum_ns += from->sum_ns;
	if (from->max_ns > to->max_ns)
		to->max_ns = from->max_ns;
}

/* At least that many percent of the times are not longer than this; 0: there are none. */
static inline uint64_t braid_hist_percentile(const struct braid_hist *h, unsigned percent)
{
	uint64_t rank = h->count / 100 * percent + (h->count % 100 * percent + 99) / 100, seen = 0;

	for (unsigned i = 0; i < BRAID_HIST_BUCKETS; i++) {
		seen += h->n[i];
		if (seen && seen >= rank)
			return braid_hist_bound(i) < h->max_ns ? braid_hist_bound(i) : h->max_ns;
	}
	return h->max_ns;
}

#endif
