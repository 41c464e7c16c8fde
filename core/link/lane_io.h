/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lane_io.h - what a transport asks of its lane: the next bytes to send, and where those that
 * arrived go.
 *
 * A transport includes this and core/transport.h.  All calls are made with the link's lock held,
 * except braid_lane_is_alone() and braid_lane_check_fd().  No transport needs more than eight of
 * these functions to move frames: docs/dev/adding-a-transport.md says which.
 */
#ifndef BRAID_LINK_LANE_IO_H
#define BRAID_LINK_LANE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/link/lane.h"
#include "core/link/xfer.h"
#include "core/link/link.h"

/* --- sending ------------------------------------------------------------------------------- */

enum braid_piece_kind {
	BRAID_PIECE_FRAMES,		/* frames in the ring: headers, and payloads copied there */
	BRAID_PIECE_PAYLOAD,		/* of the frame whose header was the piece before; of a
					 * stream only if the lane lends, see below */
	BRAID_PIECE_PUT,		/* a chunk that the NIC can write into the receive */
	BRAID_PIECE_NOHDR,		/* a payload in the ring; `imm` replaces its header */
};

struct braid_can {			/* what a carrier takes at once */
	struct iovec *iov;		/* a byte stream: fill these; NULL: it takes messages */
	int niov;
	size_t max;			/* bytes of a stream's piece, or of a message of frames */
	/* only with messages: */
	size_t payload_max;		/* bytes of a PAYLOAD */
	bool head_last;			/* a FRAMES may end with the header of a PAYLOAD */
	bool gpu;			/* it reads GPU memory itself; else it gets a copy */
	bool nohdr;			/* it takes NOHDR while no acknowledgement is due */
	uint32_t unacked_max;		/* received frames from which one is due */
	uint32_t imm_max;		/* bytes of the largest PUT with immediate data alone */
	size_t put_max;			/* bytes of the largest PUT; 0: it takes none */
};

struct braid_piece {
	enum braid_piece_kind kind;
	int niov;			/* of a byte stream: entries used.  Else: */
	const char *data;		/* a NOHDR's short header lies just before it */
	size_t len;
	size_t bytes;			/* queued bytes that it covers: for braid_tx_advance() */
	const struct braid_mr *gpu;	/* registration of `data` in GPU memory; else NULL */
	uint32_t local;			/* key of `data`, for a PUT or GPU memory */
	uint32_t imm;			/* of a NOHDR or PUT: immediate data for braid_rx_imm() */
	/* only of a PUT: */
	bool has_imm;			/* false: send hdrs, the last with BRAID_FLAG_PLACED */
	uint32_t remote;		/* key of the receive, and its address */
	uint64_t to;
	const char *hdrs;		/* its header, perhaps preceded by its START */
	uint32_t hdrs_len;
};

/*
 * A stream whose lane lends (lane->lends) gets payloads of so many bytes, in the user's registered
 * host memory, as pieces by themselves.  It sets lane->lent before it has the kernel read one where
 * it lies.  Its lane_fence() then ends that, as a NIC's does.
 */
enum { BRAID_LEND_MIN = 64 << 10 };

/*
 * Get the next piece to send.  1: got it; 0: no frame is queued; -EAGAIN: it is still being copied
 * out of a GPU.  A piece that the carrier refuses is offered again.  A PUT needs registered memory
 * at both ends, under a valid rkey epoch.
 */
int braid_lane_next(struct braid_lane *lane, const struct braid_can *can, struct braid_piece *ret);
/* n bytes were handed to the carrier.  Sends whose payload is in the ring are complete then. */
void braid_tx_advance(struct braid_lane *lane, size_t n);
/*
 * The caller has just acknowledged all frames received so far to the peer.  lane_open() may call it
 * without the lock: no other thread uses the lane yet.
 */
void braid_rx_acked(struct braid_lane *lane);

struct braid_lane_counts {		/* of frames, ever */
	uint32_t sent, sent_acked;	/* handed over, or begun to be; acknowledged by the peer */
	uint32_t came, came_acked;	/* received whole; acknowledged to the peer */
	bool in_frame;			/* one more has been received in part */
};
static inline struct braid_lane_counts braid_lane_counts(const struct braid_lane *lane)
{
	return (struct braid_lane_counts){
		.sent = lane->tx.f_sent + (lane->tx.part != 0),
		.sent_acked = lane->tx.f_peer_acked,
		.came = lane->rx_frames, .came_acked = lane->rx_acked,
		.in_frame = lane->rx_kind != BRAID_RX_NONE,
	};
}

/* --- receiving ----------------------------------------------------------------------------- */

/*
 * These functions return 0 or a negative errno.  -EAGAIN: a payload is still being copied into a
 * GPU; call again, and receive nothing else before.  Any other errno: poll() must return it, and
 * the lane is closed.
 */
/*
 * n bytes of a stream, which may begin and end anywhere in a frame.  *ret_done bytes were used: all
 * but a part of a header at the end.  After -EAGAIN call again with the rest, even if it is empty.
 */
