/* SPDX-License-Identifier: BSD-3-Clause */
/* rma_int.h - what the files of core/rma share; with the link's lock held, but for word.c. */
#ifndef BRAID_RMA_RMA_INT_H
#define BRAID_RMA_RMA_INT_H

#include "core/link/control.h"
#include "core/link/lane.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/msg/comm.h"
#include "core/msg/kind.h"
#include "core/rma/rma.h"

/* NULL: the comm carries NCCL's messages. */
static inline struct braid_rma_channel *braid_rma_channel_of(const struct braid_comm *c)
{
	return c->kind ? c->channel : NULL;
}

/* Chunks may come on any lane, or no more than before. */
static inline void braid_rma_spread(struct braid_rma_channel *ch, bool spread)
{
	braid_assert_locked(&ch->comm->link->lock);
	if (spread && !ch->spread)
		braid_link_spread_begin(ch->comm->link);
	else if (!spread && ch->spread)
		braid_link_spread_end(ch->comm->link);
	ch->spread = spread;
}

/* The peer's NIC has not placed or read bytes: announce keys again if those it has are void. */
static inline void braid_rma_keys_due(struct braid_rma_channel *ch)
{
	struct braid_link *link = ch->comm->link;

	if (!ch->placed || ch->rkey_epoch == braid_link_rkey_epoch(link))
		return;
	braid_comm_control_due(ch->comm);
	braid_link_urge(link);
}

/* --- post.c ----------------------------------------------------------------------------------- */

/*
 * Count operations that are over, and keep them to be used again: test() takes no lock for that.
 * all: also those behind one that is not over.
 */
void braid_rma_take_back(struct braid_rma_channel *ch, bool all);
bool braid_rma_waits(const struct braid_comm *c, struct braid_waiting *ret);
int braid_rma_window_came(struct braid_lane *lane, struct braid_comm *c);
int braid_rma_closed_came(struct braid_lane *lane, struct braid_comm *c);

/* --- get.c ------------------------------------------------------------------------------------ */

/* Have NICs read the bytes of a get; false: home can't, so ask for them by a frame. */
bool braid_rma_get_by_nic(struct braid_rma_channel *ch, struct braid_rma_op *op,
			  const struct braid_rma_remote *from);
/* A chunk of a get begins, or is here. */
int braid_rma_got_begin(struct braid_lane *lane, struct braid_comm *c);
void braid_rma_got_end(struct braid_rma_channel *ch, struct braid_rma_op *op, uint32_t len);

/* --- window.c --------------------------------------------------------------------------------- */

bool braid_rma_announce(struct braid_comm *c);	/* false: no room for all */

/* --- apply.c ---------------------------------------------------------------------------------- */

/*
 * A frame's operations are here: 0, or -EBADMSG or -ENOMEM.  Then the operation that failed has
 * changed nothing; those before it in the frame are applied.
 */
int braid_rma_apply(struct braid_rma_channel *ch, const char *payload, size_t n);
/* Is there a reply from the memory of `mr`? */
bool braid_rma_replies_use(const struct braid_rma_channel *ch, const struct braid_mr *mr);
/* Let those that are sent, or queued, need it no more, where that can be. */
void braid_rma_replies_copy(struct braid_rma_channel *ch, const struct braid_mr *mr);
/* Free replies that have been sent; all: the others, too, which no lane refers to. */
void braid_rma_replies_free(struct braid_rma_channel *ch, bool all);

/* --- slot.c ----------------------------------------------------------------------------------- */

/* Give a BULK operation a slot, if the target takes slots and one is free: op->h.id. */
void braid_rma_slot_take(struct braid_rma_channel *ch, struct braid_rma_op *op);
/* The operation is over. */
void braid_rma_slot_free(struct braid_rma_channel *ch, const struct braid_rma_op *op);
/*
 * An operation that came may name a slot; `epoch`: of its bytes.  *ret_early: the bytes that came
 * before it.  0, -EBADMSG or -ENOMEM.
 */
int braid_rma_slot_named(struct braid_rma_channel *ch, const struct braid_rma_hdr *h,
			 uint32_t epoch, uint64_t *ret_early);
/*
 * Fill in the header of a chunk that came with immediate data.  It begins at its put's offset:
 * where in the put its bytes lie, nothing says.  *ret_early: its operation is not here yet, and
 * will count it.  0, -EBADMSG or -ENOMEM.
 */
int braid_rma_slot_hdr(struct braid_rma_channel *ch, unsigned slot, struct braid_hdr *h,
		       bool *ret_early);

/* --- order.c: 0, -EBADMSG or -ENOMEM ---------------------------------------------------------- */

/* NULL: out of memory. */
struct braid_rma_order *braid_rma_order_of(struct braid_rma_channel *ch, uint8_t context);
/* The number of the present epoch. */
uint32_t braid_rma_epoch(const struct braid_rma_order *o);
/* It also waits for so many bytes of a landing; of an operation's chunks. */
int braid_rma_expect(struct braid_rma_order *o, uint64_t bytes);
int braid_rma_bulk(struct braid_rma_channel *ch, struct braid_rma_order *o,
		   const struct braid_rma_hdr *h);
/* They are where they go, and may be seen. */
int braid_rma_landed(struct braid_rma_channel *ch, uint8_t context, uint32_t epoch, uint64_t len);
/* A chunk is here: no lane is to bring it any more. */
void braid_rma_chunk_came(struct braid_rma_channel *ch, uint32_t len);
/* An ORDERED signal ends the present epoch. */
int braid_rma_end_epoch(struct braid_rma_channel *ch, struct braid_rma_order *o,
			const struct braid_rma_hdr *h);
/* Apply a signal of the channel's now. */
int braid_rma_apply_signal(struct braid_rma_channel *ch, uint32_t window, uint64_t offset,
			   uint64_t value);
void braid_rma_orders_free(struct braid_rma_channel *ch);

/* --- land.c ----------------------------------------------------------------------------------- */

/* Bring the bytes of an operation into a GPU.  0 or -ENOMEM. */
int braid_rma_land(struct braid_rma_channel *ch, struct braid_rma_window *w,
		   const struct braid_rma_hdr *h, uint32_t epoch, const char *bytes);
/*
 * Bytes of a put are in its window; NULL: it is closed.  by_nic: a NIC wrote them, so that a GPU
 * may not see them yet.  h: len, offset, n and seq of a chunk.  0, -EBADMSG or -ENOMEM.
 */
int braid_rma_chunk_is_here(struct braid_rma_channel *ch, struct braid_rma_window *w,
			    const struct braid_hdr *h, bool by_nic);
/* Move the channel's landings on, and all words; false: some are not over. */
bool braid_rma_landings_move(struct braid_rma_channel *ch);
/* Forget what goes to that window; NULL: to all, as the channel is closed. */
void braid_rma_landings_drop(struct braid_rma_channel *ch, const struct braid_rma_window *w);

/* --- word.c ----------------------------------------------------------------------------------- */

/* Let the CPU reach the words of a GPU's window, if it holds any and GDRCopy can. */
void braid_rma_words_map(const struct braid_rma *rma, struct braid_rma_window *window);
/* Add to a word of a GPU's memory: 0 or -ENOMEM. */
int braid_rma_word_add(struct braid_rma *rma, struct braid_rma_window *window, uint64_t offset,
		       uint64_t value);
/* Forget its words, and undo what was made for them.  What the CPU has written there is there. */
void braid_rma_words_drop(struct braid_rma *rma, struct braid_rma_window *window);

#endif
