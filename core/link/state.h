/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * state.h - what other floors read and change in a link's own parts.
 *
 * Each function takes one step that the data path also takes, or reads one number.  Unless a
 * comment says otherwise, numbers may be read without the link's lock.
 */
#ifndef BRAID_LINK_STATE_H
#define BRAID_LINK_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/link/link.h"

/* --- lanes --------------------------------------------------------------------------------- */

/* Lanes without a carrier. */
static inline unsigned braid_link_ndown(const struct braid_link *link)
{
	return link->lanes.ndown;
}

/* How many lanes, from lane 0 on, carry chunks while all lanes are up. */
static inline unsigned braid_link_active(const struct braid_link *link)
{
	return link->lanes.active;
}

static inline void braid_link_set_active(struct braid_link *link, unsigned n)
{
	atomic_store_explicit(&link->lanes.active, n, memory_order_relaxed);
}

/* How many lanes the dialler dials in all: its own choice, or what the last LANES frame asked. */
static inline unsigned braid_link_want(const struct braid_link *link)
{
	return link->lanes.want;
}

static inline void braid_link_set_want(struct braid_link *link, unsigned n)
{
	link->lanes.want = n;
}

/* The least number of lanes that the peer has, from its DOWN frames. */
static inline unsigned braid_link_peer_lanes(const struct braid_link *link)
{
	return link->lanes.peer;
}

/* Does the link have rings and buffers for traffic? */
static inline bool braid_link_is_attached(const struct braid_link *link)
{
	return link->lanes.attached;
}

/* Times that credits were revoked: docs/dev/wire.md. */
static inline uint32_t braid_link_rkey_epoch(const struct braid_link *link)
{
	return link->lanes.rkey_epoch;
}

/* --- one lane ------------------------------------------------------------------------------ */

/* Since then nothing that the lane sent was acknowledged; 0: it is not suspect. */
static inline uint64_t braid_lane_suspect_ns(const struct braid_lane *lane)
{
	return lane->loss.suspect_ns;
}

static inline void braid_lane_set_suspect(struct braid_lane *lane, uint64_t since_ns)
{
	lane->loss.suspect_ns = since_ns;
}

/* Is the lane's carrier to be replaced, only because its key has been used for long? */
static inline bool braid_lane_old_key(const struct braid_lane *lane)
{
	return atomic_load(&lane->loss.old_key);
}

static inline void braid_lane_set_old_key(struct braid_lane *lane, bool old)
{
	atomic_store(&lane->loss.old_key, old);
}

/* Did the lane's carrier fail before either end closed it? */
static inline bool braid_lane_has_failed(const struct braid_lane *lane)
{
	return lane->loss.carrier_failed;
}

static inline void braid_lane_forget_failure(struct braid_lane *lane)
{
	lane->loss.carrier_failed = false;
}

/* Has the peer closed the lane since the last call?  Then try another path first. */
static inline bool braid_lane_avoid_path(struct braid_lane *lane)
{
	return atomic_exchange(&lane->loss.avoid_path, false);
}

/* Is the lane fenced, while its NIC may still run? */
static inline bool braid_lane_is_stopping(const struct braid_lane *lane)
{
	return lane->loss.stopping;
}

static inline unsigned braid_lane_times_lost(const struct braid_lane *lane)
{
	return atomic_load_explicit(&lane->loss.lost, memory_order_relaxed);
}

/* Of these: because a checksum was wrong. */
static inline unsigned braid_lane_times_corrupt(const struct braid_lane *lane)
{
	return atomic_load_explicit(&lane->loss.corrupt, memory_order_relaxed);
}

/* Once more since the last call? */
static inline bool braid_lane_was_corrupt(struct braid_lane *lane)
{
	return atomic_exchange(&lane->loss.corrupt_new, false);
}

static inline unsigned braid_lane_times_back(const struct braid_lane *lane)
{
	return atomic_load_explicit(&lane->loss.back, memory_order_relaxed);
}

/* --- sending: with the link's lock held, except the counts --------------------------------- */

/* Work is left: push_waiting() of progress.c does it in the next call. */
static inline void braid_link_stall(struct braid_link *link)
{
	atomic_store_explicit(&link->tx.stalled, true, memory_order_relaxed);
}

/* Was a test() idle since the last isend?  Then no burst goes on.  A hint without the lock. */
static inline bool braid_link_is_quiet(const struct braid_link *link)
{
	return link->tx.quiet;
}

/* The burst is over; returns its frames after the first. */
static inline uint32_t braid_link_end_burst(struct braid_link *link)
{
	uint32_t n = link->tx.burst_now;

	braid_assert_locked(&link->lock);
	link->tx.burst_now = 0;
	return n;
}

/* Bytes of chunks ever acknowledged. */
static inline uint64_t braid_link_acked_bytes(const struct braid_link *link)
{
	return atomic_load_explicit(&link->tx.acked_bytes, memory_order_relaxed);
}

/* Times that chunks waited because every lane was full. */
static inline unsigned long braid_link_starved(const struct braid_link *link)
{
	return atomic_load(&link->tx.starved);
}

/* --- receiving ----------------------------------------------------------------------------- */

/* Chunks of one more message may come on any lane, until braid_link_spread_end(). */
static inline void braid_link_spread_begin(struct braid_link *link)
{
	link->rx.spread++;
}

static inline void braid_link_spread_end(struct braid_link *link)
{
	if (link->rx.spread)
		link->rx.spread--;
}

/* Has the peer closed the link? */
static inline bool braid_link_peer_gone(const struct braid_link *link)
{
	return link->rx.peer_gone;
}

/* What the peer announced last of its CPU time (BRAID_ALIVE_CPU); returns how often it has. */
static inline uint32_t braid_link_peer_cpu(const struct braid_link *link, uint32_t *ret_used_ms,
					   uint32_t *ret_queued_ms)
{
	*ret_used_ms = link->rx.peer_used_ms;
	*ret_queued_ms = link->rx.peer_queued_ms;
	return link->rx.peer_announced;
}

/* The count of copies from and to GPU memory in progress. */
static inline atomic_uint *braid_link_copies(struct braid_link *link)
{
	return &link->rx.copies;
}

/* --- data calls and the service thread ----------------------------------------------------- */

/* The number of data calls on the link; the count may miss some, never all. */
static inline unsigned long braid_link_touched(const struct braid_link *link)
{
	return atomic_load(&link->thread.touched);
}

/* Does the service thread watch the link's sockets?  The next data call ends that. */
static inline bool braid_link_is_watched(const struct braid_link *link)
{
	return atomic_load(&link->thread.watched);
}

static inline void braid_link_set_watched(struct braid_link *link, bool watched)
{
	atomic_store(&link->thread.watched, watched);
}

/* A hint: recently no call used another link. */
static inline void braid_link_set_alone(struct braid_link *link, bool alone)
{
	braid_hint(&link->thread.alone, alone);
}

/* Keep the link from being freed until braid_link_unpin(). */
static inline void braid_link_pin(struct braid_link *link)
{
	atomic_fetch_add(&link->thread.pins, 1);
}

static inline void braid_link_unpin(struct braid_link *link)
{
	atomic_fetch_sub(&link->thread.pins, 1);
}

static inline bool braid_link_is_pinned(const struct braid_link *link)
{
	return atomic_load(&link->thread.pins);
}

#endif