int braid_rx_bytes(struct braid_lane *lane, const char *p, size_t n, size_t *ret_done);
/*
 * A message: whole frames, a part of a frame that the next message continues, or one frame with a
 * short header.  After -EAGAIN call again with the same message.
 */
int braid_rx_message(struct braid_lane *lane, const char *p, size_t n);
/*
 * Immediate data came, in place of the header of the payload at p.  p NULL: the NIC has written the
 * payload, a chunk, into its receive.
 */
int braid_rx_imm(struct braid_lane *lane, uint32_t imm, const char *p, size_t n);
/* The peer acknowledges `frames` in all, by other means than a frame. */
int braid_rx_count(struct braid_lane *lane, uint32_t frames);

struct braid_rx_rest {			/* the rest of the payload that is being received */
	char *dst;			/* NULL: discard it */
	size_t len;			/* 0: none; a header comes next */
	uint32_t comm;			/* the comm that receives it */
	const struct braid_mr *gpu;	/* its registration; NULL: it is host memory */
	bool large;			/* the last payload was large: read only headers ahead */
};
/* The thread that holds `io` may call these two without the link's lock. */
static inline struct braid_rx_rest braid_rx_rest(const struct braid_lane *lane)
{
	return (struct braid_rx_rest){
		.dst = lane->rx_dst, .len = lane->rx_left, .comm = lane->rx_hdr.comm,
		.gpu = lane->rx_kind == BRAID_RX_ENTRY && !lane->rx_stage ? lane->rx_mr : NULL,
		.large = lane->rx_large,
	};
}
/* More of the payload came, and lies at p.  NULL, or a GPU's memory: it can't be checked. */
void braid_rx_sum(struct braid_lane *lane, const char *p, size_t n);
/*
 * A stream has put n bytes at `dst`, or if that is NULL, at p.  Next, call braid_rx_bytes(), with 0
 * bytes if need be.
 */
static inline void braid_rx_filled(struct braid_lane *lane, const char *p, size_t n)
{
	if (lane->rx_checks)
		braid_rx_sum(lane, p, n);
	if (lane->rx_dst)
		lane->rx_dst += n;
	lane->rx_left -= n;
	braid_count(&lane->rx_bytes, n);
}

/* A message was that rest: the carrier has put its n bytes at `dst`. */
int braid_rx_placed(struct braid_lane *lane, size_t n);
/*
 * The payload that the next message will carry, if the last frame of message p lacks it.  That
 * frame has not begun.  `dst` NULL: its place is not known yet, ask later.
 */
struct braid_rx_rest braid_rx_ahead(const struct braid_lane *lane, const char *p, size_t n);

/*
 * A byte stream has more to read, of a payload of which at least BRAID_HAND_MIN bytes are left: may
 * the lane's mover go on?  True: poll() returns.  With `io` held, without the link's lock.
 */
bool braid_rx_hand(struct braid_lane *lane);

/* A hint: recently no call used another link. */
static inline bool braid_lane_is_alone(const struct braid_lane *lane)
{
	return atomic_load_explicit(&lane->link->thread.alone, memory_order_relaxed);
}

/* --- not to move frames: bytes that the NIC reads ------------------------------------------ */

struct braid_read {			/* for read() of struct braid_transport */
	char *to;			/* registered memory of the user's, and its key */
	uint32_t local;
	uint32_t remote;		/* key and address of the peer's */
	uint64_t from;
	uint32_t len;
	uint32_t id;			/* set by read(): rising, modulo 2^32 */
};
bool braid_reads_allowed(void);		/* may a peer's NIC read, too?  core/link/reads.h */
/* From lane_open(): the carrier reads, `most` at once (BRAID_READS_MAX), of `len` bytes each. */
void braid_reads_offer(struct braid_lane *lane, unsigned most, uint32_t len);
/* Reads up to that id have ended, if there are any: their bytes are in place. */
void braid_reads_over(struct braid_lane *lane, uint32_t id);

/* --- not to move frames: after a failure, and for health() --------------------------------- */

/*
 * For a lane with a carrier of its own (`blob`), after that has failed: 0, or -ENOTCONN if the peer
 * closed lane->fd.  The socket's only event is its end.  The core calls this for poll().
 */
int braid_lane_check_fd(const struct braid_lane *lane);

/* Has it handed payloads outside the ring to its carrier, which the peer has not acknowledged? */
bool braid_lane_has_payloads(const struct braid_lane *lane);

/*
 * braid_lane_stuck() is true if frames are in flight, and for more than `most` calls in a row
 * nothing was received or acknowledged.  A live peer acknowledges the frames that it receives.
 */
struct braid_progress {
	uint64_t bytes;			/* received, at the last call */
	uint32_t acked;			/* frames acknowledged, at the last call */
	unsigned stuck;			/* calls at which neither had changed */
};
bool braid_lane_stuck(const struct braid_lane *lane, struct braid_progress *progress,
		      unsigned most);

#endif
