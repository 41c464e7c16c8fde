/* SPDX-License-Identifier: BSD-3-Clause */
/* coll.c - see coll.h. */
#include "core/setup/coll.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/copy.h"
#include "core/base/log.h"
#include "core/base/secret.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/mem/later.h"
#include "core/mem/mrcache.h"
#include "core/msg/comm.h"
#include "core/msg/rma.h"
#include "core/proto/auth.h"
#include "core/proto/handle.h"
#include "core/setup/connect.h"
#include "core/setup/listen.h"

enum { LINKS_A_CALL = 4 };		/* links that one progress call moves */

struct peer {				/* a rank that operations were posted to */
	pthread_mutex_t lock;		/* before braid_svc.lock and a link's lock */
	struct braid_handle to;		/* without its token: */
	uint8_t *token;			/* core/base/secret.h */
	unsigned rank;
	struct braid_list early;	/* operations posted before there was a channel */
	_Atomic(struct braid_rma_channel *) ch;
	atomic_int err;			/* connect() failed */
};

struct braid_coll {
	struct braid_rma rma;
	struct braid_listen *listen;
	unsigned refs;			/* of the listen and of the communicator, under `lock` */
	pthread_mutex_t lock;		/* guards what follows, where not atomic */
	struct braid_handle *handle;	/* of each rank, without its token: */
	uint8_t **token;		/* NULL: the rank has been dialled */
	_Atomic(struct peer *) *peer;
	atomic_int traffic_class;
	atomic_uint orders;
};

/* --- its life ------------------------------------------------------------------------------ */

int braid_coll_listen(struct braid_dev *dev, void *handle, struct braid_coll **ret)
{
	struct braid_coll *coll = calloc(1, sizeof(*coll));
	int err;

	if (!coll)
		return braid_no_memory("a communicator");
	braid_rma_start(&coll->rma, dev);
	pthread_mutex_init(&coll->lock, NULL);
	coll->refs = 1;
	coll->traffic_class = -1;
	err = braid_listen_new(dev, handle, &coll->listen);
	if (err) {
		pthread_mutex_destroy(&coll->lock);
		free(coll);
		return err;
	}
	coll->listen->rma = &coll->rma;
	*ret = coll;
	return 0;
}

static int keep_handle(struct braid_coll *coll, unsigned rank, const void *from)
{
	struct braid_handle *h = &coll->handle[rank];
	int err = braid_handle_unpack(from, h);

	if (err)
		return braid_error(err == -EPROTO ? -EPROTONOSUPPORT : -EINVAL,
				   "device %s: the handle of rank %u is not one of this Braid "
				   "release: set NCCL_NET_PLUGIN=braid on every rank, or BRAID_RMA="
				   "off on all [rma-handle]", coll->rma.dev->net.name, rank);
	coll->token[rank] = braid_secret_new();
	if (!coll->token[rank])
		return braid_no_memory("a communicator");
	memcpy(coll->token[rank], h->token, BRAID_KEY_SIZE);
	braid_auth_wipe(h->token, sizeof(h->token));
	h->state = (struct braid_handle_state){ 0 };
	return 0;
}

int braid_coll_connect(struct braid_coll *coll, void *const *handles, unsigned nranks,
		       unsigned rank)
{
	int err = 0;

	coll->handle = calloc(nranks, sizeof(*coll->handle));
	coll->token = calloc(nranks, sizeof(*coll->token));
	coll->peer = calloc(nranks, sizeof(*coll->peer));
	coll->rma.nranks = nranks;
	coll->rma.rank = rank;
	if (!coll->handle || !coll->token || !coll->peer)
		err = braid_no_memory("a communicator");
	for (unsigned i = 0; !err && i < nranks; i++)
		err = keep_handle(coll, i, handles[i]);
	if (!err) {
		pthread_mutex_lock(&coll->lock);
		coll->refs++;
		pthread_mutex_unlock(&coll->lock);
	}
	return err;
}

static void free_ops(struct braid_list *ops)
{
	struct braid_rma_op *op, *tmp;

	braid_list_for_safe(op, tmp, ops, node)
		free(op);
}

