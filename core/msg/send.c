/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * send.c - isend(): choose how a message travels, and queue its first frame.
 *
 * A small message that fits the window, or whose receive is known, leaves whole (EAGER).  Any
 * other begins with START if a credit of its tag is here, else with WANT.  Small messages in a row
 * may be held back a little, so that one system call sends them all.
 */
#include "core/msg/comm.h"

#include <errno.h>

#include "core/base/clock.h"
#include "core/base/param.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/msg/msg_int.h"
#include "core/msg/window.h"

enum {
	BURST_MAX = 32, BURST_TRY = 64,
	EAGER_SPREAD_MAX = 16 << 10,	/* largest eager message with several lanes */
	TIMED_BYTES = 64 << 10,		/* after so many, one send is timed; each also counts as: */
	TIMED_EACH = TIMED_BYTES / 31,	/* 31 divides no round of a caller's with 2^n messages */
};

void braid_send_met(struct braid_comm *c, struct braid_send *s)
{
	braid_assert_locked(&c->link->lock);
	if (s->await == BRAID_AWAIT_EAGER)
		braid_window_give(&c->eager_out, &c->link->msg.shared_out, s->size);
	s->await = BRAID_MET;
	if (s->x.seq != c->oldest_await)
		return;
	do
		c->oldest_await++;
	while (c->oldest_await != c->next_seq &&
	       braid_send_at(c, c->oldest_await)->await == BRAID_MET);
}

/*
 * The receive is known, so chunks can be sent.  After a WANT the message has its place in the
 * order, and its START may wait for room.  Without a WANT the caller sends START at once.
 */
void braid_send_to_credit(struct braid_comm *c, struct braid_send *s, uint32_t rseq,
			  const struct braid_place *to)
{
	braid_assert_locked(&c->link->lock);
	s->rseq = rseq;
	s->x.to = *to;
	s->start_due = true;
	braid_link_pending(c->link, &s->x);
}

