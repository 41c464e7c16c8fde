/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recover.c - what happens to a lane's frames when it loses its carrier and gets another.
 *
 * Any thread marks a lane as lost.  The service thread then fences it, which makes its counts
 * final, and resumes it on a new carrier; core/setup/recover.c decides when.
 */
#include "core/link/control.h"
#include "core/link/link_int.h"
#include "core/link/reads.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/link/txq_int.h"
#include "core/link/upcalls.h"

void braid_lane_lost(struct braid_lane *lane, int err)
{
	struct braid_link *link = lane->link;

	braid_assert_locked(&link->lock);
	if (!braid_lane_up(lane))
		return;
	braid_info("device %s, peer %s: lane %u is lost (%s)", link->key.dev->net.name, link->peer,
		   lane->index, err == -ENOTCONN ? "closed by the peer" : strerror(-err));
	/* The carrier failed: neither end closed it. */
	lane->loss.carrier_failed = lane->tr->blob && err != -ENOTCONN && err != -ECANCELED &&
			       err != -ECONNRESET && err != -EADDRNOTAVAIL;
	braid_event(BRAID_EVENT_LANE_LOST, link->number, lane->index, err,
		    atomic_fetch_add(&lane->loss.lost, 1) + 1);
	atomic_fetch_add(&link->key.dev->lost, 1);
	atomic_store(&lane->up, false);
	atomic_fetch_add(&link->lanes.ndown, 1);
	braid_link_wake(link);
}

/* Log all counters of a lane that received malformed data: they help to find the cause. */
static void log_broken(struct braid_lane *lane)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	const struct braid_txq *q = &lane->tx;

	braid_lock_wait(&lane->link->lock);
	braid_info("device %s, peer %s: lane %u (%s, opened %u times), broken: %s; last header: "
		   "%s %u, acknowledges %u, n %u, seq %u; received here: %u; sent: %u of %u, "
		   "acknowledged %u",
		   lane->link->key.dev->net.name, lane->link->peer, lane->index, lane->tr->name,
		   atomic_load(&lane->loss.back) + 1, lane->rx_broken, braid_frame_name(h->type),
		   h->lseq, h->ack, h->n, h->seq, lane->rx_frames, q->f_sent, q->f_head,
		   q->f_peer_acked);
	braid_unlock(&lane->link->lock);
}

/*
 * What came over the lane is not what was sent: a checksum or a tag is wrong.  The carrier is lost,
 * and another path is tried first.
 */
static BRAID_APART void note_corrupt(struct braid_lane *lane)
{
	const struct braid_link *link = lane->link;
	struct braid_dev *dev = link->key.dev;
	const char *member = dev->member[lane->member]->net.name;
	uint64_t all = atomic_fetch_add(&dev->corrupt, 1) + 1;

	atomic_fetch_add(&lane->loss.corrupt, 1);
	atomic_store(&lane->loss.corrupt_new, true);
	atomic_store(&lane->loss.avoid_path, true);
	if (!braid_log_gate_open(&dev->corrupt_gate, braid_os->now_ns()))
		return;
	braid_warn("device %s, peer %s: data was changed on its way here, over lane %u (%s, %s); "
		   "it is sent again over another connection. That is %u on this lane, %" PRIu64
		   " on this device. Look at the NIC and its cable, the switches, and the memory "
		   "of both hosts [corrupt-data]", dev->net.name, link->peer, lane->index,
		   lane->tr->name, member, atomic_load(&lane->loss.corrupt), all);
}

/* A lane's carrier failed.  A new one may work, unless the peer sent malformed data. */
BRAID_APART void braid_lane_died(struct braid_lane *lane, const char *broken, int err)
{
	struct braid_link *link = lane->link;

	if (broken && (err == -EBADMSG || err == -EPROTO)) {
		log_broken(lane);
		braid_link_fail(link, -EREMOTEIO,
				"the peer sent something broken on lane %u (%s); is its "
				"libnccl-net-braid.so damaged or of another build? [broken-link]",
				lane->index, broken);
	} else if (err == -ENOMEM) {
		braid_link_fail(link, err, "out of memory [no-memory]");
	} else if (link->rx.peer_gone) {
		braid_link_fail(link, -EREMOTEIO, "the peer closed the link [link-ended]");
	} else {
		braid_lock_wait(&link->lock);
		if (err == -EILSEQ && braid_lane_up(lane))
			note_corrupt(lane);
		braid_lane_lost(lane, err);
		braid_unlock(&link->lock);
	}
}

/* The lane sends and receives nothing any more, but its NIC may still be stopping. */
static bool is_closed(const struct braid_lane *lane)
{
	return lane->fd < 0 || lane->loss.stopping;
}

/*
 * A lane closed at both ends, once the peer's NIC has stopped writing: both ends know which chunks
 * arrived, and the rest may go over other lanes.  Our NIC may still read the rest: deregMr waits.
 */
