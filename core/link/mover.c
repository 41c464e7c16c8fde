/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mover.c - see mover.h.
 *
 * A mover goes round the lanes in its hands, one call of push() or poll() each.  Lanes come to it
 * over `inbox`, under the mover's own lock, the last in the order of locks.  Only the thread itself
 * uses the list of lanes that it has.
 */
#include "core/link/mover.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "core/link/control.h"
#include "core/link/lane_io.h"
#include "core/link/link_int.h"
#include "core/link/mover_int.h"

enum {
	SPIN_NS = 100000,		/* without movement until a lane is given back */
	RETRY_NS = 10000,		/* between tries of a lane that takes no more */
	JOIN_MS = 1000,
	CPUS_MIN = 4,			/* BRAID_THREADS=-1: none where there are fewer CPUs */
	AUTO_MAX = 8,			/* the same: threads of one NIC, at most */
};

static struct braid_list all = { &all, &all };	/* the service thread's */

/* --- hand over, give back ------------------------------------------------------------------ */

static bool is_up(const struct braid_lane *lane)
{
	return braid_lane_up(lane) && atomic_load(&lane->link->state) == BRAID_LINK_UP;
}

static void enlist(struct braid_mover *m, struct braid_lane *lane)
{
	braid_assert_locked(&m->lock);
	braid_link_pin(lane->link);
	braid_list_add_tail(&m->inbox, &lane->hand.node);
	if (!m->asleep)
		return;
	m->asleep = false;
	braid_os->wake(m->efd);
}

BRAID_APART bool braid_mover_take(struct braid_lane *lane, unsigned what, size_t bytes)
{
	struct braid_mover *m = atomic_load(&lane->hand.by);
	bool ok;

	braid_count(&lane->hand.offered[what - 1], bytes);
	if (!m)
		return false;
	if (what == BRAID_HAND_TX)
		atomic_store(&lane->hand.due, true);
	/* Nobody gives it back meanwhile: that takes the lock which this caller holds. */
	if (atomic_load(&lane->hand.what) & what)
		return true;
	if (!braid_trylock(&m->lock))
		return false;
	ok = !m->closed && m == atomic_load(&lane->hand.by) && is_up(lane);
	if (ok) {
		atomic_fetch_or(&lane->hand.what, what);
		if (what == BRAID_HAND_RX)
			braid_lock_claim(&lane->io);
		if (braid_list_empty(&lane->hand.node))	/* else m has it still */
			enlist(m, lane);
		braid_count(&m->taken, 1);
	}
	braid_unlock(&m->lock);
	return ok;
}

/* If a mover receives on the lane, the caller is that mover: others don't poll it. */
bool braid_rx_hand(struct braid_lane *lane)
{
	braid_assert_locked(&lane->io);
	return !braid_mover_receives(lane) &&
	       braid_mover_take(lane, BRAID_HAND_RX, lane->rx_left);
}

/* The caller holds the lock that guards that direction: the link's, or io. */
static void give_back(struct braid_mover *m, struct braid_lane *lane, unsigned what)
{
	if (what == BRAID_HAND_RX)
		braid_lock_unclaim(&lane->io);
	braid_lock_wait(&m->lock);
	atomic_fetch_and(&lane->hand.what, ~what);
	braid_unlock(&m->lock);
}

/* If no direction is left in its hands, drop the lane.  It may be handed over again at once. */
static void drop_empty(struct braid_mover *m, struct braid_lane *lane)
{
	struct braid_link *link = lane->link;
	bool empty;

	braid_lock_wait(&m->lock);
	empty = !atomic_load(&lane->hand.what);
	if (empty)
		braid_list_del(&lane->hand.node);
	braid_unlock(&m->lock);
	if (empty)
		braid_link_unpin(link);
}

/* --- one lane ------------------------------------------------------------------------------ */

static bool is_stale(uint64_t since_ns, uint64_t now)
{
	return braid_since(since_ns, now) >= SPIN_NS;
}

