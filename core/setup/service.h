/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * service.h - the service thread: when it is needed, its start and its end.
 *
 * It accepts, dials, runs handshakes, watches links that have no callers, and closes dead links
 * (core/setup/loop.h).  It sleeps when nothing is due, never waits for a peer, and ends when the
 * last listen and link are gone.  Set-up calls from NCCL change tables, move the handshakes that
 * they wait for (core/setup/handshake.h), and leave the rest to the thread.
 */
#ifndef BRAID_SETUP_SERVICE_H
#define BRAID_SETUP_SERVICE_H

#include <stdbool.h>

#define BRAID_SERVICE_THREAD "braid-service"	/* its name, which other processes look for */

/* Calls into a higher floor; each may be NULL.  Set once, by braid_service_init(). */
struct braid_service_hooks {
	void (*started)(void);		/* the thread starts; braid_svc.lock held, may not wait */
	void (*ending)(void);		/* the thread ends; braid_svc.lock held, may wait briefly */
	void (*stalled)(void);		/* a message has waited for too long for a live peer */
};
extern struct braid_service_hooks braid_service_hooks;

/* Contexts hold the service: the last one to go stops it. */
void braid_service_get(void);
void braid_service_put(void);
/* End the thread now: it closes every link and listener.  Wait some seconds for that. */
void braid_service_stop(void);

/* --- with braid_svc.lock held -------------------------------------------------------------- */

/* Set, once, the function that the thread runs.  It returns with braid_svc.lock held. */
void braid_service_runs(void (*loop)(void));
/* Start the thread unless it runs: 0, or a negative errno that has been logged. */
int braid_service_start(void);
/* The same without a line in the log. */
int braid_service_try(void);
int braid_service_failed(int err);	/* write that line, and return err */
bool braid_service_stopping(void);
void braid_service_woken(void);		/* forget earlier calls of braid_wake_service() */

#endif
