/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lane.h - one independent path of a link, and the queue of frames on it.
 *
 * A lane carries numbered frames in order, both ways.  The sender keeps every frame until the
 * receiver has acknowledged it, by count: "I have received n frames of this lane" names exactly
 * what must be sent again elsewhere if the lane dies now.  Headers and small payloads
 * are copied into a ring; large payloads stay where the user has them.
 *
 *	   acknowledged    handed to carrier           queued
 *	---------------- f_acked ---------- f_sent ------------ f_head
 *
 * The link's lock guards all of this, except the members for recovery, which are the service
 * thread's.  The thread that holds `io` may advance rx_dst and rx_left without the link's lock.
 */
#ifndef BRAID_LINK_LANE_H
#define BRAID_LINK_LANE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/mem/gpucopy.h"
#include "core/mem/later.h"
#include "core/base/os.h"
#include "core/transport.h"
#include "core/proto/wire.h"

struct braid_conn;
struct braid_send;
struct braid_link;

enum { BRAID_ACK_BYTES = 64 << 10 };	/* bytes received: acknowledge at the latest then */

struct braid_txf {			/* one frame: queued, in flight or not yet acknowledged */
	uint32_t off, inl;		/* header and copied payload: ring[off, off + inl) */
	const char *ext;		/* payload that was not copied */
	size_t ext_len;
	struct braid_send *owner;	/* the send that completes with it; or NULL */
	void *own;			/* our own copy of ext: freed when acknowledged */
	bool bringing;			/* that copy is still coming from a GPU (lane.c) */
};

struct braid_txq {
	char *ring;
	uint32_t ring_size;
	uint64_t head, tail;		/* ring bytes ever used, ever freed */
	struct braid_txf *f;
	uint32_t fmask;
	uint32_t f_head, f_sent, f_acked;	/* frames ever queued, handed over, acknowledged */
	size_t part;			/* bytes of frame f_sent already handed over */
	uint32_t f_peer_acked;		/* frames the peer has acknowledged; may be ahead of f_sent
					 * while another thread is inside the send system call */
	bool fast_sent;			/* the next frame's payload was sent before the frame */
	uint64_t unsent;		/* bytes queued and not handed over */
	uint64_t starts;		/* of these: bytes of STARTs queued since the last push */
	uint64_t unacked;		/* payload bytes of chunks queued and not acknowledged */
	/* The lane's speed, measured if the link has several: see braid_txq_cost(). */
	uint64_t timed_ns, timed_bytes;	/* acknowledged since; 0 ns: nothing is in flight */
	double ns_per_byte;		/* recently; 0: not known yet */
	struct braid_kept *kept;	/* former rings, which a NIC may still read */
};

enum braid_rx_kind { BRAID_RX_NONE, BRAID_RX_DRAIN, BRAID_RX_CTL, BRAID_RX_ENTRY, BRAID_RX_UM };

struct braid_lane {
	struct braid_link *link;
	const struct braid_transport *tr;	/* of the present carrier; it may change */
	size_t size;			/* of this struct and the largest transport's part */
	uint8_t index;
	uint16_t epoch;
	int fd;
	void *priv;			/* made by setup(), taken over by lane_open() */
	int event_fd;			/* see struct braid_transport, arm; -1: none */
	uint8_t member;			/* of our device and of the peer's: its two ends */
	uint8_t peer_member;
	uint32_t peer_rkey_epoch;		/* the peer's link->rkey_epoch when it was opened */
	atomic_bool up;			/* false: its carrier is lost, see core/setup/heal.h */
	atomic_bool unread;		/* lost in a push: earlier arrivals are still to be read */
	bool local;			/* the path is this host's memory */
	bool gpu;			/* push() and poll() work on GPU memory directly */
	uint32_t ack_frames;		/* received: acknowledge after so many */
	uint64_t flight_max;		/* limit of unacknowledged chunk bytes; 0: none */
	struct braid_lock io;		/* for reading */
	bool pushing;			/* a thread is, and may have dropped the link's lock */
	atomic_bool blocked;		/* the carrier took no more at the last push */

	struct braid_txq tx;
	_Atomic uint64_t tx_bytes;	/* ever handed to the carrier; under the link's lock */

	uint32_t rx_frames;		/* received whole */
	uint32_t rx_acked;		/* of these: acknowledged */
	uint64_t rx_quiet;		/* bytes received since then */
	bool rx_some;			/* a frame since then needs an ACK, some time */
	bool rx_ack_due;			/* the peer is waiting for the acknowledgement */

