/* SPDX-License-Identifier: BSD-3-Clause */
/* units.h - times of the set-up, in nanoseconds. */
#ifndef BRAID_SETUP_UNITS_H
#define BRAID_SETUP_UNITS_H

#include <stdint.h>

#define MS 1000000ull
#define SEC 1000000000ull

static inline uint64_t seconds(uint64_t ns)
{
	return (ns + SEC / 2) / SEC;
}

#endif
