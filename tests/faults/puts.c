/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * puts.c - an end that puts, signals and gets through the RMA table (actor.h).
 *
 * Message k is put into slot k of the receiver's memory, and a strong signal adds one to the flow's
 * word there.  Some messages are only announced by the signal, and the receiver gets them.  It
 * checks the bytes, and a signal back, the credit, allows the sender to use the slot again.  A word
 * must never be more than the signals posted so far.
 *
 * Flows 2i and 2i + 1 share a communicator, and each has a context of its own.  The plugin connects
 * with the first put.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/faults/actor.h"
#include "tools/proxy.h"
#include "tools/rma.h"

enum { CAME, FREE };			/* stream.word[] */

static struct group *group_of(struct actor *a, const struct stream *s)
{
	return &a->group[s->f / 2];
}

/* -- traffic ------------------------------------------------------------------------------ */

static bool is_got(uint64_t key)
{
	return key >> 62 == 0;
}

/* How many bytes go in a put of their own, before the one with the signal. */
static size_t cut_of(uint64_t key, size_t size)
{
	switch (key >> 61) {
	case 2:
		return size;
	case 3:
		return size / 2;
	default:
		return 0;
	}
}

/* Tests a part of a request; it is NULL once done. */
static ncclResult_t test_part(struct actor *a, struct stream *s, void **req)
{
	int done = 0;
	ncclResult_t res;

	if (!*req)
		return ncclSuccess;
	res = TIMED(a->end, CALL_TEST, rma_test(a->rma, group_of(a, s)->coll, *req, &done));
	if (done)
		*req = NULL;
	return res;
}

/* Puts `size` bytes from `off` on, and adds one to a word of the other end. */
static ncclResult_t put_signal(struct actor *a, struct stream *s, uint64_t off, size_t size,
			       unsigned word, uint32_t op, void **req)
{
	void *mr = size ? s->mr : NULL;

	*req = NULL;
	return TIMED(a->end, CALL_ISEND, rma_iput_signal(a->rma, group_of(a, s)->ctx, (int)s->f % 2, off, mr,
		size, off, mr, !a->who, word * sizeof(uint64_t), s->words, 1, op, true, 0, req));
}

static bool post_put(struct actor *a, struct stream *s)
{
	uint64_t key = message_key(a->st, a->act, s->f, s->posted);
	size_t size = message_size(a->st, key), cut = cut_of(key, size), rest = size - cut;
	uint64_t off = (uint64_t)(slot_mem(a, s, s->posted) - s->mem);
	struct slot *slot = &s->slot[s->posted % a->st->slots];
	ncclResult_t res = ncclSuccess;

	message_fill(s->mem + off, size, key);
	s->flow->sent++;		/* before: the receiver may see it at once */
	slot->req[0] = NULL;
	if (cut && !is_got(key))
		res = TIMED(a->end, CALL_ISEND, rma_iput(a->rma, group_of(a, s)->ctx, (int)s->f % 2, off, s->mr,
			cut, off, s->mr, !a->who, NCCL_RMA_AGGREGATE, &slot->req[0]));
	if (res == ncclSuccess)
		res = put_signal(a, s, off + cut, is_got(key) ? 0 : rest, CAME,
				 key >> 59 & 1 ? NCCL_RMA_SIGNAL_ADD : NCCL_RMA_SIGNAL_INC, &slot->req[1]);
	if (res == ncclSuccess)
		s->posted++;
	else
		failed(a, s, res);
	return res == ncclSuccess;
}

/* Takes a message that the word announced: it is here, or is got now. */
static bool take_one(struct actor *a, struct stream *s)
{
	uint64_t key = message_key(a->st, a->act, s->f, s->posted);
	uint64_t off = (uint64_t)(slot_mem(a, s, s->posted) - s->mem);
	struct slot *slot = &s->slot[s->posted % a->st->slots];
	size_t size = message_size(a->st, key);
	ncclResult_t res = ncclSuccess;

	if (s->posted >= s->word[CAME])
		return false;
	slot->req[0] = slot->req[1] = NULL;
	if (is_got(key) && size)
		res = TIMED(a->end, CALL_IRECV, rma_iget(a->rma, group_of(a, s)->ctx, (int)s->f % 2, off, s->mr,
			size, off, s->mr, !a->who, 0, &slot->req[0]));
	if (res == ncclSuccess)
		s->posted++;
	else
		failed(a, s, res);
	return res == ncclSuccess;
}

