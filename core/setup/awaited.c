/* SPDX-License-Identifier: BSD-3-Clause */
/* awaited.c - see awaited.h. */
#include "core/setup/awaited.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/link/link.h"
#include "core/setup/conn.h"
#include "core/setup/handshake.h"
#include "core/setup/links.h"
#include "core/setup/stopped.h"
#include "core/transport.h"

enum {
	AGAIN = 6,			/* BRAID_STALL_WARNs between two WARNs */
	GATED_MS = 1000,		/* until the next try, if another listen wrote one */
};

static struct braid_log_gate gate;

/* Write which step of its handshake the peer has not taken yet. */
static void missing(const struct braid_conn *c, char *ret, size_t len)
{
	const char *tr = c->tr ? c->tr->name : "tcp";

	switch (c->state) {
	case BRAID_CONN_TX_ANSWER:
		snprintf(ret, len, "does not read our answer");
		break;
	case BRAID_CONN_RX_PROOF:
		snprintf(ret, len, "has not answered our answer");
		break;
	case BRAID_CONN_RX_ASKED:
		snprintf(ret, len, "has not begun to set up %s", tr);
		break;
	case BRAID_CONN_RX_READY:
		snprintf(ret, len, "does not report that it is ready for %s", tr);
		break;
	default:
		snprintf(ret, len, "waits for %s of this host", tr);
		break;
	}
}

static void who_came(const struct braid_conn *c, char *ret, size_t len)
{
	snprintf(ret, len, "%s (pid %u, %s)", c->theirs.host, c->theirs.pid, c->addr);
}

void braid_awaited_came(struct braid_awaited *w, const struct braid_conn *c, int err,
			uint32_t link, uint64_t now)
{
	char what[96], how[BRAID_STOPPED_TEXT];

	w->came_ns = now;
	w->link = err ? 0 : link;
	who_came(c, w->who, sizeof(w->who));
	missing(c, what, sizeof(what));
	switch (-err) {
	case 0:
		snprintf(w->why, sizeof(w->why), "has connected, and has not asked for this "
			 "connection");
		break;
	case ETIMEDOUT:
		snprintf(w->why, sizeof(w->why), "%s within %lld s (BRAID_HANDSHAKE_TIMEOUT): %s",
			 what, (long long)braid_param.handshake_timeout,
			 braid_stopped_peer(c->theirs.host, c->theirs.pid, how));
		break;
	case ENOTCONN:
	case ECONNRESET:
	case EPIPE:
		snprintf(w->why, sizeof(w->why), "closed the connection in its handshake: it has "
			 "ended, or gave up; look for the first error in that rank's log");
		break;
	default:
		snprintf(w->why, sizeof(w->why), "failed in its handshake: %s", strerror(-err));
		break;
	}
}

bool braid_awaited_is_due(struct braid_awaited *w)
{
	uint64_t now = braid_os->now_ns(), limit = (uint64_t)braid_param.stall_warn * SEC;

	if (!w->since_ns) {
		w->since_ns = now;
		w->next_ns = now + limit;
	}
	if (!limit || now < w->next_ns)
		return false;
	if (!braid_log_gate_open(&gate, now)) {
		w->next_ns = now + GATED_MS * MS;
		return false;
	}
	w->next_ns = now + AGAIN * limit;
	return true;
}

/* A peer that is in its handshake for the listen now; NULL: none is. */
static const struct braid_conn *coming(uint64_t listen_id)
{
	const struct braid_conn *c;

	braid_svc_assert_locked();
	braid_list_for(c, &braid_handshakes, node) {
		if (!c->dialler && c->known && c->theirs.kind == BRAID_HELLO_LINK &&
		    c->theirs.ident == listen_id)
			return c;
	}
	return NULL;
}

/* Connections that have said nothing yet, or nothing whole: how many, and where one comes from. */
static unsigned silent_ones(const struct braid_dev *dev, const char **ret_from)
{
	const struct braid_conn *c;
	unsigned n = 0;

	braid_svc_assert_locked();
	braid_list_for(c, &braid_handshakes, node) {
		if (c->dialler || c->known || c->dev != dev)
			continue;
		*ret_from = c->addr;
		n++;
	}
	return n;
}

static const struct braid_link *link_of(uint32_t number)
{
	const struct braid_link *link;

	braid_svc_assert_locked();
	braid_list_for(link, &braid_svc.links, table.node) {
		if (link->number == number && atomic_load(&link->state) == BRAID_LINK_UP)
			return link;
	}
	return NULL;
}

/* Write what became of a peer that made a link: the link is lost, or its process is stopped. */
static void since_then(const struct braid_awaited *w, char *ret, size_t len)
{
	char how[BRAID_STOPPED_TEXT];
	const struct braid_link *link = link_of(w->link);
	struct braid_thread t;

	*ret = '\0';
	if (!w->link)
		return;
	if (!link) {
		snprintf(ret, len, "; that connection is lost: look for the first error in that "
			 "rank's log");
		return;
	}
	t = braid_stopped_seen(link);
	if (t.state && t.state != 'S')
		snprintf(ret, len, ": %s", braid_stopped_text(&t, link->setup.peer_pid, how));
}

void braid_awaited_report(const struct braid_awaited *w, const struct braid_dev *dev,
			  uint64_t listen_id)
{
	char who[160], what[96], how[BRAID_STOPPED_TEXT];
	unsigned long long waited = seconds(braid_since(w->since_ns, braid_os->now_ns()));
	const char *from = "";
	const struct braid_conn *c;
	unsigned n;

	braid_svc_lock();
	n = silent_ones(dev, &from);
	c = coming(listen_id);
	if (c) {
		who_came(c, who, sizeof(who));
		missing(c, what, sizeof(what));
		braid_warn("device %s, peer %s: accept() has waited for %llu s: the peer has "
			   "connected and %s: %s [accept-waits]", dev->net.name, who, waited, what,
			   braid_stopped_peer(c->theirs.host, c->theirs.pid, how));
	} else if (w->came_ns) {
		since_then(w, how, sizeof(how));
		braid_warn("device %s, peer %s: accept() has waited for %llu s: %llu s ago the "
			   "peer %s%s [accept-waits]", dev->net.name, w->who, waited,
			   (unsigned long long)seconds(braid_since(w->came_ns,
								   braid_os->now_ns())),
			   w->why, how);
	} else if (n) {
		braid_warn("device %s: accept() has waited for %llu s, and no peer has said a word "
			   "at %s, though connections are open (%u, one from %s): a process there "
			   "may be stopped or get no CPU; look for the first error in the log of "
			   "the rank that is to connect [accept-waits]", dev->net.name, waited,
			   dev->addr, n, from);
	} else {
		braid_warn("device %s: accept() has waited for %llu s, and no peer has come to %s: "
			   "the rank that is to connect is late, has failed (look for the first "
			   "error in its log), or can't reach this address (braid doctor --peer "
			   "HOST there) [accept-waits]", dev->net.name, waited, dev->addr);
	}
	braid_svc_unlock();
}
