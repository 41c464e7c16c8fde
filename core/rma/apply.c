/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * apply.c - operations that arrive at their target: puts land, signals wait for their turn, and
 * gets are answered.
 */
#include "core/rma/rma_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/copy.h"
#include "core/link/control.h"
#include "core/link/recover.h"
#include "core/proto/frame.h"

struct reply {				/* to a get */
	struct braid_list node;		/* channel->replies */
	struct braid_xfer x;
	atomic_bool done;
	struct braid_rma_channel *ch;
	char *data;
	uint64_t size, cut;
	uint32_t id;
};

/* --- gets ---------------------------------------------------------------------------------- */

static bool cut(struct braid_lane *lane, struct braid_xfer *x)
{
	struct reply *r = braid_container(x, struct reply, x);
	uint32_t chunk = braid_link_chunk_len(lane->link, r->size);
	struct braid_hdr f = {
		.type = BRAID_F_CHUNK, .comm = x->comm, .seq = r->id, .offset = r->cut,
		.len = r->size - r->cut < chunk ? (uint32_t)(r->size - r->cut) : chunk,
	};

	braid_assert_locked(&lane->link->lock);
	if (!braid_txq_room(&lane->tx, 0))
		return false;
	f.size = r->cut + f.len;
	braid_tx_add_chunk(lane, &f, r->data + r->cut, x, f.len == r->size - r->cut);
	r->cut += f.len;
	return true;
}

static void no_gpu(struct braid_xfer *x, const struct braid_gpucopy *copy)
{
	braid_comm_no_gpu(braid_container(x, struct reply, x)->ch->comm, copy);
}

static const struct braid_xfer_ops reply_ops = { .cut = cut, .no_gpu = no_gpu };

void braid_rma_replies_free(struct braid_rma_channel *ch, bool all)
{
	struct reply *r, *tmp;

	braid_list_for_safe(r, tmp, &ch->replies, node) {
		if (!all && !atomic_load(&r->done))
			continue;
		braid_list_del(&r->x.node);
		braid_list_del(&r->node);
		free(r);
	}
}

/* Let lanes have copies of a reply's bytes: false: out of memory. */
static bool copy(struct braid_link *link, struct reply *r)
{
	for (unsigned i = 0; i < link->nlanes; i++) {
		if (braid_tx_copy(link->lane[i], &r->x))
			return false;
	}
	r->x.mr = NULL;
	return true;
}

/*
 * Its rank may have all of a reply although this one does not know that yet, and the ranks may have
 * agreed to close the window.
 */
void braid_rma_replies_copy(struct braid_rma_channel *ch, const struct braid_mr *mr)
{
	struct braid_link *link = ch->comm->link;
	struct reply *r;

	braid_list_for(r, &ch->replies, node) {
		if (atomic_load(&r->done) || r->x.mr != mr || mr->gpu || r->cut < r->size)
			continue;
		braid_link_revoke(link, braid_comm_is_sending, ch->comm);
		if (!copy(link, r))
			return;
	}
}

bool braid_rma_replies_use(const struct braid_rma_channel *ch, const struct braid_mr *mr)
{
	const struct reply *r;

	braid_list_for(r, &ch->replies, node) {
		if (!atomic_load(&r->done) && r->x.mr == mr)
			return true;
	}
	return false;
}

static int answer(struct braid_rma_channel *ch, const struct braid_rma_hdr *h,
		  const struct braid_rma_window *w)
{
	struct reply *r;

	braid_rma_keys_due(ch);
	braid_rma_replies_free(ch, false);
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->ch = ch;
	r->id = h->id;
	r->data = w->data + h->offset;
	r->size = h->size;
	r->x.ops = &reply_ops;
	r->x.comm = ch->comm->id;
	r->x.parts = 1;
	r->x.done = &r->done;
	r->x.mr = w->mr;
	r->x.imm = BRAID_XFER_BY_HDR;
	braid_list_add_tail(&ch->replies, &r->node);
	braid_link_pending(ch->comm->link, &r->x);
	return 0;
}

/* --- operations ---------------------------------------------------------------------------- */

/* Find a window for these bytes; *ret NULL: it is closed.  0, or -EBADMSG. */
static int look(const struct braid_rma_channel *ch, uint32_t number, uint64_t offset, uint64_t size,
		struct braid_rma_window **ret)
{
	struct braid_rma_window *w = braid_rma_window(ch->rma, number);

