/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lane.h - one independent path of a link.
 *
 * A lane carries numbered frames in order, both ways.  A carrier, such as a socket or a queue pair,
 * moves them; it may be replaced while the lane lives.
 *
 * The link's lock guards all of this, except `recover` (the service thread's) and `hand` (mover.h).
 * The thread that holds `io` may change rx_dst, rx_left and the checksums of what it reads without
 * the link's lock.
 */
#ifndef BRAID_LINK_LANE_H
#define BRAID_LINK_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/mem/gpucopy.h"
#include "core/mem/later.h"
#include "core/base/hist.h"
#include "core/base/list.h"
#include "core/base/os.h"
#include "core/link/txq.h"
#include "core/transport.h"
#include "core/proto/frame.h"

struct braid_conn;
struct braid_link;
struct braid_xfer;

struct braid_lane_keys {		/* of a lane that is encrypted; wiped after lane_open() */
	uint8_t cipher;			/* enum braid_cipher */
	bool peer_keeps;		/* the peer can't change the key by which it receives */
	uint8_t send[BRAID_KEY_SIZE], receive[BRAID_KEY_SIZE];	/* traffic secrets */
};

enum { BRAID_ACK_BYTES = 64 << 10 };	/* received bytes after which an ACK is due at the latest */

enum braid_rx_kind { BRAID_RX_NONE, BRAID_RX_DRAIN, BRAID_RX_CTL, BRAID_RX_ENTRY, BRAID_RX_UNEXP };

/* How a lane was lost, and what both ends did about it.  Owned by core/link. */
struct braid_lane_loss {
	atomic_uint lost, back;		/* times that its carrier was lost, was replaced */
	atomic_uint corrupt;		/* of these losses: a checksum was wrong */
	atomic_bool corrupt_new;	/* one more since braid_lane_was_corrupt() */
	bool down_due;			/* closed here: a DOWN frame is pending */
	bool writes_due, writes_sent;	/* BRAID_DOWN_WRITES is due; our NIC is slow to stop */
	bool peer_down;			/* closed by the peer, which received this many frames: */
	uint32_t peer_frames;
	bool peer_writes;		/* the peer's NIC may still write: keep the chunks here */
	bool orphaned;			/* closed at both ends: its chunks go to other lanes */
	bool stopping;			/* fenced, but its NIC runs until these stops are over: */
	struct braid_stops stops;
	atomic_bool carrier_failed;	/* its carrier failed, and neither end closed it */
	atomic_bool avoid_path;		/* the peer closed it: try another path first */
	atomic_bool slow;		/* its carrier is to be replaced, for another path */
	atomic_bool old_key;		/* its carrier is to be replaced, for new keys */
	_Atomic uint64_t suspect_ns;	/* nothing was acknowledged since then; 0: not suspect */
};

enum { BRAID_LOOKS = 4 };

struct braid_lane_pace {		/* core/setup/slow.c */
	uint64_t bytes[BRAID_LOOKS], busy_ns[BRAID_LOOKS];	/* braid_txq_busy() then */
	unsigned back, looks;		/* braid_lane_times_back(), and looks since that grew */
	unsigned slow_looks;		/* in a row, at which it was slow */
	unsigned tries;			/* dials that did not help */
	unsigned refused;		/* new connections that looked as slow, in a row */
	uint64_t well_ns;		/* since then it is not slow; 0: it is */
	uint64_t next_ns;		/* not dialled for that before */
};

/* How a lost carrier is replaced.  Owned by core/setup, in the service thread. */
struct braid_lane_recover {
	bool in_epoll, event_in_epoll;
	uint8_t path;			/* the dialler's path that its socket uses */
	uint32_t dialled;		/* epoch of the last dial made or accepted */
	struct braid_conn *conn;	/* the dial in progress */
	uint64_t dial_at_ns;
	unsigned dial_wait_ms;		/* the wait after the last failed dial; 0: none failed */
	unsigned dials_failed;		/* since it was up */
	unsigned patience_ms, rtt_ms;	/* how long the lane may be suspect; round trip */
	uint64_t suspect_acked;		/* bytes acknowledged when it became suspect */
	uint64_t resumed_ns;
	uint64_t shut_ns;		/* when its carrier was closed for another */
	uint32_t peer_corrupt;		/* times that it was corrupt at the peer, by its hello */
	struct braid_lane_pace pace;
	uint32_t lost_size;		/* segments of this size do not arrive; 0: all arrive */
};

enum { BRAID_HAND_MIN = 64 << 10 };	/* bytes of a piece that is worth a hand-over */
enum { BRAID_HAND_TX = 1, BRAID_HAND_RX = 2 };	/* the directions of a lane */

