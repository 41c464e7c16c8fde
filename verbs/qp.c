/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * qp.c - how a queue pair comes up.
 *
 * The dialler makes a queue pair and sends its number, first packet number, LID, MTU and the GIDs
 * that it could use.  The accepter makes its own queue pair, chooses a GID of the same type as one
 * of those, connects, and answers with the same data.  Then the dialler connects.  Sources:
 * InfiniBand Architecture Specification vol. 1, 10.3 (queue pair states and what each transition
 * needs), Annex A17 (RoCE v2).
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/link/lane_io.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "topo/netdev.h"
#include "verbs/cm.h"
#include "verbs/events.h"
#include "verbs/route.h"
#include "verbs/qp.h"

enum {
	RNR_TIMER = 12,			/* 0.64 ms: rarely needed, since senders count receives */
	RNR_FOREVER = 7,
	HOPS = 64,
};

/* --- the blob ------------------------------------------------------------------------------ */

enum {
	AT_FABRIC = 0, AT_MTU = 1, AT_IMM = 2, AT_NGIDS = 3, AT_LID = 4, AT_SLOTS = 6,
	AT_CM_PORT = 8, AT_GRH = 10,
	AT_QPN = 12, AT_PSN = 16, AT_ACK_KEY = 20, AT_ACK = 24, AT_NONCE = 32, AT_GIDS = 40,
	GID_STEP = 17, AT_ECE_VENDOR = 76, AT_ECE = 80,
};

static void put(uint8_t *to, uint64_t v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		to[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get(const uint8_t *from, unsigned n)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < n; i++)
		v |= (uint64_t)from[i] << 8 * i;
	return v;
}

void braid_qp_blob_pack(const struct braid_qp_blob *b, uint8_t *to)
{
	memset(to, 0, BRAID_BLOB_SIZE);
	to[AT_FABRIC] = b->fabric;
	to[AT_MTU] = b->mtu;
	to[AT_IMM] = b->imm;
	to[AT_NGIDS] = b->ngids;
	put(to + AT_LID, b->lid, 2);
	put(to + AT_SLOTS, b->slots, 2);
	put(to + AT_CM_PORT, b->cm_port, 2);
	put(to + AT_QPN, b->qpn, 4);
	put(to + AT_PSN, b->psn, 4);
	put(to + AT_ACK_KEY, b->ack_key, 4);
	put(to + AT_ACK, b->ack, 8);
	put(to + AT_NONCE, b->nonce, 8);
	to[AT_GRH] = b->grh;
	put(to + AT_ECE_VENDOR, b->ece_vendor, 4);
	put(to + AT_ECE, b->ece_options, 4);
	for (unsigned i = 0; i < b->ngids; i++) {
		to[AT_GIDS + i * GID_STEP] = b->gid[i].type;
		memcpy(to + AT_GIDS + i * GID_STEP + 1, b->gid[i].raw, 16);
	}
}

int braid_qp_blob_unpack(const uint8_t *from, struct braid_qp_blob *ret)
{
	*ret = (struct braid_qp_blob){
		.fabric = from[AT_FABRIC], .mtu = from[AT_MTU], .imm = from[AT_IMM],
		.ngids = from[AT_NGIDS], .lid = (uint16_t)get(from + AT_LID, 2),
		.slots = (uint16_t)get(from + AT_SLOTS, 2),
		.cm_port = (uint16_t)get(from + AT_CM_PORT, 2),
		.qpn = (uint32_t)get(from + AT_QPN, 4), .psn = (uint32_t)get(from + AT_PSN, 4),
		.ack_key = (uint32_t)get(from + AT_ACK_KEY, 4), .ack = get(from + AT_ACK, 8),
		.nonce = get(from + AT_NONCE, 8), .grh = from[AT_GRH] & 1,
		.ece_vendor = (uint32_t)get(from + AT_ECE_VENDOR, 4),
		.ece_options = (uint32_t)get(from + AT_ECE, 4),
	};
	if (ret->fabric > BRAID_FABRIC_IWARP || ret->mtu < IBV_MTU_256 || ret->mtu > IBV_MTU_4096 ||
	    ret->imm > 1 || ret->ngids > 2 || ret->slots < 16 || ret->qpn > 0xffffff ||
	    ret->psn > 0xffffff)
		return -EBADMSG;
	for (unsigned i = 0; i < ret->ngids; i++) {
		ret->gid[i].type = from[AT_GIDS + i * GID_STEP];
		memcpy(ret->gid[i].raw, from + AT_GIDS + i * GID_STEP + 1, 16);
		if (ret->gid[i].type > BRAID_GID_ROCE_V2)
			return -EBADMSG;
	}
	return 0;
}

