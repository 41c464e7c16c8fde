/* SPDX-License-Identifier: BSD-3-Clause */
/* coll_int.h - what the files of coll.h share. */
#ifndef BRAID_SETUP_COLL_INT_H
#define BRAID_SETUP_COLL_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/list.h"
#include "core/rma/rma.h"
#include "core/proto/handle.h"
#include "core/setup/coll.h"

struct braid_listen;

struct braid_coll_peer {				/* a rank that operations were posted to */
	pthread_mutex_t lock;		/* before braid_svc.lock and a link's lock */
	struct braid_handle to;		/* without its token: */
	uint8_t *token;			/* core/base/secret.h */
	unsigned rank;
	struct braid_list early;	/* operations posted before there was a channel */
	_Atomic(struct braid_rma_channel *) ch;
	atomic_int err;			/* connect() failed, or a window of `early` was closed */
};

struct braid_coll {
	struct braid_rma rma;
	struct braid_listen *listen;
	unsigned refs;			/* of the listen and of the communicator, under `lock` */
	pthread_mutex_t lock;		/* guards what follows, where not atomic */
	struct braid_handle *handle;	/* of each rank, without its token: */
	uint8_t **token;		/* NULL: the rank has been dialled */
	_Atomic(struct braid_coll_peer *) *peer;
	atomic_int traffic_class;
	atomic_uint orders;
	atomic_uint nhere;		/* a hint: operations in `here` */
	struct braid_list heres, here;	/* operations of this rank on itself; not done, in order */
};

/* --- coll.c ---------------------------------------------------------------------------------- */

/* That rank, from now on one that operations are posted to; NULL: out of memory. */
struct braid_coll_peer *braid_coll_peer(struct braid_coll *coll, unsigned rank);
/* Move the connect to it on, if no other thread does. */
void braid_coll_peer_connect(struct braid_coll *coll, struct braid_coll_peer *p);

/* --- coll_here.c ----------------------------------------------------------------------------- */

/* Post an operation of this rank on itself. */
int braid_coll_put_here(struct braid_coll *coll, const struct braid_put *put,
			struct braid_rma_op **ret);
int braid_coll_get_here(struct braid_coll *coll, const struct braid_get *get,
			struct braid_rma_op **ret);
/* Move all of these on, and free one that is done. */
void braid_coll_here_move(struct braid_coll *coll);
void braid_coll_here_free(struct braid_coll *coll, struct braid_rma_op *op);
/* Give up those that use the window's memory; NULL: all. */
void braid_coll_here_drop(struct braid_coll *coll, const struct braid_rma_window *w);

#endif
