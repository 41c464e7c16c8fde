/* SPDX-License-Identifier: BSD-3-Clause */
/* reverse.c - see reverse.h. */
#include "core/setup/reverse.h"

#include <errno.h>
#include <stdbool.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/units.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/setup/accept.h"
#include "core/setup/conn.h"
#include "core/setup/dial.h"
#include "core/setup/events.h"
#include "core/setup/handshake.h"
#include "core/setup/health.h"
#include "core/setup/lane_count.h"
#include "core/setup/links.h"
#include "core/setup/path.h"
#include "core/setup/redial.h"

enum {
	SLOW_MS = 100,			/* plus two round trips: then our own dial may give way */
	CALL_MS = 500,			/* between two frames that ask the peer to connect */
};

/* Take the socket out of its handshake, which then ends without it. */
static int give_socket(struct braid_conn *c)
{
	int fd = c->fd;

	braid_unwatch(fd);
	c->fd = -1;
	return fd;
}

void braid_reverse_offer(struct braid_conn *c, uint64_t now)
{
	struct sockaddr_storage peer = { 0 };
	socklen_t len = sizeof(peer);

	braid_svc_assert_locked();
	if (!braid_conn_peer_has(c, BRAID_OPTION_REVERSE) ||
	    braid_os->getpeername(c->fd, (struct sockaddr *)&peer, &len))
		return;
	braid_handshake_accept(give_socket(c), c->met, &braid_accepting, &peer, now);
}

/* Do our own dials fail?  `own`: the one under way, or NULL.  `failed`: the last ones did. */
static bool dial_fails(const struct braid_link *link, const struct braid_conn *own, bool failed,
		       uint64_t now)
{
	unsigned ms = SLOW_MS + 2 * braid_link_home(link)->recover.rtt_ms;

	if (own && (own->known || own->reversed))
		return false;
	return link->recover.reversed || failed ||
	       (own && braid_since(own->began_ns, now) >= ms * MS);
}

/* Does this lane, which is lost or has a lesser transport, need a connection that the peer made? */
static bool lane_needs(const struct braid_lane *lane, uint64_t now)
{
	bool dials = !braid_health_well(lane, now) ||
		     braid_redial_is_poor(lane, lane->recover.path, now);

	return dials && !braid_lane_is_stopping(lane) &&
	       dial_fails(lane->link, lane->recover.conn, lane->recover.dials_failed &&
			  lane->link->recover.dial_err != -EREMOTEIO, now);
}

/*
 * The lane that most needs a connection that the peer has made to our member `met` (NULL: to any
 * member).  The number of lanes: a further lane needs it.  -1: none does.
 */
static int lane_for(const struct braid_link *link, const struct braid_dev *met, uint64_t now)
{
	int any = -1;

	for (unsigned i = 0; i < link->nlanes; i++) {
		if (!lane_needs(link->lane[i], now))
			continue;
		if (!met || link->setup.path[braid_path_for(link, i, now)].dev == met)
			return (int)i;
		if (any < 0 || link->lane[i] == braid_link_home(link))
			any = (int)i;
	}
	if (any < 0 && braid_lane_count_wants_dial(link) &&
	    dial_fails(link, link->dial.conn, false, now))
		any = (int)link->nlanes;
	return any;
}

/* A path from our member `met`, preferably the one that the lane would take; -1: none. */
static int path_by(const struct braid_link *link, const struct braid_dev *met, unsigned lane,
		   uint64_t now)
{
	unsigned first = braid_path_for(link, lane, now);

	for (unsigned i = 0; i < link->npaths; i++) {
		unsigned path = (first + i) % link->npaths;

		if (link->setup.path[path].dev == met)
			return (int)path;
	}
	return -1;
}

int braid_reverse_take(struct braid_conn *c, uint64_t now)
{
	struct braid_link *link = c->link;
	struct braid_lane *lane = NULL;
	struct braid_conn *own;
	int n, path;

	braid_svc_assert_locked();
	if (!braid_conn_peer_has(c, BRAID_OPTION_REVERSE) ||
	    atomic_load(&link->state) != BRAID_LINK_UP)
		return 0;
	n = lane_for(link, c->met, now);
	path = n < 0 ? -1 : path_by(link, c->met, (unsigned)n, now);
	if (path < 0)
		return 0;
	if ((unsigned)n < link->nlanes)
		lane = link->lane[n];
	own = lane ? lane->recover.conn : link->dial.conn;
	if (own)
		braid_handshake_end(own);
	if (!link->recover.reversed)
		braid_info("device %s, peer %s: our dials don't get through; lane %d takes a "
			   "connection that the peer has made", link->key.dev->net.name,
			   link->peer, n);
	return braid_dial_reversed(link, lane, (unsigned)path, give_socket(c), now);
}

void braid_reverse_dialled(const struct braid_conn *c, int err)
{
	struct braid_link *link = c->link;

	braid_svc_assert_locked();
	if (err)
		return;
	if (link->recover.reversed && !c->reversed)
		braid_info("device %s, peer %s: our dials get through again",
			   link->key.dev->net.name, link->peer);
	link->recover.reversed = c->reversed;
	link->recover.call_ns = 0;	/* for the next lane, if one is due */
}

void braid_reverse_tick(struct braid_link *link, uint64_t now)
{
	struct braid_hdr h = { .type = BRAID_F_LANES, .tag = BRAID_LANES_CALL };
	int n;

	braid_svc_assert_locked();
	if (!link->setup.reverses || now < link->recover.call_ns ||
	    !braid_health_well(braid_link_home(link), now))
		return;
	n = lane_for(link, NULL, now);
	if (n < 0)
		return;
	h.n = (uint16_t)n;
	link->recover.call_ns = now + CALL_MS * MS;
	braid_link_ctl_now(link, &h);
}