	*ret = w;
	if (number >= ch->announced)
		return -EBADMSG;
	return !w || braid_rma_is_in(w->size, offset, size) ? 0 : -EBADMSG;
}

/* The bytes of a small put go to their window. */
static int data(struct braid_rma_channel *ch, struct braid_rma_order *o, struct braid_rma_window *w,
		const struct braid_rma_hdr *h, const char *bytes)
{
	uint32_t epoch = braid_rma_epoch(o);
	int err;

	if (!w->mr->gpu) {
		braid_copy_up(w->data + h->offset, bytes, h->size);
		return 0;
	}
	err = braid_rma_expect(o, h->size);
	if (err)
		return err;
	err = braid_rma_land(ch, w, h, epoch, bytes);
	if (err)
		braid_rma_expect(o, -h->size);	/* it has an entry, so this can't fail */
	return err;
}

/* Bytes of a large put will come, or have come by a NIC on another lane. */
static int bulk(struct braid_rma_channel *ch, struct braid_rma_order *o, struct braid_rma_window *w,
		const struct braid_rma_hdr *h)
{
	struct braid_hdr f = { .offset = h->offset, .n = h->context, .seq = braid_rma_epoch(o) };
	uint64_t early;
	int err = braid_rma_slot_named(ch, h, f.seq, &early);

	if (!err)
		err = braid_rma_bulk(ch, o, h);
	if (err)
		return err;
	if (w)
		atomic_fetch_add_explicit(&w->due, (int64_t)h->size, memory_order_relaxed);
	for (; early && !err; early -= f.len) {
		f.len = early < BRAID_CHUNK_LEN_MAX ? (uint32_t)early : BRAID_CHUNK_LEN_MAX;
		err = braid_rma_chunk_is_here(ch, w, &f, true);
	}
	return err;
}

/* One operation; `bytes`: its data. */
static int apply(struct braid_rma_channel *ch, const struct braid_rma_hdr *h, const char *bytes)
{
	struct braid_rma_window *w = NULL, *word;
	struct braid_rma_order *o;
	int err = 0;

	if (h->what == BRAID_RMA_RANK) {
		ch->rank = (int)h->id;
		return 0;
	}
	if (!(h->what & BRAID_RMA_SIGNAL) || h->what & (BRAID_RMA_DATA | BRAID_RMA_BULK)) {
		if (look(ch, h->window, h->offset, h->size, &w))
			return -EBADMSG;
	}
	if (h->what & BRAID_RMA_SIGNAL &&
	    (h->signal_offset % sizeof(h->value) ||
	     look(ch, h->signal_window, h->signal_offset, sizeof(h->value), &word)))
		return -EBADMSG;
	o = braid_rma_order_of(ch, h->context);
	if (!o)
		return -ENOMEM;
	if (h->what == BRAID_RMA_GET) {
		if (w)
			return answer(ch, h, w);
		braid_comm_give_up(ch->comm, "a window is closed here");
		braid_comm_fail(ch->comm, -ECANCELED);
		return 0;
	}
	braid_count(&ch->comm->done.messages, 1);
	braid_count(&ch->comm->done.bytes, h->size);
	if (h->what & BRAID_RMA_DATA && w)
		err = data(ch, o, w, h, bytes);
	else if (h->what & BRAID_RMA_BULK)
		err = bulk(ch, o, w, h);
	if (err || !(h->what & BRAID_RMA_SIGNAL))
		return err;
	if (h->what & BRAID_RMA_ORDERED)
		return braid_rma_end_epoch(ch, o, h);
	if (h->what & BRAID_RMA_DATA && w && w->mr->gpu)
		return 0;		/* its landing applies the signal */
	return braid_rma_apply_signal(ch, h->signal_window, h->signal_offset, h->value);
}

int braid_rma_apply(struct braid_rma_channel *ch, const char *payload, size_t n)
{
	int err = 0;

	braid_assert_locked(&ch->comm->link->lock);
	do {
		struct braid_rma_hdr h;
		int used = braid_rma_unpack(payload, n, &h);

		if (used < 0)
			return used;
		err = apply(ch, &h, payload + BRAID_RMA_HDR_SIZE);
		payload += used;
		n -= (size_t)used;
	} while (n && !err && !braid_comm_drains(ch->comm));
	return err;
}
