/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pump.h - NCCL's proxy loop, over any number of comms.
 *
 * A flow is one end of a comm with a goal of so many messages.  What a pattern is lies in three
 * things a flow may have: where message k lies (piece), which other flow it must not run ahead of
 * (after, lead), and what to do with what came (arrived).
 */
#ifndef BRAID_TOOLS_PERF_PUMP_H
#define BRAID_TOOLS_PERF_PUMP_H

#include <stdatomic.h>

#include "tools/perf/pattern.h"

struct piece {
	char *data;
	size_t size;
};

struct flow {
	struct fabric *fab;
	void *comm, *mr;
	int tag, peer, idx;
	bool is_send;
	unsigned depth;			/* most that are posted and not done */
	uint64_t goal, posted, done;
	const struct flow *after;	/* may post while posted < after->done + lead; or NULL */
	uint64_t lead;

	struct piece (*piece)(struct flow *f, uint64_t k);
	void (*sending)(struct flow *f, uint64_t k, struct piece p);	/* or NULL */
	void (*sent)(struct flow *f, uint64_t k);	/* or NULL: it has been posted */
	void (*arrived)(struct flow *f, uint64_t k, struct piece p);	/* or NULL */
	void *arg;

	char *base;			/* streams: slot k % depth, `stride` apart */
	size_t size, stride;
	uint64_t key;			/* checked streams: seed of the data */

	uint64_t bytes, values, wrong;	/* so far */
	void *reqs[PERF_INFLIGHT_MAX];
	struct piece pieces[PERF_INFLIGHT_MAX];
};

struct pump {				/* one thread's */
	struct flow *flows;
	unsigned n;
	int ctl_fd;			/* at its end: the coordinator is gone */
	uint64_t stall_ns;
	atomic_bool *stop;		/* another thread has failed */
	uint64_t idles, moved, seen_moved, seen_ns, looked_ns;
	/* When a receive flow first got to its goal, and what all had received: until then all
	 * were busy. */
	uint64_t full_ns, full_messages;
	char err[PERF_TEXT];
};

/* Of this process: keep the CPU while nothing moves, as perftest does; NCCL's proxy gives it up. */
void pump_spin(bool on);

/* Until all flows are at their goals: 0, or -errno with a sentence in p->err. */
int pump_run(struct pump *p);

#endif
