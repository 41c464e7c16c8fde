/* SPDX-License-Identifier: BSD-3-Clause */
/* grow.c - see grow.h. */
#include "core/setup/grow.h"

#include "core/base/log.h"
#include "core/base/param.h"
#include "core/setup/service.h"

#define MS 1000000ull

enum {
	LANE_MBPS = 25000,		/* what one stream can carry */
	SAMPLE_MS = 50,			/* how long one rate is measured */
	WAIT_MIN_MS = 250, WAIT_MAX_MS = 60000,	/* between tries of more lanes */
	REDIAL_MIN_MS = 10,		/* after a refusal: the peer sets up the lane before */
	WAIT_FEW_MS = 1000,		/* where few lanes suffice, also before the first try */
	TRIM_MS = 10000, TRIM_MAX_MS = 300000,	/* between tries of fewer lanes */
	OPEN_MS = 1000,			/* to wait for lanes to come up */
	REST_MS = 10000,		/* nothing acknowledged for so long: start anew */
	ROUNDS = 3,			/* comparisons that must all be won */
	GAIN_PERCENT = 110,		/* of the rate of fewer lanes, to keep more */
	CLEAR_PERCENT = 250,		/* the same, where one comparison is enough */
	LOSS_PERCENT = 95,		/* of the rate of more lanes, to keep fewer */
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
		if (link->want_lanes < n)
			link->want_lanes = n;
	} else if (link->nlanes < n) {
		atomic_store(&link->ask_lanes, n);
		braid_link_urge(link);
	}
}

static void use(struct braid_link *link, unsigned n)
{
	atomic_store_explicit(&link->active, n, memory_order_relaxed);
}

void braid_grow_start(struct braid_link *link)
{
	unsigned n = first(link);

	link->active = n;
	link->want_lanes = n;
	link->grow.wait_ns = first_wait_ns(link);
	link->grow.trim_wait_ns = TRIM_MS * MS;
}

bool braid_grow_wants_dial(const struct braid_link *link)
{
	return (link->nlanes < link->want_lanes || link->nlanes < link->peer_lanes) &&
	       link->ncomms && !link->ndown;
}

bool braid_grow_may_dial(const struct braid_link *link, uint64_t now)
{
	return braid_grow_wants_dial(link) && now >= link->grow.dial_ns;
}

void braid_grow_dialled(struct braid_link *link, int err, uint64_t now)
{
	uint64_t wait = link->grow.redial_ns * 2;

	if (wait < REDIAL_MIN_MS * MS)
		wait = REDIAL_MIN_MS * MS;
	if (wait > WAIT_MAX_MS * MS)
		wait = WAIT_MAX_MS * MS;
	link->grow.redial_ns = err ? wait : 0;
	link->grow.dial_ns = now + link->grow.redial_ns;
}

static void finish(struct braid_link *link, bool keep, uint64_t now)
{
	unsigned before = link->grow.trim ? link->grow.many : link->grow.few;
	unsigned after = keep ? link->grow.many : link->grow.few;
	uint64_t *wait = link->grow.trim ? &link->grow.trim_wait_ns : &link->grow.wait_ns;
	uint64_t most = (link->grow.trim ? TRIM_MAX_MS : WAIT_MAX_MS) * MS;

	use(link, after);
	link->grow.phase = STEADY;
	link->grow.next_try_ns = keep ? now : now + link->grow.wait_ns;
	if (after != before)
		braid_info("device %s, peer %s: %u lanes now, %.2f Gbit/s; %u brought %.2f",
			   link->key.dev->net.name, link->peer, after,
			   (keep ? link->grow.many_rate : link->grow.few_rate) * 8, before,
			   (keep ? link->grow.few_rate : link->grow.many_rate) * 8);
	if (after != before || keep)
		link->grow.double_next = false;
	else if (!link->grow.trim)
		link->grow.double_next = !link->grow.double_next;
	if (after == before && *wait < most)
		*wait *= 2;
	link->grow.trim_ns = now + link->grow.trim_wait_ns;
}

