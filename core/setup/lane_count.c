/* SPDX-License-Identifier: BSD-3-Clause */
/* lane_count.c - see lane_count.h. */
#include "core/setup/lane_count.h"

#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/base/units.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/msg/comms.h"
#include "core/setup/health.h"
#include "core/setup/links.h"

enum {
	LANE_MBPS = 25000,		/* what one stream can carry */
	SAMPLE_MS = 50,			/* how long one rate is measured */
	WAIT_MIN_MS = 250, WAIT_MAX_MS = 60000,	/* between tries of more lanes */
	REDIAL_MIN_MS = 10,		/* after a refusal: the peer may be setting up a lane */
	WAIT_FEW_MS = 1000,		/* where few lanes suffice, also before the first try */
	TRIM_MS = 10000, TRIM_MAX_MS = 300000,	/* between tries of fewer lanes */
	OPEN_MS = 1000,			/* to wait for lanes to come up */
	REST_MS = 10000,		/* nothing acknowledged for so long: start anew */
	NOTICE_MS = 1500,		/* a lane that stands still is found to be ill by then */
	ROUNDS = 3,			/* comparisons that must all be won */
	GAIN_PERCENT = 110,		/* of the rate of fewer lanes, to keep more */
	CLEAR_PERCENT = 250,		/* the same, where one comparison is enough */
	LOSS_PERCENT = 95,		/* of the rate of more lanes, to keep fewer */
};

static struct braid_log_gate gate_dial;

/* Each number of lanes gets one sample to settle in and one that counts. */
enum phase { STEADY, OPENING, MANY_SETTLE, MANY, FEW_SETTLE, FEW };

unsigned braid_lane_count_first(int speed_mbps, bool speed_known)
{
	unsigned n = speed_known && speed_mbps > LANE_MBPS ? (unsigned)(speed_mbps / LANE_MBPS) : 1;

	return n > 4 ? 4 : n;
}

static unsigned first(const struct braid_link *link)
{
	const struct braid_netdev *net = &link->key.dev->net;
	unsigned n = braid_param.lanes ? (unsigned)braid_param.lanes :
					 braid_lane_count_first(net->speed_mbps, net->speed_known);

	if (!braid_param.lanes && n < link->npaths)
		n = link->npaths;
	return n < link->lanes_max ? n : link->lanes_max;
}

/* Is one lane nearly always enough, as within a host, or where a NIC moves the bytes? */
static bool few_do(const struct braid_link *link)
{
	const struct braid_lane *home = braid_link_home(link);

	return home->local || home->tr->dma;
}

static uint64_t first_wait_ns(const struct braid_link *link)
{
	return (few_do(link) ? WAIT_FEW_MS : WAIT_MIN_MS) * MS;
}

/*
 * Ask for n lanes in all.  Without the link's lock, as everything here while bytes flow: a sender
 * may hold it nearly all the time, in the kernel, and a thread that waits for it takes CPU time
 * from the receiver.
 */
static void want(struct braid_link *link, unsigned n)
{
	if (link->dialler) {
		if (braid_link_want(link) < n)
			braid_link_set_want(link, n);
	} else if (link->nlanes < n) {
		braid_link_ask_lanes(link, n);
	}
}

void braid_lane_count_start(struct braid_link *link)
{
	unsigned n = first(link);

	braid_svc_assert_locked();
	braid_link_set_active(link, n);
	braid_link_set_want(link, n);
	link->lane_count.wait_ns = first_wait_ns(link);
	link->lane_count.trim_wait_ns = TRIM_MS * MS;
}

bool braid_lane_count_wants_dial(const struct braid_link *link)
{
	return (link->nlanes < braid_link_want(link) ||
		link->nlanes < braid_link_peer_lanes(link)) &&
	       braid_comms_count(link) && !braid_link_ndown(link);
}

bool braid_lane_count_may_dial(const struct braid_link *link, uint64_t now)
{
	braid_svc_assert_locked();
	return braid_lane_count_wants_dial(link) && now >= link->lane_count.dial_ns;
}

