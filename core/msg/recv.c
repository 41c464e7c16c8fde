/* SPDX-License-Identifier: BSD-3-Clause */
/* recv.c - irecv(): post receives, and match them with what has come. */
#include "core/msg/comm.h"

#include <errno.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/link/link.h"
#include "core/msg/msg_int.h"

struct braid_recv *braid_recv_find(struct braid_comm *c, int32_t tag)
{
	for (uint32_t r = c->oldest_rseq; r != c->next_rseq; r++) {
		struct braid_recv *e = braid_recv_at(c, r);

		if (e->tag == tag && braid_recv_is_open(e))
			return e;
	}
	return NULL;
}

void braid_recv_match_want(struct braid_comm *c, struct braid_recv *e, uint32_t seq, uint64_t size)
{
	braid_recv_match(c, e, size);
	e->wanted = true;
	e->mseq = seq;
	if (!e->credited && !e->credit_due)
		braid_credit_due(c, e);
}

/* 0: copied; -EAGAIN: still being copied; else the copy and the comm have failed. */
int braid_recv_to_gpu(struct braid_recv *e, struct braid_gpucopy *copy)
{
	int err = braid_gpucopy_move(copy);

	if (err && err != -EAGAIN)
		braid_comm_no_gpu(e->req.comm, copy);
	return err;
}

static void recv_post(struct braid_comm *c, struct braid_recv *e)
{
	struct braid_unexp *u = braid_unexp_find(c, e->tag);

	braid_assert_locked(&c->link->lock);
	if (u)
		braid_unexp_match(c, e, u);
	else if (c->peer_closed)
		braid_comm_orphaned(c);
	else if (c->large)
		braid_credit_all(c);
	else
		c->plain = true;
}

/* Take the oldest entry out of its slot, if test() has finished with it; or NULL. */
static struct braid_recv *recv_done(struct braid_comm *c)
{
	struct braid_recv *e;

	if (c->first == c->oldest_rseq)
		return NULL;
	e = braid_recv_at(c, c->first);
	if (braid_req_is_busy(&e->busy))
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

/* recv_new() for more than one receive. */
static BRAID_APART struct braid_recv *recv_new_group(struct braid_comm *c, unsigned n)
{
	struct braid_recv *e;

	braid_assert_locked(&c->link->lock);
	while ((e = recv_done(c)))
		braid_slab_put(&c->slab, e, sizeof(*e));
	if (c->next_rseq + n - c->first > BRAID_SLOTS)
		return NULL;
	for (unsigned i = 0; i < n; i++) {
		if (recv_take(c, c->next_rseq + i, NULL))
			continue;
		while (i--) {
			braid_slab_put(&c->slab, braid_recv_at(c, c->next_rseq + i), sizeof(*e));
			c->recv[(c->next_rseq + i) % BRAID_SLOTS] = NULL;
		}
		return NULL;
	}
	return braid_recv_at(c, c->next_rseq);
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
	uint64_t now = braid_posted_at(c->link);

	braid_assert_locked(&c->link->lock);
	atomic_store_explicit(&head->req.done, false, memory_order_relaxed);
	head->req.n = (uint8_t)n;
	head->pending = n;
	for (unsigned i = 0; i < n; i++) {
		struct braid_recv *e = braid_recv_at(c, c->next_rseq);

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
		*ret = braid_req_in_vain(c, n);
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
