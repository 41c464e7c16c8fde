/* SPDX-License-Identifier: BSD-3-Clause */
/* silence.c - see silence.h. */
#include "core/setup/silence.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/units.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/link/txq.h"
#include "core/msg/comm.h"
#include "core/msg/comms.h"
#include "core/proto/frame.h"
#include "core/setup/health.h"
#include "core/setup/links.h"
#include "core/setup/path.h"
#include "core/setup/redial.h"
#include "core/setup/share.h"
#include "core/setup/stopped.h"
#include "topo/netdev.h"

enum {
	ALIVE_MS = 1000,		/* send ALIVE after sending nothing for so long */
	ALIVE_SOON_MS = 250,		/* the same while a caller waits and nothing arrives */
	ALIVE_ANYWAY_MS = 4000,		/* send ALIVE so often: it tells the peer our CPU time */
	SILENT_MS = 3000,		/* log a WARN after receiving nothing for so long */
	AGAIN_S = 60, AGAIN_MAX_S = 960,	/* until the next WARN; doubled each time */
	GIVE_UP_MS = 500,		/* all lanes lost, and no redial possible or needed */
	LINKS_A_SECOND = 100,		/* at rest that send ALIVE; more links: each less often */
	TIMEOUT_PART = 4,		/* at most this part of BRAID_PEER_TIMEOUT */
	TRIM_FRAMES = 128,		/* after so many, a link at rest gives memory back */
};

void braid_silence_start(struct braid_link *link, uint64_t now)
{
	braid_svc_assert_locked();
	link->recover.received_ns = link->recover.sent_ns = link->recover.alive_ns = now;
	link->recover.ticked_ns = now;
}

uint64_t braid_silence(const struct braid_link *link, uint64_t now)
{
	return braid_since(link->recover.received_ns, now);
}

static bool any_unread(const struct braid_link *link)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (braid_lane_unread(link->lane[i]))
			return true;
	}
	return false;
}

void braid_silence_update(struct braid_link *link, uint64_t now)
{
	uint64_t bytes = 0;

	braid_svc_assert_locked();
	for (unsigned i = 0; i < link->nlanes; i++)
		bytes += atomic_load_explicit(&link->lane[i]->rx_bytes, memory_order_relaxed);
	if (bytes == link->recover.bytes)
		return;
	link->recover.bytes = bytes;
	if (link->recover.silent) {
		braid_event(BRAID_EVENT_HEARD, link->number, BRAID_FLIGHT_NONE,
			    (int64_t)(braid_silence(link, now) / MS), 0);
		braid_info("device %s, peer %s: heard again after %llu s", link->key.dev->net.name,
			   link->peer, (unsigned long long)seconds(braid_silence(link, now)));
		braid_share_heard(link, braid_silence(link, now) / MS, now);
	}
	link->recover.received_ns = now;
	link->recover.silent = link->recover.moved = false;
}

/* The seconds between signs of life that this end wants at rest: core/proto/frame.h. */
static unsigned rest_wanted(void)
{
	unsigned s = braid_links_count() / LINKS_A_SECOND;
	unsigned most = (unsigned)braid_param.peer_timeout / TIMEOUT_PART;

	if (most > BRAID_ALIVE_REST_S)
		most = BRAID_ALIVE_REST_S;
	s = s < most ? s : most;
	return s ? s : 1;
}

/* Seconds between two signs of life: 1 unless both ends are at rest. */
static unsigned rest_s(const struct braid_link *link)
{
	unsigned theirs = braid_link_peer_rest(link);

	if (!theirs || !link->recover.rest_s)
		return 1;
	return theirs > link->recover.rest_s ? theirs : link->recover.rest_s;
}

/* A caller waits: this end wants a sign of life each second, and asks for it by ALIVE. */
static void rest_over(struct braid_link *link, uint64_t now)
{
	if (!link->recover.rest_s)
		return;
	link->recover.rest_s = 0;
	if (link->recover.asked_ns <= link->recover.received_ns)
		link->recover.asked_ns = now;
}

/* How long the peer has been silent, or has not answered, as if ALIVE were due each second: ns. */
static uint64_t scaled_silence(const struct braid_link *link, uint64_t now)
{
	uint64_t since = link->recover.received_ns;

	if (link->recover.asked_ns > since)
		since = link->recover.asked_ns;
	return braid_since(since, now) / rest_s(link);
}

