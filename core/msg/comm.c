/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm.c - sends, receives, and how they meet; see comm.h for the rules.
 *
 * From top to bottom: windows, a comm and its failures, the sending side, the receiving side,
 * control frames that are due, frames coming in (one row per type), and test, cancel and close.
 */
#include "core/msg/comm.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/proto/auth.h"
#include "core/base/clock.h"
#include "core/base/copy.h"
#include "core/base/flight.h"
#include "core/link/link.h"
#include "core/link/recover.h"
#include "core/base/log.h"
#include "core/mem/mrcache.h"
#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/setup/service.h"
#include "core/setup/why.h"

enum {
	RETIRE_MAX = 64,		/* messages that a RETIRE may be due for */
	BURST_MAX = 32, BURST_TRY = 64,
	EAGER_SPREAD_MAX = 16 << 10,	/* largest eager message with several lanes */
};

/* NULL: no send of that number, modulo BRAID_SLOTS, is open. */
static struct braid_send *send_slot(const struct braid_comm *c, uint32_t seq)
{
	return c->send[seq % BRAID_SLOTS];
}

/* Only the thread that makes the comm's data calls writes this flag. */
static bool is_busy(const atomic_bool *slot)
{
	return atomic_load_explicit(slot, memory_order_relaxed);
}

/* NULL: no receive of that number, modulo BRAID_SLOTS, is open. */
static struct braid_recv *recv_slot(const struct braid_comm *c, uint32_t rseq)
{
	return c->recv[rseq % BRAID_SLOTS];
}

/* While the link is watched, the service thread sleeps. */
static uint64_t posted_at(const struct braid_link *link)
{
	return braid_clock_now(atomic_load_explicit(&link->watched, memory_order_relaxed));
}

/* --- windows: a floor for each comm, the rest shared by the link --------------------------- */

static uint64_t over_floor(uint64_t bytes)
{
	return bytes > BRAID_FLOOR ? bytes - BRAID_FLOOR : 0;
}

/* The part of a message that uses the link's shared window. */
static uint64_t window_more(uint64_t own, uint64_t size)
{
	return over_floor(own + size + BRAID_UM_COST) - over_floor(own);
}

static bool window_has(uint64_t own, uint64_t shared, uint64_t window, uint64_t size)
{
	uint64_t more = window_more(own, size);

	return !more || shared + more <= window;
}

static bool window_take(uint64_t *own, uint64_t *shared, uint64_t window, uint64_t size)
{
	if (!window_has(*own, *shared, window, size))
		return false;
	*shared += window_more(*own, size);
	*own += size + BRAID_UM_COST;
	return true;
}

static void window_give(uint64_t *own, uint64_t *shared, uint64_t size)
{
	uint64_t before = over_floor(*own);

	*own -= size + BRAID_UM_COST;
	*shared -= before - over_floor(*own);
}

/* --- a comm -------------------------------------------------------------------------------- */

static size_t entry_size(bool sender)
{
	return sender ? sizeof(struct braid_send) : sizeof(struct braid_recv);
}

struct braid_comm *braid_comm_new(struct braid_link *link, uint32_t id, bool sender)
{
	struct braid_comm *c = calloc(1, sizeof(*c));
	struct braid_comm **bucket = &link->bucket[id % BRAID_LINK_BUCKETS];

	if (!c)
		return NULL;
	if (!braid_slab_grow(&c->slab, entry_size(sender))) {
		free(c);
		return NULL;
	}
	c->link = link;
	c->id = id;
	c->sender = sender;
	braid_list_init(&c->credits);
	braid_list_init(&c->unexps);
	braid_list_init(&c->control_node);
	braid_list_init(&c->listen_node);
	braid_list_init(&c->ctx_node);
	braid_list_init(&c->mrs);
	braid_list_init(&c->flushes);
	c->hash_next = *bucket;
	*bucket = c;
	braid_list_add_tail(&link->comms, &c->node);
	link->ncomms++;
	link->used = true;
	braid_event(BRAID_EVENT_COMM_OPEN, link->number, BRAID_FLIGHT_NONE, id, sender);
	return c;
}

static void um_free(struct braid_comm *c, struct braid_unexp *u)
{
	if (!u->want && !u->taken)
		window_give(&c->um_bytes, &c->link->um_bytes, u->size);
	if (!braid_list_empty(&u->node))
		c->nums--;
	braid_list_del(&u->node);
	braid_list_del(&u->copy_node);
	braid_gpucopy_end(&u->copy);
	braid_pool_put(u->data, u->alloc);
	braid_pool_put(u, sizeof(*u));
}

/* Free all unexpected messages.  No lane fills one: forget_recvs() stopped it, or it is closed. */
static void ums_drop(struct braid_comm *c)
{
	struct braid_unexp *u, *tmp;

	braid_list_for_safe(u, tmp, &c->unexps, node)
		um_free(c, u);
}

void braid_comm_free(struct braid_comm *c)
{
	struct braid_link *link = c->link;
	struct braid_comm **p = &link->bucket[c->id % BRAID_LINK_BUCKETS];

	while (*p != c)
		p = &(*p)->hash_next;
	*p = c->hash_next;
	ums_drop(c);
	if (c->sender)
		link->shared_out -= over_floor(c->eager_out);
	braid_list_del(&c->control_node);
	braid_list_del(&c->node);
	link->ncomms--;
	braid_slab_end(&c->slab);
	braid_slab_end(&c->credit_slab);
	free(c);
}

void braid_comm_fail(struct braid_comm *c, int err)
{
	int none = 0;

	assert(err < 0);
	if (atomic_compare_exchange_strong(&c->err, &none, err))
		braid_event(BRAID_EVENT_COMM_FAIL, c->link->number, BRAID_FLIGHT_NONE, c->id, err);
}

static void fail_tell(struct braid_comm *c, uint16_t code, uint64_t size, uint64_t room)
{
	c->fail_due = true;
	c->fail_code = code;
	c->fail_size = size;
	c->fail_room = room;
	braid_link_control_due(c->link, c);
	braid_link_urge(c->link);
}

/* A message does not fit its receive: both ends log both sizes. */
static BRAID_COLD void comm_oversize(struct braid_comm *c, uint64_t size, uint64_t room,
				     int32_t tag)
{
	if (atomic_load(&c->err))
		return;
	braid_warn("device %s, peer %s: a message of %llu bytes (tag %d) was sent to a receive "
		   "posted "
		   "with %llu bytes; nothing was delivered. Make both ranks use the same size "
		   "[size-mismatch]",
		   c->link->key.dev->net.name, c->link->peer, (unsigned long long)size, tag,
		   (unsigned long long)room);
	braid_comm_fail(c, -EMSGSIZE);	/* after the WARN, which explains err */
	fail_tell(c, EMSGSIZE, size, room);
}

/* The peer ended the comm.  It is worth a WARN only if NCCL gets the error: see report(). */
static BRAID_COLD void comm_ended(struct braid_comm *c, enum braid_why why)
{
	if (atomic_load(&c->err) || c->closed)
		return;
	c->why = why;
	braid_why_ended(c);
	braid_comm_fail(c, -EREMOTEIO);
}

static BRAID_COLD void comm_orphaned(struct braid_comm *c)
{
	comm_ended(c, BRAID_WHY_CLOSED);
}

/* Return the comm's error to NCCL; log the reason first. */
static BRAID_COLD int report(struct braid_comm *c, int err)
{
	if (!c->reported)
		braid_why_reported(c);
	c->reported = true;
	return err;
}

static BRAID_COLD void give_up(struct braid_comm *c, const char *how)
{
	braid_why_giving_up(c, how);
	fail_tell(c, ECANCELED, 0, 0);
}

