/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txq.c - the queue of frames of one lane; see txq.h for the picture.
 *
 * Frames are added at the head, and freed once the peer has acknowledged them.  The queue also
 * measures how fast its lane is: bytes per time, to divide work among lanes, and for people how
 * long a frame takes.  Only payloads over BRAID_COPY_MAX are timed, since the peer acknowledges
 * these at once, and one of a lane at a time.  So the clock is read twice in a round trip, and
 * never for small messages.
 */
#include "core/link/txq_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/link/lane_io.h"
#include "core/link/upcalls.h"

enum {
	SAMPLE_NS = 2000000,		/* shortest time to measure a rate over */
	AVERAGE_NS = 20000000,		/* time that rates are averaged over */
	SLOWEST = 16,			/* most times the cost of the fastest lane */
};

int braid_txq_init(struct braid_txq *q, uint32_t ring_size, uint32_t nframes)
{
	char *ring = malloc(ring_size);
	struct braid_txf *f = calloc(nframes, sizeof(*f));
	bool keep = nframes > 4 * BRAID_CTL_FRAMES + 1 && ring_size >= BRAID_CTL_BYTES;

	assert(!(nframes & (nframes - 1)) && !(ring_size & (ring_size - 1)));
	if (!ring || !f) {
		free(ring);
		free(f);
		return -ENOMEM;
	}
	q->ring = ring;
	q->f = f;
	q->ring_size = ring_size;
	q->fmask = nframes - 1;
	q->frames_max = q->fmask - (keep ? BRAID_CTL_FRAMES : 0);
	q->bytes_max = ring_size - (keep ? BRAID_CTL_BYTES : 0);
	q->head = q->tail = 0;
	return 0;
}

void braid_txq_drop_kept(struct braid_txq *q)
{
	while (q->kept) {
		struct braid_kept *k = q->kept;

		q->kept = k->next;
		free(k->ring);
		free(k);
	}
}

void braid_txq_fini(struct braid_txq *q)
{
	if (q->f) {
		for (uint32_t i = q->f_acked; i != q->f_head; i++)
			braid_txf_drop_own(&q->f[i & q->fmask]);
	}
	q->f_acked = q->f_peer_acked = q->f_head;
	braid_txq_drop_kept(q);
	free(q->ring);
	free(q->f);
	q->ring = NULL;
	q->f = NULL;
	q->fmask = 0;
	q->ring_size = 0;
	q->frames_max = q->bytes_max = 0;
}

/* Discard the entries of `size` bytes of a ring of n, a power of two, but those in [from, to). */
static void trim_ring(void *ring, size_t size, uint64_t n, uint64_t from, uint64_t to)
{
	uint64_t a = from & (n - 1), b = to & (n - 1);
	char *at = ring;

	if (to - from == n || !n)
		return;
	if (a <= b) {
		braid_os_discard(at, a * size);
		braid_os_discard(at + b * size, (n - b) * size);
	} else {
		braid_os_discard(at + b * size, (a - b) * size);
	}
}

void braid_txq_trim(struct braid_txq *q)
{
	trim_ring(q->ring, 1, q->ring_size, q->tail, q->head);
	trim_ring(q->f, sizeof(*q->f), q->f ? (uint64_t)q->fmask + 1 : 0, q->f_acked,
		  q->f_acked + (q->f_head - q->f_acked));
}

bool braid_txq_idle(const struct braid_txq *q)
{
	if (q->f_sent != q->f_head)
		return false;
	for (uint32_t i = q->f_acked; i != q->f_head; i++) {
		if (q->ring[q->f[i & q->fmask].off] != BRAID_F_ACK)
			return false;
	}
	return true;
}

static bool is_timed(const struct braid_lane *lane)
{
	return atomic_load_explicit(&lane->link->nlanes, memory_order_relaxed) > 1;
}

void braid_txq_time_start(struct braid_txq *q)
{
	atomic_store_explicit(&q->timed_ns, braid_os->now_ns(), memory_order_relaxed);
	q->timed_bytes = 0;
}

