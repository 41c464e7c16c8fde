/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exit.c - UCX when the process exits.
 *
 * A process may exit while lanes move, and UCX then frees its own state, as libraries do.  So
 * before that (leave_all) every worker is left as it is, and UCX is not called from then on.
 */
#include <stdlib.h>

#include "core/base/os.h"
#include "ucx/ep.h"

#define LEAVE_NS 1000000000ull

struct braid_lock braid_ucx_eps_lock;
struct braid_list braid_ucx_eps = { &braid_ucx_eps, &braid_ucx_eps };
atomic_bool braid_ucx_left;

/* The holder may be the exiting thread itself, or be stuck in UCX: so do not wait for ever. */
static bool lock_until(struct braid_lock *l, uint64_t until_ns)
{
	while (!braid_trylock(l)) {
		if (braid_os->now_ns() > until_ns)
			return false;
		braid_yield();
	}
	return true;
}

static void leave_all(void)
{
	uint64_t until = braid_os->now_ns() + LEAVE_NS;
	struct ucx_ep *w;

	if (atomic_load(&braid_forked))
		return;			/* the parent's threads may hold the locks */
	atomic_store(&braid_ucx_left, true);
	if (!lock_until(&braid_ucx_eps_lock, until))
		return;
	braid_list_for(w, &braid_ucx_eps, node) {
		if (!lock_until(&w->lock, until))
			continue;
		w->worker = NULL;
		braid_unlock(&w->lock);
	}
	braid_unlock(&braid_ucx_eps_lock);
}

bool braid_ucx_watch_exit(void)
{
	static bool exit_known;

	if (!exit_known)
		exit_known = !atexit(leave_all);
	return exit_known && !atomic_load(&braid_ucx_left);
}

/* Takes w->lock.  False: the process exits, UCX must not be called, and the lock is not held. */
bool braid_ucx_enter(struct ucx_ep *w)
{
	braid_lock_wait(&w->lock);
	if (!atomic_load(&braid_ucx_left))
		return true;
	braid_unlock(&w->lock);
	return false;
}
