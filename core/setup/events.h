/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * events.h - the epoll set of the service thread.
 *
 * No lock is needed for these calls.
 */
#ifndef BRAID_SETUP_EVENTS_H
#define BRAID_SETUP_EVENTS_H

#include <stdint.h>
#include <sys/epoll.h>

/* The kind of object that an event is for, in the low bits of its pointer. */
enum braid_tag {
	BRAID_TAG_WAKE, BRAID_TAG_PORT, BRAID_TAG_CONN, BRAID_TAG_LANE, BRAID_TAG_DEVICE,
	BRAID_TAG_ADDRS,
	BRAID_TAG_MASK = 7,
};

int braid_events_open(void);		/* 0 or -errno */
void braid_events_close(void);
/* Wait for at most one event, and return how many came; ms below 0: without limit. */
int braid_events_wait(struct epoll_event *ret, int ms);

/* As epoll_ctl(): 0 or -errno. */
int braid_watch(int op, int fd, uint32_t events, void *obj, enum braid_tag tag);
/*
 * Stop watching.  Call this before close(), which is not enough: a forked child that has not called
 * exec() yet holds the descriptor too, so epoll would report its events with a stale pointer.
 */
void braid_unwatch(int fd);

#endif