/* --- queues --------------------------------------------------------------------------------- */

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

/* Warns that a limit is reached: which one, and how to raise memlock if it may be that. */
static int tell_limit(const struct braid_qp *w, const char *what, int err)
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
			err = braid_rdma.create_qp(w->id, w->port->pd, &a) ?
				      errno ? -errno : -EIO : 0;
			w->qp = err ? NULL : w->id->qp;
		} else {
			w->qp = braid_ibv.create_qp(w->port->pd, &a);
			err = w->qp ? 0 : errno ? -errno : -EIO;
		}
		if (!err)
			break;
	}
	if (err)
		return tell_limit(w, "queue pair", braid_qp_failed(w, "ibv_create_qp", err));
	w->inline_max = a.cap.max_inline_data;
	return 0;
}

static bool is_spread(const struct braid_ibport *p)
{
	return braid_param.ib_adaptive_routing < 0 ? p->fabric == BRAID_FABRIC_IB :
						     braid_param.ib_adaptive_routing;
}

/* -ECANCELED if the owner has dropped its reference, perhaps while the NIC was busy; else 0. */
static int wanted(const struct braid_qp *w)
{
	return atomic_load(&w->gone) ? -ECANCELED : 0;
}

/* Makes what every queue pair needs.  own: its receives are not shared. */
static int qp_fill(struct braid_qp *w, bool own)
{
	struct braid_ibport *p = w->port;
	int err = own ? 0 : braid_srq_join(p, &w->srq);

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
		w->m = braid_qp_memory(p, !w->srq);
	err = w->m ? wanted(w) : braid_qp_failed(w, "ibv_reg_mr", -ENOMEM);
	if (!err)
		err = qp_cq(w);
	if (err && err != -ECANCELED)
		tell_limit(w, "completion queue or its memory", err);
	if (!err)
		err = wanted(w);
	if (!err && p->fabric != BRAID_FABRIC_IWARP)
		err = braid_qp_create(w);
	return err;
}

static struct braid_qp *qp_new(struct braid_ibport *p, struct braid_dev *dev)
{
	struct braid_qp *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->port = p;
	w->dev = dev;
	atomic_store(&w->users, 1);
	return w;
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

	return braid_qp_failed(w, "ibv_post_recv", err);
}

/* --- states -------------------------------------------------------------------------------- */

static int to_init(struct braid_qp *w, unsigned access)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .pkey_index = w->port->pkey_index,
		.port_num = w->port->num, .qp_access_flags = access,
	};
	int err = -braid_ibv.modify_qp(w->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
						  IBV_QP_ACCESS_FLAGS);

	return braid_qp_failed(w, "ibv_modify_qp to INIT", err);
}

uint8_t braid_qp_class(int traffic_class)
{
	if (braid_param.dscp >= 0)
		return (uint8_t)(braid_param.dscp << 2);
	return (uint8_t)(traffic_class >= 0 ? traffic_class : braid_param.ib_tc);
}

