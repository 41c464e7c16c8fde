/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slot.c - the slots by which immediate data names a put, in place of the headers of its chunks.
 *
 * The rank that puts takes a slot for a BULK operation, and frees both together.  The target keeps
 * for each slot what the headers of its chunks would say.  As a chunk may come before its
 * operation, on another lane, the uses of a slot are numbered: each has a *turn*.  Bytes of the
 * next turn are only counted until its operation comes.
 */
#include "core/rma/rma_int.h"

#include <errno.h>
#include <stdlib.h>

#include "core/proto/frame.h"

struct braid_rma_slot {
	uint8_t turn;			/* of the next operation that names the slot */
	bool named;			/* one has: context to size are that operation's */
	uint8_t context;
	uint32_t window, epoch;
	uint64_t offset, size;
	uint64_t early;			/* bytes of `turn` that came before its operation */
};

static uint8_t after(uint8_t turn)
{
	return (uint8_t)((turn + 1) % BRAID_RMA_TURNS);
}

/* --- at the rank that puts ----------------------------------------------------------------- */

void braid_rma_slot_take(struct braid_rma_channel *ch, struct braid_rma_op *op)
{
	unsigned slot;

	braid_assert_locked(&ch->comm->link->lock);
	if (!ch->takes_slots || ch->slots == UINT64_MAX)
		return;
	slot = (unsigned)__builtin_ctzll(~ch->slots);
	ch->slots |= 1ull << slot;
	op->x.imm = BRAID_XFER_BY_SLOT;
	op->x.slot = (uint8_t)slot;
	op->x.slot_turn = ch->turn[slot];
	op->h.id = BRAID_RMA_SLOT | (uint32_t)op->x.slot_turn << 8 | slot;
	ch->turn[slot] = after(ch->turn[slot]);
}

void braid_rma_slot_free(struct braid_rma_channel *ch, const struct braid_rma_op *op)
{
	braid_assert_locked(&ch->comm->link->lock);
	if (op->x.imm == BRAID_XFER_BY_SLOT)
		ch->slots &= ~(1ull << op->x.slot);
}

/* --- at the target ------------------------------------------------------------------------- */

/* NULL: out of memory. */
static struct braid_rma_slot *slot_at(struct braid_rma_channel *ch, unsigned slot)
{
	if (!ch->slot)
		ch->slot = calloc(BRAID_RMA_SLOTS, sizeof(*ch->slot));
	return ch->slot ? &ch->slot[slot] : NULL;
}

int braid_rma_slot_named(struct braid_rma_channel *ch, const struct braid_rma_hdr *h,
			 uint32_t epoch, uint64_t *ret_early)
{
	struct braid_rma_slot *s;

	braid_assert_locked(&ch->comm->link->lock);
	*ret_early = 0;
	if (!h->id)
		return 0;
	s = slot_at(ch, h->id & 0xff);
	if (!s)
		return -ENOMEM;
	if ((h->id >> 8 & 0xff) != s->turn || s->early > h->size)
		return -EBADMSG;
	*ret_early = s->early;
	*s = (struct braid_rma_slot){
		.turn = after(s->turn), .named = true, .context = h->context, .window = h->window,
		.epoch = epoch, .offset = h->offset, .size = h->size,
	};
	return 0;
}

int braid_rma_slot_hdr(struct braid_rma_channel *ch, unsigned slot, struct braid_hdr *h,
		       bool *ret_early)
{
	struct braid_rma_slot *s = slot < BRAID_RMA_SLOTS ? slot_at(ch, slot) : NULL;

	braid_assert_locked(&ch->comm->link->lock);
	if (!s)
		return slot < BRAID_RMA_SLOTS ? -ENOMEM : -EBADMSG;
	*ret_early = h->n == s->turn;
	if (*ret_early) {
		s->early += h->len;
		return 0;
	}
	if (!s->named || after((uint8_t)h->n) != s->turn || h->n >= BRAID_RMA_TURNS ||
	    h->len > s->size)
		return -EBADMSG;
	h->n = s->context;
	h->seq = s->epoch;
	h->tag = (int32_t)s->window;
	h->offset = s->offset;
	h->size = s->offset + h->len;
	return 0;
}
