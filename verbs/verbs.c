/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs.c - RDMA: frames over a reliable queue pair.
 *
 *	small frames, control	one SEND with as many frames as fit into a slot; the peer has posted
 *				its slots in advance.  A single message has 32 bits of immediate
 *				data in place of its header, or a short header
 *	chunks			one RDMA WRITE to the address in the CREDIT, with 32 bits of
 *				immediate data that say whose chunk it is.  Without immediate data
 *				(iWARP) the chunk's header follows as a SEND, after the header of
 *				the START if the chunk is the first
 *	chunks that NICs can't	as SENDs, piece by piece, copied if the memory is not registered:
 *	place			always possible, also for frames queued for another transport
 *
 * A sender counts the peer's slots.  For each slot used, it notes the frame whose acknowledgement
 * will mean that the slot is posted again.  But one frame may take more slots than the peer has,
 * and both ends may fill each other's slots.  So a receiver that has posted half of its slots
 * again, and has not yet reported so by a frame, writes its counts into the peer's memory by an
 * RDMA WRITE, which takes no slot.
 *
 * lane->fd is the handshake's socket: it is closed when the peer's process ends.  A byte on it says
 * that the peer has closed its queue pair for reasons of its own.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "core/link/lane_io.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "verbs/cm.h"
#include "verbs/events.h"
#include "verbs/gpu.h"
#include "verbs/mr.h"
#include "verbs/qp.h"
#include "verbs/sigpipe.h"

enum {
	SIGNAL_EVERY = 32,
	SIW_PAGED = 4096,		/* from here on, unsignalled data leaves page by page */
	POLLS = 4,			/* batches of completions a call */
	LOOKS = 7,			/* more polls, if no other link is in use */
	STUCK_IWARP = 15, STUCK = 40,	/* checks without progress: then the lane is given up ... */
	LOOK_NS = 100000000,		/* ... and so far apart */
	FLIGHT = 4 << 20,		/* bytes of chunks; more would delay other frames */
};

static struct braid_qp *qp_of(const struct braid_lane *lane)
{
	return lane->priv;
}

/* --- sending ------------------------------------------------------------------------------- */

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

static int chain_post(struct braid_qp *w)
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

static bool may_speak(struct braid_qp *w)
{
	if (!w->may_speak)
		w->may_speak = atomic_load_explicit(&w->m->ack[1], memory_order_relaxed);
	return w->may_speak;
}

/* Takes in acknowledgements and the peer's count of free slots.  True: it has a free one. */
static BRAID_APART bool slots_back(struct braid_qp *w, const struct braid_txq *q)
{
	uint32_t counted = le32toh(atomic_load_explicit(&w->m->ack[1], memory_order_acquire));

	if (counted != w->count_seen && counted - 1 - w->wr_tail <= w->wr_head - w->wr_tail)
		w->wr_tail = counted - 1;
	w->count_seen = counted;
	while (w->wr_tail != w->wr_head &&
	       (int32_t)(q->f_peer_acked - w->wr_frame[w->wr_tail % BRAID_SLOTS_RX]) >= 0)
		w->wr_tail++;
	return w->wr_head - w->wr_tail < w->wr_max;
}

/* Has the peer a slot for one more message? */
static bool has_slot(struct braid_qp *w, const struct braid_txq *q)
{
	return w->wr_head - w->wr_tail < w->wr_max || slots_back(w, q);
}

/* Frames that have left, or begun to. */
static uint32_t begun(const struct braid_txq *q)
{
	return q->f_sent + (q->part != 0);
}

/* Notes a used slot, which is free again once so many frames are acknowledged. */
static void slot_used(struct braid_qp *w, uint32_t frames)
{
	w->wr_frame[w->wr_head++ % BRAID_SLOTS_RX] = frames;
}

/* Writes the counts of received frames and of free slots into the peer's memory. */
static BRAID_APART void say_count(struct braid_lane *lane, struct braid_qp *w)
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