static bool send_start_frame(struct braid_send *s)
{
	struct braid_hdr h = {
		.type = BRAID_F_START, .comm = s->req.comm->id, .seq = s->x.seq, .tag = s->tag,
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

static bool send_cut(struct braid_lane *lane, struct braid_xfer *x)
{
	struct braid_send *s = braid_container(x, struct braid_send, x);
	struct braid_hdr h = {
		.type = BRAID_F_CHUNK, .comm = s->x.comm, .seq = s->x.seq, .rseq = s->rseq,
		.tag = s->tag, .n = s->chunks, .offset = s->cut, .size = s->size,
	};

	braid_assert_locked(&lane->link->lock);
	if (!send_start_frame(s) || !braid_txq_room(&lane->tx, 0))
		return false;
	if (!s->size) {			/* no window was left for an EAGER: it is START alone */
		braid_list_del(&s->x.node);
		braid_xfer_part_done(&s->x);
		return true;
	}
	if (!s->cut)
		s->chunk = braid_link_chunk_len(lane->link, s->size);
	h.len = s->size - s->cut < s->chunk ? (uint32_t)(s->size - s->cut) : s->chunk;
	braid_tx_add_chunk(lane, &h, s->data + s->cut, &s->x, h.len == s->size - s->cut);
	s->cut += h.len;
	s->chunks++;
	return true;
}

static BRAID_APART void send_timed(const struct braid_xfer *x)
{
	const struct braid_send *s = braid_container(x, struct braid_send, x);
	struct braid_link *link = s->req.comm->link;

	braid_assert_locked(&link->lock);
	braid_hist_note(&link->msg.took[s->size > BRAID_COPY_MAX],
			braid_since(x->posted_ns, braid_os->now_ns()));
}

static const struct braid_xfer_ops send_ops = {
	.cut = send_cut, .no_gpu = braid_send_no_gpu, .timed = send_timed,
};

/* The time, if this send is one of those timed; else 0. */
static inline uint64_t timed_from(struct braid_link *link, uint64_t size)
{
	link->msg.untimed += size + TIMED_EACH;
	if (__builtin_expect(link->msg.untimed < TIMED_BYTES, true))
		return 0;
	link->msg.untimed %= TIMED_BYTES;
	return braid_os->now_ns();
}

static void send_whole(struct braid_comm *c, struct braid_send *s, const struct braid_credit *cr)
{
	struct braid_hdr h = {
		.type = BRAID_F_EAGER, .comm = c->id, .seq = s->x.seq, .tag = s->tag,
		.len = (uint32_t)s->size, .size = s->size,
		.flags = cr ? BRAID_FLAG_CREDITED : 0, .rseq = cr ? cr->rseq : 0,
	};
	bool copy = s->size <= BRAID_COPY_MAX;

	braid_tx_add(braid_link_home(c->link), &h, copy && s->size ? s->data : NULL,
		     copy ? NULL : s->data, &s->x);
}

static BRAID_APART void send_want(struct braid_comm *c, struct braid_send *s)
{
	struct braid_hdr h = {
		.type = BRAID_F_WANT, .comm = c->id, .seq = s->x.seq, .tag = s->tag,
		.size = s->size,
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
		(braid_link_active(c->link) <= 1 || size <= EAGER_SPREAD_MAX));
}

/* Choose a protocol and queue the first frame.  The slot is filled, and home has room. */
static void send_start(struct braid_comm *c, struct braid_send *s)
{
	struct braid_credit *cr = NULL;

	if (!braid_list_empty(&c->credits))
		cr = braid_credit_find(c, s->tag);
	if (cr) {
		if (s->size > cr->room)
			braid_comm_oversize(c, s->size, cr->room, s->tag);
		else if (is_small(c, s->size, s->x.mr) &&
			 may_fly(braid_link_home(c->link), s->size))
			send_whole(c, s, cr);
		else {
			braid_send_to_credit(c, s, cr->rseq, &cr->to);
			send_start_frame(s);	/* the caller made sure of the room */
		}
		braid_credit_free(c, cr);
	} else if (is_small(c, s->size, s->x.mr) &&
		   braid_window_take(&c->eager_out, &c->link->msg.shared_out,
				     c->link->msg.tx_window, s->size)) {
		s->await = BRAID_AWAIT_EAGER;
		send_whole(c, s, NULL);
	} else {
		send_want(c, s);
	}
	if (s->await == BRAID_MET && c->oldest_await == s->x.seq)
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

	if (++link->msg.burst_run > BURST_TRY * link->msg.burst && link->msg.burst < BURST_MAX) {
		link->msg.burst++;
		link->msg.burst_run = 0;
	}
	return braid_link_is_quiet(link) || s->size > BRAID_COPY_MAX ||
	       q->unsent > 4 * BRAID_COPY_MAX || q->f_head - q->f_sent >= link->msg.burst;
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

	return home->tr->post && braid_link_is_quiet(link) && tag == c->last_tag && size &&
	       size <= BRAID_COPY_MAX && is_small(c, size, mr) && braid_list_empty(&c->credits) &&
	       braid_window_has(c->eager_out, link->msg.shared_out, link->msg.tx_window, size) &&
	       braid_tx_fast_send(home, c->id, c->next_seq, data, (uint32_t)size);
}

/*
 * A test() of a send that is held back.  One such call is normal between isends; two in a row mean
 * that the caller waits, so the burst is over.  Neither call needs to read from the network.
 */
BRAID_APART void braid_send_hold_back(struct braid_comm *c)
{
	struct braid_link *link = c->link;
	uint32_t frames;

	if (c->burst++ == 1 || !braid_trylock(&link->lock))
		return;
	/* Count the whole burst, not its rest: else one short burst would split all later ones. */
	frames = braid_link_end_burst(link);
	link->msg.burst = frames < BURST_MAX ? frames : BURST_MAX;
	link->msg.burst_run = 0;
	braid_link_flush(link);
	braid_unlock(&link->lock);
	c->burst = 0;
}

/* An entry for the next send: the oldest, if test() has finished it, or a new one; or NULL. */
static struct braid_send *send_new(struct braid_comm *c)
{
	if (c->first != c->oldest_await) {
		struct braid_send *s = braid_send_at(c, c->first);

		if (!braid_req_is_busy(&s->busy)) {
			c->send[c->first++ % BRAID_SLOTS] = NULL;
			return s;
		}
	}
	if (braid_send_at(c, c->next_seq))
		return NULL;
	return braid_slab_get(&c->slab, sizeof(struct braid_send));
}

static int isend_locked(struct braid_comm *c, const void *data, uint64_t size, int32_t tag,
			struct braid_mr *mr, struct braid_req **ret)
{
	struct braid_link *link = c->link;
	struct braid_send *s;
	uint64_t posted_ns;
	bool now;

	braid_assert_locked(&link->lock);
	if (c->peer_closed)
		braid_comm_orphaned(c);
	if (atomic_load_explicit(&c->err, memory_order_relaxed)) {
		*ret = braid_req_in_vain(c, 1);
		return 0;
	}
	if (braid_link_is_urgent(link))
		braid_link_send_control(link);
	s = send_new(c);
	if (!s)
		return -EAGAIN;
	posted_ns = timed_from(link, size);
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
	braid_list_init(&s->x.node);
	s->x.ops = &send_ops;
	s->at_ns = braid_posted_at(link);
	s->await = BRAID_MET;
	s->x.seq = c->next_seq++;
	c->send[s->x.seq % BRAID_SLOTS] = s;
	s->data = data;
	s->size = size;
	s->cut = 0;
	s->tag = tag;
	s->x.same_tag = tag == c->last_tag;
	c->last_tag = tag;
	s->x.parts = 1;
	s->x.done = &s->req.done;
	s->x.posted_ns = posted_ns;
	s->x.comm = c->id;
	s->chunks = 0;
	s->start_due = false;
	s->x.mr = mr;
	send_start(c, s);
	now = send_now(link, s);
	c->burst = now ? 0 : 1;
	braid_link_send(link, now);
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
	/* Not posted: make progress, so that the next call can succeed. */
	braid_link_progress(c->link, &c->flush_epoch, NULL);
	return 0;
}
