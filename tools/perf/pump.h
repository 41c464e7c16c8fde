/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pump.h - NCCL's proxy loop, over any number of comms.
 *
 * A flow is one end of a comm with a goal of so many messages.  A pattern differs from another in
 * three members of its flows: where message k lies (piece), which other flow it must not overtake
 * (after, lead), and what to do with received data (arrived).
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
	unsigned depth;			/* the most messages posted and not done */
	uint64_t goal, posted, done;
	const struct flow *after;	/* may post while posted < after->done + lead; or NULL */
	uint64_t lead;

	struct piece (*piece)(struct flow *f, uint64_t k);
	void (*sending)(struct flow *f, uint64_t k, struct piece p);	/* or NULL */
	void (*sent)(struct flow *f, uint64_t k);	/* or NULL; k has been posted */
	void (*arrived)(struct flow *f, uint64_t k, struct piece p);	/* or NULL */
	void *arg;

	char *base;			/* streams: slot k % depth, `stride` apart */
	size_t size, stride;
	uint64_t key;			/* checked streams: seed of the data */

	uint64_t bytes, values, wrong;	/* so far */
	void *reqs[PERF_INFLIGHT_MAX];
	struct piece pieces[PERF_INFLIGHT_MAX];
};

struct pump {				/* the flows of one thread */
	struct flow *flows;
	unsigned n;
	int ctl_fd;			/* end of file: the coordinator is gone */
	uint64_t stall_ns;
	atomic_bool *stop;		/* another thread has failed */
	uint64_t idles, moved, seen_moved, seen_ns, checked_ns;
	/* When the first receive flow reached its goal, and the messages received until then. */
	uint64_t full_ns, full_messages;
	char err[PERF_TEXT];
};

/* For this process: keep the CPU while nothing moves, as perftest does; NCCL's proxy yields it. */
void pump_spin(bool on);

/* Run until all flows are at their goals: 0, or -errno with a sentence in p->err. */
int pump_run(struct pump *p);

#endif
