/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * offer.c - what a lane offers to a carrier of messages: pieces of the ring, writes by a NIC, and
 * messages without a header.
 *
 * A carrier that can't read GPU memory gets a copy in host memory, which is made here.
 */
#include "core/link/txq_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/link/lane_io.h"
#include "core/link/upcalls.h"
#include "core/mem/gpucopy.h"

enum { HDR_FLAGS = 1 };		/* offset in a packed header */

struct staged {			/* f->own of a frame from GPU memory */
	struct braid_gpucopy copy;
	char bytes[];
};

void braid_txf_end_stage(struct braid_txf *f)
{
	struct staged *b = f->own;

	if (f->bringing)
		braid_gpucopy_end(&b->copy);
	f->bringing = false;
}

BRAID_APART void braid_txf_drop_own(struct braid_txf *f)
{
	braid_txf_end_stage(f);
	free(f->own);
	f->own = NULL;
}

/* A frame without its header has 16 bits for the comm, and can't carry an acknowledgement. */
static bool may_be_bare(const struct braid_lane *lane, uint32_t comm)
{
	return comm <= UINT16_MAX && lane->rx_quiet < BRAID_ACK_BYTES / 2;
}

bool braid_tx_fast_send(struct braid_lane *lane, uint32_t id, uint32_t seq, const void *payload,
		   uint32_t len)
{
	struct braid_txq *q = &lane->tx;
	uint32_t off;
	char *at;

	if (q->f_sent != q->f_head || lane->pushing || !braid_lane_up(lane) ||
	    !may_be_bare(lane, id) || !braid_txq_room(q, len))
		return false;
	braid_txq_ring_need(q, BRAID_HDR_SIZE + len, &off);
	at = q->ring + off + BRAID_HDR_SIZE;
	memcpy(at, payload, len);
	braid_short_pack(braid_short(id, seq), at - BRAID_SHORT_SIZE);
	q->fast_sent = !lane->tr->post(lane, braid_short(id, seq), at, len);
	return q->fast_sent;
}

uint32_t braid_tx_piece(const struct braid_txq *q, uint32_t max, bool with_head)
{
	const struct braid_txf *f = &q->f[q->f_sent & q->fmask];
	uint32_t end = f->off + f->inl, len = f->inl;

	for (uint32_t i = q->f_sent + 1; i != q->f_head && !f->ext_len; i++) {
		f = &q->f[i & q->fmask];
		if ((f->ext_len && !with_head) || f->off != end || len + f->inl > max)
			break;
		end += f->inl;
		len += f->inl;
	}
	return len;
}

/* The first chunk of its message, directly after the START at f_sent; or NULL. */
static const struct braid_txf *first_chunk(const struct braid_txq *q)
{
	const struct braid_txf *f = &q->f[q->f_sent & q->fmask];
	const struct braid_txf *g = &q->f[(q->f_sent + 1) & q->fmask];
	struct braid_hdr start, chunk;

	if (q->ring[f->off] != BRAID_F_START || q->f_sent + 1 == q->f_head ||
	    q->ring[g->off] != BRAID_F_CHUNK)
		return NULL;
	braid_hdr_unpack(q->ring + f->off, &start);
	braid_hdr_unpack(q->ring + g->off, &chunk);
	return chunk.comm == start.comm && chunk.rseq == start.rseq ? g : NULL;
}

