/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm.h - NCCL's one-way connections, and how messages meet receives.
 *
 * The k-th send with tag T meets the k-th receive with tag T.  Each end numbers its sends and
 * receives and derives these pairs by itself.  Both find the same pairs, even if frames cross:
 *
 *   - A small message is sent at once (EAGER).  A window bounds the bytes sent before their receive
 *     is known to be posted.
 *   - A large message, or one that the window has no room for, sends WANT and waits for the CREDIT
 *     of its receive.  Then START names the receive on the home lane; chunks follow on any lane.
 *   - A CREDIT meets the oldest send of its tag that has met no receive yet, or else the next one.
 *   - Where a message sent without a credit meets a receive that has not been credited, no CREDIT
 *     follows.  A RETIRE reports the match, always before any later CREDIT of that comm.
 *
 * EAGER, WANT and START travel on the home lane in the order of their numbers, so the receiver
 * sees every message of a comm in order and matches on arrival.
 *
 * The link's lock guards all of this, but: `done` and `err` are atomic, and test() reads them
 * without it; `flushes` has flush_lock; `ctx`, `ctx_node` and `mrs` are the plugin's.
 */
#ifndef BRAID_MSG_COMM_H
#define BRAID_MSG_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dev.h"
#include "core/link/upcalls.h"
#include "core/mem/gpucopy.h"
#include "core/mem/mr.h"
#include "core/base/list.h"
#include "core/base/slab.h"
#include "core/transport.h"
#include "core/proto/frame.h"

struct braid_link;
struct braid_lane;
struct braid_comm_kind;
struct braid_listen;

enum {
	BRAID_FLOOR = 16384,			/* window reserved for each comm */
	BRAID_UNEXP_COST = 64,			/* window that a message uses beyond its bytes */
};

struct braid_req {			/* a request, as NCCL holds it */
	struct braid_comm *comm;
	atomic_bool done;
	bool flush;			/* core/msg/flush.c; else a send or a receive */
	uint8_t n;			/* receive entries, in consecutive slots */
	void *user[BRAID_RECVS_MAX];	/* the caller's pointer per entry (profiler events) */
};

enum braid_await { BRAID_MET, BRAID_AWAIT_EAGER, BRAID_AWAIT_WANT };

struct braid_send {
	struct braid_req req;
	struct braid_xfer x;		/* all that its frames need */
	atomic_bool busy;		/* until test() has returned done */
	enum braid_await await;		/* has it met its receive, as far as this end knows? */
	const char *data;
	uint64_t size, cut;		/* bytes; of these: given to lanes as chunks */
	uint32_t chunk;			/* bytes of each chunk but the last */
	uint64_t at_ns;			/* when posted, to within some ms: core/base/clock.h */
	uint32_t rseq;
	int32_t tag;
	uint16_t chunks;
	bool start_due;
};

struct braid_recv {			/* one receive entry; the first of a request holds it */
	struct braid_req req;
	atomic_bool busy;		/* until test() of its request has returned done */
	bool posted;			/* waiting for bytes: data may be written */
	bool matched;			/* to a message whose bytes may still be missing */
	bool wanted;			/* matched to message mseq, which sent WANT */
	bool started;			/* START has come */
	bool credited, credit_due;
	bool placed;			/* its credit named its address and keys */
	bool unsized;			/* chunks have begun to arrive, without its size */
	uint32_t mseq;
	char *data;
	uint64_t room, size;
	uint64_t at_ns;			/* when posted, as in a send */
	uint64_t begun, got;		/* bytes of chunks begun; of chunks complete */
	uint32_t rseq;
	int32_t tag;
	uint32_t pending;		/* first entry only: incomplete entries of the request */
	struct braid_recv *head;
	struct braid_mr *mr;
	uint64_t chunks[BRAID_CHUNKS_MAX / 64];	/* by number: those that have begun to arrive */
};

struct braid_unexp {			/* an unexpected message: no receive has met it yet */
	struct braid_list node;
	struct braid_comm *comm;
	uint32_t seq;
	int32_t tag;
	uint64_t size;
	bool want;			/* only a WANT has come */
	bool ready;			/* all bytes are here */
	bool taken;			/* met by `recv`: copied there once all bytes are here */
	struct braid_recv *recv;
	char *data;
	size_t alloc;
	struct braid_gpucopy copy;	/* into a GPU, once taken and ready */
	struct braid_list copy_node;	/* link->msg.copying */
};

struct braid_credit {
	struct braid_list node;
	uint32_t rseq;
	int32_t tag;
	uint64_t room;
	struct braid_place to;
};

enum braid_why {			/* why the peer ended a comm */
	BRAID_WHY_OTHER,		/* the code that failed the comm wrote a WARN */
	BRAID_WHY_CLOSED,		/* the peer closed the comm while requests waited here */
	BRAID_WHY_GAVE_UP,
};

