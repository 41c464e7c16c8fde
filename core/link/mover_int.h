/* SPDX-License-Identifier: BSD-3-Clause */
/* mover_int.h - the threads of one NIC, for mover.c and mover_tune.c. */
#ifndef BRAID_LINK_MOVER_INT_H
#define BRAID_LINK_MOVER_INT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/list.h"
#include "core/base/os.h"

struct braid_dev;
struct braid_lane;

struct braid_mover {
	struct braid_lock lock;		/* inbox, asleep, closed; `what` of lanes in its hands */
	struct braid_list inbox;	/* lanes handed over that it has not seen yet */
	bool asleep, closed;
	atomic_bool stop;
	struct braid_list lanes;	/* used by its thread alone */
	pthread_t thread;
	int ep, efd;			/* it sleeps in an epoll set with this eventfd */
	_Atomic uint64_t taken, sent, received;
};

struct braid_movers_tuning {		/* mover_tune.c */
	int phase;
	uint64_t at_ns, moved_ns, next_try_ns, wait_ns;
	uint64_t moved, offered;	/* bytes since at_ns: all; those that a thread could move */
	unsigned before;		/* threads in use before the present trial */
	double rate;			/* before that trial, in bytes per ns */
};

struct braid_movers {			/* of one NIC */
	struct braid_list node;
	struct braid_dev *dev;
	bool failed, lost;		/* a thread could not be started; one did not end */
	atomic_uint n;			/* threads */
	atomic_uint active, most;	/* lanes are handed to the first so many; limit of n */
	struct braid_movers_tuning tuning;
	struct braid_mover mover[];
};

/* Use so many of the threads from now on, and start those that are missing. */
void braid_movers_use(struct braid_movers *s, unsigned n);
/* Add what the lane has moved since the last call; at the end of a sample, decide. */
void braid_movers_tune(struct braid_movers *s, struct braid_lane *lane, uint64_t now);

#endif
