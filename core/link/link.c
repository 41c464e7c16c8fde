/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * link.c - sending and receiving on a link: lanes, chunks, acknowledgements, and when they leave.
 *
 * When frames leave:
 *   - A small isend leaves at once if its caller was waiting before it.  In a burst it is held back
 *     for the rest of the burst, until a second idle test() of one comm shows that the burst is
 *     over.
 *   - Acknowledgements and credits leave with the next frame.  Those that the peer waits for
 *     (`control_urgent`) leave alone at the first idle test(), also one of another link if nothing
 *     more is posted here (braid_link_defer_control).  The rest leave at half a window, or when the
 *     service thread comes by (braid_link_try_flush_control).
 *   - A chunk goes to the lane on which it will arrive first, of those that take more now.
 *
 * An idle test() is one during which nothing moved.
 *
 * Lanes lose their carriers and get others.  This file says what then happens to their frames;
 * core/setup/heal.c decides when.
 */
#include "core/link/link.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/proto/auth.h"
#include "core/base/copy.h"
#include "core/base/flight.h"
#include "core/base/log.h"
#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/link/refusal.h"
#include "core/setup/service.h"

enum {
	HOME_RING = 256 << 10, HOME_FRAMES = 1024,
	LANE_RING = 16 << 10, LANE_FRAMES = 128,
	SPREAD_MIN = 32 << 10,		/* least bytes worth a lane of their own */
	WORTH_WAITING = 2,		/* times faster than the best lane that takes more now */
	LANE_QUEUE = 256 << 10,		/* bytes queued for a lane that the carrier has not taken */
	ACK_FRAMES = 128,		/* frames received: acknowledge at the latest then */
	POLL_OTHERS = 4,		/* empty lanes that one call polls, beside home */
	POLL_RARELY = 64,		/* calls between polls of lanes that expect nothing */
	TELL_BYTES = 256 << 10,		/* received: send control frames although data comes */
};

/* --- life ---------------------------------------------------------------------------------- */

struct braid_link *braid_link_new(const struct braid_link_key *key)
{
	struct braid_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->bucket = calloc(BRAID_LINK_BUCKETS, sizeof(*link->bucket));
	if (!link->bucket) {
		free(link);
		return NULL;
	}
	link->key = *key;
	braid_hint(&link->quiet, true);
	link->burst = 8;
	link->active = 1;
	braid_list_init(&link->node);
	braid_list_init(&link->comms);
	braid_list_init(&link->pending);
	braid_list_init(&link->control_due);
	braid_list_init(&link->copying);
	return link;
}

/*
 * The link with control frames deferred by braid_link_defer_control(), or NULL.  A thread may use
 * it with this lock held, or if it has a comm on the link.
 */
static struct {
	struct braid_lock lock;
	_Atomic(struct braid_link *) link;
} deferred;

static void deferred_forget(struct braid_link *link)
{
	struct braid_link *other = link;

	braid_lock_wait(&deferred.lock);
	atomic_compare_exchange_strong(&deferred.link, &other, NULL);
	braid_unlock(&deferred.lock);
}

void braid_link_free(struct braid_link *link)
{
	deferred_forget(link);
	braid_refusal_free(link);
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		braid_lock_wait(&lane->io);
		lane->tr->lane_close(lane);
		braid_txq_fini(&lane->tx);
		free(lane->rx_stage);
		free(lane);
	}
	braid_pool_unpromise(link->rx_window);
	braid_auth_wipe(link->session, sizeof(link->session));
	free(link->bucket);
	free(link);
}

static int lane_attach(struct braid_lane *lane)
{
	bool home = lane->index == lane->link->home;
	int err = braid_txq_init(&lane->tx, home ? HOME_RING : LANE_RING,
				 home ? HOME_FRAMES : LANE_FRAMES);

	if (!err)
		err = lane->tr->lane_attach(lane);
	if (err)
		braid_txq_fini(&lane->tx);
	return err;
}

static void lane_detach(struct braid_lane *lane)
{
	lane->tr->lane_detach(lane);
	braid_txq_fini(&lane->tx);
}

int braid_link_attach(struct braid_link *link)
{
	for (unsigned i = 0; !link->attached && i < link->nlanes; i++) {
		int err = lane_attach(link->lane[i]);

		if (err) {
			while (i--)
				lane_detach(link->lane[i]);
			return err;
		}
	}
	link->attached = true;
	return 0;
}

void braid_link_detach(struct braid_link *link)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (!braid_txq_idle(&link->lane[i]->tx) || link->lane[i]->rx_left ||
		    link->lane[i]->tr->dma)	/* its NIC may still read the ring */
			return;
	}
	for (unsigned i = 0; link->attached && i < link->nlanes; i++)
		lane_detach(link->lane[i]);
	link->attached = false;
}

/* The largest of all transports, since another one may carry the lane later. */
static size_t lane_size(const struct braid_transport *tr)
{
	size_t size = tr->lane_size;

	for (unsigned i = 0; braid_transports[i]; i++) {
		if (braid_transports[i]->lane_size > size)
			size = braid_transports[i]->lane_size;
	}
	return size;
}

/* Take over a new carrier for the lane. */
static int lane_take(struct braid_lane *lane, const struct braid_carrier *c)
{
	memset(lane + 1, 0, lane->size - sizeof(*lane));
	lane->tr = c->tr;
	lane->epoch = c->epoch;
	lane->fd = c->fd;
	lane->event_fd = -1;
	lane->priv = c->priv;
	lane->member = c->member;
	lane->peer_member = c->peer_member;
	lane->peer_rkey_epoch = c->peer_rkey_epoch;
	lane->ack_frames = ACK_FRAMES;
	lane->rx_broken = NULL;
	lane->gpu = false;
	lane->stopping = lane->writes_due = lane->writes_told = false;
	return c->tr->lane_open(lane);
}

/* The carrier was set up before memory was given back, and the peer could still write there. */
static bool is_outdated(const struct braid_link *link, const struct braid_carrier *c)
{
	return c->tr->dma && c->rkey_epoch != link->rkey_epoch;
}

