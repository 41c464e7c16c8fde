/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * loop.h - what the service thread does, round after round.
 *
 * One round waits for an event, handles it, and looks at the clock.  Ticks become longer while no
 * active link holds anything that its peer would wait for if the callers stopped calling.
 */
#ifndef BRAID_SETUP_LOOP_H
#define BRAID_SETUP_LOOP_H

/* Returns once nothing is left to look after, with braid_svc.lock held. */
void braid_loop(void);

#endif
