/* SPDX-License-Identifier: BSD-3-Clause */
/* sigpipe.c - see sigpipe.h. */
#include "verbs/sigpipe.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

void braid_sigpipe_block(const struct braid_ibport *p, struct braid_sigpipe *h)
{
	sigset_t set;

	h->on = braid_sigpipe_may_come(p);
	if (!h->on)
		return;
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &set, &h->old);
	/* A signal that was not blocked was not pending. */
	h->was_pending = sigismember(&h->old, SIGPIPE) && !sigpending(&set) &&
			 sigismember(&set, SIGPIPE);
}

void braid_sigpipe_unblock(const struct braid_sigpipe *h)
{
	static const struct timespec now;
	sigset_t set;

	if (!h->on)
		return;
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	while (!h->was_pending && sigtimedwait(&set, NULL, &now) < 0 && errno == EINTR)
		;
	pthread_sigmask(SIG_SETMASK, &h->old, NULL);
}

void braid_sigpipe_check(struct braid_ibport *p)
{
	struct sigaction sa;

	if (p->siw)
		atomic_store(&p->pipe_ignored, !sigaction(SIGPIPE, NULL, &sa) &&
						       sa.sa_handler == SIG_IGN);
}
