/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * qp.c - queue pairs: making them, their states, posting to them.
 *
 * A table says which attributes each change of state needs and allows: the specification's, for RC.
 * A queue pair that fails has taken a receive of its shared queue in advance, as some NICs do.  It
 * gives that back a little later, with the event that it was the last.  If it is destroyed before,
 * this receive is lost, and so are those whose completions were not polled.
 * The states of iWARP queue pairs are changed by rdma_cm alone (fake_qp_start).
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { LAST_NS = 1000000 };

uint32_t mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

/* --- states ------------------------------------------------------------------------------------- */

enum {
	ACCESS = IBV_QP_ACCESS_FLAGS, PKEY = IBV_QP_PKEY_INDEX, ALT = IBV_QP_ALT_PATH,
	CUR = IBV_QP_CUR_STATE, RNR = IBV_QP_MIN_RNR_TIMER, MIG = IBV_QP_PATH_MIG_STATE,
};

static const struct transition {
	enum ibv_qp_state from, to;
	int required, optional;
} transitions[] = {
	{ IBV_QPS_RESET, IBV_QPS_INIT, PKEY | IBV_QP_PORT | ACCESS, 0 },
	{ IBV_QPS_INIT, IBV_QPS_INIT, 0, PKEY | IBV_QP_PORT | ACCESS },
	{ IBV_QPS_INIT, IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | RNR, ALT | ACCESS | PKEY },
	{ IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC, CUR | ALT | ACCESS | RNR | MIG },
	{ IBV_QPS_RTS, IBV_QPS_RTS, 0, CUR | ACCESS | ALT | MIG | RNR },
	{ IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY },
	{ IBV_QPS_SQD, IBV_QPS_RTS, 0, CUR | ALT | ACCESS | RNR | MIG },
	{ IBV_QPS_SQD, IBV_QPS_SQD, 0, IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | ALT | ACCESS | PKEY | RNR | MIG },
};

static const struct transition *find_transition(enum ibv_qp_state from, enum ibv_qp_state to)
{
	static const struct transition to_any[] = {
		{ IBV_QPS_RESET, IBV_QPS_RESET, 0, 0 }, { IBV_QPS_RESET, IBV_QPS_ERR, 0, 0 },
	};

	if (to == IBV_QPS_RESET)
		return &to_any[0];
	if (to == IBV_QPS_ERR)
		return &to_any[1];
	for (unsigned i = 0; i < sizeof(transitions) / sizeof(transitions[0]); i++)
		if (transitions[i].from == from && transitions[i].to == to)
			return &transitions[i];
	return NULL;
}

static bool av_is_valid(const struct fqp *qp, const struct ibv_ah_attr *av, uint32_t *ret_type)
{
	const struct fdev *d = qp->ctx->dev;
	const struct fab_gid *g;
	bool good;

	*ret_type = IBV_GID_TYPE_IB;
	if (av->port_num != qp->attr.port_num || av->sl > 15)
		return false;
	if (d->kind == KIND_IB && (av->dlid < 1 || av->dlid > 0xbfff))
		return false;
	if (d->kind != KIND_IB && !av->is_global)
		return false;
	if (!av->is_global)
		return !d->has_grh;
	if (av->grh.sgid_index >= GIDS_MAX || av->grh.flow_label > 0xfffff)
		return false;
	fab_lock();
	g = &fab_port(PORT_ID(d->index, av->port_num))->gid[av->grh.sgid_index];
	good = g->used;
	*ret_type = g->type;
	fab_unlock();
	return good;
}

