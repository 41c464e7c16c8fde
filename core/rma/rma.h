/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.h - one-sided traffic: puts, signals and gets between the ranks of a communicator.
 *
 * Each rank registers *windows*: memory that the others may write and read.  The k-th window of one
 * rank belongs to the k-th of every other, so its number names it everywhere.  A rank that puts
 * opens a comm to its target, a *channel*.  Frames of a channel have these meanings:
 *
 *   EAGER	operations (core/proto/rma.h): in order, on the home lane
 *   CHUNK	bytes of a large put, or back to the rank that put, of a get: on any lane
 *   CREDIT	the target has registered window rseq, of `size` bytes; RETIRE: it has closed it
 *
 * An operation on a window that the target has not registered yet waits where it was posted.  So
 * nothing unexpected ever arrives.
 *
 * Order.  Operations of one context are counted in epochs, which ORDERED signals end.  A chunk
 * names its epoch, and its operation (BULK) the bytes to come.  The target applies an ORDERED
 * signal once all epochs before have ended and the bytes of its own are here.  Whatever lanes carry
 * them, and however often these are lost, each frame arrives once, so each signal is added once.
 *
 * The link's lock guards a channel.  Windows are found without a lock: one that is closed is freed
 * only once all links of its ranks have stood still.
 */
#ifndef BRAID_RMA_RMA_H
#define BRAID_RMA_RMA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/list.h"
#include "core/base/os.h"
#include "core/link/xfer.h"
#include "core/mem/gpucopy.h"
#include "core/mem/mr.h"
#include "core/proto/rma.h"

struct braid_bar;
struct braid_comm;
struct braid_hdr;
struct braid_lane;
struct braid_link;
struct braid_rma_order;
struct braid_rma_slot;

enum {
	BRAID_RMA_BUCKETS = 64,
	/* Larger puts go in chunks. */
	BRAID_RMA_INLINE_MAX = BRAID_COPY_MAX - BRAID_RMA_HDR_SIZE,
	BRAID_RMA_NO_RANK = -1,
};

struct braid_rma_window {
	_Atomic(struct braid_rma_window *) next;	/* in its bucket */
	uint32_t number;
	char *data;
	uint64_t size;
	struct braid_mr *mr;
	_Atomic int64_t due;		/* bytes of chunks announced for it and not here */
	bool signals;			/* it may hold words of signals */
	bool never_reset;		/* its words begin at 0, and only signals change them */
	uint64_t *shadow;		/* of a GPU's: what its words are, once a signal came */
	struct braid_bar *bar;		/* by which the CPU reaches a GPU's words; or NULL */
};

/* Are these bytes all in a window that has `room` bytes? */
static inline bool braid_rma_is_in(uint64_t room, uint64_t at, uint64_t size)
{
	return at <= room && size <= room - at;
}

struct braid_rma {			/* one rank's part of a communicator */
	struct braid_dev *dev;
	unsigned nranks, rank;		/* 0 and 0 until connect() */
	struct braid_lock lock;		/* after a link's lock; guards what follows */
	struct braid_list channels;
	struct braid_list lost;		/* operations of channels that were closed */
	uint32_t *closed;		/* the windows closed so far, by number */
	unsigned nclosed, closed_room;
	atomic_uint nwindows;		/* registered so far */
	_Atomic(struct braid_rma_window *) bucket[BRAID_RMA_BUCKETS];
	atomic_int err;			/* of the first channel that failed */
	_Atomic(struct braid_comm *) failed;	/* its comm */
	atomic_uint nwords;		/* signals to words in GPU memory; under the lock: */
	struct braid_list words;	/* the oldest first */
	struct braid_gpucopy word_copy;
	uint64_t word;			/* what is read or written */
	bool word_writes;
	const struct braid_rma_window *stored;	/* the CPU's last word may not be there yet */
	atomic_uint copies;		/* of GPU memory, in progress */
};

struct braid_rma_remote {		/* a window of the target */
	uint32_t number;
	uint64_t size;
	struct braid_place to;		/* where the NIC may write; no keys: nowhere */
};

struct braid_rma_op {			/* an operation that was posted, as NCCL holds it */
	struct braid_rma_channel *ch;	/* NULL: not there yet */
	struct braid_list node;		/* ch->ops, until it is taken back; then ch->spare */
	struct braid_xfer x;		/* its node: in the queue, a link's pending, or gets */
	atomic_bool done;
	atomic_bool over;		/* test() has returned done: the channel takes it back */
	atomic_int err;			/* done in vain: it makes no sense */
	bool sent;			/* its frame is queued at home */
	void *owner;			/* of the caller */
	struct braid_rma_hdr h;
	struct braid_mr *mr;		/* of the local memory; NULL: a signal alone */
	char *data;			/* there */
	uint64_t cut;			/* bytes given to lanes as chunks; of a get: received */
	uint64_t begun;			/* of a get: bytes that NICs read, or have read */
	unsigned reading;		/* reads of it in progress */
	bool by_frame;			/* a get that no NIC can read */
	uint32_t number;		/* of its channel's operations */
	uint64_t at_ns;			/* when posted, to within some ms: core/base/clock.h */
	uint32_t epoch;
};

