/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs.c - RDMA: frames over a reliable queue pair.
 *
 *	small frames, control	one SEND with as many frames as fit into a slot; the peer has posted
 *				its slots in advance.  A single message has 32 bits of immediate
 *				data in place of its header, or a short header
 *	chunks			one RDMA WRITE to the address in the CREDIT, with 32 bits of
 *				immediate data that say whose chunk it is.  Without immediate data
 *				(iWARP) the chunk's header follows as a SEND, after the header of
 *				the START if the chunk is the first
 *	chunks that NICs can't	as SENDs, piece by piece, copied if the memory is not registered:
 *	place			always possible, also for frames queued for another transport
 *
 * tx.c and rx.c move the data; this file has the rest of a lane.
 *
 * lane->fd is the handshake's socket: it is closed when the peer's process ends.  A byte on it says
 * that the peer has closed its queue pair for reasons of its own.
 */
#include <errno.h>
#include <stdio.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "verbs/cm.h"
#include "verbs/events.h"
#include "verbs/gpu.h"
#include "verbs/mr.h"
#include "verbs/sigpipe.h"
#include "verbs/verbs.h"

enum {
	STUCK_IWARP = 15, STUCK = 40,	/* checks without progress: then the lane is given up ... */
	LOOK_NS = 100000000,		/* ... and so far apart */
	FLIGHT = 4 << 20,		/* bytes of chunks; more would delay other frames */
};

static int verbs_event_fd(const struct braid_dev *dev)
{
	const struct braid_ibport *p = braid_ibport_of(dev);

	return !p ? -1 : p->cm ? p->cm->fd : p->ctx->async_fd;
}

static bool verbs_events(struct braid_dev *dev)
{
	struct braid_ibport *p = braid_ibport_of(dev);

	if (p && !p->cm)
		braid_ibport_events(p);
	return p && p->cm && braid_cm_events(p, dev);
}

static int verbs_open(struct braid_lane *lane)
{
	struct braid_qp *w = braid_qp_of(lane);
	int err = 0;

	if (lane->tx.ring)
		err = braid_qp_ring(w, lane->tx.ring, lane->tx.ring_size);
	if (err)
		return err;
	lane->local = false;
	lane->flight_max = FLIGHT;
	lane->ack_frames = BRAID_WINDOW / 2;
	braid_reads_offer(lane, w->m->pd == w->port->pd ? w->reads_out : 0, w->port->max_msg);
	braid_verbs_tx_init(w);
	braid_grow_begin(w);
	lane->event_fd = w->channel->fd;
	w->may_send = w->connects || w->port->fabric != BRAID_FABRIC_IWARP;
	/* iWARP: the end that connects must send first (RFC 5044, 7.1.2). */
	if (w->connects) {
		braid_verbs_write_counts(lane, w);
		if (braid_verbs_chain_post(w))	/* the first poll reports it, like any fault */
			atomic_store(&w->broken, true);
	}
	w->ack_seen = 0;
	w->qpn = w->qp->qp_num;
	return 0;
}

static int verbs_attach(struct braid_lane *lane)
{
	struct braid_qp *w = braid_qp_of(lane);

	return w->ring == lane->tx.ring ? 0 :
	       braid_qp_ring(w, lane->tx.ring, lane->tx.ring_size);
}

/*
 * Closes the socket first.  A peer whose queue pair then fails checks its socket, and so knows that
 * we closed both.
 */
static void verbs_close(struct braid_lane *lane)
{
	if (lane->fd >= 0)
		braid_os->close(lane->fd);
	lane->fd = -1;
	braid_qp_free(braid_qp_of(lane));
	lane->priv = NULL;
	lane->event_fd = -1;
	lane->rx_dst = NULL;
}

static void verbs_fence(struct braid_lane *lane)
{
	struct braid_qp *w = braid_qp_of(lane);

	if (!w || w->over)
		return;
	braid_os->shutdown(lane->fd);
	braid_qp_fence(w);
}

static bool verbs_arm(struct braid_lane *lane)
{
	struct braid_qp *w = braid_qp_of(lane);
	struct ibv_cq *cq;
	unsigned n = 0;
	void *user;

	while (!braid_ibv.get_cq_event(w->channel, &cq, &user))
		n++;
	if (n)
		braid_ibv.ack_cq_events(w->cq, n);
	return !ibv_req_notify_cq(w->cq, 0);
}

/* A lane is given up after so many checks without progress: more than retransmissions take. */
static unsigned most_checks(const struct braid_qp *w)
{
	uint64_t ns = (UINT64_C(4096) << braid_param.ib_timeout) * (braid_qp_retries() + 1u);
	uint64_t checks = ns / LOOK_NS * 5 / 4;

	if (w->port->fabric == BRAID_FABRIC_IWARP)
		return STUCK_IWARP;
	return checks > STUCK ? (unsigned)checks : STUCK;
}

static int verbs_health(struct braid_lane *lane, struct braid_health *ret)
{
	struct braid_qp *w = braid_qp_of(lane);
	int err;

	braid_ibport_events(w->port);
	braid_sigpipe_check(w->port);
	if (atomic_load(&w->port->down))
		return -ENETDOWN;
	if (atomic_load(&w->broken))
		return -EIO;
	if (atomic_load(&w->port->moves) != w->moves)
		return -ENETRESET;	/* the peer sends to the LID that the port had */
	ret->unacked = true;
	if (!braid_trylock(&lane->link->lock))
		return 0;		/* another thread moves the link */
	ret->unacked = lane->tx.f_sent != lane->tx.f_peer_acked;
	/* Queue pairs detect a silent peer; over iWARP that takes as long as TCP's timeouts. */
	err = braid_lane_stuck(lane, &w->progress, most_checks(w)) ? -ETIMEDOUT : 0;
	braid_unlock(&lane->link->lock);
	return err;
}

/* Does not ask the NIC: hung firmware would block this call, with the link's lock held. */
static void verbs_describe(struct braid_lane *lane, struct braid_wire_state *ret)
{
	const struct braid_qp *w = braid_qp_of(lane);

	braid_assert_locked(&lane->link->lock);
	snprintf(ret->text, sizeof(ret->text), "queue pair 0x%x%s, port %s %s",
		 w->qpn, w->over ? " (fenced)" : "", w->port->name,
		 atomic_load(&w->port->down) ? "down" : "up");
}

const struct braid_transport braid_verbs = {
	.name = "verbs",
	.id = BRAID_TRANSPORT_VERBS,
	.dma = true,
	.ports = true,
	.lane_size = sizeof(struct braid_lane),
	.probe = braid_ibport_probe,
	.usable = braid_ibport_usable,
	.event_fd = verbs_event_fd,
	.events = verbs_events,
	.reg = braid_ibport_reg,
	.dereg = braid_ibport_dereg,
	.gpu = &braid_ibport_gpu,
	.blob = true,
	.setup = braid_qp_setup,
	.setup_peer = braid_qp_peer,
	.setup_ready = braid_qp_ready,
	.setup_drop = braid_qp_drop,
	.lane_open = verbs_open,
	.lane_attach = verbs_attach,
	.lane_detach = braid_no_lane,
	.lane_rest = braid_verbs_rest,
	.lane_close = verbs_close,
	.lane_fence = verbs_fence,
	.arm = verbs_arm,
	.push = braid_verbs_push,
	.post = braid_verbs_post,
	.read = braid_verbs_read,
	.poll = braid_verbs_poll,
	.health = verbs_health,
	.describe = verbs_describe,
};
