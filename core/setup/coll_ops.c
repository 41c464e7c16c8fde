/* SPDX-License-Identifier: BSD-3-Clause */
/* coll_ops.c - the operations of a communicator, from a call to a channel; and progress. */
#include "core/setup/coll_int.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/msg/comm.h"

enum { LINKS_A_CALL = 4 };		/* links that one progress call moves */

/* Begin an operation to a rank; with its channel's link locked, if it has a channel (op->ch). */
static int begin(struct braid_coll *coll, unsigned rank, struct braid_rma_op **ret)
{
	struct braid_rma_channel *ch;
	struct braid_coll_peer *p;
	struct braid_rma_op *op;

	if (!coll->peer || rank >= coll->rma.nranks)
		return -EINVAL;
	p = braid_coll_peer(coll, rank);
	if (!p)
		return braid_no_memory("a put");
	ch = atomic_load_explicit(&p->ch, memory_order_acquire);
	if (ch)
		braid_lock_wait(&ch->comm->link->lock);
	op = braid_rma_op_new(ch);
	if (!op) {
		if (ch)
			braid_unlock(&ch->comm->link->lock);
		return braid_no_memory("a put");
	}
	op->owner = p;
	*ret = op;
	return 0;
}

/* Keep an operation until its rank has a channel; if it has one by now: that, its link locked. */
static struct braid_rma_channel *keep(struct braid_coll *coll, struct braid_rma_op *op)
{
	struct braid_coll_peer *p = op->owner;
	struct braid_rma_channel *ch;

	pthread_mutex_lock(&p->lock);
	ch = atomic_load(&p->ch);
	if (!ch)
		braid_list_add_tail(&p->early, &op->node);
	pthread_mutex_unlock(&p->lock);
	if (ch)
		braid_lock_wait(&ch->comm->link->lock);
	else
		braid_coll_peer_connect(coll, p);
	return ch;
}

/* Give the operation to its channel, or keep it until there is one. */
static void post(struct braid_coll *coll, struct braid_rma_op *op, bool more)
{
	struct braid_rma_channel *ch = op->ch ? op->ch : keep(coll, op);

	if (!ch)
		return;
	braid_assert_locked(&ch->comm->link->lock);	/* by begin(), or keep() */
	braid_rma_post(ch, op, more);
	braid_unlock(&ch->comm->link->lock);
	braid_link_touch(ch->comm->link);
}

/* Is all of it in the local window? */
static bool is_in(const struct braid_rma_window *w, uint64_t off, uint64_t size)
{
	return w && braid_rma_is_in(w->size, off, size);
}

static void op_fill(struct braid_rma_op *op, const struct braid_put *put)
{
	struct braid_rma_hdr *h = &op->h;

	*h = (struct braid_rma_hdr){ .context = put->order };
	op->mr = NULL;
	if (put->size) {
		op->data = put->src->data + put->src_off;
		op->mr = put->src->mr;
		h->what = put->size <= BRAID_RMA_INLINE_MAX && !op->mr->gpu ? BRAID_RMA_DATA :
									      BRAID_RMA_BULK;
		h->window = put->dst->number;
		h->offset = put->dst_off;
		h->size = put->size;
	}
	if (put->word) {
		h->what |= BRAID_RMA_SIGNAL;
		/* The put's own chunks look like earlier ones of the same order. */
		if (put->strong || h->what & BRAID_RMA_BULK)
			h->what |= BRAID_RMA_ORDERED;
		h->signal_window = put->word->number;
		h->signal_offset = put->word_off;
		h->value = put->value;
	}
}

int braid_coll_put(struct braid_coll *coll, const struct braid_put *put, struct braid_rma_op **ret)
{
	struct braid_rma_op *op = NULL;
	int err;

	if ((put->size && (!put->dst || !is_in(put->src, put->src_off, put->size))) ||
	    (put->word && put->word_off % sizeof(uint64_t)))
		return -EINVAL;
	if (put->rank == coll->rma.rank || (!put->size && !put->word))
		return braid_coll_put_here(coll, put, ret);
	err = begin(coll, put->rank, &op);
	if (err)
		return err;
	op_fill(op, put);
	*ret = op;
	post(coll, op, put->more);
	return 0;
}

