/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm.h - NCCL's one-way connections, and how messages meet receives.
 *
 * The k-th send with tag T meets the k-th receive with tag T.  Sends and receives are numbered;
 * both ends work out the same pairs from their own numbers, so frames that cross agree:
 *
 *   - A small message goes at once (EAGER), in a window that bounds what nobody has asked for.
 *   - A large one, or one without window, says WANT and waits for the CREDIT of its receive;
 *     then START names the receive on the home lane and chunks follow on any lane.
 *   - A credit that came first is used by the oldest send of its tag that has met none.
 *   - A receive met by a message without a credit never gets one; RETIRE tells the sender,
 *     always before any later credit of that comm.
 *
 * EAGER, WANT and START travel on the home lane in the order of their numbers, so the receiver
 * sees every message of a comm in order and matches on arrival.
 *
 * All of it is guarded by the link's lock, but the requests' `done`, which test() reads.
 */
#ifndef BRAID_CORE_COMM_H
#define BRAID_CORE_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dev.h"
#include "core/gpucopy.h"
#include "core/list.h"
#include "core/slab.h"
#include "core/transport.h"
#include "core/wire.h"

struct braid_link;
struct braid_lane;
struct braid_listen;

enum {
	BRAID_RECVS_MAX = 8,			/* buffers of one receive request */
	BRAID_SLOTS = 32 * BRAID_RECVS_MAX,	/* sends, or receive entries, of one comm */
	BRAID_COPY_MAX = 8192,			/* messages up to here are copied, done at once */
	BRAID_FLOOR = 16384,			/* window that each comm has to itself */
	BRAID_UM_COST = 64,			/* window taken by a message beside its bytes */
};

struct braid_mr {			/* a registration: who may use it, and what NICs call it */
	struct braid_list node;		/* comm->mrs */
	struct braid_comm *comm;
	char *data;
	size_t size;
	bool gpu;			/* not the CPU's to touch */
	struct braid_key key[BRAID_PATHS_MAX];	/* by member; mr NULL: that one can't reach it */
	struct braid_mrc *cached[BRAID_PATHS_MAX];	/* core/mrcache.c */
	struct braid_stage *stage;	/* of a GPU: the driver copies; NULL: it can't, as */
	const char *stage_why;		/* that call failed */
	int stage_err;			/* with this */
};

struct braid_place {			/* where a receive is, for NICs that write it themselves */
	uint64_t addr;
	uint32_t grant;			/* the receiver's link->grant then */
	unsigned nkeys;			/* 0: bytes are to go through the peer's hands */
	uint32_t key[BRAID_PATHS_MAX];	/* of each of its members */
};

struct braid_req {			/* what NCCL holds */
	struct braid_comm *comm;
	atomic_bool done;
	bool flush;			/* core/flush.c; else a send or a receive */
	uint8_t n;			/* receive entries, in following slots */
	void *user[BRAID_RECVS_MAX];	/* the caller's, per entry (profiler events) */
};

enum braid_await { BRAID_MET, BRAID_AWAIT_EAGER, BRAID_AWAIT_WANT };

struct braid_send {
	struct braid_req req;
	atomic_bool busy;		/* until test() has said done */
	enum braid_await await;		/* has it met its receive, as far as we know? */
	const char *data;
	uint64_t size, cut;		/* of them, given to lanes as chunks */
	uint32_t chunk;			/* bytes of all chunks but the last */
	uint64_t at_ns;			/* posted, to within some ms: core/view.h */
	uint32_t seq, rseq;
	int32_t tag;
	uint32_t parts;			/* frames not done; +1 while something is left to cut */
	uint16_t chunks;
	bool start_due;
	bool same_tag;			/* as the message before it */
	struct braid_mr *mr;
	struct braid_place to;
	struct braid_list node;		/* link->pending */
};

struct braid_recv {			/* one receive entry; the first of a request holds it */
	struct braid_req req;
	atomic_bool busy;		/* until test() of its request has said done */
	bool posted;			/* waiting for bytes: data may be written */
	bool matched;			/* to a message, whose bytes may still be missing */
	bool wanted;			/* to one that said WANT: number mseq */
	bool started;			/* START has come */
	bool credited, credit_due;
	bool placed;			/* the credit said where it is */
	bool unsized;			/* chunks began to arrive that did not say its size */
	uint32_t mseq;
	char *data;
	uint64_t room, size;
	uint64_t at_ns;			/* as in a send */
	uint64_t begun, got;		/* bytes of chunks that began to arrive, that are here */
	uint32_t rseq;
	int32_t tag;
	uint32_t pending;		/* first entry only: entries of the request not complete */
	struct braid_recv *head;
	struct braid_mr *mr;
	uint64_t chunks[BRAID_CHUNKS_MAX / 64];	/* received */
};