bool braid_tx_put(const struct braid_lane *lane, uint32_t imm_max, struct braid_put *ret)
{
	const struct braid_txq *q = &lane->tx;
	const struct braid_txf *at = &q->f[q->f_sent & q->fmask];
	const struct braid_txf *first = q->part ? NULL : first_chunk(q), *f = first ? first : at;
	uint32_t hdrs = first ? 2 * BRAID_HDR_SIZE : BRAID_HDR_SIZE;
	unsigned m = lane->member, pm = lane->peer_member;
	const struct braid_xfer *s = f->owner;
	struct braid_hdr h;
	bool imm;

	if (q->part || !f->ext_len || f->own || !s || !s->mr || pm >= s->to.nkeys ||
	    (int32_t)(s->to.rkey_epoch - lane->peer_rkey_epoch) < 0 || !s->mr->key[m].mr ||
	    q->ring[f->off] != BRAID_F_CHUNK)
		return false;
	braid_hdr_unpack(q->ring + f->off, &h);
	imm = h.len <= imm_max && h.comm <= UINT16_MAX && h.n != BRAID_IMM_WHOLE;
	/* Immediate data stands for one frame or a whole message; two headers must be adjacent. */
	if (first && (imm ? h.len != h.size : f->off != at->off + BRAID_HDR_SIZE))
		return false;
	*ret = (struct braid_put){
		.data = f->ext, .gpu = s->mr->gpu, .len = h.len, .to = s->to.addr + h.offset,
		.local = s->mr->key[m].local, .remote = s->to.key[pm], .has_imm = imm,
		.imm = h.comm << 16 | h.rseq % BRAID_SLOTS << 8 | (first ? BRAID_IMM_WHOLE : h.n),
		.hdrs = q->ring + at->off, .hdrs_len = hdrs,
		.bytes = hdrs + f->ext_len,
	};
	return true;
}

bool braid_tx_nohdr(const struct braid_lane *lane, uint32_t *ret_imm)
{
	const struct braid_txq *q = &lane->tx;
	const struct braid_txf *f = &q->f[q->f_sent & q->fmask];
	const struct braid_xfer *s = f->owner;

	/* A CREDITED message needs its header: it is not for the next receive of its tag. */
	if (!s || !s->same_tag || f->inl == BRAID_HDR_SIZE || f->ext_len ||
	    !may_be_bare(lane, s->comm) || q->ring[f->off] != BRAID_F_EAGER ||
	    q->ring[f->off + HDR_FLAGS])
		return false;
	*ret_imm = braid_short(s->comm, s->seq);
	return true;
}

const struct braid_key *braid_tx_gpu(const struct braid_lane *lane)
{
	const struct braid_txq *q = &lane->tx;
	const struct braid_txf *f = &q->f[q->f_sent & q->fmask];

	return f->ext_len && !f->own && braid_xfer_is_gpu(f->owner) ?
		       &f->owner->mr->key[lane->member] : NULL;
}

/* The frame's bytes can't be read from the GPU: fail the comm, send a VOID instead. */
static int not_here(struct braid_txq *q, struct braid_txf *f, const struct braid_gpucopy *copy)
{
	braid_send_no_gpu(f->owner, copy);
	f->owner = NULL;
	braid_txf_void(q, f, false);
	return 0;
}

/* A socket can't read GPU memory, so send a copy.  0, or -EAGAIN: the copy is not complete. */
int braid_txf_stage_out(struct braid_txq *q, struct braid_txf *f)
{
	struct staged *b = f->own;
	int err;

	if (!f->bringing) {
		if (f->own || !braid_xfer_is_gpu(f->owner))
			return 0;
		b = malloc(sizeof(*b) + f->ext_len);
		if (!b)
			return not_here(q, f, NULL);
		braid_gpucopy_begin(&b->copy, f->owner->mr, (char *)(uintptr_t)f->ext, b->bytes,
				    f->ext_len, false);
		f->own = b;
		f->bringing = true;
	}
	err = braid_gpucopy_move(&b->copy);
	if (err == -EAGAIN)
		return err;
	f->bringing = false;
	if (err)
		return not_here(q, f, &b->copy);
	f->ext = b->bytes;
	return 0;
}

/* A later send starts an ended copy anew.  Until then other copies may use the driver's slots. */
void braid_tx_leave(struct braid_lane *lane)
{
	struct braid_txq *q = &lane->tx;

	for (uint32_t i = q->f_acked; i != q->f_head; i++) {
		if (q->f[i & q->fmask].bringing)
			braid_txf_drop_own(&q->f[i & q->fmask]);
	}
}

const struct braid_txf *braid_tx_here(struct braid_lane *lane)
{
	struct braid_txq *q = &lane->tx;
	struct braid_txf *f = &q->f[q->f_sent & q->fmask];

	return !q->part && f->ext_len && !lane->gpu && braid_txf_stage_out(q, f) ? NULL : f;
}
