/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * null.c - the smallest transport: a byte stream between the two lanes of one process.
 *
 * It is the worked example of docs/dev/adding-a-transport.md.  What one lane pushes lies on its
 * wire, a buffer, until the other lane's poll() reads it.
 */
#include "tests/lib/null.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { IOV = 64 };

struct null_lane *null_of(struct braid_lane *lane)
{
	return braid_container(lane, struct null_lane, lane);
}

/* --- a lane's life ------------------------------------------------------------------------- */

static int null_ready(struct braid_lane *lane)
{
	(void)lane;
	return 0;
}

static void null_close(struct braid_lane *lane)
{
	struct null_lane *n = null_of(lane);

	if (n->peer)
		n->peer->peer = NULL;
	n->peer = NULL;
	lane->rx_dst = NULL;
	free(n->wire);
	n->wire = NULL;
	n->beg = n->end = n->size = 0;
}

/* --- receiving ----------------------------------------------------------------------------- */

int null_read(struct null_lane *n, size_t max)
{
	struct null_lane *from = n->peer;
	size_t done, len = from ? null_wire_len(from) : 0;

	if (n->err || !braid_trylock(&n->lane.link->lock))
		return n->err;
	n->err = braid_rx_bytes(&n->lane, len ? from->wire + from->beg : NULL,
				len < max ? len : max, &done);
	braid_unlock(&n->lane.link->lock);
	if (n->err == -EAGAIN)
		n->err = 0;
	if (from && (from->beg += done) == from->end)
		from->beg = from->end = 0;
	return n->err ? n->err : (int)done;
}

static int null_poll(struct braid_lane *lane)
{
	return null_of(lane)->held ? null_of(lane)->err : null_read(null_of(lane), SIZE_MAX);
}

/* --- sending ------------------------------------------------------------------------------- */

void null_wire_put(struct null_lane *n, const void *bytes, size_t len)
{
	if (n->end + len > n->size) {
		n->size = 2 * (n->end + len);
		n->wire = realloc(n->wire, n->size);
		assert(n->wire);
	}
	memcpy(n->wire + n->end, bytes, len);
	n->end += len;
}

static size_t room(const struct null_lane *n)
{
	size_t most = !n->limit ? SIZE_MAX / 2 :
		      n->limit > null_wire_len(n) ? n->limit - null_wire_len(n) : 0;

	return n->bite && n->bite < most ? n->bite : most;
}

/* The peer of a direct lane reads at once. */
static void hand_over(struct null_lane *n)
{
	if (n->held || !braid_trylock(&n->peer->lane.io))
		return;
	null_read(n->peer, SIZE_MAX);
	braid_unlock(&n->peer->lane.io);
}

static int null_push(struct braid_lane *lane)
{
	struct null_lane *n = null_of(lane);
	struct iovec iov[IOV];
	struct braid_can can = { .iov = iov, .niov = IOV, .max = room(n) };
	struct braid_piece p;
	int err = -EPIPE;

	while (n->peer && (err = braid_lane_next(lane, &can, &p)) > 0) {
		size_t end = n->end;

		for (int i = 0; i < p.niov; i++)
			null_wire_put(n, iov[i].iov_base, iov[i].iov_len);
		if (p.len > can.max)	/* it splits no header, but a wire may */
			p.len = can.max;
		n->end = end + p.len;
		braid_tx_advance(lane, p.len);
		can.max -= p.len;
		hand_over(n);
	}
	return err;
}

static int null_health(struct braid_lane *lane, struct braid_health *ret)
{
	(void)lane;
	*ret = (struct braid_health){ 0 };
	return 0;
}

const struct braid_transport null_transport = {
	.name = "null",
	.id = NULL_TRANSPORT_ID,
	.lane_size = sizeof(struct null_lane),
	.usable = braid_always,
	.event_fd = braid_no_event_fd,
	.events = braid_no_events,
	.reg = braid_no_reg,
	.dereg = braid_no_dereg,
	.setup = braid_no_setup,
	.setup_peer = braid_no_setup_peer,
	.setup_ready = braid_no_setup_ready,
	.setup_drop = braid_no_setup_drop,
	.lane_open = null_ready,
	.lane_attach = null_ready,
	.lane_detach = braid_no_lane,
	.lane_close = null_close,
	.lane_fence = braid_no_lane,
	.arm = braid_no_arm,
	.push = null_push,
	.poll = null_poll,
	.health = null_health,
	.describe = braid_no_describe,
};
