/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stopped.h - why a peer's process does not answer though its host does: it is stopped or frozen,
 * gets no CPU, or is held up by the kernel.
 *
 * For a process on this host the kernel shows which.  For one elsewhere that can't be known while
 * it is silent, so the text names the command that shows it there.
 */
#ifndef BRAID_SETUP_STOPPED_H
#define BRAID_SETUP_STOPPED_H

#include <stdint.h>

#include "topo/thread.h"

struct braid_link;

enum { BRAID_STOPPED_TEXT = 400 };

/* Each returns `ret`, a clause to follow one that says what the peer does not do. */
const char *braid_stopped_why(const struct braid_link *link, char ret[BRAID_STOPPED_TEXT]);
/* The same for a process that a hello named, before there is a link. */
const char *braid_stopped_peer(const char *host, uint32_t pid, char ret[BRAID_STOPPED_TEXT]);
/* The state of the service thread of that link's peer, if its process is on this host. */
struct braid_thread braid_stopped_seen(const struct braid_link *link);
/* The clause for a service thread in that state. */
const char *braid_stopped_text(const struct braid_thread *t, uint32_t pid,
			       char ret[BRAID_STOPPED_TEXT]);

#endif
