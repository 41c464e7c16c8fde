/* SPDX-License-Identifier: BSD-3-Clause */
/* cross.c - see cross.h. */
#include "core/setup/cross.h"

#include <string.h>

#include "core/base/self.h"
#include "core/base/units.h"
#include "core/link/link.h"
#include "core/setup/conn.h"
#include "core/setup/handshake.h"
#include "core/setup/links.h"

enum {
	AGAIN_MS = 500,			/* until the refused end dials again */
	GIVE_WAY_MS = 900,		/* until our unanswered dial gives way, from a refusal */
	RECENT_MS = 1500,
	TURN_MS = 2000,			/* how long to wait for the peer's dial before we dial */
};

static void wait_for_peers_dial(struct braid_link *link, uint64_t until)
{
	atomic_store(&link->state, BRAID_LINK_WAITING);
	link->dial.at_ns = until;
}

bool braid_cross_refuse(struct braid_link *link, uint64_t now)
{
	struct braid_conn *own = link->dial.conn;

	braid_svc_assert_locked();
	if (!link->dialler || atomic_load(&link->state) != BRAID_LINK_DIALING ||
	    memcmp(link->key.process, braid_self.process, BRAID_ID_SIZE) < 0)
		return false;
	if (own && own->state > BRAID_CONN_CONNECT) {
		if (!link->dial.crossed_ns)
			link->dial.crossed_ns = now;
		if (own->known || now < link->dial.crossed_ns + GIVE_WAY_MS * MS)
			return true;
	}
	/* The peer can't have our proof yet, so our dial has made no link there. */
	if (own)
		braid_handshake_end(own);
	wait_for_peers_dial(link, now + TURN_MS * MS);
	return false;
}

bool braid_cross_is_recent(const struct braid_link *link, uint64_t now)
{
	braid_svc_assert_locked();
	return link->dial.crossed_ns && now < link->dial.crossed_ns + RECENT_MS * MS;
}

void braid_cross_refused(struct braid_link *link, uint64_t now)
{
	braid_svc_assert_locked();
	wait_for_peers_dial(link, now + AGAIN_MS * MS);
}
