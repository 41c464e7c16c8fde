/* SPDX-License-Identifier: BSD-3-Clause */
/* loop.c - see loop.h. */
#include "core/setup/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "core/base/clock.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/base/units.h"
#include "core/base/wakeup.h"
#include "core/base/work.h"
#include "core/dev.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/mover.h"
#include "core/link/state.h"
#include "core/link/txq.h"
#include "core/mem/later.h"
#include "core/msg/comms.h"
#include "core/setup/accept.h"
#include "core/setup/connect.h"
#include "core/setup/dial.h"
#include "core/setup/due.h"
#include "core/setup/events.h"
#include "core/setup/handshake.h"
#include "core/setup/health.h"
#include "core/setup/keypair.h"
#include "core/setup/lane_count.h"
#include "core/setup/links.h"
#include "core/setup/listen.h"
#include "core/setup/listener.h"
#include "core/setup/moved.h"
#include "core/setup/reap.h"
#include "core/setup/recover.h"
#include "core/setup/service.h"
#include "core/setup/slow.h"
#include "core/setup/watched.h"
#include "topo/netdev.h"

enum {
	TICK_MS = 2, TICK_MAX_MS = 16,
	SLOW_TICK_MS = 100,		/* where nothing moves, but something may become due */
	TRIM_MS = 1000,			/* how long a link keeps the memory of traffic */
	POLL_MS = 1,			/* while a handshake waits for more than its socket */
};

static struct {				/* used by the service thread alone */
	uint64_t idle_since_ns, ticked_ns;
	int tick_ms;
	uint64_t stop_ns;		/* when the thread was asked to stop; 0: not yet */
} loop = { .tick_ms = TICK_MS };

/* The shorter of two times to wait; below 0 is forever. */
static int sooner(int a, int b)
{
	return a < 0 || (b >= 0 && b < a) ? b : a;
}

/* Look after the NICs' commands.  Returns as run_due() does. */
static int check_nics(uint64_t now)
{
	const struct braid_dev *dev[BRAID_NETDEVS_MAX];
	unsigned n = braid_links_devices(dev, BRAID_NETDEVS_MAX);
	int ms = -1;

	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < dev[i]->nmembers; k++)
			ms = sooner(ms, braid_later_check(dev[i]->member[k], now));
	}
	return ms;
}

/* May the link rest for so long?  -1: until something happens. */
static bool may_rest(const struct braid_link *link, int ms)
{
	return atomic_load(&link->state) == BRAID_LINK_UP && braid_link_is_watched(link) &&
	       link->tick.settled && !braid_link_ndown(link) && (ms < 0 || ms > TICK_MAX_MS);
}

/* Once a link has rested for a while, it keeps the memory of traffic no longer. */
static void trim(struct braid_link *link, uint64_t now)
{
	if (link->tick.used_ns && braid_since(link->tick.used_ns, now) >= TRIM_MS * MS &&
	    braid_link_trim(link))
		link->tick.used_ns = 0;
}

/* Do what is due for a busy link.  Returns as run_due() does; the link may be gone. */
static int link_due(struct braid_link *link, uint64_t now)
{
	int state = atomic_load(&link->state), ms = -1, err;

	if (braid_reap_link(link, now))
		return TICK_MS;
	if ((state == BRAID_LINK_DIALING || state == BRAID_LINK_WAITING) && !link->dial.conn &&
	    now >= link->dial.at_ns)
		braid_dial_link(link, now);
	if (state == BRAID_LINK_UP && link->dialler && !link->dial.conn &&
	    braid_lane_count_may_dial(link, now)) {
		err = braid_dial_lane(link, NULL, now);
		if (err)
			braid_lane_count_dialled(link, err, now);
	}
	if (state == BRAID_LINK_UP) {
		braid_movers_tick(link, now);
		braid_lane_count_tick(link, now);
		braid_slow_tick(link, now);
		ms = braid_recover_tick(link, now);
	}
	if (state != BRAID_LINK_UP || !braid_link_is_watched(link) || !link->tick.settled)
		return sooner(ms, loop.tick_ms);
	if (!braid_comms_count(link) || (link->dialler && braid_lane_count_wants_dial(link)))
		ms = sooner(ms, SLOW_TICK_MS);
	if (!may_rest(link, ms))
		return ms;
	trim(link, now);
	braid_due_rest(link, ms < 0 ? BRAID_DUE_MAX_MS : (unsigned)ms);
	return -1;
}

