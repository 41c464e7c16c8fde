/* SPDX-License-Identifier: BSD-3-Clause */
/* redial.c - see redial.h. */
#include "core/setup/redial.h"

#include <errno.h>
#include <string.h>

#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/ports.h"
#include "core/base/units.h"
#include "core/link/link.h"
#include "core/link/recover.h"
#include "core/link/state.h"
#include "core/setup/conn.h"
#include "core/setup/links.h"
#include "core/setup/offer.h"
#include "core/setup/path.h"
#include "core/setup/silence.h"
#include "core/setup/why.h"
#include "core/transport.h"

enum {
	SUSPECT_MAX_MS = 1600,		/* doubled up to this for a lane lost again and again */
	CALM_MS = 10000,		/* if a lane is lost again sooner, its host may be slow */
	WAIT_MAX_MS = 500,		/* the longest wait between failed dials */
	ASK_AGAIN_MS = 40,		/* between two dials before a refusal is believed */
	ASKED_MS = 2000,		/* a refusal that comes later counts as the first */
	REACHED_MS = 2000,		/* after the peer reached us, refusals are another's */
	WAIT_UNANSWERED_MS = 5000,	/* the longest if only the peer's kernel answers */
	WAIT_LONG_MS = 2000,		/* the longest, also between time-outs, in a long outage */
};

static struct braid_log_gate gate_local, gate_ports;

bool braid_redial_is_long(const struct braid_link *link, uint64_t now)
{
	braid_svc_assert_locked();
	return braid_silence(link, now) >= BRAID_LONG_OUTAGE_S * SEC;
}

/* 3/4 to 5/4 of `ms`, at random: peers that lost the same switch must not all redial at once. */
static uint64_t jitter(unsigned ms)
{
	uint8_t r;

	braid_os->random(&r, sizeof(r));
	return ms * MS * (192 + r / 2u) / 256;
}

/* How long to wait after a failed dial, in ns. */
static uint64_t back_off(struct braid_link *link, unsigned *wait_ms, const struct braid_conn *c,
			 int err, uint64_t now)
{
	bool is_long = braid_redial_is_long(link, now);
	unsigned most = is_long ? WAIT_LONG_MS : WAIT_MAX_MS;

	if (err == -ETIMEDOUT && c && c->state == BRAID_CONN_CONNECT && !is_long)
		return jitter(BRAID_REDIAL_MIN_MS);	/* the attempt took its time already */
	if (err == -ETIMEDOUT && c && c->state != BRAID_CONN_CONNECT)
		most = WAIT_UNANSWERED_MS;
	*wait_ms = *wait_ms ? *wait_ms * 2 : BRAID_REDIAL_MIN_MS;
	if (*wait_ms > most)
		*wait_ms = most;
	return jitter(*wait_ms);
}

/* Does the error show that the peer's process is gone: its port is closed, or another's now? */
static bool is_refusal(const struct braid_conn *c, int err)
{
	if (c && err == -EREMOTEIO)
		return c->theirs.status != BRAID_HELLO_NO_ROOM;
	if (err == -ECONNREFUSED)
		return true;
	/* EACCES before TCP connects comes from a route or a firewall: no refusal. */
	return braid_dial_stage(c, err) == BRAID_DIAL_PEER &&
	       (err == -EPROTO || err == -EPROTONOSUPPORT || err == -EACCES);
}

/*
 * Anybody on the path can make one refusal: a reset, a few bytes, an answer without a MAC.  So one
 * that the peer has not signed must come twice.  If the peer reached us after one, a firewall or a
 * NAT refuses.  True: the peer is gone.
 */
static bool is_refused_again(struct braid_link *link, const struct braid_conn *c, uint64_t now)
{
	uint64_t first = link->recover.refused_ns;

	if (c && c->known)
		return true;
	if (link->recover.reached_ns &&
	    braid_since(link->recover.reached_ns, now) < REACHED_MS * MS)
		return false;
	if (first && braid_since(first, now) <= ASKED_MS * MS)
		return braid_since(first, now) >= ASK_AGAIN_MS * MS * 3 / 4;
	link->recover.refused_ns = now;
	return false;
}