void braid_lane_orphan(struct braid_lane *lane)
{
	braid_assert_locked(&lane->link->lock);
	if (lane->loss.orphaned || !lane->loss.peer_down || lane->loss.peer_writes ||
	    !is_closed(lane))
		return;
	if (lane->index == lane->link->lanes.home) {	/* frames in order: braid_link_rehome() */
		braid_link_wake(lane->link);
		return;
	}
	if (braid_tx_rewind(lane, lane->loss.peer_frames)) {
		braid_link_down(lane->link, -EREMOTEIO, "the peer has lost count of its frames "
				"[broken-link]");
		return;
	}
	lane->loss.orphaned = true;
	lane->link->lanes.norphaned++;
	braid_link_stall(lane->link);
}

/* Drop a half received frame.  A chunk is resent on any lane; an EAGER will be the next EAGER. */
static void rx_forget(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;
	bool entry = lane->rx_kind == BRAID_RX_ENTRY;

	braid_gpucopy_end(&lane->rx_copy);
	if (entry && lane->rx_hdr.type == BRAID_F_CHUNK) {
		braid_comm_rx_undo(lane);
	} else if (entry || lane->rx_kind == BRAID_RX_UNEXP) {
		link->rx.again.kind = lane->rx_kind;
		link->rx.again.hdr = lane->rx_hdr;
		link->rx.again.target = lane->rx_target;
		link->rx.again.mr = lane->rx_mr;
		link->rx.again.dst = lane->rx_dst;
		if (lane->rx_stage)
			link->rx.again.dst = lane->rx_gpu;
		else if (lane->rx_dst)
			link->rx.again.dst -= lane->rx_hdr.len - lane->rx_left;
	}
	free(lane->rx_stage);
	lane->rx_stage = NULL;
	lane->rx_kind = BRAID_RX_NONE;
	lane->rx_left = lane->rx_at = 0;
}

/* Receive no more into the memory that the present frame goes to. */
static void rx_discard(struct braid_lane *lane)
{
	lane->rx_dst = NULL;
	braid_gpucopy_end(&lane->rx_copy);
	free(lane->rx_stage);
	lane->rx_stage = NULL;
}

/* The carrier may be receiving into memory of that comm already. */
static void stop_landing(struct braid_lane *lane, uint32_t comm)
{
	if (!lane->tr->lands || !lane->tr->lands(lane, comm))
		return;
	lane->tr->lane_fence(lane);
	braid_lane_lost(lane, -ECANCELED);
}

void braid_link_drop_payload(struct braid_link *link, uint32_t comm)
{
	braid_assert_locked(&link->lock);
	if (link->rx.again.kind && link->rx.again.hdr.comm == comm)
		link->rx.again.kind = BRAID_RX_DRAIN;
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		stop_landing(lane, comm);
		if (lane->rx_hdr.comm != comm ||
		    (lane->rx_kind != BRAID_RX_ENTRY && lane->rx_kind != BRAID_RX_UNEXP))
			continue;
		lane->rx_kind = BRAID_RX_DRAIN;
		rx_discard(lane);
	}
}

void braid_link_discard(struct braid_link *link, uint32_t comm, const void *target)
{
	braid_assert_locked(&link->lock);
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		stop_landing(lane, comm);
		if (lane->rx_kind != BRAID_RX_ENTRY || lane->rx_hdr.comm != comm ||
		    lane->rx_target != target)
			continue;
		lane->rx_target = NULL;
		lane->rx_mr = NULL;
		rx_discard(lane);
	}
}

/* A lane that can become home, or NULL. */
struct braid_lane *braid_link_another_home(const struct braid_link *link)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (i != link->lanes.home && braid_lane_up(link->lane[i]) &&
		    !link->lane[i]->loss.suspect_ns)
			return link->lane[i];
	}
	return NULL;
}

void braid_link_rehome(struct braid_link *link)
{
	struct braid_lane *home = braid_link_home(link), *to = braid_link_another_home(link);
	bool closed;
	unsigned n;
	int err;

	braid_lock_wait(&link->lock);
	closed = is_closed(home) && home->loss.peer_down;
	braid_unlock(&link->lock);
	if (!closed || !to)
		return;
	n = braid_link_stop(link);
	err = braid_tx_rewind(home, home->loss.peer_frames);
	if (!err)
		err = braid_tx_take_over(home, to, home->loss.peer_writes);
	if (!err) {
		link->lanes.home = to->index;
		braid_event(BRAID_EVENT_HOME, link->number, to->index, home->index, 0);
		braid_info("device %s, peer %s: lane %u is home now, lane %u is lost",
			   link->key.dev->net.name, link->peer, to->index, home->index);
		braid_link_stall(link);
	} else {
		braid_link_down(link, err == -EPROTO ? -EREMOTEIO : err,
				err == -EPROTO ? "the peer has lost count of its frames "
						 "[broken-link]" :
						 "out of memory [no-memory]");
	}
	braid_link_go(link, n);
}

void braid_link_revoke(struct braid_link *link, bool (*uses)(const struct braid_lane *lane,
							     const struct braid_comm *c),
		       const struct braid_comm *c)
{
	braid_assert_locked(&link->lock);
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		/* A kernel to which memory was lent reads it as a NIC does, and never writes it. */
		if (!(lane->tr->dma || (uses && lane->lent)) || (uses && !uses(lane, c)))
			continue;
		lane->tr->lane_fence(lane);	/* a lost lane, too: its NIC may still run */
		braid_lane_lost(lane, -ECANCELED);
		atomic_store(&lane->unread, false);
	}
	if (!uses)
		link->lanes.rkey_epoch++;
}

