/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stat.h - who looks at this process from outside: braid stat, dump and top, a metrics file, and a
 * dump when a message has waited for too long.
 *
 * All of it is done by a thread of its own, which holds no lock of Braid's while it waits for
 * anything: it answers while NCCL's threads, or the service thread, hang.  What goes wrong there is
 * told at INFO and has no effect on the job.
 */
#ifndef BRAID_CORE_STAT_H
#define BRAID_CORE_STAT_H

/* With the service thread, under its lock; neither does any I/O in the caller's thread. */
void braid_stat_start(void);
void braid_stat_stop(void);	/* waits for the thread for a moment */

/* A message has waited for too long: keep what there is to see, once in a while. */
void braid_stat_dump(void);

#endif