int braid_link_add_lane(struct braid_link *link, unsigned index, const struct braid_carrier *c)
{
	struct braid_lane *lane;
	int err;

	if (index != link->nlanes || index >= BRAID_LANES_MAX)
		return -EEXIST;
	lane = calloc(1, lane_size(c->tr));
	if (!lane)
		return -ENOMEM;
	lane->size = lane_size(c->tr);
	lane->link = link;
	lane->index = (uint8_t)index;
	err = lane_take(lane, c);
	braid_lock_wait(&link->lock);
	if (!err && is_outdated(link, c))
		err = -EALREADY;
	if (!err && link->attached)
		err = lane_attach(lane);
	if (!err) {
		braid_event(BRAID_EVENT_LANE_ADDED, link->number, index, c->tr->id, 0);
		atomic_store(&lane->up, true);
		lane->dialled = c->epoch;
		link->lane[index] = lane;
		atomic_store(&link->nlanes, index + 1);
	}
	braid_unlock(&link->lock);
	if (err) {
		lane->fd = -1;
		lane->priv = NULL;
		c->tr->lane_close(lane);
		braid_txq_fini(&lane->tx);
		free(lane);
	}
	return err;
}

/* A receive comm whose sender has closed goes on, unless this end stops: its data is all here. */
static void fail_comms(struct braid_link *link, int err)
{
	struct braid_comm *c;

	braid_list_for(c, &link->comms, node) {
		if (c->sender || !c->peer_closed || err == -ENOTCONN)
			braid_comm_fail(c, err);
	}
}

void braid_link_down(struct braid_link *link, int err, const char *why)
{
	int state = atomic_load(&link->state);
	/* A caller waits for a link that is not up yet, unless this end stops it. */
	bool affected = state != BRAID_LINK_UP && err != -ENOTCONN;
	struct braid_comm *c;

	if (state == BRAID_LINK_DEAD) {
		if (err == -ENOTCONN)
			fail_comms(link, err);
		return;
	}
	braid_list_for(c, &link->comms, node) {
		/* A comm that is not opened yet is dialled again, or its dial logs the failure. */
		affected |= !c->closed && !c->peer_closed && (!c->sender || c->opened);
	}
	braid_log(affected ? BRAID_LOG_WARN : BRAID_LOG_INFO, __FILE__, __LINE__,
		  "device %s, peer %s: %s", link->key.dev->net.name, link->peer, why);
	braid_event(BRAID_EVENT_LINK_DOWN, link->number, BRAID_FLIGHT_NONE, err, 0);
	atomic_store(&link->err, err);
	fail_comms(link, err);		/* after the WARN: a caller that sees err finds it */
	atomic_store(&link->state, BRAID_LINK_DEAD);
	braid_service_kick();
}

void braid_link_fail(struct braid_link *link, int err, const char *fmt, ...)
{
	char why[BRAID_LOG_MAX];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	braid_lock_wait(&link->lock);
	braid_link_down(link, err, why);
	braid_unlock(&link->lock);
}

/* --- carriers come and go ------------------------------------------------------------------ */

/* Work is left: push_waiting() will do it. */
static void stall(struct braid_link *link)
{
	atomic_store_explicit(&link->stalled, true, memory_order_relaxed);
}

void braid_lane_lost(struct braid_lane *lane, int err)
{
	struct braid_link *link = lane->link;

	if (!braid_lane_up(lane))
		return;
	braid_info("device %s, peer %s: lane %u is lost (%s)", link->key.dev->net.name, link->peer,
		   lane->index, err == -ENOTCONN ? "closed by the peer" : strerror(-err));
	/* The carrier failed: neither end closed it. */
	lane->carrier_failed = lane->tr->blob && err != -ENOTCONN && err != -ECANCELED &&
			       err != -ECONNRESET;
	braid_event(BRAID_EVENT_LANE_LOST, link->number, lane->index, err,
		    atomic_fetch_add(&lane->lost, 1) + 1);
	atomic_fetch_add(&link->key.dev->lost, 1);
	atomic_store(&lane->up, false);
	atomic_fetch_add(&link->ndown, 1);
	braid_service_kick();
}

/* Log all counters of a lane that received malformed data: they help to find the cause. */
static void tell_broken(struct braid_lane *lane)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	const struct braid_txq *q = &lane->tx;

	braid_lock_wait(&lane->link->lock);
	braid_info("device %s, peer %s: lane %u (%s, opened %u times), broken: %s; last header: "
		   "%s %u, acknowledges %u, n %u, seq %u; received here: %u; sent: %u of %u, "
		   "acknowledged %u",
		   lane->link->key.dev->net.name, lane->link->peer, lane->index, lane->tr->name,
		   atomic_load(&lane->back) + 1, lane->rx_broken, braid_frame_name(h->type),
		   h->lseq, h->ack, h->n, h->seq, lane->rx_frames, q->f_sent, q->f_head,
		   q->f_peer_acked);
	braid_unlock(&lane->link->lock);
}

/* A lane's carrier failed.  A new one may work, unless the peer sent malformed data. */
static BRAID_COLD void lane_died(struct braid_lane *lane, const char *broken, int err)
{
	struct braid_link *link = lane->link;

	if (broken && (err == -EBADMSG || err == -EPROTO)) {
		tell_broken(lane);
		braid_link_fail(link, -EREMOTEIO,
				"the peer sent something broken on lane %u (%s); is its "
				"libnccl-net-braid.so damaged or of another build? [broken-link]",
				lane->index, broken);
	} else if (err == -ENOMEM) {
		braid_link_fail(link, err, "out of memory [no-memory]");
	} else if (link->peer_gone) {
		braid_link_fail(link, -EREMOTEIO, "the peer closed the link [link-ended]");
	} else {
		braid_lock_wait(&link->lock);
		braid_lane_lost(lane, err);
		braid_unlock(&link->lock);
	}
}

/* The lane sends and receives nothing any more, but its NIC may still be stopping. */
static bool is_closed(const struct braid_lane *lane)
{
	return lane->fd < 0 || lane->stopping;
}

/*
 * A lane closed at both ends, once the peer's NIC has stopped writing: both ends know which chunks
 * arrived, and the rest may go over other lanes.  Our NIC may still read those, but deregMr waits.
 */
static void lane_orphan(struct braid_lane *lane)
{
	if (lane->orphaned || !lane->peer_down || lane->peer_writes || !is_closed(lane))
		return;
	if (lane->index == lane->link->home) {	/* frames in order: braid_link_rehome() */
		braid_service_kick();
		return;
	}
	if (braid_tx_rewind(lane, lane->peer_frames)) {
		braid_link_down(lane->link, -EREMOTEIO, "the peer has lost count of its frames "
				"[broken-link]");
		return;
	}
	lane->orphaned = true;
	lane->link->norphaned++;
	stall(lane->link);
}

