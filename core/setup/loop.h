/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * loop.h - what the service thread does, round after round.
 *
 * One round waits for an event, handles it, and looks at the clock.  Ticks become longer while no
 * active link holds anything that its peer would wait for if the callers stopped calling.
 */
#ifndef BRAID_SETUP_LOOP_H
#define BRAID_SETUP_LOOP_H

/* What ending the thread may take at most, for each of its two waits. */
enum {
	BRAID_LOOP_STOP_MS = 1000,	/* for goodbyes to leave, even on a busy host */
	BRAID_LOOP_LINGER_MS = 3000,	/* for lost lanes with unacknowledged frames to return */
};

/* Returns once nothing is left to look after, with braid_svc.lock held. */
void braid_loop(void);

#endif
