/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * qp_try.c - a first packet over a new queue pair, before it carries a lane.
 *
 * A queue pair of InfiniBand or RoCE comes up without a packet.  If its path carries none, a lane
 * would stand still until the NIC gives up, which takes seconds.  So the dialler writes nothing, 0
 * bytes, into the peer's memory, and says that it is ready once the peer's NIC has acknowledged
 * that.  The peer's queue pair takes packets before its bytes of the handshake leave.
 */
#include <errno.h>
#include <stdio.h>

#include "core/base/os.h"
#include "core/base/units.h"
#include "verbs/qp.h"

int braid_qp_try(struct braid_qp *w)
{
	struct ibv_send_wr wr = {
		.wr_id = BRAID_WR_IS_SEND, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = w->peer_ack, .rkey = w->peer_ack_key },
	}, *bad;

	if (ibv_post_send(w->qp, &wr, &bad))
		return braid_qp_failed(w, "ibv_post_send", -EIO);
	w->tried_ns = braid_os->now_ns();
	return 0;
}

static int no_answer(struct braid_setup *s, const char *what)
{
	snprintf(s->why, sizeof(s->why), "%s; no packet came through: a path that is down, or a "
		 "GID, VLAN or firewall (UDP 4791)", what);
	return -EHOSTUNREACH;
}

int braid_qp_tried(struct braid_qp *w, struct braid_setup *s)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(w->cq, 1, &wc);

	if (n > 0 && wc.status == IBV_WC_SUCCESS)
		return 0;
	if (n)
		return no_answer(s, n < 0 ? "a queue of completions is broken" :
					    braid_ibv.wc_status_str(wc.status));
	if (braid_since(w->tried_ns, braid_os->now_ns()) < s->try_ms * MS)
		return -EAGAIN;
	return no_answer(s, "the peer's NIC did not answer");
}
