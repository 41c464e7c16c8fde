/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tx.c - a lane over verbs sends.
 *
 * Work requests are added to a chain, which is posted as a whole.  A sender counts the peer's
 * slots.  For each slot used, it notes the frame whose acknowledgement will mean that the slot is
 * posted again.  But one frame may take more slots than the peer has, and both ends may fill each
 * other's slots.  So a receiver that has posted half of its slots again, and has not yet reported
 * so by a frame, writes its counts into the peer's memory by an RDMA WRITE, which takes no slot.
 *
 * All of it is called with the link's lock held.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "core/base/crc32c.h"
#include "verbs/sigpipe.h"
#include "verbs/verbs.h"

enum {
	SIGNAL_EVERY = 32,
	SIW_PAGED = 4096,		/* from here on, unsignalled data leaves page by page */
};

static unsigned sq_used(const struct braid_qp *w)
{
	return w->sq_posted - atomic_load_explicit(&w->sq_done, memory_order_acquire);
}

static bool sq_room(const struct braid_qp *w, unsigned n)
{
	return sq_used(w) + n <= w->sq_max;
}

/*
 * Most requests need no completion.  A message leaves soft-iWARP in fewer segments if it is
 * signalled.  A large WRITE leaves sooner if it is not; the header that follows it is signalled.
 */
static bool is_signalled(const struct braid_qp *w, enum ibv_wr_opcode op, uint32_t len)
{
	if (w->port->siw && len >= SIW_PAGED)
		return op != IBV_WR_RDMA_WRITE;
	return w->sq_posted - w->sq_signal >= SIGNAL_EVERY;
}

/* Adds a work request to the chain. */
static struct ibv_send_wr *chain_add(struct braid_qp *w, enum ibv_wr_opcode op, const void *data,
				     uint32_t len, uint32_t key)
{
	struct braid_chain *c = &w->chain;
	struct ibv_send_wr *wr = &c->wr[c->n];

	assert(c->n < BRAID_CHAIN);
	c->sge[c->n] = (struct ibv_sge){ (uint64_t)(uintptr_t)data, len, key };
	wr->wr_id = BRAID_WR_IS_SEND | ++w->sq_posted;
	wr->next = NULL;
	wr->sg_list = &c->sge[c->n];
	wr->num_sge = len ? 1 : 0;
	wr->opcode = op;
	wr->send_flags = len <= w->inline_max && op != IBV_WR_RDMA_WRITE_WITH_IMM ?
				 IBV_SEND_INLINE : 0;
	if (is_signalled(w, op, len)) {
		wr->send_flags |= IBV_SEND_SIGNALED;
		w->sq_signal = w->sq_posted;
	}
	if (c->n)
		c->wr[c->n - 1].next = wr;
	c->n++;
	return wr;
}

static void signal_it(struct braid_qp *w, struct ibv_send_wr *wr)
{
	wr->send_flags |= IBV_SEND_SIGNALED;
	w->sq_signal = w->sq_posted;
}

static BRAID_APART int post_blocked(struct braid_qp *w)
{
	struct ibv_send_wr *bad;
	struct braid_sigpipe h;
	int err;

	braid_sigpipe_block(w->port, &h);
	err = ibv_post_send(w->qp, w->chain.wr, &bad);
	braid_sigpipe_unblock(&h);
	return err;
}

int braid_verbs_chain_post(struct braid_qp *w)
{
	struct ibv_send_wr *bad;
	int err;

	if (!w->chain.n)
		return 0;
	err = braid_sigpipe_may_come(w->port) ? post_blocked(w) :
						ibv_post_send(w->qp, w->chain.wr, &bad);
	w->chain.n = 0;
	return err ? -EIO : 0;
}

static bool may_send(struct braid_qp *w)
{
	if (!w->may_send)
		w->may_send = atomic_load_explicit(&w->m->ack[1], memory_order_relaxed);
	return w->may_send;
}

/* Takes in acknowledgements and the peer's count of free slots.  True: it has a free one. */
static BRAID_APART bool slots_back(struct braid_qp *w, struct braid_lane *lane)
{
	uint32_t acked = braid_lane_counts(lane).sent_acked, counts[2];

	braid_verbs_window(lane, w);
	if (braid_verbs_counts(lane, w, counts)) {
		if (counts[1] != w->count_seen &&
		    counts[1] - 1 - w->wr_tail <= w->wr_head - w->wr_tail)
			w->wr_tail = counts[1] - 1;
		w->count_seen = counts[1];
	}
	while (w->wr_tail != w->wr_head &&
	       (int32_t)(acked - w->wr_frame[w->wr_tail % BRAID_SLOTS_RX]) >= 0)
		w->wr_tail++;
	return w->wr_head - w->wr_tail < w->wr_max;
}

