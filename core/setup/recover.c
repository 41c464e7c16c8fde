/* SPDX-License-Identifier: BSD-3-Clause */
/* recover.c - see recover.h. */
#include "core/setup/recover.h"

#include <errno.h>
#include <string.h>

#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/setup/path.h"
#include "core/setup/service_int.h"
#include "core/watch/stat.h"
#include "core/transport.h"
#include "core/setup/why.h"

enum {
	HEALTH_MS = 100,		/* between looks at each lane's health */
	SUSPECT_MS = 200,		/* retransmitted and unacknowledged for so long */
	SUSPECT_MAX_MS = 1600,		/* doubled up to this for a lane lost again and again */
	CALM_MS = 10000,		/* a lane lost again sooner: perhaps its host is slow */
	SAY_MS = 1000,			/* nothing sent for so long: send ALIVE */
	SAY_SOON_MS = 250,		/* the same while a caller waits and nothing arrives */
	SILENT_MS = 3000,		/* nothing received for so long: one WARN */
	ASLEEP_MS = 3000,		/* between two ticks: this process did not run */
	STALL_MS = 1000,		/* between looks for messages that wait for a live peer */
	WAIT_MIN_MS = 5, WAIT_MAX_MS = 500,	/* between dials that fail */
	WAIT_UNANSWERED_MS = 5000,	/* the most, if only the peer's kernel answers */
	GIVE_UP_MS = 500,		/* all lanes lost, and redialling impossible or needless */
};

static struct braid_log_gate gate_local;

static bool is_suspect(const struct braid_lane *lane, uint64_t now)
{
	unsigned ms = lane->patience_ms > SUSPECT_MS ? lane->patience_ms : SUSPECT_MS;

	if (ms < 2 * lane->rtt_ms)
		ms = 2 * lane->rtt_ms;
	return lane->suspect_ns && braid_since(lane->suspect_ns, now) >= ms * MS;
}

static bool is_well(const struct braid_lane *lane, uint64_t now)
{
	return braid_lane_up(lane) && !is_suspect(lane, now);
}

static bool any_well(const struct braid_link *link, uint64_t now)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (is_well(link->lane[i], now))
			return true;
	}
	return false;
}

/* For how long nothing has come from the peer. */
static uint64_t silence(const struct braid_link *link, uint64_t now)
{
	return braid_since(link->recover.heard_ns, now);
}

static bool any_unread(const struct braid_link *link)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (braid_lane_unread(link->lane[i]))
			return true;
	}
	return false;
}

static uint64_t seconds(uint64_t ns)
{
	return (ns + SEC / 2) / SEC;
}

/* --- dialling again ------------------------------------------------------------------------ */

/* 3/4 to 5/4 of `ms`, at random: peers that lost the same switch must not all redial at once. */
static uint64_t jitter(unsigned ms)
{
	uint8_t r;

	braid_os->random(&r, sizeof(r));
	return ms * MS * (192 + r / 2u) / 256;
}

/* How long to wait after a failed dial, in ns. */
static uint64_t back_off(unsigned *wait_ms, const struct braid_conn *c, int err)
{
	unsigned most = WAIT_MAX_MS;

	if (err == -ETIMEDOUT && c && c->state == BRAID_CONN_CONNECT)
		return jitter(WAIT_MIN_MS);	/* the attempt took its time already */
	if (err == -ETIMEDOUT)
		most = WAIT_UNANSWERED_MS;
	*wait_ms = *wait_ms ? *wait_ms * 2 : WAIT_MIN_MS;
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

/* Avoid a path for a while.  Lanes that have another one may dial it at once. */
static void path_fails(struct braid_link *link, unsigned path, uint64_t now)
{
	braid_path_bad(link, path, now);
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (braid_path_for(link, i, now) != path)
			link->lane[i]->dial_at_ns = 0;
	}
}

/* Record how a dial, or a request that the peer dial, ended. */
static void note(struct braid_link *link, const struct braid_conn *c, int err, uint64_t now)
{
	bool spent = !c || braid_path_dialled(link, c, err, now);

	if ((err == -ENOMEM || err == -EMFILE || err == -ENFILE) &&
	    braid_log_gate_open(&gate_local, now))
		braid_warn("device %s, peer %s: the connection was lost and can't be dialled "
			   "again: %s; trying on%s "
			   "[no-redial]", link->key.dev->net.name, link->peer,
			   strerror(-err), err == -EMFILE ? ". Raise the limit: ulimit -n" : "");
	if (is_refusal(c, err) && spent)
		link->recover.refused = true;
	link->recover.unanswered = err == -ETIMEDOUT && c && c->state != BRAID_CONN_CONNECT;
	if (c && err && !is_refusal(c, err) && spent)
		path_fails(link, c->path, now);
}