/* Drop a half received frame.  A chunk may come again on any lane; an EAGER is the next EAGER. */
static void rx_forget(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;
	bool entry = lane->rx_kind == BRAID_RX_ENTRY;

	braid_gpucopy_end(&lane->rx_copy);
	if (entry && lane->rx_hdr.type == BRAID_F_CHUNK) {
		braid_comm_rx_undo(lane);
	} else if (entry || lane->rx_kind == BRAID_RX_UM) {
		link->again.kind = lane->rx_kind;
		link->again.hdr = lane->rx_hdr;
		link->again.target = lane->rx_target;
		link->again.dst = lane->rx_dst;
		if (lane->rx_stage)
			link->again.dst = lane->rx_gpu;
		else if (lane->rx_dst)
			link->again.dst -= lane->rx_hdr.len - lane->rx_left;
	}
	free(lane->rx_stage);
	lane->rx_stage = NULL;
	lane->rx_kind = BRAID_RX_NONE;
	lane->rx_left = lane->rx_at = 0;
}

/* A lane that can become home, or NULL. */
static struct braid_lane *another_home(const struct braid_link *link)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (i != link->home && braid_lane_up(link->lane[i]) && !link->lane[i]->suspect_ns)
			return link->lane[i];
	}
	return NULL;
}

void braid_link_rehome(struct braid_link *link)
{
	struct braid_lane *home = braid_link_home(link), *to = another_home(link);
	bool closed;
	unsigned n;
	int err;

	braid_lock_wait(&link->lock);
	closed = is_closed(home) && home->peer_down;
	braid_unlock(&link->lock);
	if (!closed || !to)
		return;
	n = braid_link_stop(link);
	err = braid_tx_rewind(home, home->peer_frames);
	if (!err)
		err = braid_tx_take_over(home, to, home->peer_writes);
	if (!err) {
		link->home = to->index;
		braid_event(BRAID_EVENT_HOME, link->number, to->index, home->index, 0);
		braid_info("device %s, peer %s: lane %u is home now, lane %u is lost",
			   link->key.dev->net.name, link->peer, to->index, home->index);
		stall(link);
	} else {
		braid_link_down(link, err == -EPROTO ? -EREMOTEIO : err,
				err == -EPROTO ? "the peer has lost count of its frames "
						 "[broken-link]" :
						 "out of memory [no-memory]");
	}
	braid_link_go(link, n);
}

void braid_link_revoke(struct braid_link *link, bool (*uses)(const struct braid_lane *lane,
							     const struct braid_comm *c),
		       const struct braid_comm *c)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *lane = link->lane[i];

		if (!lane->tr->dma || (uses && !uses(lane, c)))
			continue;
		lane->tr->lane_fence(lane);	/* also if it is lost: its NIC may not know */
		braid_lane_lost(lane, -ECANCELED);
		atomic_store(&lane->unread, false);
	}
	if (!uses)
		link->rkey_epoch++;
}

void braid_link_end_copies(struct braid_link *link)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		braid_tx_leave(link->lane[i]);
		braid_gpucopy_end(&link->lane[i]->rx_copy);
	}
	braid_comm_leave(link);
}

/* Fence a lane.  Once its NIC has stopped, nothing accesses its memory any more. */
static void lane_stop(struct braid_lane *lane)
{
	lane->tr->lane_fence(lane);	/* the NIC may be writing what is dropped below */
	rx_forget(lane);
	braid_tx_leave(lane);
	if (lane->tr->dma)
		braid_stops_mark_one(lane->link->key.dev, lane->member, &lane->stops);
	else
		lane->stops = (struct braid_stops){ 0 };
	lane->stopping = true;
}

/*
 * Our NIC takes long to stop.  The peer may resend all but chunks before that: a transport without
 * `lands` writes nothing but chunks into user memory.
 */
static void lane_lingers(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;

	if (lane->writes_told)
		return;
	braid_lock_wait(&link->lock);
	lane->writes_told = true;
	lane->writes_due = !lane->tr->lands;
	lane_orphan(lane);
	braid_unlock(&link->lock);
	braid_link_urge(link);
}

static void lane_close(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;

	lane->tr->lane_close(lane);
	lane->stopping = false;
	/* DOWN frames about other lanes may have been lost with this one: send them again. */
	for (unsigned i = 0; i < link->nlanes; i++) {
		link->lane[i]->down_due = link->lane[i]->fd < 0;
		link->lane[i]->writes_due = link->lane[i]->writes_told && !link->lane[i]->tr->lands;
	}
	braid_link_urge(link);
	lane_orphan(lane);
}

static bool has_stopped(const struct braid_lane *lane)
{
	return lane->stopping && braid_stops_past(lane->link->key.dev, &lane->stops);
}

int braid_lane_fence(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;
	unsigned n;

	if (lane->stopping && !has_stopped(lane)) {
		lane_lingers(lane);
		return -EAGAIN;		/* no need to stop the other lanes */
	}
	n = braid_link_stop(link);
	if (atomic_exchange(&lane->up, false))
		atomic_fetch_add(&link->ndown, 1);
	atomic_store(&lane->unread, false);
	if (lane->fd >= 0 && !lane->stopping)
		lane_stop(lane);
	if (lane->fd >= 0 && has_stopped(lane))
		lane_close(lane);
	braid_link_go(link, n);
	return lane->fd >= 0 ? -EAGAIN : 0;
}

int braid_lane_resume(struct braid_lane *lane, const struct braid_carrier *c, uint32_t frames,
		      uint32_t first)
{
	struct braid_link *link = lane->link;
	unsigned n = braid_link_stop(link);
	int err;

	assert(lane->fd < 0);
	if (is_outdated(link, c)) {
		braid_link_go(link, n);
		return -EALREADY;
	}
	err = braid_tx_rewind(lane, frames);
	if (!err)
		err = lane_take(lane, c);
	if (!err) {
		/* Frames before `first` that did not arrive were ACKs: the peer keeps none. */
		if ((int32_t)(first - lane->rx_frames) > 0)
			lane->rx_frames = first;
		lane->rx_acked = lane->rx_frames;
		lane->down_due = lane->peer_down = lane->peer_writes = false;
		link->norphaned -= lane->orphaned;
		lane->orphaned = false;
		lane->suspect_ns = 0;
		lane->carrier_failed = false;
		braid_hint(&lane->blocked, false);
		braid_event(BRAID_EVENT_LANE_BACK, link->number, lane->index, c->tr->id, c->epoch);
		atomic_fetch_add(&lane->back, 1);
		atomic_fetch_add(&link->key.dev->redials, 1);
		atomic_store(&lane->up, true);
		atomic_fetch_sub(&link->ndown, 1);
		stall(link);
	} else {
		lane->fd = -1;
		lane->priv = NULL;
	}
	braid_link_go(link, n);
	return err;
}

