/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * nic.c - what a NIC does by itself: requests out, responses, acknowledgements, time.
 *
 * A queue pair's own end is worked on under its lock, by whoever comes by (qp_run): the device's
 * thread, a post, a poll.  A request is cut into records of at most PIECE_MAX bytes, each of whole
 * packets; numbers (PSN) are those of packets, as on a wire, and so is sending again (from
 * una_psn on).  A record that no one would receive is not written: that packet is lost.
 *
 * Time: a lost packet is noticed after the timeout that the queue pair was given.  But what a live
 * peer has not looked at yet is not lost, it is only slow: no machine is too busy for these tests.
 */
#include "tests/fake/fake.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	BUDGET = 4,			/* records of each kind at a time */
	NAP_NS = 200000,		/* while somebody polls, the thread only looks now and then */
	SPINS = 500,
};
#define TIMEOUT_MIN_NS UINT64_C(1000000)

/* --- memory ------------------------------------------------------------------------------------- */

#if defined(__SANITIZE_THREAD__)
#define UNSEEN __attribute__((no_sanitize("thread")))
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UNSEEN __attribute__((no_sanitize("thread")))
#endif
#endif
#ifndef UNSEEN
#define UNSEEN
#endif

/*
 * As a NIC does it: upwards, aligned words whole, and not seen by ThreadSanitizer, for which
 * nothing else than a completion orders it with what the program does.
 */
UNSEEN static void place(uint8_t *to, const uint8_t *from, size_t n)
{
	while (n && (uintptr_t)to % 8) {
		*(volatile uint8_t *)to++ = *from++;
		n--;
	}
	for (; n >= 8; n -= 8, to += 8, from += 8) {
		uint64_t word;

		__builtin_memcpy(&word, from, 8);
		*(volatile uint64_t *)(void *)to = word;
	}
	while (n--)
		*(volatile uint8_t *)to++ = *from++;
}

/* Bytes [off, off + n) of a list, to or from flat memory.  False: a key, bound or right is wrong. */
static bool sge_copy(struct ibv_pd *pd, const struct ibv_sge *sge, int num, uint64_t off, uint8_t *flat,
		     uint64_t n, bool to_list, unsigned access)
{
	bool good = true;

	mr_enter();
	for (int i = 0; n && i < num; i++) {
		uint64_t len = sge[i].length, part;
		uint8_t *at;

		if (off >= len) {
			off -= len;
			continue;
		}
		part = len - off < n ? len - off : n;
		at = mr_at(pd, sge[i].lkey, sge[i].addr, len, access);
		if (!at) {
			good = false;
			break;
		}
		if (to_list)
			place(at + off, flat, part);
		else
			place(flat, at + off, part);
		flat += part;
		n -= part;
		off = 0;
	}
	mr_leave();
	return good;
}

static bool sge_valid(struct ibv_pd *pd, const struct ibv_sge *sge, int num, unsigned access)
{
	bool good = true;

	mr_enter();
	for (int i = 0; i < num; i++)
		good = good && (!sge[i].length || mr_at(pd, sge[i].lkey, sge[i].addr, sge[i].length, access));
	mr_leave();
	return good;
}

static uint64_t sge_len(const struct rwqe *w)
{
	uint64_t len = 0;

	for (int i = 0; i < w->num_sge; i++)
		len += w->sge[i].length;
	return len;
}

/* --- the way to the peer ------------------------------------------------------------------------ */

static bool is_iwarp(const struct fqp *qp)
{
	return qp->ctx->dev->kind == KIND_IWARP;
}

static struct fab_qp *peer_of(const struct fqp *qp)
{
	return &fab_get()->qp[qp->attr.dest_qp_num % QPS_MAX];
}

/* Look up again where our packets go, if anything has changed since. */
static void route(struct fqp *qp)
{
	struct fab *fab = fab_get();
	uint32_t routes = atomic_load(&fab->routes) + 1;	/* 0: never */
	const struct ibv_ah_attr *av = &qp->attr.ah_attr;
	const struct fdev *d = qp->ctx->dev;
	uint32_t net = fab->dev[d->index].net, to, type;
	const struct fab_gid *g;

	if (qp->routes == routes)
		return;
	qp->routes = routes;
	qp->src_ok = true;
	if (is_iwarp(qp))
		return;
	type = atomic_load(&qp->fab->gid_type);
	fab_lock();
	g = &fab_port(atomic_load(&qp->fab->port))->gid[av->grh.sgid_index % GIDS_MAX];
	if (av->is_global && (!g->used || g->type != type))
		qp->src_ok = false;
	if (d->kind == KIND_IB) {
		to = fab_find_lid(av->dlid, net);
		if (av->is_global && fab_find_gid(&av->grh.dgid, type, net, to) != to)
			to = PORT_NONE;
	} else {
		to = fab_find_gid(&av->grh.dgid, type, net, atomic_load(&peer_of(qp)->port));
	}
	fab_unlock();
	atomic_store(&qp->fab->dst_port, to);
}

