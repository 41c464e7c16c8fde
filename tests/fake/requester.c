/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * requester.c - sends requests, takes their answers, and retransmits.
 *
 * A request is cut into records of at most PIECE_MAX bytes, each of whole packets.  Numbers (PSN)
 * count packets, as on a wire, and retransmission starts at a packet, too (una_psn).  A record that
 * would reach no receiver is not written: its packets are lost.
 *
 * A lost packet is noticed after the queue pair's timeout.  But records that a live peer has not
 * read yet count as slow and not as lost, so that the tests pass on a busy machine.
 */
#include "tests/fake/nic.h"

/* Completes the requests that are done, in order. */
static void retire(struct fqp *qp)
{
	while (qp->sq_una != qp->sq_next && qp->sq[qp->sq_una % qp->sq_size].done)
		send_done(qp, IBV_WC_SUCCESS);
}

static void fail_oldest(struct fqp *qp, enum ibv_wc_status status)
{
	if (qp->sq_una != qp->sq_tail)
		send_done(qp, status);
	qp_error(qp);
}

static void rewind_to(struct fqp *qp, uint32_t psn)
{
	for (uint32_t i = qp->sq_una; i != qp->sq_next + 1 && i != qp->sq_tail; i++) {
		struct swqe *w = &qp->sq[i % qp->sq_size];
		int32_t d = psn_diff(psn, w->psn);

		if (!w->begun)
			break;
		if (!w->done && d >= 0 && (uint32_t)d < w->packets) {
			qp->sq_next = i;
			qp->sq_off = (uint32_t)d;
			return;
		}
	}
}

/* May the first packet be sent?  Sets the PSNs.  *failed: it never can, with this status. */
static bool begin(struct fqp *qp, struct swqe *w, enum ibv_wc_status *failed)
{
	uint32_t mtu = mtu_bytes(qp->attr.path_mtu);
	bool read = w->wr.opcode == IBV_WR_RDMA_READ;
	unsigned access = !read ? 0 : is_iwarp(qp) ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE :
						     IBV_ACCESS_LOCAL_WRITE;

	*failed = IBV_WC_SUCCESS;
	if (w->wr.send_flags & IBV_SEND_FENCE && qp->rd_out)
		return false;
	if (read && !qp->attr.max_rd_atomic)
		*failed = IBV_WC_LOC_QP_OP_ERR;
	else if (!(w->wr.send_flags & IBV_SEND_INLINE) &&
		 !sge_valid(qp->ibv.pd, w->sge, w->wr.num_sge, access))
		*failed = IBV_WC_LOC_PROT_ERR;
	if (*failed)
		return false;
	if (read && qp->rd_out >= qp->attr.max_rd_atomic)
		return false;
	w->packets = w->len ? (w->len + mtu - 1) / mtu : 1;
	w->psn = w->rd_psn = qp->psn;
	w->begun = true;
	qp->psn = psn_add(qp->psn, w->packets);
	qp->rd_out += read;
	return true;
}

/* Sends a record, from packet sq_off on.  False: not possible now. */
static bool send_piece(struct fqp *qp, struct swqe *w)
{
	uint32_t mtu = mtu_bytes(qp->attr.path_mtu);
	uint64_t off = (uint64_t)qp->sq_off * mtu;
	uint32_t bytes = w->len - off < PIECE_MAX ? (uint32_t)(w->len - off) : PIECE_MAX;
	uint32_t packets = bytes ? (bytes + mtu - 1) / mtu : 1;
	bool works = path_works(qp), listens = works && peer_listens(qp);
	enum ibv_wr_opcode op = w->wr.opcode;
	struct rec r = plain_rec(qp), *at;

	r.psn = psn_add(w->psn, qp->sq_off);
	r.off = off;
	r.msg_len = w->len;
	r.va = w->wr.wr.rdma.remote_addr;
	r.rkey = w->wr.wr.rdma.rkey;
	if (op == IBV_WR_RDMA_READ) {
		r.op = REC_READ;
		r.rd_out = (uint8_t)qp->rd_out;
		r.va += off;
		r.msg_len -= off;
		packets = w->packets - qp->sq_off;
		bytes = 0;
	} else {
		bool last = qp->sq_off + packets == w->packets;

		r.op = op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM ? REC_SEND : REC_WRITE;
		r.flags = (uint8_t)((off ? 0 : REC_FIRST) | (last ? REC_LAST : 0));
		if (last && (op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM))
			r.flags |= REC_IMM;
		if (last && w->wr.send_flags & IBV_SEND_SOLICITED)
			r.flags |= REC_SOLICITED;
		r.imm = w->wr.imm_data;
	}
	r.packets = packets;
	r.bytes = bytes;
	if (is_iwarp(qp) && !listens) {
		if (!qp->timer)
			timer_start(qp);
		return false;		/* TCP keeps the data */
	}
	if (listens && !(lose_one(qp) && !is_iwarp(qp))) {
		uint8_t *to;

		at = ring_reserve(&qp->fab->req, bytes);
		if (!at)
			return false;
		to = (uint8_t *)(at + 1);
		if (w->wr.send_flags & IBV_SEND_INLINE) {
			place(to, w->inl + off, bytes);
		} else if (bytes && !sge_copy(qp->ibv.pd, w->sge, w->wr.num_sge, off, to, bytes, false, 0)) {
			fail_oldest(qp, IBV_WC_LOC_PROT_ERR);
			return false;
		}
		if (op != IBV_WR_RDMA_READ)
			flip_one(qp, &r, to);
		*at = r;
		ring_commit(&qp->fab->req, bytes);
		kick_peer(qp);
	}
	fab_count(qp->slot, C_PACKETS, op == IBV_WR_RDMA_READ ? 1 : packets);
	qp->sq_off += packets;
	if (qp->sq_off == w->packets) {
		qp->sq_off = 0;
		qp->sq_next++;
		if (is_iwarp(qp) && op != IBV_WR_RDMA_READ)
			w->done = true;	/* TCP has the data: a completion means no more */
	}
	if (!qp->timer)
		timer_start(qp);
	return true;
}

