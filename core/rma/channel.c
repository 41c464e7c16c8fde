/* SPDX-License-Identifier: BSD-3-Clause */
/* channel.c - the channels of a communicator, and the frames that arrive on them; see rma.h. */
#include "core/rma/rma_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/link/reads.h"
#include "core/link/recover.h"

void braid_rma_start(struct braid_rma *rma, struct braid_dev *dev)
{
	memset(rma, 0, sizeof(*rma));
	rma->dev = dev;
	braid_list_init(&rma->channels);
	braid_list_init(&rma->lost);
	braid_list_init(&rma->words);
}

void braid_rma_end(struct braid_rma *rma)
{
	free(rma->closed);
	rma->closed = NULL;
}

/*
 * Replies do not count: a rank that closes may know that another has got all before that rank's
 * acknowledgement is here, and BYE ends gets that are not done.
 */
static bool unfinished(const struct braid_comm *c)
{
	const struct braid_rma_channel *ch = c->channel;
	const struct braid_rma_op *op;

	braid_assert_locked(&c->link->lock);
	braid_list_for(op, &ch->ops, node) {
		if (!atomic_load(&op->done))
			return true;
	}
	return ch->due != 0;
}

/* Puts that are all sent have arrived, or FAIL would have come first. */
static bool orphans(const struct braid_comm *c)
{
	const struct braid_rma_channel *ch = c->channel;
	const struct braid_rma_op *op;

	braid_assert_locked(&c->link->lock);
	braid_list_for(op, &ch->ops, node) {
		if (!atomic_load(&op->done) && !braid_list_empty(&op->x.node))
			return true;
	}
	return false;
}

/* Not before connect() has returned it: that may go on by another link, here or at the peer. */
static bool is_used(const struct braid_rma_channel *ch)
{
	return ch->comm->sender ? atomic_load(&ch->adopted) : ch->next_seq != 0;
}

static void failed(struct braid_comm *c, int err)
{
	const struct braid_rma_channel *ch = c->channel;
	struct braid_rma *rma = ch->rma;
	int none = 0;

	if (c->closed || !is_used(ch))
		return;
	if (c->peer_closed && !unfinished(c))	/* that rank is done, and ended before this one */
		return;
	atomic_store(&rma->failed, c);
	atomic_compare_exchange_strong(&rma->err, &none, err);
}

void braid_rma_adopt(struct braid_rma_channel *ch, unsigned rank)
{
	int err = atomic_load(&ch->comm->err);

	braid_assert_locked(&ch->comm->link->lock);
	ch->rank = (int)rank;
	atomic_store(&ch->adopted, true);
	if (err)
		failed(ch->comm, err);
}

int braid_rma_error(struct braid_comm *c)
{
	int err = atomic_load_explicit(&c->err, memory_order_acquire);

	if (!err)
		return 0;
	braid_lock_wait(&c->link->lock);
	braid_comm_report(c, err);
	braid_unlock(&c->link->lock);
	return err;
}

static bool is_reading(const struct braid_lane *lane, const struct braid_comm *c)
{
	return braid_lane_is_reading(lane, c->id);
}

static void forget(struct braid_comm *c)
{
	struct braid_rma_channel *ch = c->channel;
	struct braid_rma_op *op;

	braid_assert_locked(&c->link->lock);
	if (ch->placed)
		braid_link_revoke(c->link, NULL, c);
	ch->placed = 0;
	braid_link_revoke(c->link, is_reading, c);
	braid_link_forget_reads(c->link, c->id);
	braid_list_for(op, &ch->ops, node)
		braid_list_del(&op->x.node);
	braid_rma_replies_free(ch, true);
	braid_rma_landings_drop(ch, NULL);
	braid_rma_spread(ch, false);
}

