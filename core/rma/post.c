/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * post.c - operations that this rank posts, from iput() to the lanes.
 *
 * An operation leaves in one frame, with the bytes of a small put in it.  Those of a large one
 * follow in chunks.  A small one joins the frame of the operation before it while that is still
 * queued, as in a burst of puts: most of what a small operation costs is its frame.
 *
 * An operation waits in the channel's queue, in order, while its target has not registered the
 * window, or home has no room.
 */
#include "core/rma/rma_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/link/control.h"
#include "core/proto/frame.h"

enum {
	JOINED_MAX = 2048,		/* bytes of a frame that operations join */
	AHEAD_MAX = 2048,		/* signals sent while chunks sent before may be missing */
	REMOTE_MAX = 65536,		/* windows open at one target */
};

enum look { LOOK_FOUND, LOOK_WAIT, LOOK_VAIN };

/* The operation makes no sense: it is done, in vain. */
static BRAID_APART enum look in_vain(struct braid_rma_op *op, const char *what, uint32_t window,
				     uint64_t at, uint64_t size, uint64_t room)
{
	const struct braid_link *link = op->ch->comm->link;

	braid_warn("device %s, peer %s: %s %llu bytes at offset %llu of window %u of rank %d, "
		   "which has %llu bytes there [rma-range]", link->key.dev->net.name, link->peer,
		   what, (unsigned long long)size, (unsigned long long)at, window, op->ch->rank,
		   (unsigned long long)room);
	atomic_store(&op->err, -EINVAL);
	op->x.parts = 0;
	atomic_store_explicit(&op->done, true, memory_order_release);
	return LOOK_VAIN;
}

/* NULL: it is not among them. */
static BRAID_APART struct braid_rma_remote *search(const struct braid_rma_channel *ch,
						   uint32_t number)
{
	unsigned low = 0, high = ch->nremote;

	while (low < high) {
		unsigned mid = (low + high) / 2;

		if (ch->remote[mid].number < number)
			low = mid + 1;
		else
			high = mid;
	}
	return low < ch->nremote && ch->remote[low].number == number ? &ch->remote[low] : NULL;
}

/* Its number is its place, as long as the target has closed none before it. */
static inline struct braid_rma_remote *find(const struct braid_rma_channel *ch, uint32_t number)
{
	return number < ch->nremote && ch->remote[number].number == number ?
		       &ch->remote[number] : search(ch, number);
}

/* Find the target's window, and check that these bytes are in it. */
static inline enum look look(struct braid_rma_op *op, uint32_t window, uint64_t at, uint64_t size,
			     struct braid_rma_remote **ret)
{
	struct braid_rma_remote *r = find(op->ch, window);

	*ret = r;
	if (r && braid_rma_is_in(r->size, at, size))
		return LOOK_FOUND;
	if (r)
		return in_vain(op, "an operation on", window, at, size, r->size);
	return window >= op->ch->remote_next ?
		       LOOK_WAIT : in_vain(op, "the window is closed:", window, at, size, 0);
}

static enum look look_at_all(struct braid_rma_op *op, struct braid_rma_remote **ret)
{
	const struct braid_rma_hdr *h = &op->h;
	struct braid_rma_remote *word;
	enum look l = LOOK_FOUND;

	if (h->what & (BRAID_RMA_DATA | BRAID_RMA_BULK | BRAID_RMA_GET))
		l = look(op, h->window, h->offset, h->size, ret);
	if (l == LOOK_FOUND && h->what & BRAID_RMA_SIGNAL)
		l = look(op, h->signal_window, h->signal_offset, sizeof(h->value), &word);
	return l;
}

/* Has an operation been sent, before that one, whose chunks may be missing? */
static bool chunks_are_out(const struct braid_rma_channel *ch, const struct braid_rma_op *before)
{
	const struct braid_rma_op *op;

	braid_list_for(op, &ch->ops, node) {
		if (op == before)
			break;
		if (op->h.what & BRAID_RMA_BULK && !atomic_load(&op->done))
			return true;
	}
	return false;
}

/* Is the target to keep too many signals that wait for chunks? */
static bool is_too_far_ahead(struct braid_rma_channel *ch, const struct braid_rma_op *op)
{
	if (ch->ahead < AHEAD_MAX)
		return false;
	if (chunks_are_out(ch, op))
		return true;
	ch->ahead = 0;
	return false;
}

