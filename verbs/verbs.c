/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs.c - RDMA: frames over a reliable queue pair.
 *
 *	small frames, control	one SEND, as many as fit into a slot together; the peer has posted
 *				its slots before, and takes the frames out of them.  A message
 *				alone has 32 bits of immediate data for a header, or a short one
 *	chunks			one RDMA WRITE into the place that the credit named, which says with
 *				32 bits of immediate data whose it was; where those can't be had
 *				(iWARP), the chunk's header follows as a SEND, behind that of the
 *				START if it is the first
 *	chunks that NICs can't	as SENDs, piece by piece, copied where memory is not registered:
 *	place			always possible, for whatever came from another transport
 *
 * The peer's slots are counted: each work request that takes one is noted with the frame whose
 * acknowledgement will say that the slot is posted again.  But a frame may take more slots than
 * there are, and two ends may fill each other's.  So who has posted half of his again, and not
 * said so by a frame, writes his counts into the peer's memory, which takes no slot.
 *
 * lane->fd is the socket of the handshake: it ends when the peer's process does.  A byte on it says
 * that the peer has closed its queue pair for its own reasons.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "core/link.h"
#include "core/log.h"
#include "core/os.h"
#include "core/param.h"
#include "verbs/cm.h"
#include "verbs/gpu.h"
#include "verbs/wire.h"

enum {
	SIGNAL_EVERY = 32,
	SIW_PAGED = 4096,		/* not signalled, it goes page by page, and uncopied */
	POLLS = 4,			/* batches of completions a call */
	LOOKS = 7,			/* more, for callers who ask about nothing else */
	STUCK_IWARP = 15, STUCK = 40,	/* looks ... */
	LOOK_NS = 100000000,		/* ... so far apart */
	FLIGHT = 4 << 20,		/* more would be in the way of what we have to say */
};

static struct braid_wire *wire_of(const struct braid_lane *lane)
{
	return lane->wire;
}

/* --- sending ------------------------------------------------------------------------------- */

static unsigned sq_used(const struct braid_wire *w)
{
	return w->sq_posted - atomic_load_explicit(&w->sq_done, memory_order_acquire);
}

static bool sq_room(const struct braid_wire *w, unsigned n)
{
	return sq_used(w) + n <= w->sq_max;
}

/*
 * Of most requests it need not be known when they are over.  A message of soft-iWARP's leaves in
 * fewer segments if it is; a large write leaves sooner if it is not, and its header, which follows,
 * is.
 */
static bool is_signalled(const struct braid_wire *w, enum ibv_wr_opcode op, uint32_t len)
{
	if (w->port->siw && len >= SIW_PAGED)
		return op != IBV_WR_RDMA_WRITE;
	return w->sq_posted - w->sq_signal >= SIGNAL_EVERY;
}

