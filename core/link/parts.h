/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * parts.h - the parts of a link, one for each owner and topic.
 *
 * Only the folder that owns a part names its members (tests/tidy/rules.sh).  Other folders call the
 * owner's functions: core/link/state.h, core/msg/comms.h.  Parts of higher floors are declared here
 * too, since the link embeds them.
 */
#ifndef BRAID_LINK_PARTS_H
#define BRAID_LINK_PARTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/hist.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/dev.h"
#include "core/link/lane.h"
#include "core/link/paths.h"
#include "core/mem/later.h"
#include "core/proto/frame.h"
#include "core/proto/handle.h"

struct braid_comm;
struct braid_conn;
struct braid_refusals;

/* --- of core/link, under the link's lock except where atomic ------------------------------- */

struct braid_link_lanes {
	unsigned home;			/* our home; changed while all lanes stand still */
	atomic_uint active;		/* lanes that carry chunks: core/setup/lane_count.c */
	atomic_uint ndown;		/* lanes without a carrier */
	unsigned norphaned;		/* lanes down whose chunks may go to other lanes */
	atomic_bool attached;		/* the lanes have rings */
	_Atomic uint32_t rkey_epoch;	/* times that credits were revoked: docs/dev/wire.md */
	atomic_uint want;		/* dial until the link has so many lanes */
	atomic_uint ask;		/* LANES is due: ask the peer to dial so many; 0: none */
	atomic_uint peer;		/* the peer has so many lanes: dial them in any case */
	atomic_uint call;		/* the peer asks us to connect for this lane - 1; 0: no */
};

struct braid_link_tx {
	struct braid_list pending;	/* sends with chunks to cut */
	uint64_t isend_epoch;		/* counts isend calls */
	uint32_t burst_now;		/* frames of the present burst, after the first */
	atomic_bool quiet;		/* a test() was idle since the last isend: no burst now */
	unsigned push_turn;		/* the lane after home that push_waiting() starts with */
	atomic_bool stalled;		/* work is left for a later call of push_waiting() */
	atomic_bool control_urgent;	/* a control frame is due that the peer waits for */
	atomic_bool control_was_urgent;	/* it was set since the last braid_link_flush_if_urgent() */
	_Atomic uint64_t acked_bytes;	/* bytes of chunks ever acknowledged */
	atomic_ulong starved;		/* times that chunks waited because every lane was full */
};

struct braid_link_rx {
	atomic_uint home;		/* the peer's home: where its last home frame came from */
	atomic_uint poll_turn, calls;	/* which lane is polled next; calls of others_due() */
	atomic_uint spread;		/* messages whose chunks may come on any lane */
	atomic_uint copies;		/* all copies from and to GPU memory in progress */
	atomic_bool peer_gone;		/* F_CLOSE received */
	/* The last ALIVE with BRAID_ALIVE_CPU, and how many have come. */
	_Atomic uint32_t peer_used_ms, peer_queued_ms, peer_announced;
	atomic_uint peer_rest_s;	/* of the last ALIVE: see core/proto/frame.h */
	struct {			/* half received when its lane was lost; it is sent again */
		enum braid_rx_kind kind;	/* NONE: there is none */
		struct braid_hdr hdr;
		void *target;
		const struct braid_mr *mr;
		char *dst;
	} again;
};

/* Shared by data calls and the service thread, without a lock but for the last two. */
struct braid_link_thread {
	atomic_ulong touched;		/* data calls on the link; may miss some, never all */
	atomic_bool watched;		/* its sockets are in the service thread's epoll set */
	atomic_bool alone;		/* a hint: recently no call used another link */
	atomic_uint pins;		/* calls and dials that still use the link */
	struct braid_link *other;	/* the one woken before it: see woken.c, whose lock ... */
	bool woken;			/* ... guards both */
};

/* --- of core/msg, under the link's lock except where atomic -------------------------------- */

struct braid_link_msg {
	struct braid_list comms;
	struct braid_comm **bucket;	/* comms by id */
	atomic_uint ncomms;
	atomic_uint nkinds;		/* of these: of another kind than NCCL's messages */
	atomic_bool used;		/* has had a comm */
	struct braid_traffic closed[2];	/* of closed comms: received, sent */
	struct braid_hist_live took[2];	/* sends, from post to done: small, large; comms.h */
	/* sending */
	uint64_t tx_window, shared_out;	/* of eager bytes: limit; in use (core/msg/window.h) */
	uint32_t burst;			/* frames that callers recently posted before waiting */
	uint32_t burst_run;		/* isends since `burst` was last set */
	uint64_t untimed;		/* bytes, and a little for each send, since one was timed */
	/* receiving */
	struct braid_refusals *_Atomic refusals;	/* REFUSED frames due; NULL: none */
	struct braid_list control_due;	/* comms whose control frames are due */
	uint64_t rx_window, unexp_bytes;	/* of unexpected messages: limit; in use */
	uint64_t retire_bytes;		/* window that RETIREs due will free at the peer */
	struct braid_list copying;	/* unexpected messages being copied into a GPU */
	struct braid_list delivering;	/* comms: braid_comm_deliver_later() */
	struct braid_log_gate ended, reported, given_up;	/* core/msg/fail.c */
};

/* --- of core/setup, under the service thread's lock except where stated --------------------- */

struct braid_link_table {		/* core/setup/links.c: all links */
	struct braid_list node;
	struct braid_link *other;	/* the next whose key has the same hash */
	unsigned refs;			/* under the table's own lock */
};