static bool has_room(const struct braid_rma_channel *ch, size_t len)
{
	return braid_txq_room(&braid_link_home(ch->comm->link)->tx, BRAID_RMA_HDR_SIZE + len);
}

/* A new frame for an operation and its data, n bytes: their place. */
static char *new_frame(struct braid_rma_channel *ch, uint32_t n, struct braid_xfer *owner)
{
	struct braid_hdr f = {
		.type = BRAID_F_EAGER, .comm = ch->comm->id, .seq = ch->next_seq++,
		.len = n, .size = n,
	};

	return braid_tx_add_room(braid_link_home(ch->comm->link), &f, owner);
}

/* Its place in the frame of the operation before it, or NULL. */
static char *join(struct braid_rma_channel *ch, uint32_t n, struct braid_xfer *x)
{
	return ch->takes_joined && !x->until_acked ?
		       braid_tx_lengthen(braid_link_home(ch->comm->link), n, JOINED_MAX, x) : NULL;
}

/* owner: NULL if nothing is done once the frame has left. */
static void send_op(struct braid_rma_channel *ch, const struct braid_rma_hdr *h, const char *data,
		    uint32_t len, struct braid_xfer *owner)
{
	uint32_t n = BRAID_RMA_HDR_SIZE + len;
	char *at = owner ? join(ch, n, owner) : NULL;

	if (!at)
		at = new_frame(ch, n, owner);
	braid_rma_pack(h, at);
	if (len)
		memcpy(at + BRAID_RMA_HDR_SIZE, data, len);
}

static bool send_rank(struct braid_rma_channel *ch)
{
	struct braid_rma_hdr h = { .what = BRAID_RMA_RANK, .id = ch->rma->rank };

	if (!has_room(ch, 0))
		return false;
	send_op(ch, &h, NULL, 0, NULL);
	ch->rank_due = false;
	return true;
}

static bool cut(struct braid_lane *lane, struct braid_xfer *x)
{
	struct braid_rma_op *op = braid_container(x, struct braid_rma_op, x);
	uint64_t left = op->h.size - op->cut, at = op->h.offset + op->cut;
	uint32_t chunk = braid_link_chunk_len(lane->link, op->h.size);
	struct braid_hdr f = {
		.type = BRAID_F_CHUNK, .comm = x->comm, .seq = op->epoch, .n = op->h.context,
		.tag = (int32_t)op->h.window, .offset = at,
		.len = left < chunk ? (uint32_t)left : chunk,
	};

	braid_assert_locked(&lane->link->lock);
	if (!braid_txq_room(&lane->tx, 0))
		return false;
	f.size = at + f.len;
	braid_tx_add_chunk(lane, &f, op->data + op->cut, x, f.len == left);
	op->cut += f.len;
	return true;
}

static void no_gpu(struct braid_xfer *x, const struct braid_gpucopy *copy)
{
	braid_comm_no_gpu(braid_container(x, struct braid_rma_op, x)->ch->comm, copy);
}

static const struct braid_xfer_ops ops = { .cut = cut, .no_gpu = no_gpu };

/* Send the operation; false: it has to wait. */
static bool post_now(struct braid_rma_channel *ch, struct braid_rma_op *op)
{
	bool inlined = op->h.what & BRAID_RMA_DATA, bulk = op->h.what & BRAID_RMA_BULK;
	struct braid_rma_remote *to = NULL;
	enum look l;

	if (ch->rank_due && !send_rank(ch))
		return false;
	l = look_at_all(op, &to);
	if (l != LOOK_FOUND)
		return l == LOOK_VAIN;
	if (!has_room(ch, inlined ? op->h.size : 0) || is_too_far_ahead(ch, op))
		return false;
	op->epoch = ch->epoch[op->h.context];
	op->sent = true;
	if (op->h.what & BRAID_RMA_GET && braid_rma_get_by_nic(ch, op, to))
		return true;
	if (op->h.what & BRAID_RMA_GET)
		op->h.id = ch->next_get++;
	if (bulk && to->to.nkeys)
		braid_rma_slot_take(ch, op);
	/* Chunks may overtake it.  Once all is done the target may close, or the slot be reused. */
	op->x.until_acked = bulk;
	op->x.parts += bulk;
	send_op(ch, &op->h, op->data, inlined ? (uint32_t)op->h.size : 0,
		op->h.what & BRAID_RMA_GET ? NULL : &op->x);
	if (op->h.what & BRAID_RMA_ORDERED) {
		ch->epoch[op->h.context]++;
		ch->ahead++;
	}
	if (bulk) {
		op->x.to = to->to;
		braid_link_pending(ch->comm->link, &op->x);
	} else if (op->h.what & BRAID_RMA_GET) {
		braid_list_add_tail(&ch->gets, &op->x.node);
		braid_rma_spread(ch, true);
	}
	return true;
}

