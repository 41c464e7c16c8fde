/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lane_io.h - what a transport asks of its lane: the next bytes to send, and where those that
 * arrived go.
 *
 * A transport includes this and core/transport.h.  All calls are made with the link's lock held,
 * except braid_lane_look_due(), braid_lane_look_at_fd() and braid_lane_last_words().
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

/* The caller has just acknowledged all frames received so far to the peer. */
void braid_lane_told(struct braid_lane *lane);
/* Write the present acknowledgement into the header at f_sent, which is about to be sent. */
void braid_tx_stamp(struct braid_lane *lane);
/*
 * Fill iov with the next bytes to send, at most `budget`; returns the entries used, and in
 * *ret_bytes their sum.  0 although bytes are queued: a copy from GPU to host is not complete.
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
 * Can the NIC write the chunk at f_sent, or behind a START at f_sent, into the receive?  Both ends'
 * memory must be registered, under a valid rkey epoch.  A chunk of up to imm_max bytes needs no
 * header, only ret->imm, which also stands for the START of a message with a single chunk.
 */
bool braid_tx_put(const struct braid_lane *lane, uint32_t imm_max, struct braid_put *ret);
/*
 * May immediate data *ret_imm (braid_rx_imm()), or the short header, replace the header of the
 * frame at f_sent?  Not in a replay, nor when an acknowledgement is due.  The payload lies in the
 * ring directly behind the header, whose last 8 bytes are the short header.
 */
bool braid_tx_nohdr(const struct braid_lane *lane, uint32_t *ret_imm);
/* A cheap test before braid_tx_put(), which needs a START or a payload outside the ring. */
static inline bool braid_tx_may_put(const struct braid_txq *q)
{
	const struct braid_txf *f = &q->f[q->f_sent & q->fmask];

	return f->ext_len || q->ring[f->off] == BRAID_F_START;
}
/* The frame at f_sent.  NULL: its payload is still being copied from the GPU to the host. */
const struct braid_txf *braid_tx_here(struct braid_lane *lane);
/* The key of the GPU memory that the frame at f_sent sends from; NULL: it sends none. */
const struct braid_key *braid_tx_gpu(const struct braid_lane *lane);
/* n bytes were handed to the carrier.  Sends whose payload is in the ring are complete then. */
void braid_tx_advance(struct braid_lane *lane, size_t n);
/* The peer acknowledges `frames` in all: 0, or -EPROTO if fewer were queued. */
int braid_tx_acked(struct braid_lane *lane, uint32_t frames);

/*
 * Receiving.  A negative errno other than -EAGAIN: poll() returns it, and the lane is closed.
 * -EAGAIN: a payload is still being copied into a GPU; call again, and receive nothing else before.
 */
/*
 * n bytes of a stream, which may begin and end anywhere in a frame.  *ret_done were used: all but a
 * part of a header at the end.  After -EAGAIN call again with the rest, even if that is nothing.
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
	uint32_t comm;			/* whose memory it is */
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
/* The carrier has put n bytes there; braid_rx_bytes() with what follows, or nothing, goes on. */
static inline void braid_rx_filled(struct braid_lane *lane, size_t n)
{
	if (lane->rx_dst)
		lane->rx_dst += n;
	lane->rx_left -= n;
	braid_count(&lane->rx_bytes, n);
}

/*
 * Where the payload of a chunk that has not begun will go; NULL: not known yet, ask later.
 * *ret_gpu: its registration, if it is GPU memory, which only a lane with lane->gpu gets.
 */
char *braid_rx_place(const struct braid_lane *lane, const struct braid_hdr *h,
		     const struct braid_mr **ret_gpu);
/*
 * If err is -EBADMSG or -EPROTO, note that the peer sent a malformed `what`; returns err, for
 * poll().  Without this call these errors are the kernel's or a library's: the lane is just lost.
 */
int braid_rx_broken(struct braid_lane *lane, const char *what, int err);

enum { BRAID_LOOK_AT_FD = 256 };	/* braid_lane_look_due() */

/* A hint: recently no call used another link. */
static inline bool braid_lane_is_alone(const struct braid_lane *lane)
{
	return atomic_load_explicit(&lane->link->thread.alone, memory_order_relaxed);
}

/* Look at lane->fd?  After each BRAID_LOOK_AT_FD-th empty poll; while watched, after each. */
static inline bool braid_lane_look_due(const struct braid_lane *lane, unsigned *in_vain)
{
	return ++*in_vain % BRAID_LOOK_AT_FD == 0 || atomic_load(&lane->link->thread.watched);
}

/*
 * For a lane whose frames do not use its socket: 0, or -ENOTCONN if the peer closed that socket.
 * The only event on it is its end: the peer closed the lane, or its process ended.
 */
int braid_lane_look_at_fd(const struct braid_lane *lane);
/*
 * Call it after a poll that found nothing: 0 if lane->fd is open.  If the peer closed it, data may
 * have come before: returns what `poll` finds now, or -ENOTCONN if it finds nothing.
 */
int braid_lane_last_words(struct braid_lane *lane, int (*poll)(struct braid_lane *lane));

/*
 * braid_lane_stuck() is true if frames are in flight, and for more than `most` calls in a row
 * nothing was received or acknowledged.  A live peer acknowledges the frames that it receives.
 */
struct braid_look {
	uint64_t bytes;			/* received, at the last call */
	uint32_t told;			/* frames acknowledged, at the last call */
	unsigned stuck;			/* calls at which neither had changed */
};
bool braid_lane_stuck(const struct braid_lane *lane, struct braid_look *look, unsigned most);

#endif
