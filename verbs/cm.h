/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cm.h - iWARP queue pairs, which only librdmacm can connect.
 *
 * Both ends have met over TCP already; rdma_cm's own connection is found by a nonce, which the
 * accepting end has given in the handshake.  Everything here is done in jobs of BRAID_MAKE, one at
 * a time, unless it says otherwise.
 */
#ifndef BRAID_VERBS_CM_H
#define BRAID_VERBS_CM_H

#include "verbs/wire.h"

/*
 * The device at whose address rdma_cm finds this port, which then has rdma_cm's own context and a
 * listening id; or NULL, and why.
 */
struct braid_dev *braid_cm_find(struct braid_port *p, struct braid_dev *table, unsigned count,
				const char **why);
void braid_cm_forget(struct braid_port *p);

/* Wait for a connection with w->nonce; or make one.  The queue pair comes with it. */
int braid_cm_accept(struct braid_wire *w);
int braid_cm_connect(struct braid_wire *w);
/* Any thread: 0: up; -EAGAIN; or why it failed. */
int braid_cm_state(const struct braid_wire *w);
void braid_cm_close(struct braid_wire *w);
/*
 * True: the peer has not answered yet, and a driver may keep who ends such a queue pair waiting for
 * that, or for many seconds if it never does.  The wire is freed when the answer comes.
 */
bool braid_cm_leave(struct braid_wire *w);

/*
 * See struct braid_transport, events; of a port that has p->cm.  Peers' requests are answered, also
 * when nobody waits: it hands over a job that does so.
 */
bool braid_cm_events(struct braid_port *p, struct braid_dev *dev);

#endif
