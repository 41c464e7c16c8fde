/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_copy.c - copies between a GPU and our own memory, and flushes, through the loop.
 *
 * A flush is an RDMA READ, which makes the NIC's writes before it visible to the GPU.
 */
#include <errno.h>
#include <string.h>

#include "core/base/os.h"
#include "gdr/bar.h"
#include "gdr/cuda.h"
#include "verbs/gpu.h"
#include "verbs/loop.h"
#include "verbs/qp.h"

enum {
	LOOP_TRIES = 2,
	LOOP_END_MS = 10,
	LOOP_COPY = 2,			/* work requests of a copy: flushes leave room for them */
};

/* --- copies -------------------------------------------------------------------------------- */

/*
 * Posts one piece, from or to the slots.  A write into a GPU is followed by a read, which makes the
 * write visible there.
 */
static int piece_post(struct braid_ibport *p, const struct braid_key *key, struct braid_gpu_copy *c)
{
	char *rx = p->loop->m->slots->rx;
	int err;

	if (!c->to_gpu) {
		err = braid_loop_post(p, IBV_WR_RDMA_READ, rx, c->piece, key, c->at);
	} else {
		memcpy(rx, c->own, c->piece);
		err = braid_loop_post(p, IBV_WR_RDMA_WRITE, rx, c->piece, key, c->at);
		if (!err)
			err = braid_loop_post(p, IBV_WR_RDMA_READ, rx, 1, key,
					      c->at + c->piece - 1);
	}
	c->id = p->loop_posted;
	return err;
}

static int copy_post(struct braid_ibport *p, const struct braid_key *key, struct braid_gpu_copy *c)
{
	int err = braid_loop_up(p);

	if (err)
		return err;
	c->tries++;
	c->piece = c->len < BRAID_LOOP_BYTES ? c->len : BRAID_LOOP_BYTES;
	p->copier = c;
	err = piece_post(p, key, c);
	if (err)
		braid_loop_drop(p, err);	/* sets c->err */
	return -EAGAIN;
}

/*
 * The fault that ended the lanes' queue pairs may have ended the loop's too.  So a piece is tried a
 * second time, unless the loop timed out.
 */
static int copy_step(struct braid_ibport *p, const struct braid_key *key, struct braid_gpu_copy *c)
{
	int err;

	if (p->loop)
		braid_loop_poll(p);		/* sets c->err if its piece has failed */
	if (!c->len)
		return 0;
	if (c->piece || p->copier)
		return -EAGAIN;
	if (!c->insist && braid_loop_is_avoided(p))
		return -EHOSTDOWN;
	err = c->tries == LOOP_TRIES || c->err == -ETIMEDOUT ? c->err : copy_post(p, key, c);
	if (err != -EAGAIN)
		braid_loop_avoid(p);
	return err;
}

/* Never waits for the lock: a probe or a set-up may hold it for longer than a call may take. */
int braid_verbs_gpu_copy(struct braid_dev *dev, const struct braid_key *key,
			 struct braid_gpu_copy *c)
{
	struct braid_ibport *p = braid_ibport_of(dev);
	int err;

	if (pthread_mutex_trylock(&p->loop_lock))
		return -EAGAIN;
	err = copy_step(p, key, c);
	pthread_mutex_unlock(&p->loop_lock);
	return err;
}

/* Gives the piece a moment to complete: dropping the queue pair aborts other callers' flushes. */
void braid_verbs_gpu_copy_end(struct braid_dev *dev, struct braid_gpu_copy *c)
{
	struct braid_ibport *p = braid_ibport_of(dev);
	uint64_t until = braid_os->now_ns() + LOOP_END_MS * UINT64_C(1000000);

	pthread_mutex_lock(&p->loop_lock);
	while (c->piece && braid_os->now_ns() < until)
		braid_loop_poll(p);
	if (c->piece)
		braid_loop_drop(p, -ECANCELED);
	pthread_mutex_unlock(&p->loop_lock);
}

/* Only for the probe: copies, and waits. */
int braid_verbs_gpu_copy_now(struct braid_ibport *p, const struct braid_key *key, char *at,
			     char *own, size_t len, bool to_gpu)
{
	struct braid_gpu_copy c = {
		.at = at, .own = own, .len = len, .to_gpu = to_gpu, .insist = true,
	};
	int err;

	do {
		err = copy_step(p, key, &c);
	} while (err == -EAGAIN);
	return err;
}

/* --- flush --------------------------------------------------------------------------------- */

static int flush_post(struct braid_ibport *p, const struct braid_key *key, char *at,
		      struct braid_gpu_flush *f)
{
	int err = braid_loop_up(p);

	if (err)
		return err;
	if (p->loop_posted - p->loop_done + LOOP_COPY >= p->loop->sq_max)
		return -EAGAIN;
	f->tries++;
	f->err = -EIO;
	err = braid_loop_post(p, IBV_WR_RDMA_READ, p->loop->m->slots->rx + BRAID_LOOP_FLUSHED, 1,
			      key, at);
	f->id = p->loop_posted;
	if (err)
		braid_loop_drop(p, err);
	return -EAGAIN;
}

/*
 * Flushes by an RDMA READ.  The READ is lost if another caller has dropped the queue pair.  Whether
 * it had completed is then unknown, so the READ is repeated, which does no harm.
 */
static int flush_step(struct braid_ibport *p, const struct braid_key *key, char *at,
		      struct braid_gpu_flush *f)
{
	int err = p->loop ? braid_loop_poll(p) : 0;

	if (f->id > p->loop_base) {
		if (f->id <= p->loop_done)
			return 0;
		if (p->loop)
			return -EAGAIN;
		if (err)
			f->err = err;
	}
	if (!f->insist && !f->tries && braid_loop_is_avoided(p))
		return -EHOSTDOWN;
	err = f->tries == LOOP_TRIES ? f->err : flush_post(p, key, at, f);
	if (err != -EAGAIN)
		braid_loop_avoid(p);
	return err;
}

/* Flushes without the NIC, if the probe chose that.  False: the NIC has to flush this GPU. */
static bool flush_by_cpu(const struct braid_ibport *p, int gpu)
{
	return p->flush_by == BRAID_FLUSH_GDRCOPY ? gpu == p->gpu_tried && braid_bar_read(gpu) :
	       p->flush_by == BRAID_FLUSH_DRIVER && !braid_gpu_flush(gpu);
}

/* Never waits for the lock: another caller may hold it for longer than a call may take. */
int braid_verbs_gpu_flush(struct braid_dev *dev, const struct braid_key *key, char *at,
			  struct braid_gpu_flush *f)
{
	struct braid_ibport *p = braid_ibport_of(dev);
	int err;

	if (flush_by_cpu(p, key->gpu))
		return 0;
	if (pthread_mutex_trylock(&p->loop_lock))
		return -EAGAIN;
	err = flush_step(p, key, at, f);
	pthread_mutex_unlock(&p->loop_lock);
	return err;
}