static void post_queued(struct braid_rma_channel *ch)
{
	struct braid_rma_op *op, *tmp;

	if (braid_comm_drains(ch->comm))
		return;
	braid_list_for_safe(op, tmp, &ch->queue, x.node) {
		braid_list_del(&op->x.node);
		if (!post_now(ch, op)) {	/* it stays the first */
			braid_list_add_tail(ch->queue.next, &op->x.node);
			return;
		}
	}
	braid_hint(&ch->waits, false);
}

void braid_rma_take_back(struct braid_rma_channel *ch, bool all)
{
	struct braid_traffic *done = &ch->comm->done;
	struct braid_rma_op *op, *tmp;

	braid_assert_locked(&ch->comm->link->lock);
	braid_list_for_safe(op, tmp, &ch->ops, node) {
		if (!atomic_load_explicit(&op->over, memory_order_acquire)) {
			if (!all)
				return;
			continue;
		}
		braid_count(&done->messages, 1);
		braid_count(&done->bytes, op->h.size);
		braid_list_del(&op->node);
		braid_rma_slot_free(ch, op);
		braid_list_add_tail(ch->spare.next, &op->node);	/* the first: it is in the cache */
	}
}

struct braid_rma_op *braid_rma_op_new(struct braid_rma_channel *ch)
{
	struct braid_rma_op *op;

	if (ch)
		braid_rma_take_back(ch, false);
	if (ch && !braid_list_empty(&ch->spare)) {
		op = braid_list_entry(ch->spare.next, struct braid_rma_op, node);
		braid_list_del(&op->node);
		return op;
	}
	op = calloc(1, sizeof(*op));
	if (!op)
		return NULL;
	op->ch = ch;
	braid_list_init(&op->node);
	braid_list_init(&op->x.node);
	return op;
}

/* Forget what became of the operation before. */
static void clear(struct braid_rma_op *op)
{
	atomic_store_explicit(&op->done, false, memory_order_relaxed);
	atomic_store_explicit(&op->over, false, memory_order_relaxed);
	atomic_store_explicit(&op->err, 0, memory_order_relaxed);
	op->sent = op->by_frame = false;
	op->cut = op->begun = 0;
	op->reading = 0;
}

void braid_rma_post(struct braid_rma_channel *ch, struct braid_rma_op *op, bool more)
{
	struct braid_comm *c = ch->comm;
	struct braid_link *link = c->link;

	braid_assert_locked(&link->lock);
	clear(op);
	op->ch = ch;
	op->number = ch->posted++;
	op->at_ns = braid_clock_now(braid_link_is_watched(link));
	braid_list_add_tail(&ch->ops, &op->node);
	braid_list_init(&op->x.node);
	op->x.ops = &ops;
	op->x.comm = c->id;
	op->x.parts = 1;
	op->x.joined = NULL;
	op->x.done = &op->done;
	op->x.mr = op->mr;
	op->x.imm = BRAID_XFER_BY_HDR;
	if (c->peer_closed)
		braid_comm_orphaned(c);
	if (braid_comm_drains(c))
		return;			/* test() returns the comm's error */
	if (braid_link_is_urgent(link))
		braid_link_send_control(link);
	if (!braid_list_empty(&ch->queue) || !post_now(ch, op)) {
		braid_list_add_tail(&ch->queue, &op->x.node);
		braid_hint(&ch->waits, true);
	}
	braid_link_send(link, !more);
}

