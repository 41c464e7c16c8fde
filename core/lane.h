/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lane.h - one independent path of a link, and the queue of frames on it.
 *
 * A lane carries numbered frames in order, both ways.  The sender keeps every frame until the
 * receiver has acknowledged it, by count: "I have received n frames of this lane" names exactly
 * what would have to be sent again elsewhere if the lane died now.  Headers and small payloads
 * are copied into a ring; large payloads stay where the user has them.
 *
 *	   acknowledged    handed to the wire          queued
 *	---------------- f_acked ---------- f_sent ------------ f_head
 *
 * Everything here is guarded by the link's lock.
 */
#ifndef BRAID_CORE_LANE_H
#define BRAID_CORE_LANE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/gpucopy.h"
#include "core/later.h"
#include "core/os.h"
#include "core/transport.h"
#include "core/wire.h"

struct braid_conn;
struct braid_send;
struct braid_link;

enum { BRAID_ACK_BYTES = 64 << 10 };	/* received, and acknowledged at the latest then */

struct braid_txf {			/* one frame that waits, flies, or is not yet acked */
	uint32_t off, inl;		/* header, copied payload: [off, off + inl) of the ring */
	const char *ext;		/* payload that was not copied */
	size_t ext_len;
	struct braid_send *owner;	/* whose completion it is part of */
	void *own;			/* ext, saved into memory of our own: free when acked */
	bool bringing;			/* not yet: a GPU's, on its way there (lane.c) */
};

struct braid_txq {
	char *ring;
	uint32_t ring_size;
	uint64_t head, tail;		/* ring bytes ever taken, ever given back */
	struct braid_txf *f;
	uint32_t fmask;
	uint32_t f_head, f_sent, f_acked;	/* frames ever queued, handed over, acknowledged */
	size_t part;			/* bytes of frame f_sent already handed over */
	uint32_t f_told; /* frames the peer says it has; may be ahead of f_sent for as
					 * long as another thread is inside the system call */
	bool led;			/* the next frame's payload has left before it */
	uint64_t unsent;		/* bytes queued and not handed over */
	uint64_t starts;		/* of them, of STARTs, if nothing else was queued since */
	uint64_t unacked;		/* payload bytes of chunks queued and not acknowledged */
	/* What the lane carries, where there are several: see braid_txq_cost(). */
	uint64_t timed_ns, timed_bytes;	/* acknowledged since; only while something flies */
	double ns_per_byte;		/* of late; 0: not known yet */
	struct braid_kept *kept;	/* rings that it had before, which a NIC may still read */
};

enum braid_rx_kind { BRAID_RX_NONE, BRAID_RX_DRAIN, BRAID_RX_CTL, BRAID_RX_ENTRY, BRAID_RX_UM };

struct braid_lane {
	struct braid_link *link;
	const struct braid_transport *tr;	/* of the present; another one may take over */
	size_t size;			/* of this struct, and what transports add */
	uint8_t index;
	uint16_t epoch;
	int fd;
	void *wire;			/* what setup() made: lane_open() takes it */
	int event_fd;			/* see struct braid_transport, arm; -1: none */
	uint8_t member;			/* of our device, and of the peer's, that it connects */
	uint8_t peer_member;
	uint32_t peer_grant;		/* the peer's link->grant when it was opened */
	atomic_bool up;			/* else its socket is lost: see core/heal.h */
	atomic_bool unread;		/* lost as a push failed: what came before is to be read */
	bool local;			/* the path is this host's memory */
	bool gpu;			/* push() and poll() take memory of GPUs as it is */
	uint32_t ack_frames;		/* received: then they are to be acknowledged */
	uint64_t flight_max;		/* chunk bytes not acknowledged; 0: no limit */
	struct braid_lock io;		/* for reading */
	bool pushing;			/* somebody is, and may have dropped the link's lock */
	atomic_bool blocked;		/* the wire took no more at the last push */

	struct braid_txq tx;
	_Atomic uint64_t tx_bytes;	/* ever handed to the wire; under the link's lock */

	uint32_t rx_frames;		/* received whole */
	uint32_t rx_told;		/* of them, acknowledged */
	uint64_t rx_quiet;		/* bytes received since */
	bool rx_some;			/* something since that deserves it, some time */
	bool rx_owed;			/* something that the peer waits to have acknowledged */

