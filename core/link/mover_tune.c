/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mover_tune.c - how many threads move a NIC's lanes, if that is measured (BRAID_THREADS=-1).
 *
 * Threads can only help where the callers' copies are the limit.  There the kernel always has room
 * for a large piece, or has received more of a large payload than they have copied.  The bytes of
 * such pieces and payloads are counted as *offered*.  If they are half of what the NIC moves, at a
 * high rate, more threads are tried.  They stay in use only if the rate rises by a tenth in both
 * samples of the trial.
 */
#include "core/link/mover.h"

#include "core/base/log.h"
#include "core/base/units.h"
#include "core/link/mover_int.h"

enum {
	SAMPLE_MS = 50,
	WAIT_MIN_MS = 500, WAIT_MAX_MS = 60000,	/* between tries that did not help */
	REST_MS = 10000,		/* hardly anything moved for so long: no threads */
	FIRST = 2,			/* tried first: one would only replace a caller */
	GBPS_MIN = 10,			/* below that rate one thread has time to spare */
	GAIN_PERCENT = 110,
};

enum phase { STEADY, SETTLE, TRIAL, TRIAL_AGAIN };

static uint64_t counted(const _Atomic uint64_t *n)
{
	return atomic_load_explicit(n, memory_order_relaxed);
}

/* Counters may miss what another thread adds at this moment: the next call counts that. */
static void add(struct braid_movers_tuning *t, struct braid_lane *lane)
{
	uint64_t moved = counted(&lane->tx_bytes) + counted(&lane->rx_bytes);
	uint64_t offered = counted(&lane->hand.offered[0]) + counted(&lane->hand.offered[1]);

	t->moved += moved - lane->hand.moved_seen;
	t->offered += offered - lane->hand.offered_seen;
	lane->hand.moved_seen = moved;
	lane->hand.offered_seen = offered;
}

static void end_trial(struct braid_movers *s, double rate, bool keep, uint64_t now)
{
	struct braid_movers_tuning *t = &s->tuning;
	unsigned n = s->active;

	t->phase = STEADY;
	if (keep) {
		t->wait_ns = WAIT_MIN_MS * MS;
		t->next_try_ns = now;
		braid_info("device %s: %u threads move large messages, %.2f Gbit/s; %u brought "
			   "%.2f", s->dev->net.name, n, rate * 8, t->before, t->rate * 8);
		return;
	}
	braid_movers_use(s, t->before);
	t->next_try_ns = now + t->wait_ns;
	t->wait_ns = 2 * t->wait_ns < WAIT_MAX_MS * MS ? 2 * t->wait_ns : WAIT_MAX_MS * MS;
}

static void steady(struct braid_movers *s, double rate, uint64_t now)
{
	struct braid_movers_tuning *t = &s->tuning;
	unsigned n = s->active ? 2 * s->active : FIRST;

	if (s->active && braid_since(t->moved_ns, now) >= REST_MS * MS) {
		braid_movers_use(s, 0);
		t->wait_ns = WAIT_MIN_MS * MS;
	}
	if (rate * 8 < GBPS_MIN || 2 * t->offered < t->moved || n > s->most ||
	    now < t->next_try_ns)
		return;
	t->before = s->active;
	t->rate = rate;
	braid_movers_use(s, n);
	t->phase = s->active > t->before ? SETTLE : STEADY;
}

static void sample(struct braid_movers *s, uint64_t now)
{
	struct braid_movers_tuning *t = &s->tuning;
	double rate = (double)t->moved / (double)(now - t->at_ns);

	if (rate * 8 >= GBPS_MIN)
		t->moved_ns = now;
	switch ((enum phase)t->phase) {
	case STEADY:
		steady(s, rate, now);
		break;
	case SETTLE:
		t->phase = TRIAL;
		break;
	case TRIAL:
	case TRIAL_AGAIN:
		if (rate * 100 < t->rate * GAIN_PERCENT || t->phase == TRIAL_AGAIN)
			end_trial(s, rate, rate * 100 >= t->rate * GAIN_PERCENT, now);
		else
			t->phase = TRIAL_AGAIN;
		break;
	}
}

void braid_movers_tune(struct braid_movers *s, struct braid_lane *lane, uint64_t now)
{
	struct braid_movers_tuning *t = &s->tuning;

	add(t, lane);
	if (!t->at_ns)
		t->wait_ns = WAIT_MIN_MS * MS;
	else if (braid_since(t->at_ns, now) < SAMPLE_MS * MS)
		return;
	else
		sample(s, now);
	t->at_ns = now;
	t->moved = t->offered = 0;
}