static bool values_are_valid(const struct fqp *qp, const struct ibv_qp_attr *a, int mask)
{
	const struct fdev *d = qp->ctx->dev;
	const unsigned rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	uint32_t port = mask & IBV_QP_PORT ? a->port_num : qp->attr.port_num;
	uint32_t mtu = port && port <= d->nports ?
			       atomic_load(&fab_port(PORT_ID(d->index, port))->mtu) : d->mtu;

	return !((mask & IBV_QP_PORT && (a->port_num < 1 || a->port_num > d->nports)) ||
		 (mask & PKEY && a->pkey_index >= d->npkeys) ||
		 (mask & ACCESS && a->qp_access_flags & ~rights) ||
		 (mask & IBV_QP_PATH_MTU && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096 ||
					     mtu_bytes(a->path_mtu) > mtu)) ||
		 (mask & IBV_QP_RQ_PSN && a->rq_psn > 0xffffff) ||
		 (mask & IBV_QP_SQ_PSN && a->sq_psn > 0xffffff) ||
		 (mask & IBV_QP_DEST_QPN && (a->dest_qp_num > 0xffffff || a->dest_qp_num < 2)) ||
		 (mask & IBV_QP_MAX_QP_RD_ATOMIC && a->max_rd_atomic > d->max.max_rd) ||
		 (mask & IBV_QP_MAX_DEST_RD_ATOMIC && a->max_dest_rd_atomic > d->max.max_rd) ||
		 (mask & IBV_QP_TIMEOUT && a->timeout > 31) || (mask & IBV_QP_RETRY_CNT && a->retry_cnt > 7) ||
		 (mask & IBV_QP_RNR_RETRY && a->rnr_retry > 7) || (mask & RNR && a->min_rnr_timer > 31));
}

static void take_values(struct fqp *qp, const struct ibv_qp_attr *a, int mask)
{
	struct ibv_qp_attr *to = &qp->attr;

	if (mask & PKEY) {
		to->pkey_index = a->pkey_index;
		atomic_store(&qp->fab->pkey, qp->ctx->dev->pkey[a->pkey_index]);
	}
	if (mask & IBV_QP_PORT) {
		to->port_num = a->port_num;
		atomic_store(&qp->fab->port, PORT_ID(qp->ctx->dev->index, a->port_num));
	}
	if (mask & ACCESS)
		to->qp_access_flags = a->qp_access_flags;
	if (mask & IBV_QP_AV)
		to->ah_attr = a->ah_attr;
	if (mask & IBV_QP_PATH_MTU) {
		to->path_mtu = a->path_mtu;
		atomic_store(&qp->fab->mtu, (uint32_t)a->path_mtu);
	}
	if (mask & IBV_QP_DEST_QPN) {
		to->dest_qp_num = a->dest_qp_num;
		atomic_store(&qp->fab->dest_qpn, a->dest_qp_num);
	}
	if (mask & IBV_QP_RQ_PSN)
		qp->epsn = to->rq_psn = a->rq_psn;
	if (mask & IBV_QP_SQ_PSN)
		qp->psn = qp->una_psn = to->sq_psn = a->sq_psn;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = a->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = a->max_dest_rd_atomic;
	if (mask & RNR)
		to->min_rnr_timer = a->min_rnr_timer;
	if (mask & IBV_QP_TIMEOUT)
		to->timeout = a->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		qp->retries = to->retry_cnt = a->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		qp->rnr_retries = to->rnr_retry = a->rnr_retry;
}

void qp_set_state(struct fqp *qp, enum ibv_qp_state state)
{
	qp->ibv.state = state;
	qp->attr.qp_state = state;
	atomic_store(&qp->fab->state, (uint32_t)state);
}

/* To RESET: nothing is posted, in flight, or left to be polled. */
static void qp_reset(struct fqp *qp)
{
	qp_set_state(qp, IBV_QPS_RESET);
	ring_clear(&qp->fab->req, qp->ctx->nic);
	ring_clear(&qp->fab->resp, qp->ctx->nic);
	cq_clean(TO(fcq, qp->ibv.send_cq), qp);
	cq_clean(TO(fcq, qp->ibv.recv_cq), qp);
	if (qp->cur_used && qp->ibv.srq)
		atomic_fetch_sub(&TO(fsrq, qp->ibv.srq)->held, 1);
	memset(&qp->attr, 0, sizeof(qp->attr));
	atomic_store(&qp->fab->dest_qpn, 0);
	atomic_store(&qp->fab->dst_port, PORT_NONE);
	atomic_store(&qp->fab->force, 0);
	qp->sq_tail = qp->sq_next = qp->sq_una = qp->sq_off = qp->rd_out = 0;
	qp->rq_tail = qp->rq_head = 0;
	atomic_store(&qp->sq_polled, 0);
	atomic_store(&qp->rq_polled, 0);
	qp->rnr_until = qp->timer = qp->due = qp->last_at = 0;
	atomic_store(&qp->wake, 0);
	qp->established = qp->cur_used = qp->nak_sent = qp->rd.on = false;
	qp->draining = qp->last_wqe = qp->mpa_wait = false;
	qp->routes = 0;
}

