/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lane.c - a lane gets a carrier and memory for traffic, and is asked whether its peer lives.
 *
 * A lane outlives its carriers: when one fails, another takes its place (recover.c).
 */
#include "core/link/link_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/flight.h"
#include "core/link/lane_io.h"
#include "core/link/txq_int.h"

enum {
	HOME_RING = 256 << 10, HOME_FRAMES = 1024,
	LANE_RING = 16 << 10, LANE_FRAMES = 128,
	ACK_FRAMES = 128,		/* received frames after which an ACK is due */
};

int braid_lane_attach(struct braid_lane *lane)
{
	bool home = lane->index == lane->link->lanes.home;
	int err = braid_txq_init(&lane->tx, home ? HOME_RING : LANE_RING,
				 home ? HOME_FRAMES : LANE_FRAMES);

	if (!err)
		err = lane->tr->lane_attach(lane);
	if (err)
		braid_txq_fini(&lane->tx);
	return err;
}

void braid_lane_detach(struct braid_lane *lane)
{
	lane->tr->lane_detach(lane);
	braid_txq_fini(&lane->tx);
}

/* The largest lane_size of all transports, since another one may carry the lane later. */
static size_t lane_size(const struct braid_transport *tr)
{
	size_t size = tr->lane_size;

	for (unsigned i = 0; braid_transports[i]; i++) {
		if (braid_transports[i]->lane_size > size)
			size = braid_transports[i]->lane_size;
	}
	return size;
}

/* Take over a new carrier for the lane. */
int braid_lane_take(struct braid_lane *lane, const struct braid_carrier *c)
{
	int err;

	memset(lane + 1, 0, lane->size - sizeof(*lane));
	lane->tr = c->tr;
	lane->epoch = c->epoch;
	lane->fd = c->fd;
	lane->event_fd = -1;
	lane->priv = c->priv;
	lane->member = c->member;
	lane->peer_member = c->peer_member;
	lane->peer_rkey_epoch = c->peer_rkey_epoch;
	lane->ack_frames = ACK_FRAMES;
	lane->rx_broken = NULL;
	lane->rx_large = lane->rx_checks = false;
	lane->gpu = lane->lent = false;
	braid_hint(&lane->lends, false);
	lane->reads.max = 0;
	lane->loss.stopping = lane->loss.writes_due = lane->loss.writes_sent = false;
	lane->keys = c->keys;
	err = c->tr->lane_open(lane);
	lane->keys = NULL;
	return err;
}

/* Was memory given back since the carrier's set-up?  The peer's NIC could still write there. */
bool braid_carrier_is_outdated(const struct braid_link *link, const struct braid_carrier *c)
{
	return c->tr->dma && c->rkey_epoch != link->lanes.rkey_epoch;
}

int braid_link_add_lane(struct braid_link *link, unsigned index, const struct braid_carrier *c)
{
	struct braid_lane *lane;
	int err;

	if (index != link->nlanes || index >= BRAID_LANES_MAX)
		return -EEXIST;
	lane = calloc(1, lane_size(c->tr));
	if (!lane)
		return -ENOMEM;
	lane->size = lane_size(c->tr);
	lane->link = link;
	lane->index = (uint8_t)index;
	err = braid_lane_take(lane, c);
	braid_lock_wait(&link->lock);
	if (!err && braid_carrier_is_outdated(link, c))
		err = -EALREADY;
	if (!err && link->lanes.attached)
		err = braid_lane_attach(lane);
	if (!err) {
		braid_event(BRAID_EVENT_LANE_ADDED, link->number, index, c->tr->id, 0);
		atomic_store(&lane->up, true);
		link->lane[index] = lane;
		atomic_store(&link->nlanes, index + 1);
	}
	braid_unlock(&link->lock);
	if (err) {
		lane->fd = -1;
		lane->priv = NULL;
		c->tr->lane_close(lane);
		braid_txq_fini(&lane->tx);
		free(lane);
	}
	return err;
}

BRAID_APART int braid_lane_check_fd(const struct braid_lane *lane)
{
	char byte;
	ssize_t n = braid_os->recv(lane->fd, &byte, 1, MSG_DONTWAIT);

	return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -ENOTCONN;
}

BRAID_APART int braid_lane_final_poll(struct braid_lane *lane, int n)
{
	braid_assert_locked(&lane->io);
	if (!braid_lane_check_fd(lane))
		return n;
	if (!n)
		n = lane->tr->poll(lane);
	/* An error after the end is not the carrier's fault. */
	return n > 0 || n == -ENOMEM || n == -EILSEQ || lane->rx_broken ? n : -ENOTCONN;
}

bool braid_lane_has_payloads(const struct braid_lane *lane)
{
	const struct braid_txq *q = &lane->tx;

	for (uint32_t i = q->f_acked; i != q->f_sent; i++) {
		if (q->f[i & q->fmask].ext_len)
			return true;
	}
	return q->part && q->f[q->f_sent & q->fmask].ext_len;
}

bool braid_lane_stuck(const struct braid_lane *lane, struct braid_progress *progress,
		      unsigned most)
{
	uint64_t bytes = atomic_load_explicit(&lane->rx_bytes, memory_order_relaxed);
	uint32_t acked = lane->tx.f_peer_acked;

	if (lane->tx.f_sent == acked || bytes != progress->bytes || acked != progress->acked)
		progress->stuck = 0;
	progress->bytes = bytes;
	progress->acked = acked;
	return ++progress->stuck > most;
}
