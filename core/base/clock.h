/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * clock.h - a coarse clock for the data path.
 *
 * Milliseconds are good enough for the age of a message, so a data call reads no real clock: the
 * service thread sets this one every two to sixteen milliseconds while links are in use.
 */
#ifndef BRAID_BASE_CLOCK_H
#define BRAID_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern _Atomic uint64_t braid_clock;	/* ns, as braid_os->now_ns() */

uint64_t braid_clock_set(void);		/* to the present time, which it returns */

/* `asleep`: does the service thread sleep, so that it sets no clock? */
static inline uint64_t braid_clock_now(bool asleep)
{
	if (__builtin_expect(asleep, false))
		return braid_clock_set();
	return atomic_load_explicit(&braid_clock, memory_order_relaxed);
}

#endif
