/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * progress.c - poll and push lanes, and send urgent control frames.
 *
 * When frames leave:
 *   - A small isend leaves at once if its caller was waiting before it.  In a burst it is held back
 *     for the rest of the burst, until a second idle test() of one comm shows that the burst is
 *     over.
 *   - Acknowledgements and credits leave with the next frame.  Those that the peer waits for
 *     (`control_urgent`) leave alone at the first idle test(), also one of another link if nothing
 *     more is posted here (braid_link_defer_control).
 *
 * An idle test() is one during which nothing moved.
 */
#include "core/link/control.h"
#include "core/link/link_int.h"
#include "core/link/mover.h"

#include <errno.h>

#include "core/link/upcalls.h"

enum {
	POLL_OTHERS = 4,		/* empty lanes that one call polls, beside home */
	POLL_RARELY = 64,		/* calls between polls of lanes that expect nothing */
	CHECK_FD = 256,		/* empty polls after which lane->fd is checked */
	BACKLOG_BYTES = 256 << 10,	/* received: send control frames even while data comes */
};

/* Somebody has to push the lane again: its mover, or the next call. */
static void left_over(struct braid_lane *lane)
{
	if (braid_mover_sends(lane))
		atomic_store(&lane->hand.due, true);
	else
		braid_link_stall(lane->link);
}

static inline size_t push_now(struct braid_lane *lane)
{
	uint64_t before = lane->tx.unsent;
	int err;

	braid_assert_locked(&lane->link->lock);
	/* A dead link's frames may point to memory that was given back. */
	if (!lane->tx.unsent || !braid_lane_up(lane) ||
	    atomic_load_explicit(&lane->link->state, memory_order_relaxed) == BRAID_LINK_DEAD)
		return 0;
	if (lane->pushing) {
		left_over(lane);
		return 0;
	}
	lane->pushing = true;
	err = lane->tr->push(lane);
	lane->pushing = false;
	/* If only STARTs are left, they wait for their chunks, which may still use this lane. */
	lane->blocked = err == -EAGAIN && !(lane == braid_link_home(lane->link) &&
					    braid_link_only_starts(lane->link));
	if (lane->tx.unsent)
		left_over(lane);
	if (err && err != -EAGAIN) {
		atomic_store(&lane->unread, true);
		braid_unlock(&lane->link->lock);
		braid_lane_died(lane, NULL, err);
		braid_lock_wait(&lane->link->lock);
	}
	/* Other threads may have queued more meanwhile. */
	return before > lane->tx.unsent ? before - lane->tx.unsent : 0;
}

BRAID_APART size_t braid_lane_push_now(struct braid_lane *lane)
{
	return push_now(lane);
}

/*
 * Push one lane, with the link's lock held, which the transport may drop and retake.  Returns the
 * bytes sent: callers bound the bytes of one call over all lanes.
 */
size_t braid_lane_push(struct braid_lane *lane)
{
	/* A full lane stays with the callers, so that a mover need not wait for the network. */
	if (__builtin_expect(lane->tx.unsent >= BRAID_HAND_MIN, false) &&
	    (!lane->blocked || braid_mover_sends(lane)) &&
	    braid_mover_take(lane, BRAID_HAND_TX, lane->tx.unsent))
		return 0;
	return push_now(lane);
}

void braid_link_flush(struct braid_link *link)
{
	braid_assert_locked(&link->lock);
	braid_lane_push(braid_link_home(link));
}

void braid_link_send(struct braid_link *link, bool now)
{
	braid_assert_locked(&link->lock);
	link->tx.isend_epoch++;
	link->tx.burst_now = link->tx.quiet ? 0 : link->tx.burst_now + 1;
	braid_hint(&link->tx.quiet, false);
	if (!braid_list_empty(&link->tx.pending))
		braid_link_feed(link);
	if (now && !braid_link_only_starts(link))
		braid_lane_push(braid_link_home(link));
}

/*
 * A NIC does not report that the peer's process has ended, but the socket of the handshake does.
 * Check it now and then; in each round while the service thread watches.
 */
static inline bool is_check_due(struct braid_lane *lane)
{
	return ++lane->idle_polls % CHECK_FD == 0 || atomic_load(&lane->link->thread.watched);
}