static void flush_sends(struct fqp *qp)
{
	qp->sq_next = qp->sq_tail;
	while (qp->sq_una != qp->sq_tail)
		send_done(qp, IBV_WC_WR_FLUSH_ERR);
}

void qp_last_wqe(struct fqp *qp)
{
	qp->last_at = 0;
	qp->last_wqe = true;
	if (!qp->ctx->dev->has_last_wqe)
		return;
	if (qp->cur_used)
		recv_done(qp, &qp->cur, IBV_WC_WR_FLUSH_ERR, 0, 0, 0, false, false);
	qp->cur_used = false;
	ctx_event(qp->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, qp, 0);
}

/* Strict: a queue pair that could not yet receive reports no last receive. */
static void flush_shared(struct fqp *qp, bool received)
{
	if (!received || qp->last_wqe || qp->last_at)
		return;
	if (!qp->cur_used) {
		qp->cur.sge = qp->rq[0].sge;
		qp->cur_used = srq_take(TO(fsrq, qp->ibv.srq), &qp->cur);
	}
	qp->last_at = now_ns() + LAST_NS;
	fab_kick(qp->slot);		/* its thread sets the timer */
}

static void flush_recvs(struct fqp *qp)
{
	if (qp->cur_used) {
		qp->cur_used = false;
		recv_done(qp, &qp->cur, IBV_WC_WR_FLUSH_ERR, 0, 0, 0, false, false);
	}
	while (qp->rq_head != qp->rq_tail) {
		struct rwqe *w = &qp->rq[qp->rq_head++ % qp->rq_size];

		recv_done(qp, w, IBV_WC_WR_FLUSH_ERR, 0, 0, 0, false, false);
	}
}

void qp_error(struct fqp *qp)
{
	bool received = qp->ibv.state >= IBV_QPS_RTR;

	qp_set_state(qp, IBV_QPS_ERR);
	qp->timer = qp->rnr_until = qp->due = 0;
	atomic_store(&qp->wake, 0);
	qp->rd.on = false;
	flush_sends(qp);
	if (qp->ibv.srq)
		flush_shared(qp, received);
	else
		flush_recvs(qp);
	if (qp->cm_fd >= 0)
		shutdown(qp->cm_fd, SHUT_RDWR);
}

/* --- options that both ends agree on (ECE) ------------------------------------------------------- */

static atomic_uint last_ece, last_dlid;

long qp_ece(void)
{
	return (long)atomic_load(&last_ece);
}

long qp_dlid(void)
{
	return (long)atomic_load(&last_dlid);
}

/* The options asked for that this NIC has; none if none were set. */
static void ece_accept(struct fqp *qp)
{
	qp->ece = qp->ece_set ? qp->ece & qp->ctx->dev->ece : 0;
	atomic_store(&last_ece, qp->ece);
}

EXPORT int ibv_query_ece(struct ibv_qp *ibv, struct ibv_ece *ece)
{
	struct fqp *qp = TO(fqp, ibv);

	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(ibv->context))
		return errno;
	if (!qp->ctx->dev->ece)
		return EOPNOTSUPP;
	*ece = (struct ibv_ece){
		.vendor_id = 0xfa4e,
		.options = ibv->state < IBV_QPS_RTR ? qp->ctx->dev->ece : qp->ece,
	};
	return 0;
}