/*
 * Try all lanes at once: where the network caps each flow, this finds it out soonest.  Every second
 * try only doubles them; so does every try where lanes are queue pairs, of which a NIC has few.
 */
static void try_more(struct braid_link *link, double rate, uint64_t now)
{
	bool twice = link->grow.double_next || braid_link_home(link)->tr->dma;
	unsigned n = twice && link->active * 2 < link->lanes_max ? link->active * 2 :
								   link->lanes_max;

	link->grow.trim = false;
	link->grow.few = link->active;
	link->grow.many = n;
	link->grow.few_rate = link->grow.most = rate;
	link->grow.least = 1e9;
	link->grow.round = 0;
	link->grow.phase = OPENING;
	link->grow.give_up_ns = now + OPEN_MS * MS;
	want(link, n);
}

/* Try whether half of the lanes would do. */
static void try_fewer(struct braid_link *link)
{
	link->grow.trim = true;
	link->grow.many = link->active;
	link->grow.few = link->active / 2 > first(link) ? link->active / 2 : first(link);
	link->grow.round = 0;
	link->grow.phase = FEW_SETTLE;
	use(link, link->grow.few);
}

/* Both numbers of lanes have been measured: choose one, or measure again if it is not clear. */
static void compare(struct braid_link *link, uint64_t now)
{
	double few = link->grow.few_rate, many = link->grow.many_rate;
	bool keep, clear, last = ++link->grow.round == ROUNDS;

	if (few > link->grow.most)
		link->grow.most = few;
	if (many < link->grow.least)
		link->grow.least = many;
	if (link->grow.trim) {
		keep = clear = few * 100 < many * LOSS_PERCENT;
	} else {
		keep = link->grow.least * 100 >= link->grow.most * GAIN_PERCENT;
		clear = !keep || link->grow.least * 100 >= link->grow.most * CLEAR_PERCENT;
	}
	if (clear || last) {
		finish(link, keep, now);
		return;
	}
	use(link, link->grow.few);
	link->grow.phase = FEW_SETTLE;
}

static void steady(struct braid_link *link, double rate, bool full, uint64_t now)
{
	if (braid_since(link->grow.moved_ns, now) > REST_MS * MS && link->active != first(link)) {
		use(link, first(link));
		link->grow.wait_ns = first_wait_ns(link);
		link->grow.trim_wait_ns = TRIM_MS * MS;
	}
	if (!full)
		return;
	if (link->active > first(link) && now >= link->grow.trim_ns)
		try_fewer(link);
	else if (link->active < link->lanes_max && now >= link->grow.next_try_ns)
		try_more(link, rate, now);
}

/* Not all lanes that were asked for came up: go on with those that did. */
static void make_do(struct braid_link *link)
{
	unsigned n = first(link);

	link->grow.many = link->nlanes;
	link->want_lanes = link->nlanes > n ? link->nlanes : n;
}

static void step(struct braid_link *link, double rate, bool full, uint64_t now)
{
	switch ((enum phase)link->grow.phase) {
	case STEADY:
		steady(link, rate, full, now);
		return;
	case OPENING:
		if (link->nlanes < link->grow.many && now < link->grow.give_up_ns)
			return;
		if (link->nlanes < link->grow.many)
			make_do(link);
		if (link->grow.many > link->grow.few) {
			use(link, link->grow.many);
			link->grow.phase = MANY_SETTLE;
		} else {
			finish(link, false, now);
		}
		return;
	case MANY:
		link->grow.many_rate = rate;
		compare(link, now);
		return;
	case FEW:
		link->grow.few_rate = rate;
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
	/* Without the lock: a sender may hold it while a NIC's driver keeps it in the kernel. */
	uint64_t bytes = atomic_load_explicit(&link->acked_bytes, memory_order_relaxed);
	double rate;

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
		if (few_do(link))
			link->grow.next_try_ns = now + first_wait_ns(link);
		return;
	}
	if (braid_since(link->grow.at_ns, now) >= SAMPLE_MS * MS)
		sample(link, now);
}
