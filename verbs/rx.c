/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rx.c - a lane over verbs receives: completions, and the count that the peer writes into our
 * memory.
 *
 * Completions are polled without the link's lock, under the lane's io lock alone, and taken with
 * it.  Slots that are empty again are posted several at a time.
 */
#include <endian.h>
#include <errno.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/units.h"
#include "verbs/verbs.h"

enum {
	POLLS = 4,			/* batches of completions a call */
	EXTRA_POLLS = 7,		/* more polls, if no other link is in use */
	ODD_MS = 100,			/* by then the NIC has written all words of the counts */
};

static BRAID_APART int wc_failed(const struct braid_lane *lane, const struct ibv_wc *wc)
{
	const struct braid_qp *w = braid_qp_of(lane);
	const char *hint = wc->status == IBV_WC_RETRY_EXC_ERR ?
			   "; the peer did not answer: a path that is down, or a GID, VLAN or "
			   "firewall (UDP 4791) that does not let it through" :
			   wc->status == IBV_WC_LOC_PROT_ERR ?
			   "; if memory of a GPU is concerned, look at PCIe ACS" : "";

	braid_info("port %s, peer %s: queue pair 0x%x: %s (vendor 0x%x)%s", w->port->name,
		   lane->link->peer, w->qp->qp_num,
		   braid_ibv.wc_status_str(wc->status), wc->vendor_err, hint);
	return wc->status == IBV_WC_RETRY_EXC_ERR ? -ETIMEDOUT : -EIO;
}

/* Queues an empty slot.  slots_post() posts it with others, since the caller may wait for data. */
static void slot_free(struct braid_qp *w, struct ibv_recv_wr *slot)
{
	if (!w->nagain++)
		w->again_end = &w->again;
	*w->again_end = slot;
	w->again_end = &slot->next;
	w->slots++;
}

static int slots_post(struct braid_qp *w)
{
	if (w->nagain < (w->srq ? atomic_load_explicit(&w->srq->repost, memory_order_relaxed) :
				  w->grow.repost))
		return 0;
	w->nagain = 0;
	*w->again_end = NULL;
	if (!braid_qp_post_recv(w, w->again))
		return w->grow.may ? braid_grow(w) : 0;
	atomic_store(&w->lost, true);
	return -EIO;
}

static int handle_recv(struct braid_lane *lane, const struct ibv_wc *wc, const char *slot)
{
	if (!(wc->wc_flags & IBV_WC_WITH_IMM) && wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM)
		return braid_rx_message(lane, slot, wc->byte_len);
	return braid_rx_imm(lane, be32toh(wc->imm_data),
			    wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM ? NULL : slot, wc->byte_len);
}

/* Takes completions wc_beg .. wc_end.  -EAGAIN: the next one's data is on its way into a GPU. */
static int handle_completions(struct braid_lane *lane, struct braid_qp *w)
{
	int i = w->wc_beg, err = 0, again = 0;

	braid_assert_locked(&lane->link->lock);
	for (; i < w->wc_end && !err; i++) {
		const struct ibv_wc *wc = &w->wc[i];

		if (wc->status != IBV_WC_SUCCESS) {
			err = wc_failed(lane, wc);
			break;
		}
		if (!(wc->opcode & IBV_WC_RECV)) {
			atomic_store_explicit(&w->sq_done, (uint32_t)wc->wr_id,
					      memory_order_release);
			braid_reads_over(lane, (uint32_t)wc->wr_id);
			continue;
		}
		err = handle_recv(lane, wc, braid_slot_data(braid_slot_wr(wc)));
		if (err == -EAGAIN)
			break;
		slot_free(w, braid_slot_wr(wc));
	}
	w->wc_beg = i;
	if (w->bounces_back != w->bounces)	/* other lanes may wait for them */
		braid_verbs_bounces_back(w);
	/*
	 * With the lock still held, since frames that report the slots as posted need it to be
	 * sent.
	 */
	if (!err || err == -EAGAIN)
		again = slots_post(w);
	return again ? again : err;
}

/* Takes in the count that the peer writes into our memory. */
static int read_count(struct braid_lane *lane, struct braid_qp *w)
{
	uint32_t counts[2];
	uint64_t odd;

	braid_assert_locked(&lane->link->lock);
	if (!braid_verbs_counts(lane, w, counts)) {
		odd = atomic_load_explicit(&w->odd_ns, memory_order_relaxed);
		return odd && braid_since(odd, braid_os->now_ns()) >= ODD_MS * MS ? -EILSEQ : 0;
	}
	if (counts[0] == w->ack_seen)
		return 0;
	w->ack_seen = counts[0];
	return braid_rx_count(lane, counts[0]);
}

static bool has_count(const struct braid_qp *w)
{
	return le32toh(atomic_load_explicit(w->m->ack, memory_order_relaxed)) != w->ack_seen ||
	       atomic_load_explicit(&w->odd_ns, memory_order_relaxed);
}

/* Is there something to take?  1, 0 or -EIO. */
static int poll_cq(struct braid_qp *w)
{
	int n;

	if (w->wc_beg == w->wc_end) {
		n = ibv_poll_cq(w->cq, BRAID_POLL_MAX, w->wc);
		w->wc_beg = 0;
		w->wc_end = n < 0 ? 0 : n;
		if (n)
			return n < 0 ? -EIO : 1;
	}
	return w->wc_beg != w->wc_end || has_count(w) || w->count_due;
}

/* Takes what poll_cq() has found.  Returns how many times, or a negative errno. */
static BRAID_APART BRAID_HOT int handle_found(struct braid_lane *lane, struct braid_qp *w)
{
	struct braid_lock *lock = &lane->link->lock;
	int handled = 0, err, later;

	do {
		if (!braid_trylock(lock))
			return 1;
		later = handle_completions(lane, w);
		err = later == -EAGAIN ? 0 : later;
		if (!err)
			err = read_count(lane, w);
		if (!err)
			err = braid_verbs_count_if_due(lane, w);
		braid_unlock(lock);
		handled++;
		if (err || later || w->wc_end < BRAID_POLL_MAX || handled == POLLS)
			break;
		err = poll_cq(w);
	} while (err > 0);
	return err ? err : handled;
}

BRAID_HOT int braid_verbs_poll(struct braid_lane *lane)
{
	struct braid_qp *w = braid_qp_of(lane);
	int res;

	braid_assert_locked(&lane->io);
	if (w->over)
		return 0;
	res = poll_cq(w);
	if (!res && braid_lane_is_alone(lane)) {
		for (unsigned i = 0; i < EXTRA_POLLS && !res; i++)
			res = poll_cq(w);
	}
	/* What had come before it broke is taken first. */
	if (!res && atomic_load_explicit(&w->broken, memory_order_acquire)) {
		res = poll_cq(w);
		if (!res)
			return lane->rx_broken ? -EPROTO : -EIO;
	}
	return res > 0 ? handle_found(lane, w) : res;
}