EXPORT int ibv_set_ece(struct ibv_qp *ibv, struct ibv_ece *ece)
{
	struct fqp *qp = TO(fqp, ibv);

	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(ibv->context))
		return errno;
	if (!qp->ctx->dev->ece || ece->comp_mask)
		return EOPNOTSUPP;
	if (ece->vendor_id != 0xfa4e || ibv->state >= IBV_QPS_RTR)
		return EINVAL;
	qp->ece = ece->options;
	qp->ece_set = true;
	return 0;
}

static const char *to_name(const struct ibv_qp_attr *a, int mask)
{
	static const char *const names[] = {
		[IBV_QPS_RESET] = "ibv_modify_qp:RESET", [IBV_QPS_INIT] = "ibv_modify_qp:INIT",
		[IBV_QPS_RTR] = "ibv_modify_qp:RTR", [IBV_QPS_RTS] = "ibv_modify_qp:RTS",
		[IBV_QPS_ERR] = "ibv_modify_qp:ERR",
	};
	unsigned to = mask & IBV_QP_STATE ? a->qp_state : IBV_QPS_UNKNOWN;

	return to < sizeof(names) / sizeof(names[0]) && names[to] ? names[to] : "ibv_modify_qp";
}

EXPORT int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct fqp *qp = TO(fqp, ibv);
	enum ibv_qp_state to;
	const struct transition *t;
	uint32_t gid_type = IBV_GID_TYPE_IB;
	int rest, err = EINVAL;

	call_takes(ibv->context, to_name(attr, mask));
	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(ibv->context))
		return errno;
	pthread_mutex_lock(&qp->lock);
	to = mask & IBV_QP_STATE ? attr->qp_state : ibv->state;
	if (mask & CUR && attr->cur_qp_state != ibv->state)
		goto out;
	t = find_transition(ibv->state, to);
	rest = mask & ~IBV_QP_STATE;
	if (!t || (t->required & ~rest) || (rest & ~(t->required | t->optional)))
		goto out;
	/* iWARP: rdma_cm changes the state */
	if (qp->ctx->dev->kind == KIND_IWARP && to != IBV_QPS_ERR &&
	    !(ibv->state == IBV_QPS_RTS && to == IBV_QPS_SQD))
		goto out;
	if (!values_are_valid(qp, attr, mask))
		goto out;
	if (mask & IBV_QP_AV && !av_is_valid(qp, &attr->ah_attr, &gid_type))
		goto out;
	err = 0;
	if (to == IBV_QPS_RESET) {
		qp_reset(qp);
		goto out;
	}
	take_values(qp, attr, mask);
	if (mask & IBV_QP_AV) {
		atomic_store(&qp->fab->gid_type, gid_type);
		atomic_store(&last_dlid, attr->ah_attr.dlid);
		ece_accept(qp);
	}
	qp->routes = 0;
	if (to == IBV_QPS_ERR && ibv->state != IBV_QPS_ERR) {
		qp_error(qp);
	} else {
		qp->draining = to == IBV_QPS_SQD && ibv->state == IBV_QPS_RTS &&
			       mask & IBV_QP_EN_SQD_ASYNC_NOTIFY && attr->en_sqd_async_notify;
		qp_set_state(qp, to);
		qp_run(qp);
	}
out:
	pthread_mutex_unlock(&qp->lock);
	return err;
}

EXPORT int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init)
{
	struct fqp *qp = TO(fqp, ibv);

	(void)mask;
	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(ibv->context))
		return errno;
	pthread_mutex_lock(&qp->lock);
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = ibv->state;
	attr->cap = qp->cap;
	attr->sq_psn = qp->psn;
	attr->rq_psn = qp->epsn;
	attr->sq_draining = ibv->state == IBV_QPS_SQD && qp->sq_una != qp->sq_next;
	pthread_mutex_unlock(&qp->lock);
	*init = (struct ibv_qp_init_attr){
		.qp_context = ibv->qp_context, .send_cq = ibv->send_cq, .recv_cq = ibv->recv_cq,
		.srq = ibv->srq, .cap = qp->cap, .qp_type = ibv->qp_type, .sq_sig_all = qp->sig_all,
	};
	return 0;
}

