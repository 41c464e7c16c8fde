/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * link.h - all that two processes share over one pair of devices.
 *
 * A link owns lanes and carries the comms of both directions.  It is made by whoever connects
 * first (core/dial.c and core/handshake.c), keyed by peer process, both devices and traffic class.
 *
 * Locks, in this order: a lane's io lock, for who reads it; the link's lock, which who sends a lot
 * drops meanwhile (`pushing` keeps others off).  The data path only tries; set-up, close and
 * cancel wait.  One lane is home to each end: it sends eager messages and control frames there.
 * That is lane 0 until it dies.
 *
 * Who moves a link: any data call moves all of it.  Nobody calling for a tick, the service thread
 * watches its descriptors instead and moves it when something arrives.
 */
#ifndef BRAID_CORE_LINK_H
#define BRAID_CORE_LINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/comm.h"
#include "core/dev.h"
#include "core/lane.h"
#include "core/list.h"
#include "core/log.h"
#include "core/os.h"
#include "core/path.h"
#include "core/wire.h"

enum braid_link_state {
	BRAID_LINK_DIALING,		/* our own dial is on its way */
	BRAID_LINK_WAITING,		/* theirs is: we dialled each other, and it won */
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
	unsigned looks;			/* who looks at it: service.c */
	struct braid_link_key key;
	_Atomic int state;
	atomic_int err;			/* once dead */
	bool dialler;
	bool better;			/* both ends have more than sockets */
	bool told_plain, told_loose;
	struct braid_log_gate ended, reported, given_up;	/* core/why.c */
	uint64_t id;
	uint8_t session[BRAID_KEY_SIZE];
	char peer[192];			/* "host (pid N) at address", for people */
	uint32_t peer_pid;		/* of a host that has our name; else 0 */
	struct braid_handle target;	/* dialler: what to dial for, until it is up */
	struct braid_path path[BRAID_PATHS_MAX];
	unsigned npaths;

	struct braid_lock lock;
	struct braid_lane *lane[BRAID_LANES_MAX];
	atomic_uint nlanes;		/* made; never fewer while the link lives */
	atomic_uint ndown;		/* of them, without a socket */
	unsigned norphaned;		/* of those, with chunks that other lanes may take */
	unsigned home;			/* ours; changed while all stand still */
	atomic_uint rx_home;		/* theirs: where the last such frame came from */
	atomic_uint active;		/* of them, used for chunks: core/grow.c's to say */
	_Atomic uint32_t grant;		/* counts when credits were revoked: see docs/dev/wire.md */
	unsigned lanes_max;		/* of both ends */

	struct braid_list comms;
	struct braid_comm **bucket;	/* by id */
	atomic_uint ncomms;
	struct braid_traffic closed[2];	/* of comms that are: received, sent */
	uint32_t next_comm;
	atomic_bool attached, used;		/* has had a comm */

	/* sending */
	struct braid_list pending;	/* sends with chunks to cut */
	uint64_t tx_window, shared_out;
	uint64_t isend_epoch;		/* counts isend calls */
	uint32_t burst;			/* frames that callers post before they wait, of late */
	uint32_t burst_run;		/* isends since one waited */
	uint32_t burst_now;		/* of the burst that is on, but for one that left alone */
	atomic_bool quiet;		/* a caller waited since the last isend: no burst is on */
	unsigned push_turn;		/* of lanes that were full */
	atomic_bool stalled;		/* something is to go that could not go yet */
	/* receiving */
	struct braid_refusals *_Atomic refusals;	/* to be sent (refusal.h); NULL: none */
	struct braid_list news;		/* comms with credits or retirements to tell */
	uint64_t rx_window, um_bytes;
	uint64_t retire_bytes;
	atomic_uint poll_turn, calls;	/* of lanes other than home; moves */
	atomic_uint spread;		/* messages whose chunks may come on other lanes */
	struct {			/* half received when its lane was lost: it comes again */
		enum braid_rx_kind kind;	/* NONE: there is none */
		struct braid_hdr hdr;
		void *target;
		char *dst;
	} again;
	struct braid_list copying;	/* messages that came early, on their way into a GPU */
	atomic_uint copies;		/* copies of memory of GPUs under way, of whatever */
	atomic_bool urgent;		/* somebody waits for what we have to tell */
	atomic_bool urged;		/* or did, since the service thread looked last */
	atomic_bool peer_gone;			/* F_CLOSE received */