static void peer_close(struct peer *p)
{
	struct braid_rma_channel *ch = atomic_load(&p->ch);
	uint8_t handle[BRAID_HANDLE_SIZE];

	if (!ch) {
		braid_handle_pack(&p->to, handle);
		braid_connect_give_up(handle);
	}
	free_ops(&p->early);
	braid_secret_free(p->token);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

/* Close the channel that was made first, with a pinned link; false: none is left. */
static bool close_channel(struct braid_coll *coll)
{
	struct braid_comm *c = NULL;
	struct braid_link *link = NULL;

	braid_lock_wait(&coll->rma.lock);
	if (!braid_list_empty(&coll->rma.channels)) {
		c = braid_list_entry(coll->rma.channels.next, struct braid_rma_channel, node)->comm;
		link = c->link;
		braid_link_pin(link);
	}
	braid_unlock(&coll->rma.lock);
	if (!c)
		return false;
	braid_comm_close(c);
	braid_link_unpin(link);
	return true;
}

static void close_all(struct braid_coll *coll)
{
	struct braid_rma_window *w;

	braid_listen_close(coll->listen);
	coll->listen = NULL;
	for (unsigned i = 0; coll->peer && i < coll->rma.nranks; i++) {
		struct peer *p = atomic_load(&coll->peer[i]);

		if (p)
			peer_close(p);
	}
	while (close_channel(coll))
		;
	for (unsigned i = 0; i < BRAID_RMA_BUCKETS; i++) {
		while ((w = atomic_load(&coll->rma.bucket[i])) &&
		       braid_coll_close_window(coll, w) != -ENOMEM)
			;
	}
	for (unsigned i = 0; coll->token && i < coll->rma.nranks; i++)
		braid_secret_free(coll->token[i]);
	free_ops(&coll->rma.lost);
}

static void leave(struct braid_coll *coll)
{
	bool last;

	pthread_mutex_lock(&coll->lock);
	last = !--coll->refs;
	pthread_mutex_unlock(&coll->lock);
	if (!last)
		return;
	braid_rma_end(&coll->rma);
	pthread_mutex_destroy(&coll->lock);
	free(coll->handle);
	free(coll->token);
	free(coll->peer);
	free(coll);
}

void braid_coll_close_listen(struct braid_coll *coll)
{
	pthread_mutex_lock(&coll->lock);
	if (coll->refs == 1 && coll->listen) {	/* nothing was connected */
		pthread_mutex_unlock(&coll->lock);
		close_all(coll);
	} else {
		pthread_mutex_unlock(&coll->lock);
	}
	leave(coll);
}

void braid_coll_close(struct braid_coll *coll)
{
	close_all(coll);
	leave(coll);
}

void braid_coll_set_class(struct braid_coll *coll, int traffic_class)
{
	atomic_store(&coll->traffic_class, traffic_class);
}

uint8_t braid_coll_order(struct braid_coll *coll)
{
	return (uint8_t)(atomic_fetch_add(&coll->orders, 1) % BRAID_RMA_CONTEXTS);
}

/* --- windows ------------------------------------------------------------------------------- */

int braid_coll_open(struct braid_coll *coll, const struct braid_mem *mem,
		    struct braid_rma_window **ret)
{
	struct braid_rma_window *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return braid_no_memory("a window");
	w->data = mem->data;
	w->size = mem->size;
	err = braid_mr_new(coll->rma.dev, mem, &w->mr);
	if (err) {
		free(w);
		return err;
	}
	braid_rma_window_open(&coll->rma, w);
	*ret = w;
	return 0;
}

int braid_coll_close_window(struct braid_coll *coll, struct braid_rma_window *w)
{
	int err = braid_rma_window_close(&coll->rma, w);

	/* The NIC of a lost lane may still read or write the memory. */
	if (!err)
		err = braid_stops_wait(coll->rma.dev);
	if (err)
		return err;
	braid_mr_free(w->mr);
	free(w);
	return 0;
}

/* --- peers --------------------------------------------------------------------------------- */

static struct peer *peer_new(struct braid_coll *coll, unsigned rank)
{
	struct peer *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	p->rank = rank;
	p->to = coll->handle[rank];
	p->token = coll->token[rank];
	coll->token[rank] = NULL;
	braid_list_init(&p->early);
	atomic_store(&coll->peer[rank], p);
	return p;
}

static struct peer *peer_of(struct braid_coll *coll, unsigned rank)
{
	struct peer *p = atomic_load_explicit(&coll->peer[rank], memory_order_acquire);

	if (p)
		return p;
	pthread_mutex_lock(&coll->lock);
	p = atomic_load(&coll->peer[rank]);
	if (!p)
		p = peer_new(coll, rank);
	pthread_mutex_unlock(&coll->lock);
	return p;
}

/* The channel is open: post what has waited for it. */
static void peer_opened(struct peer *p, struct braid_comm *c)
{
	struct braid_rma_op *op, *tmp;

	braid_lock_wait(&c->link->lock);
	c->rma->rank = (int)p->rank;
	braid_list_for_safe(op, tmp, &p->early, node) {
		braid_list_del(&op->node);
		braid_rma_post(c->rma, op, true);
	}
	braid_link_send(c->link, true);
	braid_unlock(&c->link->lock);
	atomic_store_explicit(&p->ch, c->rma, memory_order_release);
	braid_secret_free(p->token);
	p->token = NULL;
}

/* Move the connect on, if no other thread does. */
static void peer_connect(struct braid_coll *coll, struct peer *p)
{
	uint8_t handle[BRAID_HANDLE_SIZE];
	struct braid_comm *c = NULL;
	int err;

	if (pthread_mutex_trylock(&p->lock))
		return;
	if (!atomic_load(&p->ch) && !atomic_load(&p->err)) {
		memcpy(p->to.token, p->token, BRAID_KEY_SIZE);
		braid_handle_pack(&p->to, handle);
		braid_handle_put_state(handle, &p->to.state);
		err = braid_connect(coll->rma.dev, atomic_load(&coll->traffic_class), handle,
				    &coll->rma, &c);
		if (!braid_handle_unpack(handle, &p->to))
			braid_auth_wipe(p->to.token, sizeof(p->to.token));
		braid_auth_wipe(handle, sizeof(handle));
		if (err)
			atomic_store(&p->err, err);
		else if (c)
			peer_opened(p, c);
	}
	pthread_mutex_unlock(&p->lock);
}

/* --- operations ---------------------------------------------------------------------------- */

static int op_new(const struct braid_coll *coll, unsigned rank, struct braid_rma_op **ret)
{
	struct braid_rma_op *op;

	if (!coll->peer || rank >= coll->rma.nranks)
		return -EINVAL;
	op = calloc(1, sizeof(*op));
	if (!op)
		return braid_no_memory("a put");
	braid_list_init(&op->node);
	braid_list_init(&op->x.node);
	*ret = op;
	return 0;
}

/* Is all of it in the local window? */
static bool is_in(const struct braid_rma_window *w, uint64_t off, uint64_t size)
{
	return w && off <= w->size && size <= w->size - off;
}

/* Give the operation to its channel, or keep it until there is one. */
static int post(struct braid_coll *coll, unsigned rank, struct braid_rma_op *op, bool more)
{
	struct peer *p = peer_of(coll, rank);
	struct braid_rma_channel *ch;

	if (!p)
		return braid_no_memory("a put");
	op->owner = p;
	ch = atomic_load_explicit(&p->ch, memory_order_acquire);
	if (!ch) {
		pthread_mutex_lock(&p->lock);
		ch = atomic_load(&p->ch);
		if (!ch)
			braid_list_add_tail(&p->early, &op->node);
		pthread_mutex_unlock(&p->lock);
		if (!ch) {
			peer_connect(coll, p);
			return 0;
		}
	}
	braid_lock_wait(&ch->comm->link->lock);
	braid_rma_post(ch, op, more);
	braid_unlock(&ch->comm->link->lock);
	braid_link_touch(ch->comm->link);
	return 0;
}

/* To this rank itself, at once: all that was posted before is done. */
static int put_here(struct braid_coll *coll, const struct braid_put *put, struct braid_rma_op *op)
{
	if (put->size) {
		if (!is_in(put->dst, put->dst_off, put->size))
			return -EINVAL;
		memmove(put->dst->data + put->dst_off, op->data, put->size);
	}
	atomic_store(&op->done, true);
	return put->word && braid_rma_signal(&coll->rma, put->word->number, put->word_off,
					     put->value) ? -EINVAL : 0;
}

static void op_fill(struct braid_rma_op *op, const struct braid_put *put)
{
	struct braid_rma_hdr *h = &op->h;

	h->context = put->order;
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
		/* The put's own chunks are not told from earlier ones of the same order. */
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
	err = op_new(coll, put->rank, &op);
	if (err)
		return err;
	op_fill(op, put);
	if (put->rank == coll->rma.rank || !op->h.what)
		err = put_here(coll, put, op);
	else
		err = post(coll, put->rank, op, put->more);
	if (err) {
		free(op);
		return err;
	}
	*ret = op;
	return 0;
}

int braid_coll_get(struct braid_coll *coll, const struct braid_get *get, struct braid_rma_op **ret)
{
	struct braid_rma_op *op = NULL;
	int err;

	if (!get->remote || !is_in(get->local, get->local_off, get->size))
		return -EINVAL;
	err = op_new(coll, get->rank, &op);
	if (err)
		return err;
	op->h = (struct braid_rma_hdr){
		.what = BRAID_RMA_GET, .context = get->order, .window = get->remote->number,
		.offset = get->remote_off, .size = get->size,
	};
	op->mr = get->local->mr;
	op->data = get->local->data + get->local_off;
	if (get->rank == coll->rma.rank || !get->size) {
		if (is_in(get->remote, get->remote_off, get->size))
			memmove(op->data, get->remote->data + get->remote_off, get->size);
		else if (get->rank == coll->rma.rank)
			err = -EINVAL;
		atomic_store(&op->done, true);
	} else {
		err = post(coll, get->rank, op, get->more);
	}
	if (err) {
		free(op);
		return err;
	}
	*ret = op;
	return 0;
}

/* Free a request that is done; the error with which it was. */
static int finish(struct braid_rma_op *op)
{
	struct braid_rma_channel *ch = op->ch;
	int err = atomic_load(&op->err);

	if (ch) {
		braid_lock_wait(&ch->comm->link->lock);
		braid_list_del(&op->node);
		braid_unlock(&ch->comm->link->lock);
	}
	free(op);
	return err ? err : 1;
}

int braid_coll_test(struct braid_coll *coll, struct braid_rma_op *op)
{
	struct peer *p = op->owner;
	struct braid_rma_channel *ch;
	int err;

	if (atomic_load_explicit(&op->done, memory_order_acquire))
		return finish(op);
	ch = atomic_load_explicit(&p->ch, memory_order_acquire);
	if (!ch) {
		peer_connect(coll, p);
		return atomic_load(&p->err);
	}
	braid_rma_retry(ch);
	braid_link_progress(ch->comm->link, &ch->comm->flush_epoch, &op->done);
	if (atomic_load_explicit(&op->done, memory_order_acquire))
		return finish(op);
	err = braid_rma_error(ch->comm);
	return err;
}

int braid_coll_error(const struct braid_coll *coll)
{
	return atomic_load_explicit(&coll->rma.err, memory_order_relaxed);
}

/* The next channels in turn, with their links pinned. */
static unsigned some_channels(struct braid_coll *coll, struct braid_rma_channel **ret)
{
	struct braid_list *all = &coll->rma.channels;
	unsigned n = 0;

	braid_lock_wait(&coll->rma.lock);
	while (n < LINKS_A_CALL && !braid_list_empty(all)) {
		struct braid_rma_channel *ch = braid_list_entry(all->next,
								struct braid_rma_channel, node);

		if (n && ch == ret[0])
			break;
		braid_list_del(&ch->node);
		braid_list_add_tail(all, &ch->node);
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
	failed = atomic_load(&coll->rma.failed);
	return failed ? braid_rma_error(failed) : 0;
}
