/* SPDX-License-Identifier: BSD-3-Clause */
/* slow.c - see slow.h. */
#include "core/setup/slow.h"

#include <limits.h>

#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/units.h"
#include "core/dev.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/recover.h"
#include "core/link/state.h"
#include "core/setup/links.h"

enum {
	LOOK_MS = 250,			/* between two looks; a rate spans BRAID_LOOKS of them */
	BUSY_PART = 4,			/* judge lanes that were busy for 1/4 of that span, */
	SEEN_PART = 32,			/* beside lanes that were busy for 1/32 of it */
	ENOUGH = 1 << 20,		/* bytes of the link in that span, to judge any lane */
	NEAR = 3,			/* judge lanes up to so many times as fast as the slowest */
	WELL_MS = 10000,		/* a lane that was well for so long has used no try */
	PAUSE_MS = 500,			/* after the first try; doubled after each */
	TRIES = 5,			/* dials that did not help, before REST_MS without one */
	REST_MS = 300000,
	REFUSALS = 4,			/* new connections refused in a row, at most */
	RTT_SLACK_MS = 3,
};

struct look {				/* at each lane; rates in bytes per ns while it was busy */
	double rate[BRAID_LANES_MAX];	/* < 0: not known */
	bool busy[BRAID_LANES_MAX];	/* for long enough to be judged */
	double median[BRAID_LANES_MAX];	/* of all lanes like it; 0: there is no other */
	double least[BRAID_LANES_MAX], most[BRAID_LANES_MAX];	/* of the same lanes */
};

#define SPAN_NS ((uint64_t)LOOK_MS * BRAID_LOOKS * MS)

/* The rate of the last second; < 0: the lane had another path then, or was idle. */
static double rate_of(struct braid_lane *lane, uint64_t now, uint64_t *ret_bytes, bool *ret_busy)
{
	struct braid_lane_pace *p = &lane->recover.pace;
	unsigned back = braid_lane_times_back(lane), i;
	uint64_t bytes, ns = braid_txq_busy(&lane->tx, now, &bytes), busy;
	bool seen;

	if (p->back != back)
		p->looks = p->slow_looks = 0;
	p->back = back;
	i = p->looks++ % BRAID_LOOKS;
	busy = braid_since(p->busy_ns[i], ns);
	*ret_bytes = p->looks > BRAID_LOOKS ? bytes - p->bytes[i] : 0;
	p->bytes[i] = bytes;
	p->busy_ns[i] = ns;
	seen = braid_lane_up(lane) && p->looks > BRAID_LOOKS && busy * SEEN_PART >= SPAN_NS;
	*ret_busy = seen && busy * BUSY_PART >= SPAN_NS;
	return seen ? (double)*ret_bytes / (double)busy : -1;
}

/* Other transports, and NICs of another speed, are fast or slow for other reasons. */
static bool alike(const struct braid_lane *a, const struct braid_lane *b)
{
	struct braid_dev *const *member = a->link->key.dev->member;

	return a->tr == b->tr &&
	       member[a->member]->net.speed_mbps == member[b->member]->net.speed_mbps;
}

static void compare(const struct braid_link *link, struct look *k, unsigned nlanes, unsigned lane)
{
	double sorted[BRAID_LANES_MAX];
	unsigned n = 0, i;

	for (unsigned other = 0; other < nlanes; other++) {
		if (k->rate[other] < 0 || !alike(link->lane[lane], link->lane[other]))
			continue;
		for (i = n++; i && sorted[i - 1] > k->rate[other]; i--)
			sorted[i] = sorted[i - 1];
		sorted[i] = k->rate[other];
	}
	k->median[lane] = n > 1 ? (sorted[(n - 1) / 2] + sorted[n / 2]) / 2 : 0;
	k->least[lane] = n ? sorted[0] : 0;
	k->most[lane] = n ? sorted[n - 1] : 0;
}

/* False: too little moved to judge by. */
static bool look(struct braid_link *link, unsigned nlanes, uint64_t now, struct look *k)
{
	uint64_t all = 0, bytes;

	for (unsigned i = 0; i < nlanes; i++) {
		k->rate[i] = rate_of(link->lane[i], now, &bytes, &k->busy[i]);
		all += bytes;
	}
	for (unsigned i = 0; i < nlanes; i++)
		compare(link, k, nlanes, i);
	return all >= ENOUGH;
}