/* Checks the oldest message, if all of it is here, and gives its slot back. */
static ncclResult_t check_one(struct actor *a, struct stream *s, struct slot *slot)
{
	if (slot->req[0] || slot->k == s->done + 1)
		return ncclSuccess;
	slot->k = s->done + 1;
	arrived(a, s, s->done,
		(int)message_size(a->st, message_key(a->st, a->act, s->f, s->done)));
	slot_spoil(a, s, s->done + a->st->slots);
	return put_signal(a, s, 0, 0, FREE, NCCL_RMA_SIGNAL_ADD, &slot->req[1]);
}

/* Moves the oldest message on; true if that is over. */
static bool finish_one(struct actor *a, struct stream *s)
{
	struct slot *slot = &s->slot[s->done % a->st->slots];
	ncclResult_t res;

	if (s->error || s->done == s->posted)
		return false;
	res = test_part(a, s, &slot->req[0]);
	if (res == ncclSuccess && !s->sends)
		res = check_one(a, s, slot);
	if (res == ncclSuccess)
		res = test_part(a, s, &slot->req[1]);
	if (res != ncclSuccess)
		failed(a, s, res);
	if (res != ncclSuccess || slot->req[0] || slot->req[1] ||
	    (s->sends && s->done >= s->word[FREE]))
		return false;
	s->done++;
	return true;
}

/* Each signal is added once: the words are never more than what was posted. */
static void check_words(struct actor *a, struct stream *s)
{
	uint64_t came = s->word[CAME], freed = s->word[FREE];

	if (came > (s->sends ? 0 : s->flow->sent) || freed > (s->sends ? s->flow->received : 0)) {
		a->end->wrong++;
		broken(a, "flow %u: %llu signals and %llu credits came; %llu and %llu were posted", s->f,
		       (unsigned long long)came, (unsigned long long)freed,
		       (unsigned long long)s->flow->sent, (unsigned long long)s->flow->received);
	}
}

/* As NCCL's thread: rmaProgress and queryLastError all the time, whether or not requests are open. */
static void progress(struct actor *a, struct stream *s)
{
	struct group *g = group_of(a, s);
	ncclResult_t res = TIMED(a->end, CALL_TEST, rma_progress(a->rma, g->ctx));
	bool lost = false;

	if (res == ncclSuccess)
		res = rma_last_error(a->rma, g->ctx, &lost);
	if (res == ncclSuccess && lost)
		res = ncclRemoteError;
	if (res != ncclSuccess)
		failed(a, s, res);
}

static bool step(struct actor *a, struct stream *s)
{
	bool moved = false;

	if (!s->error)
		progress(a, s);
	check_words(a, s);
	while (may_post(a, s) && (s->sends ? post_put(a, s) : take_one(a, s)))
		moved = true;
	while (finish_one(a, s))
		moved = true;
	told(a, s);
	return moved;
}

/* The error of a signal may come with its request. */
static ncclResult_t again(struct actor *a, struct stream *s)
{
	void *req;
	ncclResult_t res;

	/* While the other end closes one window after the other, operations on the rest are right. */
	if (a->st->abort[!a->who])
		return s->error;
	res = put_signal(a, s, 0, 0, s->sends ? CAME : FREE, NCCL_RMA_SIGNAL_ADD, &req);

	return res == ncclSuccess ? test_part(a, s, &req) : res;
}

/* -- set-up and close --------------------------------------------------------------------- */

static ncclResult_t listen_one(struct actor *a, struct stream *s)
{
	if (s->sends)
		return ncclSuccess;
	return TIMED(a->end, CALL_LISTEN, rma_listen(a->rma, a->rma_ctx, a->dev, s->flow->handle,
						&s->listen));
}

static ncclResult_t group_new(struct actor *a, struct group *g, uint8_t *mine, uint8_t *theirs,
			      void *listen)
{
	void *handles[ENDS] = { a->who ? theirs : mine, a->who ? mine : theirs };
	ncclResult_t res = TIMED(a->end, CALL_CONNECT, rma_connect(a->rma, a->rma_ctx, handles, ENDS,
							      (int)a->who, listen, &g->coll));

	if (res == ncclSuccess)
		res = TIMED(a->end, CALL_CONNECT, rma_context(a->rma, g->coll, 2,
							 NCCL_NET_TRAFFIC_CLASS_UNDEF, 1, &g->ctx));
	return res;
}

static ncclResult_t group_close(struct actor *a, struct group *g)
{
	ncclResult_t res = ncclSuccess, res2 = ncclSuccess;

	if (g->ctx)
		res = TIMED(a->end, CALL_CLOSE, rma_context_end(a->rma, g->ctx));
	if (g->coll)
		res2 = TIMED(a->end, CALL_CLOSE, rma_close_coll(a->rma, g->coll));
	*g = (struct group){ 0 };
	return res == ncclSuccess ? res2 : res;
}

