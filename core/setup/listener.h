/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * listener.h - the sockets at which devices listen.
 *
 * A device has one port from its first listen() until the service thread ends, and a socket at each
 * of its addresses.  All calls are made with braid_svc.lock held.
 */
#ifndef BRAID_SETUP_LISTENER_H
#define BRAID_SETUP_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/list.h"
#include "topo/netdev.h"

struct braid_conn_owner;
struct braid_dev;

struct braid_listener {			/* a device's listening socket at one of its addresses */
	struct braid_list node;
	struct braid_dev *dev;
	bool first;			/* its device's first; the others use its port number */
	bool bound;			/* to its interface, beside an unbound one at the address */
	bool gone;			/* the device has that address no more */
	int fd;
	union braid_netdev_addr at;
	uint16_t port;
	uint64_t paused_until_ns;	/* out of descriptors */
};
extern struct braid_list braid_listeners;

void braid_listeners_init(void);

/* Listen, unless the device does already; `quiet`: log nothing if descriptors run out. */
int braid_listener_open(struct braid_dev *dev, bool quiet, struct braid_listener **ret);
/* The device has other addresses now: listen at those, too, and no more where it has none. */
void braid_listener_again(struct braid_dev *dev);
/* The TCP port at which a device listens, from now on if not before; 0: it can't. */
uint16_t braid_listener_port(struct braid_dev *dev);

/* Connections have arrived: accept some of them, and hand them to that owner. */
void braid_listener_event(struct braid_listener *p, const struct braid_conn_owner *owner,
			  uint64_t now);
/* Accept again where descriptors had run out; true if some ports still wait for them. */
bool braid_listeners_resume(uint64_t now);
void braid_listeners_close(void);
/* Read the transports' events of this port's device; true: more are to come. */
bool braid_listener_read_events(struct braid_listener *p);
/* The same for all devices that listen. */
bool braid_listeners_read_events(void);

#endif
