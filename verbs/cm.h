/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cm.h - iWARP queue pairs, which only librdmacm can connect.
 *
 * The two ends are already connected over TCP.  That handshake gives them a nonce, by which the end
 * that waits recognises the rdma_cm connection.  Everything here is called in jobs of BRAID_MAKE,
 * which run one at a time, unless its comment says otherwise.
 */
#ifndef BRAID_VERBS_CM_H
#define BRAID_VERBS_CM_H

#include "verbs/qp.h"

/*
 * Returns the device at whose address rdma_cm finds this port, or NULL and why.  The port then has
 * rdma_cm's context of the device, and a listening id.
 */
struct braid_dev *braid_cm_find(struct braid_ibport *p, struct braid_dev *table, unsigned count,
				const char **why);
void braid_cm_forget(struct braid_ibport *p);

/* Start a connection to w->peer.  An event then creates the queue pair. */
int braid_cm_connect(struct braid_qp *w);
/* Wait for a connection with w->nonce.  It is answered once w->has_peer. */
void braid_cm_accept(struct braid_qp *w);
void braid_cm_know_peer(struct braid_qp *w);	/* sets it */
/* Any thread.  0: connected; -EAGAIN: not yet; else why it failed. */
int braid_cm_state(const struct braid_qp *w);
void braid_cm_close(struct braid_qp *w);
/*
 * True: the peer has not answered yet, and `w` is freed when the answer comes.  If the queue pair
 * were destroyed before, the driver could block until the answer, many seconds if none comes.
 */
bool braid_cm_leave(struct braid_qp *w);

/*
 * The transport's events() for a port with p->cm.  It hands over a job that answers the peers'
 * requests, and rejects those that no handshake expects.
 */
bool braid_cm_events(struct braid_ibport *p, struct braid_dev *dev);

#endif
