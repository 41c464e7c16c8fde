/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ranks.h - ranks that put, get and signal through a plugin's RMA table as NCCL's threads do.
 *
 * Each rank is a process of this host that loads the plugin by itself.  The check's own process
 * does not load it: it starts the ranks, passes on the first failure of one, and ends them when
 * their time is over.  They exchange handles and wait for each other through shared memory, as
 * NCCL does by its bootstrap network.
 */
#ifndef BRAID_TOOLS_VALIDATE_RANKS_H
#define BRAID_TOOLS_VALIDATE_RANKS_H

#include <stdatomic.h>

#include "tools/rma.h"
#include "tools/validate/far.h"

enum { RANKS_MAX = 8, GROUPS_MAX = 8, OPENED_MAX = 128, NOTES = 8 };

struct group {				/* a collComm with a context */
	struct rank *r;
	void *listen, *coll, *ctx;
	unsigned rank, n;
};

struct rank {
	struct validate *v;
	unsigned rank, n;
	int dev;
	unsigned budget;		/* requests that NCCL has under way to one target at most */
	struct rma *rma;
	void *ctx;
	struct group *groups[GROUPS_MAX];	/* that together() moves; NULL: a free place */
	unsigned opened;		/* groups, ever: the same at all ranks */
};

/* -- ranks (ranks.c) ---------------------------------------------------------------------- */

/*
 * Run `body` as n ranks, with the newest version of the table.  The check is skipped where the
 * plugin offers NCCL no one-sided operations.
 */
void ranks_run(struct validate *v, unsigned n, void (*body)(struct rank *r));
void ranks_run_version(struct validate *v, int version, unsigned n,
		       void (*body)(struct rank *r));
/* Is there a table of that version; of any, with 0? */
bool rma_is_offered(const char *path, int version);
void needs_rma(struct validate *v);	/* else the check is skipped */

void at(struct rank *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void rank_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void rank_saw(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Wait for all ranks, which do the same; the groups go on meanwhile. */
void together(struct rank *r);
/* The same without a call: a call may report groups that another rank has closed. */
void quietly_together(struct rank *r);
void rank_kill(struct rank *r, unsigned rank);	/* together() no longer waits for it */
void rank_stop(struct rank *r, unsigned rank, bool stop);	/* all its threads, or go on */
atomic_ullong *note_of_all(unsigned i);		/* a number that all ranks share */
uint8_t *handle_of_all(unsigned i);		/* and room for a handle */

/* Each calls the same at all ranks, or (members) the same at all of a group. */
struct group *group_new(struct rank *r, int contexts);
struct group *group_of(struct rank *r, const unsigned *members, unsigned n, int contexts);
/* The parts of it: connected, with `listen` open and without a context. */
struct group *group_connect(struct rank *r, const unsigned *members, unsigned n, void *ctx);
void group_contexts(struct group *g, int contexts);
void group_close_listen(struct group *g);
void group_close(struct group *g);		/* and what of it is open */
void groups_close(struct rank *r);		/* together, all */
void tick(struct group *g);			/* rmaProgress and queryLastError */

/* -- windows and operations (ranks_op.c) -------------------------------------------------- */

struct window {				/* its data begins a page; no page around can be touched */
	uint8_t *data;
	size_t size;
	void *mh;
	size_t body;			/* size in whole pages; the rest must stay as it was */
};

struct window memory_new(size_t size);		/* not registered, and blank */
void memory_free(struct window *w);		/* its rest must be whole */
void window_reg(struct group *g, struct window *w, uint64_t flags);
void window_dereg(struct group *g, struct window *w);
/* Registered at all ranks; so all of the world call it. */
struct window window_new(struct group *g, size_t size);
struct window words_new(struct group *g, unsigned n);	/* of 64 bits, 0, for signals */
void window_free(struct group *g, struct window *w);

struct put {
	int context;
	const struct window *src, *dst;	/* NULL: a signal alone */
	size_t src_off, dst_off, size;
	unsigned rank;
	const struct window *words;	/* NULL: no signal */
	unsigned word;
	uint64_t add;			/* 0: INC, with a value of 77 */
	bool weak, more;
};
ncclResult_t put_try(struct group *g, const struct put *p, void **req);
void *put_post(struct group *g, const struct put *p);
void put_run(struct group *g, const struct put *p);	/* until done */
#define POST(g, ...) put_post(g, &(struct put){ __VA_ARGS__ })
#define PUT(g, ...) put_run(g, &(struct put){ __VA_ARGS__ })

struct get {
	int context;
	const struct window *from, *to;
	size_t from_off, to_off, size;
	unsigned rank;
};
void *get_post(struct group *g, const struct get *o);	/* skips the check if there is no iget */
#define GET(g, ...) req_wait(g, get_post(g, &(struct get){ __VA_ARGS__ }))
void flush_run(struct group *g, int context, const struct window *w, unsigned rank);

bool req_done(struct group *g, void *req);	/* one test() */
void req_wait(struct group *g, void *req);
ncclResult_t req_settle(struct group *g, void *req);	/* done, or its error */

uint64_t word(const struct window *words, unsigned i);
void word_wait(struct group *g, const struct window *words, unsigned i, uint64_t least);
void word_is(const struct window *words, unsigned i, uint64_t want);
void settle(struct group *g);		/* a while in which signals that come twice would come */

/* Put a piece to all ranks of the group, and look at all pieces that came here. */
void all_to_all(struct group *g, unsigned rounds);

/* -- flows (ranks_flow.c) ----------------------------------------------------------------- */

enum { FLOW_SLOTS = 4, FLOW_PIECES = 6 };

/*
 * Rounds of puts to a peer, which does the same back.  A strong signal ends each, and the peer
 * then looks at every byte of it.  The two flows have one id.  A rank may be its own peer.
 */
struct flow {
	struct group *g;
	unsigned peer, rounds, id;
	int context;
	size_t largest;			/* of a put; 0: 150000 */
	bool weak;			/* some puts have a weak signal of their own */
	struct window src, dst, words;
	unsigned sent, seen, weak_sent;
	struct { void *req; uint8_t *src; size_t size; } queue[256];	/* a ring */
	unsigned head, tail, posted[FLOW_SLOTS];	/* posted: the tail after a slot's round */
};
struct flow *flow_new(struct group *g, const struct flow *like);
#define FLOW(g, ...) flow_new(g, &(struct flow){ __VA_ARGS__ })
bool flow_step(struct flow *f);		/* true: all rounds are done, both ways */
void flow_free(struct flow *f);		/* once the peer's is done, too: every signal came once */
void flows_run(struct flow **f, unsigned n);

#endif
