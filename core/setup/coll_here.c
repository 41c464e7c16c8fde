/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * coll_here.c - puts, signals and gets of a rank on itself, and flushes of its GPU's memory.
 *
 * They need no channel.  They are done in the order in which they were posted, so each signal
 * follows all that came before.  Between host memory they are done at once.  Memory of a GPU is
 * copied through host memory, piece by piece.
 */
#include "core/setup/coll_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/mem/gpucopy.h"
#include "core/mem/mrcache.h"

enum { PIECE = 256 << 10 };

struct here {
	struct braid_rma_op op;		/* first: what NCCL holds */
	struct braid_list node;		/* coll->here */
	const struct braid_rma_window *from, *to;	/* NULL: a signal alone */
	char *src, *dst;
	uint64_t size, at;
	const struct braid_rma_window *word;
	uint64_t word_off, value;
	char *piece;			/* of memory of a GPU */
	size_t len;
	bool full;			/* the piece has been read, and is being written */
	struct braid_gpucopy copy;
	bool flushes;			/* it is a flush of `to` */
	struct braid_mr_flush flush;
};

static struct here *here_new(void)
{
	struct here *h = calloc(1, sizeof(*h));

	if (!h)
		braid_no_memory("a put");
	return h;
}

/* With coll->lock held. */
static void here_free(struct here *h)
{
	braid_list_del(&h->op.node);
	free(h->piece);
	free(h);
}

void braid_coll_here_free(struct braid_coll *coll, struct braid_rma_op *op)
{
	pthread_mutex_lock(&coll->lock);
	here_free(braid_container(op, struct here, op));
	pthread_mutex_unlock(&coll->lock);
}

/* Copy the piece to or from the window: 0, -EAGAIN, or it failed. */
static int copy_piece(struct braid_coll *coll, struct here *h, const struct braid_rma_window *w,
		      char *at, bool in)
{
	if (!w->mr->gpu) {
		memcpy(in ? at : h->piece, in ? h->piece : at, h->len);
		return 0;
	}
	if (!h->copy.mr)
		braid_gpucopy_begin(&h->copy, &coll->rma.copies, w->mr, at, h->piece, h->len, in);
	return braid_gpucopy_move(&h->copy);
}

static int copy_gpu(struct braid_coll *coll, struct here *h)
{
	int err;

	if (!h->piece)
		h->piece = malloc(h->size < PIECE ? h->size : PIECE);
	if (!h->piece)
		return braid_no_memory("a put");
	while (h->at < h->size) {
		h->len = h->size - h->at < PIECE ? h->size - h->at : PIECE;
		err = h->full ? 0 : copy_piece(coll, h, h->from, h->src + h->at, false);
		h->full |= !err;
		if (!err)
			err = copy_piece(coll, h, h->to, h->dst + h->at, true);
		if (err)
			return err;
		h->full = false;
		h->at += h->len;
	}
	return 0;
}

/* 0: done; -EAGAIN; or it failed. */
static int move(struct braid_coll *coll, struct here *h)
{
	int err = 0;

	if (h->flushes)
		return braid_mr_flush(h->to->mr, h->to->data, &h->flush);
	if (h->size && !h->from->mr->gpu && !h->to->mr->gpu)
		memmove(h->dst, h->src, h->size);
	else if (h->size)
		err = copy_gpu(coll, h);
	if (!err && h->word)
		err = braid_rma_signal(&coll->rma, h->word->number, h->word_off, h->value);
	return err;
}

static void end(struct braid_coll *coll, struct here *h, int err)
{
	atomic_fetch_sub(&coll->nhere, 1);
	braid_gpucopy_end(&h->copy);
	braid_list_del(&h->node);
	atomic_store(&h->op.err, err);
	atomic_store_explicit(&h->op.done, true, memory_order_release);
}

/* With coll->lock held. */
static void move_all(struct braid_coll *coll)
{
	while (!braid_list_empty(&coll->here)) {
		struct here *h = braid_list_entry(coll->here.next, struct here, node);
		int err = move(coll, h);

		if (err == -EAGAIN)
			return;
		end(coll, h, err);
	}
}

void braid_coll_here_move(struct braid_coll *coll)
{
	if (!atomic_load_explicit(&coll->nhere, memory_order_relaxed) ||
	    pthread_mutex_trylock(&coll->lock))
		return;
	move_all(coll);
	pthread_mutex_unlock(&coll->lock);
}

void braid_coll_here_drop(struct braid_coll *coll, const struct braid_rma_window *w)
{
	struct here *h, *tmp;

	pthread_mutex_lock(&coll->lock);
	braid_list_for_safe(h, tmp, &coll->here, node) {
		if (!w || h->from == w || h->to == w || h->word == w)
			end(coll, h, -ECANCELED);
	}
	braid_list_for_safe(h, tmp, &coll->heres, op.node) {
		if (!w)
			here_free(h);
	}
	pthread_mutex_unlock(&coll->lock);
}

static void post(struct braid_coll *coll, struct here *h, struct braid_rma_op **ret)
{
	pthread_mutex_lock(&coll->lock);
	braid_list_add_tail(&coll->heres, &h->op.node);
	braid_list_add_tail(&coll->here, &h->node);
	atomic_fetch_add(&coll->nhere, 1);
	move_all(coll);
	pthread_mutex_unlock(&coll->lock);
	*ret = &h->op;
}

int braid_coll_put_here(struct braid_coll *coll, const struct braid_put *put,
			struct braid_rma_op **ret)
{
	struct here *h;

	if ((put->size && !braid_rma_is_in(put->dst->size, put->dst_off, put->size)) ||
	    (put->word && !braid_rma_is_in(put->word->size, put->word_off, sizeof(put->value))))
		return -EINVAL;
	h = here_new();
	if (!h)
		return -ENOMEM;
	if (put->size) {
		h->from = put->src;
		h->to = put->dst;
		h->src = put->src->data + put->src_off;
		h->dst = put->dst->data + put->dst_off;
		h->size = put->size;
	}
	h->word = put->word;
	h->word_off = put->word_off;
	h->value = put->value;
	post(coll, h, ret);
	return 0;
}

int braid_coll_get_here(struct braid_coll *coll, const struct braid_get *get,
			struct braid_rma_op **ret)
{
	struct here *h;

	if (get->size && !braid_rma_is_in(get->remote->size, get->remote_off, get->size))
		return -EINVAL;
	h = here_new();
	if (!h)
		return -ENOMEM;
	h->from = get->remote;
	h->to = get->local;
	h->size = get->size;
	if (get->size) {
		h->src = get->remote->data + get->remote_off;
		h->dst = get->local->data + get->local_off;
	}
	post(coll, h, ret);
	return 0;
}

int braid_coll_flush(struct braid_coll *coll, const struct braid_rma_window *w,
		     struct braid_rma_op **ret)
{
	struct here *h;

	*ret = NULL;
	if (!w->mr->gpu)
		return 0;
	h = here_new();
	if (!h)
		return -ENOMEM;
	h->to = w;
	h->flushes = true;
	post(coll, h, ret);
	return 0;
}
