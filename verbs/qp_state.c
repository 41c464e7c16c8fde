/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * qp_state.c - the states of a queue pair over InfiniBand and RoCE, from INIT to RTS.
 *
 * Over iWARP rdma_cm does this (cm.c).  Source: InfiniBand Architecture Specification vol. 1, 10.3
 * (queue pair states and what each transition needs).
 */
#include <errno.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "verbs/qp.h"

enum {
	RNR_TIMER = 12,			/* 0.64 ms: rarely needed, since senders count receives */
	RNR_FOREVER = 7,
	HOPS = 64,
};

int braid_qp_to_init(struct braid_qp *w, unsigned access)
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

/*
 * A flow label from which NICs make a UDP source port (0xc000 | low 14 bits ^ high 6 bits): random,
 * but for the last bits of the port, by which lanes of a link differ.
 */
static uint32_t flow_label(const struct braid_qp *w, const uint8_t gid[16])
{
	uint32_t flow = 0, bits = braid_ports_bits(w->setup.lane);

	braid_os->random(&flow, sizeof(flow));
	if (w->setup.again)
		return flow & 0xfffff;
	for (unsigned i = 0; i < 16; i++)
		bits ^= gid[i];	/* not the same for all links */
	bits ^= flow ^ flow >> 14;
	return (flow ^ (bits & 15)) & 0xfffff;
}

static struct ibv_ah_attr address(const struct braid_qp *w, const struct braid_qp_blob *peer,
				  int traffic_class)
{
	struct ibv_ah_attr a = {
		.port_num = w->port->num, .sl = (uint8_t)braid_param.ib_sl, .dlid = w->dlid,
	};

	if (w->gid == BRAID_GID_NONE || !peer->ngids)
		return a;
	a.is_global = 1;
	memcpy(a.grh.dgid.raw, peer->gid[w->peer_gid].raw, 16);
	a.grh.sgid_index = (uint8_t)w->gid;
	a.grh.flow_label = flow_label(w, a.grh.dgid.raw);
	a.grh.hop_limit = HOPS;
	a.grh.traffic_class = braid_qp_class(traffic_class);
	return a;
}

/*
 * Fails now if the address can't be reached, which would otherwise show only as a timeout.  Drivers
 * without address handles (qedr, mana) can't find that out, so for them this returns 0.
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

int braid_qp_to_ready(struct braid_qp *w, const struct braid_qp_blob *peer, int traffic_class)
{
	unsigned mtu = atomic_load(&w->port->mtu);
	struct ibv_qp_attr r = {
		.qp_state = IBV_QPS_RTR, .ah_attr = address(w, peer, traffic_class),
		.path_mtu = (enum ibv_mtu)(peer->mtu < mtu ? peer->mtu : mtu),
		.dest_qp_num = peer->qpn, .rq_psn = peer->psn,
		.max_dest_rd_atomic = w->reads_in ? w->reads_in : 1,
		.min_rnr_timer = RNR_TIMER,
	};
	struct ibv_qp_attr s = {
		.qp_state = IBV_QPS_RTS, .timeout = (uint8_t)braid_param.ib_timeout,
		.retry_cnt = braid_qp_retries(),
		.rnr_retry = RNR_FOREVER,
		.sq_psn = w->psn, .max_rd_atomic = w->reads_out ? w->reads_out : 1,
	};
	int err;

	err = reach(w, &r.ah_attr);
	if (err)
		return err;
	braid_ece_apply(w, peer);
	w->receives = true;
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
