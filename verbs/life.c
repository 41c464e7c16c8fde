/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * life.c - how a queue pair ends.
 *
 *	made ---> its owner lets go of it ---> stopped: the error state ---> destroyed
 *
 * The owner is first the handshake, then the lane.  Neither waits for the NIC: each step is a job
 * of core/mem/later.h.  A queue pair is destroyed when its owner has let go of it and none of its
 * jobs is left.
 */
#include <stdlib.h>
#include <time.h>

#include "core/base/os.h"
#include "verbs/cm.h"
#include "verbs/events.h"
#include "verbs/qp.h"
#include "verbs/sigpipe.h"

enum {
	COMMAND_MS = 20,		/* a healthy NIC's command takes less ... */
	LAST_MS = 100,			/* ... and this event follows at once */
	STOP_CHECK_MS = 10000,		/* NICs give up an unanswered packet sooner */
	NAP_NS = 20000, NAP_MAX_NS = 1000000,
};

/* The NIC has stopped, so it reads none of them: other lanes may have them. */
static void pieces_back(struct braid_qp *w)
{
	for (; w->bounces_back != w->bounces; w->bounces_back++)
		braid_bounce_put(w->m->bounces, w->bounce[w->bounces_back % BRAID_BOUNCES].piece);
}

/* In its error state a queue pair neither sends nor takes anything (IBTA vol. 1, 10.3.1.7). */
static void stop_run(struct braid_job *job)
{
	struct braid_qp *w = braid_container(job, struct braid_qp, stop);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	static const struct timespec nap = { .tv_nsec = NAP_NS };
	struct braid_sigpipe h;
	int err;

	braid_sigpipe_block(w->port, &h);
	err = braid_ibv.modify_qp(w->qp, &a, IBV_QP_STATE);
	braid_sigpipe_unblock(&h);
	if (err) {
		/* Wait for post_invalid() to return; afterwards it leaves the queue pair alone. */
		while (atomic_exchange(&w->posting, true))
			nanosleep(&nap, NULL);
		braid_qp_destroy(w);
	}
	pieces_back(w);
	braid_stop_end(w->dev, &w->stopping);
	braid_qp_put(w);
}

/* A request with an invalid key can't succeed, and puts the queue pair into the error state. */
static bool post_invalid(struct braid_qp *w)
{
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)w->m->ack, .length = 1,
		.lkey = ~w->m->ack_mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.wr_id = BRAID_WR_IS_SEND, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = w->peer_ack, .rkey = ~w->peer_ack_key },
	};
	struct braid_sigpipe h;
	int err;

	if (atomic_exchange(&w->posting, true))
		return false;
	braid_sigpipe_block(w->port, &h);
	err = ibv_post_send(w->qp, &wr, &bad);
	braid_sigpipe_unblock(&h);
	atomic_store(&w->posting, false);
	return !err;
}

/* Has a request completed with an error?  Then the queue pair is in the error state. */
static bool is_stopped(struct braid_qp *w)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(w->cq, 1, &wc) > 0) {
		if (!(wc.wr_id & BRAID_WR_IS_SEND)) {
			braid_slot_wr(&wc)->next = w->kept;
			w->kept = braid_slot_wr(&wc);
		}
		if (wc.status != IBV_WC_SUCCESS)
			return true;
	}
	return false;
}

static bool stops_within(struct braid_qp *w, unsigned ms, bool with_cq)
{
	uint64_t until = braid_os->now_ns() + ms * UINT64_C(1000000);
	struct timespec nap = { .tv_nsec = NAP_NS };

	while (!atomic_load(&w->stopping.over)) {
		if (with_cq && is_stopped(w))
			return true;
		if (braid_os->now_ns() >= until)
			return false;
		nanosleep(&nap, NULL);
		if (nap.tv_nsec < NAP_MAX_NS)
			nap.tv_nsec *= 2;
	}
	return true;
}

/*
 * The command of stop_run() hangs if the firmware does, while the data path may still work.  Then
 * an invalid request stops the queue pair, after all requests before it.  It is posted only if the
 * command takes long, since libmlx5 prints such completions.
 */
static void check_stop(struct braid_job *job)
{
	struct braid_qp *w = braid_container(job, struct braid_qp, stop_check);

	if (!stops_within(w, COMMAND_MS, false) && post_invalid(w) &&
	    stops_within(w, STOP_CHECK_MS, true))
		braid_stop_end(w->dev, &w->stopping);
	braid_qp_put(w);
}