/* Neither NIC nor driver could copy GPU memory; NULL: no host memory to copy through. */
static void comm_no_gpu(struct braid_comm *c, const struct braid_gpucopy *copy)
{
	const char *call = copy && copy->of->stage_why ? copy->of->stage_why : "";

	if (atomic_load(&c->err) || c->closed)
		return;
	if (copy)
		braid_warn("device %s, peer %s: %s memory of a GPU, which had to go through the "
			   "CPU, could not be copied by the NIC (%s), nor by the driver (%s%s%s); "
			   "docs/user/gpu.md says when that is [gpu-copy-failed]",
			   c->link->key.dev->net.name, c->link->peer,
			   c->sender ? "a message from" : "a message to",
			   copy->nic_err ? strerror(-copy->nic_err) : "not asked",
			   call, *call ? ": " : "", strerror(-copy->stage_err));
	else
		braid_no_memory("a message from memory of a GPU");
	braid_comm_fail(c, -EIO);
	fail_tell(c, ECANCELED, 0, 0);
}

void braid_send_no_gpu(struct braid_send *s, const struct braid_gpucopy *copy)
{
	comm_no_gpu(s->req.comm, copy);
}

/* --- the sending side ---------------------------------------------------------------------- */

void braid_send_part_done(struct braid_send *s)
{
	assert(s->parts);
	if (--s->parts == 0)
		atomic_store_explicit(&s->req.done, true, memory_order_release);
}

static struct braid_credit *credit_find(struct braid_comm *c, int32_t tag)
{
	struct braid_credit *cr;

	braid_list_for(cr, &c->credits, node) {
		if (cr->tag == tag)
			return cr;
	}
	return NULL;
}

static void credit_free(struct braid_comm *c, struct braid_credit *cr)
{
	c->credited[cr->rseq % BRAID_SLOTS / 64] &= ~(1ull << cr->rseq % 64);
	braid_list_del(&cr->node);
	braid_slab_put(&c->credit_slab, cr, sizeof(*cr));
}

static void send_met(struct braid_comm *c, struct braid_send *s)
{
	if (s->await == BRAID_AWAIT_EAGER)
		window_give(&c->eager_out, &c->link->shared_out, s->size);
	s->await = BRAID_MET;
	if (s->seq != c->oldest_await)
		return;
	do
		c->oldest_await++;
	while (c->oldest_await != c->next_seq &&
	       send_slot(c, c->oldest_await)->await == BRAID_MET);
}

/*
 * The receive is known, so chunks can be sent.  After a WANT the message has its place in the
 * order, and its START may wait for room.  Without one the caller sends START at once.
 */
static void send_to_credit(struct braid_comm *c, struct braid_send *s, uint32_t rseq,
			   const struct braid_place *to)
{
	s->rseq = rseq;
	s->to = *to;
	s->start_due = true;
	braid_link_pending(c->link, &s->node);
}

bool braid_send_say_start(struct braid_send *s)
{
	struct braid_hdr h = {
		.type = BRAID_F_START, .comm = s->req.comm->id, .seq = s->seq, .tag = s->tag,
		.rseq = s->rseq, .size = s->size,
	};

	if (!s->start_due)
		return true;
	if (!braid_link_ctl(s->req.comm->link, &h, NULL))
		return false;
	s->start_due = false;
	braid_link_home(s->req.comm->link)->tx.starts += BRAID_HDR_SIZE;
	return true;
}

static void send_whole(struct braid_comm *c, struct braid_send *s, const struct braid_credit *cr)
{
	struct braid_hdr h = {
		.type = BRAID_F_EAGER, .comm = c->id, .seq = s->seq, .tag = s->tag,
		.len = (uint32_t)s->size, .size = s->size,
		.flags = cr ? BRAID_FLAG_CREDITED : 0, .rseq = cr ? cr->rseq : 0,
	};
	bool copy = s->size <= BRAID_COPY_MAX;

	braid_tx_add(braid_link_home(c->link), &h, copy && s->size ? s->data : NULL,
		     copy ? NULL : s->data, s);
}

static BRAID_APART void send_want(struct braid_comm *c, struct braid_send *s)
{
	struct braid_hdr h = {
		.type = BRAID_F_WANT, .comm = c->id, .seq = s->seq, .tag = s->tag, .size = s->size,
	};

	s->await = BRAID_AWAIT_WANT;
	braid_tx_add(braid_link_home(c->link), &h, NULL, NULL, NULL);
}

/* A lane's limit of bytes in flight also holds for messages that are not cut into chunks. */
static bool may_fly(const struct braid_lane *home, uint64_t size)
{
	return size <= BRAID_COPY_MAX || !home->flight_max ||
	       home->tx.unacked + size <= home->flight_max;
}

/*
 * May the message be sent eagerly, in one piece?  Not from GPU memory, which neither end can copy.
 * Larger ones are better spread over several lanes, or written into their place by a NIC.
 */
static bool is_small(const struct braid_comm *c, uint64_t size, const struct braid_mr *mr)
{
	if (size > (uint64_t)braid_param.eager || (size && mr && mr->gpu))
		return false;
	return size <= BRAID_COPY_MAX ||
	       (!braid_link_home(c->link)->tr->dma &&
		(c->link->active <= 1 || size <= EAGER_SPREAD_MAX));
}

/* Choose a protocol and queue the first frame.  The slot is filled, and home has room. */
static void send_start(struct braid_comm *c, struct braid_send *s)
{
	struct braid_credit *cr = credit_find(c, s->tag);

	if (cr) {
		if (s->size > cr->room)
			comm_oversize(c, s->size, cr->room, s->tag);
		else if (is_small(c, s->size, s->mr) && may_fly(braid_link_home(c->link), s->size))
			send_whole(c, s, cr);
		else {
			send_to_credit(c, s, cr->rseq, &cr->to);
			braid_send_say_start(s);	/* the caller made sure of the room */
		}
		credit_free(c, cr);
	} else if (is_small(c, s->size, s->mr) &&
		   window_take(&c->eager_out, &c->link->shared_out, c->link->tx_window, s->size)) {
		s->await = BRAID_AWAIT_EAGER;
		send_whole(c, s, NULL);
	} else {
		send_want(c, s);
	}
	if (s->await == BRAID_MET && c->oldest_await == s->seq)
		c->oldest_await++;
}

/*
 * Send this isend's frames now, or hold them back for others to share a system call?  Now if the
 * caller was waiting before it, so that latency counts, or if the burst is as long as recent ones.
 * Once in a while a longer burst is tried.
 */
static bool send_now(struct braid_link *link, const struct braid_send *s)
{
	const struct braid_txq *q = &braid_link_home(link)->tx;

	if (++link->burst_run > BURST_TRY * link->burst && link->burst < BURST_MAX) {
		link->burst++;
		link->burst_run = 0;
	}
	return link->quiet || s->size > BRAID_COPY_MAX || q->unsent > 4 * BRAID_COPY_MAX ||
	       q->f_head - q->f_sent >= link->burst;
}

/*
 * For latency, send a small message that fits the window before its frame is queued.  True: the
 * payload was sent.  The conditions here are those of send_start() and send_now().
 */
static bool send_ahead(const struct braid_comm *c, const void *data, uint64_t size, int32_t tag,
		       const struct braid_mr *mr)
{
	const struct braid_link *link = c->link;
	struct braid_lane *home = braid_link_home(link);

	return home->tr->post && link->quiet && tag == c->last_tag && size &&
	       size <= BRAID_COPY_MAX && is_small(c, size, mr) && braid_list_empty(&c->credits) &&
	       window_has(c->eager_out, link->shared_out, link->tx_window, size) &&
	       braid_tx_fast_send(home, c->id, c->next_seq, data, (uint32_t)size);
}