void braid_slow_leave(struct braid_lane *lane, double rate, double fastest, uint64_t now)
{
	struct braid_link *link = lane->link;
	struct braid_lane_pace *p = &lane->recover.pace;
	struct braid_hdr h = { .type = BRAID_F_RENEW, .n = lane->index, .rseq = lane->epoch,
			       .tag = BRAID_RENEW_SLOW };
	bool last = p->tries + 1 == TRIES;

	braid_svc_assert_locked();
	if (!link->dialler && !braid_link_ctl_now(link, &h))	/* the peer dials */
		return;
	braid_lane_set_slow(lane, true);
	braid_event(BRAID_EVENT_LANE_SLOW, link->number, lane->index, (int64_t)(rate * 8000),
		    (int64_t)(fastest * 8000));
	atomic_fetch_add(&link->key.dev->slow, 1);
	braid_info("device %s, peer %s: lane %u is slow: %.3f Gbit/s, where the fastest lane has "
		   "%.3f; it is dialled again from another port (%u of %u)%s",
		   link->key.dev->net.name, link->peer, lane->index, rate * 8, fastest * 8,
		   p->tries + 1, TRIES, last ? ", for the last time for now" : "");
	p->next_ns = now + (last ? (uint64_t)REST_MS : (uint64_t)PAUSE_MS << p->tries) * MS;
	p->tries = last ? 0 : p->tries + 1;
}

/*
 * A lane below a quarter of the fastest is slow at once; others must stay below the limits for
 * BRAID_LOOKS looks.  Where half of the lanes or more have the slow path, the median is low, too,
 * so lanes are also compared with the fastest.
 */
static bool is_slow(struct braid_lane *lane, const struct look *k, uint64_t now)
{
	struct braid_lane_pace *p = &lane->recover.pace;
	unsigned i = lane->index;
	double rate = k->rate[i], most = k->most[i];

	if (k->busy[i] && (rate * 2 < k->median[i] || rate * 8 < most)) {
		p->well_ns = 0;
		return ++p->slow_looks >= BRAID_LOOKS || rate * 4 < most;
	}
	p->slow_looks = 0;
	if (!p->well_ns)
		p->well_ns = now;
	if (braid_since(p->well_ns, now) >= WELL_MS * MS)
		p->tries = 0;
	return false;
}

/*
 * While a lane is very slow, messages wait for it, and the rates of other lanes mean little.  So
 * lanes several times as fast as the slowest are judged only once that one has another path.
 */
static void judge(struct braid_link *link, const struct look *k, unsigned nlanes, uint64_t now)
{
	for (unsigned i = 0; i < nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		if (is_slow(lane, k, now) &&
		    k->rate[i] <= NEAR * k->least[i] && now >= lane->recover.pace.next_ns)
			braid_slow_leave(lane, k->rate[i], k->most[i], now);
	}
}

void braid_slow_tick(struct braid_link *link, uint64_t now)
{
	unsigned nlanes = link->nlanes;
	uint64_t since = braid_since(link->recover.slow_look_ns, now);
	struct look k;

	braid_svc_assert_locked();
	if (nlanes < 2 || braid_link_home(link)->local ||
	    (!link->dialler && !link->setup.other_paths) || since < LOOK_MS * MS)
		return;
	link->recover.slow_look_ns = now;
	for (unsigned i = 0; since > 2 * LOOK_MS * MS && i < nlanes; i++)
		link->lane[i]->recover.pace.looks = 0;	/* else a rate would span more */
	if (look(link, nlanes, now, &k))
		judge(link, &k, nlanes, now);
}

bool braid_slow_refuses(struct braid_lane *lane, uint64_t connect_ms)
{
	const struct braid_link *link = lane->link;
	struct braid_lane_pace *p = &lane->recover.pace;
	unsigned best = UINT_MAX;

	braid_svc_assert_locked();
	for (unsigned i = 0; i < link->nlanes; i++) {
		const struct braid_lane *k = link->lane[i];

		if (k != lane && braid_lane_up(k) && !braid_lane_is_slow(k) &&
		    k->recover.rtt_ms < best)
			best = k->recover.rtt_ms;
	}
	if (lane->tr->dma || best == UINT_MAX || connect_ms <= 2ull * best + RTT_SLACK_MS ||
	    p->refused == REFUSALS) {
		p->refused = 0;
		return false;
	}
	p->refused++;
	return true;
}
