/* SPDX-License-Identifier: BSD-3-Clause */
/* watched.c - see watched.h. */
#include "core/setup/watched.h"

#include <sys/epoll.h>

#include "core/base/os.h"
#include "core/base/units.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/recover.h"
#include "core/link/state.h"
#include "core/setup/events.h"
#include "core/transport.h"

enum {
	TIDY_MS = 20,			/* how often frames that callers left pending are sent */
	WATCH_MOVES = 4,		/* of one link, before others have a turn */
};

static struct braid_list streaming = { &streaming, &streaming };	/* struct braid_link */

static void lane_unwatch(struct braid_lane *lane)
{
	if (lane->recover.in_epoll)
		braid_unwatch(lane->fd);
	if (lane->recover.event_in_epoll)
		braid_unwatch(lane->event_fd);
	lane->recover.in_epoll = lane->recover.event_in_epoll = false;
}

static int lane_watch(struct braid_lane *lane)
{
	uint32_t room = lane->blocked && !lane->tr->dma ? EPOLLOUT : 0u;
	int err = braid_watch(lane->recover.in_epoll ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, lane->fd,
			      EPOLLIN | EPOLLRDHUP | EPOLLONESHOT |
			      (lane->event_fd < 0 ? room : 0), lane, BRAID_TAG_LANE);

	lane->recover.in_epoll |= !err;
	if (err || lane->event_fd < 0)
		return err;
	err = braid_watch(lane->recover.event_in_epoll ? EPOLL_CTL_MOD : EPOLL_CTL_ADD,
			  lane->event_fd, EPOLLIN | EPOLLONESHOT | room, lane, BRAID_TAG_LANE);
	lane->recover.event_in_epoll |= !err;
	return err;
}

int braid_lane_shut(struct braid_lane *lane)
{
	lane_unwatch(lane);
	return braid_lane_fence(lane);
}

static void stream_no_more(struct braid_link *link)
{
	if (!link->tick.streams.next)
		return;
	braid_list_del(&link->tick.streams);
	link->tick.streams.next = NULL;
}

/* Stop watching.  Even a disarmed epoll entry would cost the kernel time for every packet. */
void braid_watched_end(struct braid_link *link)
{
	braid_link_set_watched(link, false);
	stream_no_more(link);
	for (unsigned i = 0; i < link->nlanes; i++)
		lane_unwatch(link->lane[i]);
}

/*
 * No call came for a tick: send what is pending, and watch the sockets.  A call in between shows
 * in `touched` at the next tick at the latest, so the link is checked once more before the thread
 * may sleep (settled).
 */
static void link_watch(struct braid_link *link)
{
	bool idle = true, any = false;
	int moved = 1;

	stream_no_more(link);
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (braid_lane_up(link->lane[i]))
			idle &= link->lane[i]->tr->arm(link->lane[i]);
	}
	for (unsigned i = 0; i < WATCH_MOVES && moved > 0; i++) {
		moved = braid_link_move(link);
		any |= moved > 0;
	}
	/* Work left behind by a held lock or an unfinished GPU copy will raise no event. */
	if (!braid_link_try_flush_control(link) || moved > 0 || !idle ||
	    atomic_load(braid_link_copies(link))) {
		braid_watched_end(link);
		if (moved > 0 || (!idle && any))
			braid_list_add_tail(&streaming, &link->tick.streams);
		return;
	}
	braid_link_set_watched(link, true);
	link->tick.settled = false;
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		/* A peer's NIC reports new room by a write to our memory, which raises no event. */
		if (braid_lane_up(lane) && ((lane->tr->dma && lane->blocked) || lane_watch(lane))) {
			braid_watched_end(link);	/* not now: the next tick tries again */
			return;
		}
	}
}

bool braid_watched_streams(void)
{
	return !braid_list_empty(&streaming);
}

struct braid_link *braid_watched_stream(void)
{
	struct braid_link *link;

	if (!braid_watched_streams())
		return NULL;
	link = braid_list_entry(streaming.next, struct braid_link, tick.streams);
	braid_watched_end(link);
	if (atomic_load(&link->state) != BRAID_LINK_UP)
		return link;
	braid_yield();			/* the callers may only have been waiting for this CPU */
	if (braid_link_touched(link) == link->tick.seen)
		link_watch(link);
	return link;
}

void braid_watched_event(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;
	bool settled;

	if (atomic_load(&link->state) != BRAID_LINK_UP)
		return;
	if (!link->tick.rests)
		braid_yield();		/* the callers may only have been waiting for this CPU */
	/* It was watched all the while, so no call can be missed: it need not settle again. */
	if (braid_link_touched(link) == link->tick.seen && braid_link_is_watched(link)) {
		settled = link->tick.settled;
		link_watch(link);
		link->tick.settled = settled && braid_link_is_watched(link);
	} else {
		braid_watched_end(link);
	}
}

bool braid_watched_tick(struct braid_link *link, uint64_t now)
{
	unsigned long touched = braid_link_touched(link);
	bool calm = true, all;

	if (touched != link->tick.seen) {
		link->tick.seen = touched;
		link->tick.used_ns = now;
		braid_watched_end(link);
		all = braid_since(link->tick.tidied_ns, now) >= TIDY_MS * MS;
		if (all)
			link->tick.tidied_ns = now;
		calm = !braid_link_flush_if_urgent(link, all) && !braid_link_ndown(link) &&
		       !atomic_load(braid_link_copies(link));
	} else if (!braid_link_is_watched(link)) {
		link_watch(link);
		calm = false;
	} else {
		link->tick.settled = true;
	}
	return calm;
}
