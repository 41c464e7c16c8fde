/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * onesided.h - ranks that put, signal and get through the RMA table as NCCL's threads do, in host
 * memory.
 *
 * Each rank is a process that loads the plugin by itself.  The ranks exchange handles and wait for
 * each other through shared memory, as NCCL does by its bootstrap network.
 */
#ifndef BRAID_TESTS_ABI_ONESIDED_H
#define BRAID_TESTS_ABI_ONESIDED_H

#include "tests/abi/abi.h"
#include "tools/rma.h"

enum { RANKS_MAX = 16, GROUPS_MAX = 8, NOTES = 64, FLOW_SLOTS = 4 };

struct rank {
	struct abi *t;
	unsigned rank, n;
	struct rma *rma;
	void *ctx;
	struct group *groups[GROUPS_MAX];	/* that tick() moves */
	unsigned opened;			/* groups, ever: the same at all ranks */
};

struct group {				/* a collComm and its contexts */
	struct rank *r;
	void *listen, *coll, *ctx;
	unsigned rank, n;
	bool may_fail;			/* tick() lets errors be */
};

struct window {				/* memory between pages that nobody may touch */
	uint8_t *data;
	size_t size;
	void *mh;
	uint8_t *map;
	size_t map_len;
};

extern void (*ranks_prepare)(void);	/* called in each rank before it loads the plugin; or NULL */
/* Run `body` as n ranks, with the newest version of the ABI, or (each) with one after the other. */
void ranks_run(struct abi *t, unsigned n, void (*body)(struct rank *r));
void ranks_run_each(struct abi *t, unsigned n, void (*body)(struct rank *r));

/* Wait for all ranks, which do the same; the groups go on meanwhile. */
void together(struct rank *r);
/* Wait for all ranks without a call: a call would report groups that another rank has closed. */
void quietly_together(struct rank *r);
void rank_kill(struct rank *r, unsigned rank);	/* SIGKILL: together() no longer waits for it */
atomic_ullong *note(unsigned i);		/* a number that all ranks share */

/* Each calls the same at all ranks of the world, or (members) is called by all with their group. */
struct group *group_new(struct rank *r, int contexts);
struct group *group_of(struct rank *r, const unsigned *members, unsigned n, int contexts);
/* The parts of it: with `listen` open, and without contexts. */
struct group *group_connect(struct rank *r, const unsigned *members, unsigned n, void *ctx);
void group_contexts(struct group *g, int contexts);
void group_close_listen(struct group *g);
void group_close(struct group *g);		/* and whatever of it is open */
void groups_close(struct rank *r);		/* together, all */

struct window memory_new(size_t size);		/* not registered */
void memory_free(struct window *w);
void window_reg(struct group *g, struct window *w, uint64_t flags);
void window_dereg(struct group *g, struct window *w);
struct window window_new(struct group *g, size_t size);
struct window words_new(struct group *g, unsigned n);	/* of 64 bits, for signals */
void window_free(struct group *g, struct window *w);

struct put {
	int context;
	const struct window *src, *dst;	/* NULL: a signal alone */
	size_t src_off, dst_off, size;
	unsigned rank;
	const struct window *words;	/* NULL: no signal */
	unsigned word;
	uint64_t add;			/* 0: INC */
	bool weak, more;
};
ncclResult_t put_try(struct group *g, const struct put *p, void **req);
void *put_post(struct group *g, const struct put *p);
void put_run(struct group *g, const struct put *p);	/* until done */
#define POST(g, ...) put_post(g, &(struct put){ __VA_ARGS__ })
#define PUT(g, ...) put_run(g, &(struct put){ __VA_ARGS__ })
void *get_post(struct group *g, int context, unsigned rank, const struct window *from, size_t from_off,
	       size_t size, const struct window *to, size_t to_off);
void flush_run(struct group *g, int context, const struct window *w, unsigned rank);

void tick(struct rank *r);		/* rmaProgress and queryLastError of all groups */
bool req_done(struct group *g, void *req);	/* one test() */
void req_wait(struct group *g, void *req);
ncclResult_t req_settle(struct group *g, void *req);	/* done, or its error */

/*
 * Rounds of puts of all sizes to a peer, which does the same back.  A strong signal ends each round,
 * and the peer then looks at every byte of it.  All ranks make the same flows, in the same order; the
 * peer of a rank may be itself.
 */
struct flow {
	struct group *g;
	unsigned peer, rounds, id;
	int context;
	struct window src, dst, words;
	unsigned sent, seen, weak_sent;
	struct { void *req; uint8_t *src; size_t size; } queue[512];	/* a ring; the source, once done */
	unsigned head, tail, posted[FLOW_SLOTS];	/* posted: the tail after a slot's last round */
};
struct flow *flow_new(struct group *g, int context, unsigned peer, unsigned rounds, unsigned id);
bool flow_step(struct flow *f);		/* true: all rounds are done, both ways */
void flow_free(struct flow *f);		/* once the peer's is done, too: every signal came once */
void flows_run(struct flow **f, unsigned n);

uint64_t word(const struct window *words, unsigned i);
void word_wait(struct group *g, const struct window *words, unsigned i, uint64_t least);

#endif