	/* The frame being received: where its payload goes. */
	struct braid_hdr rx_hdr;
	enum braid_rx_kind rx_kind;
	void *rx_target;		/* struct braid_recv or braid_um */
	char *rx_dst;			/* NULL: throw away */
	size_t rx_left;
	size_t rx_at;			/* taken of what braid_rx_take() is called with again */
	char *rx_stage, *rx_gpu;	/* of a GPU: what comes lies here first; where it goes */
	struct braid_gpucopy rx_copy;	/* there */
	uint8_t rx_ctl[BRAID_OPEN_SIZE];
	const char *rx_broken;		/* what the peer sent and should not have; or NULL */
	_Atomic uint64_t rx_bytes;	/* ever, of anything: the peer lives */
	atomic_uint lost, back;		/* times that what carried it was lost, was replaced */

	/* Lost and found: core/heal.c, in the service thread. */
	bool in_epoll, event_in_epoll;
	bool down_due;			/* DOWN is to be told: it is closed here */
	bool writes_due, writes_told;	/* or that its NIC may still write: BRAID_DOWN_WRITES */
	bool peer_down;			/* closed at the other end, too, after so many frames: */
	uint32_t peer_frames;
	bool peer_writes;		/* but the peer's NIC may still write: its chunks wait */
	bool orphaned;			/* both: its chunks go to other lanes */
	atomic_bool sour;		/* what carried it failed by itself */
	atomic_bool detour;		/* the peer closed it: first try another path */
	uint8_t path;			/* of the dialler's, which the socket takes */
	uint16_t dialled;		/* epoch of the last dial, or of the last one taken in */
	struct braid_conn *conn;	/* the dial on its way */
	uint64_t dial_at_ns;
	unsigned dial_wait_ms;		/* after the next failure */
	_Atomic uint64_t suspect_ns;	/* nothing has been acknowledged since; 0: all is well */
	unsigned patience_ms, rtt_ms;	/* how long that may be */
	uint64_t resumed_ns;
	bool stopping;			/* it stands still, but for its NIC, till this: */
	struct braid_stops stops;
	uint32_t lost_size;		/* bytes in packets none of which arrived; 0: they do */
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
void braid_txq_fini(struct braid_txq *q);	/* nothing reads it any more */
/* The peer has all that it will ever acknowledge: acknowledgements themselves it does not. */
bool braid_txq_idle(const struct braid_txq *q);

/*
 * Nanoseconds until `more` payload bytes given to the lane now would be acknowledged, if it goes on
 * as of late; `best` is the least ns_per_byte of the link's lanes.
 */
double braid_txq_cost(const struct braid_txq *q, uint64_t more, double best);

/* May a frame with `inl` bytes of copied payload be queued, leaving room for control frames? */
bool braid_txq_room(const struct braid_txq *q, size_t inl);
bool braid_txq_room_ctl(const struct braid_txq *q);

/*
 * Queue one frame: header, then either `copy` or `ext` of h->len bytes (or neither).  There must
 * be room.  Fills in h->ack and h->lseq.  owner may be NULL.
 */
void braid_tx_add(struct braid_lane *lane, struct braid_hdr *h, const void *copy, const void *ext,
		  struct braid_send *owner);

/*
 * Send the payload of a message before its frame is queued, if nothing waits and the wire takes it:
 * who waits for it does not wait until it is booked.  True: it has left, and the next frame must be
 * its own, an EAGER without flags of comm `id`, with a copied payload.  The transport must have
 * `post`.
 */
bool braid_tx_lead(struct braid_lane *lane, uint32_t id, uint32_t seq, const void *payload,
		   uint32_t len);

void braid_lane_told(struct braid_lane *lane);	/* the peer, of all that has been received */
/* The frame at f_sent is about to leave: its header says what has been received here. */
void braid_tx_stamp(struct braid_lane *lane);
/*
 * The next bytes to send, at most `budget`: fills iov, returns the count; *ret_bytes their sum.  0
 * although some are queued: they are a GPU's, on their way into memory that a socket can read.
 */
int braid_tx_gather(struct braid_lane *lane, struct iovec *iov, int max, size_t budget,
		    size_t *ret_bytes);
/*
 * Bytes of the ring from f_sent on, of which none has been sent, that go in one message of at most
 * `max`: whole frames, or the header of one whose payload lies elsewhere; `with_head`: it may
 * follow others.
 */
uint32_t braid_tx_piece(const struct braid_txq *q, uint32_t max, bool with_head);
struct braid_put {			/* a chunk that can be written into its place */
	const char *data;
	bool gpu;
	uint64_t to;
	uint32_t len, local, remote;	/* length, keys */
	uint32_t imm;			/* braid_rx_imm() */
	bool has_imm;			/* else hdrs follow, the last with BRAID_FLAG_PLACED */
	const char *hdrs;		/* its own, perhaps behind that of its START */
	uint32_t hdrs_len;
	size_t bytes;			/* of the queue that it stands for: braid_tx_advance() */
};
/*
 * Is the frame at f_sent one?  Both its memory here and that at the peer must be known to the NICs
 * that the lane connects, and the peer's grant not older than the lane.  Chunks of up to imm_max
 * bytes may come with nothing but ret->imm; then a START and the message's only chunk are one.
 * Where headers follow, a START and the first chunk are.
 */
bool braid_tx_put(const struct braid_lane *lane, uint32_t imm_max, struct braid_put *ret);
/*
 * May the frame at f_sent go without its header, with nothing but *ret_imm (braid_rx_bare()) or the
 * short header?  Its payload lies behind those in the ring, it has not gone before, and nothing has
 * to be acknowledged.
 */
bool braid_tx_bare(const struct braid_lane *lane, uint32_t *ret_imm);
/* Most frames are not, nor a START. */
static inline bool braid_tx_may_put(const struct braid_txq *q)
{
	const struct braid_txf *f = &q->f[q->f_sent & q->fmask];

	return f->ext_len || q->ring[f->off] == BRAID_F_START;
}
/*
 * The frame at f_sent, with its payload where the CPU can read it.  NULL: not yet, it is on its way
 * there, as above.
 */
const struct braid_txf *braid_tx_here(struct braid_lane *lane);
/* No frame's are on their way any more, as above.  The lane stands still. */
void braid_tx_leave(struct braid_lane *lane);
/* The frame at f_sent has a payload of a GPU's memory: what the lane's NIC calls it.  Or NULL. */
const struct braid_key *braid_tx_gpu(const struct braid_lane *lane);
/* n bytes were handed to the wire: completes copied sends. */
void braid_tx_advance(struct braid_lane *lane, size_t n);
/* The peer says it has received `frames` in all: 0, or -EPROTO if it can't have. */
int braid_tx_acked(struct braid_lane *lane, uint32_t frames);

/*
 * The lane has a new socket, and the peer has received `frames` in all: the others go again, as
 * they were.  The lane stands still.  0, or -EPROTO if the peer can't have.
 */
int braid_tx_rewind(struct braid_lane *lane, uint32_t frames);
/* The newest frame, a chunk of a lane that is down and rewound, goes to `to`, which has room. */
void braid_tx_move(struct braid_lane *from, struct braid_lane *to);
/*
 * All frames of a lane that is down and rewound follow those of `to`, in their order; if
 * `but_chunks`, its chunks stay.  Both lanes stand still.  0, or -ENOMEM: nothing has changed.
 */
int braid_tx_take_over(struct braid_lane *from, struct braid_lane *to, bool but_chunks);

/*
 * Of a lane that more than its socket carries: does the peer's process live?  0 or -ENOTCONN.
 * Nothing comes over that socket but that the lane is closed.
 */
int braid_lane_look_at_fd(const struct braid_lane *lane);
/*
 * The same where nothing was to be read.  It may have said something and ended since: if it has
 * ended, what `poll` finds now, or -ENOTCONN.
 */
int braid_lane_last_words(struct braid_lane *lane, int (*poll)(struct braid_lane *lane));

/*
 * Does nothing come of what is under way, at `most` looks in a row?  A peer that lives acknowledges
 * what it gets.  With the link's lock held.
 */
struct braid_look {
	uint64_t bytes;			/* received, at the last look */
	uint32_t told;			/* acknowledged */
	unsigned stuck;			/* looks at which nothing of that had changed */
};
bool braid_lane_stuck(const struct braid_lane *lane, struct braid_look *look, unsigned most);

/*
 * Forget a comm's memory.  Frames that would be sent from it become VOID; one that is half sent is
 * saved into memory of our own, so that it is not torn.  The lane stands still.  Out of memory:
 * -ENOMEM, the link must die.
 */
int braid_tx_release(struct braid_lane *lane, const void *comm);

#endif