/* The old handle is used by the first operation, so its error comes with a request. */
static bool try_old(struct actor *a, uint8_t *handle, ncclResult_t *ret)
{
	_Alignas(16) uint8_t mine[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	uint64_t word = 0, from = now_ns();
	struct group g = { 0 };
	void *listen = NULL, *mh = NULL, *req = NULL;
	int done = 0;

	*ret = rma_listen(a->rma, a->rma_ctx, a->dev, mine, &listen);
	if (*ret == ncclSuccess)
		*ret = group_new(a, &g, mine, handle, listen);
	if (*ret == ncclSuccess)
		*ret = rma_reg(a->rma, g.coll, &word, sizeof(word), NCCL_PTR_HOST, NCCL_RMA_FORCE_SO, &mh);
	if (*ret == ncclSuccess)
		*ret = rma_iput_signal(a->rma, g.ctx, 0, 0, NULL, 0, 0, NULL, !a->who, 0, mh, 1,
				       NCCL_RMA_SIGNAL_ADD, true, 0, &req);
	while (*ret == ncclSuccess && req && !done && now_ns() - from < 10000000000)
		*ret = rma_test(a->rma, g.coll, req, &done);
	if (mh)
		rma_dereg(a->rma, g.coll, mh);
	group_close(a, &g);
	if (listen)
		rma_close_listen(a->rma, listen);
	return true;
}

static ncclResult_t reg(struct actor *a, struct stream *s)
{
	void *coll = group_of(a, s)->coll;
	ncclResult_t res = TIMED(a->end, CALL_REG, rma_reg(a->rma, coll, s->mem,
		a->slot_size * a->st->slots, NCCL_PTR_HOST, 0, &s->mr));

	if (res == ncclSuccess)
		res = TIMED(a->end, CALL_REG, rma_reg(a->rma, coll, &s->word, sizeof(s->word), NCCL_PTR_HOST,
						 NCCL_RMA_FORCE_SO, &s->words));
	return res;
}

/* Opens the communicator of a pair of flows, once the other end's handle is known. */
static void open_pair(struct actor *a, struct stream *s)
{
	struct stream *both = &a->stream[s->f & ~1U], *out = &both[!both[0].sends], *in = &both[both[0].sends];
	ncclResult_t res;

	if (!out->has_handle)
		return;
	for (unsigned i = 0; i < a->st->slots; i++)
		slot_spoil(a, in, i);
	res = group_new(a, group_of(a, s), in->flow->handle, out->handle, in->listen);
	for (int i = 0; i < 2 && res == ncclSuccess; i++)
		res = reg(a, &both[i]);		/* in the same order at both ends */
	for (int i = 0; i < 2; i++) {
		if (res != ncclSuccess)
			failed(a, &both[i], res);
		else
			both[i].comm = group_of(a, s)->coll;
	}
	in->flow->last_ns = now_ns();
}

static ncclResult_t close_listen(struct actor *a, struct stream *s)
{
	return TIMED(a->end, CALL_CLOSE, rma_close_listen(a->rma, s->listen));
}

static ncclResult_t dereg(struct actor *a, struct stream *s)
{
	ncclResult_t res = TIMED(a->end, CALL_DEREG, rma_dereg(a->rma, s->comm, s->mr));

	if (res == ncclSuccess)
		res = TIMED(a->end, CALL_DEREG, rma_dereg(a->rma, s->comm, s->words));
	check_words(a, s);
	return res;
}

/* The flow that is closed last closes the communicator. */
static ncclResult_t close_one(struct actor *a, struct stream *s)
{
	return a->stream[s->f ^ 1U].mr ? ncclSuccess : group_close(a, group_of(a, s));
}

/* -- the plugin --------------------------------------------------------------------------- */

static void take(struct actor *a)
{
	char err[200];
	int ndev = 0;

	setenv("BRAID_RMA", "on", 1);
	a->rma = rma_load(a->st->plugin, a->st->abi[a->who], err, sizeof(err));
	if (!a->rma) {
		broken(a, "%s", err);
		give_up(a);
	}
	if (rma_init(a->rma, &a->rma_ctx, a->st->seed, a->st->no_logger ? NULL : witness_keeps) !=
	    ncclSuccess || rma_devices(a->rma, &ndev) != ncclSuccess || ndev <= a->st->dev[a->who]) {
		broken(a, "init found no device");
		give_up(a);
	}
	a->dev = a->st->dev[a->who];
}

static ncclResult_t end(struct actor *a)
{
	ncclResult_t res = rma_finalize(a->rma, a->rma_ctx);

	rma_unload(a->rma);
	return res;
}

const struct way way_puts = {
	.take = take, .end = end, .listen = listen_one, .try_old = try_old, .open = open_pair,
	.step = step, .again = again, .close_listen = close_listen, .dereg = dereg,
	.close = close_one,
};