/* An entry for the next send: the oldest, if test() has finished it, or a new one; or NULL. */
static struct braid_send *send_new(struct braid_comm *c)
{
	if (c->first != c->oldest_await) {
		struct braid_send *s = send_slot(c, c->first);

		if (!is_busy(&s->busy)) {
			c->send[c->first++ % BRAID_SLOTS] = NULL;
			return s;
		}
	}
	if (send_slot(c, c->next_seq))
		return NULL;
	return braid_slab_get(&c->slab, sizeof(struct braid_send));
}

/*
 * A dummy request on a failed comm whose error test() has not returned yet: NCCL expects the post
 * to be accepted.  It has no number, and moves no bytes.  NULL: not now.
 */
static BRAID_COLD struct braid_req *req_in_vain(struct braid_comm *c, unsigned n)
{
	struct braid_req *req;

	if (c->in_vain >= BRAID_SLOTS)
		return NULL;
	req = braid_slab_get(&c->slab, entry_size(c->sender));	/* both entry types begin with it */
	if (!req)
		return NULL;
	c->in_vain++;
	req->comm = c;
	req->n = (uint8_t)n;
	atomic_store(&req->done, false);
	return req;
}

static int isend_locked(struct braid_comm *c, const void *data, uint64_t size, int32_t tag,
			struct braid_mr *mr, struct braid_req **ret)
{
	struct braid_link *link = c->link;
	struct braid_send *s;
	bool now;

	if (c->peer_closed)
		comm_orphaned(c);
	if (atomic_load_explicit(&c->err, memory_order_relaxed)) {
		*ret = req_in_vain(c, 1);
		return 0;
	}
	if (link->control_urgent)
		braid_link_send_control(link);
	s = send_new(c);
	if (!s)
		return -EAGAIN;
	if (!send_ahead(c, data, size, tag, mr) &&
	    !braid_txq_room(&braid_link_home(link)->tx, size <= BRAID_COPY_MAX ? size : 0)) {
		braid_slab_put(&c->slab, s, sizeof(*s));
		return -EAGAIN;
	}
	*ret = &s->req;
	s->req.comm = c;
	s->req.n = 1;
	atomic_store_explicit(&s->req.done, false, memory_order_relaxed);
	braid_hint(&s->busy, true);
	braid_list_init(&s->node);
	s->at_ns = posted_at(link);
	s->await = BRAID_MET;
	s->seq = c->next_seq++;
	c->send[s->seq % BRAID_SLOTS] = s;
	s->data = data;
	s->size = size;
	s->cut = 0;
	s->tag = tag;
	s->same_tag = tag == c->last_tag;
	c->last_tag = tag;
	s->parts = 1;
	s->chunks = 0;
	s->start_due = false;
	s->mr = mr;
	send_start(c, s);
	link->isend_epoch++;
	now = send_now(link, s);
	link->burst_now = link->quiet ? 0 : link->burst_now + 1;
	braid_hint(&link->quiet, false);
	c->burst = now ? 0 : 1;
	if (!braid_list_empty(&link->pending))
		braid_link_feed(link);
	if (now && !braid_link_only_starts(link))
		braid_link_flush(link);
	return 0;
}

int braid_comm_isend(struct braid_comm *c, const void *data, uint64_t size, int32_t tag,
		     struct braid_mr *mr, struct braid_req **ret)
{
	int err = atomic_load_explicit(&c->err, memory_order_acquire);

	*ret = NULL;
	if (err && c->reported)
		return err;
	if (braid_trylock(&c->link->lock)) {
		err = isend_locked(c, data, size, tag, mr, ret);
		braid_unlock(&c->link->lock);
		if (!err) {
			braid_link_touch(c->link);
			return 0;
		}
	}
	braid_link_progress(c->link, c, NULL);	/* so that the next call can succeed */
	return 0;
}

/* --- the receiving side -------------------------------------------------------------------- */

static bool is_open(const struct braid_recv *e)
{
	return e->posted && !e->matched;
}

static struct braid_recv *recv_find(struct braid_comm *c, int32_t tag)
{
	for (uint32_t r = c->oldest_rseq; r != c->next_rseq; r++) {
		struct braid_recv *e = recv_slot(c, r);

		if (e->tag == tag && is_open(e))
			return e;
	}
	return NULL;
}

static void recv_match(struct braid_comm *c, struct braid_recv *e, uint64_t size)
{
	e->matched = true;
	e->unsized = false;
	e->size = size;
	if (e->rseq != c->oldest_rseq)
		return;
	do
		c->oldest_rseq++;
	while (c->oldest_rseq != c->next_rseq && !is_open(recv_slot(c, c->oldest_rseq)));
}

static void recv_complete(struct braid_recv *e)
{
	e->posted = false;
	if (--e->head->pending == 0)
		atomic_store_explicit(&e->head->req.done, true, memory_order_release);
}

/* A message met its receive without a credit: a RETIRE is due. */
static void retire(struct braid_comm *c, uint32_t seq, uint64_t size)
{
	struct braid_link *link = c->link;

	if (!c->retire_n++ || (int32_t)(seq - c->retire_first) < 0)
		c->retire_first = seq;
	c->retired[seq % BRAID_SLOTS / 64] |= 1ull << seq % 64;
	c->retire_bytes += size + BRAID_UM_COST;
	link->retire_bytes += size + BRAID_UM_COST;
	braid_link_control_due(link, c);
	if (c->retire_n >= RETIRE_MAX || link->retire_bytes * 4 >= link->rx_window)
		braid_hint(&link->control_urgent, true);
}

static void credit_due(struct braid_comm *c, struct braid_recv *e)
{
	e->credit_due = true;
	if (!c->ndue++ || (int32_t)(e->rseq - c->credit_scan) < 0)
		c->credit_scan = e->rseq;
	braid_link_control_due(c->link, c);
	braid_link_urge(c->link);
}

static void credit_not_due(struct braid_comm *c, struct braid_recv *e)
{
	if (e->credit_due)
		c->ndue--;
	e->credit_due = false;
}

static void recv_match_want(struct braid_comm *c, struct braid_recv *e, uint32_t seq, uint64_t size)
{
	recv_match(c, e, size);
	e->wanted = true;
	e->mseq = seq;
	if (!e->credited && !e->credit_due)
		credit_due(c, e);
}

static bool is_gpu(const struct braid_recv *e)
{
	return e->mr && e->mr->gpu;
}

/* 0: copied; -EAGAIN: still being copied; else the copy and the comm have failed. */
static int to_gpu(struct braid_recv *e, struct braid_gpucopy *copy)
{
	int err = braid_gpucopy_move(copy);

	if (err && err != -EAGAIN)
		comm_no_gpu(e->req.comm, copy);
	return err;
}

/* False: it is still being copied into a GPU. */
static bool um_deliver(struct braid_unexp *u)
{
	struct braid_recv *e = u->recv;
	int err = 0;

	if (!is_gpu(e) || !u->size) {
		braid_copy_up(e->data, u->data, u->size);
	} else {
		if (!u->copy.mr)
			braid_gpucopy_begin(&u->copy, e->mr, e->data, u->data, u->size, true);
		err = to_gpu(e, &u->copy);
	}
	if (err == -EAGAIN)
		return false;
	um_free(u->comm, u);
	if (!err)
		recv_complete(e);
	return true;
}

/* A complete unexpected message has met its receive. */
static void um_move(struct braid_unexp *u)
{
	struct braid_link *link = u->comm->link;

	if (um_deliver(u))
		return;
	braid_list_add_tail(&link->copying, &u->copy_node);
	braid_hint(&link->stalled, true);
}