struct braid_rma_channel {
	struct braid_list node;		/* rma->channels; under rma->lock */
	struct braid_comm *comm;
	struct braid_rma *rma;		/* NULL: it is closed */
	atomic_bool adopted;		/* else connect() may yet close it, and try another */
	int rank;			/* of the peer */
	uint32_t next_seq;		/* of its EAGER frames */
	/* of the rank that posts */
	uint32_t posted;		/* operations, ever */
	struct braid_list ops;		/* all that were posted, and are not taken back yet */
	struct braid_list spare;	/* taken back: for the next ones */
	struct braid_list queue;	/* of these: not sent yet, in order */
	struct braid_list gets;		/* of these: sent, and waiting for bytes */
	struct braid_rma_remote *remote;	/* open windows, by number */
	unsigned nremote, remote_room;
	uint32_t remote_next;		/* lower numbers are open, or closed for good */
	uint32_t epoch[BRAID_RMA_CONTEXTS];
	uint32_t ahead;			/* ORDERED signals since no chunk was on its way */
	uint32_t next_get;
	uint64_t slots;			/* of BULK operations not taken back yet: a bit each */
	uint8_t turn[BRAID_RMA_SLOTS];	/* of the next operation of that slot */
	bool takes_slots;		/* the target lets immediate data name chunks by them */
	bool takes_joined;		/* the target takes several operations in a frame */
	bool rank_due;
	atomic_bool waits;		/* a hint: the queue is not empty */
	/* of the target */
	struct braid_rma_slot *slot;	/* BRAID_RMA_SLOTS; NULL: none was named yet */
	struct braid_rma_order *order[BRAID_RMA_CONTEXTS];	/* NULL: not used yet */
	struct braid_list replies;	/* to gets */
	uint32_t announced;		/* windows announced so far ... */
	uint32_t keyed;			/* ... with keys of rkey_epoch: the first of them */
	uint32_t rkey_epoch;
	unsigned closed;		/* of rma->closed, announced */
	int err;			/* of the operation that ended it: none is tried twice */
	int64_t due;			/* bytes of chunks announced and not here */
	unsigned placed;		/* windows announced with keys, and open */
	char *scratch;			/* a frame of operations that arrives in pieces */
	struct braid_list landings;	/* core/rma/land.c */
	/* of both */
	bool spread;			/* chunks may come on any lane */
};

/* --- the communicator ---------------------------------------------------------------------- */

void braid_rma_start(struct braid_rma *rma, struct braid_dev *dev);
void braid_rma_end(struct braid_rma *rma);	/* it has neither channels nor windows */
/* Make `c` a channel: 0 or -ENOMEM.  With its link's lock held.  It is freed with the comm. */
int braid_rma_channel_new(struct braid_rma *rma, struct braid_comm *c);

/*
 * Give a window the next number, and announce it on all channels: 0 or -ENOMEM.  It is the
 * caller's, who keeps `data`, `size` and `mr` valid until braid_rma_window_close() returns.  For a
 * GPU's signals both may wait for GDRCopy's driver.
 */
int braid_rma_window_open(struct braid_rma *rma, struct braid_rma_window *w);
/*
 * Stop using a window, as source and as target: 0; or -ENOMEM, but not without channels.  Then only
 * NICs may still access it: call braid_stops_wait().  A channel that has operations from it fails.
 */
int braid_rma_window_close(struct braid_rma *rma, struct braid_rma_window *w);
/* NULL: it is closed, or not open yet. */
static inline struct braid_rma_window *braid_rma_window(const struct braid_rma *rma,
							uint32_t number)
{
	struct braid_rma_window *w = atomic_load_explicit(&rma->bucket[number % BRAID_RMA_BUCKETS],
							  memory_order_acquire);

	while (w && w->number != number)
		w = atomic_load_explicit(&w->next, memory_order_acquire);
	return w;
}
/* Apply a signal to a window of this rank's: 0, -ERANGE or -ENOMEM. */
int braid_rma_signal(struct braid_rma *rma, uint32_t window, uint64_t offset, uint64_t value);
/* Write words of signals into GPUs; false: some are not written yet.  Takes rma->lock. */
bool braid_rma_words_move(struct braid_rma *rma);

/* --- a channel, with its link's lock held -------------------------------------------------- */

/* connect() has returned the channel: from now on the communicator moves it, and closes it. */
void braid_rma_adopt(struct braid_rma_channel *ch, unsigned rank);

/*
 * A new operation, whose h, mr and data the caller sets; ch NULL: there is no channel yet.  NULL:
 * out of memory.
 */
struct braid_rma_op *braid_rma_op_new(struct braid_rma_channel *ch);
/* Post it.  `more`: others follow, so that it may wait for them to leave together. */
void braid_rma_post(struct braid_rma_channel *ch, struct braid_rma_op *op, bool more);
/* The operation is done, and test() returns that: its channel takes it back.  Needs no lock. */
static inline void braid_rma_finish(struct braid_rma_op *op)
{
	atomic_store_explicit(&op->over, true, memory_order_release);
}

enum braid_rma_state {			/* of an operation */
	BRAID_RMA_WAITS,		/* for a window of the target's, or for room */
	BRAID_RMA_SENDING,		/* its frame or some chunks have not left, or not arrived */
	BRAID_RMA_ASKED,		/* a get: bytes are missing */
	BRAID_RMA_DONE,			/* but test() has not been called since */
};
enum braid_rma_state braid_rma_state(const struct braid_rma_op *op);
const char *braid_rma_name(const struct braid_rma_op *op);	/* "put", "signal", "get" */
/* Signals that wait for bytes on their way here. */
unsigned braid_rma_signals_waiting(const struct braid_rma_channel *ch);
/* Send operations that had to wait, if they can leave now.  Takes the lock, if it is free. */
void braid_rma_retry(struct braid_rma_channel *ch);
/* The error of a channel's comm, after the WARN that may still be due; 0: none.  Takes the lock. */
int braid_rma_error(struct braid_comm *c);

#endif
