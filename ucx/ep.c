/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ep.c - the life of an endpoint and its worker: how they are made, stopped and destroyed.
 *
 * Each lane has a worker of its own.  It shares nothing with other lanes, and once it is destroyed,
 * UCX reads and writes none of the lane's memory.  That is how a lane is fenced.
 */
#include <errno.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "ucx/ep.h"

#define END_NS 2000000ull

/* Why the lane has ended.  -ENOTCONN: the peer has closed it, so UCX is not at fault. */
int braid_ucx_broken(const struct braid_lane *lane, const struct ucx_ep *w)
{
	if (braid_lane_check_fd(lane))
		return -ENOTCONN;
	braid_info("device %s, peer %s: lane %u: UCX says: %s", lane->link->key.dev->net.name,
		   lane->link->peer, lane->index, braid_ucp.status_string(w->status));
	return -EIO;
}

/*
 * Closes the endpoint, so that sends in flight end with an error.  Some that wait for the peer
 * never complete; they end with the worker.
 */
static void end_sends(struct ucx_ep *w)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE,
	};
	uint64_t until = braid_os->now_ns() + END_NS;
	ucs_status_ptr_t req;

	braid_assert_locked(&w->lock);
	req = braid_ucp.ep_close(w->ep, &param);
	while ((UCS_PTR_IS_PTR(req) && braid_ucp.request_status(req) == UCS_INPROGRESS) ||
	       w->flying) {
		if (!braid_ucx_progress_once(w) && braid_os->now_ns() > until)
			break;
	}
	if (UCS_PTR_IS_PTR(req))
		braid_ucp.request_free(req);
}

static void cancel(struct ucx_ep *w, struct ucx_slot *s)
{
	if (s->waits)
		braid_ucp.request_cancel(w->worker, s->req);
}

void braid_ucx_ep_fence(struct ucx_ep *w)
{
	braid_lock_wait(&w->lock);
	if (w->worker && !atomic_load(&braid_ucx_left)) {
		if (w->efd >= 0)
			braid_os->note(w->efd, false);
		if (w->ep)
			end_sends(w);
		for (unsigned i = 0; i < BRAID_UCX_SLOTS; i++)
			cancel(w, &w->slot[i]);
		for (unsigned i = 0; i < BRAID_UCX_PAYLOADS; i++)
			cancel(w, &w->payload[i]);
		cancel(w, &w->hello);
		/* Progress now could make UCX create a second endpoint, to answer the peer. */
		braid_ucp.worker_destroy(w->worker);
	}
	w->worker = NULL;
	braid_unlock(&w->lock);
}

/* Have the two ends exchanged hellos: has the peer's come, and has ours gone? */
bool braid_ucx_is_wired(struct ucx_ep *w)
{
	w->wired |= !w->hello.waits && !w->flying;
	return w->wired;
}

static void end_run(struct braid_work *work)
{
	struct ucx_ep *w = braid_container(work, struct ucx_ep, ending);

	braid_ucx_ep_fence(w);
	braid_lock_wait(&braid_ucx_eps_lock);
	braid_list_del(&w->node);
	braid_unlock(&braid_ucx_eps_lock);
}

static void end_free(struct braid_work *work)
{
	struct ucx_ep *w = braid_container(work, struct ucx_ep, ending);

	braid_stage_put(w->gpu);
	free(w->memory);
	free(w->scratch);
	free(w);
}

/* Destroying a worker may take long, so a thread of its own does it. */
static void ep_end(struct ucx_ep *w)
{
	w->ending.slow = true;
	if (w->worker &&
	    !braid_work_start(&w->ending, "the end of a worker of UCX's", end_run, end_free)) {
		braid_work_leave(&w->ending);
		return;
	}
	end_run(&w->ending);
	end_free(&w->ending);
}

/* Drops a reference; the last one frees the endpoint, whose worker is destroyed by then. */
static void ep_put(struct ucx_ep *w)
{
	if (atomic_fetch_sub(&w->users, 1) == 1)
		ep_end(w);
}

static void stop_run(struct braid_job *job)
{
	struct ucx_ep *w = braid_container(job, struct ucx_ep, stop);

	braid_ucx_ep_fence(w);
	braid_stop_end(w->dev, &w->stopping);
	ep_put(w);
}

/*
 * Starts a job that fences the endpoint: UCX may still use the user's memory, and destroying a
 * worker is slow.  braid_stops_past() says when the job is over.
 */
void braid_ucx_ep_stop(struct ucx_ep *w, struct braid_dev *dev)
{
	w->over = true;
	w->dev = dev;
	w->stop = (struct braid_job){ .run = stop_run };
	atomic_fetch_add(&w->users, 1);
	braid_stop_begin(dev, &w->stopping);
	braid_later(dev, BRAID_STOP, &w->stop);
}

/*
 * UCX 1.13 aborts if an endpoint is closed before its first message has gone, which takes time over
 * RDMA.  Such an endpoint is stranded: braid_ucx_ep_sweep() ends it once that message has gone or
 * failed.
 */
void braid_ucx_ep_free(struct ucx_ep *w)
{
	bool stranded;

	if (!w)
		return;
	if (w->over) {
		ep_put(w);
		return;
	}
	stranded = w->rdma && w->ep && !braid_ucx_is_wired(w) && w->flying && w->status == UCS_OK;
	if (!stranded) {
		ep_end(w);
		return;
	}
	braid_lock_wait(&braid_ucx_eps_lock);
	w->stranded = true;
	braid_unlock(&braid_ucx_eps_lock);
}

/* The service thread calls this now and then. */
void braid_ucx_ep_sweep(void)
{
	struct braid_list done = { &done, &done };
	struct ucx_ep *w, *tmp;

	braid_lock_wait(&braid_ucx_eps_lock);
	braid_list_for_safe(w, tmp, &braid_ucx_eps, node) {
		if (!w->stranded || !braid_ucx_enter(w))
			continue;
		braid_ucx_progress(w);
		if (!w->flying || w->status != UCS_OK) {
			braid_list_del(&w->node);
			braid_list_add_tail(&done, &w->node);
		}
		braid_unlock(&w->lock);
	}
	braid_unlock(&braid_ucx_eps_lock);
	braid_list_for_safe(w, tmp, &done, node)
		ep_end(w);
}

struct ucx_ep *braid_ucx_ep_new(struct braid_dev *dev)
{
	struct ucx_ep *w = calloc(1, sizeof(*w));

	if (w)
		w->memory = malloc(BRAID_UCX_SLOTS * BRAID_UCX_SLOT);
	if (!w || !w->memory) {
		free(w);
		return NULL;
	}
	w->efd = -1;
	atomic_store(&w->users, 1);
	braid_ucx_send_init(w);
	w->rdma = braid_ucx_port_of(dev)->rdma;
	braid_os->random(&w->tag_rx, sizeof(w->tag_rx));
	w->tag_rx &= ~(uint64_t)((1 << BRAID_UCX_TAG_BITS) - 1);
	braid_lock_wait(&braid_ucx_eps_lock);
	braid_list_add_tail(&braid_ucx_eps, &w->node);
	braid_unlock(&braid_ucx_eps_lock);
	return w;
}
