/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * window.h - how many bytes a sender may send before their receives are posted.
 *
 * Each comm has BRAID_FLOOR bytes of its own; what it uses beyond that comes out of a window that
 * all comms of the link share.  Both ends count the same: `own` the comm's bytes, `shared` those
 * of the link's comms beyond their floors, `window` the limit of these.
 */
#ifndef BRAID_MSG_WINDOW_H
#define BRAID_MSG_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "core/msg/comm.h"

/* The part of `bytes` that is not within the comm's floor. */
static inline uint64_t braid_window_over(uint64_t bytes)
{
	return bytes > BRAID_FLOOR ? bytes - BRAID_FLOOR : 0;
}

/* The part of a message that uses the link's shared window. */
static inline uint64_t braid_window_more(uint64_t own, uint64_t size)
{
	return braid_window_over(own + size + BRAID_UNEXP_COST) - braid_window_over(own);
}

static inline bool braid_window_has(uint64_t own, uint64_t shared, uint64_t window, uint64_t size)
{
	uint64_t more = braid_window_more(own, size);

	return !more || shared + more <= window;
}

static inline bool braid_window_take(uint64_t *own, uint64_t *shared, uint64_t window,
				     uint64_t size)
{
	if (!braid_window_has(*own, *shared, window, size))
		return false;
	*shared += braid_window_more(*own, size);
	*own += size + BRAID_UNEXP_COST;
	return true;
}

static inline void braid_window_give(uint64_t *own, uint64_t *shared, uint64_t size)
{
	uint64_t before = braid_window_over(*own);

	*own -= size + BRAID_UNEXP_COST;
	*shared -= before - braid_window_over(*own);
}

#endif