/* --- lookup and control frames ------------------------------------------------------------- */

struct braid_comm *braid_link_comm(struct braid_link *link, uint32_t id)
{
	struct braid_comm *c = link->bucket[id % BRAID_LINK_BUCKETS];

	while (c && c->id != id)
		c = c->hash_next;
	return c;
}

bool braid_link_ctl(struct braid_link *link, struct braid_hdr *h, const void *payload)
{
	struct braid_lane *home = braid_link_home(link);

	if (!braid_txq_room_ctl(&home->tx))
		return false;
	braid_tx_add(home, h, payload, NULL, NULL);
	return true;
}

void braid_link_control_due(struct braid_link *link, struct braid_comm *c)
{
	if (braid_list_empty(&c->control_node))
		braid_list_add_tail(&link->control_due, &c->control_node);
}

/* Queue an ACK for a lane, if due.  Home needs none if another frame is about to be sent. */
static bool tell_ack(struct braid_link *link, unsigned i)
{
	struct braid_lane *home = braid_link_home(link), *lane = link->lane[i];
	struct braid_hdr h = {
		.type = BRAID_F_ACK, .n = (uint16_t)i, .seq = lane->rx_frames,
	};

	if (!lane->rx_some || (lane == home && home->tx.f_sent != home->tx.f_head))
		return true;
	if (!braid_link_ctl(link, &h, NULL))
		return false;
	braid_lane_told(lane);
	return true;
}

/* Queue the DOWN of a lane closed here: over home or, if home is down too, over another lane. */
static void tell_down(struct braid_link *link, unsigned i)
{
	struct braid_lane *lane = link->lane[i], *over = braid_link_home(link);
	struct braid_hdr h = {
		.type = BRAID_F_DOWN, .n = (uint16_t)i, .rseq = lane->epoch,
		.seq = lane->rx_frames,
	};

	if (!braid_lane_up(over))
		over = another_home(link);
	if (!(lane->down_due || lane->writes_due) || !over || !braid_txq_room_ctl(&over->tx))
		return;
	if (!lane->down_due) {
		h.rseq = (uint16_t)~lane->epoch;
		h.tag = BRAID_DOWN_WRITES;
	}
	braid_tx_add(over, &h, NULL, NULL, NULL);
	lane->down_due = lane->writes_due = false;
	stall(link);
}

/* Queue a LANES frame, if due: only the peer dials, and is asked for more lanes. */
static bool tell_lanes(struct braid_link *link)
{
	unsigned n = atomic_load_explicit(&link->ask_lanes, memory_order_relaxed);
	struct braid_hdr h = { .type = BRAID_F_LANES, .n = (uint16_t)n };

	if (!n || !link->attached)
		return true;
	if (link->nlanes < n && !braid_link_ctl(link, &h, NULL))
		return false;
	atomic_compare_exchange_strong(&link->ask_lanes, &n, 0);
	return true;
}

/* ACKs of other lanes go before BYE: after it they would find their sends failed. */
BRAID_APART bool braid_link_send_control(struct braid_link *link)
{
	struct braid_comm *c, *tmp;

	for (unsigned i = 0; i < link->nlanes; i++) {
		tell_down(link, i);
		if (i != link->home && !tell_ack(link, i))
			return false;
	}
	braid_list_for_safe(c, tmp, &link->control_due, control_node) {
		if (!braid_comm_send_control(c))
			return false;
		braid_list_del(&c->control_node);
		if (c->closed && c->peer_closed)
			braid_comm_free(c);
	}
	if (!braid_refusal_tell(link) || !tell_lanes(link) || !tell_ack(link, link->home))
		return false;
	/* Home's acknowledgement leaves with its next frame; until then it stays due. */
	braid_hint(&link->control_urgent, braid_link_home(link)->rx_ack_due);
	return true;
}

/* --- sending ------------------------------------------------------------------------------- */

void braid_link_pending(struct braid_link *link, struct braid_list *node)
{
	braid_list_add_tail(&link->pending, node);
	stall(link);
}

static bool is_stalled(const struct braid_link *link)
{
	return atomic_load_explicit(&link->stalled, memory_order_relaxed);
}

/*
 * Push one lane, with the link's lock held, which the transport may drop and retake.  Returns the
 * bytes sent: callers bound the bytes of one call over all lanes.
 */
static size_t lane_push(struct braid_lane *lane)
{
	uint64_t before = lane->tx.unsent;
	int err;

	/* A dead link's frames may point to memory that was given back. */
	if (!lane->tx.unsent || !braid_lane_up(lane) ||
	    atomic_load_explicit(&lane->link->state, memory_order_relaxed) == BRAID_LINK_DEAD)
		return 0;
	if (lane->pushing) {
		stall(lane->link);
		return 0;
	}
	lane->pushing = true;
	err = lane->tr->push(lane);
	lane->pushing = false;
	/* If only STARTs are left, they wait for their chunks, which may still use this lane. */
	lane->blocked = err == -EAGAIN && !(lane == braid_link_home(lane->link) &&
					    braid_link_only_starts(lane->link));
	if (lane->tx.unsent)
		stall(lane->link);
	if (err && err != -EAGAIN) {
		atomic_store(&lane->unread, true);
		braid_unlock(&lane->link->lock);
		lane_died(lane, NULL, err);
		braid_lock_wait(&lane->link->lock);
	}
	/* Other threads may have queued more meanwhile. */
	return before > lane->tx.unsent ? before - lane->tx.unsent : 0;
}

void braid_link_flush(struct braid_link *link)
{
	lane_push(braid_link_home(link));
}

static bool takes_more(const struct braid_lane *lane, bool single)
{
	const struct braid_txq *q = &lane->tx;

	return !lane->blocked && braid_lane_up(lane) && q->unsent < (single ? LANE_QUEUE : 1) &&
	       (!lane->flight_max || q->unacked < lane->flight_max) && braid_txq_room(q, 0);
}

/*
 * The lane on which a chunk will arrive first, of those that take more now.  NULL, to wait, if a
 * full lane is much faster: on a slow lane the chunk would delay its message.
 */
