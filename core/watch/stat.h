/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stat.h - views of this process from outside: braid stat, dump and top, a metrics file, and a dump
 * when a message has waited for too long.
 *
 * A thread of its own does all of it, and holds no lock of Braid's while it waits for anything.  So
 * it answers even while NCCL's threads, or the service thread, hang.  Errors there are logged at
 * INFO and have no effect on the job.
 */
#ifndef BRAID_WATCH_STAT_H
#define BRAID_WATCH_STAT_H

/* Called when the service thread starts and ends, under its lock; no I/O in the caller's thread. */
void braid_stat_start(void);
void braid_stat_stop(void);	/* waits for the thread for a moment */

/* A message has waited for too long: write a dump, but not often. */
void braid_stat_dump(void);

#endif
