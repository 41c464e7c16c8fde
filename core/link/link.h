/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * link.h - all that two processes share over one pair of devices.
 *
 * A link owns lanes and carries the comms of both directions.  The end that connects first makes it
 * (core/setup/dial.c and core/setup/accept.c), keyed by peer process, both devices and traffic
 * class.
 *
 * Locks, in this order: a lane's io lock, for the thread that reads it; the link's lock.  A thread
 * that sends a lot drops the link's lock meanwhile, and `pushing` keeps others off the lane.  The
 * data path only tries to take these locks; set-up, close and cancel wait for them.
 *
 * Each end sends its eager messages and control frames over one lane, its home: lane 0 until that
 * lane dies.
 *
 * Progress: any data call moves all of a link.  If no call came for a tick, the service thread
 * watches the link's descriptors instead, and moves it when something arrives.
 */
#ifndef BRAID_LINK_LINK_H
#define BRAID_LINK_LINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/dev.h"
#include "core/link/lane.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/link/paths.h"
#include "core/proto/handle.h"
#include "core/proto/frame.h"

enum braid_link_state {
	BRAID_LINK_DIALING,		/* our own dial is in progress */
	BRAID_LINK_WAITING,		/* both ends dialled, and the peer's dial goes on */
	BRAID_LINK_UP,
	BRAID_LINK_DEAD,
};

enum { BRAID_LINK_BUCKETS = 256 };

struct braid_link_key {
	uint8_t process[BRAID_ID_SIZE];
	uint16_t peer_dev;
	int16_t traffic_class;
	struct braid_dev *dev;
	bool self_accepted;		/* the accepting end of a link to our own process */
};

struct braid_link {
	struct braid_list node;		/* all links: braid_links_next() */
	uint32_t number;		/* in this process, for people; from 1 */
	unsigned looks;			/* references: braid_links_next() */
	struct braid_link_key key;
	_Atomic int state;
	atomic_int err;			/* once dead */
	bool dialler;
	bool better;			/* both ends can use more than sockets */
	bool told_plain, told_loose;	/* this WARN was written: in join.c; in bind.c */
	struct braid_log_gate ended, reported, given_up;	/* core/msg/fail.c */
	uint64_t id;
	uint8_t session[BRAID_KEY_SIZE];
	char peer[192];			/* "host (pid N) at address", for people */
	uint32_t peer_pid;		/* if the peer is on a host of our host's name; else 0 */
	struct braid_handle target;	/* dialler: the handle to dial, until the link is up */
	struct braid_path path[BRAID_PATHS_MAX];
	unsigned npaths;

	struct braid_lock lock;
	struct braid_lane *lane[BRAID_LANES_MAX];
	atomic_uint nlanes;		/* never decreases while the link lives */
	atomic_uint ndown;		/* lanes without a carrier */
	unsigned norphaned;		/* lanes down whose chunks may go to other lanes */
	unsigned home;			/* our home; changed while all lanes stand still */
	atomic_uint rx_home;		/* the peer's home: where its last home frame came from */
	atomic_uint active;		/* lanes that carry chunks: core/setup/lane_count.c */
	_Atomic uint32_t rkey_epoch;	/* times that credits were revoked: docs/dev/wire.md */
	unsigned lanes_max;		/* the smaller of both ends' limits */

	struct braid_list comms;
	struct braid_comm **bucket;	/* by id */
	atomic_uint ncomms;
	struct braid_traffic closed[2];	/* of closed comms: received, sent */
	uint32_t next_comm;
	atomic_bool attached, used;		/* has rings; has had a comm */

	/* sending */
	struct braid_list pending;	/* sends with chunks to cut */
	uint64_t tx_window, shared_out;	/* of eager bytes: limit; in use (core/msg/window.h) */
	uint64_t isend_epoch;		/* counts isend calls */
	uint32_t burst;			/* frames that callers recently posted before waiting */
	uint32_t burst_run;		/* isends since `burst` was last set */
	uint32_t burst_now;		/* frames of the present burst, after the first */
	atomic_bool quiet;		/* a test() was idle since the last isend: no burst now */
	unsigned push_turn;		/* which lane is pushed next: push_waiting() */
	atomic_bool stalled;		/* a later call must go on: push_waiting() */
	/* receiving */
	struct braid_refusals *_Atomic refusals;	/* REFUSED frames due; NULL: none */
	struct braid_list control_due;		/* comms whose control frames are due */
	uint64_t rx_window, um_bytes;	/* of unexpected messages: limit; in use */
	uint64_t retire_bytes;		/* window that RETIREs due will free at the peer */
	atomic_uint poll_turn, calls;	/* which lane is polled next; calls of move() */
	atomic_uint spread;		/* messages whose chunks may come on any lane */
	struct {			/* message half received when its lane was lost: resent */
		enum braid_rx_kind kind;	/* NONE: there is none */
		struct braid_hdr hdr;
		void *target;
		const struct braid_mr *mr;
		char *dst;
	} again;
	struct braid_list copying;	/* unexpected messages being copied into a GPU */
	atomic_uint copies;		/* all copies from and to GPU memory in progress */
	atomic_bool control_urgent;	/* the peer waits for a control frame that is due */
	atomic_bool control_was_urgent;	/* it did since braid_link_flush_if_urgent() */
	atomic_bool peer_gone;			/* F_CLOSE received */