void braid_link_end_copies(struct braid_link *link)
{
	braid_assert_locked(&link->lock);
	for (unsigned i = 0; i < link->nlanes; i++) {
		braid_tx_leave(link->lane[i]);
		braid_gpucopy_end(&link->lane[i]->rx_copy);
	}
	braid_comm_leave(link);
}

/* Fence a lane.  Once its NIC has stopped, nothing accesses its memory any more. */
static void lane_stop(struct braid_lane *lane)
{
	lane->tr->lane_fence(lane);	/* the NIC may be writing what is dropped below */
	rx_forget(lane);
	braid_tx_leave(lane);
	if (lane->tr->dma)
		braid_stops_mark_one(lane->link->key.dev, lane->member, &lane->loss.stops);
	else
		lane->loss.stops = (struct braid_stops){ 0 };
	lane->loss.stopping = true;
}

/*
 * Our NIC takes long to stop.  The peer may resend all but chunks before that: a transport without
 * `lands` writes nothing but chunks into user memory.
 */
static void lane_lingers(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;

	if (lane->loss.writes_sent)
		return;
	braid_lock_wait(&link->lock);
	lane->loss.writes_sent = true;
	lane->loss.writes_due = !lane->tr->lands;
	braid_lane_orphan(lane);
	braid_unlock(&link->lock);
	braid_link_urge(link);
}

static void lane_close(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;

	lane->tr->lane_close(lane);
	braid_txq_drop_kept(&lane->tx);
	lane->loss.stopping = false;
	braid_lane_reads_lost(lane);
	/* DOWN frames about other lanes may have been lost with this one: send them again. */
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *k = link->lane[i];

		k->loss.down_due = k->fd < 0;
		k->loss.writes_due = k->loss.writes_sent && !k->tr->lands;
	}
	braid_link_urge(link);
	braid_lane_orphan(lane);
}

static bool has_stopped(const struct braid_lane *lane)
{
	return lane->loss.stopping && braid_stops_past(lane->link->key.dev, &lane->loss.stops);
}

int braid_lane_fence(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;
	unsigned n;

	if (lane->loss.stopping && !has_stopped(lane)) {
		lane_lingers(lane);
		return -EAGAIN;		/* no need to stop the other lanes */
	}
	n = braid_link_stop(link);
	if (atomic_exchange(&lane->up, false))
		atomic_fetch_add(&link->lanes.ndown, 1);
	atomic_store(&lane->unread, false);
	if (lane->fd >= 0 && !lane->loss.stopping)
		lane_stop(lane);
	if (lane->fd >= 0 && has_stopped(lane))
		lane_close(lane);
	braid_link_go(link, n);
	return lane->fd >= 0 ? -EAGAIN : 0;
}

bool braid_lane_is_slow(const struct braid_lane *lane)
{
	return atomic_load(&lane->loss.slow);
}

void braid_lane_set_slow(struct braid_lane *lane, bool slow)
{
	atomic_store(&lane->loss.slow, slow);
}

int braid_lane_resume(struct braid_lane *lane, const struct braid_carrier *c, uint32_t frames,
		      uint32_t first)
{
	struct braid_link *link = lane->link;
	unsigned n = braid_link_stop(link);
	int err;

	assert(lane->fd < 0);
	if (braid_carrier_is_outdated(link, c)) {
		braid_link_go(link, n);
		return -EALREADY;
	}
	err = braid_tx_rewind(lane, frames);
	if (!err)
		err = braid_lane_take(lane, c);
	if (!err) {
		/* Frames before `first` that did not arrive were ACKs: the peer keeps none. */
		if ((int32_t)(first - lane->rx_frames) > 0)
			lane->rx_frames = first;
		lane->rx_acked = lane->rx_frames;
		lane->loss.down_due = lane->loss.peer_down = lane->loss.peer_writes = false;
		link->lanes.norphaned -= lane->loss.orphaned;
		lane->loss.orphaned = false;
		lane->loss.suspect_ns = 0;
		lane->loss.old_key = false;
		if (atomic_exchange(&lane->loss.slow, false))
			lane->tx.ns_per_byte = 0;	/* of the path it has left */
		lane->loss.carrier_failed = false;
		braid_hint(&lane->blocked, false);
		if (!c->as_before)
			braid_event(BRAID_EVENT_LANE_BACK, link->number, lane->index, c->tr->id,
				    c->epoch);
		atomic_fetch_add(&lane->loss.back, 1);
		atomic_fetch_add(&link->key.dev->redials, 1);
		atomic_store(&lane->up, true);
		atomic_fetch_sub(&link->lanes.ndown, 1);
		braid_link_stall(link);
	} else {
		lane->fd = -1;
		lane->priv = NULL;
	}
	braid_link_go(link, n);
	return err;
}