/* Do all that is due.  Returns the milliseconds until something is due again; -1: nothing is. */
static int run_due(uint64_t now)
{
	struct braid_link *link, *tmp;
	int wait_ms = braid_moved_tick(now);
	bool paused, idle = false;

	braid_handshakes_expire(now);
	paused = braid_listeners_resume(now);
	braid_handshakes_log_strangers(now);
	braid_list_for_safe(link, tmp, &braid_due_busy, tick.node) {
		idle |= link->reap.idle_since_ns != 0;
		wait_ms = sooner(wait_ms, link_due(link, now));
	}
	if (idle)
		braid_reap_idlest();
	wait_ms = sooner(wait_ms, check_nics(now));
	wait_ms = sooner(wait_ms, braid_keypairs_tick(now));
	wait_ms = sooner(wait_ms, braid_due_wait(now));
	if (paused || braid_handshakes_left())
		wait_ms = sooner(wait_ms, braid_handshakes_poll(now) ? POLL_MS : SLOW_TICK_MS);
	return wait_ms;
}

static bool nothing_left(uint64_t now)
{
	if (braid_listens_left() || braid_connects_left() || !braid_list_empty(&braid_svc.links)) {
		loop.idle_since_ns = 0;
		return false;
	}
	if (!loop.idle_since_ns)
		loop.idle_since_ns = now;
	return braid_since(loop.idle_since_ns, now) >= (uint64_t)braid_param.link_idle * SEC;
}

/* While stopping: has some link lost its home lane while frames on it are unacknowledged? */
static bool must_linger(uint64_t now)
{
	struct braid_link *link;
	bool any = false;

	if (!loop.stop_ns)
		loop.stop_ns = now;
	if (braid_since(loop.stop_ns, now) >= BRAID_LOOP_LINGER_MS * MS)
		return false;
	braid_list_for(link, &braid_svc.links, table.node) {
		if (atomic_load(&link->state) != BRAID_LINK_UP || braid_link_peer_gone(link) ||
		    braid_lane_up(braid_link_home(link)))
			continue;
		braid_lock_wait(&link->lock);
		any |= !braid_txq_idle(&braid_link_home(link)->tx);
		braid_unlock(&link->lock);
	}
	return any;
}

/* --- events --------------------------------------------------------------------------------- */

static enum braid_tag tag_of(const struct epoll_event *ev)
{
	return (enum braid_tag)(ev->data.u64 & BRAID_TAG_MASK);
}

static void *object_of(const struct epoll_event *ev)
{
	return (void *)(uintptr_t)(ev->data.u64 & ~(uint64_t)BRAID_TAG_MASK);
}

/* --- the end ------------------------------------------------------------------------------- */

static void close_links(void)
{
	struct braid_link *link;

	braid_list_for(link, &braid_svc.links, table.node) {
		if (atomic_load(&link->state) != BRAID_LINK_UP)
			continue;
		braid_lock_wait(&link->lock);
		braid_reap_send_close(link);
		braid_unlock(&link->lock);
	}
}

/*
 * Waits a moment while everything ends.  Nothing is accepted any more; an event that stayed would
 * make each further wait return at once.
 */
static void wait_a_moment(void)
{
	struct epoll_event ev;

	if (braid_events_wait(&ev, 1) <= 0)
		return;
	if (tag_of(&ev) == BRAID_TAG_WAKE)
		braid_service_woken();
	else if (tag_of(&ev) == BRAID_TAG_PORT)
		braid_unwatch(((struct braid_listener *)object_of(&ev))->fd);
}

/* For a bounded time, let CLOSE frames and the frames before them reach the peers. */
static void flush_links(void)
{
	uint64_t until = braid_os->now_ns() + BRAID_LOOP_STOP_MS * MS;
	bool busy = true;

	while (busy && braid_os->now_ns() < until) {
		struct braid_link *link;

		busy = false;
		braid_list_for(link, &braid_svc.links, table.node) {
			if (atomic_load(&link->state) != BRAID_LINK_UP)
				continue;
			braid_link_move(link);
			braid_link_try_flush_control(link);
			braid_lock_wait(&link->lock);	/* a mover may have its lanes */
			busy |= !braid_link_peer_gone(link) &&
				braid_lane_up(braid_link_home(link)) &&
				!braid_txq_idle(&braid_link_home(link)->tx);
			braid_unlock(&link->lock);
		}
		if (busy)
			wait_a_moment();
	}
}

static void reap_links(void)
{
	uint64_t until = braid_os->now_ns() + BRAID_LOOP_STOP_MS * MS;

	while ((braid_reap_all() || braid_listeners_read_events()) && braid_os->now_ns() < until) {
		check_nics(braid_os->now_ns());
		wait_a_moment();
	}
}