/* From now on the callers push the lane, or the service thread if none of them calls. */
static void leave_to_callers(struct braid_lane *lane)
{
	if (lane->tx.unsent)
		braid_link_stall(lane->link);
	braid_link_unpark(lane->link);
}

/* Push once, and cut the next chunks, for all lanes of the link. */
static bool send_some(struct braid_mover *m, struct braid_lane *lane, uint64_t now, bool leave)
{
	struct braid_link *link = lane->link;
	bool due = atomic_exchange(&lane->hand.due, false);
	uint64_t before, n;

	if (!due && !leave && is_up(lane) && !is_stale(lane->hand.sent_ns, now))
		return false;
	if (due && lane->hand.full && !leave && now < lane->hand.retry_ns) {
		atomic_store(&lane->hand.due, true);
		return false;
	}
	braid_lock_wait(&link->lock);
	before = lane->tx_bytes;
	braid_lane_push_now(lane);
	n = lane->tx_bytes - before;
	lane->hand.full = lane->blocked;
	lane->hand.retry_ns = now + RETRY_NS;
	braid_count(&m->sent, n);
	if (n)
		lane->hand.sent_ns = now;
	if (n && !braid_list_empty(&link->tx.pending) && is_up(lane))
		braid_link_feed(link);
	if (leave || !is_up(lane) || (!n && is_stale(lane->hand.sent_ns, now))) {
		give_back(m, lane, BRAID_HAND_TX);
		leave_to_callers(lane);
	}
	braid_unlock(&link->lock);
	return n;
}

/* Poll once.  Those that wait for the io lock go first: close, deregMr, recovery. */
static bool receive_some(struct braid_mover *m, struct braid_lane *lane, uint64_t now, bool leave)
{
	struct braid_link *link = lane->link;
	uint64_t bytes;
	int n;

	if (!braid_lock_take_claimed(&lane->io))
		return false;
	bytes = atomic_load_explicit(&lane->rx_bytes, memory_order_relaxed);
	n = is_up(lane) ? braid_lane_poll_held(lane) : -ENOTCONN;
	bytes = atomic_load_explicit(&lane->rx_bytes, memory_order_relaxed) - bytes;
	braid_count(&m->received, bytes);
	if (n > 0)
		lane->hand.came_ns = now;
	if (leave || n < 0 || (!n && is_stale(lane->hand.came_ns, now))) {
		give_back(m, lane, BRAID_HAND_RX);
		braid_link_unpark(link);
	}
	braid_unlock(&lane->io);
	if ((n > 0 || lane->hand.came) && braid_link_is_urgent(link))
		braid_link_ack_backlog(link, n <= 0);
	lane->hand.came = n > 0;
	return bytes;			/* none: perhaps another thread holds the link's lock */
}

/* --- the thread ---------------------------------------------------------------------------- */

static void see_new(struct braid_mover *m, uint64_t now)
{
	braid_lock_wait(&m->lock);
	while (!braid_list_empty(&m->inbox)) {
		struct braid_lane *lane = braid_list_entry(m->inbox.next, struct braid_lane,
							   hand.node);

		braid_list_del(&lane->hand.node);
		braid_list_add_tail(&m->lanes, &lane->hand.node);
		lane->hand.sent_ns = lane->hand.came_ns = now;
		lane->hand.full = lane->hand.came = false;
	}
	braid_unlock(&m->lock);
}

/* One call for each lane.  False: nothing moved. */
static bool go_round(struct braid_mover *m, bool stop)
{
	struct braid_lane *lane, *tmp;
	bool moved = false;

	see_new(m, braid_os->now_ns());
	braid_list_for_safe(lane, tmp, &m->lanes, hand.node) {
		unsigned what = atomic_load(&lane->hand.what);
		bool leave = stop || atomic_load(&lane->hand.by) != m;
		uint64_t now = braid_os->now_ns();

		if (what & BRAID_HAND_TX)
			moved |= send_some(m, lane, now, leave);
		if (what & BRAID_HAND_RX)
			moved |= receive_some(m, lane, now, leave);
		drop_empty(m, lane);
	}
	return moved;
}

