/* SPDX-License-Identifier: BSD-3-Clause */
/* reap.c - see reap.h. */
#include "core/setup/reap.h"

#include <errno.h>

#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/units.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/recover.h"
#include "core/link/state.h"
#include "core/mem/later.h"
#include "core/msg/comm.h"
#include "core/msg/comms.h"
#include "core/proto/frame.h"
#include "core/setup/handshake.h"
#include "core/setup/links.h"
#include "core/setup/listen.h"
#include "core/setup/watched.h"
#include "core/transport.h"

enum {
	FIRST_COMM_S = 2,		/* how long an accepted link waits for its first comm */
	FIRST_COMM_BETTER_S = 10,	/* the same where a socket may have to replace RDMA */
	DETACH_MS = 50,			/* how long an idle link keeps its rings */
};

static void free_dead_comms(struct braid_link *link)
{
	struct braid_comm *c, *tmp;

	braid_lock_wait(&link->lock);
	braid_list_for_safe(c, tmp, braid_comms(link), node) {
		/*
		 * A failed comm that still waits for accept() has no owner, so it is freed.  A comm
		 * that its sender closed has not failed: accept() may still receive its data.
		 */
		if (c->closed || (atomic_load(&c->err) && braid_listen_withdraw(c)))
			braid_comm_free(c);
	}
	braid_unlock(&link->lock);
}

static void link_close_lanes(struct braid_link *link)
{
	unsigned n = braid_link_stop(link);

	braid_link_end_copies(link);
	for (unsigned i = 0; i < n; i++) {
		struct braid_lane *lane = link->lane[i];

		/* A thread that saw it up, or unread, may be about to take its io lock and poll. */
		atomic_store(&lane->up, false);
		atomic_store(&lane->unread, false);
		lane->tr->lane_close(lane);
	}
	if (!link->reap.closing)
		braid_stops_mark(link->key.dev, &link->reap.stops);
	link->reap.closing = true;
	braid_link_go(link, n);
}

void braid_reap_send_close(struct braid_link *link)
{
	struct braid_hdr h = { .type = BRAID_F_CLOSE };

	braid_assert_locked(&link->lock);
	if (!braid_link_attach(link) && !braid_link_peer_gone(link)) {
		braid_link_send_control(link);
		braid_link_ctl(link, &h, NULL);
		braid_link_flush(link);
	}
}

/* Close an idle link, unless a comm has been opened since the caller checked. */
static void link_close_idle(struct braid_link *link)
{
	braid_lock_wait(&link->lock);
	if (!braid_comms_count(link)) {
		braid_reap_send_close(link);
		braid_link_down(link, -ENOTCONN, "idle link closed [link-closed]");
	}
	braid_unlock(&link->lock);
}

/* A link just accepted waits for its first comm, longer where a socket may have to replace RDMA. */
static uint64_t idle_limit(const struct braid_link *link)
{
	uint64_t limit = braid_param.share ? (uint64_t)braid_param.link_idle * SEC : 0;
	uint64_t first = (link->setup.better ? FIRST_COMM_BETTER_S : FIRST_COMM_S) * SEC;

	return link->dialler || braid_comms_were(link) || limit > first ? limit : first;
}

bool braid_reap_link(struct braid_link *link, uint64_t now)
{
	int state = atomic_load(&link->state);
	uint64_t idle;

	braid_svc_assert_locked();
	if (state == BRAID_LINK_DEAD) {
		braid_link_forget_token(link);
		braid_watched_end(link);
		link_close_lanes(link);
		free_dead_comms(link);
		braid_handshakes_drop(link);
		/* A NIC that has not stopped may still read the link's queues. */
		if (braid_comms_count(link) || braid_link_is_pinned(link) ||
		    !braid_stops_past(link->key.dev, &link->reap.stops) || !braid_link_unlist(link))
			return false;
		braid_link_forget_keys(link);
		braid_link_free(link);
		return true;
	}
	if (braid_comms_count(link) || braid_comms_refuse(link) || braid_link_is_pinned(link) ||
	    state != BRAID_LINK_UP) {
		link->reap.idle_since_ns = 0;
		return false;
	}
	if (!link->reap.idle_since_ns)
		link->reap.idle_since_ns = now;
	idle = braid_since(link->reap.idle_since_ns, now);
	if (idle > DETACH_MS * MS && braid_link_is_attached(link)) {
		unsigned n = braid_link_stop(link);	/* accept() may be moving the link */

		if (!braid_comms_count(link))
			braid_link_detach(link);
		braid_link_go(link, n);
	}
	if (idle >= idle_limit(link) || braid_link_peer_gone(link))
		link_close_idle(link);
	return false;
}

bool braid_reap_all(void)
{
	struct braid_link *link, *tmp;
	bool any = false;

	braid_svc_assert_locked();
	braid_list_for_safe(link, tmp, &braid_svc.links, table.node) {
		if (!braid_reap_link(link, 0))
			any |= !braid_stops_past(link->key.dev, &link->reap.stops);
	}
	return any;
}

void braid_reap_idlest(void)
{
	struct braid_link *link, *oldest = NULL;
	unsigned n = 0;

	braid_svc_assert_locked();
	braid_list_for(link, &braid_svc.links, table.node) {
		if (!link->reap.idle_since_ns || atomic_load(&link->state) != BRAID_LINK_UP ||
		    (!link->dialler && !braid_comms_were(link)))	/* no comm yet */
			continue;
		n++;
		if (!oldest || link->reap.idle_since_ns < oldest->reap.idle_since_ns)
			oldest = link;
	}
	if (n > (unsigned)braid_param.links_idle)
		link_close_idle(oldest);
}
