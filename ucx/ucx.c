/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ucx.c - UCX: frames as tagged messages over a UCP endpoint.
 *
 *	heads		whole frames, as many as fit into a slot, the last perhaps without its
 *			payload; or a single message with a short header.  They arrive in slots that
 *			the peer keeps posted
 *	payload		of a chunk, as a message of its own, which the peer receives into the place
 *			that the head before it names.  UCX sends a large one by rendezvous
 *
 * Heads and payloads have a tag each, which the receiver chooses at random and sends in the
 * handshake.  UCX keeps messages of one tag in order; heads say where payloads belong between them.
 *
 * lane->fd is the handshake's socket: it is closed when the peer's process ends.
 */
#include <errno.h>
#include <stdatomic.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "ucx/ep.h"

enum {
	ARM_TRIES = 1000,
	STUCK = 15,			/* checks without progress, a tenth of a second apart */
	FLIGHT = 8 << 20,		/* bytes of payload in flight */
};

static struct braid_dev *dev_of(const struct braid_lane *lane)
{
	return lane->link->key.dev->member[lane->member];
}

static int ucx_open(struct braid_lane *lane)
{
	lane->local = false;
	lane->gpu = braid_ucx_port_of(dev_of(lane))->gpu;
	lane->flight_max = FLIGHT;
	lane->event_fd = braid_ucx_ep_of(lane)->efd;
	return 0;
}

static int ucx_attach(struct braid_lane *lane)
{
	(void)lane;
	return 0;
}

/* Data for a GPU arrives in lane->rx_stage, which the core frees next: so wait for the fence. */
static void ucx_fence(struct braid_lane *lane)
{
	struct ucx_ep *w = braid_ucx_ep_of(lane);

	if (!w || w->over)
		return;
	braid_os->shutdown(lane->fd);
	if (lane->rx_stage)
		braid_ucx_ep_fence(w);
	braid_ucx_ep_stop(w, dev_of(lane));
}

/* Does UCX use none of the user's memory? */
static bool is_idle(struct ucx_ep *w)
{
	bool idle;

	braid_lock_wait(&w->lock);
	idle = w->status == UCS_OK && !w->flying;
	for (unsigned i = 0; i < BRAID_UCX_PAYLOADS; i++)
		idle &= !w->payload[i].waits;
	braid_unlock(&w->lock);
	return idle;
}

static bool ucx_lands(const struct braid_lane *lane, uint32_t comm)
{
	const struct ucx_ep *w = braid_ucx_ep_of(lane);

	for (unsigned i = 0; w && !w->over && i < BRAID_UCX_PAYLOADS; i++) {
		if (w->payload[i].waits && w->payload[i].comm == comm)
			return true;
	}
	return false;
}

/* The socket first: a peer whose endpoint then fails checks it, and knows that we closed both. */
static void ucx_close(struct braid_lane *lane)
{
	struct ucx_ep *w = braid_ucx_ep_of(lane);

	if (lane->fd >= 0)
		braid_os->close(lane->fd);
	lane->fd = -1;
	if (w && !w->over && !is_idle(w))
		braid_ucx_ep_stop(w, dev_of(lane));
	braid_ucx_ep_free(w);
	lane->priv = NULL;
	lane->event_fd = -1;
	lane->rx_dst = NULL;
}

/* A worker can be armed only when it has nothing left to do. */
static bool ucx_arm(struct braid_lane *lane)
{
	struct ucx_ep *w = braid_ucx_ep_of(lane);
	ucs_status_t status = UCS_OK;

	if (w->over)
		return true;
	braid_lock_wait(&w->lock);
	for (unsigned i = 0; i < ARM_TRIES && w->worker; i++) {
		status = braid_ucp.worker_arm(w->worker);
		if (status != UCS_ERR_BUSY)
			break;
		braid_ucx_progress_once(w);
	}
	braid_unlock(&w->lock);
	return status == UCS_OK;
}

static int ucx_health(struct braid_lane *lane, struct braid_health *ret)
{
	struct ucx_ep *w = braid_ucx_ep_of(lane);
	bool stuck;

	ret->unacked = true;
	if (!braid_trylock(&lane->link->lock))
		return 0;		/* it is being moved */
	ret->unacked = lane->tx.f_sent != lane->tx.f_peer_acked;
	stuck = braid_lane_stuck(lane, &w->progress, STUCK) && !atomic_load(&braid_ucx_left);
	braid_unlock(&lane->link->lock);
	return stuck ? -ETIMEDOUT : 0;
}

const struct braid_transport braid_ucx = {
	.name = "ucx",
	.id = BRAID_TRANSPORT_UCX,
	.dma = true,
	.lane_size = sizeof(struct braid_lane),
	.probe = braid_ucx_probe,
	.usable = braid_always,
	.event_fd = braid_no_event_fd,
	.events = braid_no_events,
	.reg = braid_no_reg,
	.dereg = braid_no_dereg,
	.gpu = &braid_ucx_gpu,
	.blob = true,
	.slow = true,
	.setup = braid_ucx_setup,
	.setup_peer = braid_ucx_setup_peer,
	.setup_ready = braid_ucx_setup_ready,
	.setup_drop = braid_ucx_setup_drop,
	.lane_open = ucx_open,
	.lane_attach = ucx_attach,
	.lane_detach = braid_no_lane,
	.lane_close = ucx_close,
	.lane_fence = ucx_fence,
	.lands = ucx_lands,
	.arm = ucx_arm,
	.push = braid_ucx_push,
	.post = braid_ucx_lane_post,
	.poll = braid_ucx_poll,
	.blind = true,
	.health = ucx_health,
	.describe = braid_no_describe,
};
