/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pool.h - memory for messages that came before their receive was posted.
 *
 * What peers may send unasked is promised to them as a window when a link comes up; the promises
 * of this process together never exceed the parameter `pool`.  Buffers come in powers of two from
 * free lists, so that after the first few messages the data path allocates nothing.
 */
#ifndef BRAID_CORE_POOL_H
#define BRAID_CORE_POOL_H

#include <stddef.h>

/* Promise up to `want` bytes: returns what is left of the pool, at most that; 0 is legal. */
size_t braid_pool_promise(size_t want);
void braid_pool_unpromise(size_t bytes);

void *braid_pool_get(size_t size);	/* NULL: out of memory */
void braid_pool_put(void *buf, size_t size);
void braid_pool_trim(void);		/* give free buffers back */

#endif