static inline int poll_held(struct braid_lane *lane)
{
	bool up = braid_lane_up(lane);
	int n;

	braid_assert_locked(&lane->io);
	n = up || braid_lane_unread(lane) ? lane->tr->poll(lane) : 0;
	if (n > 0)
		lane->idle_polls = 0;
	else if (up && lane->tr->blob && (n < 0 || is_check_due(lane)))
		n = braid_lane_final_poll(lane, n);
	if (n < 0)
		braid_lane_died(lane, lane->rx_broken, n);	/* before another thread reads it */
	if (n <= 0 && !up)
		atomic_store(&lane->unread, false);
	return n;
}

BRAID_APART int braid_lane_poll_held(struct braid_lane *lane)
{
	return poll_held(lane);
}

static inline int lane_poll(struct braid_lane *lane)
{
	int n;

	if (!braid_lane_up(lane) && !braid_lane_unread(lane))
		return 0;
	if (!braid_trylock(&lane->io))
		return 1;		/* another thread polls it */
	n = poll_held(lane);
	braid_unlock(&lane->io);
	return n;
}

/*
 * Poll lanes other than the peer's home in turn, until one had something.  Reading empty sockets
 * is cheaper than an epoll set, whose lock every arriving packet must take.
 */
static BRAID_APART int poll_others(struct braid_link *link, unsigned most)
{
	unsigned others = atomic_load_explicit(&link->nlanes, memory_order_acquire) - 1;
	unsigned turn = atomic_load_explicit(&link->rx.poll_turn, memory_order_relaxed);
	unsigned home = atomic_load_explicit(&link->rx.home, memory_order_relaxed);
	int moved = 0;

	if (most > others)
		most = others;
	for (unsigned i = 0; i < most && !moved; i++)
		moved = lane_poll(link->lane[(home + 1 + turn++ % others) % (others + 1)]);
	atomic_store_explicit(&link->rx.poll_turn, turn, memory_order_relaxed);
	return moved;
}

/* How many other lanes to poll.  If no chunks are expected: one now and then, as it may be dead. */
static unsigned others_due(struct braid_link *link)
{
	unsigned calls = atomic_load_explicit(&link->rx.calls, memory_order_relaxed) + 1;

	atomic_store_explicit(&link->rx.calls, calls, memory_order_relaxed);
	if (atomic_load_explicit(&link->rx.spread, memory_order_relaxed) ||
	    atomic_load_explicit(&link->rx.copies, memory_order_relaxed) ||
	    atomic_load_explicit(&link->lanes.ndown, memory_order_relaxed))
		return POLL_OTHERS;
	return calls % POLL_RARELY == 0;
}

/* Work left over: lanes that were full or busy, chunks without a lane, bytes for a GPU. */
static BRAID_APART void push_waiting(struct braid_link *link)
{
	size_t moved = 0;
	unsigned turn;

	if (!braid_trylock(&link->lock))
		return;
	atomic_store_explicit(&link->tx.stalled, false, memory_order_relaxed);
	if (!braid_comm_deliver(link))
		braid_link_stall(link);
	turn = link->tx.push_turn++;
	for (unsigned k = 0; k < link->nlanes; k++) {
		/* Home first, then the others.  Each call starts from another one of these. */
		unsigned i = k ? 1 + (k - 1 + turn) % (link->nlanes - 1) : 0;
		struct braid_lane *lane = link->lane[(link->lanes.home + i) % link->nlanes];

		/* Of the lanes that were full, one a call is tried again. */
		if (moved < BRAID_CALL_BUDGET &&
		    (k ? !lane->blocked || k == 1 : !braid_link_only_starts(link)))
			moved += braid_lane_push(lane);
		else
			braid_link_stall(link);
	}
	if (moved < BRAID_CALL_BUDGET &&
	    (link->lanes.norphaned || !braid_list_empty(&link->tx.pending)))
		braid_link_feed(link);
	else if (!braid_list_empty(&link->tx.pending))
		braid_link_stall(link);
	braid_unlock(&link->lock);
}

/*
 * The link with control frames deferred by braid_link_defer_control(), or NULL.  A thread may use
 * it with this lock held, or if it has a comm on the link.
 */
static struct {
	struct braid_lock lock;
	_Atomic(struct braid_link *) link;
} deferred;

void braid_link_forget_deferred(struct braid_link *link)
{
	struct braid_link *other = link;

	braid_lock_wait(&deferred.lock);
	atomic_compare_exchange_strong(&deferred.link, &other, NULL);
	braid_unlock(&deferred.lock);
}

