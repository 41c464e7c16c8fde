/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * responder.c - takes requests: checks their rights, does them, and answers.
 */
#include "tests/fake/nic.h"

static void respond(struct fqp *qp, struct rec *r)
{
	struct rec *at;

	if (!path_works(qp) || (lose_one(qp) && !is_iwarp(qp)))
		return;
	at = ring_reserve(&qp->fab->resp, 0);
	if (!at)
		return;			/* req_in() has made sure of room */
	r->bytes = 0;
	*at = *r;
	ring_commit(&qp->fab->resp, 0);
	kick_peer(qp);
}

static void ack(struct fqp *qp)
{
	struct rec r = plain_rec(qp);

	r.op = REC_ACK;
	r.psn = psn_add(qp->epsn, 0xffffff);
	fab_count(qp->slot, C_ACKS, 1);
	respond(qp, &r);
}

static void nak(struct fqp *qp, enum syndrome why)
{
	struct rec r = plain_rec(qp);

	r.op = REC_NAK;
	r.syndrome = (uint8_t)why;
	r.psn = qp->epsn;
	r.imm = qp->attr.min_rnr_timer;
	respond(qp, &r);
}

/* Rejects a request, which ends the connection; status: of the receive that it used, if any. */
static void refuse(struct fqp *qp, enum syndrome why, enum ibv_wc_status status)
{
	if (is_iwarp(qp)) {
		if (qp->cur_used && status) {
			qp->cur_used = false;
			recv_done(qp, &qp->cur, status, 0, 0, 0, false, false);
		}
		terminate(qp);
		return;
	}
	nak(qp, why);
	if (qp->cur_used && status) {
		qp->cur_used = false;
		recv_done(qp, &qp->cur, status, 0, 0, 0, false, false);
		qp_error(qp);
		return;
	}
	qp_error(qp);
	ctx_event(qp->ctx, why == NAK_ACCESS ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR, qp, 0);
}

/* Takes a receive for this message.  False: none is posted; the peer gets an RNR NAK, or its end. */
static bool take_recv(struct fqp *qp)
{
	if (qp->cur_used)
		return true;
	if (qp->ibv.srq) {
		qp->cur.sge = qp->rq[0].sge;
		qp->cur_used = srq_take(TO(fsrq, qp->ibv.srq), &qp->cur);
	} else if (qp->rq_head != qp->rq_tail) {
		qp->cur = qp->rq[qp->rq_head++ % qp->rq_size];
		qp->cur_used = true;
	}
	if (qp->cur_used)
		return true;
	if (is_iwarp(qp)) {
		terminate(qp);
	} else {
		nak(qp, NAK_RNR);
		qp->nak_sent = true;
	}
	return false;
}

static void finish_recv(struct fqp *qp, const struct rec *r, bool rdma)
{
	bool imm = r->flags & REC_IMM;

	qp->cur_used = false;
	recv_done(qp, &qp->cur, IBV_WC_SUCCESS, (uint32_t)r->msg_len, imm ? IBV_WC_WITH_IMM : 0,
		  imm ? r->imm : 0, rdma, r->flags & REC_SOLICITED);
}

static bool take_send(struct fqp *qp, const struct rec *r, uint8_t *data)
{
	if (!take_recv(qp))
		return false;
	if (r->off + r->bytes > sge_len(&qp->cur)) {
		refuse(qp, NAK_INV_REQ, IBV_WC_LOC_LEN_ERR);
		return false;
	}
	if (!sge_copy(qp->ibv.pd, qp->cur.sge, qp->cur.num_sge, r->off, data, r->bytes, true,
		      IBV_ACCESS_LOCAL_WRITE)) {
		refuse(qp, NAK_OP, IBV_WC_LOC_PROT_ERR);
		return false;
	}
	if (r->flags & REC_LAST)
		finish_recv(qp, r, false);
	return true;
}

static bool take_write(struct fqp *qp, const struct rec *r, const uint8_t *data)
{
	uint8_t *to = NULL;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_WRITE)) {
		refuse(qp, NAK_INV_REQ, 0);
		return false;
	}
	if (r->flags & REC_IMM && !take_recv(qp))
		return false;
	if (r->msg_len) {
		mr_enter();
		/* check the whole message first, since its header has the length */
		if (mr_at(qp->ibv.pd, r->rkey, r->va, r->msg_len, IBV_ACCESS_REMOTE_WRITE))
			to = mr_at(qp->ibv.pd, r->rkey, r->va + r->off, r->bytes, IBV_ACCESS_REMOTE_WRITE);
		if (to)
			mr_write(qp->ibv.pd, r->rkey, to, data, r->bytes);
		mr_leave();
		if (!to) {
			refuse(qp, NAK_ACCESS, 0);
			return false;
		}
	}
	if (r->flags & REC_IMM)
		finish_recv(qp, r, true);
	return true;
}

