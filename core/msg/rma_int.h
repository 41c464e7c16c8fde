/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_int.h - what the files of rma.h share; all with the link's lock held. */
#ifndef BRAID_MSG_RMA_INT_H
#define BRAID_MSG_RMA_INT_H

#include "core/link/lane.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/msg/comm.h"
#include "core/msg/msg_int.h"
#include "core/msg/rma.h"

/* --- rma.c ----------------------------------------------------------------------------------- */

/* Chunks may come on any lane, or no more than before. */
void braid_rma_spread(struct braid_rma_channel *ch, bool spread);

/* --- rma_post.c ------------------------------------------------------------------------------- */

int braid_rma_window_came(struct braid_lane *lane, struct braid_comm *c);
int braid_rma_closed_came(struct braid_lane *lane, struct braid_comm *c);
/* A chunk of a get begins, or is here. */
int braid_rma_got_begin(struct braid_lane *lane, struct braid_comm *c);
void braid_rma_got_end(struct braid_rma_channel *ch, struct braid_rma_op *op, uint32_t len);

/* --- rma_apply.c ------------------------------------------------------------------------------ */

/* An operation is here: 0, or -EBADMSG or -ENOMEM, and nothing was changed. */
int braid_rma_apply(struct braid_rma_channel *ch, const char *payload, size_t n);
/* Apply a signal of the channel's. */
int braid_rma_apply_signal(struct braid_rma_channel *ch, uint32_t window, uint64_t offset,
			   uint64_t value);
/* `len` bytes of chunks are here; or of a landing. */
int braid_rma_landed(struct braid_rma_channel *ch, uint8_t context, uint32_t epoch, uint64_t len);
int braid_rma_chunk_came(struct braid_rma_channel *ch, uint8_t context, uint32_t epoch, uint32_t len);
/* Is there a reply from the memory of `mr`; NULL: any? */
bool braid_rma_replies_use(const struct braid_rma_channel *ch, const struct braid_mr *mr);
/* Free replies that have been sent; all: the others, too, which no lane refers to. */
void braid_rma_replies_free(struct braid_rma_channel *ch, bool all);
void braid_rma_orders_free(struct braid_rma_channel *ch);

/* --- rma_gpu.c -------------------------------------------------------------------------------- */

/* Bring the bytes of an operation into a GPU.  0 or -ENOMEM. */
int braid_rma_land(struct braid_rma_channel *ch, struct braid_rma_window *w,
		   const struct braid_rma_hdr *h, uint32_t epoch, const char *bytes);
/* A NIC has written a chunk into a GPU: make the GPU see it.  0 or -ENOMEM. */
int braid_rma_land_written(struct braid_rma_channel *ch, struct braid_rma_window *w,
			   const struct braid_hdr *h);
/* Add to a word of a GPU's memory: 0 or -ENOMEM. */
int braid_rma_word_add(struct braid_rma *rma, struct braid_rma_window *window, uint64_t offset,
		       uint64_t value);
/* Move words on from now on, also if nobody calls. */
void braid_rma_deliver_soon(struct braid_rma_channel *ch);
/* Forget what goes to that window; NULL: to all, as the channel is closed. */
void braid_rma_landings_drop(struct braid_rma_channel *ch, const struct braid_rma_window *w);
void braid_rma_words_drop(struct braid_rma *rma, const struct braid_rma_window *window);
/* Move all of the link's; false: some are not over. */
bool braid_rma_deliver(struct braid_link *link);

#endif