enum braid_rma_state braid_rma_state(const struct braid_rma_op *op)
{
	if (atomic_load(&op->done))
		return BRAID_RMA_DONE;
	if (!op->sent)
		return BRAID_RMA_WAITS;
	return op->h.what & BRAID_RMA_GET ? BRAID_RMA_ASKED : BRAID_RMA_SENDING;
}

const char *braid_rma_name(const struct braid_rma_op *op)
{
	return op->h.what & BRAID_RMA_GET ? "get" :
	       op->h.what & (BRAID_RMA_DATA | BRAID_RMA_BULK) ? "put" : "signal";
}

/* The oldest operation that the target keeps waiting. */
bool braid_rma_waits(const struct braid_comm *c, struct braid_waiting *ret)
{
	const struct braid_rma_channel *ch = c->channel;
	const struct braid_rma_op *op;

	braid_list_for(op, &ch->ops, node) {
		enum braid_rma_state state = braid_rma_state(op);

		if (state != BRAID_RMA_WAITS && state != BRAID_RMA_ASKED)
			continue;
		*ret = (struct braid_waiting){
			.any = true, .what = braid_rma_name(op), .seq = op->number,
			.tag = (int32_t)op->h.window, .size = op->h.size,
			.why = state == BRAID_RMA_ASKED ? "has not sent the bytes" :
			       op->h.window < ch->remote_next ? "has not taken earlier ones" :
								"has not registered that window",
		};
		return true;
	}
	return false;
}

void braid_rma_retry(struct braid_rma_channel *ch)
{
	struct braid_link *link = ch->comm->link;

	if (!atomic_load_explicit(&ch->waits, memory_order_relaxed) || !braid_trylock(&link->lock))
		return;
	post_queued(ch);
	braid_link_send(link, true);
	braid_unlock(&link->lock);
}

/* --- the target's windows ------------------------------------------------------------------ */

static struct braid_place place_of(const struct braid_lane *lane)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_place p = {
		.addr = h->offset, .rkey_epoch = h->seq, .nkeys = h->len / 4,
	};

	braid_keys_unpack(lane->rx_ctl, p.nkeys, p.key);
	return p;
}

/* The keys of an open window were revoked with others; these are valid again. */
static int keys_came(const struct braid_lane *lane, const struct braid_rma_channel *ch)
{
	struct braid_rma_remote *r = find(ch, lane->rx_hdr.rseq);

	if (!r || r->size != lane->rx_hdr.size)
		return -EBADMSG;
	r->to = place_of(lane);
	return 0;
}

int braid_rma_window_came(struct braid_lane *lane, struct braid_comm *c)
{
	struct braid_rma_channel *ch = c->channel;
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_rma_remote *r;

	ch->takes_slots = h->n & BRAID_RMA_TAKES_SLOTS;
	ch->takes_joined = h->n & BRAID_RMA_TAKES_JOINED;
	if (h->rseq < ch->remote_next)
		return keys_came(lane, ch);
	if (h->rseq == UINT32_MAX || ch->nremote == REMOTE_MAX)
		return -EBADMSG;
	if (ch->nremote == ch->remote_room) {
		unsigned room = ch->remote_room ? 2 * ch->remote_room : 8;
		struct braid_rma_remote *more = realloc(ch->remote, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		ch->remote = more;
		ch->remote_room = room;
	}
	r = &ch->remote[ch->nremote++];
	*r = (struct braid_rma_remote){ .number = h->rseq, .size = h->size, .to = place_of(lane) };
	ch->remote_next = h->rseq + 1;
	post_queued(ch);
	braid_link_stall(c->link);	/* the frames leave with the next call */
	return 0;
}

int braid_rma_closed_came(struct braid_lane *lane, struct braid_comm *c)
{
	struct braid_rma_channel *ch = c->channel;
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_rma_remote *r;

	if (!c->sender || h->n != 1 || h->seq == UINT32_MAX)
		return -EBADMSG;
	r = find(ch, h->seq);
	if (r) {
		ch->nremote--;
		memmove(r, r + 1, (size_t)(ch->remote + ch->nremote - r) * sizeof(*r));
	}
	if (h->seq >= ch->remote_next)
		ch->remote_next = h->seq + 1;
	post_queued(ch);
	braid_link_stall(c->link);
	return 0;
}
