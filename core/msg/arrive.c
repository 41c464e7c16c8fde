/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * arrive.c - frames that arrive for a comm: one row for each type.
 *
 * The header decides where the payload goes: into the buffer of its receive, into memory for an
 * unexpected message, or, for a control frame, into the lane.  A frame that the peer may not
 * send is refused with -EBADMSG, which ends the link.
 */
#include "core/msg/comm.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/copy.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/msg/comms.h"
#include "core/msg/msg_int.h"

static int rx_to_entry(struct braid_lane *lane, struct braid_recv *e, uint64_t offset)
{
	lane->rx_kind = BRAID_RX_ENTRY;
	lane->rx_target = e;
	lane->rx_mr = braid_recv_is_gpu(e) ? e->mr : NULL;
	lane->rx_dst = offset ? e->data + offset : e->data;	/* may be NULL if the room is 0 */
	return lane->rx_mr && !lane->gpu ? braid_rx_stage(lane) : 0;
}

BRAID_APART int braid_comm_rx_to_gpu(struct braid_lane *lane, struct braid_comm *c)
{
	int err;

	braid_assert_locked(&lane->link->lock);
	if (!lane->rx_copy.mr)
		braid_gpucopy_begin(&lane->rx_copy, braid_link_copies(lane->link), lane->rx_mr,
				    lane->rx_gpu, lane->rx_stage, lane->rx_hdr.len, true);
	err = braid_gpucopy_move(&lane->rx_copy);
	if (err == -EAGAIN)
		return err;
	if (err)
		braid_comm_no_gpu(c, &lane->rx_copy);
	free(lane->rx_stage);
	lane->rx_stage = NULL;
	return err;
}

/* Check that the message is the comm's next: home carries messages in order. */
static int rx_in_order(struct braid_comm *c, const struct braid_hdr *h)
{
	if (c->sender || h->seq != c->rx_seq || braid_is_retired(c, h->seq))
		return -EBADMSG;	/* out of order, or too many open */
	c->rx_seq++;
	c->last_tag = h->tag;
	return 0;
}

static int begin_eager(struct braid_lane *lane, struct braid_comm *c)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_recv *e;

	if (braid_comm_drains(c))
		return 0;
	if (rx_in_order(c, h))
		return -EBADMSG;
	if (h->flags & BRAID_FLAG_CREDITED) {
		e = braid_recv_at(c, h->rseq);
		if (!e || !e->posted || e->matched || !e->credited || e->rseq != h->rseq ||
		    e->tag != h->tag || h->size > e->room)
			return -EBADMSG;
	} else {
		if (h->size <= BRAID_COPY_MAX)
			c->large = false;
		e = braid_recv_find(c, h->tag);
		if (!e)
			return braid_unexp_begin(lane, c, false);
	}
	if (e->begun)			/* chunks of another message have begun to arrive */
		return -EBADMSG;
	braid_recv_match(c, e, h->size);
	if (h->size > e->room) {
		braid_comm_oversize(c, h->size, e->room, h->tag);
		return 0;
	}
	if (!e->credited) {
		braid_credit_not_due(c, e);
		braid_retire(c, h->seq, h->size);
	}
	return rx_to_entry(lane, e, 0);
}

static int end_eager(struct braid_lane *lane)
{
	struct braid_unexp *u = lane->rx_target;

	if (lane->rx_kind == BRAID_RX_ENTRY) {
		struct braid_recv *e = lane->rx_target;
		int err = lane->rx_stage ? braid_comm_rx_to_gpu(lane, e->req.comm) : 0;

		if (!err)
			braid_recv_complete(e);
		return err == -EAGAIN ? err : 0;
	}
	u->ready = true;
	if (u->taken)
		braid_unexp_move(u);
	return 0;
}