struct braid_um {			/* a message that has met no receive yet */
	struct braid_list node;
	struct braid_comm *comm;
	uint32_t seq;
	int32_t tag;
	uint64_t size;
	bool want;			/* only announced */
	bool ready;			/* all bytes are here */
	bool taken;			/* retired; waits for its bytes, then goes to recv */
	struct braid_recv *recv;
	char *data;
	size_t alloc;
	struct braid_gpucopy copy;	/* taken, ready, and on its way into a GPU */
	struct braid_list copy_node;	/* link->copying */
};

struct braid_credit {
	struct braid_list node;
	uint32_t rseq;
	int32_t tag;
	uint64_t room;
	struct braid_place to;
};

enum braid_why {			/* why the peer ended a comm; core/why.h */
	BRAID_WHY_OTHER,		/* whatever failed it wrote its own WARN */
	BRAID_WHY_CLOSED,		/* in order, while something here waited for it */
	BRAID_WHY_GAVE_UP,
};

struct braid_comm {
	struct braid_list node;		/* link->comms */
	struct braid_comm *hash_next;
	struct braid_link *link;
	uint32_t id;
	bool sender;
	bool opened;			/* sender: the peer has it */
	bool closed;			/* here */
	bool peer_closed;
	bool reported;			/* an error has been returned */
	atomic_int err;
	enum braid_why why;		/* err was set */
	void *ctx;			/* owner, for cleaning up */
	void *user;			/* the plugin's */
	struct braid_list ctx_node;	/* the context's objects */
	struct braid_list mrs;		/* the plugin's, freed with the comm */
	struct braid_list flushes;	/* core/flush.c, under flush_lock */
	struct braid_lock flush_lock;
	struct braid_traffic done;	/* until close, when its device has it */
	int32_t last_tag;		/* of the last message, sent or begun to arrive */

	/*
	 * Requests by number, modulo BRAID_SLOTS: those from first to next have an entry, the
	 * others NULL.  Entries go back to the slab in the order of their numbers.
	 */
	union {
		struct braid_send *send[BRAID_SLOTS];
		struct braid_recv *recv[BRAID_SLOTS];
	};
	struct braid_slab slab;
	uint32_t first;
	unsigned in_vain;		/* requests that were posted after it had failed */

	/* sender */
	uint32_t next_seq, oldest_await;
	struct braid_list credits;
	struct braid_slab credit_slab;
	uint64_t credited[BRAID_SLOTS / 64];	/* receives whose credit waits, by number */
	uint64_t eager_out;		/* window cost of messages that have met nothing yet */
	uint64_t flush_epoch;		/* link->isend_epoch at the last fruitless test */
	unsigned burst;			/* 1 + fruitless tests since an isend was held back */

	/* receiver */
	uint32_t next_rseq, oldest_rseq;	/* entries in [oldest, next) may be unmatched */
	uint32_t rx_seq;		/* next message number */
	struct braid_list ums;		/* in order of arrival */
	unsigned nums;			/* of them */
	uint64_t um_bytes;
	bool large;			/* messages wait for credits: give them unasked */
	bool plain;			/* receives may be posted that have no credit */
	uint64_t retired[BRAID_SLOTS / 64];	/* messages to tell, by number */
	uint32_t retire_first, retire_n;	/* the lowest may be; how many */
	uint64_t retire_bytes;
	uint32_t credit_scan, ndue;	/* credits due, none of them before the first */
	struct braid_list news_node;	/* link->news: something below is to be told */
	bool fail_due, bye_due, opened_due;
	uint16_t fail_code;		/* errno for the peer; why it is refused */
	uint64_t fail_size, fail_room;
	struct braid_list listen_node;	/* listen->ready */
	struct braid_listen *listen;
	uint64_t listen_id;
	uint32_t stall_seq;		/* core/heal.c: what has waited, since when */
	uint64_t stall_ns;
	uint8_t opened_mac[BRAID_MAC_SIZE];	/* what OPENED says: who sends it knows the token */
};

/* Both with the link's lock held; the id is fresh. */
struct braid_comm *braid_comm_new(struct braid_link *link, uint32_t id, bool sender);
void braid_comm_free(struct braid_comm *c);

/* The number of the next request; those from c->first to it have entries. */
static inline uint32_t braid_comm_next(const struct braid_comm *c)
{
	return c->sender ? c->next_seq : c->next_rseq;
}