	/* The frame being received, and where its payload goes. */
	struct braid_hdr rx_hdr;
	enum braid_rx_kind rx_kind;
	void *rx_target;		/* struct braid_recv or braid_unexp */
	char *rx_dst;			/* NULL: discard the payload */
	size_t rx_left;
	size_t rx_at;			/* bytes done of the piece that braid_rx_take() resumes */
	char *rx_stage, *rx_gpu;	/* host memory for GPU payload; where it then goes */
	struct braid_gpucopy rx_copy;	/* from the one to the other */
	uint8_t rx_ctl[BRAID_OPEN_SIZE];
	const char *rx_broken;		/* the malformed thing that the peer sent; or NULL */
	_Atomic uint64_t rx_bytes;	/* ever, of any kind: a sign that the peer lives */
	atomic_uint lost, back;		/* times that its carrier was lost, was replaced */

	/* Loss and recovery: core/setup/heal.c, in the service thread. */
	bool in_epoll, event_in_epoll;
	bool down_due;			/* closed here: a DOWN frame is pending */
	bool writes_due, writes_told;	/* BRAID_DOWN_WRITES is pending; the stop is slow */
	bool peer_down;			/* closed by the peer, which received this many frames: */
	uint32_t peer_frames;
	bool peer_writes;		/* the peer's NIC may still write: keep the chunks here */
	bool orphaned;			/* closed at both ends: its chunks go to other lanes */
	atomic_bool carrier_failed;		/* its carrier failed, and neither end closed it */
	atomic_bool avoid_path;		/* the peer closed it: try another path first */
	uint8_t path;			/* the dialler's path that its socket uses */
	uint16_t dialled;		/* epoch of the last dial made or accepted */
	struct braid_conn *conn;	/* the dial in progress */
	uint64_t dial_at_ns;
	unsigned dial_wait_ms;		/* after the next failure */
	_Atomic uint64_t suspect_ns;	/* nothing was acknowledged since then; 0: not suspect */
	unsigned patience_ms, rtt_ms;	/* how long that may last; round trip */
	uint64_t resumed_ns;
	bool stopping;			/* fenced, but its NIC runs until these stops are over: */
	struct braid_stops stops;
	uint32_t lost_size;		/* segment size at which none arrives; 0: they arrive */
};

static inline bool braid_lane_up(const struct braid_lane *lane)
{
	return atomic_load_explicit(&lane->up, memory_order_acquire);
}

static inline bool braid_lane_unread(const struct braid_lane *lane)
{
	return atomic_load(&lane->unread);
}

int braid_txq_init(struct braid_txq *q, uint32_t ring_size, uint32_t frames);
void braid_txq_fini(struct braid_txq *q);	/* no NIC or thread reads it any more */
/* Everything was sent and acknowledged, except ACK frames, which are never acknowledged alone. */
bool braid_txq_idle(const struct braid_txq *q);

/*
 * Estimated nanoseconds until `more` payload bytes, queued now, are acknowledged.  `best` is the
 * least ns_per_byte of the link's lanes.
 */
double braid_txq_cost(const struct braid_txq *q, uint64_t more, double best);

/* Is there room for `inl` bytes of copied payload, beside what is kept for control frames? */
bool braid_txq_room(const struct braid_txq *q, size_t inl);
bool braid_txq_room_ctl(const struct braid_txq *q);

/*
 * Queue one frame: header, then h->len bytes of either `copy` or `ext`, or no payload.  There must
 * be room.  Fills in h->ack and h->lseq.  owner may be NULL.
 */
void braid_tx_add(struct braid_lane *lane, struct braid_hdr *h, const void *copy, const void *ext,
		  struct braid_send *owner);

/*
 * For latency, send a message's payload before its frame is queued; the transport must have `post`.
 * False: frames are waiting, or the carrier refuses.  True: it was sent, and the next frame queued
 * must be this message's: an EAGER without flags of comm `id`, its payload copied.
 */
bool braid_tx_fast_send(struct braid_lane *lane, uint32_t id, uint32_t seq, const void *payload,
		   uint32_t len);

/* All frames received so far have been acknowledged to the peer. */
void braid_lane_told(struct braid_lane *lane);
/* Write the present acknowledgement into the header at f_sent, which is about to be sent. */
void braid_tx_stamp(struct braid_lane *lane);
/*
 * Fill iov with the next bytes to send, at most `budget`; returns the entries used, and in
 * *ret_bytes their sum.  0 although bytes are queued: GPU memory is still being copied to the host.
 */
int braid_tx_gather(struct braid_lane *lane, struct iovec *iov, int max, size_t budget,
		    size_t *ret_bytes);
