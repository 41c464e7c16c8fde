/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ring.h - ring all-reduce of floats, as two flows that follow each other.
 */
#ifndef BRAID_TOOLS_PERF_RING_H
#define BRAID_TOOLS_PERF_RING_H

#include "tools/perf/pump.h"

enum { RING_SLICE = 512 << 10 };	/* NCCL's step */

struct ring {				/* one channel: a ring over its own comm */
	int rank, n;
	float *data;			/* this channel's part of the vector */
	uint64_t elems;
	uint64_t slice;			/* in elements */
	uint64_t per_chunk;		/* slices */
	char *scratch;			/* depth slices */
	struct flow *tx, *rx;
};

uint64_t ring_scratch_bytes(uint64_t elems, int n, unsigned depth);

/* Aim both flows at one all-reduce of `elems` floats at `data`. */
void ring_aim(struct ring *r, float *data, uint64_t elems);

void ring_sum(float *to, const float *from, size_t n);

/* Test data: small integers, so that sums of floats are exact up to 256 ranks. */
void ring_fill(float *data, uint64_t elems, uint64_t at, int rank, uint32_t step);
/* How many elements are not the sum over all ranks. */
uint64_t ring_wrong(const float *data, uint64_t elems, uint64_t at, int n, uint32_t step);

#endif
