/* SPDX-License-Identifier: BSD-3-Clause */
/* pool.c - reserved bytes, and size classes of 256 bytes to 1 MiB with one free list each. */
#include "core/base/pool.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/os.h"
#include "core/base/param.h"

enum { SHIFT_MIN = 8, SHIFT_MAX = 20, CLASSES = SHIFT_MAX - SHIFT_MIN + 1 };

struct chunk {
	struct chunk *next;
};

static struct braid_lock lock;
static struct chunk *free_list[CLASSES];
static atomic_size_t promised;

static unsigned class_of(size_t size)
{
	unsigned c = 0;

	while (size > (size_t)1 << (SHIFT_MIN + c))
		c++;
	assert(c < CLASSES);
	return c;
}

size_t braid_pool_promise(size_t want)
{
	size_t cap = (size_t)braid_param.pool, old = atomic_load(&promised), got;

	do {
		got = old >= cap ? 0 : cap - old < want ? cap - old : want;
	} while (!atomic_compare_exchange_weak(&promised, &old, old + got));
	return got;
}

void braid_pool_unpromise(size_t bytes)
{
	atomic_fetch_sub(&promised, bytes);
}

void *braid_pool_get(size_t size)
{
	unsigned c = class_of(size);
	struct chunk *k;

	braid_lock_wait(&lock);		/* held for a few instructions */
	k = free_list[c];
	if (k)
		free_list[c] = k->next;
	braid_unlock(&lock);
	return k ? (void *)k : malloc((size_t)1 << (SHIFT_MIN + c));
}

void braid_pool_put(void *buf, size_t size)
{
	struct chunk *k = buf;
	unsigned c = class_of(size);

	if (!k)
		return;
	braid_lock_wait(&lock);
	k->next = free_list[c];
	free_list[c] = k;
	braid_unlock(&lock);
}

void braid_pool_trim(void)
{
	for (unsigned c = 0; c < CLASSES; c++) {
		struct chunk *k, *next;

		braid_lock_wait(&lock);
		k = free_list[c];
		free_list[c] = NULL;
		braid_unlock(&lock);
		for (; k; k = next) {
			next = k->next;
			free(k);
		}
	}
}