static struct braid_lane *pick_lane(struct braid_link *link)
{
	struct braid_lane *best = NULL;
	unsigned n = link->active < link->nlanes && !link->ndown ? link->active : link->nlanes;
	double cost, least = 1e18, least_of_all = 1e18, fastest = 1e9;

	for (unsigned i = 0; i < n && n > 1; i++) {
		if (braid_lane_up(link->lane[i]) && link->lane[i]->tx.ns_per_byte < fastest)
			fastest = link->lane[i]->tx.ns_per_byte;
	}
	for (unsigned i = 0; i < n; i++) {
		if (!braid_lane_up(link->lane[i]))
			continue;
		cost = braid_txq_cost(&link->lane[i]->tx, SPREAD_MIN, fastest);
		if (cost < least_of_all)
			least_of_all = cost;
		if (cost < least && takes_more(link->lane[i], n == 1)) {
			best = link->lane[i];
			least = cost;
		}
	}
	return least <= WORTH_WAITING * least_of_all ? best : NULL;
}

/*
 * Over how many lanes to divide a message.  Several TCP streams over one port are faster than one;
 * a NIC is as fast with one queue pair, and more pieces only cost it time.
 */
static unsigned shares(const struct braid_link *link)
{
	bool nic = braid_link_home(link)->tr->dma;

	return nic && link->npaths < link->active ? link->npaths : link->active;
}

/* Bytes of all chunks but the last: a multiple of BRAID_CHUNK_ALIGN, for at most 256 chunks. */
static uint32_t chunk_len(const struct braid_link *link, uint64_t size)
{
	uint64_t most = (uint64_t)braid_param.chunk;
	unsigned n = shares(link);
	uint64_t len = n > 1 ? size / (2 * n) : most;

	if (len < SPREAD_MIN)
		len = SPREAD_MIN;
	if (len > most)
		len = most;
	if (len < (size + BRAID_CHUNKS_MAX - 1) / BRAID_CHUNKS_MAX)
		len = (size + BRAID_CHUNKS_MAX - 1) / BRAID_CHUNKS_MAX;
	return (uint32_t)((len + BRAID_CHUNK_ALIGN - 1) & ~(uint64_t)(BRAID_CHUNK_ALIGN - 1));
}

/* Queue a send's next chunk.  False: no room for it, or at home for the START before it. */
static bool cut_chunk(struct braid_lane *lane, struct braid_send *s)
{
	struct braid_hdr h = {
		.type = BRAID_F_CHUNK, .comm = s->req.comm->id, .seq = s->seq, .rseq = s->rseq,
		.tag = s->tag, .n = s->chunks, .offset = s->cut, .size = s->size,
	};

	if (!braid_send_say_start(s) || !braid_txq_room(&lane->tx, 0))
		return false;
	if (!s->size) {			/* no window was left for an EAGER: START is all of it */
		braid_list_del(&s->node);
		braid_send_part_done(s);
		return true;
	}
	if (!s->cut)
		s->chunk = chunk_len(lane->link, s->size);
	h.len = s->size - s->cut < s->chunk ? (uint32_t)(s->size - s->cut) : s->chunk;
	s->parts++;
	braid_tx_add(lane, &h, NULL, s->data + s->cut, s);
	s->cut += h.len;
	s->chunks++;
	if (s->cut == s->size) {
		braid_list_del(&s->node);
		braid_send_part_done(s);
	}
	return true;
}

/* Move chunks of orphaned lanes to other lanes.  False: some are left. */
static bool feed_orphans(struct braid_link *link)
{
	size_t moved = 0;

	for (unsigned i = 0; i < link->nlanes; i++) {
		struct braid_lane *from = link->lane[i], *to;

		while (from->orphaned && from->tx.f_head != from->tx.f_acked) {
			to = pick_lane(link);
			if (!to || moved >= BRAID_CALL_BUDGET)
				return false;
			braid_tx_move(from, to);
			moved += lane_push(to);
		}
	}
	return true;
}

BRAID_APART void braid_link_feed(struct braid_link *link)
{
	size_t moved = 0;

	if (link->norphaned && !feed_orphans(link)) {
		stall(link);
		return;
	}
	for (int n = 8; n && moved < BRAID_CALL_BUDGET && !braid_list_empty(&link->pending); n--) {
		struct braid_lane *lane = pick_lane(link);

		if (!lane) {
			atomic_fetch_add_explicit(&link->starved, 1, memory_order_relaxed);
			break;
		}
		do {
			struct braid_list *first = link->pending.next;

			if (!cut_chunk(lane, braid_list_entry(first, struct braid_send, node)))
				break;
			/* A single lane takes several chunks a call; several take turns. */
		} while (link->active == 1 && !braid_list_empty(&link->pending) &&
			 pick_lane(link) == lane);
		if (lane != braid_link_home(link))
			braid_link_flush(link);		/* START leaves before its chunk */
		moved += lane_push(lane);
	}
	if (!braid_list_empty(&link->pending))
		stall(link);
}

/* --- receiving ----------------------------------------------------------------------------- */

static int rx_ack(struct braid_link *link, const struct braid_hdr *h)
{
	if (h->n >= link->nlanes)
		return -EBADMSG;
	return braid_tx_acked(link->lane[h->n], h->seq);
}

static int refuse_open(struct braid_link *link, uint32_t comm, int err)
{
	return braid_refusal_add(link, comm, err == -ENOMEM || err == -ENOSPC ?
						     BRAID_HELLO_NO_ROOM : BRAID_HELLO_NO_LISTEN);
}

static BRAID_APART int rx_open(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;
	struct braid_comm *c;
	struct braid_open open;
	int err;

	/* The dialled end assigns odd ids, the dialling end even ones. */
	if ((lane->rx_hdr.comm & 1) != link->dialler || braid_link_comm(link, lane->rx_hdr.comm))
		return -EBADMSG;
	braid_open_unpack(lane->rx_ctl, &open);
	if (braid_link_attach(link))	/* it may have been idle until now */
		return -ENOMEM;
	braid_link_urge(link);
	err = braid_listen_check(link, lane->rx_hdr.comm, &open);
	if (!err && link->ncomms >= BRAID_LINK_COMMS_MAX)
		err = -ENOSPC;
	if (err)
		return refuse_open(link, lane->rx_hdr.comm, err);
	c = braid_comm_new(link, lane->rx_hdr.comm, false);
	if (!c)
		return braid_no_memory("a connection");
	err = braid_listen_offer(c, &open);
	if (err) {			/* the listen was closed or filled since the check */
		braid_comm_free(c);
		return refuse_open(link, lane->rx_hdr.comm, err);
	}
	c->opened_due = true;
	braid_link_control_due(link, c);
	return 0;
}