/* The fake NICs have no extended posting. */
EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	(void)qp;
	return NULL;
}

/* --- making and ending them --------------------------------------------------------------------- */

static void queues_free(struct fqp *qp)
{
	if (qp->sq) {
		free(qp->sq[0].sge);
		free(qp->sq[0].inl);
	}
	if (qp->rq)
		free(qp->rq[0].sge);
	free(qp->sq);
	free(qp->rq);
}

/* Allocates the slots, with one block for all scatter lists and one for inline data. */
static bool queues_alloc(struct fqp *qp, uint32_t srq_sge)
{
	uint32_t ns = qp->cap.max_send_wr, nr = qp->cap.max_recv_wr;
	uint32_t ssge = qp->cap.max_send_sge, rsge = qp->cap.max_recv_sge, inl = qp->cap.max_inline_data;

	qp->sq_size = ns;
	qp->rq_size = nr;
	qp->sq = calloc(ns + 1, sizeof(*qp->sq));
	qp->rq = calloc(nr + 1, sizeof(*qp->rq));
	if (!qp->sq || !qp->rq)
		return false;
	qp->sq[0].sge = calloc((size_t)ns * ssge + 1, sizeof(struct ibv_sge));
	qp->sq[0].inl = calloc((size_t)ns * inl + 1, 1);
	/* with a shared queue: room for the one scatter list in use */
	qp->rq[0].sge = calloc((size_t)nr * rsge + srq_sge + 1, sizeof(struct ibv_sge));
	if (!qp->sq[0].sge || !qp->sq[0].inl || !qp->rq[0].sge)
		return false;
	for (uint32_t i = 1; i < ns; i++) {
		qp->sq[i].sge = qp->sq[0].sge + (size_t)i * ssge;
		qp->sq[i].inl = qp->sq[0].inl + (size_t)i * inl;
	}
	for (uint32_t i = 1; i < nr; i++)
		qp->rq[i].sge = qp->rq[0].sge + (size_t)i * rsge;
	return true;
}

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct fctx *c = to_ctx(pd->context);
	const struct limits *max = &c->dev->max;
	struct ibv_qp_cap *cap = &init->cap;
	struct fqp *qp;
	int slot;

	call_takes(pd->context, __func__);
	if (call_fails(CALL_SETUP, __func__) || ctx_is_dead(pd->context))
		return NULL;
	errno = EINVAL;
	if (!init->send_cq || !init->recv_cq || init->send_cq->context != pd->context ||
	    init->recv_cq->context != pd->context || cap->max_send_wr > max->max_wr ||
	    cap->max_send_sge > max->max_sge || cap->max_inline_data > max->max_inline)
		return NULL;
	if (init->srq && atomic_load(&TO(fsrq, init->srq)->broken))
		return NULL;
	if (!init->srq && (cap->max_recv_wr > max->max_wr || cap->max_recv_sge > max->max_sge))
		return NULL;
	if (init->qp_type != IBV_QPT_RC || c->dev->kind == KIND_EFA) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	errno = ENOMEM;
	if (atomic_fetch_add(&c->dev->qps, 1) >= max->max_qp) {
		atomic_fetch_sub(&c->dev->qps, 1);
		return NULL;
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		goto no_qp;
	if (init->srq)
		cap->max_recv_wr = cap->max_recv_sge = 0;
	qp->cap = *cap;
	if (!queues_alloc(qp, init->srq ? TO(fsrq, init->srq)->max_sge : 0))
		goto no_queues;
	slot = fab_qp_take(c->nic);
	if (slot < 0)
		goto no_queues;
	qp->slot = (unsigned)slot;
	qp->fab = &fab_get()->qp[slot];
	qp->ctx = c;
	qp->sig_all = init->sq_sig_all;
	qp->cm_fd = -1;
	qp->ibv = (struct ibv_qp){
		.context = pd->context, .qp_context = init->qp_context, .pd = pd, .send_cq = init->send_cq,
		.recv_cq = init->recv_cq, .srq = init->srq, .handle = (uint32_t)slot,
		.qp_num = atomic_load(&qp->fab->qpn), .state = IBV_QPS_RESET, .qp_type = init->qp_type,
	};
	pthread_mutex_init(&qp->lock, NULL);
	pthread_mutex_init(&qp->ibv.mutex, NULL);
	pthread_cond_init(&qp->ibv.cond, NULL);
	atomic_fetch_add(&TO(fpd, pd)->users, 1);
	atomic_fetch_add(&TO(fcq, init->send_cq)->users, 1);
	atomic_fetch_add(&TO(fcq, init->recv_cq)->users, 1);
	if (init->srq)
		atomic_fetch_add(&TO(fsrq, init->srq)->users, 1);
	pthread_mutex_lock(&c->lock);
	c->qp[slot] = qp;
	pthread_mutex_unlock(&c->lock);
	atomic_fetch_add(&live_qp, 1);
	return &qp->ibv;
no_queues:
	queues_free(qp);
	free(qp);
no_qp:
	atomic_fetch_sub(&c->dev->qps, 1);
	errno = ENOMEM;
	return NULL;
}

