/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * later.h - commands to a NIC, each of which may take its driver or firmware a minute.
 *
 * Whoever needs one hands it over and goes on.  Each device has four queues, whose jobs are begun
 * in order, on a thread that exists while there are any:
 *
 *	STOP	the NIC lets go of memory: a queue pair goes to its error state
 *	SEE	whether it has done so by itself, without a command
 *	MAKE	what a lane needs: queue pairs, memory of our own; one job at a time
 *	END	what is not needed any more is destroyed
 *
 * Where one takes long, those behind it get threads of their own, but for MAKE's.
 *
 * So memory is given back although the NIC is slow to destroy, and lanes come up meanwhile.  A NIC
 * that hangs keeps its own jobs waiting, and nobody else's.
 */
#ifndef BRAID_CORE_LATER_H
#define BRAID_CORE_LATER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/os.h"
#include "core/wire.h"

struct braid_dev;

enum braid_turn { BRAID_STOP, BRAID_SEE, BRAID_MAKE, BRAID_END, BRAID_TURNS };

struct braid_job {
	struct braid_job *next;
	uint64_t seq;
	const char *what;		/* for people: "to stop a queue pair"; NULL: no command */
	void (*run)(struct braid_job *job);	/* may free it; takes no lock of a link's */
};

enum { BRAID_JOBS_MAX = 16 };		/* that run at a time */

/* One queue.  Zeroed it is empty. */
struct braid_later {
	struct braid_lock lock;
	struct braid_job *first, *last;	/* that wait */
	struct braid_running {		/* seq 0: none */
		uint64_t seq, since_ns;
		const char *what;
	} at[BRAID_JOBS_MAX];
	unsigned running;
	_Atomic uint64_t begun;		/* jobs that were handed over, ever */
	_Atomic uint64_t done;		/* and so many of the first of them are over */
	bool told;			/* that one hangs: the service thread's */
};

/* Hand it over.  Where no thread can be had it is run here and now. */
void braid_later(struct braid_dev *dev, enum braid_turn turn, struct braid_job *job);

/* Some job of it has not been done. */
bool braid_later_busy(const struct braid_dev *dev, enum braid_turn turn);
/* One has run for so long that nothing is to be expected of the NIC soon. */
bool braid_later_hangs(struct braid_dev *dev, enum braid_turn turn, uint64_t now);
/*
 * The service thread's: tells of a NIC that hangs, and has other jobs begin beside slow ones.
 * Milliseconds until it is to be called again; -1: no job is left.
 */
int braid_later_look(struct braid_dev *dev, uint64_t now);

/* What is to be said of a NIC that hangs, for people: "" or ", its NIC ...". */
void braid_later_text(struct braid_dev *dev, char *ret, size_t len);

/*
 * What a NIC has been asked to let go of, in order; the jobs that see to it say when it has.  All
 * but `begin` may be called again.
 */
struct braid_stop {
	struct braid_stop *next;
	uint64_t seq;
	atomic_bool over;
};
struct braid_stopping {			/* zeroed: nothing */
	struct braid_lock lock;
	struct braid_stop *first, *last;
	_Atomic uint64_t begun;		/* ever */
	_Atomic uint64_t done;		/* so many of the first of them are over */
};
void braid_stop_begin(struct braid_dev *dev, struct braid_stop *stop);
void braid_stop_end(struct braid_dev *dev, struct braid_stop *stop);

/*
 * What NICs of a device, or of its members, have been asked to stop so far; and have they?  Until
 * then they may read and write the memory that was theirs.
 */
struct braid_stops {
	uint64_t of[BRAID_PATHS_MAX];
};
void braid_stops_mark(const struct braid_dev *dev, struct braid_stops *ret);
bool braid_stops_past(const struct braid_dev *dev, const struct braid_stops *s);
/* For a caller of NCCL's who takes memory back, with no lock: 0, or -ETIMEDOUT and a WARN. */
int braid_stops_wait(const struct braid_dev *dev);

#endif
