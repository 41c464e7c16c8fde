/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * listen.h - listens, and the comms that wait to be accepted.
 *
 * A listen is an id and a token that peers must know.  A comm that a peer opens on a link queues at
 * the listen it names until accept() takes it.
 */
#ifndef BRAID_SETUP_LISTEN_H
#define BRAID_SETUP_LISTEN_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/list.h"
#include "core/proto/common.h"
#include "core/setup/awaited.h"

struct braid_comm;
struct braid_dev;
struct braid_rma;

enum { BRAID_TAKEN_MAX = 256 };

struct braid_listen {
	struct braid_list node;		/* all listens */
	uint64_t id;
	uint8_t *token;			/* core/base/secret.h */
	struct braid_dev *dev;
	struct braid_list ready;	/* comms that the peer has opened, oldest first */
	unsigned nready;
	uint64_t taken[BRAID_TAKEN_MAX];	/* connects whose comms were queued last: a ring */
	unsigned ntaken;		/* ever */
	struct braid_rma *rma;		/* takes all comms, as channels; NULL: accept() does */
	struct braid_awaited awaited;
	void *ctx;
	struct braid_list ctx_node;
};

/* Make a listen on a device, ready for peers on return.  `handle` gets 128 bytes for them. */
int braid_listen_new(struct braid_dev *dev, void *handle, struct braid_listen **ret);
/* Peers open channels of that communicator here, before `handle` is given to them. */
void braid_listen_for(struct braid_listen *l, struct braid_rma *rma);
/*
 * The oldest comm that a peer has opened here, or NULL: none yet.  Moves the device's links itself
 * rather than waiting for the service thread to be scheduled.
 */
struct braid_comm *braid_listen_accept(struct braid_listen *l);
/* A handshake that named the listen is over: core/setup/awaited.h. */
void braid_listen_came(const struct braid_conn *c, int err, uint32_t link, uint64_t now);
/* Close the listen, and the comms that were opened on it and never accepted. */
void braid_listen_close(struct braid_listen *l);

void braid_listens_init(void);
bool braid_listens_left(void);
/* A listen's token and device; on entry *dev is that device or a member of it.  False: none. */
bool braid_listen_token(uint64_t id, struct braid_dev **dev, uint8_t *ret);
/* Take a comm of a dead link back from its listen; false: none has it.  Link's lock held. */
bool braid_listen_withdraw(struct braid_comm *c);

#endif