bool braid_comm_deliver(struct braid_link *link)
{
	struct braid_unexp *u, *tmp;

	braid_list_for_safe(u, tmp, &link->copying, copy_node)
		um_deliver(u);
	return braid_list_empty(&link->copying);
}

void braid_comm_leave(struct braid_link *link)
{
	struct braid_unexp *u;

	braid_list_for(u, &link->copying, copy_node) {
		if (atomic_load(&u->comm->err))
			braid_gpucopy_end(&u->copy);
	}
}

/* An unexpected message meets the receive posted now. */
static BRAID_APART void recv_take_um(struct braid_comm *c, struct braid_recv *e,
				     struct braid_unexp *u)
{
	if (u->size > e->room) {
		comm_oversize(c, u->size, e->room, u->tag);
		return;
	}
	if (u->want) {
		recv_match_want(c, e, u->seq, u->size);
		um_free(c, u);
		return;
	}
	recv_match(c, e, u->size);
	retire(c, u->seq, u->size);	/* now, so that no later credit overtakes it */
	window_give(&c->um_bytes, &c->link->um_bytes, u->size);
	u->taken = true;
	u->recv = e;
	if (u->ready)
		um_move(u);		/* else end_eager() does it, once all bytes are here */
}

static struct braid_unexp *um_find(struct braid_comm *c, int32_t tag)
{
	struct braid_unexp *u;

	braid_list_for(u, &c->unexps, node) {
		if (u->tag == tag && !u->taken)
			return u;
	}
	return NULL;
}

/* Credits are sent in the order of the receives: earlier ones without a credit get theirs too. */
static void credit_all(struct braid_comm *c)
{
	uint32_t r = c->plain ? c->oldest_rseq : c->next_rseq - 1;

	for (; r != c->next_rseq; r++) {
		struct braid_recv *e = recv_slot(c, r);

		if (e->posted && !e->matched && !e->credited && !e->credit_due)
			credit_due(c, e);
	}
	c->plain = false;
}

static void recv_post(struct braid_comm *c, struct braid_recv *e)
{
	struct braid_unexp *u = um_find(c, e->tag);

	if (u)
		recv_take_um(c, e, u);
	else if (c->peer_closed)
		comm_orphaned(c);
	else if (c->large)
		credit_all(c);
	else
		c->plain = true;
}

/* Take the oldest entry out of its slot, if test() has finished with it; or NULL. */
static struct braid_recv *recv_done(struct braid_comm *c)
{
	struct braid_recv *e;

	if (c->first == c->oldest_rseq)
		return NULL;
	e = recv_slot(c, c->first);
	if (is_busy(&e->busy))
		return NULL;
	c->recv[c->first++ % BRAID_SLOTS] = NULL;
	return e;
}

static struct braid_recv *recv_take(struct braid_comm *c, uint32_t rseq, struct braid_recv *e)
{
	if (!e)
		e = braid_slab_get(&c->slab, sizeof(*e));
	if (e) {
		e->req.comm = c;
		c->recv[rseq % BRAID_SLOTS] = e;
	}
	return e;
}

/* recv_new() for several. */
static BRAID_APART struct braid_recv *recv_new_group(struct braid_comm *c, unsigned n)
{
	struct braid_recv *e;

	while ((e = recv_done(c)))
		braid_slab_put(&c->slab, e, sizeof(*e));
	if (c->next_rseq + n - c->first > BRAID_SLOTS)
		return NULL;
	for (unsigned i = 0; i < n; i++) {
		if (recv_take(c, c->next_rseq + i, NULL))
			continue;
		while (i--) {
			braid_slab_put(&c->slab, recv_slot(c, c->next_rseq + i), sizeof(*e));
			c->recv[(c->next_rseq + i) % BRAID_SLOTS] = NULL;
		}
		return NULL;
	}
	return recv_slot(c, c->next_rseq);
}

/* Fill the slots of the next n receives.  Returns the first entry, or NULL: not now. */
static struct braid_recv *recv_new(struct braid_comm *c, unsigned n)
{
	struct braid_recv *e;

	if (n > 1)
		return recv_new_group(c, n);
	e = recv_done(c);
	if (!e && c->next_rseq - c->first >= BRAID_SLOTS)
		return NULL;
	return recv_take(c, c->next_rseq, e);
}

static void irecv_locked(struct braid_comm *c, struct braid_recv *head, unsigned n,
			 void *const *data, const size_t *sizes, const int *tags,
			 struct braid_mr *const *mrs)
{
	uint64_t now = posted_at(c->link);

	atomic_store_explicit(&head->req.done, false, memory_order_relaxed);
	head->req.n = (uint8_t)n;
	head->pending = n;
	for (unsigned i = 0; i < n; i++) {
		struct braid_recv *e = recv_slot(c, c->next_rseq);

		braid_hint(&e->busy, true);
		e->at_ns = now;
		e->posted = true;
		e->matched = e->wanted = e->started = e->credited = e->credit_due = false;
		e->placed = e->unsized = false;
		e->data = data[i];
		e->room = sizes[i];
		e->size = e->begun = e->got = 0;
		e->rseq = c->next_rseq;
		e->tag = tags[i];
		e->head = head;
		e->mr = mrs ? mrs[i] : NULL;
		memset(e->chunks, 0, sizeof(e->chunks));
		c->next_rseq++;
		recv_post(c, e);
	}
}

int braid_comm_irecv(struct braid_comm *c, unsigned n, void *const *data, const size_t *sizes,
		     const int *tags, struct braid_mr *const *mrs, struct braid_req **ret)
{
	struct braid_recv *head;
	int err = atomic_load_explicit(&c->err, memory_order_acquire);

	*ret = NULL;
	if (err && c->reported)
		return err;
	if (!braid_trylock(&c->link->lock))
		return 0;
	if (err) {
		*ret = req_in_vain(c, n);
	} else {
		head = recv_new(c, n);
		if (head) {
			*ret = &head->req;
			irecv_locked(c, head, n, data, sizes, tags, mrs);
		}
	}
	braid_unlock(&c->link->lock);
	braid_link_touch(c->link);
	return 0;
}

/* --- control frames that are due ----------------------------------------------------------- */

static bool is_retired(const struct braid_comm *c, uint32_t seq)
{
	return c->retired[seq % BRAID_SLOTS / 64] >> seq % 64 & 1;
}

/* One frame for each run of numbers: if all messages have one tag, that is one frame. */
static bool tell_retired(struct braid_comm *c)
{
	while (c->retire_n) {
		struct braid_hdr h = { .type = BRAID_F_RETIRE, .comm = c->id };

		while (!is_retired(c, c->retire_first))
			c->retire_first++;
		h.seq = c->retire_first;
		while (h.n < c->retire_n && is_retired(c, h.seq + h.n))
			h.n++;
		if (!braid_link_ctl(c->link, &h, NULL))
			return false;
		for (uint32_t q = h.seq; q != h.seq + h.n; q++)
			c->retired[q % BRAID_SLOTS / 64] &= ~(1ull << q % 64);
		c->retire_first += h.n;
		c->retire_n -= h.n;
	}
	c->link->retire_bytes -= c->retire_bytes;
	c->retire_bytes = 0;
	return true;
}

