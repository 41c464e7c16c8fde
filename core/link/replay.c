/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * replay.c - frames are sent again: over a new carrier, another lane, or as an empty VOID.
 */
#include "core/link/txq_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/link/upcalls.h"

int braid_tx_rewind(struct braid_lane *lane, uint32_t frames)
{
	struct braid_txq *q = &lane->tx;

	braid_assert_locked(&lane->link->lock);
	if ((int32_t)(frames - q->f_acked) < 0)
		frames = q->f_acked;		/* the handshake named our f_acked as `first` */
	if (frames - q->f_acked > q->f_sent - q->f_acked || (int32_t)(frames - q->f_peer_acked) < 0)
		return -EPROTO;
	q->f_peer_acked = frames;
	braid_txq_pop_acked(lane);
	q->f_sent = frames;
	q->offered = q->f_head;
	q->part = 0;
	q->starts = 0;
	q->unsent = 0;
	for (uint32_t i = q->f_sent; i != q->f_head; i++)
		q->unsent += q->f[i & q->fmask].inl + q->f[i & q->fmask].ext_len;
	if (q->timed_ns)
		braid_txq_time_start(q);
	q->one_ns = 0;
	return 0;
}

void braid_tx_move(struct braid_lane *from, struct braid_lane *to)
{
	struct braid_txq *q = &from->tx;
	struct braid_txf f = q->f[--q->f_head & q->fmask];
	struct braid_hdr h;

	braid_assert_locked(&from->link->lock);
	braid_hdr_read(q->ring + f.off, &h);
	q->head -= (q->head - f.off) & (q->ring_size - 1);
	q->unsent -= f.inl + f.ext_len;
	q->unacked -= f.ext_len;
	q->one_ns = 0;
	if (h.type == BRAID_F_VOID) {
		free(f.own);
		return;
	}
	braid_tx_add(to, &h, NULL, f.ext, f.owner);
	to->tx.f[(to->tx.f_head - 1) & to->tx.fmask].own = f.own;
}

/* Append a frame unchanged but for its place in the ring. */
static void append(struct braid_txq *q, const struct braid_txq *from, struct braid_txf f)
{
	uint32_t off;

	q->head += braid_txq_ring_need(q, f.inl, &off);
	memcpy(q->ring + off, from->ring + f.off, f.inl);
	f.off = off;
	q->f[q->f_head++ & q->fmask] = f;
}

static uint32_t power_of_two(uint64_t least)
{
	uint32_t n = 1;

	while (n < least)
		n *= 2;
	return n;
}

/* Take all frames, or all but chunks; the chunks that stay are renumbered without gaps. */
static void move_frames(struct braid_txq *q, struct braid_txq *from, uint32_t ack, bool but_chunks)
{
	uint32_t stay = from->f_acked;

	for (uint32_t i = from->f_acked; i != from->f_head; i++) {
		struct braid_txf f = from->f[i & from->fmask];
		struct braid_hdr h;

		braid_hdr_read(from->ring + f.off, &h);
		if (but_chunks && h.type == BRAID_F_CHUNK) {
			h.lseq = stay;
			braid_hdr_pack(&h, from->ring + f.off);
			from->f[stay++ & from->fmask] = f;
			continue;
		}
		h.lseq = q->f_head;
		h.ack = ack;
		braid_hdr_pack(&h, from->ring + f.off);
		append(q, from, f);
		q->unsent += f.inl + f.ext_len;
		q->unacked += f.ext_len;
		from->unsent -= f.inl + f.ext_len;
		from->unacked -= f.ext_len;
	}
	from->f_head = stay;
	from->starts = 0;
	from->one_ns = 0;
	braid_txq_give_back(from);
}