struct braid_comm {
	struct braid_list node;		/* link->msg.comms */
	struct braid_comm *hash_next;
	struct braid_link *link;
	uint32_t id;
	bool sender;
	bool opened;			/* sender: the peer has accepted it */
	bool closed;			/* by this end */
	bool peer_closed;
	bool reported;			/* its error has been returned to NCCL */
	atomic_int err;
	enum braid_why why;		/* why err was set */
	void *ctx;			/* the context that owns it, for cleaning up */
	void *user;			/* the plugin's */
	struct braid_list ctx_node;	/* the context's objects */
	struct braid_list mrs;		/* the plugin's, freed with the comm */
	struct braid_list flushes;	/* core/msg/flush.c, under flush_lock */
	struct braid_lock flush_lock;
	struct braid_traffic done;	/* while open; close() adds it to the device's counts */
	int32_t last_tag;		/* of the last message, sent or begun to arrive */

	/*
	 * Requests by number, modulo BRAID_SLOTS: those from first to next have an entry, all
	 * others NULL.  Entries return to the slab in the order of their numbers.
	 */
	union {
		struct braid_send *send[BRAID_SLOTS];
		struct braid_recv *recv[BRAID_SLOTS];
	};
	struct braid_slab slab;
	uint32_t first;
	unsigned in_vain;		/* requests posted after the comm had failed */

	/* sender */
	uint32_t next_seq, oldest_await;
	struct braid_list credits;
	struct braid_slab credit_slab;
	uint64_t credited[BRAID_SLOTS / 64];	/* receives whose credit is unused, by number */
	uint64_t eager_out;		/* window used by messages that have met no receive */
	uint64_t flush_epoch;		/* the isends of the link at the last idle test() */
	unsigned burst;			/* 1 + idle tests since an isend was held back */

	/* receiver */
	uint32_t next_rseq, oldest_rseq;	/* entries in [oldest, next) may be unmatched */
	uint32_t rx_seq;		/* next message number */
	struct braid_list unexps;		/* in order of arrival */
	unsigned nunexps;			/* how many unexps */
	uint64_t unexp_bytes;
	bool large;			/* messages are large: send CREDITs before WANTs come */
	bool plain;			/* some posted receives may have no credit */
	uint64_t retired[BRAID_SLOTS / 64];	/* messages that a RETIRE is due for, by number */
	uint32_t retire_first, retire_n;	/* lower bound of these numbers; how many */
	uint64_t retire_bytes;
	uint32_t credit_scan, ndue;	/* no credit before it is due; how many are due */
	struct braid_list control_node;	/* link->msg.control_due: a control frame is due */
	bool fail_due, bye_due, opened_due;
	uint16_t fail_code;		/* the errno to send */
	uint64_t fail_size, fail_room;
	struct braid_list listen_node;	/* listen->ready */
	struct braid_listen *listen;
	const struct braid_comm_kind *kind;	/* core/msg/kind.h; NULL: NCCL's messages */
	void *channel;			/* of that kind */
	struct braid_list deliver_node;	/* link->msg.delivering */
	uint64_t listen_id;
	uint32_t stall_seq;		/* core/setup/stall.c: which message waits, since when */
	uint64_t stall_ns;
	uint8_t opened_mac[BRAID_MAC_SIZE];	/* in OPENED: proves knowledge of the token */
};

/* Both with the link's lock held.  The id must not be in use. */
struct braid_comm *braid_comm_new(struct braid_link *link, uint32_t id, bool sender);
void braid_comm_free(struct braid_comm *c);

/* A control frame of `c` is due.  With the link's lock held. */
void braid_comm_control_due(struct braid_comm *c);

/* The number of the next request; those from c->first to it have entries. */
static inline uint32_t braid_comm_next(const struct braid_comm *c)
{
	return c->sender ? c->next_seq : c->next_rseq;
}

/*
 * Fail a comm, with the link's lock held; only the first failure counts.  The caller logs it, but
 * see fail.c.  err is a negative errno: -EREMOTEIO the peer or the path, -EMSGSIZE sizes that do
 * not fit; others: local.
 */
void braid_comm_fail(struct braid_comm *c, int err);

/*
 * Data calls.  0 with *ret NULL: not now, call again.  Sizes may be 0.  mr may be NULL.
 * The buffers belong to Braid until test() returns done.
 */
int braid_comm_isend(struct braid_comm *c, const void *data, uint64_t size, int32_t tag,
		     struct braid_mr *mr, struct braid_req **ret);
int braid_comm_irecv(struct braid_comm *c, unsigned n, void *const *data, const size_t *sizes,
		     const int *tags, struct braid_mr *const *mrs, struct braid_req **ret);
/* 1: done, call braid_comm_finish() next; 0: not yet; or the comm's error. */
int braid_comm_test(struct braid_req *req);
/* Frees the request.  sizes[], if not NULL, gets one entry per buffer, at most INT_MAX each. */
void braid_comm_finish(struct braid_req *req, int *sizes);

/*
 * Stop using the memory of requests that use `mr` (NULL: that have no registration), and fail the
 * comm if it has such requests.  On return Braid's code no longer touches that memory; for NICs see
 * braid_link_revoke().
 */
void braid_comm_cancel(struct braid_comm *c, const struct braid_mr *mr);
void braid_comm_close(struct braid_comm *c);

struct braid_waiting {			/* the oldest message that waits for the peer */
	bool any;
	const char *what, *why;		/* in words, if it is neither a send nor a receive */
	uint32_t seq;			/* of the message or the receive */
	int32_t tag;
	uint64_t size;
};
/* False: no message waits.  With the link's lock held. */
bool braid_comm_waits(struct braid_comm *c, struct braid_waiting *ret);

#endif
