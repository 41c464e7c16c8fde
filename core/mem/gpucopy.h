/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpucopy.h - copies between host memory and GPU memory, which the CPU never touches.
 *
 * The NICs of the device are tried first: their writes reach the GPU in the same order as a peer's.
 * If no NIC can copy, for instance because its device is gone, the driver does (gdr/stage.h).  A
 * call waits some microseconds at most, and the caller calls again.  While a copy is in progress,
 * the service thread advances its link if no data call does.
 */
#ifndef BRAID_MEM_GPUCOPY_H
#define BRAID_MEM_GPUCOPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/transport.h"

struct braid_mr;
struct braid_staged;

struct braid_gpucopy {
	const struct braid_mr *mr;	/* NULL: no copy is in progress */
	const struct braid_mr *of;	/* as mr, but kept when the copy has ended */
	atomic_uint *copies;
	struct braid_gpu_copy left;
	unsigned copier;		/* the one that is tried now */
	struct braid_staged *piece;	/* the driver's piece in flight; or NULL */
	size_t piece_len;
	bool lost;			/* the driver failed, but may still write there */
	uint64_t until_ns;		/* the driver's deadline; 0: not tried yet */
	int nic_err, stage_err;		/* why NIC and driver failed */
};

/* `copies` counts the copies in progress; it outlives this one. */
void braid_gpucopy_begin(struct braid_gpucopy *c, atomic_uint *copies, const struct braid_mr *mr,
			 char *at, void *own, size_t len, bool to_gpu);
/* 0: done; -EAGAIN: not yet; else neither can copy.  Except at -EAGAIN, c->mr is then NULL. */
int braid_gpucopy_move(struct braid_gpucopy *c);
/*
 * Abandon a copy, if one is in progress.  A NIC that does not finish soon loses its queue pair, so
 * afterwards it touches neither memory.  A driver that does not finish the piece in flight within a
 * few seconds may still copy it: a WARN says so.
 */
void braid_gpucopy_end(struct braid_gpucopy *c);

#endif
