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
	SETTLE_MS = 50,			/* new streams start slowly */
	WAIT_MIN_MS = 1000, WAIT_MAX_MS = 60000,	/* between tries that did not help */
	REST_MS = 10000,		/* nothing acknowledged: back to the start */
	GAIN_PERCENT = 120,		/* what more lanes must bring */
};

enum phase { STEADY, OPENING, SETTLING, TRYING };

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

static void failed_try(struct braid_link *link, uint64_t now)
{
	use(link, link->grow.before);
	link->grow.phase = STEADY;
	link->grow.next_try_ns = now + link->grow.wait_ns;
	if (link->grow.wait_ns < WAIT_MAX_MS * MS)
		link->grow.wait_ns *= 2;
}

static void sample(struct braid_link *link, uint64_t now)
{
	uint64_t bytes, dt = now - link->grow.at_ns;
	unsigned long starved = atomic_load(&link->starved);
	bool full = starved != link->grow.starved;
	unsigned n;
	double rate;

	braid_lock_wait(&link->lock);
	bytes = link->acked_bytes;
	braid_unlock(&link->lock);
	rate = (double)(bytes - link->grow.bytes) / (double)dt;
	if (bytes != link->grow.bytes)
		link->grow.moved_ns = now;
	link->grow.at_ns = now;
	link->grow.bytes = bytes;
	link->grow.starved = starved;

	switch ((enum phase)link->grow.phase) {
	case STEADY:
		if (now - link->grow.moved_ns > REST_MS * MS && link->active != first(link)) {
			use(link, first(link));
			link->grow.wait_ns = WAIT_MIN_MS * MS;
		}
		if (!full || now < link->grow.next_try_ns || link->active >= link->lanes_max)
			return;
		n = link->active * 2 < link->lanes_max ? link->active * 2 : link->lanes_max;
		link->grow.before = link->active;
		link->grow.rate = rate;
		link->grow.target = n;
		link->grow.phase = OPENING;
		link->grow.give_up_ns = now + WAIT_MIN_MS * MS;
		want(link, n);
		return;
	case OPENING:
		if (link->nlanes >= link->grow.target) {
			use(link, link->grow.target);
			link->grow.phase = SETTLING;
		} else if (now >= link->grow.give_up_ns) {
			failed_try(link, now);
		}
		return;
	case SETTLING:
		link->grow.phase = TRYING;
		return;
	case TRYING:
		if (rate * 100 < link->grow.rate * GAIN_PERCENT) {
			failed_try(link, now);
			return;
		}
		link->grow.phase = STEADY;
		link->grow.next_try_ns = now;
		braid_info("device %s, peer %s: %u lanes now, %.2f Gbit/s after %.2f",
			   link->key.dev->net.name, link->peer, link->grow.target, rate * 8,
			   link->grow.rate * 8);
		return;
	}
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
