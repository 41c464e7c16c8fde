/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * control.c - queue control frames: ACK, DOWN and LANES of the link, and those of its comms.
 *
 * Control frames leave with the next frame.  Those that the peer waits for (`control_urgent`) leave
 * alone at the first idle test() (progress.c).  RETIREs become urgent at a quarter of the window
 * (core/msg/credits.c).  The rest leave when the service thread looks at the link.
 */
#include "core/link/control.h"
#include "core/link/link_int.h"

#include "core/link/lane_io.h"
#include "core/link/upcalls.h"

bool braid_link_ctl(struct braid_link *link, struct braid_hdr *h, const void *payload)
{
	struct braid_lane *home = braid_link_home(link);

	braid_assert_locked(&link->lock);
	if (!braid_txq_room_ctl(&home->tx))
		return false;
	braid_tx_add(home, h, payload, NULL, NULL);
	return true;
}

/* Queue an ACK for a lane, if due.  Home needs none if another frame is about to be sent. */
static bool queue_ack(struct braid_link *link, unsigned i)
{
	struct braid_lane *home = braid_link_home(link), *lane = link->lane[i];
	struct braid_hdr h = {
		.type = BRAID_F_ACK, .n = (uint16_t)i, .seq = lane->rx_frames,
	};

	if (!lane->rx_some || (lane == home && home->tx.f_sent != home->tx.f_head))
		return true;
	if (!braid_link_ctl(link, &h, NULL))
		return false;
	braid_rx_acked(lane);
	return true;
}

/* Queue the DOWN of a lane closed here: over home or, if home is down too, over another lane. */
static void queue_down(struct braid_link *link, unsigned i)
{
	struct braid_lane *lane = link->lane[i], *over = braid_link_home(link);
	struct braid_hdr h = {
		.type = BRAID_F_DOWN, .n = (uint16_t)i, .rseq = lane->epoch,
		.seq = lane->rx_frames,
	};

	if (!braid_lane_up(over))
		over = braid_link_another_home(link);
	if (!(lane->loss.down_due || lane->loss.writes_due) || !over ||
	    !braid_txq_room_ctl(&over->tx))
		return;
	if (!lane->loss.down_due) {
		h.rseq = (uint16_t)~lane->epoch;
		h.tag = BRAID_DOWN_WRITES;
	}
	braid_tx_add(over, &h, NULL, NULL, NULL);
	lane->loss.down_due = lane->loss.writes_due = false;
	braid_link_stall(link);
}

bool braid_link_ctl_now(struct braid_link *link, struct braid_hdr *h)
{
	bool queued;

	braid_lock_wait(&link->lock);
	queued = braid_link_ctl(link, h, NULL);
	braid_link_flush(link);
	braid_unlock(&link->lock);
	return queued;
}

/* Queue a LANES frame, if due: it asks the peer, which alone dials, for more lanes. */
static bool queue_lanes(struct braid_link *link)
{
	unsigned n = atomic_load_explicit(&link->lanes.ask, memory_order_relaxed);
	struct braid_hdr h = { .type = BRAID_F_LANES, .n = (uint16_t)n };

	if (!n || !link->lanes.attached)
		return true;
	if (link->nlanes < n && !braid_link_ctl(link, &h, NULL))
		return false;
	atomic_compare_exchange_strong(&link->lanes.ask, &n, 0);
	return true;
}

/* ACKs of other lanes go first, so that a BYE finds as few sends unacknowledged as possible. */
BRAID_APART bool braid_link_send_control(struct braid_link *link)
{
	braid_assert_locked(&link->lock);
	for (unsigned i = 0; i < link->nlanes; i++) {
		queue_down(link, i);
		if (i != link->lanes.home && !queue_ack(link, i))
			return false;
	}
	if (!braid_comms_send_control(link) || !queue_lanes(link) ||
	    !queue_ack(link, link->lanes.home))
		return false;
	/* Home's acknowledgement is part of its next frame; until that leaves, it stays due. */
	braid_hint(&link->tx.control_urgent, braid_link_home(link)->rx_ack_due);
	return true;
}

bool braid_link_flush_if_urgent(struct braid_link *link, bool all)
{
	bool urged = atomic_exchange(&link->tx.control_was_urgent, false);
	bool urgent = braid_link_is_urgent(link);

	if (!braid_trylock(&link->lock))
		return urged;
	urged |= urgent || braid_link_home(link)->tx.unsent || link->tx.burst_now;
	if (urgent || all)
		braid_link_send_control(link);
	braid_link_flush(link);
	braid_unlock(&link->lock);
	return urged;
}

static void send_all(struct braid_link *link)
{
	braid_link_send_control(link);
	braid_link_flush(link);
}

bool braid_link_try_flush_control(struct braid_link *link)
{
	if (!braid_trylock(&link->lock))
		return false;
	send_all(link);
	braid_unlock(&link->lock);
	return true;
}

void braid_link_flush_control(struct braid_link *link)
{
	braid_lock_wait(&link->lock);
	while (braid_link_home(link)->pushing) {
		braid_unlock(&link->lock);
		braid_yield();
		braid_lock_wait(&link->lock);
	}
	send_all(link);
	braid_unlock(&link->lock);
}
