/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stage.h - copy bytes into a GPU and out of it with the driver, through pinned memory of ours.
 *
 * NCCL's kernel may be spinning on the GPU until these very bytes arrive.  So what a copy needs (a
 * stream that waits for no other, pinned memory, events) is made when memory of that GPU is first
 * registered.  A copy itself only makes calls that neither wait nor allocate: it is started, and
 * polled later.  The calls are made under the GPU's primary context, whatever context is current,
 * and do not disturb a graph that another thread is capturing.
 *
 * The kernel may also be polling the flags of NCCL's LL and LL128 lines, and one copy by the driver
 * writes its bytes in no certain order.  So into a GPU the first 120 bytes of each 128 go in one
 * copy, and the last 8 in another behind it on the stream: a flag of LL128 arrives after its
 * payload.  An aligned word of 8 bytes, of which LL's lines are made, is never split between the
 * two.  Lines are counted from where the copy begins.
 *
 * BRAID_STAGE_SLOTS pieces may be under way for a GPU.  Any thread may call.
 */
#ifndef BRAID_GDR_STAGE_H
#define BRAID_GDR_STAGE_H

#include <stdbool.h>
#include <stddef.h>

enum { BRAID_STAGE_PIECE = 128 << 10, BRAID_STAGE_SLOTS = 8 };	/* 1 MiB for a GPU, pinned */

struct braid_stage;			/* for one GPU; its users share it and are counted */
struct braid_staged;			/* one copy of at most BRAID_STAGE_PIECE bytes */

/* 0, or a negative errno, and *ret_why names the driver's call that failed. */
int braid_stage_get(int gpu, struct braid_stage **ret, const char **ret_why);
/* The last user's put frees the stage, unless a piece is still under way. */
void braid_stage_put(struct braid_stage *s);
/* Adds a user to a stage that the caller already holds; each user calls put(). */
void braid_stage_hold(struct braid_stage *s);

/*
 * Between enter() and leave(), this thread's calls into the driver are made under that GPU's
 * primary context.  enter() returns 0, or a negative errno: then leave() must not follow.  leave()
 * takes *ret_mode.
 */
int braid_stage_enter(const struct braid_stage *s, int *ret_mode);
void braid_stage_leave(int mode);

/*
 * Start a copy of at most BRAID_STAGE_PIECE bytes into or out of the GPU.  A copy into it has read
 * `own` when the call returns.  -EAGAIN: all pieces are under way; -EIO: all are lost.
 */
int braid_stage_begin(struct braid_stage *s, char *at, const void *own, size_t len, bool to_gpu,
		      struct braid_staged **ret);
/* Is the copy over?  0, -EAGAIN, or how it failed. */
int braid_stage_test(struct braid_staged *p);
/* Has the copy failed in such a way that it may still be under way? */
bool braid_stage_is_lost(const struct braid_staged *p);
/* The bytes of a copy out of a GPU, once it is over. */
const void *braid_stage_bytes(const struct braid_staged *p);
/* The caller is done with the piece.  It is reused only after its copy is over. */
void braid_stage_end(struct braid_staged *p);

/*
 * Make what NICs have written into the GPU visible to it, by the driver's own flush.  This waits
 * for these writes, and perhaps for other calls of the driver (gdr/cuda.h).  0 or a negative errno.
 */
int braid_stage_flush(struct braid_stage *s);

#endif
