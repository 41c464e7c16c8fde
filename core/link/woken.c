/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * woken.c - links that the service thread must look at, though nothing is due there by the clock.
 *
 * That thread sleeps until something is due, and then looks only at the links for which something
 * is.  So a thread that changes what the service thread must act upon wakes the link.
 */
#include "core/link/link_int.h"

#include "core/base/wakeup.h"

static struct {				/* links that were woken, the last one first */
	struct braid_lock lock;		/* its holder never waits */
	struct braid_link *link;
} woken;

void braid_link_wake(struct braid_link *link)
{
	braid_lock_wait(&woken.lock);
	if (!link->thread.woken) {
		link->thread.woken = true;
		link->thread.other = woken.link;
		woken.link = link;
	}
	braid_unlock(&woken.lock);
	braid_wake_service();
}

struct braid_link *braid_link_woken(void)
{
	struct braid_link *link;

	braid_lock_wait(&woken.lock);
	link = woken.link;
	if (link) {
		woken.link = link->thread.other;
		link->thread.woken = false;
	}
	braid_unlock(&woken.lock);
	return link;
}

void braid_link_forget_woken(struct braid_link *link)
{
	struct braid_link **other = &woken.link;

	braid_lock_wait(&woken.lock);
	while (link->thread.woken && *other != link)
		other = &(*other)->thread.other;
	if (link->thread.woken)
		*other = link->thread.other;
	braid_unlock(&woken.lock);
}
