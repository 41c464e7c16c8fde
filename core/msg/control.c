/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * control.c - a comm's control frames: send those that are due, take those that come.
 *
 * CREDIT and RETIRE are in credits.c, BYE is in close.c.
 */
#include "core/msg/comm.h"

#include <errno.h>
#include <string.h>

#include "core/base/log.h"
#include "core/link/link.h"
#include "core/msg/comms.h"
#include "core/msg/msg_int.h"
#include "core/msg/open.h"
#include "core/proto/auth.h"

static bool send_if_due(struct braid_comm *c, bool *due, struct braid_hdr *h, const void *payload)
{
	if (!*due)
		return true;
	if (!braid_link_ctl(c->link, h, payload))
		return false;
	*due = false;
	return true;
}

static bool send_opened(struct braid_comm *c)
{
	struct braid_hdr h = { .type = BRAID_F_OPENED, .comm = c->id, .len = BRAID_OPEN_SIZE };
	struct braid_open open = { .listen_id = c->listen_id };
	uint8_t payload[BRAID_OPEN_SIZE];

	memcpy(open.mac, c->opened_mac, sizeof(open.mac));
	braid_open_pack(&open, payload);
	return send_if_due(c, &c->opened_due, &h, payload);
}

static bool send_control(struct braid_comm *c)
{
	struct braid_hdr fail = {
		.type = BRAID_F_FAIL, .comm = c->id, .n = c->fail_code,
		.size = c->fail_size, .offset = c->fail_room,
	};
	struct braid_hdr bye = { .type = BRAID_F_BYE, .comm = c->id };

	return (!c->opened_due || send_opened(c)) && (!c->kind || c->kind->send_control(c)) &&
	       braid_retires_send(c) &&
	       (c->sender || braid_credits_send(c)) && send_if_due(c, &c->fail_due, &fail, NULL) &&
	       send_if_due(c, &c->bye_due, &bye, NULL);
}

void braid_comm_control_due(struct braid_comm *c)
{
	braid_assert_locked(&c->link->lock);
	if (braid_list_empty(&c->control_node))
		braid_list_add_tail(&c->link->msg.control_due, &c->control_node);
}

bool braid_comms_send_control(struct braid_link *link)
{
	struct braid_comm *c, *tmp;

	braid_assert_locked(&link->lock);
	braid_list_for_safe(c, tmp, &link->msg.control_due, control_node) {
		if (!send_control(c))
			return false;
		braid_list_del(&c->control_node);
		if (c->closed && c->peer_closed)
			braid_comm_free(c);
	}
	return braid_refusals_send(link);
}

/* The peer must prove this listen's token: the link may have been made with another listen's. */
int braid_opened_came(struct braid_lane *lane)
{
	struct braid_comm *c = braid_comm_find(lane->link, lane->rx_hdr.comm);
	struct braid_open open;

	braid_assert_locked(&lane->link->lock);
	if (!c || c->opened)
		return 0;
	braid_open_unpack(lane->rx_ctl, &open);
	c->opened = braid_auth_equal(open.mac, c->opened_mac);
	if (!c->opened)
		braid_comm_fail(c, -EACCES);	/* the dialler logs it */
	return 0;
}

int braid_refused_came(struct braid_lane *lane, struct braid_comm *c)
{
	braid_assert_locked(&lane->link->lock);
	if (!c->sender)
		return -EBADMSG;
	c->peer_closed = true;
	if (c->opened)
		braid_comm_orphaned(c);	/* after the peer accepted it */
	else					/* the dialler logs it */
		braid_comm_fail(c, lane->rx_hdr.n == BRAID_HELLO_NO_ROOM ? -ENOBUFS :
				   lane->rx_hdr.n == BRAID_HELLO_CROSSED ? -EALREADY :
									   -ECONNREFUSED);
	if (c->closed && !c->bye_due)
		braid_comm_free(c);
	return 0;
}

/* VOID replaces a frame that will never come.  FAIL follows, perhaps after more messages. */
int braid_void_came(struct braid_lane *lane, struct braid_comm *c)
{
	braid_assert_locked(&lane->link->lock);
	braid_comm_ended(c, BRAID_WHY_GAVE_UP);
	return 0;
}

int braid_fail_came(struct braid_lane *lane, struct braid_comm *c)
{
	const struct braid_hdr *h = &lane->rx_hdr;

	braid_assert_locked(&lane->link->lock);
	if (atomic_load(&c->err) || c->closed)
		return 0;
	if (h->n == EMSGSIZE) {
		braid_warn(
			"device %s, peer %s: a message of %llu bytes was sent to a receive posted "
			"with %llu bytes; nothing was delivered. Make both ranks use the same size "
			"[size-mismatch]",
			c->link->key.dev->net.name, c->link->peer, (unsigned long long)h->size,
			(unsigned long long)h->offset);
		braid_comm_fail(c, -EMSGSIZE);
	} else {
		braid_void_came(lane, c);
	}
	return 0;
}