static bool take_read(struct fqp *qp, const struct rec *r)
{
	bool good;

	if (!(qp->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ) ||
	    r->rd_out > qp->attr.max_dest_rd_atomic) {
		refuse(qp, NAK_INV_REQ, 0);
		return false;
	}
	mr_enter();
	good = !r->msg_len || mr_at(qp->ibv.pd, r->rkey, r->va, r->msg_len, IBV_ACCESS_REMOTE_READ);
	mr_leave();
	if (!good) {
		refuse(qp, NAK_ACCESS, 0);
		return false;
	}
	qp->rd.on = true;
	qp->rd.va = r->va;
	qp->rd.len = r->msg_len;
	qp->rd.off = 0;
	qp->rd.key = r->rkey;
	qp->rd.psn = r->psn;
	return true;
}

/* Sends data of the READ under way, as far as the ring has room.  True: it had too little. */
static bool read_out(struct fqp *qp)
{
	uint32_t mtu = mtu_bytes(qp->attr.path_mtu);

	while (qp->rd.on) {
		uint64_t left = qp->rd.len - qp->rd.off;
		uint32_t bytes = left < PIECE_MAX ? (uint32_t)left : PIECE_MAX;
		struct rec r = plain_rec(qp), *at = ring_reserve(&qp->fab->resp, bytes);
		uint8_t *from;

		if (!at)
			return true;
		r.op = REC_READ_RESP;
		r.psn = qp->rd.psn;
		r.bytes = bytes;
		r.packets = bytes ? (bytes + mtu - 1) / mtu : 1;
		if (bytes) {
			mr_enter();
			mr_settle();
			from = mr_at(qp->ibv.pd, qp->rd.key, qp->rd.va + qp->rd.off, bytes,
				     IBV_ACCESS_REMOTE_READ);
			if (from)
				place((uint8_t *)(at + 1), from, bytes);
			mr_leave();
			if (!from) {
				qp->rd.on = false;
				refuse(qp, NAK_ACCESS, 0);
				return false;
			}
		}
		if (path_works(qp) && !(lose_one(qp) && !is_iwarp(qp))) {
			*at = r;
			ring_commit(&qp->fab->resp, bytes);
			kick_peer(qp);
		}
		qp->rd.off += bytes;
		qp->rd.psn = psn_add(qp->rd.psn, r.packets);
		qp->rd.on = qp->rd.off < qp->rd.len;
	}
	return false;
}

static void take_request(struct fqp *qp, struct rec *at)
{
	struct rec r = *at;
	uint8_t *data = (uint8_t *)(at + 1);
	int32_t late = psn_diff(qp->epsn, r.psn);
	bool good;

	if (late > 0 && r.op == REC_READ) {
		if (!qp->rd.on)
			take_read(qp, &r);
		return;
	}
	if (late > 0 && (uint32_t)late >= r.packets) {
		ack(qp);		/* a duplicate */
		return;
	}
	if (late > 0) {			/* its start is a duplicate */
		uint32_t skip = (uint32_t)late * mtu_bytes(qp->attr.path_mtu);

		r.off += skip;
		r.bytes -= skip;
		data += skip;
		r.packets -= (uint32_t)late;
		r.flags &= (uint8_t)~REC_FIRST;
	} else if (late < 0) {
		if (!qp->nak_sent)
			nak(qp, NAK_PSN);
		qp->nak_sent = true;
		return;
	}
	qp->nak_sent = false;
	qp->mpa_wait = false;
	if (qp->ibv.state == IBV_QPS_RTR && !qp->established) {
		qp->established = true;
		ctx_event(qp->ctx, IBV_EVENT_COMM_EST, qp, 0);
	}
	if (r.op == REC_READ)
		good = take_read(qp, &r);
	else if (r.op == REC_SEND)
		good = take_send(qp, &r, data);
	else
		good = take_write(qp, &r, data);
	if (!good)
		return;
	qp->epsn = psn_add(qp->epsn, r.packets);
	if (r.op != REC_READ)
		ack(qp);
}

bool req_in(struct fqp *qp)
{
	struct fab_qp *peer = peer_of(qp);
	struct ring *ring = &peer->req;
	unsigned n;

	if (qp->rd.on && read_out(qp))
		return false;		/* the peer kicks us when it has made room */
	if (ring_idle(ring) || !ring_lock(ring, qp->ctx->nic))
		return false;
	route(qp);
	for (n = 0; n < BUDGET && qp->ibv.state != IBV_QPS_ERR && !qp->rd.on; n++) {
		struct rec *r = ring_peek(ring);
		bool ours = atomic_load(&peer->dest_qpn) == qp->ibv.qp_num &&
			    atomic_load(&peer->qpn) == qp->attr.dest_qp_num;

		if (!r || !ours || !ring_reserve(&qp->fab->resp, 0) || is_delayed(qp, r) ||
		    (is_iwarp(qp) && !path_works(qp)))
			break;
		if (r->dst_qpn == qp->ibv.qp_num && r->src_qpn == qp->attr.dest_qp_num && path_works(qp))
			take_request(qp, r);
		if (qp->rd.on)
			read_out(qp);
		ring_pop(ring);
	}
	ring_unlock(ring);
	return n == BUDGET;
}
