/* SPDX-License-Identifier: BSD-3-Clause */
/* open.c - see open.h. */
#include "core/msg/open.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "core/link/control.h"
#include "core/link/link.h"
#include "core/msg/comms.h"
#include "core/msg/msg_int.h"

struct braid_refusals {
	unsigned first, n;		/* a ring */
	struct {
		uint32_t comm;
		uint16_t code;
	} at[BRAID_REFUSALS_MAX];
};

/* The hooks until the set-up starts: no listen exists, and no lane is being set up. */
static int check_none(const struct braid_link *link, uint32_t comm, const struct braid_open *open)
{
	(void)link, (void)comm, (void)open;
	return -ENOENT;
}

static int offer_none(struct braid_comm *c, const struct braid_open *open)
{
	(void)c, (void)open;
	return -ENOENT;
}

static void revoked_none(const struct braid_link *link)
{
	(void)link;
}

struct braid_comm_hooks braid_comm_hooks = { check_none, offer_none, revoked_none };

void braid_comms_go(struct braid_link *link, unsigned n, uint32_t rkey_epoch)
{
	bool revoked = rkey_epoch != braid_link_rkey_epoch(link);

	braid_link_go(link, n);
	if (revoked)
		braid_comm_hooks.revoked(link);
}

/* 0, -ENOMEM, or -EBADMSG: the list is full. */
static int refuse(struct braid_link *link, uint32_t comm, int err)
{
	struct braid_refusals *r = link->msg.refusals;
	unsigned i;

	if (!r) {
		r = calloc(1, sizeof(*r));
		if (!r)
			return -ENOMEM;
		link->msg.refusals = r;
	}
	if (r->n == BRAID_REFUSALS_MAX)
		return -EBADMSG;
	i = (r->first + r->n++) % BRAID_REFUSALS_MAX;
	r->at[i].comm = comm;
	r->at[i].code = err == -ENOMEM || err == -ENOSPC ? BRAID_HELLO_NO_ROOM :
			err == -EALREADY ? BRAID_HELLO_CROSSED : BRAID_HELLO_NO_LISTEN;
	return 0;
}

bool braid_refusals_send(struct braid_link *link)
{
	struct braid_refusals *r = atomic_load_explicit(&link->msg.refusals, memory_order_relaxed);

	braid_assert_locked(&link->lock);
	if (!r)
		return true;
	while (r->n) {
		struct braid_hdr h = {
			.type = BRAID_F_REFUSED, .comm = r->at[r->first].comm,
			.n = r->at[r->first].code,
		};

		if (!braid_link_ctl(link, &h, NULL))
			return false;
		r->first = (r->first + 1) % BRAID_REFUSALS_MAX;
		r->n--;
	}
	free(r);
	link->msg.refusals = NULL;
	return true;
}

BRAID_APART int braid_open_came(struct braid_lane *lane)
{
	struct braid_link *link = lane->link;
	uint32_t id = lane->rx_hdr.comm;
	struct braid_comm *c;
	struct braid_open open;
	int err;

	braid_assert_locked(&link->lock);
	/* The dialled end assigns odd ids, the dialling end even ones. */
	if ((id & 1) != link->dialler || braid_comm_find(link, id))
		return -EBADMSG;
	/* Another thread has ended the link since this one read the frame, and failed its comms. */
	if (atomic_load(&link->state) == BRAID_LINK_DEAD)
		return 0;
	braid_open_unpack(lane->rx_ctl, &open);
	if (braid_link_attach(link))	/* it may have been idle until now */
		return -ENOMEM;
	braid_link_urge(link);
	err = braid_comm_hooks.open_check(link, id, &open);
	if (!err && link->msg.ncomms >= BRAID_LINK_COMMS_MAX)
		err = -ENOSPC;
	if (err)
		return refuse(link, id, err);
	c = braid_comm_new(link, id, false);
	if (!c)
		return braid_no_memory("a connection");
	err = braid_comm_hooks.open_offer(c, &open);
	if (err) {			/* the listen was closed or filled since the check */
		braid_comm_free(c);
		return refuse(link, id, err);
	}
	c->opened_due = true;
	braid_comm_control_due(c);
	return 0;
}
