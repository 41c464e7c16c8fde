/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * join.h - a handshake is over: its socket, or what its transport has set up, becomes a lane.
 *
 * For both owners of handshakes, dial.c and accept.c.  Called with braid_svc.lock held.
 */
#ifndef BRAID_SETUP_JOIN_H
#define BRAID_SETUP_JOIN_H

#include <stdbool.h>

struct braid_conn;
struct braid_lane;
struct braid_link;

/* Fence the lane whose socket `c` replaces, and put its counts into our hello.  0, or -EAGAIN. */
int braid_join_close_lane(struct braid_conn *c);
/* As setup() of struct braid_conn_owner. */
void braid_join_setup(struct braid_conn *c);

/* The peer has proved itself in `c`: its socket becomes lane `index` of the link.  0 or -errno. */
int braid_join_new_lane(struct braid_link *link, struct braid_conn *c, unsigned index);
/* As braid_join_new_lane(), for a lane that exists and has lost its socket. */
int braid_join_lane(struct braid_lane *lane, struct braid_conn *c);
/* Bring a link up, with `c` as its first lane.  Without memory the link and its connects fail. */
int braid_join_link(struct braid_link *link, struct braid_conn *c);

#endif