/* How many slots were posted again without a report that reached the peer for certain. */
static unsigned slots_untold(const struct braid_lane *lane, struct braid_qp *w)
{
	if ((int32_t)(lane->rx_acked - w->mark_frames) >= 0) {
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
static int count_if_due(struct braid_lane *lane, struct braid_qp *w)
{
	w->count_due = slots_untold(lane, w) >= BRAID_SLOTS_RX / 2;
	if (!w->count_due || !may_speak(w) || !sq_room(w, 1))
		return 0;
	w->count_due = false;
	say_count(lane, w);
	return chain_post(w);
}

/* A free piece of registered memory, or NULL: none is free now. */
static char *bounce(struct braid_qp *w)
{
	uint32_t at = w->bounces % BRAID_BOUNCES;

	if (w->bounces >= BRAID_BOUNCES &&
	    (int32_t)(atomic_load(&w->sq_done) - w->bounce_wr[at]) < 0)
		return NULL;
	return w->m->bounce + at * BRAID_SLOT;
}

static void bounce_used(struct braid_qp *w, struct ibv_send_wr *wr)
{
	w->bounce_wr[w->bounces++ % BRAID_BOUNCES] = w->sq_posted;
	signal_it(w, wr);
}

enum { PIECES_MAX = BRAID_CHAIN - 1 };	/* their header goes with them */

static uint32_t pieces_of(const struct braid_qp *w, uint32_t len)
{
	return len / w->port->max_msg + (len % w->port->max_msg != 0);
}

/* Adds one WRITE, or several if the device takes fewer bytes in each; returns the last. */
static struct ibv_send_wr *add_pieces(struct braid_qp *w, const struct braid_put *p)
{
	enum ibv_wr_opcode op = p->has_imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
	uint32_t most = w->port->max_msg, n;
	struct ibv_send_wr *wr;

	for (uint32_t at = 0;; at += n) {
		n = p->len - at < most ? p->len - at : most;
		wr = chain_add(w, op, p->data + at, n, p->local);
		wr->wr.rdma.remote_addr = p->to + at;
		wr->wr.rdma.rkey = p->remote;
		if (p->gpu)		/* the CPU would read inline data */
			wr->send_flags &= ~(unsigned)IBV_SEND_INLINE;
		if (at + n == p->len)
			return wr;
	}
}

/* Adds the WRITE of a chunk.  0, or -EAGAIN: no memory to send its header from. */
static int add_write(struct braid_lane *lane, struct braid_qp *w, const struct braid_put *p)
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

/* Adds a SEND.  0, or -EAGAIN: no memory to send from.  may_bare: a single message may go bare. */
static int add_send(struct braid_lane *lane, struct braid_qp *w, bool may_bare)
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
		bare = may_bare && len == f->inl && braid_tx_nohdr(lane, &imm);
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

/* Are so many frames unacknowledged that the next message needs its header, which does that? */
static bool owes(const struct braid_lane *lane, const struct braid_qp *w)
{
	return lane->rx_frames - lane->rx_acked >= w->wr_max / 4;
}

/* Adds the next frame, or a piece of it.  0, or -EAGAIN: the NIC or the peer has no room. */
static int add_next(struct braid_lane *lane, struct braid_qp *w)
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

/* A shortcut: sends a single message as add_send() would. */
static BRAID_HOT int verbs_post(struct braid_lane *lane, uint32_t imm, const char *payload,
				uint32_t len)
{
	struct braid_qp *w = qp_of(lane);
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
	struct braid_qp *w = qp_of(lane);
	struct braid_txq *q = &lane->tx;
	uint64_t later = q->unsent > BRAID_CALL_BUDGET ? q->unsent - BRAID_CALL_BUDGET : 0;
	int err = 0;

	if (w->over)
		return -ENETRESET;
	if (!may_speak(w))
		return -EAGAIN;
	if (w->ring != q->ring) {		/* home has moved here, and brought its ring */
		err = braid_qp_ring(w, q->ring, q->ring_size);
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
	const struct braid_qp *w = qp_of(lane);
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

/* Queues an empty slot.  slots_post() posts it with others, since the caller may wait for data. */
static void slot_free(struct braid_qp *w, struct ibv_recv_wr *slot)
{
	if (!w->nagain++)
		w->again_end = &w->again;
	*w->again_end = slot;
	w->again_end = &slot->next;
	w->slots++;
}

static int slots_post(struct braid_qp *w)
{
	if (w->nagain < (w->srq ? atomic_load_explicit(&w->srq->repost, memory_order_relaxed) :
				  BRAID_REPOST))
		return 0;
	w->nagain = 0;
	*w->again_end = NULL;
	return braid_qp_post_recv(w, w->again) ? -EIO : 0;
}

static int take_recv(struct braid_lane *lane, const struct ibv_wc *wc, const char *slot)
{
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		return braid_rx_imm(lane, be32toh(wc->imm_data), wc->byte_len);
	if (wc->wc_flags & IBV_WC_WITH_IMM)
		return braid_rx_nohdr(lane, be32toh(wc->imm_data), slot, wc->byte_len);
	return braid_rx_take(lane, slot, wc->byte_len);
}

/* Takes completions wc_beg .. wc_end.  -EAGAIN: the next one's data is on its way into a GPU. */
static int take_all(struct braid_lane *lane, struct braid_qp *w)
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
	/* Before the lock is released: under it go the frames that report the slots as posted. */
	if (!err || err == -EAGAIN)
		again = slots_post(w);
	braid_count(&lane->rx_bytes, bytes);
	return again ? again : err;
}

/* Takes in the count that the peer writes into our memory.  With the link's lock held. */
static int take_count(struct braid_lane *lane, struct braid_qp *w)
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

static bool has_count(const struct braid_qp *w)
{
	return le32toh(atomic_load_explicit(w->m->ack, memory_order_relaxed)) != w->ack_seen;
}

/* Is there something to take?  1, 0 or -EIO. */
static int look(struct braid_qp *w)
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

/* Takes what look() has found.  Returns how many times, or a negative errno. */
static BRAID_APART BRAID_HOT int take(struct braid_lane *lane, struct braid_qp *w)
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
	w->idle_polls = 0;
	/* If the peer's process has ended, the NIC is not at fault. */
	if (err)
		return braid_lane_look_at_fd(lane) == -ENOTCONN ? -ENOTCONN : err;
	return taken;
}

static BRAID_COLD int look_and_take(struct braid_lane *lane)
{
	struct braid_qp *w = qp_of(lane);
	int res = look(w);

	return res > 0 ? take(lane, w) : res;
}

static BRAID_HOT int verbs_poll(struct braid_lane *lane)
{
	struct braid_qp *w = qp_of(lane);
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
	return braid_lane_look_due(lane, &w->idle_polls) ?
		       braid_lane_last_words(lane, look_and_take) : 0;
}

/* --- devices ------------------------------------------------------------------------------- */

static int verbs_event_fd(const struct braid_dev *dev)
{
	const struct braid_ibport *p = braid_ibport_of(dev);

	return !p ? -1 : p->cm ? p->cm->fd : p->ctx->async_fd;
}

static bool verbs_events(struct braid_dev *dev)
{
	struct braid_ibport *p = braid_ibport_of(dev);

	if (p && !p->cm)
		braid_ibport_events(p);
	return p && p->cm && braid_cm_events(p, dev);
}

/* --- lanes --------------------------------------------------------------------------------- */

static int verbs_open(struct braid_lane *lane)
{
	struct braid_qp *w = qp_of(lane);
	int err = 0;

	if (lane->tx.ring)
		err = braid_qp_ring(w, lane->tx.ring, lane->tx.ring_size);
	if (err)
		return err;
	lane->local = false;
	lane->flight_max = FLIGHT;
	lane->ack_frames = w->wr_max / 2;
	lane->event_fd = w->channel->fd;
	w->may_speak = w->dialler || w->port->fabric != BRAID_FABRIC_IWARP;
	/* iWARP: the dialler must send first. */
	if (w->dialler && w->port->fabric == BRAID_FABRIC_IWARP) {
		say_count(lane, w);
		if (chain_post(w))	/* the first poll reports it, like any fault */
			atomic_store(&w->broken, true);
	}
	w->ack_seen = 0;
	w->qpn = w->qp->qp_num;
	return 0;
}

static int verbs_attach(struct braid_lane *lane)
{
	struct braid_qp *w = qp_of(lane);

	return w->ring == lane->tx.ring ? 0 :
	       braid_qp_ring(w, lane->tx.ring, lane->tx.ring_size);
}

/* The socket first: a peer whose queue pair then fails checks it, and knows that we closed both. */
static void verbs_close(struct braid_lane *lane)
{
	if (lane->fd >= 0)
		braid_os->close(lane->fd);
	lane->fd = -1;
	braid_qp_free(qp_of(lane));
	lane->priv = NULL;
	lane->event_fd = -1;
	lane->rx_dst = NULL;
}

static void verbs_fence(struct braid_lane *lane)
{
	struct braid_qp *w = qp_of(lane);

	if (!w || w->over)
		return;
	braid_os->shutdown(lane->fd);
	braid_qp_fence(w);
}

static bool verbs_arm(struct braid_lane *lane)
{
	struct braid_qp *w = qp_of(lane);
	struct ibv_cq *cq;
	unsigned n = 0;
	void *user;

	while (!braid_ibv.get_cq_event(w->channel, &cq, &user))
		n++;
	if (n)
		braid_ibv.ack_cq_events(w->cq, n);
	return !ibv_req_notify_cq(w->cq, 0);
}

/* Checks until a lane without progress is given up: not while its queue pair may retransmit. */
static unsigned patience(const struct braid_qp *w)
{
	uint64_t ns = (UINT64_C(4096) << braid_param.ib_timeout) * (braid_qp_retries() + 1u);
	uint64_t looks = ns / LOOK_NS * 5 / 4;

	if (w->port->fabric == BRAID_FABRIC_IWARP)
		return STUCK_IWARP;
	return looks > STUCK ? (unsigned)looks : STUCK;
}

static int verbs_health(struct braid_lane *lane, struct braid_health *ret)
{
	struct braid_qp *w = qp_of(lane);
	int err;

	braid_ibport_events(w->port);
	braid_sigpipe_check(w->port);
	if (atomic_load(&w->port->down))
		return -ENETDOWN;
	if (atomic_load(&w->broken))
		return -EIO;
	if (atomic_load(&w->port->moves) != w->moves)
		return -ENETRESET;	/* the peer sends to the LID that the port had */
	ret->unacked = true;
	if (!braid_trylock(&lane->link->lock))
		return 0;		/* it is being moved */
	ret->unacked = lane->tx.f_sent != lane->tx.f_peer_acked;
	/* Queue pairs detect a silent peer; over iWARP that takes as long as TCP's timeouts. */
	err = braid_lane_stuck(lane, &w->look, patience(w)) ? -ETIMEDOUT : 0;
	braid_unlock(&lane->link->lock);
	return err;
}

/* Does not ask the NIC: hung firmware would block this call, with the link's lock held. */
static void verbs_describe(struct braid_lane *lane, struct braid_wire_state *ret)
{
	const struct braid_qp *w = qp_of(lane);

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
	.probe = braid_ibport_probe,
	.usable = braid_ibport_usable,
	.event_fd = verbs_event_fd,
	.events = verbs_events,
	.reg = braid_ibport_reg,
	.dereg = braid_ibport_dereg,
	.gpu = &braid_ibport_gpu,
	.blob = true,
	.setup = braid_qp_setup,
	.setup_peer = braid_qp_peer,
	.setup_ready = braid_qp_ready,
	.setup_drop = braid_qp_drop,
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
