/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * messages.c - an end that sends and receives messages through the net table (actor.h).
 *
 * The receiver posts no more receives than the sender will certainly send, so when all is to stop,
 * every posted receive gets its message.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/faults/actor.h"
#include "tools/proxy.h"

/* -- traffic ------------------------------------------------------------------------------ */

/* Takes the result of isend() or irecv().  False: there is no request, so the call is repeated. */
static bool posted(struct actor *a, struct stream *s, const struct slot *slot, ncclResult_t res)
{
	if (res != ncclSuccess)
		failed(a, s, res);
	if (res != ncclSuccess || !slot->req[0])
		return false;
	s->posted++;
	if (s->sends)
		s->flow->sent++;
	return true;
}

static bool post_send(struct actor *a, struct stream *s)
{
	uint64_t key = message_key(a->st, a->act, s->f, s->posted);
	uint8_t *p = slot_mem(a, s, s->posted);
	struct slot *slot = &s->slot[s->posted % a->st->slots];
	size_t size = message_size(a->st, key);
	ncclResult_t res;

	if (slot->k != s->posted + 1) {		/* fill it once, though isend() may give no request yet */
		message_fill(p, size, key);
		slot->k = s->posted + 1;
	}
	slot->req[0] = NULL;
	res = TIMED(a->end, CALL_ISEND, net_isend(a->net, s->comm, p, size, message_tag(key), s->mr, NULL,
					     &slot->req[0]));
	if (!posted(a, s, slot, res))
		return false;
	paced(a, s, size);
	return true;
}

static bool post_recv(struct actor *a, struct stream *s)
{
	uint64_t key = message_key(a->st, a->act, s->f, s->posted);
	uint8_t *p = slot_mem(a, s, s->posted);
	struct slot *slot = &s->slot[s->posted % a->st->slots];
	size_t size = message_size(a->st, key), room = key >> 60 & 1 ? size : a->st->max_size;
	int tag = message_tag(key);
	ncclResult_t res;
	void *data = p;

	if (slot->k != s->posted + 1) {
		slot_spoil(a, s, s->posted);
		slot->k = s->posted + 1;
	}
	slot->req[0] = NULL;
	res = TIMED(a->end, CALL_IRECV, net_irecv(a->net, s->comm, 1, &data, &room, &tag, &s->mr, NULL,
					     &slot->req[0]));
	return posted(a, s, slot, res);
}

/* Tests requests in the order of posting, as NCCL does; true if something happened. */
static bool step(struct actor *a, struct stream *s)
{
	bool moved = false;

	while (may_post(a, s) && (s->sends ? post_send(a, s) : post_recv(a, s)))
		moved = true;
	while (!s->error && s->done < s->posted) {
		struct slot *slot = &s->slot[s->done % a->st->slots];
		int done = 0, size = -1;
		ncclResult_t res = TIMED(a->end, CALL_TEST, net_test(a->net, slot->req[0], &done, &size));

		if (res != ncclSuccess)
			failed(a, s, res);
		if (res != ncclSuccess || !done)
			break;
		if (!s->sends)
			arrived(a, s, s->done, size);
		s->done++;
		moved = true;
	}
	told(a, s);
	return moved;
}

static ncclResult_t again(struct actor *a, struct stream *s)
{
	void *req = NULL;
	int tag = 0;
	size_t size = 0;
	void *data = s->mem;

	return s->sends ?
		TIMED(a->end, CALL_ISEND, net_isend(a->net, s->comm, data, 0, 0, s->mr, NULL, &req)) :
		TIMED(a->end, CALL_IRECV, net_irecv(a->net, s->comm, 1, &data, &size, &tag, &s->mr,
					       NULL, &req));
}

/* -- set-up and close --------------------------------------------------------------------- */

static ncclResult_t listen_one(struct actor *a, struct stream *s)
{
	if (s->sends)
		return ncclSuccess;
	return TIMED(a->end, CALL_LISTEN, net_listen(a->net, a->dev, s->flow->handle, &s->listen));
}

