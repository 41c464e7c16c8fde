/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * connect.h - connect(), from a peer's handle to a comm: find or make a link, and send the OPEN.
 *
 * NCCL repeats the call with its copy of the handle, which names an entry in our table by slot,
 * generation and nonce.  The entry takes a link that exists, or a new one that the service
 * thread dials.  It opens a comm on that link, and ends when the peer has answered.
 */
#ifndef BRAID_SETUP_CONNECT_H
#define BRAID_SETUP_CONNECT_H

#include <stdbool.h>

struct braid_comm;
struct braid_dev;
struct braid_rma;

/*
 * Move a connect on; `handle` is the caller's copy, in which the state of the attempt is kept.
 * `rma` is not NULL: the comm is to be a channel of that communicator (core/rma/rma.h).
 * 0 with *ret NULL: call again.  An error has been logged and ends the attempt.
 */
int braid_connect(struct braid_dev *dev, int traffic_class, void *handle, struct braid_rma *rma,
		  struct braid_comm **ret);
/* Give up an attempt that is not over, if the handle has one. */
void braid_connect_give_up(void *handle);

/* Both with braid_svc.lock held. */
bool braid_connects_left(void);
void braid_connects_free(void);

#endif