int braid_coll_get(struct braid_coll *coll, const struct braid_get *get, struct braid_rma_op **ret)
{
	struct braid_rma_op *op = NULL;
	int err;

	if (!get->remote || !is_in(get->local, get->local_off, get->size))
		return -EINVAL;
	if (get->rank == coll->rma.rank || !get->size)
		return braid_coll_get_here(coll, get, ret);
	err = begin(coll, get->rank, &op);
	if (err)
		return err;
	op->h = (struct braid_rma_hdr){
		.what = BRAID_RMA_GET, .context = get->order, .window = get->remote->number,
		.offset = get->remote_off, .size = get->size,
	};
	op->mr = get->local->mr;
	op->data = get->local->data + get->local_off;
	*ret = op;
	post(coll, op, get->more);
	return 0;
}

/* Give back a request that is done: 1, or the error with which it was. */
static int finish(struct braid_rma_op *op)
{
	int err = atomic_load(&op->err);

	braid_rma_finish(op);
	return err ? err : 1;
}

/* The same of an operation of this rank on itself. */
static int test_here(struct braid_coll *coll, struct braid_rma_op *op)
{
	int err;

	braid_coll_here_move(coll);
	if (!atomic_load_explicit(&op->done, memory_order_acquire))
		return 0;
	err = atomic_load(&op->err);
	braid_coll_here_free(coll, op);
	return err ? err : 1;
}

int braid_coll_test(struct braid_coll *coll, struct braid_rma_op *op)
{
	struct braid_coll_peer *p = op->owner;
	struct braid_rma_channel *ch;

	if (!p)
		return test_here(coll, op);
	if (atomic_load_explicit(&op->done, memory_order_acquire))
		return finish(op);
	ch = atomic_load_explicit(&p->ch, memory_order_acquire);
	if (!ch) {
		braid_coll_peer_connect(coll, p);
		return atomic_load(&p->err);
	}
	braid_rma_retry(ch);
	braid_link_progress(ch->comm->link, &ch->comm->flush_epoch, &op->done);
	if (atomic_load_explicit(&op->done, memory_order_acquire))
		return finish(op);
	return braid_rma_error(ch->comm);
}

/* NCCL may end the communicator without another call: so say here whose error it is. */
int braid_coll_error(struct braid_coll *coll)
{
	int err = atomic_load_explicit(&coll->rma.err, memory_order_relaxed);
	struct braid_comm *failed = err ? atomic_load(&coll->rma.failed) : NULL;

	if (failed)
		braid_rma_error(failed);
	return err;
}

static bool has_link(struct braid_rma_channel *const *ch, unsigned n, const struct braid_link *link)
{
	while (n--) {
		if (ch[n]->comm->link == link)
			return true;
	}
	return false;
}

/* The next channels in turn, of different links, which are pinned. */
static unsigned some_channels(struct braid_coll *coll, struct braid_rma_channel **ret)
{
	struct braid_list *all = &coll->rma.channels;
	unsigned n = 0;

	braid_lock_wait(&coll->rma.lock);
	for (unsigned i = 0; i < 2 * LINKS_A_CALL && n < LINKS_A_CALL && !braid_list_empty(all);
	     i++) {
		struct braid_rma_channel *ch = braid_list_entry(all->next,
								struct braid_rma_channel, node);

		if (n && ch == ret[0])
			break;
		braid_list_del(&ch->node);
		braid_list_add_tail(all, &ch->node);
		/* connect() may free one that is not adopted at any time. */
		if (!atomic_load(&ch->adopted) || has_link(ret, n, ch->comm->link))
			continue;
		braid_link_pin(ch->comm->link);
		ret[n++] = ch;
	}
	braid_unlock(&coll->rma.lock);
	return n;
}

int braid_coll_progress(struct braid_coll *coll)
{
	struct braid_rma_channel *ch[LINKS_A_CALL];
	unsigned n = some_channels(coll, ch);
	struct braid_comm *failed;

	for (unsigned i = 0; i < n; i++) {
		braid_rma_retry(ch[i]);
		braid_link_progress(ch[i]->comm->link, &ch[i]->comm->flush_epoch, NULL);
		braid_link_unpin(ch[i]->comm->link);
	}
	braid_rma_words_move(&coll->rma);
	braid_coll_here_move(coll);
	failed = atomic_load(&coll->rma.failed);
	return failed ? braid_rma_error(failed) : 0;
}
