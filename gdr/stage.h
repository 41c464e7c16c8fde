/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stage.h - bytes into a GPU and out of it by the driver, through pinned memory of ours.
 *
 * NCCL's kernel may be spinning on the GPU until the very bytes are there.  So what a copy needs (a
 * stream that waits for no other, pinned memory, events) is made when memory of that GPU is first
 * registered, and a copy is calls that neither wait nor allocate: it is put under way, and asked
 * about later.  All of them are made under the GPU's primary context, whoever's is current, and
 * none is of a graph's that another thread may be capturing.
 *
 * The kernel may also be polling the flags of NCCL's LL and LL128 lines, and a copy by the driver
 * has no order.  So into a GPU the first 120 bytes of each 128 go in one copy and the last 8 in
 * another, behind it on the stream: a flag of LL128 is there after its payload, and aligned words
 * of 8 bytes, which LL's lines are made of, are never in both.  Lines are counted from where the
 * copy begins.
 *
 * BRAID_STAGE_SLOTS pieces may be under way for a GPU.  Any thread may call.
 */
#ifndef BRAID_GDR_STAGE_H
#define BRAID_GDR_STAGE_H

#include <stdbool.h>
#include <stddef.h>

enum { BRAID_STAGE_PIECE = 128 << 10, BRAID_STAGE_SLOTS = 8 };	/* 1 MiB for a GPU, pinned */

struct braid_stage;			/* of one GPU, shared by all who ask, counted */
struct braid_staged;			/* a piece that may be under way */

/* 0, or a negative errno, and *ret_why is the call of the driver's that failed. */
int braid_stage_get(int gpu, struct braid_stage **ret, const char **ret_why);
/* What is still under way after the last one keeps all of it. */
void braid_stage_put(struct braid_stage *s);
/* One more who asks, of what is there: put() is due. */
void braid_stage_hold(struct braid_stage *s);

/*
 * Between enter and leave, which takes *ret_mode, the thread's calls into the driver are made under
 * that GPU's primary context.  0, or a negative errno: then there is no leave.
 */
int braid_stage_enter(const struct braid_stage *s, int *ret_mode);
void braid_stage_leave(int mode);

/*
 * At most BRAID_STAGE_PIECE bytes of the GPU's, to or from our own, are put under way; `own` is
 * read at once, if it is.  -EAGAIN: all pieces are under way; -EIO: all are lost.
 */
int braid_stage_begin(struct braid_stage *s, char *at, const void *own, size_t len, bool to_gpu,
		      struct braid_staged **ret);
/* Is it over?  0, -EAGAIN, or how it failed. */
int braid_stage_look(struct braid_staged *p);
/* It has failed, and may be under way all the same: that can't be known any more. */
bool braid_stage_is_lost(const struct braid_staged *p);
/* Once over, and out of a GPU: what it brought. */
const void *braid_stage_bytes(const struct braid_staged *p);
/* The caller is done with it, even if it is not over: then nobody else gets it before. */
void braid_stage_end(struct braid_staged *p);

/*
 * What NICs have written into the GPU before is seen by it: the driver's own way, which waits for
 * them and for no kernel.  0 or a negative errno.
 */
int braid_stage_flush(struct braid_stage *s);

#endif