	/* for the service thread */
	atomic_ulong touched;		/* data calls on the link; may miss some, never all */
	unsigned long seen;
	atomic_bool alone;		/* a hint: recently no call used another link */
	uint64_t tidied_ns;		/* when it last sent control frames that are not urgent */
	atomic_bool watched;		/* its sockets are in the service thread's epoll set */
	bool settled;			/* watched, and a tick has passed without a call */
	atomic_uint want_lanes;		/* dial until the link has so many lanes */
	atomic_uint ask_lanes;		/* lanes to ask the peer to dial: LANES is due; 0: none */
	atomic_uint peer_lanes;		/* the peer has so many lanes: dial them in any case */
	uint64_t idle_since_ns;
	bool closing;			/* lanes are closed; NICs run until these stops are over: */
	struct braid_stops stops;
	atomic_uint pins;		/* calls and dials that still use the link */
	struct braid_conn *conn;	/* the dial in progress */
	uint64_t dial_at_ns, dial_until_ns, refused_until_ns;
	uint64_t crossed_ns;		/* first refusal of the peer's dial: core/setup/cross.c */
	int dial_err;			/* how the last dial ended */
	uint8_t dial_stage;		/* and how far it came: core/setup/why.h */
	struct {			/* core/setup/tries.c: attempts over its ways */
		unsigned round;
		uint64_t final_ns;	/* when the first way failed for good; 0: none has */
	} tries;
	struct {			/* core/setup/silence.c: does the peer live? */
		uint64_t bytes;		/* ever received */
		_Atomic uint64_t heard_ns;	/* when that count last grew */
		uint32_t said;		/* frames ever queued at our home lane */
		uint64_t said_ns;	/* when that count last grew */
		uint64_t looked_ns, health_ns, down_ns, probe_ns, stall_ns;
		unsigned probe_wait_ms;
		bool refused, unanswered, told_mtu;
		atomic_bool silent, late;
		atomic_uint stalls;	/* times that a message was late */
	} recover;
	_Atomic uint64_t acked_bytes;	/* bytes of chunks ever acknowledged; under the lock */
	atomic_ulong starved;		/* times that chunks waited because every lane was full */
	struct {			/* core/setup/lane_count.c: would another lane help? */
		int phase;
		uint64_t at_ns, moved_ns, next_try_ns, give_up_ns, wait_ns;
		uint64_t dial_ns, redial_ns;	/* earliest next dial; the wait before it */
		uint16_t dials;			/* of new lanes */
		uint64_t bytes;
		unsigned long starved;
		double few_rate, many_rate;	/* bytes per ns, recently */
		double most, least;	/* best rate with few lanes, worst with many */
		unsigned few, many, round;
		bool trim;		/* the present trial: would fewer lanes do? */
		bool double_next;	/* going to all lanes at once did not help */
		uint64_t trim_ns, trim_wait_ns;
	} lane_count;
};

struct braid_conn;

struct braid_link *braid_link_new(const struct braid_link_key *key);
void braid_link_free(struct braid_link *link);

/* Allocate rings and buffers for traffic; 0 or -ENOMEM.  Idle links free them. */
int braid_link_attach(struct braid_link *link);
void braid_link_detach(struct braid_link *link);

/* Fail the link and every comm on it with err.  One WARN, if a caller is affected. */
void braid_link_fail(struct braid_link *link, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Fail the link with its lock held.  The service thread closes the lanes later. */
void braid_link_down(struct braid_link *link, int err, const char *why);

/*
 * Make progress from a data call: the service thread then leaves the link alone for a while.
 * `idle`, of the caller's comm: the link's isend_epoch at the comm's last idle test().  `done`: set
 * once the caller's request is done.  Both may be NULL.
 */
void braid_link_progress(struct braid_link *link, uint64_t *idle, const atomic_bool *done);
/* Make progress from the service thread: > 0 if frames came or left. */
int braid_link_move(struct braid_link *link);

/*
 * Make every lane stand still: takes all io locks and the link's lock, until braid_link_go().
 * Waits for other threads' calls on the link to end.  Returns the number of lanes, for go().
 */
unsigned braid_link_stop(struct braid_link *link);
void braid_link_go(struct braid_link *link, unsigned n);

/* With the link's lock held: */
bool braid_link_ctl(struct braid_link *link, struct braid_hdr *h, const void *payload);
void braid_link_pending(struct braid_link *link, struct braid_list *node);	/* a send to cut */
/* If the payload goes to a receive in GPU memory, receive it into host memory first. */
int braid_rx_stage(struct braid_lane *lane);
/* Bytes of all chunks of a message but the last. */
uint32_t braid_link_chunk_len(const struct braid_link *link, uint64_t size);
void braid_link_feed(struct braid_link *link);	/* cut chunks; push their lanes */
void braid_link_flush(struct braid_link *link);	/* push home, unless another thread does */
void braid_link_unpark(struct braid_link *link);	/* the service thread stops watching */

/* A data call was made: the service thread leaves the link to its caller for a tick. */
static inline void braid_link_touch(struct braid_link *link)
{
	unsigned long touched = atomic_load_explicit(&link->touched, memory_order_relaxed);

	atomic_store_explicit(&link->touched, touched + 1, memory_order_relaxed);
	if (atomic_load_explicit(&link->watched, memory_order_relaxed))
		braid_link_unpark(link);
}

static inline struct braid_lane *braid_link_home(const struct braid_link *link)
{
	return link->lane[link->home];
}

/* Home has only STARTs to send, and no lane takes their chunks now: send both together later. */
static inline bool braid_link_only_starts(const struct braid_link *link)
{
	const struct braid_txq *q = &braid_link_home(link)->tx;

	return q->unsent == q->starts && !braid_list_empty(&link->pending);
}

#endif
