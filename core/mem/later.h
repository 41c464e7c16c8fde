/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * later.h - commands to a NIC, each of which may take its driver or firmware a minute.
 *
 * A caller hands a command over as a job and does not wait for it.  Each device has four queues.  A
 * thread starts a queue's jobs in order, and exists only while the queue has jobs:
 *
 *	STOP	the NIC lets go of memory: a queue pair goes to its error state
 *	STOP_CHECK	find out, without a command, whether the NIC has let go of memory
 *	MAKE	make what a lane needs: queue pairs, memory of our own; one job at a time
 *	END	what nothing waits for: destroy what is not needed any more, register more memory
 *
 * If a job takes long, the jobs behind it get threads of their own, except in MAKE.
 *
 * So memory is given back and lanes come up even while a NIC is slow to destroy objects.  A NIC
 * that hangs delays its own jobs only.
 */
#ifndef BRAID_MEM_LATER_H
#define BRAID_MEM_LATER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/os.h"
#include "core/proto/common.h"

struct braid_dev;

enum braid_job_kind { BRAID_STOP, BRAID_STOP_CHECK, BRAID_MAKE, BRAID_END, BRAID_JOB_KINDS };

struct braid_job {
	struct braid_job *next;
	uint64_t seq;
	const char *what;		/* for logs: "to stop a queue pair"; NULL: no command */
	void (*run)(struct braid_job *job);	/* may free the job; must not lock a link */
};

enum { BRAID_JOBS_MAX = 16 };		/* jobs of a queue that run at a time */

/* One queue.  Zeroed it is empty. */
struct braid_later {
	struct braid_lock lock;
	struct braid_job *first, *last;	/* jobs that wait */
	struct braid_running {		/* seq 0: none */
		uint64_t seq, since_ns;
		const char *what;
	} at[BRAID_JOBS_MAX];
	unsigned running;
	_Atomic uint64_t begun;		/* jobs that were handed over, ever */
	_Atomic uint64_t done;		/* the first so many of these are over */
	bool warned;			/* the WARN was written; only the service thread uses it */
};

/* Hand a job over.  If no thread can be started, the caller's thread runs it at once. */
void braid_later(struct braid_dev *dev, enum braid_job_kind kind, struct braid_job *job);

/* Does this queue have a job that is not over? */
bool braid_later_busy(const struct braid_dev *dev, enum braid_job_kind kind);
/* Has a command run for so long that the NIC will hardly answer others soon? */
bool braid_later_hangs(struct braid_dev *dev, enum braid_job_kind kind, uint64_t now);
/*
 * For the service thread: warn of a NIC that hangs, and start jobs that wait behind slow
 * ones.  Returns the milliseconds until the next call is due; -1: no job is left.
 */
int braid_later_check(struct braid_dev *dev, uint64_t now);

/* Text that describes a hanging NIC: ", its NIC ...", or "" if the NIC does not hang. */
void braid_later_text(struct braid_dev *dev, char *ret, size_t len);

/*
 * Requests to a NIC to let go of memory, in order.  The jobs of STOP and STOP_CHECK report each
 * of them as over; braid_stop_end() may be called more than once for one.
 */
struct braid_stop {
	struct braid_stop *next;
	uint64_t seq;
	atomic_bool over;
};
struct braid_stopping {			/* zeroed: nothing */
	struct braid_lock lock;
	struct braid_stop *first, *last;
	_Atomic uint64_t begun;		/* requests, ever */
	_Atomic uint64_t done;		/* the first so many of these are over */
};
void braid_stop_begin(struct braid_dev *dev, struct braid_stop *stop);
void braid_stop_end(struct braid_dev *dev, struct braid_stop *stop);

/* The requests to let go of memory that the NICs of a device had got when this was noted. */
struct braid_stops {
	uint64_t of[BRAID_PATHS_MAX];
};
/* Note them: those of all members' NICs, or of one member's. */
void braid_stops_mark(const struct braid_dev *dev, struct braid_stops *ret);
void braid_stops_mark_one(const struct braid_dev *dev, unsigned member, struct braid_stops *ret);
/* Are these requests over?  Until then the NICs may use that memory. */
bool braid_stops_past(const struct braid_dev *dev, const struct braid_stops *s);
/* For NCCL's calls that take memory back; without a lock held: 0, or -ETIMEDOUT and a WARN. */
int braid_stops_wait(const struct braid_dev *dev);

#endif