int braid_tx_take_over(struct braid_lane *from, struct braid_lane *to, bool but_chunks)
{
	struct braid_txq *a = &to->tx, *b = &from->tx, q = *a;
	struct braid_kept *kept = NULL;
	uint64_t bytes = (a->head - a->tail) + (b->head - b->tail) + BRAID_CTL_BYTES;
	uint32_t frames = (a->f_head - a->f_acked) + (b->f_head - b->f_acked) +
			  4 * BRAID_CTL_FRAMES + 1;

	braid_assert_locked(&from->link->lock);
	assert(b->f_sent == b->f_acked && !b->part);
	if (!a->ring && !b->ring)
		return 0;		/* the link is idle and has freed its queues */
	if (to->tr->dma) {
		kept = malloc(sizeof(*kept));
		if (!kept)
			return -ENOMEM;
	}
	if (braid_txq_init(&q, power_of_two(bytes > b->ring_size ? bytes : b->ring_size),
			   power_of_two(frames > b->fmask ? frames : b->fmask))) {
		free(kept);
		return -ENOMEM;
	}
	q.f_head = q.f_acked;
	for (uint32_t i = a->f_acked; i != a->f_head; i++)
		append(&q, a, a->f[i & a->fmask]);
	move_frames(&q, b, to->rx_frames, but_chunks);
	q.offered = q.f_head;
	q.starts = 0;
	if (kept) {
		*kept = (struct braid_kept){ q.kept, a->ring };
		q.kept = kept;
	} else {
		free(a->ring);
	}
	free(a->f);
	*a = q;
	return 0;
}

/* Keep the frame as a VOID, so that the frames behind it keep their numbers. */
void braid_txf_void(struct braid_txq *q, struct braid_txf *f, bool sent)
{
	struct braid_hdr h;

	braid_hdr_read(q->ring + f->off, &h);
	h = (struct braid_hdr){
		.type = BRAID_F_VOID, .ack = h.ack, .lseq = h.lseq, .comm = h.comm, .seq = h.seq,
	};
	braid_hdr_pack(&h, q->ring + f->off);
	if (!sent)
		q->unsent -= f->ext_len;
	q->unacked -= f->ext_len;
	q->one_ns = 0;
	f->ext = NULL;
	f->ext_len = 0;
}

/* Keep the payload in a copy of our own: 0, or -ENOMEM. */
static int own_payload(struct braid_txf *f)
{
	f->own = malloc(f->ext_len);
	if (!f->own)
		return -ENOMEM;
	memcpy(f->own, f->ext, f->ext_len);
	f->ext = f->own;
	return 0;
}

int braid_tx_release(struct braid_lane *lane, uint32_t comm)
{
	struct braid_txq *q = &lane->tx;
	bool gpu;

	braid_assert_locked(&lane->link->lock);
	for (uint32_t i = q->f_acked; i != q->f_head; i++) {
		struct braid_txf *f = &q->f[i & q->fmask];

		if (!f->owner || f->owner->comm != comm)
			continue;
		gpu = braid_xfer_is_gpu(f->owner);
		braid_txf_end_stage(f);
		f->owner = NULL;
		if (!f->ext_len || (f->own && i == q->f_sent && q->part))
			continue;
		if (i != q->f_sent || !q->part) {
			braid_txf_void(q, f, (int32_t)(i - q->f_sent) < 0);
			continue;
		}
		if (gpu) {		/* half sent by a NIC, whose lane has been fenced */
			q->unsent += q->part - f->inl;
			q->part = f->inl;
			braid_txf_void(q, f, false);
			continue;
		}
		if (own_payload(f))
			return -ENOMEM;
	}
	return 0;
}

int braid_tx_copy(struct braid_lane *lane, const struct braid_xfer *x)
{
	struct braid_txq *q = &lane->tx;

	braid_assert_locked(&lane->link->lock);
	for (uint32_t i = q->f_acked; i != q->f_head; i++) {
		struct braid_txf *f = &q->f[i & q->fmask];

		if (f->owner == x && f->ext_len && !f->own && own_payload(f))
			return -ENOMEM;
	}
	return 0;
}
