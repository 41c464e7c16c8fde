/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bounce.h - registered memory that data is copied into before it is sent: data in memory that the
 * NIC can't read, and frames while their ring is not registered.
 *
 * The lanes of a port share its pieces, since few lanes need them at a time.  A lane takes a piece,
 * and gives it back once the NIC has sent it.  If none is free, the lane tries again later.
 *
 * A lane whose protection domain is its own shares none.  It has one piece, so that an idle link
 * has little memory registered, and gets the others once it sends.
 */
#ifndef BRAID_VERBS_BOUNCE_H
#define BRAID_VERBS_BOUNCE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "verbs/lib.h"

struct braid_ibport;

enum {
	BRAID_BOUNCES = 8,		/* pieces of a chunk, and the most that a lane has */
	BRAID_BOUNCE_CHUNKS = 8,	/* the first so many lanes bring one each */
};

struct braid_bounces {			/* zeroed: none */
	_Atomic uint64_t free;		/* one bit for each piece */
	pthread_mutex_t lock;		/* of the rest; only for jobs, which may hold it for long */
	unsigned lanes, nchunks;
	struct braid_bounce_chunk {
		char *at;
		size_t bytes;
		struct ibv_mr *mr;
	} chunk[BRAID_BOUNCE_CHUNKS];
};

void braid_bounces_init(struct braid_bounces *b);
/*
 * One more lane uses them, with the port's protection domain or, if it shares none, with its own.
 * 0, or -ENOMEM: no memory, or it can't be registered.  Only in jobs.
 */
int braid_bounces_join(struct braid_bounces *b, struct braid_ibport *p, struct ibv_pd *pd);
/* A lane sends.  If it shares none, register the pieces it lacks, if possible.  Only in jobs. */
void braid_bounces_use(struct braid_bounces *b, struct braid_ibport *p, struct ibv_pd *pd);
/* That lane is over, and has given back all its pieces.  They stay for later lanes. */
void braid_bounces_leave(struct braid_bounces *b);
void braid_bounces_free(struct braid_bounces *b);	/* no NIC reads them any more */

/* A piece of BRAID_SLOT bytes: its number, or -1: none is free.  Any thread. */
int braid_bounce_take(struct braid_bounces *b);
void braid_bounce_put(struct braid_bounces *b, int piece);
char *braid_bounce_at(const struct braid_bounces *b, int piece);
uint32_t braid_bounce_key(const struct braid_bounces *b, int piece);

#endif
