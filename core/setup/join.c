/* SPDX-License-Identifier: BSD-3-Clause */
/* join.c - see join.h. */
#include "core/setup/join.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/secret.h"
#include "core/base/self.h"
#include "core/base/units.h"
#include "core/link/link.h"
#include "core/link/recover.h"
#include "core/link/state.h"
#include "core/msg/comms.h"
#include "core/proto/auth.h"
#include "core/setup/addr.h"
#include "core/setup/conn.h"
#include "core/setup/declined.h"
#include "core/setup/encrypt.h"
#include "core/setup/events.h"
#include "core/setup/lane_count.h"
#include "core/setup/links.h"
#include "core/setup/path.h"
#include "core/setup/redial.h"
#include "core/setup/silence.h"
#include "core/setup/tries.h"
#include "core/setup/watched.h"
#include "core/transport.h"

enum {
	DIAL_MS = 500,			/* that the peer's dial may take */
	TRY_MS = 800,			/* for the answer to a better carrier's first packet ... */
	TRY_AGAIN_MS = 250,		/* ... when the lane's socket waits meanwhile */
};

int braid_join_close_lane(struct braid_conn *c)
{
	struct braid_lane *lane = c->lane;
	int err;

	braid_svc_assert_locked();
	lane->recover.shut_ns = braid_os->now_ns();
	/* The peer is dialling: it need not be asked to while it may still succeed. */
	if (!c->dialler && lane == braid_link_home(lane->link))
		lane->link->recover.probe_ns = lane->recover.shut_ns + DIAL_MS * MS;
	err = braid_lane_shut(lane);
	if (err)
		return err;
	braid_lock_wait(&lane->link->lock);
	c->mine.frames = lane->rx_frames;
	c->mine.first = lane->tx.f_acked;
	if (!c->dialler)
		c->mine.corrupt = braid_lane_times_corrupt(lane);
	braid_unlock(&lane->link->lock);
	return 0;
}

/* Which member of the link's device, a new link's included, the socket belongs to. */
static uint8_t member_of(const struct braid_conn *c)
{
	const struct braid_dev *dev = c->link ? c->link->key.dev : c->dev;

	for (unsigned i = 0; i < dev->nmembers; i++) {
		if (dev->member[i] == c->met)
			return (uint8_t)i;
	}
	return 0;
}

void braid_join_setup(struct braid_conn *c)
{
	const struct braid_link *link = c->link;

	braid_svc_assert_locked();
	c->setup.dev = c->met;
	c->setup.lane = c->mine.lane;
	c->setup.again = c->lane;
	c->setup.traffic_class = c->mine.traffic_class;
	c->setup.dialler = c->dialler;
	c->setup.reversed = c->reversed;
	c->setup.try_ms = c->lane && !c->lane->tr->blob ? TRY_AGAIN_MS : TRY_MS;
	c->setup.to = (const struct sockaddr *)&c->to;
	c->setup.has_ticket = c->version >= 2;
	braid_auth_ticket(c->key, c->m1, c->m2, c->setup.ticket);
	c->mine_setup.rkey_epoch = link ? braid_link_rkey_epoch(link) : 0;
	c->mine_setup.member = member_of(c);
	/* Decline the transport that has just failed on this lane. */
	c->mine_setup.err = c->lane && braid_lane_has_failed(c->lane) && !c->dialler ? EIO : 0;
	if (c->lane)
		braid_lane_forget_failure(c->lane);
}

/* The lane owns the socket now.  If the link was watched, the next tick watches this socket too. */
static void lane_owns(struct braid_lane *lane, struct braid_conn *c)
{
	c->fd = -1;
	c->setup.priv = NULL;
	lane->recover.path = (uint8_t)c->path;
	braid_link_set_watched(lane->link, false);
}

/* The caller wipes *keys. */
static struct braid_carrier carrier_of(const struct braid_conn *c, struct braid_lane_keys *keys)
{
	return (struct braid_carrier){
		.tr = c->tr, .fd = c->fd, .priv = c->setup.priv,
		.keys = braid_encrypt_keys(c, keys) ? keys : NULL,
		.epoch = c->dialler ? c->mine.epoch : c->theirs.epoch,
		.member = member_of(c), .peer_member = c->their_setup.member,
		.rkey_epoch = c->mine_setup.rkey_epoch,
		.peer_rkey_epoch = c->their_setup.rkey_epoch,
		.as_before = c->lane && c->lane->tr == c->tr &&
			     braid_declined_err(c) == EHOSTUNREACH,
	};
}