/* Pack the keys of a receive's memory: returns their bytes, or 0 if the NICs can't write it. */
static uint32_t place_of(const struct braid_recv *e, uint8_t *payload)
{
	const struct braid_mr *mr = e->mr;
	unsigned n = mr ? mr->comm->link->key.dev->nmembers : 0;
	uint32_t key[BRAID_PATHS_MAX];

	for (unsigned i = 0; i < n; i++) {
		if (!mr->key[i].mr || mr->key[i].sealed)
			return 0;
		key[i] = mr->key[i].remote;
	}
	if (!n || e->data < mr->data || e->room > mr->size ||
	    (size_t)(e->data - mr->data) > mr->size - e->room)
		return 0;
	braid_keys_pack(key, n, payload);
	return 4 * n;
}

static bool tell_credits(struct braid_comm *c)
{
	for (; c->ndue; c->credit_scan++) {
		struct braid_recv *e = recv_slot(c, c->credit_scan);
		struct braid_hdr h = { .type = BRAID_F_CREDIT, .comm = c->id };
		uint8_t keys[4 * BRAID_PATHS_MAX];

		if (!e || !e->credit_due)	/* completed without a credit, and gone */
			continue;
		h.rseq = e->rseq;
		h.tag = e->tag;
		h.size = e->room < BRAID_MSG_MAX ? e->room : BRAID_MSG_MAX;
		h.len = place_of(e, keys);
		if (h.len) {
			h.offset = (uint64_t)(uintptr_t)e->data;
			h.seq = c->link->rkey_epoch;
			e->placed = true;
		}
		if (!braid_link_ctl(c->link, &h, h.len ? keys : NULL))
			return false;
		credit_not_due(c, e);
		e->credited = true;
	}
	return true;
}

static bool tell_word(struct braid_comm *c, bool *due, struct braid_hdr *h, const void *payload)
{
	if (!*due)
		return true;
	if (!braid_link_ctl(c->link, h, payload))
		return false;
	*due = false;
	return true;
}

static bool tell_opened(struct braid_comm *c)
{
	struct braid_hdr h = { .type = BRAID_F_OPENED, .comm = c->id, .len = BRAID_OPEN_SIZE };
	struct braid_open open = { .listen_id = c->listen_id };
	uint8_t payload[BRAID_OPEN_SIZE];

	memcpy(open.mac, c->opened_mac, sizeof(open.mac));
	braid_open_pack(&open, payload);
	return tell_word(c, &c->opened_due, &h, payload);
}

bool braid_comm_send_control(struct braid_comm *c)
{
	struct braid_hdr fail = {
		.type = BRAID_F_FAIL, .comm = c->id, .n = c->fail_code,
		.size = c->fail_size, .offset = c->fail_room,
	};
	struct braid_hdr bye = { .type = BRAID_F_BYE, .comm = c->id };

	return (!c->opened_due || tell_opened(c)) && tell_retired(c) &&
	       (c->sender || tell_credits(c)) && tell_word(c, &c->fail_due, &fail, NULL) &&
	       tell_word(c, &c->bye_due, &bye, NULL);
}

static bool unfinished(const struct braid_comm *c)
{
	for (uint32_t q = c->first; q != braid_comm_next(c); q++) {
		if (c->sender ? send_slot(c, q)->parts : recv_slot(c, q)->posted)
			return true;
	}
	return false;
}

/* --- frames coming in ---------------------------------------------------------------------- */

static bool drains(struct braid_comm *c)
{
	return c->closed || atomic_load_explicit(&c->err, memory_order_relaxed);
}

static int rx_to_entry(struct braid_lane *lane, struct braid_recv *e, uint64_t offset)
{
	lane->rx_kind = BRAID_RX_ENTRY;
	lane->rx_target = e;
	lane->rx_dst = offset ? e->data + offset : e->data;	/* may be NULL if the room is 0 */
	return is_gpu(e) && !lane->gpu ? braid_comm_rx_stage(lane) : 0;
}

const struct braid_mr *braid_comm_rx_gpu(const struct braid_lane *lane)
{
	const struct braid_recv *e = lane->rx_target;

	return lane->rx_kind == BRAID_RX_ENTRY && !lane->rx_stage && is_gpu(e) ? e->mr : NULL;
}

int braid_comm_rx_stage(struct braid_lane *lane)
{
	if (!braid_comm_rx_gpu(lane) || !lane->rx_left)
		return 0;
	lane->rx_stage = malloc(lane->rx_left);
	if (!lane->rx_stage)
		return -ENOMEM;
	lane->rx_gpu = lane->rx_dst;
	lane->rx_dst = lane->rx_stage;
	return 0;
}

/* Copy a payload from lane->rx_stage into the GPU.  Returns what to_gpu() returns. */
static BRAID_APART int stage_in_done(struct braid_lane *lane)
{
	struct braid_recv *e = lane->rx_target;
	int err;

	if (!lane->rx_copy.mr)
		braid_gpucopy_begin(&lane->rx_copy, e->mr, lane->rx_gpu, lane->rx_stage,
				    lane->rx_hdr.len, true);
	err = to_gpu(e, &lane->rx_copy);
	if (err == -EAGAIN)
		return err;
	free(lane->rx_stage);
	lane->rx_stage = NULL;
	return err;
}

/* Check that the message is the comm's next: home carries messages in order. */
static int rx_in_order(struct braid_comm *c, const struct braid_hdr *h)
{
	if (c->sender || h->seq != c->rx_seq || is_retired(c, h->seq))
		return -EBADMSG;	/* out of order, or too many open */
	c->rx_seq++;
	c->last_tag = h->tag;
	return 0;
}

static int rx_um(struct braid_lane *lane, struct braid_comm *c, bool want)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_unexp *u;

	if (c->nums >= BRAID_SLOTS)
		return -EBADMSG;	/* more than a sender may have open */
	if (!want && !window_take(&c->um_bytes, &c->link->um_bytes, c->link->rx_window, h->size))
		return -EBADMSG;	/* more than the window we granted */
	u = braid_pool_get(sizeof(*u));
	if (!u)
		return -ENOMEM;
	*u = (struct braid_unexp){
		.comm = c, .seq = h->seq, .tag = h->tag, .size = h->size, .want = want,
		.ready = want, .alloc = want ? 0 : h->len,
	};
	braid_list_init(&u->copy_node);
	if (u->alloc) {
		u->data = braid_pool_get(u->alloc);
		if (!u->data) {
			braid_list_init(&u->node);
			um_free(c, u);
			return -ENOMEM;
		}
	}
	braid_list_add_tail(&c->unexps, &u->node);
	c->nums++;
	if (!want) {
		lane->rx_kind = BRAID_RX_UM;
		lane->rx_target = u;
		lane->rx_dst = u->data;
	}
	return 0;
}

static int begin_eager(struct braid_lane *lane, struct braid_comm *c)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_recv *e;

	if (drains(c))
		return 0;
	if (rx_in_order(c, h))
		return -EBADMSG;
	if (h->flags & BRAID_FLAG_CREDITED) {
		e = recv_slot(c, h->rseq);
		if (!e || !e->posted || e->matched || !e->credited || e->rseq != h->rseq ||
		    e->tag != h->tag || h->size > e->room)
			return -EBADMSG;
	} else {
		if (h->size <= BRAID_COPY_MAX)
			c->large = false;
		e = recv_find(c, h->tag);
		if (!e)
			return rx_um(lane, c, false);
	}
	if (e->begun)			/* chunks of another message have begun to arrive */
		return -EBADMSG;
	recv_match(c, e, h->size);
	if (h->size > e->room) {
		comm_oversize(c, h->size, e->room, h->tag);
		return 0;
	}
	if (!e->credited) {
		credit_not_due(c, e);
		retire(c, h->seq, h->size);
	}
	return rx_to_entry(lane, e, 0);
}

