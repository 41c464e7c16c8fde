/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * credits.c - how the sender learns which receives are posted and which have met a message.
 *
 * The receiver sends a CREDIT for a receive, and a RETIRE for messages that met receives without
 * one.  Neither is sent at once: both are noted as due, and sent with the next control frames, in
 * the order that comm.h asks for.
 */
#include "core/msg/comm.h"

#include <errno.h>

#include "core/base/slab.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/link/state.h"
#include "core/msg/comms.h"
#include "core/msg/msg_int.h"

struct braid_credit *braid_credit_find(struct braid_comm *c, int32_t tag)
{
	struct braid_credit *cr;

	braid_assert_locked(&c->link->lock);
	braid_list_for(cr, &c->credits, node) {
		if (cr->tag == tag)
			return cr;
	}
	return NULL;
}

void braid_credit_free(struct braid_comm *c, struct braid_credit *cr)
{
	braid_assert_locked(&c->link->lock);
	c->credited[cr->rseq % BRAID_SLOTS / 64] &= ~(1ull << cr->rseq % 64);
	braid_list_del(&cr->node);
	braid_slab_put(&c->credit_slab, cr, sizeof(*cr));
}

int braid_credit_came(struct braid_lane *lane)
{
	const struct braid_hdr *h = &lane->rx_hdr;
	struct braid_comm *c = braid_comm_find(lane->link, h->comm);
	struct braid_place to = { .addr = h->offset, .rkey_epoch = h->seq, .nkeys = h->len / 4 };
	struct braid_credit *cr;

	braid_assert_locked(&lane->link->lock);
	if (!c || braid_comm_drains(c))
		return 0;
	braid_keys_unpack(lane->rx_ctl, to.nkeys, to.key);
	for (uint32_t q = c->oldest_await; q != c->next_seq; q++) {
		struct braid_send *s = braid_send_at(c, q);
		bool want = s->await == BRAID_AWAIT_WANT;

		if (s->await == BRAID_MET || s->tag != h->tag)
			continue;
		braid_send_met(c, s);
		if (!want)
			return 0;
		if (s->size > h->size)
			braid_comm_oversize(c, s->size, h->size, s->tag);
		else
			braid_send_to_credit(c, s, h->rseq, &to);
		return 0;
	}
	if (c->credited[h->rseq % BRAID_SLOTS / 64] >> h->rseq % 64 & 1)
		return -EBADMSG;	/* more credits than a comm can have receives */
	cr = braid_slab_get(&c->credit_slab, sizeof(*cr));
	if (!cr)
		return -ENOMEM;
	c->credited[h->rseq % BRAID_SLOTS / 64] |= 1ull << h->rseq % 64;
	cr->rseq = h->rseq;
	cr->tag = h->tag;
	cr->room = h->size;
	cr->to = to;
	braid_list_add_tail(&c->credits, &cr->node);
	return 0;
}

void braid_credit_due(struct braid_comm *c, struct braid_recv *e)
{
	braid_assert_locked(&c->link->lock);
	e->credit_due = true;
	if (!c->ndue++ || (int32_t)(e->rseq - c->credit_scan) < 0)
		c->credit_scan = e->rseq;
	braid_comm_control_due(c);
	braid_link_urge(c->link);
}

/* Credits follow the order of the receives: earlier receives without a credit get theirs first. */
void braid_credit_all(struct braid_comm *c)
{
	uint32_t r = c->plain ? c->oldest_rseq : c->next_rseq - 1;

	braid_assert_locked(&c->link->lock);
	for (; r != c->next_rseq; r++) {
		struct braid_recv *e = braid_recv_at(c, r);

		if (e->posted && !e->matched && !e->credited && !e->credit_due)
			braid_credit_due(c, e);
	}
	c->plain = false;
}

/* Pack the keys of a receive's memory: returns their bytes, or 0 if the NICs can't write it. */
static uint32_t place_of(const struct braid_recv *e, uint8_t *payload)
{
	const struct braid_mr *mr = e->mr;
	unsigned n = mr ? mr->dev->nmembers : 0;
	uint32_t key[BRAID_PATHS_MAX];

	for (unsigned i = 0; i < n; i++) {
		if (!mr->key[i].mr || mr->key[i].sealed)
			return 0;
		key[i] = mr->key[i].remote;
	}
	if (!n || e->data < mr->data || e->room > mr->size ||
	    (size_t)(e->data - mr->data) > mr->size - e->room)
		return 0;
	braid_keys_pack(key, n, payload);
	return 4 * n;
}

bool braid_credits_send(struct braid_comm *c)
{
	braid_assert_locked(&c->link->lock);
	for (; c->ndue; c->credit_scan++) {
		struct braid_recv *e = braid_recv_at(c, c->credit_scan);
		struct braid_hdr h = { .type = BRAID_F_CREDIT, .comm = c->id };
		uint8_t keys[4 * BRAID_PATHS_MAX];

		if (!e || !e->credit_due)	/* completed without a credit, and gone */
			continue;
		h.rseq = e->rseq;
		h.tag = e->tag;
		h.size = e->room < BRAID_MSG_MAX ? e->room : BRAID_MSG_MAX;
		h.len = place_of(e, keys);
		if (h.len) {
			h.offset = (uint64_t)(uintptr_t)e->data;
			h.seq = braid_link_rkey_epoch(c->link);
			e->placed = true;
		}
		if (!braid_link_ctl(c->link, &h, h.len ? keys : NULL))
			return false;
		braid_credit_not_due(c, e);
		e->credited = true;
	}
	return true;
}

/* One RETIRE for each run of consecutive numbers: one run if all messages have the same tag. */
bool braid_retires_send(struct braid_comm *c)
{
	braid_assert_locked(&c->link->lock);
	while (c->retire_n) {
		struct braid_hdr h = { .type = BRAID_F_RETIRE, .comm = c->id };

		while (!braid_is_retired(c, c->retire_first))
			c->retire_first++;
		h.seq = c->retire_first;
		while (h.n < c->retire_n && braid_is_retired(c, h.seq + h.n))
			h.n++;
		if (!braid_link_ctl(c->link, &h, NULL))
			return false;
		for (uint32_t q = h.seq; q != h.seq + h.n; q++)
			c->retired[q % BRAID_SLOTS / 64] &= ~(1ull << q % 64);
		c->retire_first += h.n;
		c->retire_n -= h.n;
	}
	c->link->msg.retire_bytes -= c->retire_bytes;
	c->retire_bytes = 0;
	return true;
}

int braid_retire_came(struct braid_lane *lane, struct braid_comm *c)
{
	const struct braid_hdr *h = &lane->rx_hdr;

	braid_assert_locked(&lane->link->lock);
	if (!c->sender || h->n > BRAID_SLOTS)
		return -EBADMSG;
	for (uint32_t q = h->seq; q != h->seq + h->n; q++) {
		struct braid_send *s = braid_send_at(c, q);

		if (!s || s->x.seq != q || s->await != BRAID_AWAIT_EAGER)
			return -EBADMSG;
		braid_send_met(c, s);
	}
	return 0;
}
