/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unexpected.c - messages that arrive before their receives are posted.
 *
 * Their payload goes into memory of the pool.  It is copied from there when the receive is posted,
 * which takes a while if the receive's buffer is GPU memory: link->msg.copying has these.
 */
#include "core/msg/comm.h"

#include <errno.h>

#include "core/base/copy.h"
#include "core/base/pool.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/msg/msg_int.h"
#include "core/msg/window.h"

void braid_unexp_free(struct braid_comm *c, struct braid_unexp *u)
{
	if (!u->want && !u->taken)
		braid_window_give(&c->unexp_bytes, &c->link->msg.unexp_bytes, u->size);
	if (!braid_list_empty(&u->node))
		c->nunexps--;
	braid_list_del(&u->node);
	braid_list_del(&u->copy_node);
	braid_gpucopy_end(&u->copy);
	braid_pool_put(u->data, u->alloc);
	braid_pool_put(u, sizeof(*u));
}

/* No lane fills one of them: braid_link_drop_payload() has run, or all lanes are closed. */
void braid_unexps_drop(struct braid_comm *c)
{
	struct braid_unexp *u, *tmp;

	braid_assert_locked(&c->link->lock);
	braid_list_for_safe(u, tmp, &c->unexps, node)
		braid_unexp_free(c, u);
}

int braid_unexp_begin(struct braid_lane *lane, struct braid_comm *c, bool want)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_unexp *u;

	braid_assert_locked(&c->link->lock);
	if (c->nunexps >= BRAID_SLOTS)
		return -EBADMSG;	/* more than a sender may have open */
	if (!want &&
	    !braid_window_take(&c->unexp_bytes, &c->link->msg.unexp_bytes,
			       c->link->msg.rx_window, h->size))
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
			braid_unexp_free(c, u);
			return -ENOMEM;
		}
	}
	braid_list_add_tail(&c->unexps, &u->node);
	c->nunexps++;
	if (!want) {
		lane->rx_kind = BRAID_RX_UNEXP;
		lane->rx_target = u;
		lane->rx_dst = u->data;
	}
	return 0;
}

struct braid_unexp *braid_unexp_find(struct braid_comm *c, int32_t tag)
{
	struct braid_unexp *u;

	braid_list_for(u, &c->unexps, node) {
		if (u->tag == tag && !u->taken)
			return u;
	}
	return NULL;
}

/* An unexpected message meets the receive posted now. */
BRAID_APART void braid_unexp_match(struct braid_comm *c, struct braid_recv *e,
				   struct braid_unexp *u)
{
	braid_assert_locked(&c->link->lock);
	if (u->size > e->room) {
		braid_comm_oversize(c, u->size, e->room, u->tag);
		return;
	}
	if (u->want) {
		braid_recv_match_want(c, e, u->seq, u->size);
		braid_unexp_free(c, u);
		return;
	}
	braid_recv_match(c, e, u->size);
	braid_retire(c, u->seq, u->size);	/* now, so that no later credit overtakes it */
	braid_window_give(&c->unexp_bytes, &c->link->msg.unexp_bytes, u->size);
	u->taken = true;
	u->recv = e;
	if (u->ready)
		braid_unexp_move(u);		/* else end_eager() does, once all bytes are here */
}

/* False: it is still being copied into a GPU. */
static bool unexp_deliver(struct braid_unexp *u)
{
	struct braid_recv *e = u->recv;
	int err = 0;

	if (!braid_recv_is_gpu(e) || !u->size) {
		braid_copy_up(e->data, u->data, u->size);
	} else {
		if (!u->copy.mr)
			braid_gpucopy_begin(&u->copy, braid_link_copies(u->comm->link), e->mr,
					    e->data, u->data, u->size, true);
		err = braid_recv_to_gpu(e, &u->copy);
	}
	if (err == -EAGAIN)
		return false;
	braid_unexp_free(u->comm, u);
	if (!err)
		braid_recv_complete(e);
	return true;
}

/* A complete unexpected message has met its receive. */
void braid_unexp_move(struct braid_unexp *u)
{
	struct braid_link *link = u->comm->link;

	if (unexp_deliver(u))
		return;
	braid_list_add_tail(&link->msg.copying, &u->copy_node);
	braid_link_stall(link);
}

bool braid_comm_deliver(struct braid_link *link)
{
	struct braid_unexp *u, *tmp;

	braid_assert_locked(&link->lock);
	braid_list_for_safe(u, tmp, &link->msg.copying, copy_node)
		unexp_deliver(u);
	return braid_comms_deliver(link) && braid_list_empty(&link->msg.copying);
}

void braid_comm_leave(struct braid_link *link)
{
	struct braid_unexp *u;

	braid_assert_locked(&link->lock);
	braid_list_for(u, &link->msg.copying, copy_node) {
		if (atomic_load(&u->comm->err))
			braid_gpucopy_end(&u->copy);
	}
}