bool req_out(struct fqp *qp)
{
	for (unsigned n = 0; n < BUDGET; n++) {
		struct swqe *w = &qp->sq[qp->sq_next % (qp->sq_size + !qp->sq_size)];
		enum ibv_wc_status failed;

		if (qp->ibv.state != IBV_QPS_RTS && !(qp->ibv.state == IBV_QPS_SQD && qp->sq_off))
			return false;
		if (qp->sq_next == qp->sq_tail || qp->rnr_until)
			return false;
		if (qp->mpa_wait) {
			terminate(qp);
			return false;
		}
		if (!w->begun && !begin(qp, w, &failed)) {
			/* requests before it complete first */
			if (failed && qp->sq_una == qp->sq_next)
				fail_oldest(qp, failed);
			return false;
		}
		if (w->done) {
			qp->sq_next++;
			qp->sq_off = 0;
			continue;
		}
		if (!send_piece(qp, w))
			return false;
		retire(qp);
	}
	return true;
}

/* All packets before `psn` have arrived; a READ is complete only with its data. */
static void acked(struct fqp *qp, uint32_t psn)
{
	if (psn_diff(psn, qp->una_psn) <= 0 || psn_diff(psn, qp->psn) > 0)
		return;
	for (uint32_t i = qp->sq_una; i != qp->sq_tail; i++) {
		struct swqe *w = &qp->sq[i % qp->sq_size];

		if (!w->begun || psn_diff(psn, w->psn) <= 0)
			break;
		if (w->wr.opcode == IBV_WR_RDMA_READ && !w->done) {
			psn = w->rd_psn;
			break;
		}
		if (psn_diff(psn, psn_add(w->psn, w->packets)) >= 0)
			w->done = true;
	}
	if (psn_diff(psn, qp->una_psn) <= 0)
		return;
	/* packets acknowledged meanwhile are not sent again */
	if (qp->sq_next != qp->sq_tail && qp->sq[qp->sq_next % qp->sq_size].begun) {
		struct swqe *w = &qp->sq[qp->sq_next % qp->sq_size];

		if (psn_diff(psn, psn_add(w->psn, qp->sq_off)) > 0) {
			qp->una_psn = psn;
			rewind_to(qp, psn);
			while (qp->sq_next != qp->sq_tail && qp->sq[qp->sq_next % qp->sq_size].begun &&
			       qp->sq[qp->sq_next % qp->sq_size].done) {
				qp->sq_next++;
				qp->sq_off = 0;
			}
		}
	}
	qp->una_psn = psn;
	qp->retries = qp->attr.retry_cnt;
	qp->rnr_retries = qp->attr.rnr_retry;
	retire(qp);
	if (qp->una_psn == qp->psn)
		qp->timer = 0;
	else
		timer_start(qp);
}

static void again(struct fqp *qp)
{
	fab_count(qp->slot, C_RETRIES, 1);
	rewind_to(qp, qp->una_psn);
	timer_start(qp);
}