void braid_recover_dialled(struct braid_lane *lane, const struct braid_conn *c, int err,
			   uint64_t now)
{
	struct braid_link *link = lane->link;

	if (err == -EALREADY)
		return;
	if (err)
		lane->dial_at_ns = now + back_off(&lane->dial_wait_ms, c, err);
	note(link, c, err, now);
	if (err) {
		braid_event(BRAID_EVENT_LANE_DIALLED, link->number, lane->index, err,
			    c ? (int64_t)c->path : -1);
		return;
	}
	braid_path_good(link, c->path, now);
	lane->dial_wait_ms = 0;
	lane->dial_at_ns = 0;
	link->recover.refused = false;
	link->recover.heard_ns = now;
}

void braid_recover_asked(struct braid_link *link, const struct braid_conn *c, int err, uint64_t now)
{
	note(link, c, err, now);
	link->recover.probe_ns = now + (err ? back_off(&link->recover.probe_wait_ms, c, err) :
					   jitter(WAIT_MAX_MS));
}

bool braid_recover_again(const struct braid_lane *lane, uint64_t now)
{
	return braid_since(lane->resumed_ns, now) <= CALM_MS * MS;
}

void braid_recover_resumed(struct braid_lane *lane, uint64_t now)
{
	if (!braid_recover_again(lane, now))
		lane->patience_ms = SUSPECT_MS;
	else if (lane->patience_ms < SUSPECT_MAX_MS)
		lane->patience_ms *= 2;
	lane->resumed_ns = now;
}

/* Does a plain socket carry the lane although its path supports a better transport? */
static bool is_poor(const struct braid_lane *lane, unsigned path, uint64_t now)
{
	const struct braid_link *link = lane->link;
	const struct braid_dev *dev = link->path[path].dev;

	if (!link->path[path].better || lane->tr->blob ||
	    now < link->path[path].plain_until_ns || !dev->best->usable(dev))
		return false;
	/* The first such lane of a path tries alone; the others follow once it has succeeded. */
	for (unsigned i = 0; i < link->nlanes; i++) {
		const struct braid_lane *k = link->lane[i];

		if (k != lane && k->path == path && i < lane->index && !k->tr->blob)
			return false;
	}
	return true;
}

bool braid_recover_wants(const struct braid_lane *lane, unsigned path)
{
	return !braid_lane_up(lane) || lane->suspect_ns || lane->path != path ||
	       is_poor(lane, path, braid_os->now_ns());
}

void braid_recover_wanted(struct braid_link *link, unsigned index, uint16_t epoch)
{
	const struct braid_lane *lane = index < link->nlanes ? link->lane[index] : NULL;

	/* The request crossed with our last dial: the lane is newer than the one it names. */
	if (lane && braid_lane_up(lane) && (int16_t)(lane->epoch - epoch) > 0)
		return;
	braid_lock_wait(&link->lock);
	for (unsigned i = 0; i < link->nlanes; i++) {
		braid_lane_lost(link->lane[i], -ECONNRESET);
		link->lane[i]->dial_at_ns = 0;
	}
	braid_unlock(&link->lock);
}

/* The end that dialled the link dials its lanes. */
static void dial(struct braid_link *link, uint64_t now)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];
		unsigned path = braid_path_for(link, i, now);
		bool astray;
		int err;

		if (lane->carrier_failed && lane->fd < 0) {
			braid_path_plain(link, lane->path, true, 0, now);
			lane->carrier_failed = false;
		}
		astray = lane->path != path || is_poor(lane, path, now);
		if (lane->conn || lane->stopping || now < lane->dial_at_ns ||
		    (is_well(lane, now) && !astray))
			continue;
		if (braid_lane_up(lane) && lane != braid_link_home(link) && !astray)
			continue;		/* home first; then both ends close this one */
		err = braid_dial_lane(link, lane, now);
		if (err)
			braid_recover_dialled(lane, NULL, err, now);
	}
}

