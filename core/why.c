/* SPDX-License-Identifier: BSD-3-Clause */
/* why.c - see why.h. */
#include "core/why.h"

#include "core/link.h"
#include "core/log.h"
#include "core/os.h"

static void tell(const struct braid_comm *c, enum braid_log_level level)
{
	const struct braid_link *link = c->link;
	const char *what = c->sender ? "send" : "receive";

	if (c->why == BRAID_WHY_CLOSED)
		braid_log(level, __FILE__, __LINE__,
			  "device %s, peer %s: the peer closed this connection while a %s was "
			  "waiting for it: usually its rank called ncclCommAbort, or takes part in "
			  "fewer operations than this one [peer-closed]",
			  link->key.dev->net.name, link->peer, what);
	else
		braid_log(level, __FILE__, __LINE__,
			  "device %s, peer %s: the peer gave up this connection with a %s "
			  "unfinished: usually its rank called ncclCommAbort; if it had an error, "
			  "its log has a warning before that [peer-gave-up]",
			  link->key.dev->net.name, link->peer, what);
}

void braid_why_ended(const struct braid_comm *c)
{
	if (braid_log_gate_open(&c->link->ended, braid_os->now_ns()))
		tell(c, BRAID_LOG_INFO);
}

void braid_why_reported(const struct braid_comm *c)
{
	if (c->why && braid_log_gate_open(&c->link->reported, braid_os->now_ns()))
		tell(c, BRAID_LOG_WARN);
}

void braid_why_giving_up(const struct braid_comm *c, const char *how)
{
	if (braid_log_gate_open(&c->link->given_up, braid_os->now_ns()))
		braid_info("device %s, peer %s: %s with a %s unfinished, as ncclCommAbort does: "
			   "the peer is told that this end gave it up",
			   c->link->key.dev->net.name, c->link->peer, how,
			   c->sender ? "send" : "receive");
}
