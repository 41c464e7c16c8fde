/* SPDX-License-Identifier: BSD-3-Clause */
/* grow.c - see grow.h. */
#include "core/grow.h"

#include "core/log.h"
#include "core/param.h"
#include "core/service.h"

#define MS 1000000ull

enum {
	LANE_MBPS = 25000,		/* what one stream is good for */
	SAMPLE_MS = 50,			/* how long a rate is measured */
	WAIT_MIN_MS = 1000, WAIT_MAX_MS = 60000,	/* between tries that did not help */
	REST_MS = 10000,		/* nothing acknowledged: back to the start */
	ROUNDS = 3,			/* comparisons that more lanes must all win */
	GAIN_PERCENT = 110,		/* by that much */
};

/* Each number of lanes gets one sample to settle in and one that counts. */
enum phase { STEADY, OPENING, MANY_SETTLE, MANY, FEW_SETTLE, FEW };

unsigned braid_grow_first(int speed_mbps, bool speed_known)
{
	unsigned n = speed_known && speed_mbps > LANE_MBPS ? (unsigned)(speed_mbps / LANE_MBPS) : 1;

	return n > 4 ? 4 : n;
}

static unsigned first(const struct braid_link *link)
{
	const struct braid_netdev *net = &link->key.dev->net;
	unsigned n = braid_param.lanes ? (unsigned)braid_param.lanes :
					 braid_grow_first(net->speed_mbps, net->speed_known);

	return n < link->lanes_max ? n : link->lanes_max;
}

/* Let the link have n lanes, as soon as they are open. */
static void want(struct braid_link *link, unsigned n)
{
	struct braid_hdr h = { .type = BRAID_F_LANES, .n = (uint16_t)n };

	braid_lock_wait(&link->lock);
	if (link->dialler) {
		if (link->want_lanes < n)
			link->want_lanes = n;
	} else if (link->nlanes < n && !braid_link_attach(link)) {
		braid_link_ctl(link, &h, NULL);
		braid_link_flush(link);
	}
	braid_unlock(&link->lock);
}

static void use(struct braid_link *link, unsigned n)
{
	braid_lock_wait(&link->lock);
	link->active = n;
	braid_unlock(&link->lock);
}

void braid_grow_start(struct braid_link *link)
{
	unsigned n = first(link);

	link->active = n;
	link->want_lanes = n;
	link->grow.wait_ns = WAIT_MIN_MS * MS;
}

bool braid_grow_wants_dial(const struct braid_link *link)
{
	return link->nlanes < link->want_lanes && link->ncomms;
}

void braid_grow_dialled(struct braid_link *link, int err, uint64_t now)
{
	if (!err)
		return;
	link->want_lanes = link->nlanes;	/* make do; a later try asks again */
	link->grow.next_try_ns = now + link->grow.wait_ns;
}

static void finish(struct braid_link *link, bool keep, uint64_t now)
{
	use(link, keep ? link->grow.many : link->grow.few);
	link->grow.phase = STEADY;
	link->grow.next_try_ns = keep ? now : now + link->grow.wait_ns;
	if (!keep && link->grow.wait_ns < WAIT_MAX_MS * MS)
		link->grow.wait_ns *= 2;
	if (keep)
		braid_info("device %s, peer %s: %u lanes now, at least %.2f Gbit/s after %.2f",
			   link->key.dev->net.name, link->peer, link->grow.many,
			   link->grow.least * 8, link->grow.most * 8);
}

static void try_more(struct braid_link *link, double rate, uint64_t now)
{
	unsigned n = link->active * 2 < link->lanes_max ? link->active * 2 : link->lanes_max;

	link->grow.few = link->active;
	link->grow.many = n;
	link->grow.most = rate;
	link->grow.least = 1e9;
	link->grow.round = 0;
	link->grow.phase = OPENING;
	link->grow.give_up_ns = now + WAIT_MIN_MS * MS;
	want(link, n);
}

static bool more_was_better(const struct braid_link *link)
{
	return link->grow.least * 100 >= link->grow.most * GAIN_PERCENT;
}

static void step(struct braid_link *link, double rate, bool full, uint64_t now)
{
	switch ((enum phase)link->grow.phase) {
	case STEADY:
		if (now - link->grow.moved_ns > REST_MS * MS && link->active != first(link)) {
			use(link, first(link));
			link->grow.wait_ns = WAIT_MIN_MS * MS;
		}
		if (full && now >= link->grow.next_try_ns && link->active < link->lanes_max)
			try_more(link, rate, now);
		return;
	case OPENING:
		if (link->nlanes >= link->grow.many) {
			use(link, link->grow.many);
			link->grow.phase = MANY_SETTLE;
		} else if (now >= link->grow.give_up_ns) {
			finish(link, false, now);
		}
		return;
	case MANY:
		if (rate < link->grow.least)
			link->grow.least = rate;
		if (!more_was_better(link) || ++link->grow.round == ROUNDS) {
			finish(link, more_was_better(link), now);
			return;
		}
		use(link, link->grow.few);
		link->grow.phase = FEW_SETTLE;
		return;
	case FEW:
		if (rate > link->grow.most)
			link->grow.most = rate;
		use(link, link->grow.many);
		link->grow.phase = MANY_SETTLE;
		return;
	case MANY_SETTLE:
	case FEW_SETTLE:
		link->grow.phase++;
		return;
	}
}

static void sample(struct braid_link *link, uint64_t now)
{
	unsigned long starved = atomic_load(&link->starved);
	bool full = starved != link->grow.starved;
	uint64_t bytes;
	double rate;

	braid_lock_wait(&link->lock);
	bytes = link->acked_bytes;
	braid_unlock(&link->lock);
	rate = (double)(bytes - link->grow.bytes) / (double)(now - link->grow.at_ns);
	if (bytes != link->grow.bytes)
		link->grow.moved_ns = now;
	link->grow.at_ns = now;
	link->grow.bytes = bytes;
	link->grow.starved = starved;
	step(link, rate, full, now);
}

void braid_grow_tick(struct braid_link *link, uint64_t now)
{
	if (braid_param.lanes) {
		if (link->active != first(link) || link->want_lanes > link->nlanes)
			use(link, first(link));
		return;
	}
	if (!link->grow.at_ns) {
		link->grow.at_ns = link->grow.moved_ns = now;
		return;
	}
	if (now - link->grow.at_ns >= SAMPLE_MS * MS)
		sample(link, now);
}