/* The comm's next message is here whole: see braid_comm_rx_fast(). */
static inline bool rx_fast(struct braid_comm *c, int32_t tag, const char *payload, size_t size)
{
	struct braid_recv *e = c->sender ? NULL : braid_recv_at(c, c->oldest_rseq);

	if (!e || braid_comm_drains(c) || braid_is_retired(c, c->rx_seq) ||
	    !braid_recv_is_open(e) || e->tag != tag || e->credited || e->begun ||
	    size > e->room || size > BRAID_COPY_MAX || braid_recv_is_gpu(e))
		return false;
	c->last_tag = tag;
	c->large = false;
	braid_recv_match(c, e, size);
	braid_credit_not_due(c, e);
	braid_retire(c, c->rx_seq++, size);
	braid_copy_up(e->data, payload, size);
	braid_recv_complete(e);
	return true;
}

bool braid_comm_rx_fast(struct braid_lane *lane, const char *payload)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_comm *c = braid_comm_find(lane->link, h->comm);

	braid_assert_locked(&lane->link->lock);
	if (c && c->kind)
		return c->kind->rx_fast(c, h, payload);
	return c && !h->flags && h->seq == c->rx_seq && rx_fast(c, h->tag, payload, h->len);
}

bool braid_comm_rx_nohdr_fast(struct braid_link *link, uint32_t imm, const char *payload,
			      size_t size)
{
	struct braid_comm *c = braid_comm_find(link, imm >> 16);

	braid_assert_locked(&link->lock);
	return c && !c->kind && (uint16_t)imm == (uint16_t)c->rx_seq &&
	       rx_fast(c, c->last_tag, payload, size);
}

void braid_comm_rx_nohdr(struct braid_lane *lane, uint16_t seq)
{
	struct braid_hdr *h = &lane->rx_hdr;
	const struct braid_comm *c = braid_comm_find(lane->link, h->comm);

	braid_assert_locked(&lane->link->lock);
	if (!c)
		return;
	h->seq = c->rx_seq - (uint16_t)(c->rx_seq - seq);
	h->tag = c->last_tag;
}

static void chunked_complete(struct braid_comm *c, struct braid_recv *e)
{
	if (!e->started || e->got != e->size)
		return;
	braid_link_spread_end(c->link);
	braid_recv_complete(e);
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
	if (braid_comm_drains(c))
		return 0;
	e = braid_recv_at(c, h->rseq);
	if (!e || !e->posted || !e->credited || e->started || e->rseq != h->rseq ||
	    e->tag != h->tag || h->size > e->room || !size_fits(e, h->size))
		return -EBADMSG;
	if (e->wanted ? e->mseq != h->seq || e->size != h->size :
			e->matched || rx_in_order(c, h))
		return -EBADMSG;
	c->large = true;
	braid_recv_match(c, e, h->size);
	e->started = true;
	braid_link_spread_begin(c->link);
	chunked_complete(c, e);
	return 0;
}

static int begin_want(struct braid_lane *lane, struct braid_comm *c)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_recv *e;

	if (braid_comm_drains(c))
		return 0;
	if (rx_in_order(c, h))
		return -EBADMSG;
	c->large = true;
	e = braid_recv_find(c, h->tag);
	if (!e)
		return braid_unexp_begin(lane, c, true);
	if (!size_fits(e, h->size))
		return -EBADMSG;
	if (h->size > e->room) {
		braid_comm_oversize(c, h->size, e->room, h->tag);
		return 0;
	}
	braid_recv_match_want(c, e, h->seq, h->size);
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
	if (braid_comm_drains(c))
		return 0;
	e = braid_recv_at(c, h->rseq);
	if (!chunk_fits(e, h) || !chunk_begins(e, h))
		return -EBADMSG;
	e->size = h->size;
	e->unsized = false;
	return rx_to_entry(lane, e, h->offset);
}

static int end_chunk(struct braid_lane *lane)
{
	struct braid_recv *e = lane->rx_target;
	int err = lane->rx_stage ? braid_comm_rx_to_gpu(lane, e->req.comm) : 0;

	if (err)
		return err == -EAGAIN ? err : 0;
	e->got += lane->rx_hdr.len;
	chunked_complete(e->req.comm, e);
	return 0;
}

