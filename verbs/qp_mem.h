/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * qp_mem.h - the registered memory of a queue pair: receive slots, the words that the peer
 * writes, pieces to copy data into, and the lane's send ring.
 *
 * A key works on every queue pair of its protection domain.  With BRAID_RDMA_STRICT a lane's queue
 * pair has a domain of its own, which holds this memory and nothing else: no key that a peer learns
 * or guesses opens the user's memory, or another lane's.
 */
#ifndef BRAID_VERBS_QP_MEM_H
#define BRAID_VERBS_QP_MEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/mem/later.h"
#include "verbs/port.h"
#include "verbs/recv.h"

struct braid_qp;

enum {
	BRAID_ACK_WINDOW = 3,		/* index in `ack` of the window, if that has grown */
	BRAID_ACK_OUT = 16,		/* index in `ack` of our words for the peer's `ack` */
};

/* Registered memory of one queue pair; the port keeps it for the next queue pair. */
struct braid_qp_memory {
	struct braid_qp_memory *next;
	struct ibv_pd *pd;		/* the port's, or its own: BRAID_RDMA_STRICT */
	struct braid_slots *slots;	/* NULL: it receives from a shared queue */
	struct braid_slots *more;	/* the others, of a lane that began with few: grow.h */
	struct braid_bounces *bounces;	/* the port's, or its own; NULL: it needs none */
	struct braid_bounces own;
	_Atomic uint32_t *ack;		/* words that the peer writes: frames that it has received;
					 * slots that it has posted again, plus 1; on a link with
					 * checksums, the CRC32C of both; its window */
	struct ibv_mr *ack_mr;
};

/*
 * A lane's send ring.  While it is registered, the NIC reads it by itself; else, what is too large
 * to be sent inline is copied before.
 */
struct braid_ring {
	struct braid_ring *next;
	struct braid_qp *qp;
	char *at;
	size_t size;
	_Atomic(struct ibv_mr *) mr;	/* NULL: not registered */
	bool rests;			/* its next use registers it; under the link's lock */
	atomic_bool busy;		/* its job is not over */
	struct braid_job job;
	struct ibv_mr *old;		/* which that job deregisters */
};

/*
 * Memory that an earlier lane left, or new memory, whose pinning may take long.  slots: for
 * receives that are not shared.  loop: for a queue pair that is its own peer, uses the port's
 * protection domain and copies nothing.  NULL: no memory can be allocated or registered.
 */
struct braid_qp_memory *braid_qp_memory(struct braid_ibport *p, bool slots, bool loop);
/* Keeps the memory for a later lane, or frees it.  No queue pair may use it any more. */
void braid_qp_memory_put(struct braid_ibport *p, struct braid_qp_memory *m);

/* Makes this the ring to send from, not yet registered.  0 or -ENOMEM. */
int braid_qp_ring(struct braid_qp *w, char *ring, size_t size);
/* It is used again: if it rests, a job registers it. */
void braid_qp_ring_use(struct braid_qp *w);
/*
 * The lane is at rest: jobs deregister its rings, if all its requests are `done`.  True: no ring is
 * registered, or will be before it is used again.
 */
bool braid_qp_rings_rest(struct braid_qp *w, bool done);
/* Frees all rings.  No job of theirs may be left. */
void braid_qp_rings_free(struct braid_qp *w);

#endif