/*
 * How many bytes of the ring, from the unsent frame f_sent on, fit in one message of `max` bytes:
 * whole frames, or one header whose payload lies outside the ring.  with_head: such a header may
 * also come last after whole frames.
 */
uint32_t braid_tx_piece(const struct braid_txq *q, uint32_t max, bool with_head);
struct braid_put {			/* a chunk that the NIC can write into the receive */
	const char *data;
	bool gpu;
	uint64_t to;
	uint32_t len, local, remote;	/* length; memory keys */
	uint32_t imm;			/* immediate data for braid_rx_imm() */
	bool has_imm;			/* false: send hdrs, the last with BRAID_FLAG_PLACED */
	const char *hdrs;		/* its header, perhaps preceded by its START */
	uint32_t hdrs_len;
	size_t bytes;			/* of the queue, for braid_tx_advance() */
};
/*
 * Can the frame at f_sent be written by the NIC?  Both NICs of the lane must know the memory, and
 * the credit's rkey epoch must not be below the lane's.  Up to imm_max bytes need only ret->imm;
 * then a START and its message's only chunk go as one.  With headers, START and first chunk do.
 */
bool braid_tx_put(const struct braid_lane *lane, uint32_t imm_max, struct braid_put *ret);
/*
 * May *ret_imm (braid_rx_nohdr()) or the short header replace the header at f_sent?  Not for
 * a replay, nor when acknowledgements are due.  The ring holds the payload after both headers.
 */
bool braid_tx_nohdr(const struct braid_lane *lane, uint32_t *ret_imm);
/* A cheap test first: only a START or a payload outside the ring can be one. */
static inline bool braid_tx_may_put(const struct braid_txq *q)
{
	const struct braid_txf *f = &q->f[q->f_sent & q->fmask];

	return f->ext_len || q->ring[f->off] == BRAID_F_START;
}
/* The frame at f_sent.  NULL: its payload is still being copied, for the carrier to read. */
const struct braid_txf *braid_tx_here(struct braid_lane *lane);
/* End all copies from GPU memory that frames wait for.  The lane stands still. */
void braid_tx_leave(struct braid_lane *lane);
/* The key of the GPU memory that the frame at f_sent sends from; NULL: it sends none. */
const struct braid_key *braid_tx_gpu(const struct braid_lane *lane);
/* n bytes were handed to the carrier: completes sends that were copied. */
void braid_tx_advance(struct braid_lane *lane, size_t n);
/* The peer acknowledges `frames` in all: 0, or -EPROTO if fewer were queued. */
int braid_tx_acked(struct braid_lane *lane, uint32_t frames);

/*
 * For a replay: the peer has received `frames` in all, and the rest will be sent again unchanged.
 * The lane stands still.  0, or -EPROTO if that count is impossible.
 */
int braid_tx_rewind(struct braid_lane *lane, uint32_t frames);
/* Move the newest frame, a chunk on a rewound lane that is down, to lane `to`, which has room. */
void braid_tx_move(struct braid_lane *from, struct braid_lane *to);
/*
 * Append all frames of a rewound lane that is down, in order, to those of `to`.  but_chunks: its
 * chunks stay.  Both lanes stand still.  0, or -ENOMEM: nothing has changed.
 */
int braid_tx_take_over(struct braid_lane *from, struct braid_lane *to, bool but_chunks);

/*
 * For a lane whose frames do not use its socket: 0, or -ENOTCONN if the peer closed that socket.
 * The only event on it is its end: the peer closed the lane, or its process ended.
 */
int braid_lane_look_at_fd(const struct braid_lane *lane);
/*
 * The same after a poll that found nothing.  The peer may have sent data and closed since: if it
 * closed, returns what `poll` finds now, or -ENOTCONN if that is nothing.
 */
int braid_lane_last_words(struct braid_lane *lane, int (*poll)(struct braid_lane *lane));

/*
 * True: with frames in flight, nothing was received or acknowledged for more than `most` calls in a
 * row.  A live peer acknowledges what it receives.  With the link's lock held.
 */
struct braid_look {
	uint64_t bytes;			/* received, at the last call */
	uint32_t told;			/* frames acknowledged then */
	unsigned stuck;			/* calls at which neither had changed */
};
bool braid_lane_stuck(const struct braid_lane *lane, struct braid_look *look, unsigned most);

/*
 * Stop reading a comm's memory.  Its frames become VOID; a half sent one is copied, so that it can
 * be completed.  The lane stands still.  0, or -ENOMEM: the link must die.
 */
int braid_tx_release(struct braid_lane *lane, const void *comm);

#endif