static void sleep_until_handed(struct braid_mover *m)
{
	struct epoll_event ev;
	bool sleep;

	braid_lock_wait(&m->lock);
	sleep = braid_list_empty(&m->inbox) && !atomic_load(&m->stop);
	m->asleep = sleep;
	braid_unlock(&m->lock);
	if (!sleep)
		return;
	braid_os->epoll_wait(m->ep, &ev, 1, -1);
	braid_os->unwake(m->efd);
}

/* True: its hands are empty, and stay so. */
static bool is_over(struct braid_mover *m)
{
	bool over;

	braid_lock_wait(&m->lock);
	m->closed = true;
	over = braid_list_empty(&m->inbox) && braid_list_empty(&m->lanes);
	braid_unlock(&m->lock);
	return over;
}

static void *mover_thread(void *arg)
{
	struct braid_mover *m = arg;
	uint64_t idle_ns = 0, now;

	for (;;) {
		bool stop = atomic_load(&m->stop);
		bool moved = go_round(m, stop);

		if (stop && is_over(m))
			return NULL;
		if (moved) {
			idle_ns = 0;
			continue;
		}
		braid_yield();
		now = braid_os->now_ns();
		if (!idle_ns)
			idle_ns = now;
		if (braid_list_empty(&m->lanes) && is_stale(idle_ns, now))
			sleep_until_handed(m);
	}
}

/* --- start and end ------------------------------------------------------------------------- */

static void close_fds(struct braid_mover *m)
{
	if (m->efd >= 0)
		braid_os->close(m->efd);
	if (m->ep >= 0)
		braid_os->close(m->ep);
	m->efd = m->ep = -1;
}

static int start(struct braid_movers *s, struct braid_mover *m)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int err = 0;

	braid_list_init(&m->inbox);
	braid_list_init(&m->lanes);
	m->efd = braid_os->eventfd();
	m->ep = m->efd < 0 ? -1 : braid_os->epoll_create();
	if (m->ep < 0 || braid_os->epoll_ctl(m->ep, EPOLL_CTL_ADD, m->efd, &ev))
		err = -errno;
	if (!err)
		err = braid_os->thread_start(&m->thread, mover_thread, m, "braid-mover");
	if (err)
		close_fds(m);
	else
		braid_os->thread_near(m->thread, &s->dev->near);
	return err;
}

/* How many threads a NIC may have.  By measurement: none where there are few CPUs. */
static unsigned most_threads(void)
{
	unsigned cpus;

	if (braid_param.threads >= 0)
		return (unsigned)braid_param.threads;
	cpus = braid_os->cpus();
	if (cpus < CPUS_MIN)
		return 0;
	return cpus / 2 < AUTO_MAX ? cpus / 2 : AUTO_MAX;
}

/* Start threads until there are n of them, or one can't be started. */
static void start_missing(struct braid_movers *s, unsigned n)
{
	int err = 0;

	while (s->n < n && !s->failed) {
		err = start(s, &s->mover[s->n]);
		s->failed = err;
		s->n += !err;
	}
	if (err)
		braid_warn("device %s: %u of %u threads of BRAID_THREADS started: %s; the callers "
			   "move the rest [no-threads]", s->dev->net.name, s->n, n, strerror(-err));
}

void braid_movers_use(struct braid_movers *s, unsigned n)
{
	start_missing(s, n);
	s->active = n < s->n ? n : s->n;
}

/* The movers of that NIC; NULL: it gets none. */
static struct braid_movers *movers_of(struct braid_dev *dev)
{
	struct braid_movers *s = dev->movers;
	unsigned most;

