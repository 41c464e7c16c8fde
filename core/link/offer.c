/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * offer.c - the next piece that a lane has for its carrier, in a form that the carrier takes.
 *
 * A byte stream gets all that fits into one system call.  A carrier of messages gets frames,
 * payloads, writes by its NIC, or messages without a header.  A carrier that can't read GPU memory
 * gets a copy in host memory, which is made here.
 */
#include "core/link/txq_int.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/crc32c.h"
#include "core/link/lane_io.h"
#include "core/link/state.h"
#include "core/link/upcalls.h"
#include "core/mem/gpucopy.h"

enum { HDR_FLAGS = 1, HDR_ACK = 4 };	/* offsets in a packed header */

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

/*
 * A frame without its header has 16 bits for the comm, and can carry neither an acknowledgement nor
 * a checksum.
 */
static bool may_be_bare(const struct braid_lane *lane, uint32_t comm)
{
	return !lane->link->checksums && comm <= UINT16_MAX &&
	       lane->rx_quiet < BRAID_ACK_BYTES / 2;
}

bool braid_tx_fast_send(struct braid_lane *lane, uint32_t id, uint32_t seq, const void *payload,
		   uint32_t len)
{
	struct braid_txq *q = &lane->tx;
	uint32_t off;
	char *at;

	braid_assert_locked(&lane->link->lock);
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

/* The frame's bytes can't be read from the GPU: fail the comm, send a VOID instead. */
static int not_here(struct braid_txq *q, struct braid_txf *f, const struct braid_gpucopy *copy)
{
	f->owner->ops->no_gpu(f->owner, copy);
	f->owner = NULL;
	braid_txf_void(q, f, false);
	return 0;
}

/* Is the frame's payload in GPU memory, or being copied from there? */
static bool is_in_gpu(const struct braid_txf *f)
{
	return f->bringing || (!f->own && braid_xfer_is_gpu(f->owner));
}

/* A socket can't read GPU memory, so send a copy.  0, or -EAGAIN: the copy is not complete. */
int braid_txf_stage_out(struct braid_lane *lane, struct braid_txf *f)
{
	struct braid_txq *q = &lane->tx;
	struct staged *b = f->own;
	int err;

	if (!is_in_gpu(f))
		return 0;
	if (!f->bringing) {
		b = malloc(sizeof(*b) + f->ext_len);
		if (!b)
			return not_here(q, f, NULL);
		braid_gpucopy_begin(&b->copy, braid_link_copies(lane->link), f->owner->mr,
				    (char *)(uintptr_t)f->ext, b->bytes, f->ext_len, false);
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

	braid_assert_locked(&lane->link->lock);
	for (uint32_t i = q->f_acked; i != q->f_head; i++) {
		if (q->f[i & q->fmask].bringing)
			braid_txf_drop_own(&q->f[i & q->fmask]);
	}
}

void braid_rx_acked(struct braid_lane *lane)
{
	lane->rx_acked = lane->rx_frames;
	lane->rx_quiet = 0;
	lane->rx_ack_due = lane->rx_some = false;
}

/* Write the present acknowledgement into the header at f_sent, which is about to be sent. */
static void stamp(struct braid_lane *lane)
{
	struct braid_txq *q = &lane->tx;
	uint32_t ack = htole32(lane->rx_frames);

	memcpy(q->ring + q->f[q->f_sent & q->fmask].off + HDR_ACK, &ack, sizeof(ack));
	q->stamped = true;
	braid_rx_acked(lane);
}

/*
 * Put checksums into the header of frame i, at the last moment: the acknowledgement is under them.
 * Memory of a GPU, which the CPU can't read, is sent without.
 */
static BRAID_APART void seal(struct braid_txq *q, uint32_t i, uint8_t flags)
{
	struct braid_txf *f = &q->f[i & q->fmask];
	char *hdr = q->ring + f->off;

	if (f->ext_len && is_in_gpu(f)) {
		braid_hdr_seal(hdr, i, flags | BRAID_FLAG_UNSUMMED, 0);
		return;
	}
	if (!f->summed)
		f->sum = f->ext_len ? braid_crc32c(0, f->ext, f->ext_len) :
				      braid_crc32c(0, hdr + BRAID_HDR_SIZE,
						   f->inl - BRAID_HDR_SIZE);
	f->summed = true;
	braid_hdr_seal(hdr, i, flags, f->sum);
}

/* Seal a message: the frames from f_sent on whose ring bytes are these. */
static BRAID_APART void seal_message(struct braid_txq *q, size_t bytes)
{
	for (uint32_t i = q->f_sent; bytes; i++) {
		seal(q, i, 0);
		bytes -= q->f[i & q->fmask].inl;
	}
}

static int iov_put(struct iovec *iov, int n, const char *p, size_t len)
{
	if (n && (char *)iov[n - 1].iov_base + iov[n - 1].iov_len == p) {
		iov[n - 1].iov_len += len;
		return n;
	}
	iov[n].iov_base = (void *)(uintptr_t)p;
	iov[n].iov_len = len;
	return n + 1;
}

/* Is that payload a piece by itself?  The memory must be known, so that deregMr waits for it. */
static bool is_lent(const struct braid_lane *lane, const struct braid_txf *f, size_t len)
{
	return len >= BRAID_LEND_MIN && atomic_load_explicit(&lane->lends, memory_order_relaxed) &&
	       f->owner && f->owner->mr && !f->own && !f->owner->mr->gpu;
}

static int lend(const struct braid_can *can, const char *p, size_t len, struct braid_piece *ret)
{
	ret->kind = BRAID_PIECE_PAYLOAD;
	ret->niov = iov_put(can->iov, 0, p, len);
	ret->len = ret->bytes = len;
	return 1;
}

/* The next bytes of a stream. */
static int next_bytes(struct braid_lane *lane, const struct braid_can *can,
		      struct braid_piece *ret)
{
	struct braid_txq *q = &lane->tx;
	size_t skip = q->part, bytes = 0;
	int n = 0;

	if (!skip && can->max)
		stamp(lane);
	for (uint32_t i = q->f_sent; i != q->f_head && n + 2 <= can->niov && bytes < can->max;
	     i++) {
		struct braid_txf *f = &q->f[i & q->fmask];

		if (f->ext_len && braid_txf_stage_out(lane, f))
			break;
		if (!skip && lane->link->checksums)
			seal(q, i, 0);
		if (skip < f->inl) {
			size_t len = f->inl - skip;

			if (len > can->max - bytes)
				len = can->max - bytes;
			n = iov_put(can->iov, n, q->ring + f->off + skip, len);
			bytes += len;
			skip = 0;
		} else {
			skip -= f->inl;
		}
		if (f->ext_len && bytes < can->max) {
			size_t len = f->ext_len - skip;

			if (len > can->max - bytes)
				len = can->max - bytes;
			if (is_lent(lane, f, len)) {
				if (bytes)
					break;
				return lend(can, f->ext + skip, len, ret);
			}
			n = iov_put(can->iov, n, f->ext + skip, len);
			bytes += len;
		}
		skip = 0;
	}
	ret->kind = BRAID_PIECE_FRAMES;
	ret->niov = n;
	ret->len = ret->bytes = bytes;
	return bytes ? 1 : -EAGAIN;
}

/* May a message end with the header of this payload, which is then sent next? */
static bool may_end_with(const struct braid_txf *f, const struct braid_can *can)
{
	return can->head_last && (can->gpu || !is_in_gpu(f));
}

/*
 * How many bytes of the ring, from the unsent frame f_sent on, fit in one message: whole frames, or
 * one header whose payload lies outside the ring.
 */
static uint32_t frames_len(const struct braid_txq *q, const struct braid_can *can)
{
	const struct braid_txf *f = &q->f[q->f_sent & q->fmask];
	uint32_t end = f->off + f->inl, len = f->inl;

	for (uint32_t i = q->f_sent + 1; i != q->f_head && !f->ext_len; i++) {
		f = &q->f[i & q->fmask];
		if (f->off != end || len + f->inl > can->max ||
		    (f->ext_len && !may_end_with(f, can)))
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
	braid_hdr_read(q->ring + f->off, &start);
	braid_hdr_read(q->ring + g->off, &chunk);
	return chunk.comm == start.comm && chunk.rseq == start.rseq ? g : NULL;
}

/* Immediate data that says which chunk this is; false: it needs its header. */
static bool imm_of(const struct braid_xfer *s, const struct braid_hdr *h, bool whole, uint32_t *ret)
{
	unsigned slot = h->rseq % BRAID_SLOTS, n = whole ? BRAID_IMM_WHOLE : h->n;

	if (s->imm == BRAID_XFER_BY_SLOT) {
		slot = s->slot;
		n = s->slot_turn;
	}
	*ret = h->comm << 16 | slot << 8 | n;
	return h->comm <= UINT16_MAX && s->imm != BRAID_XFER_BY_HDR &&
	       (whole || n != BRAID_IMM_WHOLE);
}

/* Can the NIC write the chunk at f_sent, or behind a START at f_sent, into the receive? */
static bool next_put(const struct braid_lane *lane, const struct braid_can *can, bool must_ack,
		     struct braid_piece *ret)
{
	const struct braid_txq *q = &lane->tx;
	const struct braid_txf *at = &q->f[q->f_sent & q->fmask];
	const struct braid_txf *first = first_chunk(q), *f = first ? first : at;
	uint32_t hdrs = first ? 2 * BRAID_HDR_SIZE : BRAID_HDR_SIZE;
	unsigned m = lane->member, pm = lane->peer_member;
	const struct braid_xfer *s = f->owner;
	struct braid_hdr h;
	uint32_t imm;
	bool has_imm;

	if (!f->ext_len || f->own || !s || !s->mr || pm >= s->to.nkeys ||
	    (int32_t)(s->to.rkey_epoch - lane->peer_rkey_epoch) < 0 || !s->mr->key[m].mr ||
	    q->ring[f->off] != BRAID_F_CHUNK || f->ext_len > can->put_max)
		return false;
	braid_hdr_read(q->ring + f->off, &h);
	has_imm = imm_of(s, &h, first, &imm) && !must_ack && !lane->link->checksums &&
		  h.len <= can->imm_max;
	/* Immediate data stands for one frame or a whole message; two headers must be adjacent. */
	if (first && (has_imm ? h.len != h.size : f->off != at->off + BRAID_HDR_SIZE))
		return false;
	*ret = (struct braid_piece){
		.kind = BRAID_PIECE_PUT, .data = f->ext, .len = h.len, .bytes = hdrs + f->ext_len,
		.gpu = s->mr->gpu ? s->mr : NULL, .local = s->mr->key[m].local,
		.to = s->to.addr + h.offset, .remote = s->to.key[pm], .has_imm = has_imm,
		.imm = imm, .hdrs = q->ring + at->off, .hdrs_len = hdrs,
	};
	return true;
}

/* May immediate data, or the short header, replace the header of this frame?  Not in a replay. */
static bool needs_no_hdr(const struct braid_lane *lane, const struct braid_txf *f)
{
	const struct braid_txq *q = &lane->tx;
	const struct braid_xfer *s = f->owner;

	/* A CREDITED message needs its header: it is not for the next receive of its tag. */
	return s && s->same_tag && f->inl != BRAID_HDR_SIZE && !f->ext_len &&
	       may_be_bare(lane, s->comm) && q->ring[f->off] == BRAID_F_EAGER &&
	       !q->ring[f->off + HDR_FLAGS];
}

/* The next part of a payload outside the ring, whose header was sent before. */
static void next_payload(const struct braid_lane *lane, const struct braid_can *can,
			 const struct braid_txf *f, struct braid_piece *ret)
{
	size_t at = lane->tx.part - f->inl, len = f->ext_len - at;
	const struct braid_mr *gpu = !f->own && braid_xfer_is_gpu(f->owner) ? f->owner->mr : NULL;

	assert(lane->tx.part >= f->inl);
	if (len > can->payload_max)
		len = can->payload_max;
	ret->kind = BRAID_PIECE_PAYLOAD;
	ret->data = f->ext + at;
	ret->len = ret->bytes = len;
	ret->gpu = gpu;
	ret->local = gpu ? gpu->key[lane->member].local : 0;
}

/* Seal the headers of a PUT: a chunk's, perhaps behind a START's. */
static BRAID_APART void seal_put(struct braid_txq *q, uint32_t hdrs_len)
{
	bool start = hdrs_len > BRAID_HDR_SIZE;

	if (start)
		seal(q, q->f_sent, 0);
	seal(q, q->f_sent + start, BRAID_FLAG_PLACED);
}

/* The next message of frames, of a payload, or in place of a frame. */
static int next_message(struct braid_lane *lane, const struct braid_can *can,
			struct braid_piece *ret)
{
	struct braid_txq *q = &lane->tx;
	struct braid_txf *f = &q->f[q->f_sent & q->fmask];
	bool must_ack = q->stamped || lane->rx_frames - lane->rx_acked >= can->unacked_max;

	if (q->part) {
		next_payload(lane, can, f, ret);
		return 1;
	}
	if (f->ext_len && !can->gpu && braid_txf_stage_out(lane, f))
		return -EAGAIN;
	if (can->put_max && (f->ext_len || q->ring[f->off] == BRAID_F_START) &&
	    next_put(lane, can, must_ack, ret)) {
		if (!ret->has_imm)
			stamp(lane);
		if (lane->link->checksums)
			seal_put(q, ret->hdrs_len);
		return 1;
	}
	ret->data = q->ring + f->off;
	ret->len = ret->bytes = frames_len(q, can);
	ret->gpu = NULL;
	if (can->nohdr && !must_ack && ret->len == f->inl && needs_no_hdr(lane, f)) {
		ret->kind = BRAID_PIECE_NOHDR;
		ret->data += BRAID_HDR_SIZE;
		ret->len -= BRAID_HDR_SIZE;
		ret->imm = braid_short(f->owner->comm, f->owner->seq);
		return 1;
	}
	ret->kind = BRAID_PIECE_FRAMES;
	stamp(lane);
	if (lane->link->checksums)
		seal_message(q, ret->len);
	return 1;
}

int braid_lane_next(struct braid_lane *lane, const struct braid_can *can, struct braid_piece *ret)
{
	braid_assert_locked(&lane->link->lock);
	if (lane->tx.f_sent == lane->tx.f_head)
		return 0;
	lane->tx.offered = lane->tx.f_head;
	return can->iov ? next_bytes(lane, can, ret) : next_message(lane, can, ret);
}
