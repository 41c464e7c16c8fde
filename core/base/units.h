/* SPDX-License-Identifier: BSD-3-Clause */
/* units.h - milliseconds and seconds in nanoseconds. */
#ifndef BRAID_BASE_UNITS_H
#define BRAID_BASE_UNITS_H

#include <stdint.h>

#define MS 1000000ull
#define SEC 1000000000ull

static inline uint64_t seconds(uint64_t ns)
{
	return (ns + SEC / 2) / SEC;
}

#endif
