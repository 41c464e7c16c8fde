/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sigpipe.h - keep SIGPIPE away from the process while soft-iWARP (siw) may write to a socket.
 *
 * siw writes without MSG_NOSIGNAL, so SIGPIPE comes if the peer has closed the socket.  Block and
 * unblock around calls into siw.  Together they make three system calls, or none in a process that
 * ignored SIGPIPE at the last check.
 */
#ifndef BRAID_VERBS_SIGPIPE_H
#define BRAID_VERBS_SIGPIPE_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "verbs/port.h"

struct braid_sigpipe {
	bool on, was_pending;
	sigset_t old;
};

static inline bool braid_sigpipe_may_come(const struct braid_ibport *p)
{
	return p->siw && !atomic_load_explicit(&p->pipe_ignored, memory_order_relaxed);
}

void braid_sigpipe_block(const struct braid_ibport *p, struct braid_sigpipe *s);
void braid_sigpipe_unblock(const struct braid_sigpipe *s);
/* Checks whether the process ignores SIGPIPE, as Python does.  To be called now and then. */
void braid_sigpipe_check(struct braid_ibport *p);

#endif