/* Note the transport agreed on.  A dialler that was refused the better one tries it again later. */
static void note_transport(struct braid_link *link, const struct braid_conn *c, unsigned index)
{
	uint64_t now = braid_os->now_ns();
	int err = braid_declined_err(c);
	bool final = braid_declined_for_good(c, err);
	const struct braid_transport *best = link->key.dev->best;
	char why[320];

	link->setup.better |= c->tr->blob || (err && !final);
	if (link->dialler && (c->tr->blob || err))
		link->setup.path[c->path].better = !final;
	if (err && link->dialler)	/* EIO: that transport had come up before, and failed */
		braid_path_plain(link, c->path, err != ENETDOWN && err != EHOSTUNREACH,
				 c->refused && err != EIO ? c->refused->rest_s : 0, now);
	/* No WARN: a peer also refuses if it closes the returning lane once more. */
	if ((c->lane && err == ECONNREFUSED) || err == EALREADY)
		return;
	braid_declined_text(c, why, sizeof(why));
	if (err && !link->setup.warned_plain)
		braid_warn("device %s, peer %s: %s carries lane %u: %s%s [lesser-transport]",
			   link->key.dev->net.name, link->peer, c->tr->name, index, why,
			   final ? "" : "; it is tried again now and then");
	else if (!err && best && c->tr != best && !link->setup.warned_plain && !link->setup.better)
		braid_warn("device %s, peer %s: %s carries this link: the peer does not offer %s; "
			   "braid info on its host says why "
			   "[peer-lacks-transport]", link->key.dev->net.name, link->peer,
			   c->tr->name, best->name);
	else
		return;
	link->setup.warned_plain = true;
}

int braid_join_new_lane(struct braid_link *link, struct braid_conn *c, unsigned index)
{
	struct braid_lane_keys keys;
	struct braid_carrier carried = carrier_of(c, &keys);
	int err;

	braid_svc_assert_locked();
	braid_unwatch(c->fd);
	err = braid_link_add_lane(link, index, &carried);
	braid_auth_wipe(&keys, sizeof(keys));
	if (err == -EALREADY)
		return err;
	if (err)
		return braid_error(err, "device %s, peer %s: can't open lane %u: %s [no-lane]",
				   link->key.dev->net.name, link->peer, index, strerror(-err));
	link->lane[index]->recover.dialled = carried.epoch;
	lane_owns(link->lane[index], c);
	note_transport(link, c, index);
	return 0;
}

int braid_join_lane(struct braid_lane *lane, struct braid_conn *c)
{
	struct braid_link *link = lane->link;
	struct braid_lane_keys keys;
	struct braid_carrier carried;
	bool old_key = braid_lane_old_key(lane), slow = braid_lane_is_slow(lane);
	uint64_t now;
	int err;

	braid_svc_assert_locked();
	if (!c->dialler && c->theirs.epoch != lane->recover.dialled)
		return -EALREADY;		/* a later dial has come in between */
	braid_unwatch(c->fd);
	carried = carrier_of(c, &keys);
	err = braid_lane_resume(lane, &carried, c->theirs.frames, c->theirs.first);
	braid_auth_wipe(&keys, sizeof(keys));
	if (err == -EALREADY)
		return err;
	if (err) {
		braid_link_fail(link, -EREMOTEIO, "lane %u can't be taken up again: %s "
				"[broken-link]",
				lane->index,
				err == -EPROTO ? "the two ends do not agree on what went over it" :
						 strerror(-err));
		return err;
	}
	lane_owns(lane, c);
	note_transport(link, c, lane->index);
	now = braid_os->now_ns();
	if (old_key || slow) {		/* it was not lost */
		braid_info("device %s, peer %s: lane %u has %s; it stood still for %llu us",
			   link->key.dev->net.name, link->peer, lane->index,
			   old_key ? "new keys" : "another port",
			   (unsigned long long)braid_since(lane->recover.shut_ns, now) / 1000);
	} else if (!carried.as_before) {
		braid_info("device %s, peer %s: lane %u is back over %s (opened %u times)",
			   link->key.dev->net.name, link->peer, lane->index, c->tr->name,
			   braid_lane_times_back(lane) + 1);
		braid_redial_resumed(lane, now);
	}
	braid_link_move(link);
	return 0;
}

