/* SPDX-License-Identifier: BSD-3-Clause */
/* bounce.c - see bounce.h. */
#include "verbs/bounce.h"

#include <assert.h>
#include <errno.h>
#include <sys/mman.h>

#include "verbs/mr.h"
#include "verbs/port.h"
#include "verbs/recv.h"

static_assert(BRAID_BOUNCES * BRAID_BOUNCE_CHUNKS <= 64, "one bit for each piece");

static void chunk_free(struct braid_bounce_chunk *c)
{
	if (c->mr)
		braid_ibv.dereg_mr(c->mr);
	munmap(c->at, c->bytes);
}

/* One more chunk, of n pieces. */
static int grow(struct braid_bounces *b, struct braid_ibport *p, struct ibv_pd *pd, unsigned n)
{
	struct braid_bounce_chunk *c = &b->chunk[b->nchunks];
	size_t bytes = (size_t)n * BRAID_SLOT;
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return -ENOMEM;
	c->at = at;
	c->bytes = bytes;
	c->mr = braid_ibport_own(p, pd, at, bytes, 0);
	if (!c->mr) {
		chunk_free(c);
		return -ENOMEM;
	}
	atomic_fetch_or(&b->free, ((UINT64_C(1) << n) - 1) << (b->nchunks++ * BRAID_BOUNCES));
	return 0;
}

void braid_bounces_init(struct braid_bounces *b)
{
	pthread_mutex_init(&b->lock, NULL);
}

int braid_bounces_join(struct braid_bounces *b, struct braid_ibport *p, struct ibv_pd *pd)
{
	int err = 0;

	pthread_mutex_lock(&b->lock);
	if (b->nchunks < BRAID_BOUNCE_CHUNKS && b->nchunks <= b->lanes)
		err = grow(b, p, pd, pd == p->pd ? BRAID_BOUNCES : 1);
	if (!err)
		b->lanes++;
	pthread_mutex_unlock(&b->lock);
	return err;
}

void braid_bounces_use(struct braid_bounces *b, struct braid_ibport *p, struct ibv_pd *pd)
{
	pthread_mutex_lock(&b->lock);
	if (pd != p->pd && b->nchunks == 1)
		(void)grow(b, p, pd, BRAID_BOUNCES - 1);
	pthread_mutex_unlock(&b->lock);
}

void braid_bounces_leave(struct braid_bounces *b)
{
	pthread_mutex_lock(&b->lock);
	b->lanes--;
	pthread_mutex_unlock(&b->lock);
}

void braid_bounces_free(struct braid_bounces *b)
{
	while (b->nchunks)
		chunk_free(&b->chunk[--b->nchunks]);
	pthread_mutex_destroy(&b->lock);
}

int braid_bounce_take(struct braid_bounces *b)
{
	uint64_t free = atomic_load(&b->free);

	while (free && !atomic_compare_exchange_weak(&b->free, &free, free & (free - 1)))
		;
	return free ? __builtin_ctzll(free) : -1;
}

void braid_bounce_put(struct braid_bounces *b, int piece)
{
	atomic_fetch_or(&b->free, UINT64_C(1) << piece);
}

char *braid_bounce_at(const struct braid_bounces *b, int piece)
{
	return b->chunk[piece / BRAID_BOUNCES].at + piece % BRAID_BOUNCES * BRAID_SLOT;
}

uint32_t braid_bounce_key(const struct braid_bounces *b, int piece)
{
	return b->chunk[piece / BRAID_BOUNCES].mr->lkey;
}
