/* SPDX-License-Identifier: BSD-3-Clause */
/* rates.h - how soon a rate is back after an outage: samples of what has arrived, and when. */
#ifndef BRAID_TOOLS_RATES_H
#define BRAID_TOOLS_RATES_H

#include <stdbool.h>
#include <stdint.h>

enum {
	RATES_LOOK_MS = 20,		/* between two samples */
	RATES_BACK_MS = 1000,		/* the rate is back if it is for so long ... */
	RATES_STAYS_MS = 3000,		/* ... and for so long */
	RATES_MAX = 32768,
};
#define RATES_GOAL 0.97			/* of the rate before */

struct rates {
	unsigned n, i;			/* samples; the next that rates_back() looks at */
	struct {
		uint64_t ns, bytes;
	} at[RATES_MAX];
};

void rates_add(struct rates *r, uint64_t ns, uint64_t bytes);	/* bytes: ever */
/* Mbit/s from sample i on, for so long; below 0: not known yet. */
double rates_from(const struct rates *r, unsigned i, unsigned ms);
/* True: the rate is back, from sample r->i on.  *ret: the last rate that is known. */
bool rates_back(struct rates *r, double before, double *ret);

/*
 * Is a rate steady?  Takes the rate of second after second; true once two in a row have been as
 * fast as the one before.  *last and *steady begin with 0.
 */
bool rates_steady(double now, double *last, unsigned *steady);

#endif