void braid_lane_count_dialled(struct braid_link *link, int err, uint64_t now)
{
	uint64_t wait = link->lane_count.redial_ns * 2;

	braid_svc_assert_locked();
	if (wait < REDIAL_MIN_MS * MS)
		wait = REDIAL_MIN_MS * MS;
	if (wait > WAIT_MAX_MS * MS)
		wait = WAIT_MAX_MS * MS;
	if (err && braid_log_gate_open(&gate_dial, now))
		braid_info("device %s, peer %s: a further lane can't be dialled now: %s",
			   link->key.dev->net.name, link->peer, strerror(-err));
	link->lane_count.redial_ns = err ? wait : 0;
	link->lane_count.dial_ns = now + link->lane_count.redial_ns;
}

static void finish(struct braid_link *link, bool keep, uint64_t now)
{
	unsigned before = link->lane_count.trim ? link->lane_count.many : link->lane_count.few;
	unsigned after = keep ? link->lane_count.many : link->lane_count.few;
	uint64_t *wait = link->lane_count.trim ? &link->lane_count.trim_wait_ns :
						 &link->lane_count.wait_ns;
	uint64_t most = (link->lane_count.trim ? TRIM_MAX_MS : WAIT_MAX_MS) * MS;

	braid_link_set_active(link, after);
	link->lane_count.phase = STEADY;
	link->lane_count.next_try_ns = keep ? now : now + link->lane_count.wait_ns;
	if (after != before)
		braid_info("device %s, peer %s: %u lanes now, %.2f Gbit/s; %u brought %.2f",
			   link->key.dev->net.name, link->peer, after,
			   (keep ? link->lane_count.many_rate : link->lane_count.few_rate) * 8,
			   before,
			   (keep ? link->lane_count.few_rate : link->lane_count.many_rate) * 8);
	if (after != before || keep)
		link->lane_count.double_next = false;
	else if (!link->lane_count.trim)
		link->lane_count.double_next = !link->lane_count.double_next;
	if (after == before && *wait < most)
		*wait *= 2;
	link->lane_count.trim_ns = now + link->lane_count.trim_wait_ns;
	link->lane_count.before = before;
	link->lane_count.decided_ns = now;
}

static bool any_ill(const struct braid_link *link, uint64_t now)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (!braid_health_well(link->lane[i], now))
			return true;
	}
	return false;
}

/*
 * A lane is down, or stands still: rates say nothing about the number of lanes.  Use as many as
 * before the present trial, or before one that ended while the lane stood still already.
 */
static void put_off(struct braid_link *link, uint64_t now)
{
	bool trial = link->lane_count.phase != STEADY;
	unsigned n = link->lane_count.trim ? link->lane_count.many : link->lane_count.few;

	if (!trial && link->lane_count.decided_ns &&
	    braid_since(link->lane_count.decided_ns, now) <= NOTICE_MS * MS) {
		n = link->lane_count.before;
		trial = n > braid_link_active(link);
	}
	if (trial)
		braid_link_set_active(link, n);
	link->lane_count.phase = STEADY;
	link->lane_count.decided_ns = 0;
	link->lane_count.next_try_ns = now + first_wait_ns(link);
	link->lane_count.trim_ns = now + link->lane_count.trim_wait_ns;
}

/*
 * Try all lanes at once: where the network caps each flow, this finds it out soonest.  Every second
 * try only doubles the lanes, as does every try with queue pairs, of which a NIC has few.
 */
static void try_more(struct braid_link *link, double rate, uint64_t now)
{
	bool twice = link->lane_count.double_next || braid_link_home(link)->tr->dma;
	unsigned active = braid_link_active(link);
	unsigned n = twice && active * 2 < link->lanes_max ? active * 2 : link->lanes_max;

	link->lane_count.trim = false;
	link->lane_count.few = active;
	link->lane_count.many = n;
	link->lane_count.few_rate = link->lane_count.most = rate;
	link->lane_count.least = 1e9;
	link->lane_count.round = 0;
	link->lane_count.phase = OPENING;
	link->lane_count.give_up_ns = now + OPEN_MS * MS;
	want(link, n);
}

/* Try whether half of the lanes would do. */
static void try_fewer(struct braid_link *link)
{
	unsigned n = braid_link_active(link);

	link->lane_count.trim = true;
	link->lane_count.many = n;
	link->lane_count.few = n / 2 > first(link) ? n / 2 : first(link);
	link->lane_count.round = 0;
	link->lane_count.phase = FEW_SETTLE;
	braid_link_set_active(link, link->lane_count.few);
}