static int end_eager(struct braid_lane *lane)
{
	struct braid_unexp *u = lane->rx_target;

	if (lane->rx_kind == BRAID_RX_ENTRY) {
		int err = lane->rx_stage ? stage_in_done(lane) : 0;

		if (!err)
			recv_complete(lane->rx_target);
		return err == -EAGAIN ? err : 0;
	}
	u->ready = true;
	if (u->taken)
		um_move(u);
	return 0;
}

bool braid_comm_rx_nohdr_fast(struct braid_comm *c, uint16_t seq, const char *payload, size_t size)
{
	struct braid_recv *e = c->sender ? NULL : recv_slot(c, c->oldest_rseq);

	if (!e || drains(c) || seq != (uint16_t)c->rx_seq || is_retired(c, c->rx_seq) ||
	    !is_open(e) || e->tag != c->last_tag || e->credited || e->begun || size > e->room ||
	    size > BRAID_COPY_MAX || is_gpu(e))
		return false;
	c->large = false;
	recv_match(c, e, size);
	credit_not_due(c, e);
	retire(c, c->rx_seq++, size);
	braid_copy_up(e->data, payload, size);
	recv_complete(e);
	return true;
}

static void chunked_complete(struct braid_comm *c, struct braid_recv *e)
{
	if (!e->started || e->got != e->size)
		return;
	if (c->link->spread)
		c->link->spread--;
	recv_complete(e);
}

/* Can the chunks begun so far be part of a message of that size? */
static bool size_fits(const struct braid_recv *e, uint64_t size)
{
	return !e->begun || (e->unsized ? e->begun <= size : e->size == size);
}

static int begin_start(struct braid_lane *lane, struct braid_comm *c)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_recv *e;

	if (c->sender)
		return -EBADMSG;
	if (drains(c))
		return 0;
	e = recv_slot(c, h->rseq);
	if (!e || !e->posted || !e->credited || e->started || e->rseq != h->rseq ||
	    e->tag != h->tag || h->size > e->room || !size_fits(e, h->size))
		return -EBADMSG;
	if (e->wanted ? e->mseq != h->seq || e->size != h->size :
			e->matched || rx_in_order(c, h))
		return -EBADMSG;
	c->large = true;
	recv_match(c, e, h->size);
	e->started = true;
	c->link->spread++;
	chunked_complete(c, e);
	return 0;
}

static bool is_chunk_new(const struct braid_recv *e, unsigned n)
{
	return !(e->chunks[n / 64] >> n % 64 & 1);
}

/* Note that a chunk begins.  False: it began before. */
static bool chunk_begins(struct braid_recv *e, const struct braid_hdr *h)
{
	if (!is_chunk_new(e, h->n))
		return false;
	e->chunks[h->n / 64] |= 1ull << h->n % 64;
	e->begun += h->len;
	return true;
}

/* Can the chunk belong to this receive's message?  Its number is not checked. */
static bool chunk_fits(const struct braid_recv *e, const struct braid_hdr *h)
{
	return e && e->posted && e->credited && e->rseq == h->rseq && h->size <= e->room &&
	       (!e->matched || e->wanted || e->started) &&
	       (e->matched ? e->size == h->size : size_fits(e, h->size)) &&
	       (!(h->flags & BRAID_FLAG_PLACED) || e->placed) && h->len <= h->size - e->begun;
}

static int begin_chunk(struct braid_lane *lane, struct braid_comm *c)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_recv *e;

	if (c->sender)
		return -EBADMSG;
	if (drains(c))
		return 0;
	e = recv_slot(c, h->rseq);
	if (!chunk_fits(e, h) || !chunk_begins(e, h))
		return -EBADMSG;
	e->size = h->size;
	e->unsized = false;
	return rx_to_entry(lane, e, h->offset);
}

char *braid_comm_rx_place(const struct braid_lane *lane, const struct braid_hdr *h,
			  const struct braid_mr **ret_gpu)
{
	struct braid_comm *c = braid_link_comm(lane->link, h->comm);
	struct braid_recv *e;

	if (h->type != BRAID_F_CHUNK || !c || c->sender || drains(c))
		return NULL;
	e = recv_slot(c, h->rseq);
	*ret_gpu = e && is_gpu(e) ? e->mr : NULL;
	return chunk_fits(e, h) && is_chunk_new(e, h->n) && (!*ret_gpu || lane->gpu) ?
		       e->data + h->offset : NULL;
}

void braid_comm_rx_nohdr(struct braid_comm *c, uint16_t seq, struct braid_hdr *h)
{
	h->seq = c->rx_seq - (uint16_t)(c->rx_seq - seq);
	h->tag = c->last_tag;
}

int braid_comm_rx_imm(struct braid_lane *lane, struct braid_comm *c, unsigned slot, bool whole)
{
	struct braid_hdr *h = &lane->rx_hdr;
	struct braid_recv *e;
	int err;

	if (c->sender)
		return -EBADMSG;
	if (drains(c))
		return 0;
	e = recv_slot(c, slot);
	if (!e || !e->posted || !e->placed)
		return -EBADMSG;
	if (whole) {			/* complete the header of the START that it stands for */
		h->rseq = e->rseq;
		h->tag = e->tag;
		h->seq = e->wanted ? e->mseq : c->rx_seq;
		err = begin_start(lane, c);
		if (err)
			return err;
	}
	if (e->matched && !e->wanted && !e->started)
		return -EBADMSG;
	if (!e->begun && !e->matched)
		e->unsized = true;
	if (h->len > (e->unsized ? e->room : e->size) - e->begun || !chunk_begins(e, h))
		return -EBADMSG;
	return rx_to_entry(lane, e, 0);
}

void braid_comm_rx_undo(struct braid_lane *lane)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_recv *e = lane->rx_target;

	e->begun -= h->len;
	e->chunks[h->n / 64] &= ~(1ull << (h->n % 64));
}

static int end_chunk(struct braid_lane *lane)
{
	struct braid_recv *e = lane->rx_target;
	int err = lane->rx_stage ? stage_in_done(lane) : 0;

	if (err)
		return err == -EAGAIN ? err : 0;
	e->got += lane->rx_hdr.len;
	chunked_complete(e->req.comm, e);
	return 0;
}

static int begin_want(struct braid_lane *lane, struct braid_comm *c)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_recv *e;

	if (drains(c))
		return 0;
	if (rx_in_order(c, h))
		return -EBADMSG;
	c->large = true;
	e = recv_find(c, h->tag);
	if (!e)
		return rx_um(lane, c, true);
	if (!size_fits(e, h->size))
		return -EBADMSG;
	if (h->size > e->room) {
		comm_oversize(c, h->size, e->room, h->tag);
		return 0;
	}
	recv_match_want(c, e, h->seq, h->size);
	return 0;
}

static int begin_credit(struct braid_lane *lane, struct braid_comm *c)
{
	if (!c->sender)
		return -EBADMSG;
	lane->rx_kind = BRAID_RX_CTL;
	lane->rx_dst = (char *)lane->rx_ctl;
	return 0;
}

static int end_credit(struct braid_lane *lane)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_comm *c = braid_link_comm(lane->link, h->comm);
	struct braid_place to = { .addr = h->offset, .rkey_epoch = h->seq, .nkeys = h->len / 4 };
	struct braid_credit *cr;

	if (!c || drains(c))
		return 0;
	braid_keys_unpack(lane->rx_ctl, to.nkeys, to.key);
	for (uint32_t q = c->oldest_await; q != c->next_seq; q++) {
		struct braid_send *s = send_slot(c, q);
		bool want = s->await == BRAID_AWAIT_WANT;

		if (s->await == BRAID_MET || s->tag != h->tag)
			continue;
		send_met(c, s);
		if (!want)
			return 0;
		if (s->size > h->size)
			comm_oversize(c, s->size, h->size, s->tag);
		else
			send_to_credit(c, s, h->rseq, &to);
		return 0;
	}
	if (c->credited[h->rseq % BRAID_SLOTS / 64] >> h->rseq % 64 & 1)
		return -EBADMSG;	/* more credits than a comm can have receives */
	cr = braid_slab_get(&c->credit_slab, sizeof(*cr));
	if (!cr)
		return -ENOMEM;
	c->credited[h->rseq % BRAID_SLOTS / 64] |= 1ull << h->rseq % 64;
	cr->rseq = h->rseq;
	cr->tag = h->tag;
	cr->room = h->size;
	cr->to = to;
	braid_list_add_tail(&c->credits, &cr->node);
	return 0;
}

