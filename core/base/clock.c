/* SPDX-License-Identifier: BSD-3-Clause */
/* clock.c - see clock.h. */
#include "core/base/clock.h"

#include "core/base/os.h"

_Atomic uint64_t braid_clock;

uint64_t braid_clock_set(void)
{
	uint64_t now = braid_os->now_ns();

	atomic_store_explicit(&braid_clock, now, memory_order_relaxed);
	return now;
}
