/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * txq.h - the queue of frames of one lane.
 *
 * The sender keeps every frame until the receiver has acknowledged it, by count: "I have received n
 * frames of this lane" names exactly what must be sent again elsewhere if the lane dies now.
 * Headers and small payloads are copied into a ring; large payloads stay where the user has them.
 *
 *	   acknowledged    handed to carrier           queued
 *	---------------- f_acked ---------- f_sent ------------ f_head
 *
 * The link's lock guards all of this.
 */
#ifndef BRAID_LINK_TXQ_H
#define BRAID_LINK_TXQ_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/proto/frame.h"

struct braid_lane;
struct braid_xfer;

enum { BRAID_CTL_BYTES = 8192, BRAID_CTL_FRAMES = 64 };	/* reserved for control frames */

struct braid_txf {			/* one frame: queued, in flight or not yet acknowledged */
	uint32_t off, inl;		/* header and copied payload: ring[off, off + inl) */
	const char *ext;		/* payload that was not copied */
	size_t ext_len;
	struct braid_xfer *owner;	/* the send that completes with it; or NULL */
	void *own;			/* our own copy of ext: freed when acknowledged */
	bool bringing;			/* that copy is still coming from a GPU (offer.c) */
	bool summed;			/* on a link with checksums: the payload's is in `sum` */
	uint32_t sum;
};

struct braid_txq {
	char *ring;
	uint32_t ring_size;
	uint64_t head, tail;		/* ring bytes ever used, ever freed */
	struct braid_txf *f;
	uint32_t fmask;
	uint32_t frames_max, bytes_max;	/* for all but control frames */
	uint32_t f_head, f_sent, f_acked;	/* frames ever queued, handed over, acknowledged */
	size_t part;			/* bytes of frame f_sent already handed over */
	uint32_t offered;		/* the last f_head by which a carrier may have seen all */
	uint32_t f_peer_acked;		/* frames the peer has acknowledged; may be ahead of f_sent
					 * while another thread is inside the send system call */
	bool stamped;			/* the header at f_sent acknowledges: it must be sent */
	bool fast_sent;			/* the next frame's payload was sent before the frame */
	uint64_t unsent;		/* bytes queued and not handed over */
	uint64_t starts;		/* of these: bytes of STARTs queued since the last push */
	uint64_t unacked;		/* payload bytes of chunks queued and not acknowledged */
	/* The lane's speed, measured if the link has several: see braid_txq_cost(). */
	_Atomic uint64_t timed_ns;	/* start; 0: nothing is in flight */
	uint64_t timed_bytes;		/* acknowledged since */
	double ns_per_byte;		/* recently; 0: not known yet */
	/* One frame at a time is timed until it is acknowledged, unless it is sent again: txq.c. */
	uint64_t one_ns;		/* when it was queued; 0: none is timed */
	uint32_t one_end;		/* the count that acknowledges it */
	_Atomic uint64_t busy_ns, busy_bytes;	/* ever: time in flight; acknowledged then */
	struct braid_kept *kept;	/* former rings, which a NIC may still read */
};

/* Both are powers of two.  0, or -ENOMEM: nothing has changed. */
int braid_txq_init(struct braid_txq *q, uint32_t ring_size, uint32_t frames);
void braid_txq_fini(struct braid_txq *q);	/* once no NIC or thread reads it */
/* Give back the memory behind what is free now, of a ring that no NIC reads. */
void braid_txq_trim(struct braid_txq *q);
/* Is every frame sent and acknowledged?  ACK frames do not count: no ACK is sent for them alone. */
bool braid_txq_idle(const struct braid_txq *q);

/*
 * Estimated nanoseconds until `more` payload bytes, queued now, are acknowledged.  `best` is the
 * least ns_per_byte of the link's lanes.
 */
double braid_txq_cost(const struct braid_txq *q, uint64_t more, double best);

/*
 * For how long, until now, chunks were in flight, in ns, and how many of their bytes were
 * acknowledged.  Counted while the link has several lanes.  Needs no lock.
 */