static void leave(struct braid_comm *c)
{
	struct braid_rma_channel *ch = c->channel;
	struct braid_rma *rma = ch->rma;
	struct braid_rma_op *op, *tmp;

	braid_assert_locked(&c->link->lock);
	if (!rma)
		return;
	braid_lock_wait(&rma->lock);
	braid_list_del(&ch->node);
	if (atomic_load(&rma->failed) == c)
		atomic_store(&rma->failed, NULL);
	forget(c);
	braid_rma_take_back(ch, true);
	braid_list_for_safe(op, tmp, &ch->ops, node) {
		braid_list_del(&op->node);
		braid_list_add_tail(&rma->lost, &op->node);
	}
	braid_unlock(&rma->lock);
	ch->rma = NULL;
}

static void channel_free(struct braid_comm *c)
{
	struct braid_rma_channel *ch = c->channel;
	struct braid_rma_op *op, *tmp;

	leave(c);
	braid_list_for_safe(op, tmp, &ch->spare, node)
		free(op);
	braid_rma_orders_free(ch);
	free(ch->remote);
	free(ch->slot);
	free(ch->scratch);
	free(ch);
}

/* --- frames that arrive -------------------------------------------------------------------- */

static int begin_op(struct braid_lane *lane, struct braid_comm *c)
{
	struct braid_rma_channel *ch = c->channel;
	const struct braid_hdr *h = &lane->rx_hdr;

	if (c->sender || h->seq != ch->next_seq || h->flags || h->len > BRAID_COPY_MAX)
		return -EBADMSG;
	ch->next_seq++;
	if (!ch->scratch)
		ch->scratch = malloc(BRAID_COPY_MAX);
	if (!ch->scratch)
		return -ENOMEM;
	lane->rx_kind = BRAID_RX_UNEXP;
	lane->rx_target = ch;
	lane->rx_dst = ch->scratch;
	return 0;
}

static bool rx_fast(struct braid_comm *c, const struct braid_hdr *h, const char *payload)
{
	struct braid_rma_channel *ch = c->channel;

	braid_assert_locked(&c->link->lock);
	if (c->sender || h->seq != ch->next_seq || h->flags || h->len > BRAID_COPY_MAX ||
	    braid_comm_drains(c))
		return false;
	ch->err = braid_rma_apply(ch, payload, h->len);
	if (ch->err)
		return false;		/* rx_end fails the comm */
	ch->next_seq++;
	return true;
}

/* Where a chunk of a put goes; *ret_window NULL: its window is closed.  0, or -EBADMSG. */
static int chunk_place(const struct braid_comm *c, const struct braid_hdr *h,
		       struct braid_rma_window **ret_window)
{
	const struct braid_rma_channel *ch = c->channel;
	struct braid_rma_window *w = braid_rma_window(ch->rma, (uint32_t)h->tag);

	*ret_window = w;
	if (w && !braid_rma_is_in(w->size, h->offset, h->len))
		return -EBADMSG;
	if ((uint32_t)h->tag >= ch->announced)
		return -EBADMSG;
	return h->flags & BRAID_FLAG_PLACED && (!w || !ch->placed) ? -EBADMSG : 0;
}

static int begin_chunk(struct braid_lane *lane, struct braid_comm *c)
{
	struct braid_rma_window *w;
	int err;

	if (c->sender)
		return braid_rma_got_begin(lane, c);
	err = chunk_place(c, &lane->rx_hdr, &w);
	if (err)
		return err;
	lane->rx_kind = BRAID_RX_ENTRY;
	lane->rx_target = w;
	lane->rx_mr = w && w->mr->gpu ? w->mr : NULL;
	lane->rx_dst = w ? w->data + lane->rx_hdr.offset : NULL;
	return lane->rx_mr && !lane->gpu ? braid_rx_stage(lane) : 0;
}

static int rx_imm(struct braid_lane *lane, struct braid_comm *c, unsigned slot)
{
	struct braid_rma_channel *ch = c->channel;
	bool early;
	int err;

	braid_assert_locked(&c->link->lock);
	err = ch->placed ? braid_rma_slot_hdr(ch, slot, &lane->rx_hdr, &early) : -EBADMSG;
	return err || early ? err : begin_chunk(lane, c);
}