/* The accepting end asks the dialler to dial: it may not have noticed the loss, or be dead. */
static void ask(struct braid_link *link, uint64_t now)
{
	int err;

	/* A lane that looks well may only be idle, and as dead as home is. */
	if (is_well(braid_link_home(link), now) ||
	    (any_well(link, now) && silence(link, now) < GIVE_UP_MS * MS))
		return;
	if (link->conn || !link->path[0].to.port || now < link->recover.probe_ns)
		return;
	err = braid_dial_ask(link, now);
	if (err)
		braid_recover_asked(link, NULL, err, now);
}

/* --- how the lanes are --------------------------------------------------------------------- */

static void shut_lost(struct braid_link *link, uint64_t now)
{
	if (braid_lane_up(braid_link_home(link)))
		link->recover.probe_ns = 0;	/* if home is lost again, ask at once */
	if (!link->ndown) {
		link->recover.down_ns = 0;
		link->recover.probe_wait_ms = 0;
		return;
	}
	braid_link_move(link);			/* finds other lanes that have ended */
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		if (!braid_lane_up(lane) && !braid_lane_unread(lane) && lane->fd >= 0)
			braid_lane_shut(lane);
	}
	braid_link_rehome(link);
	braid_link_try_flush_control(link);
	if (link->ndown < link->nlanes) {
		link->recover.down_ns = 0;
	} else if (!link->recover.down_ns) {
		link->recover.down_ns = now;
	}
}

/*
 * Detect a path MTU that is too small.  A connection died before one full-size packet was
 * acknowledged, though its handshake came through; the next one, with small segments, carries more.
 */
static void look_for_mtu(struct braid_lane *lane, const struct braid_health *h, bool suspect)
{
	struct braid_link *link = lane->link;
	bool small = h->segment <= BRAID_SMALL_SEGMENT;

	if (link->recover.told_mtu || !h->segment)
		return;
	if (suspect) {
		if (!small && h->acked < h->segment)
			lane->lost_size = h->segment;
	} else if (lane->lost_size && h->acked > 2 * lane->lost_size) {
		if (small) {
			link->recover.told_mtu = true;
			braid_why_mtu(link, lane->lost_size);
		}
		lane->lost_size = 0;
	}
}

static void lane_well(struct braid_lane *lane, uint64_t now)
{
	if (is_suspect(lane, now))
		braid_event(BRAID_EVENT_LANE_WELL, lane->link->number, lane->index,
			    (int64_t)(braid_since(lane->suspect_ns, now) / MS), 0);
	lane->suspect_ns = 0;
}

static void lane_suspect(struct braid_lane *lane, const struct braid_health *h, uint64_t now)
{
	braid_event(BRAID_EVENT_LANE_SUSPECT, lane->link->number, lane->index, h->resent,
		    h->rtt_ms);
	lane->suspect_ns = now;
	look_for_mtu(lane, h, true);
}

/* True if some lane has unacknowledged bytes. */
static bool look_at_health(struct braid_link *link, uint64_t now)
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
		lane->rtt_ms = h.rtt_ms;
		if (!h.resent)
			look_for_mtu(lane, &h, false);
		if (!h.unacked || !h.resent)
			lane_well(lane, now);
		else if (!lane->suspect_ns)
			lane_suspect(lane, &h, now);
		else if (link->dialler && is_suspect(lane, now) &&
			 lane->path == braid_path_for(link, i, now))
			path_fails(link, lane->path, now);
	}
	/* Give suspect lanes up, so that what they hold can go over the others at once. */
	for (unsigned i = 0; i < link->nlanes && any_well(link, now); i++) {
		if (!is_suspect(link->lane[i], now))
			continue;
		braid_lock_wait(&link->lock);
		braid_lane_lost(link->lane[i], -ETIMEDOUT);
		braid_unlock(&link->lock);
	}
	return under_way;
}

void braid_recover_port(struct braid_link *link)
{
	const struct braid_dev *dev = link->key.dev;

	for (unsigned i = 0; i < link->nlanes; i++) {
		const struct braid_lane *lane = link->lane[i];

		if (braid_lane_up(lane) && lane->tr->blob &&
		    !lane->tr->usable(dev->member[lane->member]))
			link->recover.health_ns = 0;
	}
}

/* --- is the peer there? -------------------------------------------------------------------- */

static void hear(struct braid_link *link, uint64_t now)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < link->nlanes; i++)
		bytes += atomic_load_explicit(&link->lane[i]->rx_bytes, memory_order_relaxed);
	if (bytes == link->recover.bytes)
		return;
	link->recover.bytes = bytes;
	if (link->recover.silent) {
		braid_event(BRAID_EVENT_HEARD, link->number, BRAID_FLIGHT_NONE,
			    (int64_t)(silence(link, now) / MS), 0);
		braid_info("device %s, peer %s: heard again after %llu s", link->key.dev->net.name,
			   link->peer, (unsigned long long)seconds(silence(link, now)));
	}
	link->recover.heard_ns = now;
	link->recover.silent = false;
}

