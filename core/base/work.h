/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * work.h - calls that may sit in the kernel for minutes, each on a thread of its own.
 *
 * No other thread waits for such a thread.  Its starter checks now and then whether it is done, and
 * may leave it at any time.  Then it ends by itself, or never: a WARN says so, since the process's
 * exit may have to wait for it.
 */
#ifndef BRAID_BASE_WORK_H
#define BRAID_BASE_WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct braid_work {			/* zeroed by its starter, except for `slow` */
	bool slow;			/* it may take seconds, but returns: no WARN about that */
	const char *what;			/* the call, for logs: "connect()" */
	void (*run)(struct braid_work *w);	/* on the thread */
	void (*free)(struct braid_work *w);	/* called by the later of thread and starter */
	_Atomic uint64_t begun_ns;	/* when its present call began */
	atomic_bool done;
	atomic_uint holders;
};

/* Start a thread that calls run().  A negative errno: no thread was started. */
int braid_work_start(struct braid_work *w, const char *what, void (*run)(struct braid_work *w),
		     void (*release)(struct braid_work *w));
/* On the thread: the call has returned, and the thread makes another one. */
void braid_work_next(struct braid_work *w);
static inline bool braid_work_done(const struct braid_work *w)
{
	return atomic_load(&w->done);
}
/* The starter abandons `w` and does not use it any more.  A WARN if the call has taken long. */
void braid_work_leave(struct braid_work *w);

/* The last context ends: wait a moment for abandoned threads; a WARN if some remain. */
void braid_work_end(void);

#endif
