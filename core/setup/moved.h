/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * moved.h - interfaces and peers whose IP addresses change while the process runs.
 *
 * The kernel reports a change of this host's addresses (DHCP, a virtual function that was reset, an
 * interface made anew under the same name).  Then the devices take their new addresses over and
 * listen there.  Lanes whose address has gone are lost at once; they are dialled again from the new
 * one, and an accepting end asks for that.  The peer learns our new address from those dials: it is
 * the one from which a connection comes that has proved to be the peer's.
 *
 * If both ends' addresses change before either has reached the other, and no other path is left,
 * neither knows where the other is: then the link ends at BRAID_PEER_TIMEOUT.
 *
 * All calls are made with braid_svc.lock held.
 */
#ifndef BRAID_SETUP_MOVED_H
#define BRAID_SETUP_MOVED_H

#include <stdint.h>

struct braid_conn;
struct braid_dev;

/* Watch this host's addresses, if the kernel lets us and they are not watched yet. */
void braid_moved_open(void);
void braid_moved_close(void);
/* The watched descriptor is readable. */
void braid_moved_event(uint64_t now);
/* An address of ours can't be used: perhaps it has changed, and no event has come. */
void braid_moved_perhaps(uint64_t now);
/* Look at the addresses if that is due.  Returns the milliseconds until it is, or -1. */
int braid_moved_tick(uint64_t now);
/* Before a device's first use: take its addresses over, unless they are watched already. */
void braid_moved_device(struct braid_dev *dev);

/* A connection of the peer of c->link has proved itself: note from where it has come. */
void braid_moved_learn(const struct braid_conn *c);

#endif