struct fqp *qp_get(struct fctx *c, unsigned slot)
{
	struct fqp *qp;

	pthread_mutex_lock(&c->lock);
	qp = c->qp[slot];
	if (qp)
		qp->refs++;
	pthread_mutex_unlock(&c->lock);
	return qp;
}

void qp_put(struct fqp *qp)
{
	struct fctx *c = qp->ctx;

	pthread_mutex_lock(&c->lock);
	if (!--qp->refs && qp->dying)
		pthread_cond_broadcast(&c->gone);
	pthread_mutex_unlock(&c->lock);
}

EXPORT int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct fqp *qp = TO(fqp, ibv);
	struct fctx *c = qp->ctx;

	call_takes(ibv->context, __func__);
	if (!c->dead) {
		pthread_mutex_lock(&c->lock);
		c->qp[qp->slot] = NULL;
		qp->dying = true;
		while (qp->refs)
			pthread_cond_wait(&c->gone, &c->lock);
		pthread_mutex_unlock(&c->lock);
		pthread_mutex_lock(&qp->lock);
		if (qp->cm_fd >= 0)
			shutdown(qp->cm_fd, SHUT_RDWR);
		qp_reset(qp);
		pthread_mutex_unlock(&qp->lock);
		ctx_events_drop(c, qp);
		ctx_events_wait(c, &qp->async_events, &ibv->events_completed);
		fab_qp_give(qp->slot);
	}
	atomic_fetch_sub(&TO(fpd, ibv->pd)->users, 1);
	atomic_fetch_sub(&TO(fcq, ibv->send_cq)->users, 1);
	atomic_fetch_sub(&TO(fcq, ibv->recv_cq)->users, 1);
	if (ibv->srq)
		atomic_fetch_sub(&TO(fsrq, ibv->srq)->users, 1);
	atomic_fetch_sub(&c->dev->qps, 1);
	pthread_mutex_destroy(&qp->lock);
	queues_free(qp);
	free(qp);
	atomic_fetch_sub(&live_qp, 1);
	return 0;
}

/* --- for the fake rdma_cm ----------------------------------------------------------------------- */

