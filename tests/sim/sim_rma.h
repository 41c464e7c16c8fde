/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim_rma.h - a communicator with one-sided operations: for sim_rma_plan.c, which chooses what its
 * ranks do, and sim_rma.c, which drives and judges them.
 */
#ifndef BRAID_TESTS_SIM_SIM_RMA_H
#define BRAID_TESTS_SIM_SIM_RMA_H

#include "tests/sim/sim.h"

enum {
	RANKS_MAX = 4, WINDOWS_MAX = 4, ORDERS_MAX = 3, OPS_MAX = 32, WORDS_MAX = 8,
	FIELDS = 32,			/* signals of a word */
	GAP_MAX = 32,			/* bytes between two places in a window */
	UNTOUCHED = 0xee, GONE = 0x55, JUDGED = 0xdd, CLOSED = 0xcc,
	ALONE_MS = 1000,		/* a rank stays that long: it may yet learn that a peer ended */
};

struct spot {				/* a place in a window */
	unsigned window;
	uint64_t offset;
};

struct op {
	unsigned from, to, order;
	bool gets, signals, strong, more;
	uint64_t size, salt;
	struct spot src, dst;		/* of a get: at `to`, and at `from` */
	unsigned word, field;		/* of the target's words */
	struct braid_rma_op *req;
	bool posted, done;
	bool vain;			/* the target had closed a window of it */
	bool landed;			/* its bytes have been seen at their target, and painted */
	bool seen;			/* its signal has */
};

enum when {				/* a window is closed: */
	WHEN_OVER,			/* with its communicator */
	WHEN_USED,			/* when no operation needs it any more */
	WHEN_MINE,			/* when no operation of its rank's does: others are in vain */
};

struct window {
	enum when when;
	uint64_t open_at, close_at;	/* not before */
	uint64_t used;
	char *mem;			/* as much as the group's largest with this number */
	struct braid_rma_window *w;	/* NULL: it is not open */
	bool opened, closing, closed;
};

struct word {
	struct spot at;
	unsigned nfields;
	uint64_t base, last;		/* its first value, and that when it was looked at */
};

enum state { WAIT, LISTEN, RUN, LEFT, FAILED, KILLED };

struct rank {
	struct group *g;
	unsigned index, proc, life;
	enum state state;
	uint8_t handle[BRAID_HANDLE_SIZE];
	struct braid_coll *coll;
	bool listening;
	bool closing;			/* no calls but those that close it */
	unsigned inside;		/* drivers that call on it */
	int err;			/* why it has to close */
	uint64_t leave_at;		/* when it closes without a word, or 0 */
	bool told[RANKS_MAX];		/* it has a channel to or from that rank */
	struct window window[WINDOWS_MAX];
	struct word word[WORDS_MAX];
	unsigned nwords;
	unsigned norders, depth, next[ORDERS_MAX], flying[ORDERS_MAX];
	uint8_t order[ORDERS_MAX];
	bool lifo;
	struct op op[OPS_MAX];
	unsigned nops;
};

struct group {
	struct braid_list node;
	unsigned index, nranks, nwindows;
	uint64_t start_ns;
	bool together;			/* ranks close only once all are ready */
	uint64_t size[WINDOWS_MAX];
	uint64_t doomed_at, killed_at;
	unsigned killed;		/* which rank was */
	struct rank rank[RANKS_MAX];
};

extern struct braid_list sim_rma_groups;

static inline char *at(const struct rank *r, struct spot s)
{
	return r->window[s.window].mem + s.offset;
}

#endif