void braid_redial_avoid(struct braid_link *link, unsigned path, uint64_t now)
{
	braid_svc_assert_locked();
	braid_path_bad(link, path, now);
	for (unsigned i = 0; i < link->nlanes && !braid_redial_is_long(link, now); i++) {
		if (braid_path_for(link, i, now) != path)
			link->lane[i]->recover.dial_at_ns = 0;
	}
}

static bool any_works(const struct braid_link *link)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (braid_lane_up(link->lane[i]) && !braid_lane_suspect_ns(link->lane[i]))
			return true;
	}
	return false;
}

bool braid_redial_is_left(const struct braid_link *link, unsigned path, uint64_t now)
{
	braid_svc_assert_locked();
	return now < link->setup.path[path].left[0].until_ns && any_works(link);
}

bool braid_redial_corrupt(struct braid_lane *lane, uint64_t now)
{
	const struct braid_link *link = lane->link;
	const struct braid_dev *dev = link->setup.path[lane->recover.path].dev;
	bool plain = lane->tr->blob && braid_offer_has_socket(dev);
	unsigned s = braid_path_corrupt(lane->link, lane->recover.path, plain, now);

	braid_svc_assert_locked();
	if (s && (plain || link->npaths > 1 || any_works(link)))
		braid_warn("device %s, peer %s: lane %u (%s, %s) is left for %u s, because data "
			   "is changed on its way over it again and again; %s [lane-left]",
			   link->key.dev->net.name, link->peer, lane->index, lane->tr->name,
			   dev->net.name, s, plain ? "TCP carries the lane meanwhile" :
			   link->npaths > 1 ? "it takes another path meanwhile" :
					      "the other lanes carry the data meanwhile");
	return s;
}

/* Record how a dial, or a request that the peer dial, ended.  True: ask again soon. */
static bool note_dial(struct braid_link *link, const struct braid_conn *c, int err, uint64_t now)
{
	char why[400];
	bool spent = !c || (!c->reversed && braid_path_dialled(link, c, err, now));

	if ((err == -ENOMEM || err == -EMFILE || err == -ENFILE) &&
	    braid_log_gate_open(&gate_local, now))
		braid_warn("device %s, peer %s: the connection was lost and can't be dialled "
			   "again: %s; trying on%s "
			   "[no-redial]", link->key.dev->net.name, link->peer,
			   strerror(-err), err == -EMFILE ? ". Raise the limit: ulimit -n" : "");
	if (err == -EADDRINUSE && braid_ports_given() && braid_log_gate_open(&gate_ports, now)) {
		braid_ports_why(why, sizeof(why));
		braid_warn("device %s, peer %s: the connection was lost and can't be dialled "
			   "again, trying on: %s", link->key.dev->net.name, link->peer, why);
	}
	link->recover.dial_err = err;
	if (!err)
		link->recover.refused_ns = 0;
	if (is_refusal(c, err) && spent)
		link->recover.refused |= is_refused_again(link, c, now);
	link->recover.unanswered = err == -ETIMEDOUT && c && c->state != BRAID_CONN_CONNECT;
	link->recover.hung_up = c && c->state != BRAID_CONN_CONNECT &&
				(err == -ENOTCONN || err == -ECONNRESET || err == -EPIPE);
	if (c && err && !is_refusal(c, err) && spent)
		braid_redial_avoid(link, c->path, now);
	return is_refusal(c, err) && spent && !link->recover.refused;
}

/*
 * The dial of a lane has failed.  The flight recorder is to keep what came before a long outage, so
 * it gets the 1st, 2nd, 4th, 8th ... failure.  A number that no hello took to the peer is used
 * again: with wire version 1, whose numbers have 16 bits, an outage could use them up.
 */
static void note_failure(struct braid_lane *lane, const struct braid_conn *c, int err)
{
	unsigned n = ++lane->recover.dials_failed;

	if (!(n & (n - 1)))
		braid_event(BRAID_EVENT_LANE_DIALLED, lane->link->number, lane->index, err,
			    c ? (int64_t)c->path : -1);
	if (c && c->state == BRAID_CONN_CONNECT && lane->recover.dialled == c->mine.epoch)
		lane->recover.dialled--;
}