/* Is a WARN due?  The later ones are few: one a minute at most, of all links together. */
static bool is_report_due(struct braid_link *link, uint64_t now)
{
	static uint64_t again_ns;	/* when some link was last reported again */
	unsigned *wait_s = &link->recover.silent_s;
	bool first = !link->recover.silent;

	if (first ? scaled_silence(link, now) < SILENT_MS * MS :
		    now < link->recover.warned_ns + *wait_s * SEC ||
		    braid_since(again_ns, now) < AGAIN_S * SEC)
		return false;
	*wait_s = first ? AGAIN_S : *wait_s < AGAIN_MAX_S ? *wait_s * 2 : AGAIN_MAX_S;
	if (!first)
		again_ns = now;
	link->recover.warned_ns = now;
	link->recover.silent = true;
	return true;
}

/* Neither end gets a connection through to the other. */
static const char *why_no_lane(const struct braid_link *link, char ret[BRAID_STOPPED_TEXT])
{
	char to[64];

	braid_path_text(link, braid_link_home(link)->recover.path, to, sizeof(to));
	snprintf(ret, BRAID_STOPPED_TEXT, "our connections to %s fail (%s), and none of the peer's "
		 "has come: the path, or that host, is down, or a firewall is in between", to,
		 strerror(-link->recover.dial_err));
	return ret;
}

/*
 * Why the peer is silent, whose host answers or does not.  Over a blind transport a lane that is
 * up proves neither.
 */
static const char *why_silent(const struct braid_link *link, bool answers,
			      char ret[BRAID_STOPPED_TEXT])
{
	const struct braid_lane *home = braid_link_home(link);
	struct braid_thread t = braid_stopped_seen(link);
	const char *nic = link->setup.path[home->recover.path].dev->net.name;

	if (answers && !t.state && braid_lane_up(home) && home->tr->blind) {
		snprintf(ret, BRAID_STOPPED_TEXT, "%s does not tell whether its host acknowledges "
			 "what we send: its process may be stopped, or the path to it or the host "
			 "be down; on its host ps -L -o stat,wchan,comm -p PID tells T, stopped, "
			 "from R, no CPU", home->tr->name);
		return ret;
	}
	if (answers || t.state == 'T' || t.state == 't' || t.state == BRAID_THREAD_FROZEN)
		return braid_stopped_text(&t, link->setup.peer_pid, ret);
	if (braid_netdev_is_down(nic)) {
		snprintf(ret, BRAID_STOPPED_TEXT, "%s of this host is down, or has no carrier: ip "
			 "link show %s", nic, nic);
		return ret;
	}
	if (link->recover.hung_up && !braid_lane_up(braid_link_home(link)))
		return "its host takes connections, which are closed at once: that process has no "
		       "memory or no descriptors left, or is ending; its own log says which";
	if (link->recover.moved)
		return "this host's address has changed since: if the peer's has, too, neither end "
		       "knows where the other is; else the path to that host, or the host, is down";
	if (link->recover.dial_err && !braid_lane_up(braid_link_home(link)))
		return why_no_lane(link, ret);
	return "nothing that we send is acknowledged: the path to that host, or the host, is down";
}

void braid_silence_report(struct braid_link *link, uint64_t now)
{
	const struct braid_lane *home = braid_link_home(link);
	bool answers = braid_lane_up(home) ? !braid_lane_suspect_ns(home) :
					     link->recover.unanswered;
	char how[BRAID_STOPPED_TEXT];

	braid_svc_assert_locked();
	if (!is_report_due(link, now))
		return;
	braid_event(BRAID_EVENT_SILENT, link->number, BRAID_FLIGHT_NONE,
		    (int64_t)(braid_silence(link, now) / MS), 0);
	braid_warn("device %s, peer %s: not a word for %llu s: %s%s; giving up after %lld s "
		   "(BRAID_PEER_TIMEOUT) [peer-silent]",
		   link->key.dev->net.name, link->peer,
		   (unsigned long long)seconds(braid_silence(link, now)),
		   why_silent(link, answers, how), answers ? "" : "; trying to reconnect",
		   (long long)braid_param.peer_timeout);
}

bool braid_silence_is_reported(const struct braid_link *link)
{
	return atomic_load(&link->recover.silent);
}

/*
 * True if every comm left waits only for the peer's BYE, and the peer has acknowledged all that we
 * sent, our own BYEs included.
 */
