/* SPDX-License-Identifier: BSD-3-Clause */
/* health.c - see health.h. */
#include "core/setup/health.h"

#include <errno.h>

#include "core/base/flight.h"
#include "core/base/os.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/recover.h"
#include "core/link/state.h"
#include "core/proto/frame.h"
#include "core/setup/path.h"
#include "core/setup/redial.h"
#include "core/setup/why.h"
#include "core/transport.h"

static bool is_suspect(const struct braid_lane *lane, uint64_t now)
{
	uint64_t since = braid_lane_suspect_ns(lane);
	unsigned ms = lane->recover.patience_ms;

	if (ms < BRAID_SUSPECT_MS)
		ms = BRAID_SUSPECT_MS;
	if (ms < 2 * lane->recover.rtt_ms)
		ms = 2 * lane->recover.rtt_ms;
	return since && braid_since(since, now) >= ms * MS;
}

bool braid_health_well(const struct braid_lane *lane, uint64_t now)
{
	return braid_lane_up(lane) && !is_suspect(lane, now);
}

bool braid_health_any_well(const struct braid_link *link, uint64_t now)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (braid_health_well(link->lane[i], now))
			return true;
	}
	return false;
}

/*
 * Detect a path MTU that is too small.  A connection died before one full-size packet was
 * acknowledged, though its handshake came through; the next one, with small segments, carries more.
 */
static void check_mtu(struct braid_lane *lane, const struct braid_health *h, bool suspect)
{
	struct braid_link *link = lane->link;
	bool small = h->segment <= BRAID_SMALL_SEGMENT;

	if (link->recover.warned_mtu || !h->segment)
		return;
	if (suspect) {
		if (!small && h->acked < h->segment)
			lane->recover.lost_size = h->segment;
	} else if (lane->recover.lost_size && h->acked > 2 * lane->recover.lost_size) {
		if (small) {
			link->recover.warned_mtu = true;
			braid_why_mtu(link, lane->recover.lost_size);
		}
		lane->recover.lost_size = 0;
	}
}

static void clear_suspicion(struct braid_lane *lane, uint64_t now)
{
	if (is_suspect(lane, now))
		braid_event(BRAID_EVENT_LANE_WELL, lane->link->number, lane->index,
			    (int64_t)(braid_since(braid_lane_suspect_ns(lane), now) / MS), 0);
	braid_lane_set_suspect(lane, 0);
}

static void suspect_lane(struct braid_lane *lane, const struct braid_health *h, uint64_t now)
{
	braid_event(BRAID_EVENT_LANE_SUSPECT, lane->link->number, lane->index, h->resent,
		    h->rtt_ms);
	braid_lane_set_suspect(lane, now);
	lane->recover.suspect_acked = h->acked;
	check_mtu(lane, h, true);
}

/*
 * Does the peer's host answer?  A firewall of this host, or a full queue, may keep bytes from
 * leaving.  TCP then counts no retransmission, and what the peer sends looks like an answer.
 */
static bool is_answered(const struct braid_lane *lane, const struct braid_health *h)
{
	if (h->unacked && h->resent)
		return false;
	return !h->held_back || h->acked != lane->recover.suspect_acked;
}

/* New keys are due.  Only the end that dialled the link can dial the lane again. */
static void renew(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;
	struct braid_hdr h = { .type = BRAID_F_RENEW, .n = lane->index, .rseq = lane->epoch };

	if (!braid_lane_old_key(lane))
		braid_lane_set_old_key(lane, link->dialler || braid_link_ctl_now(link, &h));
}

bool braid_health_check(struct braid_link *link, uint64_t now)
{
	bool under_way = false;

	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];
		struct braid_health h = { 0 };
		int err;

		if (!braid_lane_up(lane))
			continue;
		err = lane->tr->health(lane, &h);
		if (err) {
			if (lane->tr->blob) {	/* its port is down */
				braid_lock_wait(&link->lock);
				braid_lane_lost(lane, err);
				braid_unlock(&link->lock);
			}
			continue;
		}
		under_way |= h.unacked;
		if (h.old_key)
			renew(lane);
		lane->recover.rtt_ms = h.rtt_ms;
		if (!h.resent)
			check_mtu(lane, &h, false);
		if (is_answered(lane, &h))
			clear_suspicion(lane, now);
		else if (h.resent && !braid_lane_suspect_ns(lane))
			suspect_lane(lane, &h, now);
		else if (link->dialler && is_suspect(lane, now) &&
			 lane->recover.path == braid_path_for(link, i, now))
			braid_redial_avoid(link, lane->recover.path, now);
	}
	/* Give suspect lanes up, so that their frames can go over the others at once. */
	for (unsigned i = 0; i < link->nlanes && braid_health_any_well(link, now); i++) {
		if (!is_suspect(link->lane[i], now))
			continue;
		braid_lock_wait(&link->lock);
		braid_lane_lost(link->lane[i], -ETIMEDOUT);
		braid_unlock(&link->lock);
	}
	return under_way;
}

void braid_health_port(struct braid_link *link)
{
	const struct braid_dev *dev = link->key.dev;

	for (unsigned i = 0; i < link->nlanes; i++) {
		const struct braid_lane *lane = link->lane[i];

		if (braid_lane_up(lane) && lane->tr->blob &&
		    !lane->tr->usable(dev->member[lane->member]))
			link->recover.health_ns = 0;
	}
}
