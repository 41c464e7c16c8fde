/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * setup_puts.c - an end of the matrix (setup.h) that puts, signals and gets through the RMA table.
 *
 * Both ends are ranks of one communicator, but only the dialler's first operation, a signal, makes
 * a connection.  Then it puts memory with a signal, gets it back and flushes.  The accepter's signal
 * is its answer: over the link that is there, so that no dial of its own goes past the relay.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/faults/setup_self.h"
#include "tools/proxy.h"
#include "tools/rma.h"

enum { OPENED_WORD = 1, PUT_WORD = 2, ANSWERED_WORD = 1 };	/* what the word is then */

static void *load(struct self *s, char *err, size_t len)
{
	s->rma = rma_load(s->show->plugin, 0, err, len);
	return s->rma ? s->rma->dl : NULL;
}

static bool init(struct self *s)
{
	int ndev = 0;

	return rma_init(s->rma, &s->rma_ctx, 1, witness_keeps) == ncclSuccess &&
	       rma_devices(s->rma, &ndev) == ncclSuccess && ndev;
}

static ncclResult_t finalize(struct self *s)
{
	return rma_finalize(s->rma, s->rma_ctx);
}

/* -- a pair in this process ------------------------------------------------------------------ */

struct rank {				/* of the pair */
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
	void *listen, *coll, *ctx, *mem_mh, *word_mh;
	uint8_t *mem;
	_Atomic uint64_t word;
};

static ncclResult_t rank_opens(struct self *s, struct rank *r, struct rank *both, int rank, size_t size)
{
	void *handles[ROLES] = { both[0].handle, both[1].handle };
	ncclResult_t res = rma_connect(s->rma, s->rma_ctx, handles, ROLES, rank, r->listen, &r->coll);

	if (!res)
		res = rma_context(s->rma, r->coll, 1, NCCL_NET_TRAFFIC_CLASS_UNDEF, 1, &r->ctx);
	if (!res)
		res = rma_reg(s->rma, r->coll, r->mem, size, NCCL_PTR_HOST, 0, &r->mem_mh);
	if (!res)
		res = rma_reg(s->rma, r->coll, &r->word, sizeof(r->word), NCCL_PTR_HOST,
			      NCCL_RMA_FORCE_SO, &r->word_mh);
	return res;
}

static void rank_closes(struct self *s, struct rank *r)
{
	if (r->mem_mh)
		rma_dereg(s->rma, r->coll, r->mem_mh);
	if (r->word_mh)
		rma_dereg(s->rma, r->coll, r->word_mh);
	if (r->ctx)
		rma_context_end(s->rma, r->ctx);
	if (r->coll)
		rma_close_coll(s->rma, r->coll);
	if (r->listen)
		rma_close_listen(s->rma, r->listen);
	free(r->mem);
}

/* Waits for an operation of r[0], and for r[1]'s word. */
static ncclResult_t pair_moves(struct self *s, struct rank *r, void *req, uint64_t word, uint64_t until)
{
	ncclResult_t res = ncclSuccess;
	int done = !req;

	while (!res && !(done && r[1].word == word) && now_ns() < until) {
		if (!done)
			res = rma_test(s->rma, r[0].coll, req, &done);
		for (unsigned i = 0; i < ROLES && !res; i++)
			res = rma_progress(s->rma, r[i].ctx);
		turn(s);
	}
	return res ? res : done && r[1].word == word ? ncclSuccess : ncclInternalError;
}