char *braid_comm_rx_place(const struct braid_lane *lane, const struct braid_hdr *h,
			  const struct braid_mr **ret_gpu)
{
	struct braid_comm *c = braid_comm_find(lane->link, h->comm);
	struct braid_recv *e;

	braid_assert_locked(&lane->link->lock);
	if (h->type != BRAID_F_CHUNK || !c || braid_comm_drains(c))
		return NULL;
	if (c->kind)
		return c->kind->rx_place(lane, c, h, ret_gpu);
	if (c->sender)
		return NULL;
	e = braid_recv_at(c, h->rseq);
	*ret_gpu = e && braid_recv_is_gpu(e) ? e->mr : NULL;
	return chunk_fits(e, h) && is_chunk_new(e, h->n) && (!*ret_gpu || lane->gpu) ?
		       e->data + h->offset : NULL;
}

int braid_comm_rx_imm(struct braid_lane *lane, unsigned slot, bool whole)
{
	struct braid_hdr *h = &lane->rx_hdr;
	struct braid_comm *c = braid_comm_find(lane->link, h->comm);
	struct braid_recv *e;
	int err;

	braid_assert_locked(&lane->link->lock);
	if (c && (c->sender || (c->kind && whole)))
		return -EBADMSG;
	if (!c || braid_comm_drains(c))
		return 0;
	if (c->kind)
		return c->kind->rx_imm(lane, c, slot);
	e = braid_recv_at(c, slot);
	if (!e || !e->posted || !e->placed)
		return -EBADMSG;
	if (whole) {			/* fill in the header of the START that this replaces */
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

/* The comm of the frame in lane->rx_hdr, if it is of another kind. */
static inline struct braid_comm *other_kind(const struct braid_lane *lane)
{
	struct braid_comm *c = NULL;

	if (atomic_load_explicit(&lane->link->msg.nkinds, memory_order_relaxed))
		c = braid_comm_find(lane->link, lane->rx_hdr.comm);
	return c && c->kind ? c : NULL;
}

void braid_comm_rx_undo(struct braid_lane *lane)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_recv *e = lane->rx_target;

	braid_assert_locked(&lane->link->lock);
	if (other_kind(lane))
		return;			/* it is counted at its end */
	e->begun -= h->len;
	e->chunks[h->n / 64] &= ~(1ull << (h->n % 64));
}

/* A control frame to a sender, with a payload. */
static int begin_payload(struct braid_lane *lane, struct braid_comm *c)
{
	if (!c->sender)
		return -EBADMSG;
	lane->rx_kind = BRAID_RX_CTL;
	lane->rx_dst = (char *)lane->rx_ctl;
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
	[BRAID_F_CREDIT]  = { begin_payload, braid_credit_came },
	[BRAID_F_RETIRE]  = { braid_retire_came, NULL },
	[BRAID_F_OPENED]  = { begin_payload, braid_opened_came },
	[BRAID_F_REFUSED] = { braid_refused_came, NULL },
	[BRAID_F_BYE]     = { braid_bye_came, NULL },
	[BRAID_F_FAIL]    = { braid_fail_came, NULL },
	[BRAID_F_VOID]    = { braid_void_came, NULL },
};

/* Does the meaning of the frame depend on the comm's kind? */
static bool is_of_kind(unsigned type)
{
	return type <= BRAID_F_RETIRE;
}

int braid_comm_rx_begin(struct braid_lane *lane)
{
	struct braid_comm *c = braid_comm_find(lane->link, lane->rx_hdr.comm);
	unsigned type = lane->rx_hdr.type;

	braid_assert_locked(&lane->link->lock);
	if (!c)
		return 0;		/* a late frame of a comm that is gone */
	if (c->kind && is_of_kind(type))
		return c->kind->rx_begin(lane, c);
	return rx[type].begin ? rx[type].begin(lane, c) : -EBADMSG;
}

int braid_comm_rx_end(struct braid_lane *lane)
{
	struct braid_comm *c = other_kind(lane);

	braid_assert_locked(&lane->link->lock);
	if (c && is_of_kind(lane->rx_hdr.type))
		return c->kind->rx_end(lane, c);
	return rx[lane->rx_hdr.type].end(lane);
}