	/* for the service thread */
	atomic_ulong touched;		/* calls that moved the link; may lose some, never all */
	unsigned long seen;
	atomic_bool alone;		/* of late nobody called on another one: a hint */
	uint64_t tidied_ns;		/* when the thread last said what could wait */
	atomic_bool watched;		/* its sockets are in the service thread's epoll set */
	bool settled;			/* and have been for a tick without a call */
	atomic_uint want_lanes;		/* to dial */
	atomic_uint ask_lanes;		/* to be dialled by the peer, who is to be told; 0: none */
	atomic_uint peer_lanes;		/* so many the peer has: to dial in any case */
	uint64_t idle_since_ns;
	bool closing;			/* its lanes are closed, but for NICs, till this: */
	struct braid_stops stops;
	atomic_uint pins;		/* calls and dials that still look at it */
	struct braid_conn *conn;	/* the dial on its way */
	uint64_t dial_at_ns, dial_until_ns, refused_until_ns;
	uint64_t crossed_ns;		/* when the peer's dial was first refused: core/cross.c */
	int dial_err;			/* how the last dial ended */
	uint8_t dial_stage;		/* and how far it had come: core/why.h */
	struct {			/* core/tries.c: of its ways */
		unsigned round;
		uint64_t final_ns;	/* when the first said its last word; 0: none has */
	} tries;
	struct {			/* core/heal.c: does the peer live? */
		uint64_t bytes;		/* received ever */
		_Atomic uint64_t heard_ns;	/* when that last grew */
		uint32_t said;		/* frames queued at home */
		uint64_t said_ns;	/* when that last grew */
		uint64_t looked_ns, health_ns, down_ns, probe_ns, stall_ns;
		unsigned probe_wait_ms;
		bool refused, unanswered, told_mtu;
		atomic_bool silent, late;
		atomic_uint stalls;	/* times that a message was late */
	} heal;
	_Atomic uint64_t acked_bytes;	/* chunks acknowledged, ever; under the lock */
	atomic_ulong starved;		/* times that every lane was full with work left */
	struct {			/* core/grow.c: is another lane worth it? */
		int phase;
		uint64_t at_ns, moved_ns, next_try_ns, give_up_ns, wait_ns;
		uint64_t dial_ns, redial_ns;	/* not before; the last wait for it */
		uint16_t dials;			/* of new lanes */
		uint64_t bytes;
		unsigned long starved;
		double few_rate, many_rate;	/* bytes per ns, of late */
		double most, least;	/* best with few lanes, worst with many */
		unsigned few, many, round;
		bool trim;		/* the question is whether few would do */
		bool double_next;	/* all lanes at once brought nothing */
		uint64_t trim_ns, trim_wait_ns;
	} grow;
};

enum { BRAID_LOOK_AT_FD = 256 };	/* braid_lane_look_due() */

struct braid_conn;

struct braid_link *braid_link_new(const struct braid_link_key *key);
void braid_link_free(struct braid_link *link);

/* Take rings and buffers for traffic; 0 or -ENOMEM.  Idle links give them back. */
int braid_link_attach(struct braid_link *link);
void braid_link_detach(struct braid_link *link);

struct braid_carrier {		/* what a handshake ends in: it carries a lane's frames */
	const struct braid_transport *tr;
	int fd;
	void *wire;
	uint16_t epoch;
	uint8_t member, peer_member;
	uint32_t grant, peer_grant;	/* when it was set up */
};

/*
 * It becomes lane `index`: 0, or a negative errno and fd and wire are still the caller's.
 * -EALREADY, here and below: memory was taken back meanwhile, another one may do.
 */
int braid_link_add_lane(struct braid_link *link, unsigned index, const struct braid_carrier *c);

/*
 * A lane's socket, in the life of the link:
 *
 *	up --- lost: an error was met ---> down --- fenced: closed here ---> resumed on a new one
 *
 * Losing it is a mark and waits for nothing.  Fencing and resuming are the service thread's.
 */
void braid_lane_lost(struct braid_lane *lane, int err);	/* with the link's lock held */
/*
 * Close it.  What was half received is forgotten, and how many frames were received is final.  0,
 * or -EAGAIN: its NIC has not stopped yet, ask again.
 */
int braid_lane_fence(struct braid_lane *lane);
/* If home is closed at both ends: another lane is home from now on, and has all that home had. */
void braid_link_rehome(struct braid_link *link);
/*
 * It goes on over another carrier: the peer has `frames` of ours, and has kept its own from
 * `first` on.  0, or a negative errno: fd and wire are still ours, the link is to be failed.
 */
int braid_lane_resume(struct braid_lane *lane, const struct braid_carrier *c, uint32_t frames,
		      uint32_t first);
/*
 * While all stand still: lanes whose NIC may touch memory that somebody takes back lose their
 * carriers.  `uses` says which (NULL: all, and what was granted until now is void).  Their NICs are
 * asked to stop: braid_stops_wait() before that memory is given back.
 */
void braid_link_revoke(struct braid_link *link, bool (*uses)(const struct braid_lane *lane,
							     const struct braid_comm *c),
		       const struct braid_comm *c);

/*
 * While all stand still, of a link that is dead: nothing goes into a GPU or out of it any more, but
 * for messages that are here and whose comms have not failed.
 */
void braid_link_end_copies(struct braid_link *link);

