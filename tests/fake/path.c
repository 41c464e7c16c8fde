/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * path.c - what both ends of a queue pair need: memory by key, the path to the peer, time.
 */
#include "tests/fake/nic.h"

#define TIMEOUT_MIN_NS UINT64_C(1000000)	/* a shorter one expires on busy machines */

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
 * Copies as a NIC does: upwards, aligned words whole.  ThreadSanitizer does not see it, since only
 * a completion orders it with what the program does.
 */
UNSEEN void place(uint8_t *to, const uint8_t *from, size_t n)
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

/* Copies bytes [off, off + n) of a list to or from flat memory.  False: a key, bound or right is wrong. */
bool sge_copy(struct ibv_pd *pd, const struct ibv_sge *sge, int num, uint64_t off, uint8_t *flat,
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

bool sge_valid(struct ibv_pd *pd, const struct ibv_sge *sge, int num, unsigned access)
{
	bool good = true;

	mr_enter();
	for (int i = 0; i < num; i++)
		good = good && (!sge[i].length || mr_at(pd, sge[i].lkey, sge[i].addr, sge[i].length, access));
	mr_leave();
	return good;
}

uint64_t sge_len(const struct rwqe *w)
{
	uint64_t len = 0;

	for (int i = 0; i < w->num_sge; i++)
		len += w->sge[i].length;
	return len;
}

/* --- the path to the peer ----------------------------------------------------------------------- */

bool is_iwarp(const struct fqp *qp)
{
	return qp->ctx->dev->kind == KIND_IWARP;
}

struct fab_qp *peer_of(const struct fqp *qp)
{
	return &fab_get()->qp[qp->attr.dest_qp_num % QPS_MAX];
}

/*
 * Within a subnet the LID decides.  Into another subnet a packet goes by a router: to the router's
 * LID here, or to the FLID in the packet's destination GID.
 */
static uint32_t ib_route(const struct fab_dev *from, const struct ibv_ah_attr *av, uint32_t type)
{
	uint32_t flid = (uint32_t)av->grh.dgid.raw[4] << 8 | av->grh.dgid.raw[5];
	uint32_t to = fab_find_lid(av->dlid, from->net, from->subnet), far;

	if (!av->is_global)
		return to;
	far = fab_find_gid(&av->grh.dgid, type, from->net, to);
	if (far == PORT_NONE || far == to || fab_port_dev(far)->subnet == from->subnet)
		return far == to ? to : PORT_NONE;
	return av->dlid == flid || av->dlid == from->router ? far : PORT_NONE;
}

/* Looks up again where our packets go, if a route may have changed since. */
void route(struct fqp *qp)
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
		to = ib_route(&fab->dev[d->index], av, type);
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

bool path_works(struct fqp *qp)
{
	route(qp);
	return qp->src_ok && port_works(atomic_load(&qp->fab->port)) &&
	       port_works(atomic_load(&qp->fab->dst_port));
}

/* Two P_Keys match if they name the same partition and one of them is a full member. */
static bool pkeys_meet(uint32_t a, uint32_t b)
{
	return (a & 0x7fff) == (b & 0x7fff) && ((a | b) & 0x8000);
}

/* Are the two each other's peer?  The peer may have ended: what it sent before still counts. */
bool peer_fits(const struct fqp *qp)
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

/* Would the peer take a packet from us? */
bool peer_listens(const struct fqp *qp)
{
	uint32_t state = atomic_load(&peer_of(qp)->state);

	return (state == IBV_QPS_RTR || state == IBV_QPS_RTS || state == IBV_QPS_SQD) && peer_fits(qp);
}

static bool take_one(_Atomic uint32_t *from)
{
	uint32_t n = atomic_load(from);

	while (n)
		if (atomic_compare_exchange_weak(from, &n, n - 1))
			return true;
	return false;
}

bool lose_one(struct fqp *qp)
{
	return take_one(&fab_port(atomic_load(&qp->fab->port))->lose);
}

enum { COUNTS = 12 };			/* a write that short has a lane's counts */

void flip_one(struct fqp *qp, const struct rec *r, uint8_t *data)
{
	unsigned what = r->op != REC_WRITE ? 0 : r->msg_len > COUNTS ? 1 : 2;
	uint32_t chance = r->psn * 2654435761u;

	if (!(r->flags & REC_FIRST) || !r->bytes ||
	    !take_one(&fab_port(atomic_load(&qp->fab->port))->flip[what]))
		return;
	data[(chance >> 3) % (what == 2 ? 4 : r->bytes)] ^= (uint8_t)(1u << (chance & 7));
	fab_count(qp->slot, C_FLIPS, 1);
}

void kick_peer(const struct fqp *qp)
{
	fab_kick(qp->attr.dest_qp_num % QPS_MAX);
}

struct rec plain_rec(const struct fqp *qp)
{
	return (struct rec){ .src_qpn = qp->ibv.qp_num, .dst_qpn = qp->attr.dest_qp_num, .sent_ns = now_ns() };
}

/* iWARP: ends the TCP connection at both ends, with a reason. */
void terminate(struct fqp *qp)
{
	atomic_store(&peer_of(qp)->force, FORCE_TERMINATE);
	kick_peer(qp);
	qp_error(qp);
	ctx_event(qp->ctx, IBV_EVENT_QP_FATAL, qp, 0);
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
uint64_t rnr_ns(uint32_t code)
{
	static const uint32_t tens[32] = {
		65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
		2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
	};

	return (uint64_t)tens[code % 32] * 10000;
}

void timer_start(struct fqp *qp)
{
	uint64_t t = timeout_ns(qp);

	qp->timer = t ? now_ns() + t : 0;
}

/* Has the record not arrived yet (delay)?  Notes when it will. */
bool is_delayed(struct fqp *qp, const struct rec *r)
{
	const struct fab_port *port = fab_port(atomic_load(&qp->fab->port));
	uint64_t due = r->sent_ns + UINT64_C(1000) * atomic_load(&port->delay_us);

	if (due <= now_ns())
		return false;
	if (!qp->due || due < qp->due)
		qp->due = due;
	return true;
}
