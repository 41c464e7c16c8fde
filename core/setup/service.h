/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * service.h - the service thread: who needs it, its start and its end.
 *
 * It accepts, dials, runs handshakes, watches links that have no callers, and closes what is over
 * (core/setup/loop.h).  It sleeps when nothing is due, never waits for a peer, and ends when the
 * last listen and link are gone.  Calls from NCCL only change tables.
 */
#ifndef BRAID_SETUP_SERVICE_H
#define BRAID_SETUP_SERVICE_H

#include <stdbool.h>

/* What a higher floor is told of; a member may be NULL.  Set once, by braid_service_init(). */
struct braid_service_hooks {
	void (*started)(void);		/* with braid_svc.lock held; may not wait */
	void (*ending)(void);		/* the same; may wait for a moment */
	void (*stalled)(void);		/* a message has waited for too long for a live peer */
};
extern struct braid_service_hooks braid_service_hooks;

/* Contexts hold the service: the last one to go stops it. */
void braid_service_get(void);
void braid_service_put(void);
/* End it now: close every link and listener, join within the deadline. */
void braid_service_stop(void);

/* --- with braid_svc.lock held -------------------------------------------------------------- */

/* The thread's body, which returns with braid_svc.lock held.  Set once. */
void braid_service_runs(void (*loop)(void));
/* Start the thread unless it runs.  An error has been logged. */
int braid_service_start(void);
/* _try() is the same without a line in the log; _failed() writes that line, and returns err. */
int braid_service_try(void);
int braid_service_failed(int err);
bool braid_service_stopping(void);
void braid_service_woken(void);		/* braid_wake_service() was called: forget it */

#endif