static int rx_down(struct braid_link *link, const struct braid_hdr *h)
{
	bool writes = h->tag == BRAID_DOWN_WRITES;
	struct braid_lane *lane;

	if (h->n >= link->lanes_max)
		return -EBADMSG;
	if (h->n >= link->nlanes) {		/* lost before its handshake ended here */
		if (link->dialler && link->peer_lanes <= h->n)
			link->peer_lanes = h->n + 1u;
		braid_service_kick();
		return 0;
	}
	lane = link->lane[h->n];
	if ((uint16_t)(writes ? ~h->rseq : h->rseq) != lane->epoch)
		return 0;			/* the lane has been dialled again since */
	if (lane->peer_down && writes)
		return 0;			/* late: the plain DOWN overtook it */
	if (!lane->peer_down)
		lane->avoid_path = braid_lane_up(lane);
	braid_lane_lost(lane, -ECONNRESET);
	lane->peer_down = true;
	lane->peer_writes = writes;
	lane->peer_frames = h->seq;
	lane_orphan(lane);
	return 0;
}

static BRAID_APART int rx_link_frame(struct braid_lane *lane)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_link *link = lane->link;

	switch (h->type) {
	case BRAID_F_ACK:
		return rx_ack(link, h);
	case BRAID_F_OPEN:
		lane->rx_kind = BRAID_RX_CTL;
		lane->rx_dst = (char *)lane->rx_ctl;
		return 0;
	case BRAID_F_LANES:
		if (!h->n || h->n > link->lanes_max || !link->dialler)
			return -EBADMSG;
		link->want_lanes = h->n;
		braid_service_kick();
		return 0;
	case BRAID_F_DOWN:
		return rx_down(link, h);
	case BRAID_F_ALIVE:
		return 0;
	default:
		braid_event(BRAID_EVENT_PEER_CLOSED, link->number, BRAID_FLIGHT_NONE, 0, 0);
		link->peer_gone = true;
		return 0;
	}
}

/* The resent message that was half received when its lane was lost: same destination. */
static BRAID_APART int rx_begin_again(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;
	const struct braid_hdr *h = &lane->rx_hdr, *was = &link->again.hdr;

	if (h->comm != was->comm || h->seq != was->seq || h->rseq != was->rseq ||
	    h->tag != was->tag || h->len != was->len || h->flags != was->flags)
		return -EBADMSG;
	lane->rx_kind = link->again.kind;
	lane->rx_target = link->again.target;
	lane->rx_dst = lane->rx_kind == BRAID_RX_DRAIN ? NULL : link->again.dst;
	link->again.kind = BRAID_RX_NONE;
	return lane->gpu ? 0 : braid_comm_rx_stage(lane);
}

#define OF(TYPE) (1u << BRAID_F_##TYPE)

enum {
	LINKS = OF(ACK) | OF(OPEN) | OF(LANES) | OF(CLOSE) | OF(DOWN) | OF(ALIVE),
	ROAMING = OF(CHUNK) | OF(VOID) | OF(DOWN),	/* all other types are sent at home only */
};

static bool is_one_of(unsigned type, unsigned types)
{
	return types >> type & 1;
}

/* The frame in lane->rx_hdr begins: decide where its payload goes.  c: its comm, or NULL. */
static int rx_frame(struct braid_lane *lane, struct braid_comm *c)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_link *link = lane->link;

	lane->rx_kind = BRAID_RX_DRAIN;
	lane->rx_target = NULL;
	lane->rx_dst = NULL;
	lane->rx_left = braid_hdr_follows(h);
	if (atomic_load_explicit(&link->rx_home, memory_order_relaxed) != lane->index &&
	    !is_one_of(h->type, ROAMING))
		atomic_store(&link->rx_home, lane->index);
	if (is_one_of(h->type, LINKS))
		return rx_link_frame(lane);
	if (link->again.kind && h->type == BRAID_F_EAGER)
		return rx_begin_again(lane);
	if (link->again.kind && h->type == BRAID_F_VOID && h->comm == link->again.hdr.comm &&
	    h->seq == link->again.hdr.seq)
		link->again.kind = BRAID_RX_NONE;
	return c ? braid_comm_rx_begin(lane, c) : 0;	/* late frames of a dead comm: dropped */
}

static int rx_begin(struct braid_lane *lane)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	int err;

	if (h->lseq != lane->rx_frames || (h->flags & BRAID_FLAG_PLACED && !lane->tr->dma))
		return -EBADMSG;
	err = braid_tx_acked(lane, h->ack);
	return err ? err : rx_frame(lane, braid_link_comm(lane->link, h->comm));
}

static void rx_count(struct braid_lane *lane, unsigned type, size_t len)
{
	lane->rx_frames++;
	lane->rx_quiet += BRAID_HDR_SIZE + len;
	if (type != BRAID_F_ACK)
		lane->rx_some = true;
	/* The sender waits for payload that it did not copy, and at some point for room. */
	if (type == BRAID_F_CHUNK || len > BRAID_COPY_MAX ||
	    lane->rx_frames - lane->rx_acked >= lane->ack_frames ||
	    lane->rx_quiet >= BRAID_ACK_BYTES) {
		lane->rx_ack_due = true;
		braid_link_urge(lane->link);
	}
}

static int rx_end(struct braid_lane *lane)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	int err = 0;

	if (lane->rx_kind == BRAID_RX_CTL && h->type == BRAID_F_OPEN)
		err = rx_open(lane);
	else if (lane->rx_kind != BRAID_RX_DRAIN)
		err = braid_comm_rx_end(lane);
	if (err == -EAGAIN)
		return err;
	lane->rx_kind = BRAID_RX_NONE;
	rx_count(lane, h->type, h->len);
	return err;
}

int braid_rx_broken(struct braid_lane *lane, const char *what, int err)
{
	if (err == -EBADMSG || err == -EPROTO)
		lane->rx_broken = what;
	return err;
}

static int of_frame(struct braid_lane *lane, int err)
{
	return err ? braid_rx_broken(lane, braid_frame_name(lane->rx_hdr.type), err) : 0;
}

