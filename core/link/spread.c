/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * spread.c - which lane carries which chunk of a message.
 *
 * A chunk goes to the lane on which it will arrive first, of those that take more now.
 */
#include "core/link/link_int.h"

#include "core/base/param.h"
#include "core/link/txq_int.h"
#include "core/link/upcalls.h"

enum {
	SPREAD_MIN = 32 << 10,		/* the fewest bytes worth a lane of their own */
	WORTH_WAITING = 2,		/* wait for a full lane so many times faster than others */
	LANE_QUEUE = 256 << 10,		/* bytes queued for a lane that the carrier has not taken */
};

void braid_link_pending(struct braid_link *link, struct braid_xfer *x)
{
	braid_assert_locked(&link->lock);
	braid_list_add_tail(&link->tx.pending, &x->node);
	braid_link_stall(link);
}

static bool can_queue(const struct braid_lane *lane, bool single)
{
	const struct braid_txq *q = &lane->tx;

	return !lane->blocked && braid_lane_up(lane) && q->unsent < (single ? LANE_QUEUE : 1) &&
	       (!lane->flight_max || q->unacked < lane->flight_max) && braid_txq_room(q, 0);
}

/*
 * The lane on which a chunk will arrive first, of those that take more now.  NULL, to wait, if a
 * full lane is much faster: on a slow lane the chunk would delay its message.
 */
static struct braid_lane *pick_lane(struct braid_link *link)
{
	struct braid_lane *best = NULL;
	bool enough = link->lanes.active < link->nlanes && !link->lanes.ndown;
	unsigned n = enough ? link->lanes.active : link->nlanes;
	double cost, least = 1e18, least_of_all = 1e18, fastest = 1e9;

	for (unsigned i = 0; i < n && n > 1; i++) {
		if (braid_lane_up(link->lane[i]) && link->lane[i]->tx.ns_per_byte < fastest)
			fastest = link->lane[i]->tx.ns_per_byte;
	}
	for (unsigned i = 0; i < n; i++) {
		if (!braid_lane_up(link->lane[i]))
			continue;
		cost = braid_txq_cost(&link->lane[i]->tx, SPREAD_MIN, fastest);
		if (cost < least_of_all)
			least_of_all = cost;
		if (cost < least && can_queue(link->lane[i], n == 1)) {
			best = link->lane[i];
			least = cost;
		}
	}
	return least <= WORTH_WAITING * least_of_all ? best : NULL;
}

/*
 * Over how many lanes to divide a message.  Several TCP streams over one port are faster than one;
 * a NIC is as fast with one queue pair, and more pieces only cost it time.
 */
static unsigned shares(const struct braid_link *link)
{
	bool nic = braid_link_home(link)->tr->dma;

	return nic && link->npaths < link->lanes.active ? link->npaths : link->lanes.active;
}

/* Bytes of each chunk but the last: a multiple of BRAID_CHUNK_ALIGN, for at most 256 chunks. */
uint32_t braid_link_chunk_len(const struct braid_link *link, uint64_t size)
{
	uint64_t most = (uint64_t)braid_param.chunk;
	unsigned n = shares(link);
	uint64_t len = n > 1 ? size / (2 * n) : most;

	braid_assert_locked(&link->lock);
	if (len < SPREAD_MIN)
		len = SPREAD_MIN;
	if (len > most)
		len = most;
	if (len < (size + BRAID_CHUNKS_MAX - 1) / BRAID_CHUNKS_MAX)
		len = (size + BRAID_CHUNKS_MAX - 1) / BRAID_CHUNKS_MAX;
	return (uint32_t)((len + BRAID_CHUNK_ALIGN - 1) & ~(uint64_t)(BRAID_CHUNK_ALIGN - 1));
}

/* Move chunks of orphaned lanes to other lanes.  False: some are left. */
static bool feed_orphans(struct braid_link *link)
{
	size_t moved = 0;

	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *from = link->lane[i], *to;

		while (from->loss.orphaned && from->tx.f_head != from->tx.f_acked) {
			to = pick_lane(link);
			if (!to || moved >= BRAID_CALL_BUDGET)
				return false;
			braid_tx_move(from, to);
			moved += braid_lane_push(to);
		}
	}
	return true;
}

BRAID_APART void braid_link_feed(struct braid_link *link)
{
	struct braid_list *pending = &link->tx.pending;
	size_t moved = 0;

	braid_assert_locked(&link->lock);
	if (link->lanes.norphaned && !feed_orphans(link)) {
		braid_link_stall(link);
		return;
	}
	for (int n = 8; n && moved < BRAID_CALL_BUDGET && !braid_list_empty(pending); n--) {
		struct braid_lane *lane = pick_lane(link);

		if (!lane) {
			atomic_fetch_add_explicit(&link->tx.starved, 1, memory_order_relaxed);
			break;
		}
		do {
			struct braid_xfer *x = braid_list_entry(pending->next, struct braid_xfer,
								node);

			if (!x->ops->cut(lane, x))
				break;
			/* A single lane takes several chunks a call; several lanes take turns. */
		} while (link->lanes.active == 1 && !braid_list_empty(pending) &&
			 pick_lane(link) == lane);
		if (lane != braid_link_home(link))
			braid_link_flush(link);		/* START leaves before its chunk */
		moved += braid_lane_push(lane);
	}
	if (!braid_list_empty(pending))
		braid_link_stall(link);
}