static char *rx_place(const struct braid_lane *lane, const struct braid_comm *c,
		      const struct braid_hdr *h, const struct braid_mr **ret_gpu)
{
	struct braid_rma_window *w;

	braid_assert_locked(&c->link->lock);
	if (c->sender || chunk_place(c, h, &w) || !w)
		return NULL;
	*ret_gpu = w->mr->gpu ? w->mr : NULL;
	return !*ret_gpu || lane->gpu ? w->data + h->offset : NULL;
}

static int rx_begin(struct braid_lane *lane, struct braid_comm *c)
{
	braid_assert_locked(&c->link->lock);
	if (braid_comm_drains(c))
		return 0;
	switch (lane->rx_hdr.type) {
	case BRAID_F_EAGER:
		return begin_op(lane, c);
	case BRAID_F_CHUNK:
		return begin_chunk(lane, c);
	case BRAID_F_CREDIT:
		if (!c->sender)
			return -EBADMSG;
		lane->rx_kind = BRAID_RX_CTL;
		lane->rx_dst = (char *)lane->rx_ctl;
		return 0;
	case BRAID_F_RETIRE:
		return braid_rma_closed_came(lane, c);
	default:
		return -EBADMSG;
	}
}

static int chunk_came(const struct braid_lane *lane, struct braid_rma_channel *ch)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	bool placed = h->flags & BRAID_FLAG_PLACED;

	if (!placed)
		braid_rma_keys_due(ch);
	return braid_rma_chunk_is_here(ch, lane->rx_target, h, lane->gpu || placed);
}

static int rx_end(struct braid_lane *lane, struct braid_comm *c)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_rma_channel *ch = c->channel;
	int err;

	braid_assert_locked(&c->link->lock);
	if (braid_comm_drains(c))	/* it was closed since the frame began */
		return 0;
	if (h->type == BRAID_F_CREDIT)
		return braid_rma_window_came(lane, c);
	if (h->type == BRAID_F_EAGER)
		return ch->err ? ch->err : braid_rma_apply(ch, ch->scratch, h->len);
	err = lane->rx_stage ? braid_comm_rx_to_gpu(lane, c) : 0;
	if (err)
		return err == -EAGAIN ? err : 0;
	if (!c->sender)
		return chunk_came(lane, ch);
	braid_rma_got_end(ch, lane->rx_target, h->len);
	return 0;
}

static bool deliver(struct braid_comm *c)
{
	return braid_rma_landings_move(c->channel);
}

static const struct braid_comm_kind kind = {
	.rx_begin = rx_begin, .rx_end = rx_end, .rx_fast = rx_fast, .rx_place = rx_place,
	.rx_imm = rx_imm,
	.send_control = braid_rma_announce, .deliver = deliver, .failed = failed,
	.unfinished = unfinished, .orphans = orphans, .waits = braid_rma_waits, .forget = forget,
	.close = leave, .free = channel_free,
};

int braid_rma_channel_new(struct braid_rma *rma, struct braid_comm *c)
{
	struct braid_rma_channel *ch = calloc(1, sizeof(*ch));

	braid_assert_locked(&c->link->lock);
	if (!ch)
		return -ENOMEM;
	ch->comm = c;
	ch->rma = rma;
	ch->adopted = !c->sender;
	ch->rank = BRAID_RMA_NO_RANK;
	ch->rank_due = true;
	braid_list_init(&ch->ops);
	braid_list_init(&ch->spare);
	braid_list_init(&ch->queue);
	braid_list_init(&ch->gets);
	braid_list_init(&ch->replies);
	braid_list_init(&ch->landings);
	braid_comm_set_kind(c, &kind, ch);
	braid_lock_wait(&rma->lock);
	ch->closed = rma->nclosed;
	braid_list_add_tail(&rma->channels, &ch->node);
	braid_unlock(&rma->lock);
	return 0;
}
