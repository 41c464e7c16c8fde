/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * due.h - which links the service thread looks at in a tick.
 *
 * A process may have thousands of links, nearly all of them at rest: their sockets are watched, and
 * nothing will be due for a while.  Looking at each of them in every tick would cost a core.  So a
 * link is *busy*, and every tick looks at it, or it *rests*: until its time comes, until another
 * thread wakes it (braid_link_wake), or until the service thread does (braid_due_now).  Resting
 * links wait in the slots of a timer wheel.  All calls are made with braid_svc.lock held.
 */
#ifndef BRAID_SETUP_DUE_H
#define BRAID_SETUP_DUE_H

#include <stdint.h>

#include "core/base/list.h"

struct braid_link;

enum { BRAID_DUE_MAX_MS = 2000 };	/* no link rests longer, in case a wake was missed */

extern struct braid_list braid_due_busy;	/* struct braid_link */

void braid_due_reset(void);		/* there are no links */
void braid_due_add(struct braid_link *link);	/* a new one: busy */
void braid_due_forget(struct braid_link *link);
void braid_due_now(struct braid_link *link);	/* the link is busy from now on */
void braid_due_all(void);		/* the same for all links */
/* The link rests for `ms`, or BRAID_DUE_MAX_MS if that is less, rounded up to whole slots. */
void braid_due_rest(struct braid_link *link, unsigned ms);
/* A tick begins: links whose time has come, or that were woken, are busy. */
void braid_due_tick(uint64_t now);
/* The milliseconds until a resting link is due; -1: none rests. */
int braid_due_wait(uint64_t now);

#endif