static uint64_t timed_since(const struct braid_txq *q)
{
	return atomic_load_explicit(&q->timed_ns, memory_order_relaxed);
}

/* A moving average over the time that chunks were in flight. */
static BRAID_APART void time_acked(struct braid_txq *q)
{
	uint64_t now = braid_os->now_ns(), ns = now - timed_since(q);
	double weight = (double)ns / (double)(ns + AVERAGE_NS);

	if (!q->timed_bytes || (ns < SAMPLE_NS && q->unacked))
		return;
	if (q->ns_per_byte <= 0)
		weight = 1;
	q->ns_per_byte += weight * ((double)ns / (double)q->timed_bytes - q->ns_per_byte);
	braid_count(&q->busy_ns, ns);
	braid_count(&q->busy_bytes, q->timed_bytes);
	atomic_store_explicit(&q->timed_ns, q->unacked ? now : 0, memory_order_relaxed);
	q->timed_bytes = 0;
}

double braid_txq_cost(const struct braid_txq *q, uint64_t more, double best)
{
	double ns = q->ns_per_byte;

	/* Bound the cost, so that a lane which seemed slow is tried again now and then. */
	if (ns > best * SLOWEST)
		ns = best * SLOWEST;
	return (double)(q->unacked + more) * (ns + 1e-3);
}

static BRAID_APART void one_begins(struct braid_txq *q)
{
	q->one_ns = braid_os->now_ns();
	q->one_end = q->f_head;
}

static BRAID_APART void one_acked(struct braid_lane *lane, uint32_t frames)
{
	struct braid_txq *q = &lane->tx;

	if ((int32_t)(frames - q->one_end) < 0)
		return;
	braid_hist_note(&lane->acks, braid_since(q->one_ns, braid_os->now_ns()));
	q->one_ns = 0;
}

/* Queue a frame with `copied` bytes of payload in the ring; returns their place. */
static inline char *add(struct braid_lane *lane, struct braid_hdr *h, uint32_t copied,
			const void *ext, struct braid_xfer *owner)
{
	struct braid_txq *q = &lane->tx;
	struct braid_txf *f = &q->f[q->f_head & q->fmask];
	uint32_t inl = BRAID_HDR_SIZE + copied;

	braid_assert_locked(&lane->link->lock);
	assert(q->f_head - q->f_acked <= q->fmask);
	h->ack = lane->rx_frames;
	h->lseq = q->f_head;
	q->head += braid_txq_ring_need(q, inl, &f->off);
	f->inl = inl;
	f->ext = ext;
	f->ext_len = ext ? h->len : 0;
	f->owner = owner;
	f->own = NULL;
	f->bringing = f->summed = false;
	braid_hdr_pack(h, q->ring + f->off);
	q->f_head++;
	q->unsent += inl + f->ext_len;
	if (f->ext_len && !q->unacked && is_timed(lane))
		braid_txq_time_start(q);
	if (f->ext_len > BRAID_COPY_MAX && !q->one_ns)
		one_begins(q);
	q->unacked += f->ext_len;
	assert(q->head - q->tail <= q->ring_size);
	return q->ring + f->off + BRAID_HDR_SIZE;
}

void braid_tx_add(struct braid_lane *lane, struct braid_hdr *h, const void *copy, const void *ext,
		  struct braid_xfer *owner)
{
	struct braid_txq *q = &lane->tx;
	uint32_t copied = copy ? h->len : 0;
	char *at = add(lane, h, copied, ext, owner);

	if (q->fast_sent) {
		q->fast_sent = false;
		braid_tx_advance(lane, BRAID_HDR_SIZE + copied);
	} else if (copy) {
		memcpy(at, copy, h->len);
	}
}

void braid_tx_add_chunk(struct braid_lane *lane, struct braid_hdr *h, const char *data,
			struct braid_xfer *x, bool last)
{
	x->parts++;
	braid_tx_add(lane, h, NULL, data, x);
	if (last) {
		braid_list_del(&x->node);
		braid_xfer_part_done(x);
	}
}