/* One more. */
static struct ibv_send_wr *chain_add(struct braid_wire *w, enum ibv_wr_opcode op, const void *data,
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

static void signal_it(struct braid_wire *w, struct ibv_send_wr *wr)
{
	wr->send_flags |= IBV_SEND_SIGNALED;
	w->sq_signal = w->sq_posted;
}

static BRAID_APART int post_hushed(struct braid_wire *w)
{
	struct ibv_send_wr *bad;
	struct braid_hush h;
	int err;

	braid_hush(w->port, &h);
	err = ibv_post_send(w->qp, w->chain.wr, &bad);
	braid_unhush(&h);
	return err;
}

static int chain_post(struct braid_wire *w)
{
	struct ibv_send_wr *bad;
	int err;

	if (!w->chain.n)
		return 0;
	err = braid_may_pipe(w->port) ? post_hushed(w) : ibv_post_send(w->qp, w->chain.wr, &bad);
	w->chain.n = 0;
	return err ? -EIO : 0;
}

static bool may_speak(struct braid_wire *w)
{
	if (!w->may_speak)
		w->may_speak = atomic_load_explicit(&w->m->ack[1], memory_order_relaxed);
	return w->may_speak;
}

/* Some are free again if frames were acknowledged, or the peer has counted. */
static BRAID_APART bool slots_back(struct braid_wire *w, const struct braid_txq *q)
{
	uint32_t counted = le32toh(atomic_load_explicit(&w->m->ack[1], memory_order_acquire));

	if (counted != w->count_seen && counted - 1 - w->wr_tail <= w->wr_head - w->wr_tail)
		w->wr_tail = counted - 1;
	w->count_seen = counted;
	while (w->wr_tail != w->wr_head &&
	       (int32_t)(q->f_told - w->wr_frame[w->wr_tail % BRAID_SLOTS_RX]) >= 0)
		w->wr_tail++;
	return w->wr_head - w->wr_tail < w->wr_max;
}

/* Has the peer a slot for one message more? */
static bool has_slot(struct braid_wire *w, const struct braid_txq *q)
{
	return w->wr_head - w->wr_tail < w->wr_max || slots_back(w, q);
}

/* Frames that have left, or begun to. */
static uint32_t begun(const struct braid_txq *q)
{
	return q->f_sent + (q->part != 0);
}

/* A slot is used, by the last of so many frames. */
static void slot_used(struct braid_wire *w, uint32_t frames)
{
	w->wr_frame[w->wr_head++ % BRAID_SLOTS_RX] = frames;
}

/* The counts of what has been received, into the peer's memory. */
static BRAID_APART void say_count(struct braid_lane *lane, struct braid_wire *w)
{
	_Atomic uint32_t *words = w->m->ack + BRAID_ACK_OUT;
	struct ibv_send_wr *wr;

	atomic_store_explicit(&words[0], htole32(lane->rx_frames), memory_order_relaxed);
	atomic_store_explicit(&words[1], htole32(w->slots + 1), memory_order_relaxed);
	wr = chain_add(w, IBV_WR_RDMA_WRITE, (const void *)words, 8, w->m->ack_mr->lkey);
	wr->wr.rdma.remote_addr = w->peer_ack;
	wr->wr.rdma.rkey = w->peer_ack_key;
	w->slots_told = w->slots;
	braid_lane_told(lane);
}

/* How many slots are there again that the peer does not know of, as far as we know. */
static unsigned slots_untold(const struct braid_lane *lane, struct braid_wire *w)
{
	if ((int32_t)(lane->rx_told - w->mark_frames) >= 0) {
		if ((int32_t)(w->mark_slots - w->slots_told) > 0)
			w->slots_told = w->mark_slots;
		if (lane->rx_kind == BRAID_RX_NONE) {
			w->mark_frames = lane->rx_frames;
			w->mark_slots = w->slots;
		}
	}
	return w->slots - w->slots_told;
}

/* With the link's lock held. */
static int count_if_due(struct braid_lane *lane, struct braid_wire *w)
{
	w->count_due = slots_untold(lane, w) >= BRAID_SLOTS_RX / 2;
	if (!w->count_due || !may_speak(w) || !sq_room(w, 1))
		return 0;
	w->count_due = false;
	say_count(lane, w);
	return chain_post(w);
}

/* A free piece of registered memory, or NULL: not now. */
static char *bounce(struct braid_wire *w)
{
	uint32_t at = w->bounces % BRAID_BOUNCES;

	if (w->bounces >= BRAID_BOUNCES &&
	    (int32_t)(atomic_load(&w->sq_done) - w->bounce_wr[at]) < 0)
		return NULL;
	return w->m->bounce + at * BRAID_SLOT;
}

static void bounce_used(struct braid_wire *w, struct ibv_send_wr *wr)
{
	w->bounce_wr[w->bounces++ % BRAID_BOUNCES] = w->sq_posted;
	signal_it(w, wr);
}

enum { PIECES_MAX = BRAID_CHAIN - 1 };	/* their header goes with them */

static uint32_t pieces_of(const struct braid_wire *w, uint32_t len)
{
	return len / w->port->max_msg + (len % w->port->max_msg != 0);
}

/* Into its place by one write, or by several if the device takes fewer bytes in one: the last. */
static struct ibv_send_wr *add_pieces(struct braid_wire *w, const struct braid_put *p)
{
	enum ibv_wr_opcode op = p->has_imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
	uint32_t most = w->port->max_msg, n;
	struct ibv_send_wr *wr;

	for (uint32_t at = 0;; at += n) {
		n = p->len - at < most ? p->len - at : most;
		wr = chain_add(w, op, p->data + at, n, p->local);
		wr->wr.rdma.remote_addr = p->to + at;
		wr->wr.rdma.rkey = p->remote;
		if (p->gpu)		/* which the CPU would read */
			wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
		if (at + n == p->len)
			return wr;
	}
}

/* A chunk into its place: 0, or -EAGAIN: no memory to send its header from. */
static int add_write(struct braid_lane *lane, struct braid_wire *w, const struct braid_put *p)
{
	struct ibv_send_wr *wr;
	char *hdrs = w->chain.hdrs[w->chain.n + pieces_of(w, p->len) - 1];
	bool copied = !p->has_imm && w->inline_max < p->hdrs_len;

	if (copied)
		hdrs = bounce(w);
	if (!hdrs)
		return -EAGAIN;
	wr = add_pieces(w, p);
	if (p->has_imm) {
		wr->imm_data = htobe32(p->imm);
	} else {
		braid_tx_stamp(lane);
		memcpy(hdrs, p->hdrs, p->hdrs_len);
		hdrs[p->hdrs_len - BRAID_HDR_SIZE + 1] |= BRAID_FLAG_PLACED;
		wr = chain_add(w, IBV_WR_SEND, hdrs, p->hdrs_len, w->m->bounce_mr->lkey);
	}
	if (copied)
		bounce_used(w, wr);
	braid_tx_advance(lane, p->bytes);
	slot_used(w, begun(&lane->tx));
	return 0;
}

/* A message without its header, that lies behind it: with the short one, or immediate data. */
static struct ibv_send_wr *add_bare(struct braid_wire *w, const char *payload, uint32_t len,
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

static const struct ibv_mr *ring_mr(const struct braid_wire *w)
{
	return atomic_load_explicit(&w->rings->mr, memory_order_acquire);
}

/* One SEND: 0, or -EAGAIN: no memory to send from.  may_bare: of one frame, without its header. */
static int add_send(struct braid_lane *lane, struct braid_wire *w, bool may_bare)
{
	struct braid_txq *q = &lane->tx;
	const struct braid_txf *f = &q->f[q->f_sent & q->fmask];
	const struct ibv_mr *ring = ring_mr(w);
	bool whole = q->part < f->inl, bare = false;
	size_t len, at = q->part - f->inl;
	const char *from = whole ? q->ring + f->off : f->ext + at;
	const struct braid_key *gpu = whole ? NULL : braid_tx_gpu(lane);
	struct ibv_send_wr *wr;
	uint32_t n, key, imm = 0;
	char *copy = NULL;

	if (!gpu && (!whole || !ring)) {
		copy = bounce(w);
		if (!copy)
			return -EAGAIN;
	}
	if (whole) {
		assert(!q->part);
		len = braid_tx_piece(q, BRAID_SLOT, false);
		bare = may_bare && len == f->inl && braid_tx_bare(lane, &imm);
		if (!bare)
			braid_tx_stamp(lane);
	} else {
		len = f->ext_len - at < BRAID_SLOT ? f->ext_len - at : BRAID_SLOT;
	}
	n = (uint32_t)len;
	if (copy) {
		memcpy(copy, from, n);
		from = copy;
	}
	key = copy ? w->m->bounce_mr->lkey : gpu ? gpu->local : ring->lkey;
	wr = bare ? add_bare(w, from + BRAID_HDR_SIZE, n - BRAID_HDR_SIZE, key, imm) :
		    chain_add(w, IBV_WR_SEND, from, n, key);
	if (copy)
		bounce_used(w, wr);
	if (gpu)
		wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
	braid_tx_advance(lane, len);
	slot_used(w, begun(q));
	return 0;
}

/* So much that a header is sent, which says what has been received here. */
static bool owes(const struct braid_lane *lane, const struct braid_wire *w)
{
	return lane->rx_frames - lane->rx_told >= w->wr_max / 4;
}

/* The next frame, or a piece of it: 0, or -EAGAIN: the NIC or the peer has no room. */
static int add_next(struct braid_lane *lane, struct braid_wire *w)
{
	struct braid_txq *q = &lane->tx;
	bool owing = owes(lane, w);
	struct braid_put put;

	if (!sq_room(w, 3))
		return -EAGAIN;
	if (!has_slot(w, q)) {
		if (owing)
			say_count(lane, w);
		return -EAGAIN;
	}
	if (!braid_tx_may_put(q) || !braid_tx_put(lane, owing ? 0 : w->imm_max, &put) ||
	    pieces_of(w, put.len) > PIECES_MAX)
		return add_send(lane, w, !owing);
	if (put.len <= w->port->max_msg)
		return add_write(lane, w, &put);
	if (!sq_room(w, pieces_of(w, put.len) + 2))
		return -EAGAIN;
	return chain_post(w) ? -EIO : add_write(lane, w, &put);
}

/* As add_send() would have it, of a message alone. */
static BRAID_HOT int verbs_post(struct braid_lane *lane, uint32_t imm, const char *payload,
				uint32_t len)
{
	struct braid_wire *w = wire_of(lane);
	struct braid_txq *q = &lane->tx;
	const struct ibv_mr *ring;
	int err;

	if (w->over || w->ring != q->ring || owes(lane, w) || !sq_room(w, 1) || !has_slot(w, q) ||
	    !may_speak(w))
		return -EAGAIN;
	ring = ring_mr(w);
	if (!ring)
		return -EAGAIN;
	add_bare(w, payload, len, ring->lkey, imm);
	err = chain_post(w);
	if (!err)
		slot_used(w, begun(q) + 1);
	return err;
}

static BRAID_HOT int verbs_push(struct braid_lane *lane)
{
	struct braid_wire *w = wire_of(lane);
	struct braid_txq *q = &lane->tx;
	uint64_t later = q->unsent > BRAID_CALL_BUDGET ? q->unsent - BRAID_CALL_BUDGET : 0;
	int err = 0;

	if (w->over)
		return -ENETRESET;
	if (!may_speak(w))
		return -EAGAIN;
	if (w->ring != q->ring) {		/* home has moved here, with all that it had */
		err = braid_wire_ring(w, q->ring, q->ring_size);
		if (err)
			return err;
	}
	while (q->unsent > later && !err) {
		if (w->chain.n + 2 > BRAID_CHAIN && chain_post(w))
			return -EIO;
		err = add_next(lane, w);
	}
	return chain_post(w) ? -EIO : err;
}

/* --- receiving ----------------------------------------------------------------------------- */

static BRAID_COLD int wc_failed(const struct braid_lane *lane, const struct ibv_wc *wc)
{
	const struct braid_wire *w = wire_of(lane);
	const char *hint = wc->status == IBV_WC_RETRY_EXC_ERR ?
			   "; the peer did not answer: a path that is down, or a GID, VLAN or "
			   "firewall (UDP 4791) that does not let it through" :
			   wc->status == IBV_WC_LOC_PROT_ERR ?
			   "; if memory of a GPU is concerned, look at PCIe ACS" : "";

	braid_info("port %s, peer %s: queue pair 0x%x: %s (vendor 0x%x)%s", w->port->name,
		   lane->link->peer, w->qp->qp_num,
		   braid_ibv.wc_status_str(wc->status), wc->vendor_err, hint);
	return wc->status == IBV_WC_RETRY_EXC_ERR ? -ETIMEDOUT : -EIO;
}

/* A slot is empty.  The caller may wait for what was in it: it is posted later, with others. */
static void slot_free(struct braid_wire *w, struct ibv_recv_wr *slot)
{
	if (!w->nagain++)
		w->again_end = &w->again;
	*w->again_end = slot;
	w->again_end = &slot->next;
	w->slots++;
}

static int slots_post(struct braid_wire *w)
{
	if (w->nagain < (w->srq ? atomic_load_explicit(&w->srq->repost, memory_order_relaxed) :
				  BRAID_REPOST))
		return 0;
	w->nagain = 0;
	*w->again_end = NULL;
	return braid_wire_post_recv(w, w->again) ? -EIO : 0;
}

static int take_recv(struct braid_lane *lane, const struct ibv_wc *wc, const char *slot)
{
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		return braid_rx_imm(lane, be32toh(wc->imm_data), wc->byte_len);
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		return braid_rx_bare(lane, be32toh(wc->imm_data), slot, wc->byte_len);
	return braid_rx_take(lane, slot, wc->byte_len);
}

/* What has come with completions beg .. end.  -EAGAIN: the next is on its way into a GPU. */
static int take_all(struct braid_lane *lane, struct braid_wire *w)
{
	uint64_t bytes = 0;
	int i = w->wc_beg, err = 0, again = 0;

	for (; i < w->wc_end && !err; i++) {
		const struct ibv_wc *wc = &w->wc[i];

		if (wc->status != IBV_WC_SUCCESS) {
			err = wc_failed(lane, wc);
			break;
		}
		if (!(wc->opcode & IBV_WC_RECV)) {
			atomic_store_explicit(&w->sq_done, (uint32_t)wc->wr_id,
					      memory_order_release);
			continue;
		}
		err = take_recv(lane, wc, braid_slot_data(braid_slot_wr(wc)));
		if (err == -EAGAIN)
			break;
		bytes += wc->byte_len + 1;
		slot_free(w, braid_slot_wr(wc));
	}
	w->wc_beg = i;
	/* Before the lock is given back: what says that they are there goes under it. */
	if (!err || err == -EAGAIN)
		again = slots_post(w);
	braid_count(&lane->rx_bytes, bytes);
	return again ? again : err;
}

/* The peer has written its count: with the link's lock held. */
static int take_count(struct braid_lane *lane, struct braid_wire *w)
{
	uint32_t count = le32toh(atomic_load_explicit(w->m->ack, memory_order_acquire));
	int err;

	if (count == w->ack_seen)
		return 0;
	w->ack_seen = count;
	err = braid_rx_broken(lane, "a count of more than was sent",
			      braid_tx_acked(lane, count));
	if (!err)
		braid_count(&lane->rx_bytes, 1);
	return err;
}

static bool has_count(const struct braid_wire *w)
{
	return le32toh(atomic_load_explicit(w->m->ack, memory_order_relaxed)) != w->ack_seen;
}

/* Is there something to take?  1, 0 or -EIO. */
static int look(struct braid_wire *w)
{
	int n;

	if (w->wc_beg == w->wc_end) {
		n = ibv_poll_cq(w->cq, BRAID_POLL_MAX, w->wc);
		w->wc_beg = 0;
		w->wc_end = n < 0 ? 0 : n;
		if (n)
			return n < 0 ? -EIO : 1;
	}
	return w->wc_beg != w->wc_end || has_count(w) || w->count_due;
}

/* There is: how often something was taken, or a negative errno. */
static BRAID_APART BRAID_HOT int take(struct braid_lane *lane, struct braid_wire *w)
{
	struct braid_lock *lock = &lane->link->lock;
	int taken = 0, err, later;

	do {
		if (!braid_trylock(lock))
			return 1;
		later = take_all(lane, w);
		err = later == -EAGAIN ? 0 : later;
		if (!err)
			err = take_count(lane, w);
		if (!err)
			err = count_if_due(lane, w);
		braid_unlock(lock);
		taken++;
		if (err || later || w->wc_end < BRAID_POLL_MAX || taken == POLLS)
			break;
		err = look(w);
	} while (err > 0);
	w->fruitless = 0;
	/* That its queue pair does not answer is then no wonder, nor the NIC's fault. */
	if (err)
		return braid_lane_look_at_fd(lane) == -ENOTCONN ? -ENOTCONN : err;
	return taken;
}

static BRAID_COLD int look_and_take(struct braid_lane *lane)
{
	struct braid_wire *w = wire_of(lane);
	int res = look(w);

	return res > 0 ? take(lane, w) : res;
}

static BRAID_HOT int verbs_poll(struct braid_lane *lane)
{
	struct braid_wire *w = wire_of(lane);
	int res;

	if (w->over)
		return 0;
	res = look(w);
	if (!res && atomic_load_explicit(&lane->link->alone, memory_order_relaxed)) {
		for (unsigned i = 0; i < LOOKS && !res; i++)
			res = look(w);
	}
	if (res)
		return res < 0 ? res : take(lane, w);
	if (atomic_load_explicit(&w->broken, memory_order_relaxed)) {
		res = braid_lane_last_words(lane, look_and_take);
		return res ? res : -EIO;
	}
	return braid_lane_look_due(lane, &w->fruitless) ?
		       braid_lane_last_words(lane, look_and_take) : 0;
}

/* --- devices ------------------------------------------------------------------------------- */

static int verbs_event_fd(const struct braid_dev *dev)
{
	const struct braid_port *p = braid_port_of(dev);

	return !p ? -1 : p->cm ? p->cm->fd : p->ctx->async_fd;
}

static bool verbs_events(struct braid_dev *dev)
{
	struct braid_port *p = braid_port_of(dev);

	if (p && !p->cm)
		braid_port_events(p);
	return p && p->cm && braid_cm_events(p, dev);
}

/* --- lanes --------------------------------------------------------------------------------- */

static int verbs_open(struct braid_lane *lane)
{
	struct braid_wire *w = wire_of(lane);
	int err = 0;

	if (lane->tx.ring)
		err = braid_wire_ring(w, lane->tx.ring, lane->tx.ring_size);
	if (err)
		return err;
	lane->local = false;
	lane->flight_max = FLIGHT;
	lane->ack_frames = w->wr_max / 2;
	lane->event_fd = w->channel->fd;
	w->may_speak = w->dialler || w->port->fabric != BRAID_FABRIC_IWARP;
	/* iWARP: who has dialled must be the first to say something. */
	if (w->dialler && w->port->fabric == BRAID_FABRIC_IWARP) {
		say_count(lane, w);
		if (chain_post(w))	/* heard at the first poll, as any fault */
			atomic_store(&w->broken, true);
	}
	w->ack_seen = 0;
	w->qpn = w->qp->qp_num;
	return 0;
}

static int verbs_attach(struct braid_lane *lane)
{
	struct braid_wire *w = wire_of(lane);

	return w->ring == lane->tx.ring ? 0 :
	       braid_wire_ring(w, lane->tx.ring, lane->tx.ring_size);
}

/*
 * The socket ends first: a peer whose queue pair then fails looks there, and knows that it was us.
 */
static void verbs_close(struct braid_lane *lane)
{
	if (lane->fd >= 0)
		braid_os->close(lane->fd);
	lane->fd = -1;
	braid_wire_free(wire_of(lane));
	lane->wire = NULL;
	lane->event_fd = -1;
	lane->rx_dst = NULL;
}

static void verbs_fence(struct braid_lane *lane)
{
	struct braid_wire *w = wire_of(lane);

	if (!w || w->over)
		return;
	braid_os->shutdown(lane->fd);
	braid_wire_fence(w);
}

static bool verbs_arm(struct braid_lane *lane)
{
	struct braid_wire *w = wire_of(lane);
	struct ibv_cq *cq;
	unsigned n = 0;
	void *user;

	while (!braid_ibv.get_cq_event(w->channel, &cq, &user))
		n++;
	if (n)
		braid_ibv.ack_cq_events(w->cq, n);
	return !ibv_req_notify_cq(w->cq, 0);
}

/* Looks until a lane on which nothing moves is given up: not while its queue pair may still try. */
static unsigned patience(const struct braid_wire *w)
{
	uint64_t ns = (UINT64_C(4096) << braid_param.ib_timeout) * (braid_wire_retries() + 1u);
	uint64_t looks = ns / LOOK_NS * 5 / 4;

	if (w->port->fabric == BRAID_FABRIC_IWARP)
		return STUCK_IWARP;
	return looks > STUCK ? (unsigned)looks : STUCK;
}

static int verbs_health(struct braid_lane *lane, struct braid_health *ret)
{
	struct braid_wire *w = wire_of(lane);
	int err;

	braid_port_events(w->port);
	braid_hush_look(w->port);
	if (atomic_load(&w->port->down))
		return -ENETDOWN;
	if (atomic_load(&w->broken))
		return -EIO;
	if (atomic_load(&w->port->moves) != w->moves)
		return -ENETRESET;	/* answers go to the LID that the port had */
	ret->unacked = true;
	if (!braid_trylock(&lane->link->lock))
		return 0;		/* it is being moved */
	ret->unacked = lane->tx.f_sent != lane->tx.f_told;
	/* A queue pair notices by itself, but for iWARP, which goes by TCP's patience. */
	err = braid_lane_stuck(lane, &w->look, patience(w)) ? -ETIMEDOUT : 0;
	braid_unlock(&lane->link->lock);
	return err;
}

/* Not asked of the NIC: one whose firmware hangs would keep us, with the link's lock held. */
static void verbs_describe(struct braid_lane *lane, struct braid_wire_state *ret)
{
	const struct braid_wire *w = wire_of(lane);

	snprintf(ret->text, sizeof(ret->text), "queue pair 0x%x%s, port %s %s",
		 w->qpn, w->over ? " (fenced)" : "", w->port->name,
		 atomic_load(&w->port->down) ? "down" : "up");
}

const struct braid_transport braid_verbs = {
	.name = "verbs",
	.id = BRAID_TRANSPORT_VERBS,
	.dma = true,
	.ports = true,
	.lane_size = sizeof(struct braid_lane),
	.probe = braid_port_probe,
	.usable = braid_port_usable,
	.event_fd = verbs_event_fd,
	.events = verbs_events,
	.reg = braid_port_reg,
	.dereg = braid_port_dereg,
	.gpu = &braid_port_gpu,
	.blob = true,
	.setup = braid_wire_setup,
	.setup_peer = braid_wire_peer,
	.setup_ready = braid_wire_ready,
	.setup_drop = braid_wire_drop,
	.lane_open = verbs_open,
	.lane_attach = verbs_attach,
	.lane_detach = braid_no_lane,
	.lane_close = verbs_close,
	.lane_fence = verbs_fence,
	.arm = verbs_arm,
	.push = verbs_push,
	.post = verbs_post,
	.poll = verbs_poll,
	.health = verbs_health,
	.describe = verbs_describe,
};
