/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * service.h - contexts, listens, connects, and the one thread behind them.
 *
 * The service thread accepts, dials, runs handshakes (core/setup/conn.c), watches links that have
 * no callers, and closes what is over.  It sleeps when nothing is due, never waits for a peer, and
 * ends when the last listen and link are gone.  Calls from NCCL only change tables.
 */
#ifndef BRAID_SETUP_SERVICE_H
#define BRAID_SETUP_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/msg/comm.h"
#include "core/dev.h"
#include "core/link/link.h"
#include "core/proto/frame.h"

struct braid_listen {
	struct braid_list node;		/* all listens */
	uint64_t id;
	uint8_t token[BRAID_KEY_SIZE];
	struct braid_dev *dev;
	struct braid_list ready;	/* comms that the peer has opened, oldest first */
	unsigned nready;
	uint32_t polled;		/* accept() has moved the links up to that number */
	void *ctx;
	struct braid_list ctx_node;
};

struct braid_self {			/* this process, as its peers see it */
	uint8_t process[BRAID_ID_SIZE];
	char host[BRAID_HOST_SIZE];
	uint32_t pid;
	uint16_t place;			/* equal on one host and network namespace; 0: unknown */
};
extern struct braid_self braid_self;

/* Once per process before anything else: keys, ids, fork handling.  0 or a negative errno. */
int braid_service_init(void);
/* End it now: close every link and listener, join within the deadline. */
void braid_service_stop(void);
/* Contexts hold the service: the last one to go stops it. */
void braid_service_get(void);
void braid_service_put(void);

/*
 * Walks the links, without any lock held: NULL begins, and NULL ends.  The link that is returned is
 * not freed before it is passed back here or to braid_links_leave().
 */
struct braid_link *braid_links_next(struct braid_link *link);
void braid_links_leave(struct braid_link *link);	/* ends a walk early */
/* The devices that ever had a link, at most `max`; they stay. */
unsigned braid_links_devices(const struct braid_dev **ret, unsigned max);

/* A listen on a device, ready for peers on return; the handle is 128 bytes for them. */
int braid_listen_new(struct braid_dev *dev, void *handle, struct braid_listen **ret);
/*
 * The oldest comm that a peer has opened here, or NULL: none yet.  Moves the device's links itself,
 * rather than wait until the service thread is scheduled.
 */
struct braid_comm *braid_listen_accept(struct braid_listen *l);
/* Comms that were opened and never accepted are closed. */
void braid_listen_close(struct braid_listen *l);
/*
 * Move a connect on; `handle` is the caller's copy, in which the state of the attempt is kept.
 * 0 with *ret NULL: call again.  An error has been logged and ends the attempt.
 */
int braid_connect(struct braid_dev *dev, int traffic_class, void *handle, struct braid_comm **ret);

#endif
