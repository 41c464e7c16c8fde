/* SPDX-License-Identifier: BSD-3-Clause */
/* tx.c - a lane over UCX sends: heads and payloads, in order, as messages. */
#include <errno.h>

#include "ucx/ep.h"

/*
 * Drops the link's lock while UCX copies a large message.  It does not wait for the endpoint's
 * lock: the thread that holds it polls in a loop, and needs the link's lock to take what has come.
 */
static int send_unlocked(struct braid_lane *lane, const void *data, size_t len, uint64_t tag,
			 const struct braid_mr *gpu)
{
	struct ucx_ep *w = braid_ucx_ep_of(lane);
	int err;

	if (w->over)
		return -EIO;
	if (!braid_trylock(&w->lock))
		return -EAGAIN;
	if (len > BRAID_COPY_LOCKED)
		braid_unlock(&lane->link->lock);
	err = braid_ucx_send(w, data, len, tag, gpu);
	braid_unlock(&w->lock);
	if (len > BRAID_COPY_LOCKED)
		braid_lock_wait(&lane->link->lock);
	return err;
}

int braid_ucx_push(struct braid_lane *lane)
{
	const struct braid_can can = {
		.max = BRAID_UCX_SLOT, .payload_max = SIZE_MAX, .head_last = true,
		.gpu = lane->gpu, .unacked_max = UINT32_MAX,
	};
	size_t budget = BRAID_CALL_BUDGET;
	struct braid_piece p;
	int err = 0;

	braid_assert_locked(&lane->link->lock);
	while (budget && !err) {
		err = braid_lane_next(lane, &can, &p);
		if (err <= 0)
			return err;
		err = send_unlocked(lane, p.data, p.len, p.kind == BRAID_PIECE_PAYLOAD ?
				    BRAID_UCX_PAYLOAD : BRAID_UCX_HEAD, p.gpu);
		if (err)
			break;
		braid_tx_advance(lane, p.bytes);
		budget -= p.bytes < budget ? p.bytes : budget;
	}
	return err == -EIO ? braid_ucx_broken(lane, braid_ucx_ep_of(lane)) : err;
}

/* Sends a single message, with the short header that lies before the payload. */
BRAID_HOT int braid_ucx_lane_post(struct braid_lane *lane, uint32_t imm, const char *payload,
				  uint32_t len)
{
	braid_assert_locked(&lane->link->lock);
	(void)imm;
	return send_unlocked(lane, payload - BRAID_SHORT_SIZE, len + BRAID_SHORT_SIZE,
			     BRAID_UCX_HEAD, NULL);
}