void braid_redial_ended(struct braid_lane *lane, const struct braid_conn *c, int err,
			   uint64_t now)
{
	struct braid_link *link = lane->link;

	braid_svc_assert_locked();
	if (err == -EALREADY)
		return;
	if (err && braid_lane_up(lane) && braid_lane_is_slow(lane)) {
		/*
		 * The lane goes on as it is, until it is found slow again.  EBUSY: the new path
		 * looked no better, so another is dialled at once.
		 */
		braid_lane_set_slow(lane, err == -EBUSY);
		return;
	}
	if (err)
		lane->recover.dial_at_ns =
			now + back_off(link, &lane->recover.dial_wait_ms, c, err, now);
	if (note_dial(link, c, err, now))
		lane->recover.dial_at_ns = now + jitter(ASK_AGAIN_MS);
	if (err) {
		note_failure(lane, c, err);
		return;
	}
	braid_path_good(link, c->path, now);
	lane->recover.dial_wait_ms = 0;
	lane->recover.dials_failed = 0;
	lane->recover.dial_at_ns = 0;
	link->recover.refused = false;
	link->recover.received_ns = now;
}

void braid_redial_reached(struct braid_link *link, uint64_t now)
{
	braid_svc_assert_locked();
	if (link->recover.refused_ns)
		link->recover.reached_ns = now;
	link->recover.refused = false;
	link->recover.refused_ns = 0;
}

void braid_redial_requested(struct braid_link *link, const struct braid_conn *c, int err,
			    uint64_t now)
{
	braid_svc_assert_locked();
	if (!err)
		link->recover.announce_ns = 0;
	if (note_dial(link, c, err, now))
		link->recover.probe_ns = now + jitter(ASK_AGAIN_MS);
	else
		link->recover.probe_ns =
			now + (err ? back_off(link, &link->recover.probe_wait_ms, c, err, now) :
				     jitter(WAIT_MAX_MS));
}

bool braid_redial_again(const struct braid_lane *lane, uint64_t now)
{
	braid_svc_assert_locked();
	return braid_since(lane->recover.resumed_ns, now) <= CALM_MS * MS;
}

void braid_redial_resumed(struct braid_lane *lane, uint64_t now)
{
	braid_svc_assert_locked();
	if (!braid_redial_again(lane, now))
		lane->recover.patience_ms = BRAID_SUSPECT_MS;
	else if (lane->recover.patience_ms < SUSPECT_MAX_MS)
		lane->recover.patience_ms *= 2;
	lane->recover.resumed_ns = now;
}

/* Home comes last: while it is tried, small messages would wait. */
static bool goes_before(const struct braid_lane *k, const struct braid_lane *lane)
{
	const struct braid_lane *home = braid_link_home(lane->link);

	return k != lane && (lane == home || (k != home && k->index < lane->index));
}

bool braid_redial_is_poor(const struct braid_lane *lane, unsigned path, uint64_t now)
{
	const struct braid_link *link = lane->link;
	const struct braid_dev *dev = link->setup.path[path].dev;

	braid_svc_assert_locked();
	if (!link->setup.path[path].better || lane->tr->blob ||
	    now < link->setup.path[path].plain_until_ns || !dev->best->usable(dev))
		return false;
	/* One such lane of a path tries alone; the others follow once it has succeeded. */
	for (unsigned i = 0; i < link->nlanes; i++) {
		const struct braid_lane *k = link->lane[i];

		if (goes_before(k, lane) && k->recover.path == path && !k->tr->blob)
			return false;
	}
	return true;
}

bool braid_redial_is_needed(const struct braid_lane *lane, unsigned path)
{
	braid_svc_assert_locked();
	return !braid_lane_up(lane) || braid_lane_suspect_ns(lane) || braid_lane_old_key(lane) ||
	       braid_lane_is_slow(lane) || lane->recover.path != path ||
	       braid_redial_is_poor(lane, path, braid_os->now_ns());
}