/* There and back: a put with a signal, and a get of the same bytes. */
static ncclResult_t pair_talks(struct self *s, struct rank *r, size_t size, uint64_t until)
{
	void *req = NULL;
	ncclResult_t res;

	message_fill(r[0].mem, size, 7);
	res = rma_iput_signal(s->rma, r[0].ctx, 0, 0, r[0].mem_mh, size, 0, r[0].mem_mh, 1, 0,
			      r[0].word_mh, 1, NCCL_RMA_SIGNAL_ADD, true, 0, &req);
	if (!res)
		res = pair_moves(s, r, req, 1, until);
	if (!res && message_differs(r[1].mem, size, 7) != size)
		is_broken(s, "a new pair put other bytes");
	memset(r[0].mem, 0, size);
	if (!res)
		res = rma_iget(s->rma, r[0].ctx, 0, 0, r[0].mem_mh, size, 0, r[0].mem_mh, 1, 0, &req);
	if (!res)
		res = pair_moves(s, r, req, 1, until);
	if (!res && message_differs(r[0].mem, size, 7) != size)
		is_broken(s, "a new pair got other bytes");
	return res;
}

static ncclResult_t pair(struct self *s, size_t size, unsigned inside)
{
	uint64_t until = now_ns() + FRESH_S * 1000000000ULL;
	struct rank r[ROLES] = { 0 };
	ncclResult_t res = ncclSuccess;

	for (unsigned i = 0; i < ROLES && !res; i++) {
		r[i].mem = calloc(1, size);
		res = rma_listen(s->rma, s->rma_ctx, 0, r[i].handle, &r[i].listen);
	}
	for (unsigned i = 0; i < ROLES && !res; i++)
		res = rank_opens(s, &r[i], r, (int)i, size);
	if (!res)
		res = pair_talks(s, r, size, until);
	if (!res && inside)
		res = pair(s, size, inside - 1);
	for (unsigned i = 0; i < ROLES; i++)
		rank_closes(s, &r[i]);
	return res;
}

/* -- the life that the fault comes into ------------------------------------------------------ */

static ncclResult_t listens(struct self *s)
{
	_Alignas(16) uint8_t handle[NCCL_NET_HANDLE_MAXSIZE] = { 0 };
	ncclResult_t res;

	waits_for(s, CALL_LISTEN);
	res = CALLED(s, CALL_LISTEN, rma_listen(s->rma, s->rma_ctx, 0, handle, &s->listen));
	if (res)
		return res;
	if (s->who == ACCEPTS) {
		memcpy(s->show->handle, handle, sizeof(handle));
		s->show->listens = true;
	} else {
		memcpy(s->show->back, handle, sizeof(handle));
		s->show->listens_back = true;
	}
	return ncclSuccess;
}

static ncclResult_t joins(struct self *s)
{
	_Alignas(16) uint8_t handle[ROLES][NCCL_NET_HANDLE_MAXSIZE];
	void *handles[ROLES] = { handle[DIALS], handle[ACCEPTS] };
	ncclResult_t res;

	memcpy(handle[DIALS], s->show->back, sizeof(handle[DIALS]));
	memcpy(handle[ACCEPTS], s->show->handle, sizeof(handle[ACCEPTS]));
	waits_for(s, CALL_CONNECT);
	res = CALLED(s, CALL_CONNECT, rma_connect(s->rma, s->rma_ctx, handles, ROLES, (int)s->who,
						  s->listen, &s->coll));
	if (!res)
		res = CALLED(s, CALL_CONNECT, rma_context(s->rma, s->coll, 1,
							  NCCL_NET_TRAFFIC_CLASS_UNDEF, 1, &s->ctx));
	waits_for(s, CALL_REG);
	if (!res)
		res = CALLED(s, CALL_REG, rma_reg(s->rma, s->coll, s->mem, SIZE, NCCL_PTR_HOST, 0,
						  &s->mem_mh));
	if (!res)
		res = CALLED(s, CALL_REG, rma_reg(s->rma, s->coll, &s->word, sizeof(s->word),
						  NCCL_PTR_HOST, NCCL_RMA_FORCE_SO, &s->words_mh));
	return res;
}

/* As NCCL's thread: rmaProgress and queryLastError in each turn.  True: there is no error. */
static bool goes_on(struct self *s)
{
	bool lost = false;
	ncclResult_t res = CALLED(s, CALL_TEST, rma_progress(s->rma, s->ctx));

	if (!res)
		res = rma_last_error(s->rma, s->ctx, &lost);
	if (!res && lost)
		res = ncclRemoteError;
	turn(s);
	return !has_error(s, res);
}