static void resp_nak(struct fqp *qp, const struct rec *r)
{
	static const enum ibv_wc_status status[] = {
		[NAK_INV_REQ] = IBV_WC_REM_INV_REQ_ERR, [NAK_ACCESS] = IBV_WC_REM_ACCESS_ERR,
		[NAK_OP] = IBV_WC_REM_OP_ERR,
	};

	if (psn_diff(r->psn, qp->una_psn) < 0 || psn_diff(r->psn, qp->psn) >= 0)
		return;
	acked(qp, r->psn);
	if (r->psn != qp->una_psn)
		return;			/* a READ before it has lost data, and is repeated first */
	switch (r->syndrome) {
	case NAK_RNR:
		fab_count(qp->slot, C_RNR, 1);
		if (qp->attr.rnr_retry != 7 && !qp->rnr_retries--) {
			fail_oldest(qp, IBV_WC_RNR_RETRY_EXC_ERR);
			return;
		}
		qp->rnr_until = now_ns() + rnr_ns(r->imm);
		qp->timer = 0;
		rewind_to(qp, qp->una_psn);
		return;
	case NAK_PSN:
		if (!qp->retries--)
			fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
		else
			again(qp);
		return;
	default:
		fail_oldest(qp, status[r->syndrome]);
	}
}

static void resp_data(struct fqp *qp, struct rec *r)
{
	uint32_t mtu = mtu_bytes(qp->attr.path_mtu);
	unsigned access = IBV_ACCESS_LOCAL_WRITE | (is_iwarp(qp) ? IBV_ACCESS_REMOTE_WRITE : 0u);

	for (uint32_t i = qp->sq_una; i != qp->sq_tail; i++) {
		struct swqe *w = &qp->sq[i % qp->sq_size];

		if (!w->begun)
			return;
		if (w->wr.opcode != IBV_WR_RDMA_READ || w->done || w->rd_psn != r->psn)
			continue;
		acked(qp, w->psn);
		if (!sge_copy(qp->ibv.pd, w->sge, w->wr.num_sge, (uint64_t)psn_diff(r->psn, w->psn) * mtu,
			      (uint8_t *)(r + 1), r->bytes, true, access)) {
			fail_oldest(qp, IBV_WC_LOC_PROT_ERR);
			return;
		}
		w->rd_psn = psn_add(w->rd_psn, r->packets);
		if (psn_diff(w->rd_psn, psn_add(w->psn, w->packets)) >= 0) {
			w->done = true;
			qp->rd_out--;
		}
		acked(qp, w->rd_psn);
		return;
	}
}

bool resp_in(struct fqp *qp)
{
	struct fab_qp *peer = peer_of(qp);
	struct ring *ring = &peer->resp;
	bool was_full;
	unsigned n;

	if (ring_idle(ring) || !peer_fits(qp) || !ring_lock(ring, qp->ctx->nic))
		return false;
	for (n = 0; n < BUDGET && qp->ibv.state != IBV_QPS_ERR; n++) {
		struct rec *r = ring_peek(ring);

		if (!r || is_delayed(qp, r) || (is_iwarp(qp) && !path_works(qp)))
			break;
		if (r->dst_qpn == qp->ibv.qp_num && r->src_qpn == qp->attr.dest_qp_num && path_works(qp)) {
			if (r->op == REC_ACK)
				acked(qp, psn_add(r->psn, 1));
			else if (r->op == REC_NAK)
				resp_nak(qp, r);
			else
				resp_data(qp, r);
		}
		was_full = atomic_load(&ring->tail) - atomic_load(&ring->head) > RING_BYTES / 2;
		ring_pop(ring);
		if (was_full)
			kick_peer(qp);
	}
	ring_unlock(ring);
	return n == BUDGET;
}

void timer_check(struct fqp *qp)
{
	uint64_t now = now_ns();
	struct ring *ring = &qp->fab->req;

	if (qp->rnr_until && now >= qp->rnr_until) {
		qp->rnr_until = 0;
		fab_count(qp->slot, C_RETRIES, 1);
	}
	if (!qp->timer || now < qp->timer)
		return;
	if (is_iwarp(qp)) {
		qp->timer = 0;
		if (qp->sq_una == qp->sq_tail && ring_idle(ring))
			return;
		if (path_works(qp) && peer_listens(qp))
			timer_start(qp);
		else
			qp_error(qp);
		return;
	}
	if (qp->una_psn == qp->psn) {
		qp->timer = 0;
	} else if (path_works(qp) && peer_listens(qp) && !ring_idle(ring) &&
		   fab_alive(atomic_load(&peer_of(qp)->nic))) {
		timer_start(qp);	/* the peer lives, and will read the ring */
	} else if (!qp->retries) {
		fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
	} else {
		qp->retries--;
		ring_clear(ring, qp->ctx->nic);
		again(qp);
	}
}