static void close_all(void)
{
	struct braid_link *link;

	braid_svc_assert_locked();
	if (braid_service_hooks.ending)
		braid_service_hooks.ending();
	close_links();
	flush_links();
	braid_list_for(link, &braid_svc.links, table.node)
		braid_link_fail(link, -ENOTCONN, "the last context was finalized [link-closed]");
	braid_handshakes_close();
	braid_handshakes_free();
	braid_keypairs_forget();
	braid_movers_end();
	reap_links();
	braid_movers_free();
	braid_work_end();
	braid_listeners_close();
	braid_connects_free();
	braid_wakeup_close();
	braid_moved_close();
	braid_events_close();
	braid_pool_trim();
}

/* --- a round ------------------------------------------------------------------------------- */

/* A device has an event: check its links.  The tick follows at once, as after any event. */
static void device_event(struct braid_listener *p)
{
	struct braid_link *link;

	braid_listener_read_events(p);
	braid_list_for(link, &braid_svc.links, table.node) {
		if (atomic_load(&link->state) == BRAID_LINK_UP)
			braid_health_port(link);
	}
	braid_due_all();
}

static void handle_event(const struct epoll_event *ev, uint64_t now)
{
	void *obj = object_of(ev);

	switch (tag_of(ev)) {
	case BRAID_TAG_WAKE:
		braid_service_woken();
		break;
	case BRAID_TAG_PORT:
		braid_listener_event(obj, &braid_accepting, now);
		break;
	case BRAID_TAG_CONN:
		braid_handshake_event(obj, now);
		break;
	case BRAID_TAG_DEVICE:
		device_event(obj);
		break;
	case BRAID_TAG_ADDRS:
		braid_moved_event(now);
		break;
	default:
		break;
	}
}

static void links_tick(uint64_t now)
{
	struct braid_link *link;
	unsigned touched = 0;
	bool calm = true;

	braid_due_tick(now);
	braid_list_for(link, &braid_due_busy, tick.node)
		touched += braid_link_touched(link) != link->tick.seen;
	braid_list_for(link, &braid_due_busy, tick.node) {
		braid_link_set_alone(link, touched == 1);
		if (atomic_load(&link->state) != BRAID_LINK_UP || !braid_watched_tick(link, now))
			calm = false;
	}
	if (!calm)
		loop.tick_ms = TICK_MS;
	else if (loop.tick_ms < TICK_MAX_MS && now - loop.ticked_ns >= (unsigned)loop.tick_ms * MS)
		loop.tick_ms *= 2;
}

/* One round of the thread's loop; false when nothing is left to look after. */
static bool run_round(int *wait_ms)
{
	struct braid_link *link = NULL;
	struct epoll_event ev[1];
	uint64_t now;
	bool go_on, tick;
	int n;

	/*
	 * One event at a time: handling one may free what another is about.  Lanes are freed by
	 * this thread only, so that they can be moved without braid_svc.lock.
	 */
	n = braid_events_wait(ev, *wait_ms);
	if (n > 0 && tag_of(ev) == BRAID_TAG_LANE) {
		struct braid_lane *lane = object_of(ev);

		link = lane->link;
		braid_watched_event(lane);
	} else if (n <= 0) {
		link = braid_watched_stream();
	}
	now = braid_clock_set();
	/* Also while events or data pour in: */
	tick = (n <= 0 && !link) || now - loop.ticked_ns >= TICK_MS * MS;
	braid_svc_lock();
	if (link)
		braid_due_now(link);
	else if (n > 0)
		handle_event(ev, now);
	if (tick)
		links_tick(now);	/* first: how long to sleep depends on it */
	*wait_ms = 0;
	if (tick) {
		int ms = run_due(now);

		loop.ticked_ns = now;
		*wait_ms = n > 0 || braid_watched_streams() ? 0 : ms;
	}
	go_on = (!braid_service_stopping() || must_linger(now)) && !nothing_left(now);
	if (go_on && braid_service_stopping())
		*wait_ms = sooner(*wait_ms, 1);
	if (go_on && *wait_ms < 0 && loop.idle_since_ns)
		*wait_ms = SLOW_TICK_MS;
	braid_handshakes_free();
	braid_svc_unlock();
	return go_on;
}

/* The lock is held from the decision to end until the end: no link may be added in between. */
void braid_loop(void)
{
	int wait_ms = 0;

	loop.idle_since_ns = loop.stop_ns = 0;
	braid_svc_lock();
	braid_moved_open();
	braid_svc_unlock();
	for (;;) {
		if (run_round(&wait_ms))
			continue;
		braid_svc_lock();
		if ((braid_service_stopping() && !must_linger(braid_os->now_ns())) ||
		    nothing_left(braid_os->now_ns()))
			break;
		braid_svc_unlock();
		wait_ms = 0;
	}
	close_all();
}