static void hand_over(struct braid_qp *w, enum braid_job_kind kind, struct braid_job *job)
{
	braid_qp_get(w);
	braid_later(w->dev, kind, job);
}

void braid_qp_fence(struct braid_qp *w)
{
	if (w->over)
		return;
	w->over = true;
	/*
	 * No peer can reach a queue pair that is not made yet.  Over iWARP, a queue pair that never
	 * connected can't be stopped.
	 */
	if (!atomic_load(&w->made) ||
	    (w->port->fabric == BRAID_FABRIC_IWARP && !atomic_load(&w->connected)) || !w->qp)
		return;
	braid_stop_begin(w->dev, &w->stopping);
	w->stop = (struct braid_job){ .what = "to stop a queue pair", .run = stop_run };
	w->stop_check = (struct braid_job){ .run = check_stop };
	hand_over(w, BRAID_STOP, &w->stop);
	hand_over(w, BRAID_STOP_CHECK, &w->stop_check);
}

/*
 * In the error state a queue pair completes the shared receives that it has begun to fill.  Then
 * the device reports that it has reached the last one (IBTA vol. 1, 10.3.1).  False: that is not
 * known.  Some devices never report it: they are waited for once.
 */
static bool reached_last(struct braid_qp *w)
{
	uint64_t until = braid_os->now_ns() + LAST_MS * UINT64_C(1000000);
	struct timespec nap = { .tv_nsec = NAP_NS };

	if (!w->qp || !atomic_load(&w->stopping.over))
		return false;
	while (braid_ibport_events(w->port), !atomic_load(&w->last_wqe)) {
		if (braid_os->now_ns() >= until)
			atomic_store(&w->port->no_last_wqe, true);
		if (atomic_load(&w->port->no_last_wqe))
			return false;
		nanosleep(&nap, NULL);
		if (nap.tv_nsec < NAP_MAX_NS)
			nap.tv_nsec *= 2;
	}
	return true;
}

/*
 * The shared queue's receives that completed on this queue pair and were not posted again.  To be
 * called before it is destroyed, since that removes its completions.
 */
static struct ibv_recv_wr *held(struct braid_qp *w)
{
	struct ibv_recv_wr *first = w->kept, *next;

	for (; w->nagain; w->nagain--, w->again = next) {
		next = w->nagain > 1 ? w->again->next : NULL;
		w->again->next = first;
		first = w->again;
	}
	do {
		for (; w->wc_beg < w->wc_end; w->wc_beg++) {
			if (w->wc[w->wc_beg].wr_id & BRAID_WR_IS_SEND)
				continue;
			next = braid_slot_wr(&w->wc[w->wc_beg]);
			next->next = first;
			first = next;
		}
		w->wc_beg = 0;
		w->wc_end = w->cq ? ibv_poll_cq(w->cq, BRAID_POLL_MAX, w->wc) : 0;
	} while (w->wc_end > 0);
	if (w->wc_end < 0)
		atomic_store(&w->lost, true);
	return first;
}

void braid_qp_end(struct braid_qp *w)
{
	struct ibv_recv_wr *back = NULL;

	if (braid_cm_leave(w))
		return;
	if (w->srq) {
		if (w->receives && !reached_last(w))
			atomic_store(&w->lost, true);
		back = held(w);
	}
	braid_qp_destroy(w);
	braid_cm_close(w);
	if (w->srq)
		braid_srq_leave(w->srq, back, atomic_load(&w->lost));
	if (w->cq)
		braid_ibv.destroy_cq(w->cq);
	if (w->channel) {
		braid_os->note(w->channel->fd, false);
		braid_ibv.destroy_comp_channel(w->channel);
	}
	braid_qp_rings_free(w);
	pieces_back(w);
	if (w->m)
		braid_qp_memory_put(w->port, w->m);
	free(w);
}

static void end_run(struct braid_job *job)
{
	braid_qp_end(braid_container(job, struct braid_qp, end));
}

struct braid_qp *braid_qp_new(struct braid_ibport *p, struct braid_dev *dev)
{
	struct braid_qp *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->port = p;
	w->dev = dev;
	atomic_store(&w->users, 1);
	w->end = (struct braid_job){ .what = "to destroy a queue pair", .run = end_run };
	return w;
}

void braid_qp_free(struct braid_qp *w)
{
	if (!w)
		return;
	atomic_store(&w->gone, true);
	braid_qp_fence(w);
	braid_qp_put(w);
}
