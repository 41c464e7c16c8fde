/* SPDX-License-Identifier: BSD-3-Clause */
/* coll.c - communicators: their life, windows and peers; see coll.h. */
#include "core/setup/coll_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/secret.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/mem/later.h"
#include "core/mem/mrcache.h"
#include "core/msg/comm.h"
#include "core/proto/auth.h"
#include "core/setup/connect.h"
#include "core/setup/listen.h"
#include "core/setup/peer_handle.h"

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
	braid_list_init(&coll->here);
	braid_list_init(&coll->heres);
	err = braid_listen_new(dev, handle, &coll->listen);
	if (err) {
		pthread_mutex_destroy(&coll->lock);
		free(coll);
		return err;
	}
	braid_listen_for(coll->listen, &coll->rma);
	*ret = coll;
	return 0;
}

static int keep_handle(struct braid_coll *coll, unsigned rank, const void *from)
{
	struct braid_handle *h = &coll->handle[rank];
	int err = braid_peer_handle(coll->rma.dev, from, h);

	if (err)
		return err;
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

static void peer_close(struct braid_coll_peer *p)
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
		struct braid_coll_peer *p = atomic_exchange(&coll->peer[i], NULL);

		if (p)
			peer_close(p);
	}
	while (close_channel(coll))
		;
	braid_coll_here_drop(coll, NULL);
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

int braid_coll_open(struct braid_coll *coll, const struct braid_mem *mem, bool signals,
		    bool never_reset, struct braid_rma_window **ret)
{
	struct braid_rma_window *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return braid_no_memory("a window");
	w->data = mem->data;
	w->size = mem->size;
	w->signals = signals;
	w->never_reset = never_reset;
	err = braid_mr_new(coll->rma.dev, mem, &w->mr);
	if (!err) {
		err = braid_rma_window_open(&coll->rma, w);
		if (err)
			braid_mr_free(w->mr);
	}
	if (err) {
		free(w);
		return err;
	}
	*ret = w;
	return 0;
}

/* Fail the peer, if an operation that waits for its channel reads or writes the window. */
static void peer_stop_using(struct braid_coll_peer *p, const struct braid_rma_window *w)
{
	const struct braid_rma_op *op;
	int none = 0;

	pthread_mutex_lock(&p->lock);
	braid_list_for(op, &p->early, node) {
		if (op->mr == w->mr)
			atomic_compare_exchange_strong(&p->err, &none, -ECANCELED);
	}
	pthread_mutex_unlock(&p->lock);
}

int braid_coll_close_window(struct braid_coll *coll, struct braid_rma_window *w)
{
	int err;

	braid_coll_here_drop(coll, w);
	for (unsigned i = 0; coll->peer && i < coll->rma.nranks; i++) {
		struct braid_coll_peer *p = atomic_load(&coll->peer[i]);

		if (p)
			peer_stop_using(p, w);
	}
	err = braid_rma_window_close(&coll->rma, w);
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

static struct braid_coll_peer *peer_new(struct braid_coll *coll, unsigned rank)
{
	struct braid_coll_peer *p = calloc(1, sizeof(*p));

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

struct braid_coll_peer *braid_coll_peer(struct braid_coll *coll, unsigned rank)
{
	struct braid_coll_peer *p = atomic_load_explicit(&coll->peer[rank], memory_order_acquire);

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
static void peer_opened(struct braid_coll_peer *p, struct braid_comm *c)
{
	struct braid_rma_channel *ch = c->channel;
	struct braid_rma_op *op, *tmp;

	braid_lock_wait(&c->link->lock);
	braid_rma_adopt(ch, p->rank);
	braid_list_for_safe(op, tmp, &p->early, node) {
		braid_list_del(&op->node);
		braid_rma_post(ch, op, true);
	}
	braid_link_send(c->link, true);
	braid_unlock(&c->link->lock);
	atomic_store_explicit(&p->ch, ch, memory_order_release);
	braid_secret_free(p->token);
	p->token = NULL;
}

/* Move the connect on, if no other thread does. */
void braid_coll_peer_connect(struct braid_coll *coll, struct braid_coll_peer *p)
{
	uint8_t handle[BRAID_HANDLE_SIZE];
	struct braid_comm *c = NULL;
	int err;

	if (pthread_mutex_trylock(&p->lock))
		return;
	if (!atomic_load(&p->ch) && !atomic_load(&p->err)) {
		memcpy(p->to.token, p->token, BRAID_KEY_SIZE);
		braid_handle_pack(&p->to, handle);
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
