/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stopped.h - what the process of a peer does that does not answer, though its host does: is it
 * stopped, frozen, without a CPU, or held up by the kernel?
 *
 * Of a process on this host the kernel tells.  Of one elsewhere it can't be known while it says
 * nothing, so the text names the command that shows it there.
 */
#ifndef BRAID_SETUP_STOPPED_H
#define BRAID_SETUP_STOPPED_H

#include <stdint.h>

#include "topo/thread.h"

struct braid_link;

enum { BRAID_STOPPED_TEXT = 400 };

/* Each returns `ret`: a clause that goes on after what the peer does not do. */
const char *braid_stopped_why(const struct braid_link *link, char ret[BRAID_STOPPED_TEXT]);
/* The same of a process that a hello named, before there is a link. */
const char *braid_stopped_peer(const char *host, uint32_t pid, char ret[BRAID_STOPPED_TEXT]);
/* The service thread of that link's peer, if its process is on this host. */
struct braid_thread braid_stopped_seen(const struct braid_link *link);
/* The text for what a service thread does. */
const char *braid_stopped_text(const struct braid_thread *t, uint32_t pid,
			       char ret[BRAID_STOPPED_TEXT]);

#endif
