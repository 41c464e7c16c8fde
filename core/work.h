/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * work.h - calls that may sit in the kernel for minutes, each on a thread of its own.
 *
 * Nobody waits for such a thread.  Who started it looks now and then whether it is done, and may
 * leave it at any time; then it ends by itself, or never: that is said, and the process's exit may
 * have to wait for it.
 */
#ifndef BRAID_CORE_WORK_H
#define BRAID_CORE_WORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct braid_work {			/* zeroed by its starter, but for */
	bool slow;			/* it may take seconds, and comes back: no WARN of that */
	const char *what;			/* it does, for people: "connect()" */
	void (*run)(struct braid_work *w);	/* on the thread */
	void (*free)(struct braid_work *w);	/* by the thread or its starter, who is last */
	_Atomic uint64_t begun_ns;	/* its call */
	atomic_bool done;
	atomic_uint holders;
};

/* 0, or a negative errno: there is no thread, nothing has been called. */
int braid_work_start(struct braid_work *w, const char *what, void (*run)(struct braid_work *w),
		     void (*release)(struct braid_work *w));
/* On the thread: it has come back, and makes another call. */
void braid_work_next(struct braid_work *w);
static inline bool braid_work_done(const struct braid_work *w)
{
	return atomic_load(&w->done);
}
/* Its starter does not look at it any more.  A WARN if it has been in its call for long. */
void braid_work_leave(struct braid_work *w);

/* The last context ends: waits a moment for those that are left, and tells of the others. */
void braid_work_end(void);

#endif
