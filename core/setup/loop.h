/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * loop.h - what the service thread does, round after round.
 *
 * One round waits for an event, handles it, and does what is due.  Ticks become longer while no
 * active link holds anything that its peer would wait for if the callers stopped calling.
 */
#ifndef BRAID_SETUP_LOOP_H
#define BRAID_SETUP_LOOP_H

/* The longest that each of the two waits at the end of the thread may take. */
enum {
	BRAID_LOOP_STOP_MS = 1000,	/* for CLOSE frames to leave, even on a busy host */
	BRAID_LOOP_LINGER_MS = 3000,	/* for lost lanes with unacknowledged frames to return */
};

/* Returns once nothing is left to look after, with braid_svc.lock held. */
void braid_loop(void);

#endif
