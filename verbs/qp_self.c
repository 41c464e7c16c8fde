/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * qp_self.c - a queue pair that is its own peer.  The probe makes one to try whether immediate data
 * arrives.  The loop (loop.h) is another.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/os.h"
#include "core/base/units.h"
#include "verbs/qp.h"
#include "verbs/route.h"

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
	w = braid_qp_new(p, dev);
	if (!w)
		return -ENOMEM;
	err = braid_qp_fill(w, true);
	if (!err)
		err = braid_qp_gids(w, dev, NULL, &b);
	if (p->fabric == BRAID_FABRIC_ROCE && !err) {
		err = braid_qp_pick_gid(w, dev, b.gid[0].type, false, &g);
		w->gid = (int)g.index;
	}
	if (!err)
		err = braid_qp_to_init(w, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	braid_ibport_refresh(p);
	b.mtu = (uint8_t)atomic_load(&p->mtu);
	b.lid = atomic_load(&p->lid);
	b.qpn = w->qp ? w->qp->qp_num : 0;
	if (!err && p->fabric == BRAID_FABRIC_IB)
		err = braid_route_find(w, &b, why, sizeof(why));
	if (!err)
		err = braid_qp_to_ready(w, &b, -1);
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
	PROOF = 0x62726169,
	PROOF_AT = 32, PROOF_FROM = 48,	/* unused words of the page at `ack` */
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
	uint64_t until = braid_os->now_ns() + PROOF_MS * MS;
	struct ibv_sge sge = {
		.addr = (uint64_t)(uintptr_t)&w->m->ack[PROOF_FROM], .length = sizeof(uint32_t),
		.lkey = w->m->ack_mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = op,
		.send_flags = IBV_SEND_SIGNALED, .imm_data = htobe32(PROOF),
		.wr.rdma = {
			.remote_addr = (uint64_t)(uintptr_t)&w->m->ack[PROOF_AT],
			.rkey = w->m->ack_mr->rkey,
		},
	};
	struct ibv_recv_wr first = w->m->slots->wr[0];
	struct ibv_wc wc;

	first.next = NULL;
	atomic_store(&w->m->ack[PROOF_FROM], PROOF);
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