static int begin_retire(struct braid_lane *lane, struct braid_comm *c)
{
	const struct braid_hdr *h = &lane->rx_hdr;

	if (!c->sender || h->n > BRAID_SLOTS)
		return -EBADMSG;
	for (uint32_t q = h->seq; q != h->seq + h->n; q++) {
		struct braid_send *s = send_slot(c, q);

		if (!s || s->seq != q || s->await != BRAID_AWAIT_EAGER)
			return -EBADMSG;
		send_met(c, s);
	}
	return 0;
}

static int begin_opened(struct braid_lane *lane, struct braid_comm *c)
{
	if (!c->sender)
		return -EBADMSG;
	lane->rx_kind = BRAID_RX_CTL;
	lane->rx_dst = (char *)lane->rx_ctl;
	return 0;
}

/* The peer must prove this listen's token: the link may have been made with another listen's. */
static int end_opened(struct braid_lane *lane)
{
	struct braid_comm *c = braid_link_comm(lane->link, lane->rx_hdr.comm);
	struct braid_open open;

	if (!c || c->opened)
		return 0;
	braid_open_unpack(lane->rx_ctl, &open);
	c->opened = braid_auth_equal(open.mac, c->opened_mac);
	if (!c->opened)
		braid_comm_fail(c, -EACCES);	/* the dialler logs it */
	return 0;
}

static int begin_refused(struct braid_lane *lane, struct braid_comm *c)
{
	if (!c->sender)
		return -EBADMSG;
	c->peer_closed = true;
	if (c->opened)
		comm_orphaned(c);	/* after the peer accepted it */
	else
		braid_comm_fail(c, lane->rx_hdr.n == BRAID_HELLO_NO_ROOM ?
					   -ENOBUFS : -ECONNREFUSED);	/* the dialler logs it */
	return 0;
}

/* Is its message complete here, and being copied into a GPU? */
static bool is_copied(const struct braid_comm *c, const struct braid_recv *e)
{
	const struct braid_unexp *u;

	braid_list_for(u, &c->link->copying, copy_node) {
		if (u->recv == e)
			return true;
	}
	return false;
}

static bool is_untaken(const struct braid_send *s)
{
	return s->parts && (s->await != BRAID_MET || !braid_list_empty(&s->node));
}

/*
 * Does a request wait for data that the peer will not take or send after its BYE?  A send that met
 * its receive and is all queued has arrived, or FAIL would have come first; its acknowledgement may
 * still be on its way on another lane.
 */
static bool orphans(const struct braid_comm *c)
{
	for (uint32_t q = c->first; q != braid_comm_next(c); q++) {
		if (c->sender ? is_untaken(send_slot(c, q)) :
				recv_slot(c, q)->posted && !is_copied(c, recv_slot(c, q)))
			return true;
	}
	return false;
}

static int begin_bye(struct braid_lane *lane, struct braid_comm *c)
{
	(void)lane;
	c->peer_closed = true;
	if (orphans(c))
		comm_orphaned(c);
	if (c->sender) {
		c->link->shared_out -= over_floor(c->eager_out);
		c->eager_out = 0;
		for (uint32_t q = c->oldest_await; q != c->next_seq; q++)
			send_slot(c, q)->await = BRAID_MET;
		c->oldest_await = c->next_seq;
	}
	if (c->closed && !c->bye_due)
		braid_comm_free(c);
	return 0;
}

/* The frame that this one replaces will never come.  FAIL follows, perhaps after more messages. */
static int begin_void(struct braid_lane *lane, struct braid_comm *c)
{
	(void)lane;
	comm_ended(c, BRAID_WHY_GAVE_UP);
	return 0;
}

static int begin_fail(struct braid_lane *lane, struct braid_comm *c)
{
	const struct braid_hdr *h = &lane->rx_hdr;

	if (atomic_load(&c->err) || c->closed)
		return 0;
	if (h->n == EMSGSIZE) {
		braid_warn(
			"device %s, peer %s: a message of %llu bytes was sent to a receive posted "
			"with %llu bytes; nothing was delivered. Make both ranks use the same size "
			"[size-mismatch]",
			c->link->key.dev->net.name, c->link->peer, (unsigned long long)h->size,
			(unsigned long long)h->offset);
		braid_comm_fail(c, -EMSGSIZE);
	} else {
		begin_void(lane, c);
	}
	return 0;
}

static const struct {
	int (*begin)(struct braid_lane *lane, struct braid_comm *c);
	int (*end)(struct braid_lane *lane);	/* NULL: no payload */
} rx[BRAID_F_MAX] = {
	[BRAID_F_EAGER]   = { begin_eager, end_eager },
	[BRAID_F_START]   = { begin_start, NULL },
	[BRAID_F_WANT]    = { begin_want, NULL },
	[BRAID_F_CHUNK]   = { begin_chunk, end_chunk },
	[BRAID_F_CREDIT]  = { begin_credit, end_credit },
	[BRAID_F_RETIRE]  = { begin_retire, NULL },
	[BRAID_F_OPENED]  = { begin_opened, end_opened },
	[BRAID_F_REFUSED] = { begin_refused, NULL },
	[BRAID_F_BYE]     = { begin_bye, NULL },
	[BRAID_F_FAIL]    = { begin_fail, NULL },
	[BRAID_F_VOID]    = { begin_void, NULL },
};

int braid_comm_rx_begin(struct braid_lane *lane, struct braid_comm *c)
{
	unsigned type = lane->rx_hdr.type;

	return rx[type].begin ? rx[type].begin(lane, c) : -EBADMSG;
}

int braid_comm_rx_end(struct braid_lane *lane)
{
	return rx[lane->rx_hdr.type].end(lane);
}

/* --- test, cancel, close ------------------------------------------------------------------- */

/* Called by the one thread that makes the comm's data calls; another may close the comm. */
static void count_done(struct braid_comm *c, uint64_t size)
{
	braid_count(&c->done.messages, 1);
	braid_count(&c->done.bytes, size);
}

static void add_traffic(struct braid_traffic *to, const struct braid_traffic *t)
{
	atomic_fetch_add(&to->messages, atomic_load(&t->messages));
	atomic_fetch_add(&to->bytes, atomic_load(&t->bytes));
}

static void count_closed(struct braid_comm *c)
{
	struct braid_dev *dev = c->link->key.dev;

	add_traffic(c->sender ? &dev->sent : &dev->got, &c->done);
	add_traffic(&c->link->closed[c->sender], &c->done);
}

static int as_int(uint64_t size)
{
	return size > INT_MAX ? INT_MAX : (int)size;
}