static inline uint64_t braid_txq_busy(const struct braid_txq *q, uint64_t now, uint64_t *ret_bytes)
{
	uint64_t since = atomic_load_explicit(&q->timed_ns, memory_order_relaxed);
	uint64_t ns = atomic_load_explicit(&q->busy_ns, memory_order_relaxed);

	*ret_bytes = atomic_load_explicit(&q->busy_bytes, memory_order_relaxed);
	return ns + (since && now > since ? now - since : 0);
}

/* Ring bytes that a frame uses: its own, and those skipped at the end so that it does not wrap. */
static inline uint32_t braid_txq_ring_need(const struct braid_txq *q, size_t inl,
					   uint32_t *ret_off)
{
	uint32_t off = (uint32_t)(q->head & (q->ring_size - 1));
	uint32_t len = (uint32_t)inl;	/* not padded: adjacent frames leave in one piece */

	if (off + len > q->ring_size) {
		*ret_off = 0;
		return q->ring_size - off + len;
	}
	*ret_off = off;
	return len;
}

/* Is there room for a frame of `len` bytes, within these limits? */
static inline bool braid_txq_fits(const struct braid_txq *q, size_t len, uint32_t frames_max,
				  uint32_t bytes_max)
{
	uint32_t off;

	return q->ring && q->f_head - q->f_acked <= frames_max &&
	       q->head - q->tail + braid_txq_ring_need(q, len, &off) <= bytes_max;
}

/* The same for `inl` bytes of copied payload, beside what is kept for control frames. */
static inline bool braid_txq_room(const struct braid_txq *q, size_t inl)
{
	return braid_txq_fits(q, BRAID_HDR_SIZE + inl, q->frames_max, q->bytes_max);
}

/* The same for a control frame. */
static inline bool braid_txq_room_ctl(const struct braid_txq *q)
{
	return braid_txq_fits(q, BRAID_HDR_SIZE + BRAID_OPEN_SIZE, q->fmask, q->ring_size);
}

/*
 * Queue one frame: header, then h->len bytes of either `copy` or `ext`, or no payload.  There must
 * be room.  Fills in h->ack and h->lseq.  owner may be NULL.
 */
void braid_tx_add(struct braid_lane *lane, struct braid_hdr *h, const void *copy, const void *ext,
		  struct braid_xfer *owner);
/* Queue a chunk of a message, at `data`; after the `last` nothing of it is left to cut. */
void braid_tx_add_chunk(struct braid_lane *lane, struct braid_hdr *h, const char *data,
			struct braid_xfer *x, bool last);
/* As braid_tx_add(); the caller writes the h->len bytes of payload to the place returned. */
char *braid_tx_add_room(struct braid_lane *lane, struct braid_hdr *h, struct braid_xfer *owner);

/*
 * Lengthen the newest frame by n bytes of payload, which the caller writes to the place returned;
 * `joins` is done when the frame is.  NULL: a carrier was offered the frame, it is not a copied
 * EAGER of that xfer's comm, or its payload would have more than `most` bytes or not fit.
 */
char *braid_tx_lengthen(struct braid_lane *lane, uint32_t n, uint32_t most,
			struct braid_xfer *joins);

/* The peer acknowledges `frames` in all: 0, or -EPROTO if fewer were queued. */
int braid_tx_acked(struct braid_lane *lane, uint32_t frames);

/*
 * For latency, send a message's payload before its frame is queued; the transport must have `post`.
 * False: frames are waiting, or the carrier refuses.  True: it was sent, and the next frame queued
 * must be this message's: an EAGER without flags of comm `id`, its payload copied.
 */
bool braid_tx_fast_send(struct braid_lane *lane, uint32_t id, uint32_t seq, const void *payload,
		   uint32_t len);

/*
 * Stop reading a comm's memory.  Its frames become VOID; a half sent one is copied, so that it can
 * be completed.  The lane stands still.  0, or -ENOMEM: the link must die.
 */
int braid_tx_release(struct braid_lane *lane, uint32_t comm);
/*
 * Send a message's frames from copies, so that its memory can be given back.  No NIC reads it, and
 * it is not a GPU's.  The lane stands still.  0, or -ENOMEM.
 */
int braid_tx_copy(struct braid_lane *lane, const struct braid_xfer *x);

#endif