/* A thread that moves the lane's bytes in place of callers: core/link/mover.h. */
struct braid_lane_hand {
	struct braid_mover *_Atomic by;	/* the thread that it may be handed to; NULL: none */
	atomic_uint what;		/* the directions that it has: BRAID_HAND_* */
	atomic_bool due;		/* there may be bytes to send */
	struct braid_list node;		/* in a mover's inbox, or its list of lanes */
	_Atomic uint64_t offered[2];	/* bytes of large pieces that a thread could have: TX, RX */
	/* Only the service thread uses these: */
	struct braid_mover *last;	/* that was `by`, and may still have the lane */
	uint64_t moved_seen, offered_seen;
	/* Only the lane's mover uses these: */
	uint64_t sent_ns, came_ns;	/* when bytes last moved */
	uint64_t retry_ns;
	bool full, came;		/* the carrier takes no more; its last read found bytes */
};

enum { BRAID_READS_MAX = 16 };		/* of one lane, in progress at once */

struct braid_lane_one_read {
	struct braid_xfer *x;		/* NULL: nothing waits for it any more */
	uint32_t len;
	uint32_t id;			/* the carrier's */
};

/* What its NIC reads from the peer's memory: core/link/reads.h. */
struct braid_lane_reads {
	unsigned max;			/* at once, of the present carrier; 0: it can't read */
	uint32_t len_max;		/* bytes of the largest */
	uint32_t begun, over;		/* ever; they end in order */
	uint64_t bytes;			/* of those in progress */
	struct braid_lane_one_read of[BRAID_READS_MAX];
};

struct braid_lane {
	struct braid_link *link;
	const struct braid_transport *tr;	/* of the present carrier; it may change */
	size_t size;			/* of this struct and the largest transport's part */
	uint8_t index;
	uint32_t epoch;
	int fd;
	void *priv;			/* made by setup(), taken over by lane_open() */
	const struct braid_lane_keys *keys;	/* in lane_open(); NULL: it is not encrypted */
	int event_fd;			/* see struct braid_transport, arm; -1: none */
	uint8_t member;			/* its two ends: of our device and of the peer's */
	uint8_t peer_member;
	uint32_t peer_rkey_epoch;		/* the peer's when the carrier was set up */
	atomic_bool up;			/* false: its carrier is lost, see core/link/recover.h */
	atomic_bool unread;		/* lost in a push: data that came before is unread */
	bool local;			/* both ends are on this host */
	bool gpu;			/* push() and poll() work on GPU memory directly */
	atomic_bool lends;		/* a stream takes large payloads by themselves */
	bool lent;			/* the kernel may read them until they are acknowledged */
	uint32_t ack_frames;		/* acknowledge after receiving so many frames */
	uint64_t flight_max;		/* limit of unacknowledged chunk bytes; 0: none */
	struct braid_lock io;		/* held by the thread that reads the carrier */
	bool pushing;			/* a thread pushes it, perhaps without the link's lock */
	unsigned idle_polls;		/* in a row, that found nothing; `io` guards it */
	atomic_bool blocked;		/* the carrier took no more at the last push */

	struct braid_lane_hand hand;
	struct braid_lane_reads reads;
	struct braid_txq tx;
	struct braid_hist_live acks;	/* of frames timed: from queued to acknowledged (txq.c) */
	_Atomic uint64_t tx_bytes;	/* ever handed to the carrier; under the link's lock */

	uint32_t rx_frames;		/* frames received whole */
	uint32_t rx_acked;		/* of these: acknowledged */
	uint64_t rx_quiet;		/* bytes received since the last acknowledgement */
	bool rx_some;			/* some frame not yet acknowledged needs an ACK */
	bool rx_ack_due;			/* the peer is waiting for the acknowledgement */

	/* The frame being received, and where its payload goes. */
	struct braid_hdr rx_hdr;
	enum braid_rx_kind rx_kind;
	void *rx_target;		/* struct braid_recv or braid_unexp */
	const struct braid_mr *rx_mr;	/* of an entry in GPU memory; NULL: in host memory */
	char *rx_dst;			/* NULL: discard the payload */
	size_t rx_left;
	bool rx_checks;			/* its checksum is rx_sum, and so far: */
	uint32_t rx_sum, rx_crc;
	size_t rx_at;			/* bytes used of the carrier's message that got -EAGAIN */
	bool rx_large;			/* the last payload was large, so the next may be, too */
	char *rx_stage, *rx_gpu;	/* host memory for GPU payload; its place in the GPU */
	struct braid_gpucopy rx_copy;	/* from rx_stage to rx_gpu */
	uint8_t rx_ctl[BRAID_OPEN_SIZE];
	const char *rx_broken;		/* the malformed thing that the peer sent; or NULL */
	_Atomic uint64_t rx_bytes;	/* ever received, of any kind; grows while the peer lives */
	struct braid_lane_loss loss;		/* core/link/recover.c */
	struct braid_lane_recover recover;	/* core/setup/recover.c */
};

static inline bool braid_lane_up(const struct braid_lane *lane)
{
	return atomic_load_explicit(&lane->up, memory_order_acquire);
}

static inline bool braid_lane_unread(const struct braid_lane *lane)
{
	return atomic_load(&lane->unread);
}

#endif