/* Waits for an operation, that it has posted with that result. */
static bool ends(struct self *s, enum call entry, ncclResult_t posted, void *req)
{
	int done = !req;

	waits_for(s, entry);
	if (has_error(s, posted))
		return false;
	while (!done && ordered(s) < TO_CLOSE) {
		if (has_error(s, CALLED(s, CALL_TEST, rma_test(s->rma, s->coll, req, &done))))
			return false;
		if (!done && !goes_on(s))
			return false;
	}
	return done;
}

/* Nothing tells a rank that waits for a signal whether the other will post one. */
static bool word_comes(struct self *s, uint64_t word)
{
	bool well = true;

	waits_for(s, CALL_IRECV);
	s->role->for_word = true;
	while (s->word < word && ordered(s) < TO_CLOSE && well)
		well = goes_on(s);
	s->role->for_word = false;
	return well && s->word >= word;
}

/* Adds one to the other end's word, after `size` bytes. */
static bool signals(struct self *s, enum call entry, size_t size)
{
	void *req = NULL, *mh = size ? s->mem_mh : NULL;
	ncclResult_t res = CALLED(s, CALL_ISEND, rma_iput_signal(s->rma, s->ctx, 0, 0, mh, size, 0, mh,
		!s->who, 0, s->words_mh, 1, NCCL_RMA_SIGNAL_ADD, true, 0, &req));

	return ends(s, entry, res, req);
}

static bool opens(struct self *s)
{
	if (has_error(s, listens(s)))
		return false;
	while (!(s->show->relayed && s->show->listens_back) && ordered(s) < TO_CLOSE)
		turn(s);
	comes_to(s, IS_CONNECTING);
	if (ordered(s) >= TO_CLOSE || has_error(s, joins(s)))
		return false;
	return s->who == DIALS ? signals(s, CALL_CONNECT, 0) : word_comes(s, OPENED_WORD);
}

static bool flushes(struct self *s)
{
	void *req = NULL;
	ncclResult_t res = CALLED(s, CALL_FLUSH, rma_iflush(s->rma, s->ctx, 0, s->mem_mh, !s->who, &req));

	return ends(s, CALL_FLUSH, res, req);
}

static bool gets_back(struct self *s)
{
	void *req = NULL;
	ncclResult_t res;

	memset(s->mem, 0, SIZE);
	res = CALLED(s, CALL_IRECV, rma_iget(s->rma, s->ctx, 0, 0, s->mem_mh, SIZE, 0, s->mem_mh, !s->who,
					     0, &req));
	return ends(s, CALL_IRECV, res, req);
}

static void talks(struct self *s)
{
	bool well = s->who == DIALS ?
		signals(s, CALL_ISEND, SIZE) && gets_back(s) && flushes(s) && word_comes(s, ANSWERED_WORD) :
		word_comes(s, PUT_WORD) && flushes(s) && signals(s, CALL_ISEND, 0);

	if (!well)
		return;
	if (message_differs(s->mem, SIZE, 1) != SIZE)
		is_broken(s, "other bytes came than were %s", s->who == DIALS ? "got" : "put");
	comes_to(s, IS_DONE);
}

static void closes(struct self *s)
{
	if (s->mem_mh)
		CALLED(s, CALL_DEREG, rma_dereg(s->rma, s->coll, s->mem_mh));
	if (s->words_mh)
		CALLED(s, CALL_DEREG, rma_dereg(s->rma, s->coll, s->words_mh));
	if (s->ctx)
		CALLED(s, CALL_CLOSE, rma_context_end(s->rma, s->ctx));
	if (s->coll)
		CALLED(s, CALL_CLOSE, rma_close_coll(s->rma, s->coll));
	if (s->listen)
		CALLED(s, CALL_CLOSE, rma_close_listen(s->rma, s->listen));
}

const struct life life_puts = { load, init, finalize, pair, opens, talks, closes };