/* One that was just opened by the peer finds no place here: freed once that is told. */

/*
 * The first failure of a comm sticks; whoever finds it logs it, but see core/why.h.  err is a
 * negative errno: -EREMOTEIO the peer or the path, -EMSGSIZE sizes that do not fit; others are
 * local.
 */
void braid_comm_fail(struct braid_comm *c, int err);

/*
 * Data calls.  0 with *ret NULL: not now, ask again.  Sizes may be 0.  mr may be NULL.
 * Until test() says done, the buffers are Braid's.
 */
int braid_comm_isend(struct braid_comm *c, const void *data, uint64_t size, int32_t tag,
		     struct braid_mr *mr, struct braid_req **ret);
int braid_comm_irecv(struct braid_comm *c, unsigned n, void *const *data, const size_t *sizes,
		     const int *tags, struct braid_mr *const *mrs, struct braid_req **ret);
/* 1: it is done, and to be finished; 0: not yet; or the comm's error. */
int braid_comm_ask(struct braid_req *req);
/* sizes[], if not NULL, gets one entry per buffer, at most INT_MAX.  The request is gone then. */
void braid_comm_finish(struct braid_req *req, int *sizes);
/* Both: 0 and *ret_done, or the comm's error. */
int braid_comm_test(struct braid_req *req, bool *ret_done, int *sizes);

/*
 * Stop using the memory of this comm's requests, or of those on one registration, and fail the
 * comm if there were any.  When it returns, nothing reads or writes that memory for us.
 */
void braid_comm_cancel(struct braid_comm *c, const struct braid_mr *mr);
void braid_comm_close(struct braid_comm *c);

struct braid_waiting {			/* the oldest message that waits for the peer */
	bool any;
	uint32_t seq;			/* of the message or the receive */
	int32_t tag;
	uint64_t size;
};
/* Does one?  With the link's lock held. */
bool braid_comm_waits(struct braid_comm *c, struct braid_waiting *ret);

/* For lane.c and link.c, with the link's lock held. */
static inline bool braid_send_is_gpu(const struct braid_send *s)
{
	return s && s->mr && s->mr->gpu;
}
/* Memory of a GPU that its bytes can't be had from, as that copy says; NULL: no memory for them. */
void braid_send_no_gpu(struct braid_send *s, const struct braid_gpucopy *copy);
void braid_send_part_done(struct braid_send *s);
/* START, if it is still to be said; false: no room. */
bool braid_send_say_start(struct braid_send *s);
/* Put what `c` has to tell into frames; false: no room for all. */
bool braid_comm_tell(struct braid_comm *c);
/* Messages that came early, on their way into a GPU: false: some of them still are. */
bool braid_comm_deliver(struct braid_link *link);
void braid_comm_leave(struct braid_link *link);	/* they stay where they are */
/*
 * Where a comm's frame goes, and that it is complete: 0 or a negative errno: the peer is broken;
 * -EAGAIN: it is not yet where it belongs, ask again.
 */
int braid_comm_rx_begin(struct braid_lane *lane, struct braid_comm *c);
int braid_comm_rx_end(struct braid_lane *lane);
/*
 * Where the payload of a chunk that is yet to begin will go; NULL: not certain, ask later.
 * *ret_gpu: the registration, if that is a GPU's: only lanes that take it as it is are told.
 */
char *braid_comm_rx_place(const struct braid_lane *lane, const struct braid_hdr *h,
			  const struct braid_mr **ret_gpu);
/* The same for lane->rx_dst; NULL: that is the CPU's. */
const struct braid_mr *braid_comm_rx_gpu(const struct braid_lane *lane);
/* What the header of message `seq` (its low half) would have said, which came without one. */
void braid_comm_rx_bare(struct braid_comm *c, uint16_t seq, struct braid_hdr *h);
/*
 * That message is here, and the oldest receive waits for it: it has it now, in one go.  False: no,
 * and nothing was done.
 */
bool braid_comm_rx_met(struct braid_comm *c, uint16_t seq, const char *payload, size_t size);
/* A chunk without a header is in its place, in the receive of that slot; whole: so is START. */
int braid_comm_rx_imm(struct braid_lane *lane, struct braid_comm *c, unsigned slot, bool whole);
/* The payload at lane->rx_dst is for a receive: by way of our own memory, if it is a GPU's. */
int braid_comm_rx_stage(struct braid_lane *lane);
/* The chunk that was coming on this lane will come again. */
void braid_comm_rx_undo(struct braid_lane *lane);

#endif