static bool port_works(uint32_t id)
{
	struct fab_port *p;

	if (id == PORT_NONE)
		return false;
	p = fab_port(id);
	return atomic_load(&p->up) && !atomic_load(&p->drop) && !atomic_load(&fab_port_dev(id)->fatal);
}

static bool path_works(struct fqp *qp)
{
	route(qp);
	return qp->src_ok && port_works(atomic_load(&qp->fab->port)) &&
	       port_works(atomic_load(&qp->fab->dst_port));
}

/* Two keys meet if they are the same partition and one of them is a full member. */
static bool pkeys_meet(uint32_t a, uint32_t b)
{
	return (a & 0x7fff) == (b & 0x7fff) && ((a | b) & 0x8000);
}

/* Are we each other's peer?  It may have ended, and what it said before still counts. */
static bool peer_fits(const struct fqp *qp)
{
	struct fab_qp *me = qp->fab, *peer = peer_of(qp);

	return atomic_load(&peer->nic) && atomic_load(&peer->qpn) == qp->attr.dest_qp_num &&
	       atomic_load(&peer->dest_qpn) == qp->ibv.qp_num &&
	       atomic_load(&peer->port) == atomic_load(&me->dst_port) &&
	       atomic_load(&peer->dst_port) == atomic_load(&me->port) &&
	       atomic_load(&peer->mtu) == atomic_load(&me->mtu) &&
	       atomic_load(&peer->gid_type) == atomic_load(&me->gid_type) &&
	       pkeys_meet(atomic_load(&peer->pkey), atomic_load(&me->pkey));
}

/* Would it take a packet from us? */
static bool peer_listens(const struct fqp *qp)
{
	uint32_t state = atomic_load(&peer_of(qp)->state);

	return (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD) && peer_fits(qp);
}

static bool lose_one(struct fqp *qp)
{
	struct fab_port *p = fab_port(atomic_load(&qp->fab->port));
	uint32_t n = atomic_load(&p->lose);

	while (n)
		if (atomic_compare_exchange_weak(&p->lose, &n, n - 1))
			return true;
	return false;
}

static void kick_peer(const struct fqp *qp)
{
	fab_kick(qp->attr.dest_qp_num % QPS_MAX);
}

/* --- time --------------------------------------------------------------------------------------- */

static uint64_t timeout_ns(const struct fqp *qp)
{
	uint64_t t = UINT64_C(4096) << qp->attr.timeout;

	if (is_iwarp(qp))
		return (uint64_t)qp->ctx->dev->linger_ms * 1000000;
	if (!qp->attr.timeout)
		return 0;		/* never */
	return t < TIMEOUT_MIN_NS ? TIMEOUT_MIN_NS : t;
}

/* IBA's code of a receiver-not-ready time, in units of 10 us. */
static uint64_t rnr_ns(uint32_t code)
{
	static const uint32_t tens[32] = {
		65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
		2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
	};

	return (uint64_t)tens[code % 32] * 10000;
}

static void wake_at(struct fqp *qp, uint64_t ns)
{
	struct fctx *c = qp->ctx;

	atomic_store(&qp->wake, ns);
	if (ns && atomic_load(&c->wake_ns) > ns)
		fab_kick(qp->slot);
}

static void set_wake(struct fqp *qp)
{
	uint64_t t = qp->timer;

	if (qp->rnr_until && (!t || qp->rnr_until < t))
		t = qp->rnr_until;
	if (qp->due && (!t || qp->due < t))
		t = qp->due;
	if (t != atomic_load(&qp->wake))
		wake_at(qp, t);
}

static void timer_start(struct fqp *qp)
{
	uint64_t t = timeout_ns(qp);

	qp->timer = t ? now_ns() + t : 0;
}

/* --- requester ---------------------------------------------------------------------------------- */

/* What is done leaves in order. */
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

static void terminate(struct fqp *qp)
{
	atomic_store(&peer_of(qp)->force, FORCE_TERMINATE);
	kick_peer(qp);
	qp_error(qp);
	ctx_event(qp->ctx, IBV_EVENT_QP_FATAL, qp, 0);
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

/* May its first packet leave?  Sets the numbers; `*failed`: it can't, ever. */
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

static struct rec plain_rec(const struct fqp *qp)
{
	return (struct rec){ .src_qpn = qp->ibv.qp_num, .dst_qpn = qp->attr.dest_qp_num, .sent_ns = now_ns() };
}

/* A piece of it, from packet sq_off on.  False: not now. */
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
		return false;		/* TCP keeps it */
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
			w->done = true;	/* TCP has it: all that a completion says */
	}
	if (!qp->timer)
		timer_start(qp);
	return true;
}

