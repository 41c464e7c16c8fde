/* SPDX-License-Identifier: BSD-3-Clause */
/* comm.c - the life of a comm, and the test() of its requests; see comm.h for the rules. */
#include "core/msg/comm.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

#include "core/base/flight.h"
#include "core/base/pool.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/msg/comms.h"
#include "core/msg/kind.h"
#include "core/msg/msg_int.h"
#include "core/msg/window.h"

static size_t entry_size(bool sender)
{
	return sender ? sizeof(struct braid_send) : sizeof(struct braid_recv);
}

int braid_comms_init(struct braid_link *link)
{
	link->msg.bucket = calloc(BRAID_LINK_BUCKETS, sizeof(*link->msg.bucket));
	if (!link->msg.bucket)
		return -ENOMEM;
	link->msg.burst = 8;
	braid_list_init(&link->msg.comms);
	braid_list_init(&link->msg.control_due);
	braid_list_init(&link->msg.copying);
	braid_list_init(&link->msg.delivering);
	return 0;
}

void braid_comms_end(struct braid_link *link)
{
	free(link->msg.refusals);
	braid_pool_unpromise(link->msg.rx_window);
	free(link->msg.bucket);
	braid_hist_free(&link->msg.took[0]);
	braid_hist_free(&link->msg.took[1]);
}

struct braid_comm *braid_comm_new(struct braid_link *link, uint32_t id, bool sender)
{
	struct braid_comm *c = calloc(1, sizeof(*c));
	struct braid_comm **bucket = &link->msg.bucket[id % BRAID_LINK_BUCKETS];

	braid_assert_locked(&link->lock);
	if (!c)
		return NULL;
	if (!braid_slab_grow(&c->slab, entry_size(sender))) {
		free(c);
		return NULL;
	}
	c->link = link;
	c->id = id;
	c->sender = sender;
	braid_list_init(&c->credits);
	braid_list_init(&c->unexps);
	braid_list_init(&c->control_node);
	braid_list_init(&c->listen_node);
	braid_list_init(&c->deliver_node);
	braid_list_init(&c->ctx_node);
	braid_list_init(&c->mrs);
	braid_list_init(&c->flushes);
	c->hash_next = *bucket;
	*bucket = c;
	braid_list_add_tail(&link->msg.comms, &c->node);
	link->msg.ncomms++;
	link->msg.used = true;
	braid_event(BRAID_EVENT_COMM_OPEN, link->number, BRAID_FLIGHT_NONE, id, sender);
	return c;
}

void braid_comm_set_kind(struct braid_comm *c, const struct braid_comm_kind *kind, void *channel)
{
	braid_assert_locked(&c->link->lock);
	c->kind = kind;
	c->channel = channel;
	c->link->msg.nkinds++;
}

void braid_comm_deliver_later(struct braid_comm *c)
{
	struct braid_link *link = c->link;

	braid_assert_locked(&link->lock);
	if (braid_list_empty(&c->deliver_node)) {
		braid_list_add_tail(&link->msg.delivering, &c->deliver_node);
		atomic_fetch_add(braid_link_copies(link), 1);
	}
	braid_link_stall(link);
}

static void delivered(struct braid_comm *c)
{
	if (braid_list_empty(&c->deliver_node))
		return;
	braid_list_del(&c->deliver_node);
	atomic_fetch_sub(braid_link_copies(c->link), 1);
}

bool braid_comms_deliver(struct braid_link *link)
{
	struct braid_comm *c, *tmp;

	braid_assert_locked(&link->lock);
	braid_list_for_safe(c, tmp, &link->msg.delivering, deliver_node) {
		if (c->kind->deliver(c))
			delivered(c);
	}
	return braid_list_empty(&link->msg.delivering);
}

static void kind_end(struct braid_comm *c)
{
	c->kind->free(c);
	delivered(c);
	c->link->msg.nkinds--;
	c->kind = NULL;
}

void braid_comm_free(struct braid_comm *c)
{
	struct braid_link *link = c->link;
	struct braid_comm **p = &link->msg.bucket[c->id % BRAID_LINK_BUCKETS];

	braid_assert_locked(&link->lock);
	while (*p != c)
		p = &(*p)->hash_next;
	*p = c->hash_next;
	if (c->kind)
		kind_end(c);
	braid_unexps_drop(c);
	if (c->sender)
		link->msg.shared_out -= braid_window_over(c->eager_out);
	braid_list_del(&c->control_node);
	braid_list_del(&c->node);
	link->msg.ncomms--;
	braid_slab_end(&c->slab);
	braid_slab_end(&c->credit_slab);
	free(c);
}