static bool is_needless(struct braid_link *link)
{
	bool needed;
	struct braid_comm *c;

	braid_lock_wait(&link->lock);
	needed = !braid_txq_idle(&braid_link_home(link)->tx);
	braid_list_for(c, braid_comms(link), node)
		needed |= !c->closed;
	braid_unlock(&link->lock);
	return !needed;
}

/* True if the link is over.  The peer counts as gone only after all that it sent has been read. */
bool braid_silence_is_over(struct braid_link *link, uint64_t now)
{
	uint64_t silent = braid_silence(link, now);
	/* An idle lane that looks well proves nothing: it may be as dead as home is. */
	bool unread = any_unread(link);
	bool gone = !unread && link->recover.refused &&
		    (!braid_health_any_well(link, now) ||
		     (!braid_health_well(braid_link_home(link), now) &&
					      silent >= BRAID_SUSPECT_MS * MS));
	bool lost = !unread && link->recover.down_ns &&
		    braid_since(link->recover.down_ns, now) >= GIVE_UP_MS * MS;
	char how[BRAID_STOPPED_TEXT];

	braid_svc_assert_locked();
	if (gone)
		braid_link_fail(link, -EREMOTEIO,
				"the connection was lost, and another one is refused: the peer's "
				"process has ended or was killed, unless a firewall came in "
				"between; look for the first error in that rank's log "
				"[peer-ended]");
	else if (lost && !link->dialler && !link->setup.path[0].to.port)
		braid_link_fail(link, -EREMOTEIO,
				"the connection was lost, and the peer, which alone can, does not "
				"dial another: its process has ended or was killed, or its host or "
				"the path is down [peer-ended]");
	else if (lost && is_needless(link))
		braid_link_fail(link, -ENOTCONN, "the connection was lost, and nobody needs it "
				"[link-closed]");
	else if (silent >= (uint64_t)braid_param.peer_timeout * SEC &&
		 scaled_silence(link, now) >= SILENT_MS * MS)
		braid_link_fail(link, -EREMOTEIO,
				"not a word for %llu s (BRAID_PEER_TIMEOUT): %s [peer-lost]",
				(unsigned long long)seconds(silent),
				why_silent(link, braid_health_any_well(link, now) ||
						 link->recover.unanswered, how));
	else
		return false;
	return true;
}

void braid_silence_send_alive(struct braid_link *link, uint64_t now)
{
	struct braid_hdr h = { .type = BRAID_F_ALIVE };
	const struct braid_txq *q = &braid_link_home(link)->tx;
	uint64_t quiet, silent = braid_silence(link, now);
	bool waits = !braid_link_is_watched(link), due;

	braid_svc_assert_locked();
	if (waits)
		rest_over(link, now);
	if (!braid_trylock(&link->lock))
		return;
	if (q->f_head != link->recover.sent)
		link->recover.sent_ns = now;
	quiet = braid_since(link->recover.sent_ns, now);
	braid_share_announce(&h);
	h.n = waits ? 0 : (uint16_t)rest_wanted();
	due = quiet >= ALIVE_MS * MS * rest_s(link) || link->recover.slept ||
	      braid_since(link->recover.alive_ns, now) >= ALIVE_ANYWAY_MS * MS * rest_s(link) ||
	      (waits && quiet >= ALIVE_SOON_MS * MS &&
	       (silent >= ALIVE_SOON_MS * MS || link->npaths > 1));
	if (due && !q->unsent && braid_lane_up(braid_link_home(link)) &&
	    braid_link_ctl(link, &h, NULL)) {
		braid_link_flush(link);
		link->recover.sent_ns = link->recover.alive_ns = now;
		link->recover.rest_s = h.n;
		link->recover.slept = false;
	}
	if (q->f_head / TRIM_FRAMES != link->recover.sent / TRIM_FRAMES)
		link->tick.used_ns = now;
	link->recover.sent = q->f_head;
	braid_unlock(&link->lock);
}

unsigned braid_silence_alive_ms(const struct braid_link *link, uint64_t now)
{
	uint64_t quiet = braid_since(link->recover.sent_ns, now) / MS;
	unsigned wait = ALIVE_MS * rest_s(link);

	return quiet < wait ? (unsigned)(wait - quiet) : BRAID_HEALTH_MS;
}