/* Has the peer a slot for one more message? */
static bool has_slot(struct braid_qp *w, struct braid_lane *lane)
{
	return w->wr_head - w->wr_tail < w->wr_max || slots_back(w, lane);
}

/* Notes a used slot, which is free again once so many frames are acknowledged. */
static void slot_used(struct braid_qp *w, uint32_t frames)
{
	w->wr_frame[w->wr_head++ % BRAID_SLOTS_RX] = frames;
}

/* Writes the counts of received frames and of free slots into the peer's memory. */
BRAID_APART void braid_verbs_write_counts(struct braid_lane *lane, struct braid_qp *w)
{
	_Atomic uint32_t *words = w->m->ack + BRAID_ACK_OUT;
	uint32_t counts[2] = { htole32(braid_lane_counts(lane).came), htole32(w->slots + 1) };
	uint32_t sum = lane->link->checksums ? braid_crc32c(0, counts, sizeof(counts)) : 0;
	struct ibv_send_wr *wr;

	atomic_store_explicit(&words[0], counts[0], memory_order_relaxed);
	atomic_store_explicit(&words[1], counts[1], memory_order_relaxed);
	atomic_store_explicit(&words[2], htole32(sum), memory_order_relaxed);
	wr = chain_add(w, IBV_WR_RDMA_WRITE, (const void *)words, lane->link->checksums ? 12 : 8,
		       w->m->ack_mr->lkey);
	wr->wr.rdma.remote_addr = w->peer_ack;
	wr->wr.rdma.rkey = w->peer_ack_key;
	w->slots_reported = w->slots;
	braid_rx_acked(lane);
}

/* Writes how many slots the peer may use from now on, in place of the number of the set-up. */
static BRAID_APART void write_window(struct braid_qp *w)
{
	_Atomic uint32_t *word = w->m->ack + BRAID_ACK_OUT + BRAID_ACK_WINDOW;
	struct ibv_send_wr *wr;

	atomic_store_explicit(word, htole32(braid_window_word(BRAID_WINDOW)), memory_order_relaxed);
	wr = chain_add(w, IBV_WR_RDMA_WRITE, (const void *)word, sizeof(*word), w->m->ack_mr->lkey);
	wr->wr.rdma.remote_addr = w->peer_ack + BRAID_ACK_WINDOW * sizeof(*word);
	wr->wr.rdma.rkey = w->peer_ack_key;
	w->grow.report_at = BRAID_SLOTS_RX / 2;
}

/* How many slots were posted again without a report that has certainly reached the peer. */
static unsigned slots_unreported(const struct braid_lane *lane, struct braid_qp *w)
{
	const struct braid_lane_counts n = braid_lane_counts(lane);

	if ((int32_t)(n.came_acked - w->mark_frames) >= 0) {
		if ((int32_t)(w->mark_slots - w->slots_reported) > 0)
			w->slots_reported = w->mark_slots;
		if (!n.in_frame) {
			w->mark_frames = n.came;
			w->mark_slots = w->slots;
		}
	}
	return w->slots - w->slots_reported;
}

int braid_verbs_count_if_due(struct braid_lane *lane, struct braid_qp *w)
{
	braid_assert_locked(&lane->link->lock);
	w->count_due = slots_unreported(lane, w) >= w->grow.report_at;
	if (!w->count_due || !may_send(w) || !sq_room(w, 2))
		return 0;
	w->count_due = false;
	if (!w->grow.report_at)
		write_window(w);
	braid_verbs_write_counts(lane, w);
	return braid_verbs_chain_post(w);
}

BRAID_APART void braid_verbs_bounces_back(struct braid_qp *w)
{
	uint32_t done = atomic_load_explicit(&w->sq_done, memory_order_acquire);

	for (; w->bounces_back != w->bounces; w->bounces_back++) {
		uint32_t i = w->bounces_back % BRAID_BOUNCES;

		if ((int32_t)(done - w->bounce[i].wr) < 0)
			break;
		braid_bounce_put(w->m->bounces, w->bounce[i].piece);
	}
}

/* A piece of registered memory, or NULL: none is free now.  bounce_used() follows. */
static BRAID_APART char *bounce(struct braid_qp *w, uint32_t *ret_key)
{
	int piece;

	braid_verbs_bounces_back(w);
	if (w->bounces - w->bounces_back == BRAID_BOUNCES)
		return NULL;
	piece = braid_bounce_take(w->m->bounces);
	if (piece < 0)
		return NULL;
	w->bounce[w->bounces % BRAID_BOUNCES].piece = piece;
	*ret_key = braid_bounce_key(w->m->bounces, piece);
	return braid_bounce_at(w->m->bounces, piece);
}

static void bounce_used(struct braid_qp *w, struct ibv_send_wr *wr)
{
	w->bounce[w->bounces++ % BRAID_BOUNCES].wr = w->sq_posted;
	signal_it(w, wr);
}