/* A send comm not opened yet does not count: its caller dials again, or the dial logs an error. */
bool braid_comms_wait(const struct braid_link *link)
{
	const struct braid_comm *c;

	braid_assert_locked(&link->lock);
	braid_list_for(c, &link->msg.comms, node) {
		if (!c->closed && !c->peer_closed && (!c->sender || c->opened))
			return true;
	}
	return false;
}

/* A receive comm whose sender has closed has all its data, so it goes on, unless this end stops. */
void braid_comms_fail(struct braid_link *link, int err)
{
	struct braid_comm *c;

	braid_assert_locked(&link->lock);
	braid_list_for(c, &link->msg.comms, node) {
		if (!c->sender && c->peer_closed && err != -ENOTCONN)
			continue;
		/* Nothing waits here, so the link's line may be no WARN; later sends need one. */
		if (c->peer_closed && !atomic_load(&c->err))
			c->why = BRAID_WHY_CLOSED;
		braid_comm_fail(c, err);
	}
}

/*
 * A dummy request on a failed comm whose error test() has not returned yet: NCCL expects isend and
 * irecv to succeed.  The request has no number, and moves no bytes.  NULL: not now.
 */
BRAID_APART struct braid_req *braid_req_in_vain(struct braid_comm *c, unsigned n)
{
	struct braid_req *req;

	braid_assert_locked(&c->link->lock);
	if (c->in_vain >= BRAID_SLOTS)
		return NULL;
	req = braid_slab_get(&c->slab, entry_size(c->sender));	/* both entry types begin with it */
	if (!req)
		return NULL;
	c->in_vain++;
	req->comm = c;
	req->n = (uint8_t)n;
	atomic_store(&req->done, false);
	return req;
}

/* Called by the one thread that makes the comm's data calls; another may close the comm. */
static void count_done(struct braid_comm *c, uint64_t size)
{
	braid_count(&c->done.messages, 1);
	braid_count(&c->done.bytes, size);
}

static int as_int(uint64_t size)
{
	return size > INT_MAX ? INT_MAX : (int)size;
}

void braid_comm_finish(struct braid_req *req, int *sizes)
{
	struct braid_comm *c = req->comm;
	uint32_t end;

	if (c->sender) {
		struct braid_send *s = braid_container(req, struct braid_send, req);

		if (sizes)
			sizes[0] = as_int(s->size);
		count_done(c, s->size);
		braid_hint(&s->busy, false);
		return;
	}
	end = braid_container(req, struct braid_recv, req)->rseq + req->n;
	for (uint32_t r = end - req->n; r != end; r++) {
		struct braid_recv *e = braid_recv_at(c, r);

		if (!e)
			return;		/* finished before */
		if (sizes)
			*sizes++ = as_int(e->size);
		count_done(c, e->size);
		braid_hint(&e->busy, false);
	}
	if (end == c->next_rseq)
		braid_link_defer_control(c->link);
}

int braid_comm_test(struct braid_req *req)
{
	struct braid_comm *c = req->comm;
	int err;

	if (!atomic_load_explicit(&req->done, memory_order_acquire)) {
		if (c->burst)
			braid_send_hold_back(c);
		else
			braid_link_progress(c->link, &c->flush_epoch, &req->done);
	}
	if (atomic_load_explicit(&req->done, memory_order_acquire) && !c->reported)
		return 1;
	err = atomic_load_explicit(&c->err, memory_order_acquire);
	return err ? braid_comm_report(c, err) : 0;
}

bool braid_comm_waits(struct braid_comm *c, struct braid_waiting *ret)
{
	braid_assert_locked(&c->link->lock);
	*ret = (struct braid_waiting){ 0 };
	if (c->closed || atomic_load(&c->err))
		return false;
	if (c->kind)
		return c->kind->waits(c, ret);
	if (!c->sender && c->oldest_rseq != c->next_rseq) {
		const struct braid_recv *e = braid_recv_at(c, c->oldest_rseq);

		*ret = (struct braid_waiting){ .any = true, .seq = e->rseq, .tag = e->tag,
						.size = e->room };
	}
	for (uint32_t q = c->oldest_await; c->sender && q != c->next_seq && !ret->any; q++) {
		const struct braid_send *s = braid_send_at(c, q);

		if (s->await == BRAID_AWAIT_WANT)
			*ret = (struct braid_waiting){ .any = true, .seq = s->x.seq,
							.tag = s->tag, .size = s->size };
	}
	return ret->any;
}