/* Both numbers of lanes have been measured: choose one, or measure again if it is not clear. */
static void compare(struct braid_link *link, uint64_t now)
{
	double few = link->lane_count.few_rate, many = link->lane_count.many_rate;
	bool keep, clear, last = ++link->lane_count.round == ROUNDS;

	/* Nothing moved: an outage begins, or there is nothing to do. */
	if (few <= 0 || many <= 0) {
		put_off(link, now);
		return;
	}
	if (few > link->lane_count.most)
		link->lane_count.most = few;
	if (many < link->lane_count.least)
		link->lane_count.least = many;
	if (link->lane_count.trim) {
		keep = clear = few * 100 < many * LOSS_PERCENT;
	} else {
		keep = link->lane_count.least * 100 >= link->lane_count.most * GAIN_PERCENT;
		clear = !keep || link->lane_count.least * 100 >=
				 link->lane_count.most * CLEAR_PERCENT;
	}
	if (clear || last) {
		finish(link, keep, now);
		return;
	}
	braid_link_set_active(link, link->lane_count.few);
	link->lane_count.phase = FEW_SETTLE;
}

static void steady(struct braid_link *link, double rate, bool full, uint64_t now)
{
	if (braid_since(link->lane_count.moved_ns, now) > REST_MS * MS &&
	    braid_link_active(link) != first(link)) {
		braid_link_set_active(link, first(link));
		link->lane_count.wait_ns = first_wait_ns(link);
		link->lane_count.trim_wait_ns = TRIM_MS * MS;
	}
	if (!full)
		return;
	if (braid_link_active(link) > first(link) && now >= link->lane_count.trim_ns)
		try_fewer(link);
	else if (braid_link_active(link) < link->lanes_max && now >= link->lane_count.next_try_ns)
		try_more(link, rate, now);
}

/* Not all lanes that were asked for came up: go on with those that did. */
static void make_do(struct braid_link *link)
{
	unsigned n = first(link);

	link->lane_count.many = link->nlanes;
	braid_link_set_want(link, link->nlanes > n ? link->nlanes : n);
}

static void step(struct braid_link *link, double rate, bool full, uint64_t now)
{
	switch ((enum phase)link->lane_count.phase) {
	case STEADY:
		steady(link, rate, full, now);
		return;
	case OPENING:
		if (link->nlanes < link->lane_count.many && now < link->lane_count.give_up_ns)
			return;
		if (link->nlanes < link->lane_count.many)
			make_do(link);
		if (link->lane_count.many > link->lane_count.few) {
			braid_link_set_active(link, link->lane_count.many);
			link->lane_count.phase = MANY_SETTLE;
		} else {
			finish(link, false, now);
		}
		return;
	case MANY:
		link->lane_count.many_rate = rate;
		compare(link, now);
		return;
	case FEW:
		link->lane_count.few_rate = rate;
		braid_link_set_active(link, link->lane_count.many);
		link->lane_count.phase = MANY_SETTLE;
		return;
	case MANY_SETTLE:
	case FEW_SETTLE:
		link->lane_count.phase++;
		return;
	}
}

static void sample(struct braid_link *link, uint64_t now)
{
	unsigned long starved = braid_link_starved(link);
	bool full = starved != link->lane_count.starved;
	/* Without the lock: a sender may hold it while a NIC's driver keeps it in the kernel. */
	uint64_t bytes = braid_link_acked_bytes(link);
	double rate;

	rate = (double)(bytes - link->lane_count.bytes) / (double)(now - link->lane_count.at_ns);
	if (bytes != link->lane_count.bytes)
		link->lane_count.moved_ns = now;
	link->lane_count.at_ns = now;
	link->lane_count.bytes = bytes;
	link->lane_count.starved = starved;
	if (any_ill(link, now)) {
		link->lane_count.moved_ns = now;	/* this is no rest */
		put_off(link, now);
	} else {
		step(link, rate, full, now);
	}
}

void braid_lane_count_tick(struct braid_link *link, uint64_t now)
{
	braid_svc_assert_locked();
	if (braid_param.lanes) {
		if (braid_link_active(link) != first(link) || braid_link_want(link) > link->nlanes)
			braid_link_set_active(link, first(link));
		return;
	}
	if (!link->lane_count.at_ns) {
		link->lane_count.at_ns = link->lane_count.moved_ns = now;
		if (few_do(link))
			link->lane_count.next_try_ns = now + first_wait_ns(link);
		return;
	}
	if (braid_since(link->lane_count.at_ns, now) >= SAMPLE_MS * MS)
		sample(link, now);
}