/* Checksums need both ends.  An end that wants them and can't have them says so. */
static void agree_checksums(struct braid_link *link, const struct braid_conn *c)
{
	static struct braid_log_gate gate;
	bool mine = c->mine.options & BRAID_OPTION_CHECKSUM;
	bool theirs = braid_conn_peer_has(c, BRAID_OPTION_CHECKSUM);

	link->checksums = mine && theirs;
	if (mine && !theirs && braid_log_gate_open(&gate, braid_os->now_ns()))
		braid_warn("device %s, peer %s: data on this link has no checksums: the peer %s "
			   "[no-checksum]", link->key.dev->net.name, link->peer,
			   c->version >= 2 ? "runs without BRAID_CHECKSUM=on" :
					     "has an older Braid, which knows none");
}

/* Find the paths to the peer.  The accepting end asks for a dial by them if all lanes are lost. */
static void find_paths(struct braid_link *link, const struct braid_conn *c)
{
	struct braid_addr at = c->from;
	struct sockaddr_storage sa;

	at.port = c->theirs.port;
	if (c->dialler) {
		braid_path_dialled(link, c, 0, 0);
		braid_path_sockaddr(&link->setup.path[c->path], &sa);
		at = braid_addr_of((struct sockaddr *)&sa);
	}
	braid_paths_all(link, &at, &c->theirs);
}

int braid_join_link(struct braid_link *link, struct braid_conn *c)
{
	int err;

	braid_svc_assert_locked();
	if (!link->setup.session)
		link->setup.session = braid_secret_new();
	if (!link->setup.session)
		return braid_no_memory("a link");
	braid_conn_session(c, link->setup.session);
	link->setup.version = c->version;
	link->setup.one_comm = braid_conn_peer_has(c, BRAID_OPTION_ONE_COMM);
	link->setup.other_paths = braid_conn_peer_has(c, BRAID_OPTION_PATHS);
	link->setup.reverses = braid_conn_peer_has(c, BRAID_OPTION_REVERSE);
	link->setup.proven = c->dialler;	/* the handle names the peer and has its token */
	braid_lock_wait(&link->lock);	/* core/watch/view.c may be reading these */
	link->dialler = c->dialler;
	snprintf(link->peer, sizeof(link->peer), "%s (pid %u, %s)", c->theirs.host, c->theirs.pid,
		 c->addr);
	link->setup.peer_pid = !strcmp(c->theirs.host, braid_self.host) ? c->theirs.pid : 0;
	braid_unlock(&link->lock);
	link->setup.id = c->dialler ? c->theirs.ident : c->mine.ident;
	link->setup.next_comm = c->dialler ? 0 : 1;
	braid_comms_set_windows(link, c->theirs.window, c->mine.window);
	link->lanes_max = c->theirs.lanes_max < c->mine.lanes_max ? c->theirs.lanes_max :
								    c->mine.lanes_max;
	c->mine.window = 0;
	agree_checksums(link, c);
	find_paths(link, c);
	err = braid_join_new_lane(link, c, 0);
	if (err)
		return err;
	err = braid_link_attach(link);
	if (err) {
		braid_link_fail(link, err, "can't bring the link up: %s [no-link]", strerror(-err));
		return err;
	}
	braid_link_forget_token(link);
	atomic_store(&link->state, BRAID_LINK_UP);
	braid_lane_count_start(link);
	braid_silence_start(link, braid_os->now_ns());
	braid_event(BRAID_EVENT_LINK_UP, link->number, BRAID_FLIGHT_NONE, link->lanes_max, 0);
	braid_info("device %s: link to %s is up, %s, %s", link->key.dev->net.name, link->peer,
		   link->dialler ? "dialled" : "accepted", braid_encrypt_name(c));
	if (link->dialler)
		braid_tries_log(link);
	return 0;
}
