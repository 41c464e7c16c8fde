/* SPDX-License-Identifier: BSD-3-Clause */
/* loop.c - see loop.h. */
#include "verbs/loop.h"

#include <errno.h>
#include <string.h>

#include "core/base/os.h"
#include "verbs/qp.h"

enum {
	LOOP_MS = 500,			/* without an answer: the loop has failed */
	LOOP_AVOID_MS = 10000,
};

/* Drops the loop's queue pair, and with it every request in flight. */
void braid_loop_drop(struct braid_ibport *p, int err)
{
	struct braid_gpu_copy *c = p->copier;

	braid_qp_free(p->loop);
	p->loop = NULL;
	p->copier = NULL;
	if (c) {
		c->piece = 0;
		c->err = err;
	}
}

static void loop_run(struct braid_job *job)
{
	struct braid_ibport *p = braid_container(job, struct braid_ibport, make_loop);

	p->loop_new = NULL;
	p->loop_err = braid_qp_loop(p, p->loop_dev, &p->loop_new, NULL);
	atomic_store(&p->loop_made, true);
}

/* 0: the loop is ready; -EAGAIN: a job is making it; else making it failed or took too long. */
int braid_loop_up(struct braid_ibport *p)
{
	if (p->loop)
		return 0;
	if (!p->loop_makes) {
		p->make_loop = (struct braid_job){
			.what = "to make a queue pair to itself", .run = loop_run,
		};
		p->loop_makes = true;
		p->loop_since = braid_os->now_ns();
		atomic_store(&p->loop_made, false);
		braid_later(p->loop_dev, BRAID_MAKE, &p->make_loop);
	}
	if (!atomic_load(&p->loop_made))
		return braid_os->now_ns() - p->loop_since < LOOP_MS * UINT64_C(1000000) ?
			       -EAGAIN : -ETIMEDOUT;
	p->loop_makes = false;
	p->loop_base = p->loop_done = p->loop_posted;
	p->loop = p->loop_new;
	return p->loop_err;
}

/* Only at init: it waits. */
int braid_loop_wait_up(struct braid_ibport *p)
{
	int err;

	while ((err = braid_loop_up(p)) == -EAGAIN)
		braid_yield();
	return err;
}

static void loop_moves(struct braid_ibport *p)
{
	p->loop_until = braid_os->now_ns() + LOOP_MS * UINT64_C(1000000);
}

/* The loop has failed: callers that have another method avoid it for a while. */
void braid_loop_avoid(struct braid_ibport *p)
{
	p->loop_avoid_ns = braid_os->now_ns() + LOOP_AVOID_MS * UINT64_C(1000000);
}

bool braid_loop_is_avoided(const struct braid_ibport *p)
{
	return braid_os->now_ns() < p->loop_avoid_ns;
}

int braid_loop_post(struct braid_ibport *p, enum ibv_wr_opcode opcode, char *own, size_t len,
		    const struct braid_key *key, char *at)
{
	struct ibv_sge sge = {
		(uint64_t)(uintptr_t)own, (uint32_t)len, p->loop->m->slots->mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.wr_id = ++p->loop_posted, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uint64_t)(uintptr_t)at, .rkey = key->remote },
	};

	if (p->loop_done + 1 == p->loop_posted)
		loop_moves(p);
	return ibv_post_send(p->loop->qp, &wr, &bad) ? -EIO : 0;
}

/*
 * Finishes the piece that uses the slots, if it has completed.  Every caller of the loop does this,
 * so that a copy whose owner does not call again blocks no other.
 */
static void copier_look(struct braid_ibport *p)
{
	struct braid_gpu_copy *c = p->copier;

	if (!c || c->id > p->loop_done)
		return;
	if (!c->to_gpu)
		memcpy(c->own, p->loop->m->slots->rx, c->piece);
	c->at += c->piece;
	c->own += c->piece;
	c->len -= c->piece;
	c->piece = 0;
	c->tries = 0;
	p->copier = NULL;
}

/* Polls completions, which come in the order of posting.  On failure the loop is dropped. */
int braid_loop_poll(struct braid_ibport *p)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(p->loop->cq, 1, &wc)) > 0 && wc.status == IBV_WC_SUCCESS) {
		p->loop_done = wc.wr_id;
		loop_moves(p);
	}
	copier_look(p);
	if (!n && (p->loop_done == p->loop_posted || braid_os->now_ns() < p->loop_until))
		return 0;
	n = n ? -EIO : -ETIMEDOUT;
	braid_loop_drop(p, n);
	return n;
}

/* Only for the probe: waits until everything posted has completed. */
int braid_loop_wait(struct braid_ibport *p)
{
	int err;

	do {
		err = braid_loop_poll(p);
	} while (!err && p->loop_done != p->loop_posted);
	return err;
}