int braid_rx_begin(struct braid_lane *lane)
{
	return of_frame(lane, rx_begin(lane));
}

int braid_rx_end(struct braid_lane *lane)
{
	return of_frame(lane, rx_end(lane));
}

/* Receive the rest of a frame that has begun, then whole frames. */
static BRAID_APART int rx_rest(struct braid_lane *lane, const char *p, size_t n)
{
	size_t at = lane->rx_at, len;
	int err = 0;

	if (!n)
		return 0;
	do {
		if (lane->rx_kind == BRAID_RX_NONE) {
			if (n - at < BRAID_HDR_SIZE)
				return braid_rx_broken(lane, "a piece of a header", -EBADMSG);
			err = of_frame(lane, braid_hdr_unpack(p + at, &lane->rx_hdr));
			if (!err)
				err = braid_rx_begin(lane);
			if (err)
				return err;
			at += BRAID_HDR_SIZE;
		}
		len = n - at < lane->rx_left ? n - at : lane->rx_left;
		err = len && lane->gpu ? braid_comm_rx_stage(lane) : 0;
		if (err)
			return err;
		if (len && lane->rx_dst) {
			braid_copy_up(lane->rx_dst, p + at, len);
			lane->rx_dst += len;
		}
		at += len;
		lane->rx_left -= len;
		if (!lane->rx_left)
			err = braid_rx_end(lane);
	} while (!err && at < n);
	lane->rx_at = err == -EAGAIN ? at : 0;
	return err;
}

/* Make the header of a payload that came without one, at p + at, and receive it as usual. */
static BRAID_APART int rx_nohdr_slow(struct braid_lane *lane, struct braid_comm *c, uint32_t imm,
				const char *p, size_t n, size_t at)
{
	size_t len = n - at;
	int err;

	lane->rx_hdr = (struct braid_hdr){
		.type = BRAID_F_EAGER, .comm = imm >> 16, .len = (uint32_t)len, .size = len,
	};
	if (c)
		braid_comm_rx_nohdr(c, (uint16_t)imm, &lane->rx_hdr);
	err = of_frame(lane, len ? rx_frame(lane, c) : -EBADMSG);
	if (err)
		return err;
	lane->rx_at = at;
	return rx_rest(lane, p, n);
}

static int rx_bare(struct braid_lane *lane, uint32_t imm, const char *p, size_t n, size_t at)
{
	struct braid_link *link = lane->link;
	struct braid_comm *c = braid_link_comm(link, imm >> 16);

	if (!c || n == at || link->again.kind ||
	    atomic_load_explicit(&link->rx_home, memory_order_relaxed) != lane->index ||
	    !braid_comm_rx_nohdr_fast(c, (uint16_t)imm, p + at, n - at))
		return rx_nohdr_slow(lane, c, imm, p, n, at);
	rx_count(lane, BRAID_F_EAGER, n - at);
	return 0;
}

int braid_rx_nohdr(struct braid_lane *lane, uint32_t imm, const char *p, size_t n)
{
	return lane->rx_kind == BRAID_RX_NONE ? rx_bare(lane, imm, p, n, 0) : rx_rest(lane, p, n);
}

int braid_rx_take(struct braid_lane *lane, const char *p, size_t n)
{
	uint32_t imm;

	return lane->rx_kind == BRAID_RX_NONE && braid_short_unpack(p, n, &imm) ?
		       rx_bare(lane, imm, p, n, BRAID_SHORT_SIZE) : rx_rest(lane, p, n);
}

BRAID_APART int braid_rx_imm(struct braid_lane *lane, uint32_t imm, uint32_t len)
{
	struct braid_comm *c = braid_link_comm(lane->link, imm >> 16);
	bool whole = (imm & 0xff) == BRAID_IMM_WHOLE;
	int err = 0;

	lane->rx_hdr = (struct braid_hdr){
		.type = BRAID_F_CHUNK, .flags = BRAID_FLAG_PLACED, .comm = imm >> 16, .len = len,
		.n = whole ? 0 : imm & 0xff, .size = len,
	};
	lane->rx_kind = BRAID_RX_DRAIN;
	lane->rx_left = 0;
	lane->rx_frames += whole;
	if (c)
		err = braid_comm_rx_imm(lane, c, imm >> 8 & 0xff, whole);
	return err ? of_frame(lane, err) : braid_rx_end(lane);
}

/* --- moving -------------------------------------------------------------------------------- */

static inline int lane_poll(struct braid_lane *lane)
{
	bool up;
	int n;

	if (!braid_lane_up(lane) && !braid_lane_unread(lane))
		return 0;
	if (!braid_trylock(&lane->io))
		return 1;		/* another thread polls it */
	up = braid_lane_up(lane);
	n = up || braid_lane_unread(lane) ? lane->tr->poll(lane) : 0;
	if (n < 0)
		lane_died(lane, lane->rx_broken, n);	/* before another thread reads on */
	if (n <= 0 && !up)
		atomic_store(&lane->unread, false);
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
	unsigned turn = atomic_load_explicit(&link->poll_turn, memory_order_relaxed);
	unsigned home = atomic_load_explicit(&link->rx_home, memory_order_relaxed);
	int moved = 0;

	if (most > others)
		most = others;
	for (unsigned i = 0; i < most && !moved; i++)
		moved = lane_poll(link->lane[(home + 1 + turn++ % others) % (others + 1)]);
	atomic_store_explicit(&link->poll_turn, turn, memory_order_relaxed);
	return moved;
}

/* How many other lanes to poll: without chunks expected, one now and then, as it may have died. */
static unsigned others_due(struct braid_link *link)
{
	unsigned calls = atomic_load_explicit(&link->calls, memory_order_relaxed) + 1;

	atomic_store_explicit(&link->calls, calls, memory_order_relaxed);
	if (atomic_load_explicit(&link->spread, memory_order_relaxed) ||
	    atomic_load_explicit(&link->copies, memory_order_relaxed) ||
	    atomic_load_explicit(&link->ndown, memory_order_relaxed))
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
	atomic_store_explicit(&link->stalled, false, memory_order_relaxed);
	if (!braid_comm_deliver(link))
		stall(link);
	turn = link->push_turn++;
	for (unsigned k = 0; k < link->nlanes; k++) {
		/* Home first, then the others, each time starting from the next one. */
		unsigned i = k ? 1 + (k - 1 + turn) % (link->nlanes - 1) : 0;
		struct braid_lane *lane = link->lane[(link->home + i) % link->nlanes];

		/* Of the lanes that were full, one a call is tried again. */
		if (moved < BRAID_CALL_BUDGET &&
		    (k ? !lane->blocked || k == 1 : !braid_link_only_starts(link)))
			moved += lane_push(lane);
		else
			stall(link);
	}
	if (moved < BRAID_CALL_BUDGET &&
	    (link->norphaned || !braid_list_empty(&link->pending)))
		braid_link_feed(link);
	else if (!braid_list_empty(&link->pending))
		stall(link);
	braid_unlock(&link->lock);
}