static bool req_out(struct fqp *qp)
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
			/* what came before completes first */
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

/* All before `psn` has arrived; READs count only with their data. */
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
	/* what was about to be sent again is not needed */
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
		return;			/* a READ before it lost its data: that comes first */
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

/* Not due yet, or it is lost on its way in? */
static bool is_delayed(struct fqp *qp, const struct rec *r)
{
	const struct fab_port *port = fab_port(atomic_load(&qp->fab->port));
	uint64_t due = r->sent_ns + UINT64_C(1000) * atomic_load(&port->delay_us);

	if (due <= now_ns())
		return false;
	if (!qp->due || due < qp->due)
		qp->due = due;
	return true;
}

static bool resp_in(struct fqp *qp)
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

static void timer_check(struct fqp *qp)
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
		timer_start(qp);	/* it is there and will look */
	} else if (!qp->retries) {
		fail_oldest(qp, IBV_WC_RETRY_EXC_ERR);
	} else {
		qp->retries--;
		ring_clear(ring, qp->ctx->nic);
		again(qp);
	}
}

/* --- responder ---------------------------------------------------------------------------------- */

static void respond(struct fqp *qp, struct rec *r)
{
	struct rec *at;

	if (!path_works(qp) || (lose_one(qp) && !is_iwarp(qp)))
		return;
	at = ring_reserve(&qp->fab->resp, 0);
	if (!at)
		return;			/* req_in() saw to it that there is room */
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

/* A request that ends the connection: `status` for the receive that it used, if it did. */
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

/* A receive for this message; false: there is none, and that was said. */
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
		/* the whole of it is looked at first, as its header has the length */
		if (mr_at(qp->ibv.pd, r->rkey, r->va, r->msg_len, IBV_ACCESS_REMOTE_WRITE))
			to = mr_at(qp->ibv.pd, r->rkey, r->va + r->off, r->bytes, IBV_ACCESS_REMOTE_WRITE);
		if (to)
			place(to, data, r->bytes);
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

/* Data of the READ under way, as far as there is room.  True: there was not. */
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
		ack(qp);		/* we have that */
		return;
	}
	if (late > 0) {			/* we have the start of that */
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

static bool req_in(struct fqp *qp)
{
	struct fab_qp *peer = peer_of(qp);
	struct ring *ring = &peer->req;
	unsigned n;

	if (qp->rd.on && read_out(qp))
		return false;		/* whoever makes room kicks us */
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

/* --- one queue pair ----------------------------------------------------------------------------- */

static void obey(struct fqp *qp)
{
	uint32_t force = atomic_exchange(&qp->fab->force, 0);

	if (!force || qp->ibv.state == IBV_QPS_RESET || qp->ibv.state == IBV_QPS_ERR)
		return;
	qp_error(qp);
	if (force != FORCE_CLOSED)
		ctx_event(qp->ctx, IBV_EVENT_QP_FATAL, qp, 0);
}

static bool has_peer(const struct fqp *qp)
{
	return qp->ibv.state == IBV_QPS_RTR || qp->ibv.state == IBV_QPS_RTS || qp->ibv.state == IBV_QPS_SQD;
}

void qp_run(struct fqp *qp)
{
	bool more = false;

	qp->due = 0;
	if (atomic_load(&qp->fab->force))
		obey(qp);
	if (has_peer(qp))
		route(qp);
	if (has_peer(qp))
		more |= resp_in(qp);
	if (has_peer(qp))
		more |= req_in(qp);
	if (has_peer(qp) && qp->ibv.state != IBV_QPS_RTR) {
		timer_check(qp);
		more |= req_out(qp);
	}
	if (qp->draining && qp->ibv.state == IBV_QPS_SQD && qp->sq_una == qp->sq_next) {
		qp->draining = false;
		ctx_event(qp->ctx, IBV_EVENT_SQ_DRAINED, qp, 0);
	}
	set_wake(qp);
	if (more)
		fab_kick(qp->slot);
}

static void run_slot(struct fctx *c, unsigned slot)
{
	struct fqp *qp = qp_get(c, slot);

	if (!qp)
		return;
	pthread_mutex_lock(&qp->lock);
	qp_run(qp);
	pthread_mutex_unlock(&qp->lock);
	qp_put(qp);
}

/* --- a device ----------------------------------------------------------------------------------- */

static bool drain(struct fctx *c)
{
	struct fab_nic *n = &fab_get()->nic[c->nic];
	bool some = false;

	for (unsigned i = 0; i < QPS_MAX / 64; i++) {
		uint64_t bits = atomic_load_explicit(&n->pending[i], memory_order_relaxed) ?
					atomic_exchange(&n->pending[i], 0) : 0;

		for (; bits; bits &= bits - 1) {
			some = true;
			run_slot(c, i * 64 + (unsigned)__builtin_ctzll(bits));
		}
	}
	return some;
}

void nic_help(struct fctx *c)
{
	atomic_fetch_add_explicit(&c->polls, 1, memory_order_relaxed);
	drain(c);
}

/* What happened to our ports since we last looked. */
static void port_events(struct fctx *c)
{
	for (uint32_t p = 0; p < c->dev->nports; p++) {
		struct fab_port *port = fab_port(PORT_ID(c->dev->index, p + 1));
		uint32_t n = atomic_load(&port->events);

		for (; c->events_seen[p] != n; c->events_seen[p]++)
			ctx_event(c, atomic_load(&port->event[c->events_seen[p] % EVENTS_MAX]), NULL,
				  (int)p + 1);
	}
	if (c->fatal_seen || !atomic_load(&fab_get()->dev[c->dev->index].fatal))
		return;
	c->fatal_seen = true;
	ctx_event(c, IBV_EVENT_DEVICE_FATAL, NULL, 0);
	for (unsigned i = 0; i < QPS_MAX; i++) {
		struct fqp *qp = qp_get(c, i);

		if (!qp)
			continue;
		pthread_mutex_lock(&qp->lock);
		if (qp->ibv.state != IBV_QPS_RESET && qp->ibv.state != IBV_QPS_ERR)
			qp_error(qp);
		pthread_mutex_unlock(&qp->lock);
		qp_put(qp);
	}
}

/* Run what is due; when is the next? */
static uint64_t timers(struct fctx *c)
{
	uint64_t next = UINT64_MAX, now = now_ns(), due[QPS_MAX / 64] = { 0 };

	pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < QPS_MAX; i++) {
		uint64_t wake = c->qp[i] ? atomic_load(&c->qp[i]->wake) : 0;

		if (wake && wake <= now)
			due[i / 64] |= UINT64_C(1) << i % 64;
		else if (wake && wake < next)
			next = wake;
	}
	pthread_mutex_unlock(&c->lock);
	for (unsigned i = 0; i < QPS_MAX / 64; i++)
		for (uint64_t bits = due[i]; bits; bits &= bits - 1) {
			run_slot(c, i * 64 + (unsigned)__builtin_ctzll(bits));
			next = 0;	/* look again */
		}
	return next;
}

/* Somebody polls, and doesn't just look once more before waiting for an event. */
static bool is_polled(struct fctx *c)
{
	return atomic_load(&c->polls) - atomic_load(&c->armed_at) > 4;
}

/* Whoever arms a queue is about to sleep: the thread must be there. */
void nic_armed(struct fctx *c)
{
	bool napping = is_polled(c);

	atomic_store(&c->armed_at, atomic_load(&c->polls));
	if (napping)
		syscall(SYS_futex, &fab_get()->nic[c->nic].bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void *nic_main(void *arg)
{
	struct fctx *c = arg;
	struct fab_nic *n = &fab_get()->nic[c->nic];
	unsigned polls = atomic_load(&c->polls);

	prctl(PR_SET_NAME, "fake-nic");
	while (!atomic_load(&c->stop)) {
		uint32_t bell = atomic_load(&n->bell);
		uint64_t next, now;

		port_events(c);
		if (drain(c))
			continue;
		atomic_store(&c->wake_ns, UINT64_MAX);	/* whoever starts a timer now rings */
		next = timers(c);
		atomic_store(&c->wake_ns, next);
		now = now_ns();
		if (next <= now) {
			atomic_store(&c->wake_ns, 0);
			continue;
		}
		if (polls != atomic_load(&c->polls) && is_polled(c)) {
			polls = atomic_load(&c->polls);
			futex_wait(&n->bell, bell, NAP_NS);
			atomic_store(&c->wake_ns, 0);
			continue;
		}
		for (unsigned i = 0; i < SPINS && atomic_load(&n->bell) == bell; i++)
			__asm__ volatile("" ::: "memory");
		atomic_store(&n->asleep, 1);
		futex_wait(&n->bell, bell, next == UINT64_MAX ? -1 : (int64_t)(next - now));
		atomic_store(&n->asleep, 0);
		atomic_store(&c->wake_ns, 0);
	}
	return NULL;
}

int nic_start(struct fctx *c)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&c->thread, NULL, nic_main, c);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	errno = err;
	return err;
}

void nic_stop(struct fctx *c)
{
	struct fab_nic *n = &fab_get()->nic[c->nic];

	atomic_store(&c->stop, true);
	atomic_fetch_add(&n->bell, 1);
	syscall(SYS_futex, &n->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
	pthread_join(c->thread, NULL);
}
