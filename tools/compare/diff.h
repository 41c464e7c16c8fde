/* SPDX-License-Identifier: BSD-3-Clause */
/* diff.h - two series of samples, and whether they differ by chance. */
#ifndef BRAID_TOOLS_DIFF_H
#define BRAID_TOOLS_DIFF_H

/* The median of n values, which stay unsorted; 0 if there are none. */
double diff_median(const double *v, unsigned n);

/*
 * The probability that two series of one distribution are as far apart as these (Mann-Whitney's U,
 * two-sided; exact without ties up to 20 samples each, else by the normal distribution).
 */
double diff_chance(const double *a, unsigned na, const double *b, unsigned nb);

#endif