static struct ibv_ah_attr address(const struct braid_qp *w, const struct braid_qp_blob *peer,
				  int traffic_class)
{
	struct ibv_ah_attr a = {
		.port_num = w->port->num, .sl = (uint8_t)braid_param.ib_sl, .dlid = w->dlid,
	};
	uint32_t flow = 0;

	if (w->gid == BRAID_GID_NONE || !peer->ngids)
		return a;
	braid_os->random(&flow, sizeof(flow));	/* queue pairs may take different paths */
	a.is_global = 1;
	memcpy(a.grh.dgid.raw, peer->gid[w->peer_gid].raw, 16);
	a.grh.sgid_index = (uint8_t)w->gid;
	a.grh.flow_label = flow & 0xfffff;
	a.grh.hop_limit = HOPS;
	a.grh.traffic_class = braid_qp_class(traffic_class);
	return a;
}

/*
 * Fails now if the address can't be reached, which otherwise shows as a timeout.  Drivers without
 * address handles (qedr, mana) can't tell here.
 */
static int reach(struct braid_qp *w, struct ibv_ah_attr *a)
{
	struct ibv_ah *ah;

	if (!a->is_global)
		return 0;
	errno = 0;
	ah = braid_ibv.create_ah(w->port->pd, a);
	if (ah)
		braid_ibv.destroy_ah(ah);
	if (ah || errno == EOPNOTSUPP || errno == ENOSYS)
		return 0;
	return braid_qp_failed(w, "ibv_create_ah", errno ? -errno : -EHOSTUNREACH);
}

