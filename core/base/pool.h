/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pool.h - memory for messages that came before their receive was posted.
 *
 * When a link comes up, the peer gets a window: the bytes that it may send before a receive is
 * posted.  All windows of this process together never exceed the parameter `pool`.  Buffers have
 * sizes that are powers of two and come from free lists, so that after the first few messages the
 * data path allocates nothing.
 */
#ifndef BRAID_BASE_POOL_H
#define BRAID_BASE_POOL_H

#include <stddef.h>

/* Reserve up to `want` bytes for a window.  Returns the bytes reserved, perhaps 0. */
size_t braid_pool_promise(size_t want);
void braid_pool_unpromise(size_t bytes);

void *braid_pool_get(size_t size);	/* NULL: out of memory */
void braid_pool_put(void *buf, size_t size);
void braid_pool_trim(void);		/* return free buffers to malloc */

#endif