static bool try_old(struct actor *a, uint8_t *handle, ncclResult_t *ret)
{
	void *comm = NULL;

	*ret = TIMED(a->end, CALL_CONNECT, net_connect(a->net, a->dev, handle, &comm));
	return *ret != ncclSuccess || comm;
}

/* Calls connect() or accept() once; an error ends this flow. */
static void open_one(struct actor *a, struct stream *s)
{
	ncclResult_t res;

	if (s->sends)
		res = TIMED(a->end, CALL_CONNECT, net_connect(a->net, a->dev, s->handle, &s->comm));
	else
		res = TIMED(a->end, CALL_ACCEPT, net_accept(a->net, s->listen, &s->comm));
	if (res != ncclSuccess) {
		s->comm = NULL;
		failed(a, s, res);
		return;
	}
	if (s->comm) {
		res = TIMED(a->end, CALL_REG, net_reg(a->net, s->comm, s->mem, a->slot_size * a->st->slots,
						 NCCL_PTR_HOST, &s->mr));
		if (res != ncclSuccess)
			failed(a, s, res);
		s->flow->last_ns = now_ns();
	}
}

static ncclResult_t close_listen(struct actor *a, struct stream *s)
{
	return TIMED(a->end, CALL_CLOSE, net_close_listen(a->net, s->listen));
}

static ncclResult_t dereg(struct actor *a, struct stream *s)
{
	return TIMED(a->end, CALL_DEREG, net_dereg(a->net, s->comm, s->mr));
}

static ncclResult_t close_one(struct actor *a, struct stream *s)
{
	return TIMED(a->end, CALL_CLOSE, s->sends ? net_close_send(a->net, s->comm) :
						 net_close_recv(a->net, s->comm));
}

/* -- the plugin --------------------------------------------------------------------------- */

/* Fuses all devices into one, if the run has several paths. */
static ncclResult_t fuse(struct actor *a, int ndev)
{
	ncclNetVDeviceProps_v12_t all = { .ndevs = a->st->devices[a->who] };

	if (ndev < all.ndevs)
		return ncclInvalidUsage;
	for (int i = 0; i < all.ndevs; i++)
		all.devs[i] = i;
	if (a->net->abi >= 12)
		return ((const ncclNet_v12_t *)a->net->table)->makeVDevice(&a->dev, &all);
	return ((const ncclNet_v9_t *)a->net->table)->makeVDevice(
		&a->dev, &(ncclNetVDeviceProps_v9_t){ .ndevs = 2, .devs = { 0, 1 } });
}

static void take(struct actor *a)
{
	char err[200];
	int ndev = 0;

	setenv("BRAID_FUSE", "any", 1);
	a->net = net_load(a->st->plugin, a->st->abi[a->who], err, sizeof(err));
	if (!a->net) {
		broken(a, "%s", err);
		give_up(a);
	}
	if (net_init(a->net, a->st->seed, NCCL_NET_TRAFFIC_CLASS_UNDEF,
		     a->st->no_logger ? NULL : witness_keeps, NULL) != ncclSuccess ||
	    net_devices(a->net, &ndev) != ncclSuccess || ndev <= a->st->dev[a->who]) {
		broken(a, "init found no device");
		give_up(a);
	}
	a->dev = a->st->dev[a->who];
	if (a->st->devices[a->who] > 1) {
		a->end->lacks_fusion = !a->net->has_vdevice;
		if (a->end->lacks_fusion || fuse(a, ndev) != ncclSuccess) {
			broken(a, "makeVDevice failed");
			give_up(a);
		}
	}
}

static ncclResult_t end(struct actor *a)
{
	ncclResult_t res = TIMED(a->end, CALL_FINALIZE, net_finalize(a->net));

	net_unload(a->net);
	return res;
}

const struct way way_messages = {
	.take = take, .end = end, .listen = listen_one, .try_old = try_old, .open = open_one,
	.step = step, .again = again, .close_listen = close_listen, .dereg = dereg,
	.close = close_one,
};
