/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wakeup.h - wake the service thread, from any floor.
 *
 * The service thread (core/setup/loop.c) sleeps until a descriptor is readable; one of them is
 * the eventfd of this file.
 */
#ifndef BRAID_BASE_WAKEUP_H
#define BRAID_BASE_WAKEUP_H

/* Wake the service thread, if there is one.  Any thread may call this, with any lock held. */
void braid_wake_service(void);

/* For the service: make its eventfd, which it polls, and close it.  The eventfd, or -errno. */
int braid_wakeup_open(void);
void braid_wakeup_close(void);

#endif
