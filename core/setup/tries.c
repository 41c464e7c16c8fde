/* SPDX-License-Identifier: BSD-3-Clause */
/* tries.c - see tries.h. */
#include "core/setup/tries.h"

#include "core/base/log.h"
#include "core/base/param.h"
#include "core/base/units.h"
#include "core/link/link.h"
#include "core/setup/conn.h"
#include "core/setup/links.h"
#include "core/setup/ways.h"

enum {
	NEXT_MS = 1,			/* wait between one way and the next */
	ROUND_MS = 20,			/* wait between rounds */
	CONNECT_MIN_MS = 100, CONNECT_MAX_MS = 1000,	/* for a connection, in the first round */
	ANSWER_MIN_MS = 1000,
	ROUNDS_MAX = 3,			/* each round doubles that time, up to this round */
	PATIENCE_PART = 60,		/* of all the time */
	FINAL_MS = 5000,		/* left to the other ways once one has failed for good */
};

static uint64_t between(uint64_t least, uint64_t v, uint64_t most)
{
	return v < least ? least : v > most ? most : v;
}

uint64_t braid_tries_slice(const struct braid_link *link, bool bound, bool connected)
{
	uint64_t whole = (uint64_t)braid_param.handshake_timeout * SEC;
	uint64_t all = (uint64_t)braid_param.connect_timeout * SEC, slice;
	unsigned others = link->setup.path[0].ways.n - 1 + bound, round = link->tries.round;

	if (round > ROUNDS_MAX)
		round = ROUNDS_MAX;
	/* A peer that many dial at once may be slow: a new dial would wait behind all others. */
	if (!others)
		return whole << round;
	if (connected)
		return between(ANSWER_MIN_MS * MS, all / (others + 2), whole) << round;
	slice = between(CONNECT_MIN_MS * MS, all / (3 * (others + 1)), CONNECT_MAX_MS * MS);
	return between(0, slice << round, whole);
}

uint64_t braid_tries_patience(void)
{
	return (uint64_t)braid_param.connect_timeout * SEC / PATIENCE_PART;
}

static bool all_final(const struct braid_ways *w)
{
	for (unsigned i = 0; i < w->n; i++) {
		if (!w->way[i].final)
			return false;
	}
	return true;
}

bool braid_tries_go_on(struct braid_link *link, const struct braid_conn *c, int err, bool final,
		       uint64_t now)
{
	struct braid_ways *w = &link->setup.path[0].ways;
	uint64_t half_timeout = (uint64_t)braid_param.connect_timeout * SEC / 2;
	unsigned i = c ? c->way : w->now;
	bool over;

	braid_svc_assert_locked();
	if (i >= w->n)
		return false;
	braid_way_failed(w, i, c && c->bound, c && c->state != BRAID_CONN_CONNECT, err);
	w->way[i].final = final;
	if (final && !link->tries.final_ns)
		link->tries.final_ns = now;
	if (final && (all_final(w) || braid_since(link->tries.final_ns, now) >=
		      between(0, FINAL_MS * MS, half_timeout)))
		return false;
	over = braid_ways_next(w, i);
	if (over) {
		w->failed = 0;
		link->tries.round++;
	}
	link->dial.at_ns = now + (over ? ROUND_MS : NEXT_MS) * MS;
	return true;
}

void braid_tries_log(const struct braid_link *link)
{
	char text[1024];

	braid_ways_text(&link->setup.path[0].ways, text, sizeof(text));
	if (*text)
		braid_info("device %s, peer %s: ways tried, in this order: %s",
			   link->key.dev->net.name, link->peer, text);
}
