/* SPDX-License-Identifier: BSD-3-Clause */
/* stall.c - see stall.h. */
#include "core/setup/stall.h"

#include <errno.h>

#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/self.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/link/link.h"
#include "core/msg/comm.h"
#include "core/msg/comms.h"
#include "core/setup/links.h"
#include "core/setup/service.h"
#include "core/setup/share.h"
#include "core/setup/silence.h"

enum {
	STALL_MS = 1000,		/* between checks for messages that wait for a live peer */
	LIVE_MS = 1500,			/* a live peer is heard each second: is this one silent? */
};

static void note_stall(struct braid_link *link, uint64_t ms, uint64_t size)
{
	braid_event(BRAID_EVENT_STALL, link->number, BRAID_FLIGHT_NONE, (int64_t)ms, (int64_t)size);
	atomic_fetch_add(&link->recover.stalls, 1);
	atomic_fetch_add(&link->key.dev->stalls, 1);
}

void braid_stall_check(struct braid_link *link, uint64_t now)
{
	uint64_t limit = (uint64_t)braid_param.stall_warn * SEC;
	uint64_t live = limit < LIVE_MS * MS ? limit : LIVE_MS * MS;
	bool late = false, report;
	char share[BRAID_SHARE_TEXT];
	struct braid_comm *c;

	braid_svc_assert_locked();
	if (!limit || link->recover.silent || braid_silence(link, now) >= live ||
	    braid_since(link->recover.stall_ns, now) < STALL_MS * MS || !braid_trylock(&link->lock))
		return;			/* a caller may hold the lock: look at the next tick */
	link->recover.stall_ns = now;
	braid_list_for(c, braid_comms(link), node) {
		struct braid_waiting w;

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
				   "late, the network is fine%s. See braid dump %u "
				   "[peer-late]",
				   link->key.dev->net.name, link->peer,
				   w.what ? w.what : c->sender ? "send" : "receive", w.tag,
				   (unsigned long long)w.size,
				   (unsigned long long)seconds(braid_since(c->stall_ns, now)),
				   (unsigned long long)(braid_silence(link, now) / MS),
				   w.why ? w.why : c->sender ? "has not posted its receive" :
							       "has not sent it",
				   braid_share_text(link, share), braid_self.pid);
			note_stall(link, braid_since(c->stall_ns, now) / MS, w.size);
		}
		late = true;
	}
	report = late && !link->recover.late;
	if (!late && link->recover.late)
		braid_event(BRAID_EVENT_STALL_OVER, link->number, BRAID_FLIGHT_NONE, 0, 0);
	link->recover.late = late;
	braid_unlock(&link->lock);
	if (report && braid_service_hooks.stalled)
		braid_service_hooks.stalled();
}

bool braid_stall_is_late(const struct braid_link *link)
{
	return atomic_load(&link->recover.late);
}

unsigned braid_stall_count(const struct braid_link *link)
{
	return atomic_load(&link->recover.stalls);
}