void braid_verbs_tx_init(struct braid_qp *w)
{
	w->can = (struct braid_can){
		.max = BRAID_SLOT, .payload_max = BRAID_SLOT, .nohdr = true,
		.unacked_max = BRAID_WINDOW / 4, .imm_max = w->imm_max,
	};
	if (w->m->pd != w->port->pd)	/* the user's memory is in the port's: it is copied */
		return;
	w->can.gpu = true;
	/* Its header goes with it. */
	w->can.put_max = (size_t)w->port->max_msg * (BRAID_CHAIN - 1);
}

static unsigned pieces_of(const struct braid_qp *w, size_t len)
{
	return (unsigned)((len + w->port->max_msg - 1) / w->port->max_msg);
}

/* Adds one WRITE, or several if the device takes fewer bytes in each; returns the last. */
static struct ibv_send_wr *add_pieces(struct braid_qp *w, const struct braid_piece *p)
{
	enum ibv_wr_opcode op = p->has_imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
	uint32_t most = w->port->max_msg, len = (uint32_t)p->len, n;
	struct ibv_send_wr *wr;

	for (uint32_t at = 0;; at += n) {
		n = len - at < most ? len - at : most;
		wr = chain_add(w, op, p->data + at, n, p->local);
		wr->wr.rdma.remote_addr = p->to + at;
		wr->wr.rdma.rkey = p->remote;
		if (p->gpu)		/* the CPU would read inline data */
			wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
		if (at + n == len)
			return wr;
	}
}

/* Adds the WRITE of a chunk.  0, or -EAGAIN: no memory to send its header from. */
static int add_write(struct braid_qp *w, const struct braid_piece *p)
{
	struct ibv_send_wr *wr;
	char *hdrs = w->chain.hdrs[w->chain.n + pieces_of(w, p->len) - 1];
	bool copied = !p->has_imm && w->inline_max < p->hdrs_len;
	uint32_t key = 0;

	if (copied)
		hdrs = bounce(w, &key);
	if (!hdrs)
		return -EAGAIN;
	wr = add_pieces(w, p);
	if (p->has_imm) {
		wr->imm_data = htobe32(p->imm);
	} else {
		memcpy(hdrs, p->hdrs, p->hdrs_len);
		hdrs[p->hdrs_len - BRAID_HDR_SIZE + 1] |= BRAID_FLAG_PLACED;
		wr = chain_add(w, IBV_WR_SEND, hdrs, p->hdrs_len, key);
	}
	if (copied)
		bounce_used(w, wr);
	return 0;
}

/* Adds the WRITE of a chunk.  A large one takes several requests, on a chain of its own. */
static int add_put(struct braid_qp *w, const struct braid_piece *p)
{
	if (p->len <= w->port->max_msg)
		return add_write(w, p);
	if (!sq_room(w, pieces_of(w, p->len) + 2))
		return -EAGAIN;
	return braid_verbs_chain_post(w) ? -EIO : add_write(w, p);
}

/* Adds a message without its header: with immediate data, or the short header before `payload`. */
static struct ibv_send_wr *add_bare(struct braid_qp *w, const char *payload, uint32_t len,
				    uint32_t key, uint32_t imm)
{
	struct ibv_send_wr *wr;

	if (!w->imm_max)
		return chain_add(w, IBV_WR_SEND, payload - BRAID_SHORT_SIZE, len + BRAID_SHORT_SIZE,
				 key);
	wr = chain_add(w, IBV_WR_SEND_WITH_IMM, payload, len, key);
	wr->imm_data = htobe32(imm);
	return wr;
}

static const struct ibv_mr *ring_mr(const struct braid_qp *w)
{
	return atomic_load_explicit(&w->rings->mr, memory_order_acquire);
}

/* Adds a SEND.  0, or -EAGAIN: no memory to send from. */
static int add_send(struct braid_qp *w, const struct braid_piece *p)
{
	const struct ibv_mr *ring = ring_mr(w);
	bool whole = p->kind != BRAID_PIECE_PAYLOAD, bare = p->kind == BRAID_PIECE_NOHDR;
	uint32_t len = (uint32_t)p->len, before = bare ? BRAID_SHORT_SIZE : 0;
	uint32_t key = p->gpu ? p->local : ring ? ring->lkey : 0;
	const char *from = p->data;
	struct ibv_send_wr *wr;
	char *copy = NULL;

	if (!p->gpu && (!whole || !ring) && before + len > w->inline_max) {
		copy = bounce(w, &key);
		if (!copy)
			return -EAGAIN;
		memcpy(copy, from - before, before + len);
		from = copy + before;
		/* Not for the few control frames of a lane at rest. */
		if (!ring && (bare || len > BRAID_INLINE))
			braid_qp_ring_use(w);
	}
	wr = bare ? add_bare(w, from, len, key, p->imm) :
		    chain_add(w, IBV_WR_SEND, from, len, key);
	if (copy)
		bounce_used(w, wr);
	if (p->gpu)
		wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
	return 0;
}

