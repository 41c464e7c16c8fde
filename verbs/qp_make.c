/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * qp_make.c - making and destroying the NIC's objects for a lane: the queue pair, its completion
 * queue and channel; and posting receives.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "verbs/qp.h"
#include "verbs/sigpipe.h"

int braid_qp_failed(struct braid_qp *w, const char *call, int err)
{
	if (err)
		w->failed = call;
	return err;
}

/* Each vector is an interrupt: spread queues over them, and start elsewhere in each process. */
static int next_vector(const struct ibv_context *ctx)
{
	static atomic_uint next;
	unsigned n = ctx->num_comp_vectors > 1 ? (unsigned)ctx->num_comp_vectors : 1;

	return (int)((atomic_fetch_add(&next, 1) + (unsigned)getpid()) % n);
}

static int qp_cq(struct braid_qp *w)
{
	int cqe = (int)w->sq_max + BRAID_SLOTS_RX;

	w->channel = braid_ibv.create_comp_channel(w->port->ctx);
	if (!w->channel)
		return braid_qp_failed(w, "ibv_create_comp_channel", errno ? -errno : -EIO);
	braid_os->note(w->channel->fd, true);
	fcntl(w->channel->fd, F_SETFL, fcntl(w->channel->fd, F_GETFL) | O_NONBLOCK);
	w->cq = braid_ibv.create_cq(w->port->ctx, cqe, w, w->channel,
				    next_vector(w->port->ctx));
	return braid_qp_failed(w, "ibv_create_cq", w->cq ? 0 : errno ? -errno : -EIO);
}

/* Warns that `what` can't be made, with the device's limits, and how to raise memlock. */
static int warn_limit(const struct braid_qp *w, const char *what, int err)
{
	static struct braid_log_gate gate;
	struct ibv_device_attr attr = { 0 };

	if (!braid_log_gate_open(&gate, braid_os->now_ns()))
		return err;
	braid_ibv.query_device(w->port->ctx, &attr);
	braid_warn("port %s: can't have a %s: %s; the device has at most %d queue pairs, %d "
		   "completion queues of %d entries and %d registrations for all processes%s "
		   "[rdma-limit]",
		   w->port->name, what, strerror(-err), attr.max_qp, attr.max_cq, attr.max_cqe,
		   attr.max_mr,
		   err == -ENOMEM ? "; or memlock is short: ulimit -l unlimited" : "");
	return err;
}

int braid_qp_create(struct braid_qp *w)
{
	static const unsigned inlines[] = { BRAID_INLINE, 128, 80, 64, 0 };
	struct ibv_qp_init_attr a;
	int err = 0;

	/* Devices do not report how many bytes they take inline: try. */
	for (unsigned i = 0; i < sizeof(inlines) / sizeof(inlines[0]); i++) {
		a = (struct ibv_qp_init_attr){
			.send_cq = w->cq, .recv_cq = w->cq, .qp_type = IBV_QPT_RC,
			.srq = w->srq ? w->srq->srq : NULL, .qp_context = w,
			.cap = {
				.max_send_wr = w->sq_max, .max_send_sge = 1,
				.max_recv_wr = w->srq ? 0 : BRAID_SLOTS_RX,
				.max_recv_sge = w->srq ? 0 : 1,
				.max_inline_data = inlines[i],
			},
		};
		errno = 0;
		if (w->id) {
			err = braid_rdma.create_qp(w->id, w->m->pd, &a) ?
				      errno ? -errno : -EIO : 0;
			w->qp = err ? NULL : w->id->qp;
		} else {
			w->qp = braid_ibv.create_qp(w->m->pd, &a);
			err = w->qp ? 0 : errno ? -errno : -EIO;
		}
		if (!err)
			break;
	}
	if (err)
		return warn_limit(w, "queue pair", braid_qp_failed(w, "ibv_create_qp", err));
	w->inline_max = a.cap.max_inline_data;
	return 0;
}

void braid_qp_destroy(struct braid_qp *w)
{
	struct braid_sigpipe h;

	braid_sigpipe_block(w->port, &h);
	if (w->qp && w->id)
		braid_rdma.destroy_qp(w->id);
	else if (w->qp)
		braid_ibv.destroy_qp(w->qp);
	braid_sigpipe_unblock(&h);
	w->qp = NULL;
}

static bool is_spread(const struct braid_ibport *p)
{
	return braid_param.ib_adaptive_routing < 0 ? p->fabric == BRAID_FABRIC_IB :
						     braid_param.ib_adaptive_routing;
}

/* -ECANCELED if the owner has dropped its reference, perhaps while the NIC was busy; else 0. */
int braid_qp_check_owner(const struct braid_qp *w)
{
	return atomic_load(&w->gone) ? -ECANCELED : 0;
}

int braid_qp_fill(struct braid_qp *w, bool loop)
{
	struct braid_ibport *p = w->port;
	int err = loop ? 0 : braid_srq_join(p, &w->srq);

	w->gid = BRAID_GID_NONE;
	w->sq_max = p->sq_max;
	/*
	 * With adaptive routing, switches choose a path for each packet, but only for WRITEs that
	 * have no immediate data.  So the notice of a large WRITE follows it as a SEND.
	 */
	w->imm_max = !p->imm ? 0 : is_spread(p) ? (uint32_t)braid_param.ib_ar_threshold :
						  UINT32_MAX;
	if (w->imm_max > p->max_msg)
		w->imm_max = p->max_msg;
	if (!err)
		w->m = braid_qp_memory(p, !w->srq, loop);
	err = w->m ? braid_qp_check_owner(w) : braid_qp_failed(w, "ibv_reg_mr", -ENOMEM);
	if (!err)
		err = qp_cq(w);
	if (err && err != -ECANCELED)
		warn_limit(w, "completion queue or its memory", err);
	if (!err)
		err = braid_qp_check_owner(w);
	if (!err && p->fabric != BRAID_FABRIC_IWARP)
		err = braid_qp_create(w);
	return err;
}

BRAID_APART int braid_qp_post_recv(struct braid_qp *w, struct ibv_recv_wr *first)
{
	struct ibv_recv_wr *bad;

	return -(w->srq ? ibv_post_srq_recv(w->srq->srq, first, &bad) :
			  ibv_post_recv(w->qp, first, &bad));
}

int braid_qp_post_all(struct braid_qp *w)
{
	int err = w->srq ? 0 : braid_qp_post_recv(w, braid_slots_chain(w->m->slots));

	if (!err && w->m->more)
		err = braid_qp_post_recv(w, braid_slots_chain(w->m->more));
	return braid_qp_failed(w, "ibv_post_recv", err);
}
