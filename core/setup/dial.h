/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dial.h - dials: the first lane of a new link, by connect(); more lanes, by the service thread.
 *
 * A failed dial is repeated until its caller's deadline, unless the error shows that it can't
 * succeed.  Then the link fails, and one line in the log says why and what to do.  All calls are
 * made with braid_svc.lock held.
 */
#ifndef BRAID_SETUP_DIAL_H
#define BRAID_SETUP_DIAL_H

#include <stdint.h>

struct braid_lane;
struct braid_link;

/* Dial a new link, which comes up or fails. */
void braid_dial_link(struct braid_link *link, uint64_t now);
/* A caller of connect() does so at once, unless that may take long; the service thread goes on. */
void braid_dial_at_once(struct braid_link *link);
/* One that waits for such a link moves its handshake: core/setup/handshake.h. */
void braid_dial_help(struct braid_link *link);
/*
 * Dial a lane of a link that is up: one more (lane NULL), or one that is lost or suspect.
 * The result goes to braid_lane_count_dialled() or braid_redial_ended(), except an error that is
 * returned here.
 */
int braid_dial_lane(struct braid_link *link, struct braid_lane *lane, uint64_t now);
/*
 * The same for a lane, or for one more, over a socket that the other end has connected to that
 * path's device: core/setup/reverse.h.  The call owns the socket, even if it fails.
 */
int braid_dial_reversed(struct braid_link *link, struct braid_lane *lane, unsigned path, int fd,
			uint64_t now);
/*
 * Ask the end that dialled this link to dial again, by the path of that lane; the result goes to
 * braid_redial_requested().
 */
int braid_dial_request(struct braid_link *link, unsigned lane, uint64_t now);

#endif