/* The link is over: every comm on it fails with err.  One WARN, if anybody is affected. */
void braid_link_fail(struct braid_link *link, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Same, with the link's lock held by the caller; lanes are closed by the service thread later. */
void braid_link_down(struct braid_link *link, int err, const char *why);

/*
 * Move everything that can move, for callers from outside; the service thread leaves the link to
 * them for a while.  `idle`: the comm whose request is not done yet; `done` is raised when it is.
 * Both may be NULL.
 */
void braid_link_progress(struct braid_link *link, struct braid_comm *idle,
			 const atomic_bool *done);
/* The same for the service thread: >0 if anything moved. */
int braid_link_move(struct braid_link *link);

/*
 * Every lane stands still and the link is ours, both locks held, until braid_link_go().  Waits for
 * other threads' calls on it to end.  Returns the number of lanes, which go() wants back.
 */
unsigned braid_link_stop(struct braid_link *link);
void braid_link_go(struct braid_link *link, unsigned n);

/*
 * The last message that was posted here is done, and perhaps no call comes here for a while: the
 * peer is told with what is posted next, or at the first fruitless call on another link.  For who
 * has a comm on the link.
 */
void braid_link_owes(struct braid_link *link);

/*
 * Tell and send what waits without being urgent: for who comes by once in a while.  False: somebody
 * has the lock, and need not do it.
 */
bool braid_link_tidy(struct braid_link *link);
/* The same, waiting for the lock: what home has room for is with its transport on return. */
void braid_link_tell_now(struct braid_link *link);
/*
 * Send what is queued, and tell what is urgent, or all.  True: there is, or was since the last
 * time, what somebody waits for, so that one who is about to fall silent had better not leave it
 * behind.
 */
bool braid_link_hurry(struct braid_link *link, bool all);

/* With the link's lock held: */
struct braid_comm *braid_link_comm(struct braid_link *link, uint32_t id);
bool braid_link_ctl(struct braid_link *link, struct braid_hdr *h, const void *payload);
void braid_link_pending(struct braid_link *link, struct braid_list *node);	/* a send to cut */
void braid_link_feed(struct braid_link *link);	/* cut chunks, and push the lanes that got some */
void braid_link_flush(struct braid_link *link);	/* push home, unless somebody else moves it */
bool braid_link_tell(struct braid_link *link);
void braid_link_news(struct braid_link *link, struct braid_comm *c);
void braid_link_unpark(struct braid_link *link);

/* A data call was made: the service thread leaves the link to its caller for a tick. */
static inline void braid_link_touch(struct braid_link *link)
{
	unsigned long touched = atomic_load_explicit(&link->touched, memory_order_relaxed);

	atomic_store_explicit(&link->touched, touched + 1, memory_order_relaxed);
	if (atomic_load_explicit(&link->watched, memory_order_relaxed))
		braid_link_unpark(link);
}

/* The peer can't go on without what we have to tell. */
static inline void braid_link_urge(struct braid_link *link)
{
	braid_hint(&link->urgent, true);
	braid_hint(&link->urged, true);
}

/* Of so many polls in vain one looks for the peer's last words, and each that the service makes. */
static inline bool braid_lane_look_due(const struct braid_lane *lane, unsigned *in_vain)
{
	return ++*in_vain % BRAID_LOOK_AT_FD == 0 || atomic_load(&lane->link->watched);
}

static inline struct braid_lane *braid_link_home(const struct braid_link *link)
{
	return link->lane[link->home];
}

/* All that home has to send is STARTs of messages whose chunks find no lane now: go with those. */
static inline bool braid_link_only_starts(const struct braid_link *link)
{
	const struct braid_txq *q = &braid_link_home(link)->tx;

	return q->unsent == q->starts && !braid_list_empty(&link->pending);
}

/*
 * Upward calls of a transport, with the link's lock held.  begin: the header is in
 * lane->rx_hdr; on 0, lane->rx_dst says where lane->rx_left bytes go (NULL: nowhere).  end: they
 * are there; -EAGAIN: not yet where they belong, ask again, and take nothing else of that lane
 * before.  A negative errno: the peer is broken, close the lane.
 */
int braid_rx_begin(struct braid_lane *lane);
int braid_rx_end(struct braid_lane *lane);
/*
 * What came in one message: whole frames, a piece of one, which the next goes on with, or one frame
 * with a short header.  -EAGAIN: the rest later, call again with the same.
 */
int braid_rx_take(struct braid_lane *lane, const char *p, size_t n);
/* The same for the payload of one frame, which came without its header. */
int braid_rx_bare(struct braid_lane *lane, uint32_t imm, const char *p, size_t n);
/* A chunk of len bytes was written into its place, and this is all that came with it. */
int braid_rx_imm(struct braid_lane *lane, uint32_t imm, uint32_t len);
/*
 * `what` the peer sent is broken if err is -EBADMSG or -EPROTO: poll() is to return it.  The same
 * numbers without this are the kernel's, or a library's, and the lane is lost like any other.
 */
int braid_rx_broken(struct braid_lane *lane, const char *what, int err);

#endif
