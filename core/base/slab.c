/* SPDX-License-Identifier: BSD-3-Clause */
/* slab.c - blocks of entries; see slab.h. */
#include "core/base/slab.h"

#include <string.h>

#include "core/base/pool.h"

enum { LINK = 16 };			/* keeps entries aligned */

bool braid_slab_grow(struct braid_slab *s, size_t size)
{
	char *block = braid_pool_get(BRAID_SLAB_BLOCK);

	if (!block)
		return false;
	memset(block, 0, BRAID_SLAB_BLOCK);
	*(void **)(void *)block = s->blocks;
	s->blocks = block;
	/* From the end, so that entries are taken in the order of their addresses. */
	for (size_t n = (BRAID_SLAB_BLOCK - LINK) / size; n-- > 0; )
		braid_slab_put(s, block + LINK + n * size, size);
	return true;
}

void braid_slab_end(struct braid_slab *s)
{
	while (s->blocks) {
		void *next = *(void **)s->blocks;

		braid_pool_put(s->blocks, BRAID_SLAB_BLOCK);
		s->blocks = next;
	}
	s->free = NULL;
}