/* Are so many received frames unacknowledged that the next message needs a header to do it? */
static bool must_acknowledge(const struct braid_lane *lane, const struct braid_qp *w)
{
	const struct braid_lane_counts n = braid_lane_counts(lane);

	return n.came - n.came_acked >= w->can.unacked_max;
}

/* Adds the next frame, or a piece of it.  0, or -EAGAIN: the NIC or the peer has no room. */
static int add_next(struct braid_lane *lane, struct braid_qp *w)
{
	struct braid_piece p;
	int err;

	if (!sq_room(w, 3))
		return -EAGAIN;
	if (!has_slot(w, lane)) {
		if (must_acknowledge(lane, w))
			braid_verbs_write_counts(lane, w);
		return -EAGAIN;
	}
	if (braid_lane_next(lane, &w->can, &p) <= 0)
		return -EAGAIN;
	err = p.kind == BRAID_PIECE_PUT ? add_put(w, &p) : add_send(w, &p);
	if (err)
		return err;
	braid_tx_advance(lane, p.bytes);
	slot_used(w, braid_lane_counts(lane).sent);
	return 0;
}

int braid_verbs_read(struct braid_lane *lane, struct braid_read *r)
{
	struct braid_qp *w = braid_qp_of(lane);
	struct ibv_send_wr *wr;

	braid_assert_locked(&lane->link->lock);
	if (w->over || !may_send(w) || !sq_room(w, 3))
		return -EAGAIN;
	wr = chain_add(w, IBV_WR_RDMA_READ, r->to, r->len, r->local);
	wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
	wr->wr.rdma.remote_addr = r->from;
	wr->wr.rdma.rkey = r->remote;
	signal_it(w, wr);
	r->id = w->sq_posted;
	if (braid_verbs_chain_post(w))		/* the next poll reports it, like any fault */
		atomic_store(&w->broken, true);
	return 0;
}

/* A shortcut: sends a single message as add_send() would. */
BRAID_HOT int braid_verbs_post(struct braid_lane *lane, uint32_t imm, const char *payload,
			       uint32_t len)
{
	struct braid_qp *w = braid_qp_of(lane);
	const struct ibv_mr *ring;
	int err;

	braid_assert_locked(&lane->link->lock);
	if (w->over || w->ring != lane->tx.ring || must_acknowledge(lane, w) || !sq_room(w, 1) ||
	    !has_slot(w, lane) || !may_send(w))
		return -EAGAIN;
	ring = ring_mr(w);
	if (!ring && BRAID_SHORT_SIZE + len > w->inline_max)
		return -EAGAIN;
	add_bare(w, payload, len, ring ? ring->lkey : 0, imm);
	err = braid_verbs_chain_post(w);
	if (!err)
		slot_used(w, braid_lane_counts(lane).sent + 1);
	return err;
}

/*
 * Requests complete in order.  If the last one asked for no completion, one more does: a WRITE of
 * the counts, which takes no slot.
 */
bool braid_verbs_rest(struct braid_lane *lane)
{
	struct braid_qp *w = braid_qp_of(lane);

	braid_assert_locked(&lane->link->lock);
	if (w->over)
		return false;
	if (braid_qp_rings_rest(w, !sq_used(w)))
		return true;
	if (w->sq_signal == w->sq_posted || !may_send(w) || !sq_room(w, 1))
		return false;
	braid_verbs_write_counts(lane, w);
	signal_it(w, &w->chain.wr[0]);
	if (braid_verbs_chain_post(w))		/* the next poll reports it, like any fault */
		atomic_store(&w->broken, true);
	return false;
}

BRAID_HOT int braid_verbs_push(struct braid_lane *lane)
{
	struct braid_qp *w = braid_qp_of(lane);
	struct braid_txq *q = &lane->tx;
	uint64_t later = q->unsent > BRAID_CALL_BUDGET ? q->unsent - BRAID_CALL_BUDGET : 0;
	int err = 0;

	braid_assert_locked(&lane->link->lock);
	if (w->over)
		return -ENETRESET;
	if (!may_send(w))
		return -EAGAIN;
	if (w->ring != q->ring) {		/* home has moved here, and brought its ring */
		err = braid_qp_ring(w, q->ring, q->ring_size);
		if (err)
			return err;
	}
	while (q->unsent > later && !err) {
		if (w->chain.n + 2 > BRAID_CHAIN && braid_verbs_chain_post(w))
			return -EIO;
		err = add_next(lane, w);
	}
	return braid_verbs_chain_post(w) ? -EIO : err;
}