static int to_ready(struct braid_qp *w, const struct braid_qp_blob *peer, int traffic_class)
{
	unsigned mtu = atomic_load(&w->port->mtu);
	struct ibv_qp_attr r = {
		.qp_state = IBV_QPS_RTR, .ah_attr = address(w, peer, traffic_class),
		.path_mtu = (enum ibv_mtu)(peer->mtu < mtu ? peer->mtu : mtu),
		.dest_qp_num = peer->qpn, .rq_psn = peer->psn, .max_dest_rd_atomic = 1,
		.min_rnr_timer = RNR_TIMER,
	};
	struct ibv_qp_attr s = {
		.qp_state = IBV_QPS_RTS, .timeout = (uint8_t)braid_param.ib_timeout,
		.retry_cnt = braid_qp_retries(),
		.rnr_retry = RNR_FOREVER,
		.sq_psn = w->psn, .max_rd_atomic = 1,
	};
	int err;

	err = reach(w, &r.ah_attr);
	if (err)
		return err;
	braid_ece_take(w, peer);
	err = -braid_ibv.modify_qp(w->qp, &r, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					      IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (err)
		return braid_qp_failed(w, "ibv_modify_qp to RTR", err);
	err = -braid_ibv.modify_qp(w->qp, &s, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					      IBV_QP_MAX_QP_RD_ATOMIC);
	return braid_qp_failed(w, "ibv_modify_qp to RTS", err);
}

/* --- GIDs ---------------------------------------------------------------------------------- */

/* Logs the chosen GID, unless it was chosen the last time. */
static void tell_gid(struct braid_ibport *p, const struct braid_gid *g, const char *why)
{
	char text[512], addr[INET6_ADDRSTRLEN];

	braid_gid_text(g->raw, addr, sizeof(addr));
	snprintf(text, sizeof(text), "GID %u, %s, %s%s%.300s", g->index,
		 braid_gid_type_name(g->type), addr, why[0] ? "; passed over: " : "", why);
	if (!strcmp(text, p->chosen))
		return;
	strcpy(p->chosen, text);
	if (g->type == BRAID_GID_ROCE_V1)
		braid_warn("port %s: %s. RoCE v1 is not routed: both hosts must be in one "
			   "Ethernet segment [roce-v1-route]", p->name, text);
	else
		braid_info("port %s: %s", p->name, text);
}

/* The GID index that the user sets for this port alone, or BRAID_GID_NONE. */
static int own_gid(const struct braid_ibport *p)
{
	return braid_netdev_port_number(braid_param.ib_gid, p->ctx->device->name, p->num);
}

static int wanted_gid(const struct braid_ibport *p)
{
	int own = own_gid(p);

	return own == BRAID_GID_NONE ? (int)braid_param.ib_gid_index : own;
}

/* Chooses our GID of that type, for the address in use; logs it if it is final. */
static int pick_gid(struct braid_qp *w, const struct braid_dev *dev, enum braid_gid_type type,
		    bool final, struct braid_gid *ret)
{
	struct braid_gid table[BRAID_GIDS_MAX];
	unsigned n = braid_ibport_gids(w->port, table, BRAID_GIDS_MAX);
	struct braid_gid_wish wish;
	char why[400];
	int i;

	braid_gid_wish_parse(braid_param_family(braid_param.ib_addr_family),
			     braid_param.ib_addr_range, &wish);
	i = braid_gid_choose(table, n, type, &dev->net.addr.sa, dev->net.ifindex,
			     wanted_gid(w->port), &wish, why, sizeof(why));
	if (i == BRAID_GID_NONE)
		return -EADDRNOTAVAIL;
	*ret = table[i];
	if (final)
		tell_gid(w->port, ret, why);
	return 0;
}

/* The usual reason: the user asks for an index that is right on another host. */
static int no_gid(struct braid_setup *s)
{
	const struct braid_ibport *p = braid_ibport_of(s->dev);
	char name[BRAID_PARAM_VARIABLE];
	int index = wanted_gid(p);

	if (index != BRAID_GID_NONE)
		snprintf(s->why, sizeof(s->why), "wrong GID: index %d is empty, or not of the "
			 "peer's RoCE version; unset %s", index, own_gid(p) == BRAID_GID_NONE ?
			 braid_param_variable("ib_gid_index", name) : "BRAID_IB_GID");
	return -EADDRNOTAVAIL;
}

static void add_gid(struct braid_qp_blob *b, const struct braid_gid *g)
{
	b->gid[b->ngids].type = (uint8_t)g->type;
	memcpy(b->gid[b->ngids++].raw, g->raw, 16);
}

/* The dialler offers one GID of each type; the accepter takes the first type that it has too. */
static int gids_for(struct braid_qp *w, const struct braid_dev *dev,
		    const struct braid_qp_blob *peer, struct braid_qp_blob *b)
{
	enum braid_gid_type roce[] = { BRAID_GID_ROCE_V2, BRAID_GID_ROCE_V1 };
	struct braid_gid g, own[2];
	unsigned n;

	if (braid_param.ib_roce_version == 1) {
		roce[0] = BRAID_GID_ROCE_V1;
		roce[1] = BRAID_GID_ROCE_V2;
	}
	if (w->port->fabric == BRAID_FABRIC_IWARP)
		return 0;
	if (w->port->fabric == BRAID_FABRIC_IB) {
		n = braid_route_gids(w->port, own);
		for (unsigned i = 0; i < n; i++)
			add_gid(b, &own[i]);
		return 0;
	}
	for (unsigned i = 0; i < 2; i++) {
		enum braid_gid_type type = peer ? i < peer->ngids ? peer->gid[i].type :
					   BRAID_GID_IB : roce[i];

		if (type == BRAID_GID_IB || pick_gid(w, dev, type, peer, &g))
			continue;
		add_gid(b, &g);
		w->gid = (int)g.index;
		if (peer)
			break;
	}
	return b->ngids ? 0 : -EADDRNOTAVAIL;
}

/* The dialler takes its GID of the type that the accepter has chosen. */
static int settle_gid(struct braid_qp *w, struct braid_setup *s,
		      const struct braid_qp_blob *peer)
{
	struct braid_gid g;

	if (w->port->fabric == BRAID_FABRIC_IB)
		return braid_route_find(w, peer, s->why, sizeof(s->why));
	if (!peer->ngids)
		return -EPROTO;
	if (pick_gid(w, s->dev, peer->gid[0].type, true, &g))
		return no_gid(s);
	w->gid = (int)g.index;
	return 0;
}

static void take_peer(struct braid_qp *w, const struct braid_qp_blob *peer)
{
	if (!peer->imm)
		w->imm_max = 0;
	w->wr_max = peer->slots < BRAID_SLOTS_RX ? peer->slots : BRAID_SLOTS_RX;
	w->peer_ack = peer->ack;
	w->peer_ack_key = peer->ack_key;
}

/* The dialler's blob, with its GID of the type that the accepter has chosen in first place. */
static struct braid_qp_blob of_type(const struct braid_qp_blob *peer, uint8_t type)
{
	struct braid_qp_blob b = *peer;

	for (unsigned i = 0; i < peer->ngids; i++) {
		if (peer->gid[i].type == type) {
			b.gid[0] = peer->gid[i];
			break;
		}
	}
	return b;
}

static int setup(struct braid_qp *w, const struct braid_qp_blob *peer,
		 struct braid_qp_blob *b)
{
	int err;

	w->moves = atomic_load(&w->port->moves);
	braid_ibport_refresh(w->port);
	err = gids_for(w, w->dev, peer, b);
	if (err)
		err = no_gid(&w->setup);
	if (!err && peer && w->port->fabric == BRAID_FABRIC_IB)
		err = braid_route_find(w, peer, w->setup.why, sizeof(w->setup.why));
	if (!err && w->port->fabric == BRAID_FABRIC_IWARP && peer)
		err = braid_cm_accept(w);
	else if (!err && w->port->fabric != BRAID_FABRIC_IWARP)
		err = to_init(w, IBV_ACCESS_REMOTE_WRITE);
	if (!err && w->qp)
		err = braid_qp_post_all(w);
	if (!err && peer && w->qp) {
		struct braid_qp_blob mine = of_type(peer, b->ngids ? b->gid[0].type : 0);

		err = to_ready(w, &mine, w->setup.traffic_class);
	}
	if (!err && (!peer || w->ece))
		braid_ece_tell(w, b);
	return err;
}

/* --- the steps of a handshake, each with a job for the NIC --------------------------------- */

static void make_run(struct braid_job *job)
{
	struct braid_qp *w = braid_container(job, struct braid_qp, make);
	const struct braid_qp_blob *peer = w->setup.dialler ? NULL : &w->peer;

	w->err = wanted(w);
	if (!w->err)
		w->err = qp_fill(w, false);
	if (!w->err)
		w->err = wanted(w);
	if (!w->err && peer)
		take_peer(w, peer);
	if (!w->err)
		w->err = setup(w, peer, &w->mine);
	atomic_store(&w->made, true);
	braid_qp_put(w);
}

static void peer_run(struct braid_job *job)
{
	struct braid_qp *w = braid_container(job, struct braid_qp, make);

	w->err = wanted(w);
	if (!w->err && w->port->fabric == BRAID_FABRIC_IWARP) {
		w->err = braid_cm_connect(w);
	} else if (!w->err) {
		w->err = settle_gid(w, &w->setup, &w->peer);
		if (!w->err)
			w->err = to_ready(w, &w->peer, w->setup.traffic_class);
	}
	atomic_store(&w->made, true);
	braid_qp_put(w);
}

static void make(struct braid_qp *w, const char *what, void (*run)(struct braid_job *job))
{
	w->make = (struct braid_job){ .what = what, .run = run };
	atomic_store(&w->made, false);
	braid_qp_get(w);
	braid_later(w->dev, BRAID_MAKE, &w->make);
}

/* Do the NIC's commands hang?  Then waiting for it only delays the lane, which can use a socket. */
static bool hangs(struct braid_dev *dev)
{
	uint64_t now = braid_os->now_ns();

	return braid_later_hangs(dev, BRAID_MAKE, now) || braid_later_hangs(dev, BRAID_STOP, now);
}

static int setup_begin(struct braid_setup *s, const uint8_t *theirs)
{
	struct braid_ibport *p = braid_ibport_of(s->dev);
	struct braid_qp_blob peer = { 0 };
	struct braid_qp *w;
	int err = 0;

	braid_ibport_events(p);		/* without a lane, nothing else reads them */
	braid_hush_look(p);
	if (atomic_load(&p->down))
		return -ENETDOWN;
	if (hangs(s->dev))
		return -EBUSY;
	if (theirs)
		err = braid_qp_blob_unpack(theirs, &peer);
	if (!err && theirs && peer.fabric != p->fabric)
		err = -EPROTOTYPE;	/* InfiniBand here, RoCE or iWARP there */
	w = err ? NULL : qp_new(p, s->dev);
	if (!w)
		return err ? err : -ENOMEM;
	w->setup = *s;
	memcpy(&w->to, s->to, s->to->sa_family == AF_INET ? sizeof(struct sockaddr_in) :
							     sizeof(struct sockaddr_in6));
	w->peer = peer;
	w->dialler = s->dialler;
	w->traffic_class = s->traffic_class;
	braid_os->random(&w->psn, sizeof(w->psn));
	braid_os->random(&w->nonce, sizeof(w->nonce));
	w->psn &= 0xffffff;
	s->priv = w;
	make(w, "to make a queue pair", make_run);
	return -EAGAIN;
}

/* The job's result; copies the reason of a failure, for the log. */
static int outcome(struct braid_setup *s, const struct braid_qp *w)
{
	s->failed = w->failed;
	memcpy(s->why, w->setup.why, sizeof(s->why));
	return w->err;
}

static void tell_mine(struct braid_qp *w, uint8_t *ret)
{
	const struct braid_ibport *p = w->port;
	struct braid_qp_blob *b = &w->mine;

	b->fabric = (uint8_t)p->fabric;
	b->mtu = (uint8_t)atomic_load(&p->mtu);
	b->imm = p->imm;
	b->lid = atomic_load(&p->lid);
	b->grh = p->grh;
	b->slots = BRAID_SLOTS_RX - BRAID_REPOST;
	b->cm_port = p->cm_port;
	b->qpn = p->fabric == BRAID_FABRIC_IWARP ? 0 : w->qp->qp_num;
	b->psn = w->psn;
	b->ack = (uint64_t)(uintptr_t)w->m->ack;
	b->ack_key = w->m->ack_mr->rkey;
	b->nonce = w->nonce;
	braid_qp_blob_pack(b, ret);
}

int braid_qp_setup(struct braid_setup *s, const uint8_t *theirs, uint8_t *mine)
{
	struct braid_qp *w = s->priv;
	int err;

	if (!w)
		return setup_begin(s, theirs);
	if (!atomic_load(&w->made))
		return -EAGAIN;
	err = outcome(s, w);
	if (err)
		braid_qp_drop(s);
	else
		tell_mine(w, mine);
	return err;
}

int braid_qp_peer(struct braid_setup *s, const uint8_t *theirs)
{
	struct braid_qp *w = s->priv;
	int err = braid_qp_blob_unpack(theirs, &w->peer);

	if (err)
		return err;
	take_peer(w, &w->peer);
	if (w->port->fabric == BRAID_FABRIC_IWARP)
		w->nonce = w->peer.nonce;
	make(w, "to connect a queue pair", peer_run);
	return 0;
}

int braid_qp_ready(struct braid_setup *s)
{
	struct braid_qp *w = s->priv;
	int err;

	if (!atomic_load(&w->made))
		return -EAGAIN;
	err = outcome(s, w);
	return err || w->port->fabric != BRAID_FABRIC_IWARP ? err : braid_cm_state(w);
}

void braid_qp_drop(struct braid_setup *s)
{
	braid_qp_free(s->priv);
	s->priv = NULL;
}

/* --- the port with itself ------------------------------------------------------------------ */

int braid_qp_loop(struct braid_ibport *p, struct braid_dev *dev, struct braid_qp **ret,
		    const char **ret_failed)
{
	struct braid_qp_blob b = { 0 };
	struct braid_qp *w;
	struct braid_gid g;
	char why[160];
	int err = -EOPNOTSUPP;

	if (ret_failed)
		*ret_failed = NULL;
	if (p->fabric == BRAID_FABRIC_IWARP)
		return err;
	w = qp_new(p, dev);
	if (!w)
		return -ENOMEM;
	err = qp_fill(w, true);
	if (!err)
		err = gids_for(w, dev, NULL, &b);
	if (p->fabric == BRAID_FABRIC_ROCE && !err) {
		err = pick_gid(w, dev, b.gid[0].type, false, &g);
		w->gid = (int)g.index;
	}
	if (!err)
		err = to_init(w, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	braid_ibport_refresh(p);
	b.mtu = (uint8_t)atomic_load(&p->mtu);
	b.lid = atomic_load(&p->lid);
	b.qpn = w->qp ? w->qp->qp_num : 0;
	if (!err && p->fabric == BRAID_FABRIC_IB)
		err = braid_route_find(w, &b, why, sizeof(why));
	if (!err)
		err = to_ready(w, &b, -1);
	if (err) {
		if (ret_failed)
			*ret_failed = w->failed;
		braid_qp_end(w);
		return err;
	}
	atomic_store(&w->made, true);
	*ret = w;
	return 0;
}

enum {
	PROOF = 0x62726169, PROOF_AT = 32,	/* an unused word of the page at `ack` */
	PROOF_MS = 1000,
};

static bool is_proof(const struct braid_qp *w, enum ibv_wr_opcode op, const struct ibv_wc *wc)
{
	uint32_t word = PROOF;

	if (!(wc->wc_flags & IBV_WC_WITH_IMM) || wc->byte_len != sizeof(word) ||
	    be32toh(wc->imm_data) != PROOF)
		return false;
	return op == IBV_WR_SEND_WITH_IMM ?
		       wc->opcode == IBV_WC_RECV && !memcmp(w->m->slots->rx, &word, sizeof(word)) :
		       wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
			       atomic_load(&w->m->ack[PROOF_AT]) == PROOF;
}

static bool imm_arrives(struct braid_qp *w, enum ibv_wr_opcode op)
{
	uint64_t until = braid_os->now_ns() + PROOF_MS * 1000000ull;
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)w->m->bounce, .length = sizeof(uint32_t),
		.lkey = w->m->bounce_mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = op,
		.send_flags = IBV_SEND_SIGNALED, .imm_data = htobe32(PROOF),
		.wr.rdma = {
			.remote_addr = (uint64_t)(uintptr_t)&w->m->ack[PROOF_AT],
			.rkey = w->m->ack_mr->rkey,
		},
	};
	const uint32_t word = PROOF;
	struct ibv_recv_wr first = w->m->slots->wr[0];
	struct ibv_wc wc;

	first.next = NULL;
	memcpy(w->m->bounce, &word, sizeof(word));
	atomic_store(&w->m->ack[PROOF_AT], 0);
	if (braid_qp_post_recv(w, &first) || ibv_post_send(w->qp, &wr, &bad))
		return false;
	while (braid_os->now_ns() < until) {
		if (ibv_poll_cq(w->cq, 1, &wc) <= 0)
			continue;
		if (wc.status != IBV_WC_SUCCESS)
			return false;
		if (wc.opcode & IBV_WC_RECV)
			return is_proof(w, op, &wc);
	}
	return false;
}

bool braid_qp_proves_imm(struct braid_ibport *p, struct braid_dev *dev, char *why, size_t len)
{
	const char *failed;
	struct braid_qp *w;
	int err = braid_qp_loop(p, dev, &w, &failed);
	bool proven;

	if (err) {
		snprintf(why, len, "can't be connected to itself (%s%s%s): each write is followed "
			 "by a message", failed ? failed : "", failed ? ": " : "", strerror(-err));
		return false;
	}
	snprintf(why, len, "shows no immediate data: each write is followed by a message");
	proven = imm_arrives(w, IBV_WR_RDMA_WRITE_WITH_IMM) && imm_arrives(w, IBV_WR_SEND_WITH_IMM);
	braid_qp_end(w);
	return proven;
}