void braid_comm_finish(struct braid_req *req, int *sizes)
{
	struct braid_comm *c = req->comm;
	uint32_t end;

	if (c->sender) {
		struct braid_send *s = braid_container(req, struct braid_send, req);

		if (sizes)
			sizes[0] = as_int(s->size);
		count_done(c, s->size);
		braid_hint(&s->busy, false);
		return;
	}
	end = braid_container(req, struct braid_recv, req)->rseq + req->n;
	for (uint32_t r = end - req->n; r != end; r++) {
		struct braid_recv *e = recv_slot(c, r);

		if (!e)
			return;		/* finished before */
		if (sizes)
			*sizes++ = as_int(e->size);
		count_done(c, e->size);
		braid_hint(&e->busy, false);
	}
	if (end == c->next_rseq)
		braid_link_defer_control(c->link);
}

/*
 * A test() of a send that is held back.  One such call is normal between isends; two in a row mean
 * that the caller waits, so the burst is over.  Neither call needs to read from the network.
 */
static BRAID_APART void hold_back(struct braid_comm *c)
{
	struct braid_link *link = c->link;

	if (c->burst++ == 1 || !braid_trylock(&link->lock))
		return;
	/* Count the whole burst, not its rest: else one short burst would split all later ones. */
	link->burst = link->burst_now < BURST_MAX ? link->burst_now : BURST_MAX;
	link->burst_run = link->burst_now = 0;
	braid_link_flush(link);
	braid_unlock(&link->lock);
	c->burst = 0;
}

int braid_comm_ask(struct braid_req *req)
{
	struct braid_comm *c = req->comm;
	int err;

	if (!atomic_load_explicit(&req->done, memory_order_acquire)) {
		if (c->burst)
			hold_back(c);
		else
			braid_link_progress(c->link, c, &req->done);
	}
	if (atomic_load_explicit(&req->done, memory_order_acquire) && !c->reported)
		return 1;
	err = atomic_load_explicit(&c->err, memory_order_acquire);
	return err ? report(c, err) : 0;
}

int braid_comm_test(struct braid_req *req, bool *ret_done, int *sizes)
{
	int res = braid_comm_ask(req);

	*ret_done = res > 0;
	if (res <= 0)
		return res;
	braid_comm_finish(req, sizes);
	return 0;
}

bool braid_comm_waits(struct braid_comm *c, struct braid_waiting *ret)
{
	if (c->closed || atomic_load(&c->err))
		return false;
	if (!c->sender && c->oldest_rseq != c->next_rseq) {
		const struct braid_recv *e = recv_slot(c, c->oldest_rseq);

		*ret = (struct braid_waiting){ true, e->rseq, e->tag, e->room };
	}
	for (uint32_t q = c->oldest_await; c->sender && q != c->next_seq && !ret->any; q++) {
		const struct braid_send *s = send_slot(c, q);

		if (s->await == BRAID_AWAIT_WANT)
			*ret = (struct braid_waiting){ true, s->seq, s->tag, s->size };
	}
	return ret->any;
}

static bool uses(const struct braid_comm *c, const struct braid_mr *mr)
{
	for (uint32_t q = c->first; q != braid_comm_next(c); q++) {
		if (c->sender ? send_slot(c, q)->parts && send_slot(c, q)->mr == mr :
				recv_slot(c, q)->posted && recv_slot(c, q)->mr == mr)
			return true;
	}
	return false;
}

/* Has a chunk of the comm been sent whose memory a NIC may still read? */
static bool is_sending(const struct braid_lane *lane, const struct braid_comm *c)
{
	const struct braid_txq *q = &lane->tx;

	for (uint32_t i = q->f_acked; i != q->f_sent; i++) {
		const struct braid_txf *f = &q->f[i & q->fmask];

		if (f->ext_len && f->owner && f->owner->req.comm == c)
			return true;
	}
	return q->part && q->f[q->f_sent & q->fmask].ext_len;
}

static void forget_sends(struct braid_comm *c)
{
	braid_link_revoke(c->link, is_sending, c);
	for (uint32_t q = c->first; q != c->next_seq; q++)
		braid_list_del(&send_slot(c, q)->node);
	for (unsigned i = 0; i < c->link->nlanes; i++) {
		if (braid_tx_release(c->link->lane[i], c))
			braid_link_down(c->link, -ENOMEM, "out of memory [no-memory]");
	}
	for (uint32_t q = c->first; q != c->next_seq; q++)
		send_slot(c, q)->parts = 0;
}

static void forget_recvs(struct braid_comm *c)
{
	bool placed = false;

	for (uint32_t q = c->first; q != c->next_rseq; q++) {
		const struct braid_recv *e = recv_slot(c, q);

		placed |= e->posted && e->credited && e->placed;
	}
	if (placed)
		braid_link_revoke(c->link, NULL, c);
	if (c->link->again.kind && c->link->again.hdr.comm == c->id)
		c->link->again.kind = BRAID_RX_DRAIN;
	for (unsigned i = 0; i < c->link->nlanes; i++) {
		struct braid_lane *lane = c->link->lane[i];

		if (lane->tr->lands && lane->tr->lands(lane, c->id)) {
			lane->tr->lane_fence(lane);
			braid_lane_lost(lane, -ECANCELED);
		}
		if (lane->rx_hdr.comm != c->id ||
		    (lane->rx_kind != BRAID_RX_ENTRY && lane->rx_kind != BRAID_RX_UM))
			continue;
		lane->rx_kind = BRAID_RX_DRAIN;
		lane->rx_dst = NULL;
		braid_gpucopy_end(&lane->rx_copy);
		free(lane->rx_stage);
		lane->rx_stage = NULL;
	}
	for (uint32_t q = c->first; q != c->next_rseq; q++) {
		struct braid_recv *e = recv_slot(c, q);

		if (e->posted && e->started && c->link->spread)
			c->link->spread--;
		e->posted = e->credit_due = false;
	}
	c->ndue = 0;
	c->oldest_rseq = c->next_rseq;
	ums_drop(c);
}

void braid_comm_cancel(struct braid_comm *c, const struct braid_mr *mr)
{
	struct braid_link *link = c->link;
	unsigned n = braid_link_stop(link);
	uint32_t rkey_epoch = link->rkey_epoch;
	bool used = uses(c, mr);

	if (used) {
		if (!atomic_load(&c->err))
			give_up(c, "memory is deregistered here");
		braid_comm_fail(c, -ECANCELED);
		if (c->sender)
			forget_sends(c);
		else
			forget_recvs(c);
	}
	braid_link_go(link, n);
	if (!used)
		return;		/* as nearly always: no need to make progress, either */
	if (rkey_epoch != link->rkey_epoch)
		braid_handshakes_revoke(link);
	braid_link_progress(link, NULL, NULL);
	braid_link_try_flush_control(link);
}

void braid_comm_close(struct braid_comm *c)
{
	struct braid_link *link = c->link;
	unsigned n = braid_link_stop(link);
	uint32_t rkey_epoch = link->rkey_epoch;
	bool gone;

	if (unfinished(c) && !atomic_load(&c->err) && !c->peer_closed)
		give_up(c, "a connection is closed here");
	if (c->sender)
		forget_sends(c);
	else
		forget_recvs(c);
	c->closed = true;
	braid_event(BRAID_EVENT_COMM_CLOSE, link->number, BRAID_FLIGHT_NONE, c->id,
		    atomic_load(&c->err));
	count_closed(c);
	gone = atomic_load(&link->state) != BRAID_LINK_UP;
	if (gone) {
		braid_comm_free(c);
	} else {		/* freed once both ends have sent BYE */
		c->bye_due = true;
		braid_link_control_due(link, c);
	}
	atomic_fetch_add(&link->pins, 1);
	braid_link_go(link, n);
	if (rkey_epoch != link->rkey_epoch)
		braid_handshakes_revoke(link);
	braid_link_progress(link, NULL, NULL);
	braid_link_flush_control(link);	/* the process may end before its threads run again */
	atomic_fetch_sub(&link->pins, 1);
}
