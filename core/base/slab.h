/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slab.h - entries of one size, such as a comm's requests; it grows as more are in use at once.
 *
 * A comm may have 256 requests open and seldom has more than 32.  Room for all of them would be
 * most of the comm's memory, and most of the time to make a comm.  Entries come in blocks from the
 * pool (core/base/pool.h).  Their addresses never change.  The entry freed last is the next one
 * taken: it is still in the CPU's cache.
 */
#ifndef BRAID_BASE_SLAB_H
#define BRAID_BASE_SLAB_H

#include <stdbool.h>
#include <stddef.h>

struct braid_slab {			/* all zero: empty */
	void *free;			/* unused; the last word of each points to the next */
	void *blocks;
};

enum { BRAID_SLAB_BLOCK = 4096 };	/* bytes; 16 of them link the blocks */

/*
 * Add a block of zeroed entries of `size` bytes, a multiple of 8.  False: out of memory.  All calls
 * for one slab must pass the same size.
 */
bool braid_slab_grow(struct braid_slab *s, size_t size);
void braid_slab_end(struct braid_slab *s);	/* frees all entries */

static inline void **braid_slab_next(void *entry, size_t size)
{
	return (void **)(void *)((char *)entry + size - sizeof(void *));
}

/* Take an entry; NULL: out of memory.  The last word is undefined, the rest 0 or as last left. */
static inline void *braid_slab_get(struct braid_slab *s, size_t size)
{
	void *e;

	if (!s->free && !braid_slab_grow(s, size))
		return NULL;
	e = s->free;
	s->free = *braid_slab_next(e, size);
	return e;
}

static inline void braid_slab_put(struct braid_slab *s, void *entry, size_t size)
{
	*braid_slab_next(entry, size) = s->free;
	s->free = entry;
}

#endif