char *braid_tx_add_room(struct braid_lane *lane, struct braid_hdr *h, struct braid_xfer *owner)
{
	return add(lane, h, h->len, NULL, owner);
}

char *braid_tx_lengthen(struct braid_lane *lane, uint32_t n, uint32_t most,
			struct braid_xfer *joins)
{
	struct braid_txq *q = &lane->tx;
	struct braid_txf *f = &q->f[(q->f_head - 1) & q->fmask];
	struct braid_xfer *x;
	char *at;

	braid_assert_locked(&lane->link->lock);
	/* The peer may have read a part of an offered frame, and then needs the rest unchanged. */
	if (q->f_sent == q->f_head || q->offered == q->f_head)
		return NULL;
	x = f->owner;
	if (!x || x->comm != joins->comm || x->until_acked || q->ring[f->off] != BRAID_F_EAGER ||
	    f->inl == BRAID_HDR_SIZE || f->inl + n > BRAID_HDR_SIZE + most ||
	    f->off + f->inl + n > q->ring_size || q->head - q->tail + n > q->bytes_max)
		return NULL;
	at = q->ring + f->off + f->inl;
	braid_hdr_lengthen(q->ring + f->off, n);
	f->inl += n;
	q->head += n;
	q->unsent += n;
	joins->joined = x->joined;
	x->joined = joins;
	return at;
}

/* Free the ring before the oldest frame, or all of it if no frame is left. */
void braid_txq_give_back(struct braid_txq *q)
{
	uint32_t off = q->f[q->f_acked & q->fmask].off;

	if (q->f_acked == q->f_head)
		q->tail = q->head;
	else
		q->tail += (off - (uint32_t)q->tail) & (q->ring_size - 1);
}

/* Release the oldest frame: it is acknowledged. */
static void pop(struct braid_lane *lane)
{
	struct braid_txq *q = &lane->tx;
	struct braid_txf *f = &q->f[q->f_acked & q->fmask];

	if (f->owner)
		braid_xfer_part_done(f->owner);
	if (f->own)
		braid_txf_drop_own(f);
	q->unacked -= f->ext_len;
	q->timed_bytes += f->ext_len;
	braid_count(&lane->link->tx.acked_bytes, f->ext_len);
	q->f_acked++;
	braid_txq_give_back(q);
}

static bool is_acked(const struct braid_txq *q)
{
	return q->f_acked != q->f_sent && (int32_t)(q->f_peer_acked - q->f_acked) > 0;
}

void braid_txq_pop_acked(struct braid_lane *lane)
{
	while (is_acked(&lane->tx))
		pop(lane);
}

int braid_tx_acked(struct braid_lane *lane, uint32_t frames)
{
	struct braid_txq *q = &lane->tx;

	braid_assert_locked(&lane->link->lock);
	if ((int32_t)(frames - q->f_peer_acked) <= 0)
		return 0;		/* a later count came first, over another lane */
	if (frames - q->f_acked > q->f_head - q->f_acked)
		return -EPROTO;
	q->f_peer_acked = frames;
	braid_txq_pop_acked(lane);
	if (timed_since(q))
		time_acked(q);
	if (q->one_ns)
		one_acked(lane, frames);
	return 0;
}

void braid_tx_advance(struct braid_lane *lane, size_t n)
{
	struct braid_txq *q = &lane->tx;

	braid_assert_locked(&lane->link->lock);
	assert(n <= q->unsent);
	q->unsent -= n;
	braid_count(&lane->tx_bytes, n);
	if (n)
		q->starts = 0;
	n += q->part;
	while (q->f_sent != q->f_head) {
		struct braid_txf *f = &q->f[q->f_sent & q->fmask];

		if (n < f->inl + f->ext_len)
			break;
		n -= f->inl + f->ext_len;
		if (f->owner && !f->ext_len && !f->owner->until_acked) {
			/* Copied: replay needs only the ring. */
			braid_xfer_part_done(f->owner);
			f->owner = NULL;
		}
		q->f_sent++;
	}
	q->part = n;
	q->stamped = false;
	if (is_acked(q))
		braid_txq_pop_acked(lane);
}
