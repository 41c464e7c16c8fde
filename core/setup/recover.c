/* SPDX-License-Identifier: BSD-3-Clause */
/* recover.c - see recover.h. */
#include "core/setup/recover.h"

#include <errno.h>
#include <stdbool.h>

#include "core/base/os.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/recover.h"
#include "core/link/state.h"
#include "core/msg/comms.h"
#include "core/setup/dial.h"
#include "core/setup/health.h"
#include "core/setup/links.h"
#include "core/setup/path.h"
#include "core/setup/redial.h"
#include "core/setup/reverse.h"
#include "core/setup/share.h"
#include "core/setup/silence.h"
#include "core/setup/stall.h"
#include "core/setup/watched.h"
#include "core/transport.h"

enum {
	ASLEEP_MS = 3000,		/* between two ticks; if longer, this process did not run */
	REQUEST_AFTER_MS = 500,		/* of silence, even if some lane looks well */
	LONG_LOOK_MS = 50,		/* between two looks in a long outage */
	CALLED_MS = 1000,		/* how long to try to connect once the peer asks for it */
	MOVING_MS = 5000,		/* that lanes without comms have to come back */
};

void braid_recover_requested(struct braid_link *link, unsigned index, uint32_t epoch)
{
	const struct braid_lane *lane = index < link->nlanes ? link->lane[index] : NULL;

	braid_svc_assert_locked();
	/* The request crossed our last dial: the lane is newer than the reported loss. */
	if (lane && braid_lane_up(lane) &&
	    braid_epoch_is_later(link->setup.version, lane->epoch, epoch))
		return;
	braid_lock_wait(&link->lock);
	for (unsigned i = 0; i < link->nlanes; i++) {
		braid_lane_lost(link->lane[i], -ECONNRESET);
		link->lane[i]->recover.dial_at_ns = 0;
	}
	braid_unlock(&link->lock);
}

/* May it be dialled again for new keys or another path?  One at a time, so that others go on. */
static bool may_renew(const struct braid_lane *lane, uint64_t now)
{
	const struct braid_link *link = lane->link;

	if (!braid_lane_old_key(lane) && !braid_lane_is_slow(lane))
		return false;
	for (unsigned i = 0; i < link->nlanes; i++) {
		const struct braid_lane *k = link->lane[i];

		if (k->recover.conn ||
		    (!braid_lane_up(k) && !braid_redial_is_left(link, k->recover.path, now)))
			return false;
	}
	return true;
}

/* Is the path's port up, as far as its best transport knows? */
static bool is_usable(const struct braid_link *link, unsigned path)
{
	const struct braid_dev *dev = link->setup.path[path].dev;

	return dev->best->usable(dev);
}

/* The end that dialled the link dials its lanes. */
static void dial_lanes(struct braid_link *link, uint64_t now)
{
	bool few = braid_redial_is_long(link, now) &&
		   !braid_health_well(braid_link_home(link), now);

	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];
		bool astray;
		unsigned path;
		int err;

		if (braid_lane_was_corrupt(lane))
			braid_redial_corrupt(lane, now);
		path = braid_path_for(link, i, now);
		if (braid_lane_has_failed(lane) && lane->fd < 0) {
			braid_path_plain(link, lane->recover.path,
					 is_usable(link, lane->recover.path), 0, now);
			braid_lane_forget_failure(lane);
		}
		astray = lane->recover.path != path || braid_redial_is_poor(lane, path, now) ||
			 may_renew(lane, now);
		if (lane->recover.conn || braid_lane_is_stopping(lane) ||
		    now < lane->recover.dial_at_ns ||
		    (braid_health_well(lane, now) && !astray) ||
		    (!braid_lane_up(lane) && braid_redial_is_left(link, path, now)))
			continue;
		if (few && lane != braid_link_home(link))
			continue;		/* once home is back, the others follow */
		if (braid_lane_up(lane) && lane != braid_link_home(link) && !astray)
			continue;		/* home first; then both ends close this one */
		err = braid_dial_lane(link, lane, now);
		if (err)
			braid_redial_ended(lane, NULL, err, now);
	}
}

