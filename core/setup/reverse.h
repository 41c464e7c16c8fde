/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reverse.h - the end that dials a link can't reach the other end, which can reach it.
 *
 * A firewall or a NAT may let connections through in one direction only.  The end that accepted a
 * link connects to the dialler anyway: to ask for a dial of lost lanes (kind ALIVE), or because the
 * dialler has asked for it over home (LANES with BRAID_LANES_CALL).  Once such a connection has
 * proved itself the dialler may use it in place of one of its own: it begins the handshake of a
 * lane there, and the other end takes it as any connection that it has accepted.  So one end
 * chooses the epochs of all lanes, and two ends never dial against each other.
 *
 * The dialler prefers its own dials: it takes the other end's connection only while they fail, or
 * don't connect.  All calls are made with braid_svc.lock held.
 */
#ifndef BRAID_SETUP_REVERSE_H
#define BRAID_SETUP_REVERSE_H

#include <stdint.h>

struct braid_conn;
struct braid_link;

/* At the accepting end: its ALIVE connection is up, so the dialler may take it for a lane. */
void braid_reverse_offer(struct braid_conn *c, uint64_t now);
/* At the dialler: such a connection is up.  Take it for a lane that needs one.  0 or -errno. */
int braid_reverse_take(struct braid_conn *c, uint64_t now);
/* A dial has ended, with an error or 0: note whether our own dials get through. */
void braid_reverse_dialled(const struct braid_conn *c, int err);
/* The dialler asks the peer to connect, if that is due. */
void braid_reverse_tick(struct braid_link *link, uint64_t now);

#endif