/* Flush the deferred control frames of a link other than `link`, which sends its own. */
static BRAID_APART void flush_deferred(const struct braid_link *link)
{
	struct braid_link *other = atomic_load(&deferred.link);

	if (!other || other == link || !braid_trylock(&deferred.lock))
		return;
	if (atomic_compare_exchange_strong(&deferred.link, &other, NULL) &&
	    braid_link_is_urgent(other) && atomic_load(&other->state) == BRAID_LINK_UP)
		braid_link_try_flush_control(other);
	braid_unlock(&deferred.lock);
}

void braid_link_defer_control(struct braid_link *link)
{
	if (!braid_link_is_urgent(link) ||
	    atomic_load_explicit(&deferred.link, memory_order_relaxed) == link)
		return;
	flush_deferred(link);
	atomic_store(&deferred.link, link);
}

/* An idle test(): end the burst, and send control frames that are urgent. */
static BRAID_APART void idle_test(struct braid_link *link, uint64_t *epoch)
{
	bool urgent = braid_link_is_urgent(link), over;

	if (!braid_trylock(&link->lock))
		return;
	over = *epoch == link->tx.isend_epoch;
	*epoch = link->tx.isend_epoch;
	if (urgent)
		braid_link_send_control(link);
	if (!braid_link_home(link)->tx.unsent)
		braid_hint(&link->tx.quiet, true);
	else if ((urgent || over) && !braid_link_home(link)->blocked)
		braid_link_flush(link);
	braid_unlock(&link->lock);
}

/*
 * Data keeps coming, so no test() is idle, and the caller's request is not done: send credits and
 * acknowledgements anyway, before the sender runs out of them.
 */
BRAID_APART void braid_link_ack_backlog(struct braid_link *link, bool dry)
{
	uint64_t unacked = 0;

	if (!braid_trylock(&link->lock))
		return;
	for (unsigned i = 0; i < link->nlanes; i++)
		unacked += link->lane[i]->rx_quiet;
	if (dry || unacked >= BACKLOG_BYTES) {
		braid_link_send_control(link);
		braid_link_flush(link);
	}
	braid_unlock(&link->lock);
}

/* The link is dead.  Complete messages may still have to be copied into a GPU. */
static BRAID_APART void move_remains(struct braid_link *link)
{
	if (!braid_link_is_stalled(link) || !braid_trylock(&link->lock))
		return;
	braid_hint(&link->tx.stalled, !braid_comm_deliver(link));
	braid_unlock(&link->lock);
}

/* Make progress.  all: poll every lane. */
static inline int move(struct braid_link *link, bool all)
{
	unsigned others;
	int moved, more;

	if (atomic_load_explicit(&link->state, memory_order_acquire) != BRAID_LINK_UP) {
		move_remains(link);
		return -ENOTCONN;
	}
	moved = lane_poll(link->lane[atomic_load_explicit(&link->rx.home, memory_order_relaxed)]);
	if (moved >= 0 && atomic_load_explicit(&link->nlanes, memory_order_acquire) > 1) {
		others = all ? BRAID_LANES_MAX : others_due(link);
		more = others ? poll_others(link, others) : 0;
		moved = more < 0 ? more : moved + more;
	}
	if (moved >= 0 && braid_link_is_stalled(link))
		push_waiting(link);
	return moved;
}

int braid_link_move(struct braid_link *link)
{
	return move(link, true);
}

/* The service thread must tick, not only watch: it sends frames that data calls leave queued. */
void braid_link_unpark(struct braid_link *link)
{
	if (atomic_exchange(&link->thread.watched, false))
		braid_link_wake(link);
}

void braid_link_progress(struct braid_link *link, uint64_t *idle, const atomic_bool *done)
{
	int moved = move(link, false);

	braid_link_touch(link);
	/* The request is done: control frames leave with what the caller posts next. */
	if (!idle || (done && atomic_load_explicit(done, memory_order_relaxed)))
		return;
	if (!moved && (braid_link_is_urgent(link) ||
		       !atomic_load_explicit(&link->tx.quiet, memory_order_relaxed)))
		idle_test(link, idle);
	else if (moved > 0 && braid_link_is_urgent(link))
		braid_link_ack_backlog(link, false);
	if (!moved && atomic_load_explicit(&deferred.link, memory_order_relaxed))
		flush_deferred(link);
}
