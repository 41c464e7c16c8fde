/* SPDX-License-Identifier: BSD-3-Clause */
/* ring.h - operations that kernel.c reads from a launch's work and ring.c executes. */
#ifndef BRAID_TESTS_NCCL_RING_H
#define BRAID_TESTS_NCCL_RING_H

#include "tests/nccl/gpu.h"

struct grid {				/* what all operations of a launch share */
	const struct nccl_device_comm *comm;
	struct nccl_channel *channels;
	const uint32_t *abort;
};

/* A step of the ring: does it receive, read user data at src, send, and store at dst? */
struct prim {
	bool recv, send, last;
	const char *src;		/* NULL: no user data is read */
	char *dst;
	size_t n;			/* elements */
};

enum moved { STUCK, MOVED, FINISHED };

struct op {
	struct nccl_conn *in, *out;	/* NULL: none */
	bool ll;
	unsigned slices, slice_steps;	/* of a chunk, of a slice */
	size_t step_elements;
	struct reduction reduction;
	size_t element;			/* bytes */

	/* returns the prim after the current one; false: there is none */
	bool (*next)(struct op *op, struct prim *ret);
	const struct grid *grid;
	const struct nccl_channel *channel;
	const int *ranks;
	int index, root;
	enum coll coll;
	char *input, *output;
	/* elements: in all, before this channel's part, of the part, of a chunk */
	size_t count, offset, part, chunk;
	size_t at;				/* into the part */
	int k;					/* which prim of the chunk */

	struct prim prim;
	bool busy;
	unsigned slice;
	size_t done;				/* of the prim, elements; of LL: lines */
	bool announced;				/* LL: the size is in the fifo */
};

void op_begin_coll(struct op *op, const struct grid *g, unsigned channel, const struct nccl_func *f,
	const char *item);
/* Begins a send and a receive; returns the number of operations, 0 to 2. */
unsigned op_begin_p2p(struct op *ops, const struct grid *g, unsigned channel, const char *item);
enum moved op_move(struct op *op);

#endif