	if (s)
		return s;
	most = most_threads();
	s = calloc(1, sizeof(*s) + most * sizeof(s->mover[0]));
	if (!s)
		return NULL;
	s->dev = dev;
	s->most = most;
	braid_list_add_tail(&all, &s->node);
	atomic_store(&dev->movers, s);
	if (braid_param.threads > 0) {
		braid_movers_use(s, most);
		braid_info("device %s: %u threads move large messages over TCP", dev->net.name,
			   s->active);
	}
	return s;
}

/*
 * From now on the lane is handed to mover `to`, or to none if that is NULL.  While the lane's last
 * mover still has it, the lane is handed to none: a later call tries again.
 */
static void assign(struct braid_lane *lane, struct braid_mover *to)
{
	struct braid_lane_hand *h = &lane->hand;

	if (atomic_load(&h->by) == to)
		return;
	atomic_store(&h->by, NULL);
	if (!h->last) {
		braid_list_init(&h->node);
	} else {
		bool dropped;

		braid_lock_wait(&h->last->lock);
		dropped = !atomic_load(&h->what) && braid_list_empty(&h->node);
		braid_unlock(&h->last->lock);
		if (!dropped)
			return;
	}
	if (!to)
		return;
	h->last = to;
	atomic_store(&h->by, to);
}

void braid_movers_tick(struct braid_link *link, uint64_t now)
{
	bool tuned = braid_param.threads < 0;

	for (unsigned i = 0; braid_param.threads && i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];
		struct braid_movers *s;

		if (!braid_lane_up(lane) || !lane->tr->copies || (tuned && lane->local))
			continue;
		s = movers_of(link->key.dev->member[lane->member]);
		if (!s || !s->most)
			continue;
		if (tuned)
			braid_movers_tune(s, lane, now);
		assign(lane, s->active ? &s->mover[(link->number + i) % s->active] : NULL);
	}
}

static void log_end(const struct braid_movers *s)
{
	struct braid_movers_seen seen;

	braid_movers_look(s->dev, &seen);
	if (seen.taken)
		braid_info("device %s: %u threads moved large messages: %" PRIu64 " bytes sent, %"
			   PRIu64 " received, taken over %" PRIu64 " times", s->dev->net.name, s->n,
			   seen.sent, seen.received, seen.taken);
}

void braid_movers_end(void)
{
	struct braid_movers *s;

	braid_list_for(s, &all, node) {
		for (unsigned i = 0; i < s->n; i++) {
			atomic_store(&s->mover[i].stop, true);
			braid_os->wake(s->mover[i].efd);
		}
	}
	braid_list_for(s, &all, node) {
		for (unsigned i = 0; i < s->n && !s->lost; i++)
			s->lost = braid_os->thread_join(s->mover[i].thread, JOIN_MS);
		if (s->lost)
			braid_warn("device %s: a thread of BRAID_THREADS did not end within %d s; "
				   "it is left behind [thread-left]", s->dev->net.name,
				   JOIN_MS / 1000);
		log_end(s);
	}
}

void braid_movers_free(void)
{
	struct braid_movers *s, *tmp;

	braid_list_for_safe(s, tmp, &all, node) {
		braid_list_del(&s->node);
		atomic_store(&s->dev->movers, NULL);
		for (unsigned i = 0; i < s->n && !s->lost; i++)
			close_fds(&s->mover[i]);
		if (!s->lost)
			free(s);
	}
}

void braid_movers_look(const struct braid_dev *dev, struct braid_movers_seen *ret)
{
	const struct braid_movers *s = atomic_load(&dev->movers);

	*ret = (struct braid_movers_seen){ .n = s ? s->n : 0, .active = s ? s->active : 0 };
	for (unsigned i = 0; i < ret->n; i++) {
		ret->taken += s->mover[i].taken;
		ret->sent += s->mover[i].sent;
		ret->received += s->mover[i].received;
	}
}
