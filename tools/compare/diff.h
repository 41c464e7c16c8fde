/* SPDX-License-Identifier: BSD-3-Clause */
/* diff.h - two series of samples, and whether they differ by chance. */
#ifndef BRAID_TOOLS_DIFF_H
#define BRAID_TOOLS_DIFF_H

#include <stdbool.h>

/* The median of n values, which stay unsorted; 0 if there are none. */
double diff_median(const double *v, unsigned n);

/*
 * The probability that b is as far above a as it is, if both come of one distribution (Mann and
 * Whitney's U; exact without ties up to 20 samples each, else by the normal distribution).
 */
double diff_chance_above(const double *a, unsigned na, const double *b, unsigned nb);

/*
 * The probability of samples as far apart, if b is not more than a by `threshold` (0.1: 10 %); or,
 * if `more` is false, not less by that.
 */
double diff_chance_beyond(const double *a, unsigned na, const double *b, unsigned nb, bool more,
			  double threshold);

/*
 * Holm's correction: with n figures, each probability gets what keeps the chance of any false
 * alarm among them all at the level asked for.  Orders p, and changes what it points to.
 */
void diff_holm(double **p, unsigned n);

/* Fewer samples on each side can't be sure at `alpha` among so many figures. */
unsigned diff_samples_least(unsigned figures, double alpha);

#endif