static void tell_silence(struct braid_link *link, uint64_t now)
{
	const struct braid_lane *home = braid_link_home(link);
	bool answers = braid_lane_up(home) ? !home->suspect_ns : link->recover.unanswered;
	char how[BRAID_WHY_STOPPED];

	braid_event(BRAID_EVENT_SILENT, link->number, BRAID_FLIGHT_NONE,
		    (int64_t)(silence(link, now) / MS), 0);
	link->recover.silent = true;
	braid_warn("device %s, peer %s: not a word for %llu s, %s; giving up after %lld s "
		   "(BRAID_PEER_TIMEOUT) [peer-silent]",
		   link->key.dev->net.name, link->peer,
		   (unsigned long long)seconds(silence(link, now)),
		   answers ? braid_why_stopped(link, how) :
			     "and nothing that we send is acknowledged: the path to that host, or "
			     "the host, is down; trying to reconnect",
		   (long long)braid_param.peer_timeout);
}

/*
 * True if every comm left waits only for the peer's goodbye, and the peer has acknowledged ours,
 * and so all that was sent before it.
 */
static bool nobody_needs(struct braid_link *link)
{
	bool needed;
	struct braid_comm *c;

	braid_lock_wait(&link->lock);
	needed = !braid_txq_idle(&braid_link_home(link)->tx);
	braid_list_for(c, &link->comms, node)
		needed |= !c->closed;
	braid_unlock(&link->lock);
	return !needed;
}

/* True if the link is over.  The peer counts as gone only after all that it sent has been read. */
static bool is_over(struct braid_link *link, uint64_t now)
{
	uint64_t silent = silence(link, now);
	/* A lane that looks well proves nothing if it is idle: it may be as dead as home is. */
	bool unread = any_unread(link);
	bool gone = !unread && link->recover.refused &&
		    (!any_well(link, now) || (!is_well(braid_link_home(link), now) &&
					      silent >= SUSPECT_MS * MS));
	bool lost = !unread && link->recover.down_ns &&
		    braid_since(link->recover.down_ns, now) >= GIVE_UP_MS * MS;
	char how[BRAID_WHY_STOPPED];

	if (gone)
		braid_link_fail(link, -EREMOTEIO,
				"the connection was lost, and another one is refused: the peer's "
				"process has ended or was killed, unless a firewall came in "
				"between; look for the first error in that rank's log "
				"[peer-ended]");
	else if (lost && !link->dialler && !link->path[0].to.port)
		braid_link_fail(link, -EREMOTEIO,
				"the connection was lost, and the peer, which alone can, does not "
				"dial another: its process has ended or was killed, or its host or "
				"the path is down [peer-ended]");
	else if (lost && nobody_needs(link))
		braid_link_fail(link, -ENOTCONN, "the connection was lost, and nobody needs it "
				"[link-closed]");
	else if (silent >= (uint64_t)braid_param.peer_timeout * SEC)
		braid_link_fail(link, -EREMOTEIO,
				"not a word for %llu s (BRAID_PEER_TIMEOUT): %s [peer-lost]",
				(unsigned long long)seconds(silent),
				any_well(link, now) || link->recover.unanswered ?
					braid_why_stopped(link, how) :
					"the path to that host, or the host, is down");
	else
		return false;
	return true;
}

/* Send ALIVE if nothing was sent for a while, so that the peer does not take us for dead. */
static void say(struct braid_link *link, uint64_t now)
{
	struct braid_hdr h = { .type = BRAID_F_ALIVE };
	const struct braid_txq *q = &braid_link_home(link)->tx;
	uint64_t quiet, silent = silence(link, now);
	bool waits = !atomic_load(&link->watched);

	if (!braid_trylock(&link->lock))
		return;
	if (q->f_head != link->recover.said)
		link->recover.said_ns = now;
	quiet = braid_since(link->recover.said_ns, now);
	if (!q->unsent && braid_lane_up(braid_link_home(link)) &&
	    (quiet >= SAY_MS * MS ||
	     (waits && quiet >= SAY_SOON_MS * MS &&
	      (silent >= SAY_SOON_MS * MS || link->npaths > 1))) &&
	    braid_link_ctl(link, &h, NULL)) {
		braid_link_flush(link);
		link->recover.said_ns = now;
	}
	link->recover.said = q->f_head;
	braid_unlock(&link->lock);
}