/* The accepting end asks the dialler to dial: the dialler may not know of the loss, or be dead. */
static void request_dial(struct braid_link *link, uint64_t now)
{
	unsigned lane = braid_link_take_call(link);
	int err;

	if (now >= link->recover.announce_ns)
		link->recover.announce_ns = 0;
	if (lane) {
		link->recover.announce_ns = now + CALLED_MS * MS;
		link->recover.probe_ns = 0;
	}
	/* A lane that looks well may only be idle, and as dead as home is. */
	if (!link->recover.announce_ns &&
	    (braid_health_well(braid_link_home(link), now) ||
	     (braid_health_any_well(link, now) &&
	      braid_silence(link, now) < REQUEST_AFTER_MS * MS)))
		return;
	if (link->dial.conn || !link->setup.path[0].to.port || now < link->recover.probe_ns)
		return;
	err = braid_dial_request(link, lane ? lane - 1 : 0, now);
	if (err)
		braid_redial_requested(link, NULL, err, now);
}

static void shut_lost(struct braid_link *link, uint64_t now)
{
	/* If home fails again, ask at once.  One that is up but suspect has failed: back off. */
	if (braid_health_well(braid_link_home(link), now))
		link->recover.probe_ns = link->recover.probe_wait_ms = 0;
	if (!braid_link_ndown(link)) {
		link->recover.down_ns = 0;
		return;
	}
	braid_link_move(link);			/* notices other lanes that have ended */
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		if (!braid_lane_up(lane) && !braid_lane_unread(lane) && lane->fd >= 0)
			braid_lane_shut(lane);
	}
	braid_link_rehome(link);
	braid_link_try_flush_control(link);
	if (braid_link_ndown(link) < link->nlanes) {
		link->recover.down_ns = 0;
	} else if (!link->recover.down_ns) {
		link->recover.down_ns = now;
	}
}

/* Nothing was sent since a check found all acknowledged, and no caller moves the link. */
static bool is_calm(const struct braid_link *link)
{
	return link->recover.health_ns && link->recover.calm && braid_link_is_watched(link) &&
	       link->recover.checked == link->recover.sent;
}

static bool check_health(struct braid_link *link, uint64_t now)
{
	if (is_calm(link))
		return false;
	link->recover.health_ns = now;
	link->recover.checked = link->recover.sent;
	link->recover.calm = !braid_health_check(link, now);
	return !link->recover.calm;
}

/* Milliseconds until the next tick is due. */
static int next_look(const struct braid_link *link, bool under_way, uint64_t now)
{
	if (braid_link_ndown(link))
		return braid_redial_is_long(link, now) ? LONG_LOOK_MS : BRAID_REDIAL_MIN_MS;
	return under_way ? BRAID_HEALTH_MS : (int)braid_silence_alive_ms(link, now);
}

/* Are lanes without comms to be dialled again, as their address has changed? */
static bool is_moving(struct braid_link *link, uint64_t now)
{
	if (!braid_link_ndown(link) || braid_since(link->recover.moved_ns, now) >= MOVING_MS * MS)
		link->recover.moved_ns = 0;
	return link->recover.moved_ns || link->recover.announce_ns;
}

int braid_recover_tick(struct braid_link *link, uint64_t now)
{
	uint64_t asleep = braid_since(link->recover.ticked_ns, now);
	uint64_t silent = braid_silence(link, now);
	bool under_way = true;

	braid_svc_assert_locked();
	link->recover.ticked_ns = now;
	braid_share_tick(asleep > ASLEEP_MS * MS ? asleep : 0, now);
	if (asleep > ASLEEP_MS * MS) {		/* our own sleep is no silence of the peer */
		link->recover.received_ns = now - (silent > asleep ? silent - asleep : 0);
		link->recover.slept = true;
	}
	shut_lost(link, now);
	if (!braid_comms_count(link) && !is_moving(link, now)) {	/* silence means nothing */
		link->recover.received_ns = now;
		/* An accepted link may wait for its first comm, which comes over a new socket. */
		if (braid_link_ndown(link) && (link->dialler || braid_comms_were(link)))
			braid_link_fail(link, -ENOTCONN, "the idle link was lost [link-closed]");
		return -1;
	}
	braid_silence_update(link, now);
	braid_share_note(link, now);
	if (braid_since(link->recover.health_ns, now) >= BRAID_HEALTH_MS * MS)
		under_way = check_health(link, now);
	if (link->dialler) {
		dial_lanes(link, now);
		braid_paths_report(link, now);
		braid_reverse_tick(link, now);
	} else {
		request_dial(link, now);
	}
	if (braid_silence_is_over(link, now))
		return -1;
	braid_silence_report(link, now);
	braid_stall_check(link, now);
	braid_silence_send_alive(link, now);
	return next_look(link, under_way, now);
}