struct braid_link_setup {		/* set by the handshake that made the link */
	uint64_t id;
	uint8_t *session;		/* its key (core/base/secret.h); NULL: not up yet */
	uint16_t version;		/* of the wire, spoken by both ends */
	uint32_t peer_pid;		/* if the peer is on a host of our host's name; else 0 */
	uint32_t next_comm;		/* under the link's lock */
	struct braid_path path[BRAID_PATHS_MAX];
	bool proven;			/* the peer is the process that it says: it knew a token */
	bool distrusted;		/* the peer refused a comm, unproven: open no other */
	bool one_comm;			/* the peer takes one comm of a connect() */
	bool other_paths;		/* the peer dials a slow lane again if asked */
	bool reverses;			/* the peer knows core/setup/reverse.h */
	bool better;			/* both ends can use more than sockets */
	bool warned_plain, warned_loose;	/* this WARN was written: in join.c; in bind.c */
};

struct braid_link_dial {		/* core/setup/dial.c */
	struct braid_handle target;	/* dialler: the handle to dial, but for its token: */
	uint8_t *token;			/* until the link is up or dead (core/base/secret.h) */
	struct braid_conn *conn;	/* the dial in progress */
	uint64_t at_ns, until_ns, refused_until_ns;
	uint16_t base;			/* of its lanes' ports: core/base/ports.h */
	uint64_t crossed_ns;		/* first refusal of the peer's dial: core/setup/cross.c */
	bool alone;			/* no link that the peer dials takes its place */
	bool unanswered;		/* our dial had no answer when the peer's dial came */
	int err;			/* how the last dial ended */
	uint8_t stage;			/* how far that dial got: core/setup/why.h */
};

struct braid_link_tries {		/* core/setup/tries.c: rounds over the ways to the peer */
	unsigned round;
	uint64_t final_ns;		/* when the first way failed for good; 0: none has */
};

struct braid_link_tick {		/* core/setup/watched.c; core/setup/due.c: */
	uint64_t used_ns;		/* when its queues last took memory; 0: trimmed since */
	struct braid_list node;		/* of the busy links, or of a slot */
	bool rests;
	unsigned long seen;		/* data calls, at the last tick */
	bool settled;			/* watched, and a tick has passed without a call */
	struct braid_list streams;	/* of those whose peers send all the time; next NULL: not */
	uint64_t tidied_ns;		/* when it last sent control frames that are not urgent */
};

struct braid_link_reap {		/* core/setup/reap.c */
	uint64_t idle_since_ns;
	bool closing;			/* lanes are closed; NICs run until these stops are over: */
	struct braid_stops stops;
};

struct braid_link_recover {		/* core/setup/silence.c: does the peer live? */
	uint64_t bytes;			/* ever received */
	_Atomic uint64_t received_ns;	/* when that count last grew */
	uint32_t sent;			/* frames ever queued at our home lane */
	uint64_t sent_ns;		/* when that count last grew */
	uint64_t alive_ns;		/* when ALIVE was last sent */
	uint64_t slow_look_ns;		/* core/setup/slow.c */
	unsigned rest_s;		/* of the last ALIVE that we sent */
	uint64_t asked_ns;		/* when we last began to want a sign each second */
	uint64_t ticked_ns, health_ns, down_ns, probe_ns, stall_ns;
	uint32_t checked;		/* frames ever queued at home when health was checked */
	bool calm;			/* all was acknowledged then */
	uint64_t warned_ns;		/* when the silence was last reported */
	unsigned silent_s;		/* until it is reported again */
	uint64_t moved_ns;		/* when an address changed; 0: its lanes are back since */
	uint64_t announce_ns;		/* until then tell the peer our new address; 0: no need */
	unsigned probe_wait_ms;
	uint64_t refused_ns;		/* of a refusal that anybody may have made; 0: none */
	uint64_t reached_ns;		/* when the peer reached us after a refusal; 0: never */
	uint64_t call_ns;		/* when the peer may next be asked to connect */
	bool reversed;			/* its last lane took a connection that the peer made */
	int dial_err;			/* of the last dial; 0: it came through */
	bool refused, warned_mtu;
	bool slept;			/* this process: the peer is to learn why */
	bool unanswered, hung_up;	/* how the last dial ended once TCP had connected */
	bool moved;			/* our address has changed since the peer was heard */
	atomic_bool silent, late;
	atomic_uint stalls;		/* times that a message was late */
};

struct braid_link_share {		/* core/setup/share.c: how much CPU the peer gets */
	uint32_t announced;		/* how many of its announcements were noted */
	struct braid_share {
		uint64_t at_ns;		/* noted here; 0: never */
		uint32_t used_ms, queued_ms;
	} last, before, base;		/* before: seconds older; base: the last before a silence */
	unsigned answers;		/* announcements since that silence was over */
	uint64_t silent_ms;		/* of a silence whose cause is not logged yet; 0: none */
	uint64_t heard_ns;
	_Atomic int used_percent, queued_percent;	/* from `before` to `last` */
	atomic_bool known;		/* these two are */
};

struct braid_link_lane_count {		/* core/setup/lane_count.c: would another lane help? */
	int phase;
	uint64_t at_ns, moved_ns, next_try_ns, give_up_ns, wait_ns;
	uint64_t dial_ns, redial_ns;	/* earliest next dial; the wait before it */
	uint32_t dials;			/* of new lanes */
	uint64_t bytes;
	unsigned long starved;
	double few_rate, many_rate;	/* bytes per ns, recently */
	double most, least;		/* best rate with few lanes, worst with many */
	unsigned few, many, round;
	bool trim;			/* the present trial: would fewer lanes do? */
	bool double_next;		/* going to all lanes at once did not help */
	uint64_t trim_ns, trim_wait_ns;
	unsigned before;		/* lanes before the last decision, and when that was */
	uint64_t decided_ns;
};

#endif