static void note_stall(struct braid_link *link, uint64_t ms, uint64_t size)
{
	braid_event(BRAID_EVENT_STALL, link->number, BRAID_FLIGHT_NONE, (int64_t)ms, (int64_t)size);
	atomic_fetch_add(&link->recover.stalls, 1);
	atomic_fetch_add(&link->key.dev->stalls, 1);
}

/* Warn of a message that has waited long for a live peer, and name the end that is late. */
static void look_for_stalls(struct braid_link *link, uint64_t now)
{
	uint64_t limit = (uint64_t)braid_param.stall_warn * SEC;
	bool late = false, tell;
	struct braid_comm *c;

	if (!limit || !braid_trylock(&link->lock))
		return;			/* a caller moves the link: at the next tick */
	link->recover.stall_ns = now;
	braid_list_for(c, &link->comms, node) {
		struct braid_waiting w = { 0 };

		if (!braid_comm_waits(c, &w) || w.seq != c->stall_seq || !c->stall_ns) {
			c->stall_ns = w.any ? now : 0;
			c->stall_seq = w.seq;
			continue;
		}
		if (braid_since(c->stall_ns, now) < limit)
			continue;
		if (!late && !link->recover.late) {
			braid_warn("device %s, peer %s: a %s (tag %d, %llu bytes) has waited for "
				   "%llu s; the peer was heard %llu ms ago and %s: that rank is "
				   "late, the network is fine. See braid dump %u "
				   "[peer-late]",
				   link->key.dev->net.name, link->peer,
				   c->sender ? "send" : "receive", w.tag,
				   (unsigned long long)w.size,
				   (unsigned long long)seconds(braid_since(c->stall_ns, now)),
				   (unsigned long long)(silence(link, now) / MS),
				   c->sender ? "has not posted its receive" : "has not sent it",
				   braid_self.pid);
			note_stall(link, braid_since(c->stall_ns, now) / MS, w.size);
		}
		late = true;
	}
	tell = late && !link->recover.late;
	if (!late && link->recover.late)
		braid_event(BRAID_EVENT_STALL_OVER, link->number, BRAID_FLIGHT_NONE, 0, 0);
	link->recover.late = late;
	braid_unlock(&link->lock);
	if (tell)
		braid_stat_dump();
}

/* --- all of it ----------------------------------------------------------------------------- */

void braid_recover_start(struct braid_link *link, uint64_t now)
{
	link->recover.heard_ns = link->recover.said_ns = link->recover.looked_ns = now;
}

/* Milliseconds until the next tick is due. */
static int next_look(const struct braid_link *link, bool under_way, uint64_t now)
{
	uint64_t quiet = braid_since(link->recover.said_ns, now) / MS;

	if (link->ndown)
		return WAIT_MIN_MS;
	if (under_way)
		return HEALTH_MS;
	return quiet < SAY_MS ? (int)(SAY_MS - quiet) : HEALTH_MS;
}

int braid_recover_tick(struct braid_link *link, uint64_t now)
{
	uint64_t asleep = braid_since(link->recover.looked_ns, now), silent = silence(link, now);
	bool under_way = true;

	link->recover.looked_ns = now;
	if (asleep > ASLEEP_MS * MS)		/* our own sleep is no silence of the peer */
		link->recover.heard_ns = now - (silent > asleep ? silent - asleep : 0);
	shut_lost(link, now);
	if (!link->ncomms) {			/* no comm: silence means nothing */
		link->recover.heard_ns = now;
		/* An accepted link may wait for its first comm, which comes over a new socket. */
		if (link->ndown && (link->dialler || link->used))
			braid_link_fail(link, -ENOTCONN, "the idle link was lost [link-closed]");
		return -1;
	}
	hear(link, now);
	if (braid_since(link->recover.health_ns, now) >= HEALTH_MS * MS) {
		link->recover.health_ns = now;
		under_way = look_at_health(link, now);
	}
	if (link->dialler)
		dial(link, now);
	else
		ask(link, now);
	if (is_over(link, now))
		return -1;
	if (!link->recover.silent && silence(link, now) >= SILENT_MS * MS)
		tell_silence(link, now);
	if (!link->recover.silent && braid_since(link->recover.stall_ns, now) >= STALL_MS * MS)
		look_for_stalls(link, now);
	say(link, now);
	return next_look(link, under_way, now);
}