static bool is_urgent(const struct braid_link *link)
{
	return atomic_load_explicit(&link->control_urgent, memory_order_relaxed);
}

/* An idle test(): end the burst, and send control frames that are urgent. */
static BRAID_APART void idle_test(struct braid_link *link, struct braid_comm *c)
{
	bool urgent = is_urgent(link), over;

	if (!braid_trylock(&link->lock))
		return;
	over = c->flush_epoch == link->isend_epoch;
	c->flush_epoch = link->isend_epoch;
	if (urgent)
		braid_link_send_control(link);
	if (!braid_link_home(link)->tx.unsent)
		braid_hint(&link->quiet, true);
	else if ((urgent || over) && !braid_link_home(link)->blocked)
		braid_link_flush(link);
	braid_unlock(&link->lock);
}

/*
 * Data keeps coming, so no test() is idle, and the caller's request is not done: send credits and
 * acknowledgements anyway, before the sender runs out of them.
 */
static BRAID_APART void ack_backlog(struct braid_link *link)
{
	uint64_t owed = 0;

	if (!braid_trylock(&link->lock))
		return;
	for (unsigned i = 0; i < link->nlanes; i++)
		owed += link->lane[i]->rx_quiet;
	if (owed >= TELL_BYTES) {
		braid_link_send_control(link);
		braid_link_flush(link);
	}
	braid_unlock(&link->lock);
}

/* Flush the deferred control frames of a link other than `link`, which sends its own. */
static BRAID_APART void flush_deferred(const struct braid_link *link)
{
	struct braid_link *other = atomic_load(&deferred.link);

	if (!other || other == link || !braid_trylock(&deferred.lock))
		return;
	if (atomic_compare_exchange_strong(&deferred.link, &other, NULL) && is_urgent(other) &&
	    atomic_load(&other->state) == BRAID_LINK_UP)
		braid_link_try_flush_control(other);
	braid_unlock(&deferred.lock);
}

void braid_link_defer_control(struct braid_link *link)
{
	if (!is_urgent(link) || atomic_load_explicit(&deferred.link, memory_order_relaxed) == link)
		return;
	flush_deferred(link);
	atomic_store(&deferred.link, link);
}

/* The link is dead.  Complete messages may still have to be copied into a GPU. */
static BRAID_APART void move_remains(struct braid_link *link)
{
	if (!is_stalled(link) || !braid_trylock(&link->lock))
		return;
	braid_hint(&link->stalled, !braid_comm_deliver(link));
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
	moved = lane_poll(link->lane[atomic_load_explicit(&link->rx_home, memory_order_relaxed)]);
	if (moved >= 0 && atomic_load_explicit(&link->nlanes, memory_order_acquire) > 1) {
		others = all ? BRAID_LANES_MAX : others_due(link);
		more = others ? poll_others(link, others) : 0;
		moved = more < 0 ? more : moved + more;
	}
	if (moved >= 0 && is_stalled(link))
		push_waiting(link);
	return moved;
}

int braid_link_move(struct braid_link *link)
{
	return move(link, true);
}

/* The service thread sends what data calls leave over, so it must tick and not only watch. */
void braid_link_unpark(struct braid_link *link)
{
	if (atomic_exchange(&link->watched, false))
		braid_service_kick();
}

void braid_link_progress(struct braid_link *link, struct braid_comm *idle,
			 const atomic_bool *done)
{
	int moved = move(link, false);

	braid_link_touch(link);
	/* The request is done: control frames leave with what the caller posts next. */
	if (!idle || (done && atomic_load_explicit(done, memory_order_relaxed)))
		return;
	if (!moved &&
	    (is_urgent(link) || !atomic_load_explicit(&link->quiet, memory_order_relaxed)))
		idle_test(link, idle);
	else if (moved > 0 && is_urgent(link))
		ack_backlog(link);
	if (!moved && atomic_load_explicit(&deferred.link, memory_order_relaxed))
		flush_deferred(link);
}

static bool anybody_pushes(const struct braid_link *link)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (link->lane[i]->pushing)
			return true;
	}
	return false;
}

unsigned braid_link_stop(struct braid_link *link)
{
	for (;;) {
		unsigned n = atomic_load(&link->nlanes);

		for (unsigned i = 0; i < n; i++)
			braid_lock_wait(&link->lane[i]->io);
		braid_lock_wait(&link->lock);
		/* A lane may have been added before the lock was taken; none is ever removed. */
		if (n == atomic_load(&link->nlanes) && !anybody_pushes(link))
			return n;
		braid_link_go(link, n);
		braid_yield();
	}
}

void braid_link_go(struct braid_link *link, unsigned n)
{
	braid_unlock(&link->lock);
	for (unsigned i = 0; i < n; i++)
		braid_unlock(&link->lane[i]->io);
}

bool braid_link_flush_if_urgent(struct braid_link *link, bool all)
{
	bool urged = atomic_exchange(&link->control_was_urgent, false), urgent = is_urgent(link);

	if (!braid_trylock(&link->lock))
		return urged;
	urged |= urgent || braid_link_home(link)->tx.unsent || link->burst_now;
	if (urgent || all)
		braid_link_send_control(link);
	braid_link_flush(link);
	braid_unlock(&link->lock);
	return urged;
}

static void tell_all(struct braid_link *link)
{
	braid_link_send_control(link);
	braid_link_flush(link);
}

bool braid_link_try_flush_control(struct braid_link *link)
{
	if (!braid_trylock(&link->lock))
		return false;
	tell_all(link);
	braid_unlock(&link->lock);
	return true;
}

void braid_link_flush_control(struct braid_link *link)
{
	braid_lock_wait(&link->lock);
	while (braid_link_home(link)->pushing) {
		braid_unlock(&link->lock);
		braid_yield();
		braid_lock_wait(&link->lock);
	}
	tell_all(link);
	braid_unlock(&link->lock);
}
