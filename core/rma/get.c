/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * get.c - gets, at the rank that wants the bytes.
 *
 * Where a NIC can read the target's window, it does, piece by piece, and the target's CPU takes no
 * part.  If a lane can't, or is lost on the way, the whole get is asked for by a frame instead, and
 * the target sends the bytes in chunks.
 */
#include "core/rma/rma_int.h"

#include <errno.h>

#include "core/link/reads.h"

/* --- read by NICs -------------------------------------------------------------------------- */

/* Ask for it by a frame, once no NIC writes there any more. */
static void ask(struct braid_rma_op *op)
{
	struct braid_rma_channel *ch = op->ch;

	op->by_frame = true;
	braid_list_del(&op->x.node);
	if (op->reading || braid_comm_drains(ch->comm))
		return;
	op->begun = op->cut = 0;
	op->sent = false;
	braid_list_add_tail(ch->queue.next, &op->x.node);	/* the first: gets have no order */
	braid_hint(&ch->waits, true);
	braid_link_stall(ch->comm->link);
	if (ch->comm->peer_closed)
		braid_comm_orphaned(ch->comm);
}

static bool get_cut(struct braid_lane *lane, struct braid_xfer *x)
{
	struct braid_rma_op *op = braid_container(x, struct braid_rma_op, x);
	uint64_t left = op->h.size - op->begun;
	uint32_t chunk = braid_link_chunk_len(lane->link, op->h.size), n;

	braid_assert_locked(&lane->link->lock);
	if (!braid_lane_can_read(lane, x)) {
		ask(op);
		return true;
	}
	n = braid_lane_read(lane, x, op->data + op->begun, op->h.offset + op->begun,
			    left < chunk ? (uint32_t)left : chunk);
	op->reading += n != 0;
	op->begun += n;
	if (op->begun == op->h.size)
		braid_list_del(&x->node);
	return n;
}

static void read_over(struct braid_xfer *x, uint32_t len, bool read)
{
	struct braid_rma_op *op = braid_container(x, struct braid_rma_op, x);

	braid_assert_locked(&op->ch->comm->link->lock);
	op->reading--;
	op->cut += len;
	if (!read || op->by_frame)
		ask(op);
	else if (op->cut == op->h.size)
		braid_xfer_part_done(x);
}

static const struct braid_xfer_ops reads = { .cut = get_cut, .read_over = read_over };

bool braid_rma_get_by_nic(struct braid_rma_channel *ch, struct braid_rma_op *op,
			  const struct braid_rma_remote *from)
{
	struct braid_link *link = ch->comm->link;

	braid_assert_locked(&link->lock);
	op->x.ops = &reads;
	op->x.to = from->to;
	if (op->by_frame || !braid_lane_can_read(braid_link_home(link), &op->x))
		return false;
	braid_link_pending(link, &op->x);
	return true;
}

/* --- sent by the target -------------------------------------------------------------------- */

/* Bytes of the get that lanes are receiving now. */
static uint64_t arriving(const struct braid_link *link, const struct braid_rma_op *op)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < link->nlanes; i++) {
		const struct braid_lane *lane = link->lane[i];

		if (lane->rx_kind == BRAID_RX_ENTRY && lane->rx_target == op)
			n += lane->rx_hdr.len;
	}
	return n;
}

int braid_rma_got_begin(struct braid_lane *lane, struct braid_comm *c)
{
	const struct braid_rma_channel *ch = c->channel;
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_rma_op *op;

	braid_list_for(op, &ch->gets, x.node) {
		if (op->h.id != h->seq)
			continue;
		/* More bytes than asked for could end the get while a lane still writes there. */
		if (h->flags || h->size > op->h.size ||
		    h->len > op->h.size - op->cut - arriving(lane->link, op))
			return -EBADMSG;
		lane->rx_kind = BRAID_RX_ENTRY;
		lane->rx_target = op;
		lane->rx_mr = op->mr->gpu ? op->mr : NULL;
		lane->rx_dst = op->data + h->offset;
		return lane->rx_mr && !lane->gpu ? braid_rx_stage(lane) : 0;
	}
	return -EBADMSG;
}

void braid_rma_got_end(struct braid_rma_channel *ch, struct braid_rma_op *op, uint32_t len)
{
	op->cut += len;
	if (op->cut < op->h.size)
		return;
	braid_list_del(&op->x.node);
	braid_rma_spread(ch, !braid_list_empty(&ch->gets));
	braid_xfer_part_done(&op->x);
}