int fake_qp_ready(struct ibv_qp *ibv, uint32_t port)
{
	struct fqp *qp = TO(fqp, ibv);
	struct ibv_qp_attr a = {
		.port_num = (uint8_t)port,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	pthread_mutex_lock(&qp->lock);
	take_values(qp, &a, PKEY | IBV_QP_PORT | ACCESS);
	qp_set_state(qp, IBV_QPS_INIT);
	pthread_mutex_unlock(&qp->lock);
	return 0;
}

int fake_qp_start(struct ibv_qp *ibv, uint32_t dest_qpn, uint32_t dst_port, uint32_t psn, uint32_t dest_psn,
		  uint8_t rd_out, uint8_t rd_in, bool passive, int cm_fd)
{
	struct fqp *qp = TO(fqp, ibv);
	struct ibv_qp_attr a = {
		.path_mtu = IBV_MTU_4096, .dest_qp_num = dest_qpn, .rq_psn = dest_psn, .sq_psn = psn,
		.max_rd_atomic = rd_out, .max_dest_rd_atomic = rd_in,
		.timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
	};

	pthread_mutex_lock(&qp->lock);
	take_values(qp, &a, IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN |
		    IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		    IBV_QP_RNR_RETRY);
	atomic_store(&qp->fab->gid_type, IBV_GID_TYPE_IB);
	atomic_store(&qp->fab->dst_port, dst_port);
	qp->mpa_wait = passive;
	qp->cm_fd = cm_fd;
	qp_set_state(qp, IBV_QPS_RTS);
	pthread_mutex_unlock(&qp->lock);
	fab_kick(dest_qpn % QPS_MAX);
	return 0;
}

/* The connection has ended. */
void fake_qp_stop(struct ibv_qp *ibv)
{
	struct fqp *qp = TO(fqp, ibv);

	pthread_mutex_lock(&qp->lock);
	qp->cm_fd = -1;
	if (atomic_load(&qp->fab->force))
		qp_run(qp);		/* takes in why it ended */
	if (qp->ibv.state != IBV_QPS_RESET && qp->ibv.state != IBV_QPS_ERR)
		qp_error(qp);
	pthread_mutex_unlock(&qp->lock);
}

/* --- completions -------------------------------------------------------------------------------- */

/* A failed completion has only wr_id, status and qp_num; the rest is garbage, so that misuse shows. */
static struct ibv_wc wc_of(const struct fqp *qp, uint64_t wr_id, enum ibv_wc_status status)
{
	struct ibv_wc wc = { .wr_id = wr_id, .status = status, .qp_num = qp->ibv.qp_num };

	if (status != IBV_WC_SUCCESS) {
		wc.opcode = (enum ibv_wc_opcode)0x55;
		wc.byte_len = 0xdeadbeef;
		wc.imm_data = 0xdeadbeef;
		wc.wc_flags = 0x55;
		wc.vendor_err = 0xfa;
	}
	return wc;
}

void send_done(struct fqp *qp, enum ibv_wc_status status)
{
	static const enum ibv_wc_opcode opcodes[] = {
		[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE, [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE,
		[IBV_WR_SEND] = IBV_WC_SEND, [IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND,
		[IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
	};
	struct swqe *w = &qp->sq[qp->sq_una % qp->sq_size];
	struct fcqe e = { .wc = wc_of(qp, w->wr.wr_id, status), .qp = qp, .upto = ++qp->sq_una, .send = true };

	if (status == IBV_WC_SUCCESS) {
		e.wc.opcode = opcodes[w->wr.opcode];
		e.wc.byte_len = w->len;
		if (!w->signaled)
			return;
	}
	cq_push(TO(fcq, qp->ibv.send_cq), &e, false);
}

void recv_done(struct fqp *qp, const struct rwqe *w, enum ibv_wc_status status, uint32_t bytes,
	       unsigned flags, uint32_t imm, bool rdma, bool solicited)
{
	struct fcqe e = {
		.wc = wc_of(qp, w->wr_id, status), .qp = qp, .srq = TO(fsrq, qp->ibv.srq), .upto = qp->rq_head,
	};

	if (status == IBV_WC_SUCCESS) {
		e.wc.opcode = rdma ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
		e.wc.byte_len = rdma && qp->ctx->dev->has_imm == 2 ? 0 : bytes;
		e.wc.wc_flags = flags;
		e.wc.imm_data = imm;
		e.wc.src_qp = qp->attr.dest_qp_num;
		fab_count(qp->slot, C_RECVS, 1);
	}
	cq_push(TO(fcq, qp->ibv.recv_cq), &e, solicited);
}

/* --- posting ------------------------------------------------------------------------------------ */

static int send_take(struct fqp *qp, const struct ibv_send_wr *wr)
{
	const struct fdev *d = qp->ctx->dev;
	bool read = wr->opcode == IBV_WR_RDMA_READ, inl = wr->send_flags & IBV_SEND_INLINE;
	struct swqe *w;
	uint64_t len = 0;

	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_SEND:
	case IBV_WR_RDMA_READ:
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_SEND_WITH_IMM:
		if (d->has_imm)
			break;
		return EINVAL;
	default:
		return EINVAL;
	}
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge || (read && inl) ||
	    (read && d->kind == KIND_IWARP && wr->num_sge > 1))
		return EINVAL;
	for (int i = 0; i < wr->num_sge; i++)
		len += wr->sg_list[i].length;
	if (len > d->max.max_msg || (inl && len > qp->cap.max_inline_data))
		return EINVAL;
	if (qp->sq_tail - atomic_load(&qp->sq_polled) >= qp->sq_size)
		return ENOMEM;
	w = &qp->sq[qp->sq_tail % qp->sq_size];
	w->wr = *wr;
	w->wr.next = NULL;
	w->len = (uint32_t)len;
	w->signaled = qp->sig_all || wr->send_flags & IBV_SEND_SIGNALED;
	w->begun = w->done = false;
	len = 0;
	for (int i = 0; i < wr->num_sge; i++) {
		w->sge[i] = wr->sg_list[i];
		if (inl && wr->sg_list[i].length)
			memcpy(w->inl + len, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		len += wr->sg_list[i].length;
	}
	qp->sq_tail++;
	fab_count(qp->slot, C_SENDS, 1);
	if (wr->opcode == IBV_WR_SEND)
		fab_count(qp->slot, C_MESSAGES, 1);
	if (wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		fab_count(qp->slot, C_IMMS, 1);
	if (wr->opcode == IBV_WR_RDMA_READ)
		fab_count(qp->slot, C_READS, 1);
	return 0;
}

int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fqp *qp = TO(fqp, ibv);
	bool over;
	int err = 0;

	*bad = wr;
	if (call_fails(CALL_POST, "ibv_post_send") || ctx_is_dead(ibv->context))
		return errno;
	pthread_mutex_lock(&qp->lock);
	if (ibv->state == IBV_QPS_RESET || ibv->state == IBV_QPS_INIT || ibv->state == IBV_QPS_RTR)
		err = EINVAL;
	for (; !err && wr; wr = wr->next) {
		*bad = wr;
		err = send_take(qp, wr);
	}
	over = ibv->state == IBV_QPS_ERR;
	if (over)
		flush_sends(qp);
	else
		qp_run(qp);
	pthread_mutex_unlock(&qp->lock);
	if (over && qp->ctx->dev->has_sigpipe)
		raise(SIGPIPE);
	return err;
}

int recv_take(struct rwqe *w, const struct ibv_recv_wr *wr, uint32_t max_sge)
{
	if (wr->num_sge < 0 || (uint32_t)wr->num_sge > max_sge)
		return EINVAL;
	w->wr_id = wr->wr_id;
	w->num_sge = wr->num_sge;
	for (int i = 0; i < wr->num_sge; i++)
		w->sge[i] = wr->sg_list[i];
	return 0;
}

int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fqp *qp = TO(fqp, ibv);
	int err = 0;

	*bad = wr;
	if (call_fails(CALL_POST, "ibv_post_recv") || ctx_is_dead(ibv->context))
		return errno;
	pthread_mutex_lock(&qp->lock);
	if (ibv->state == IBV_QPS_RESET || ibv->srq)
		err = EINVAL;
	for (; !err && wr; wr = wr->next) {
		*bad = wr;
		if (qp->rq_tail - atomic_load(&qp->rq_polled) >= qp->rq_size)
			err = ENOMEM;
		else
			err = recv_take(&qp->rq[qp->rq_tail % qp->rq_size], wr, qp->cap.max_recv_sge);
		if (err)
			break;
		qp->rq_tail++;
	}
	if (ibv->state == IBV_QPS_ERR)
		flush_recvs(qp);
	pthread_mutex_unlock(&qp->lock);
	return err;
}
