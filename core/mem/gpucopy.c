/* SPDX-License-Identifier: BSD-3-Clause */
/* gpucopy.c - copies of GPU memory by a NIC or the driver; see gpucopy.h. */
#include "core/mem/gpucopy.h"

#include <errno.h>
#include <string.h>

#include "core/dev.h"
#include "core/base/log.h"
#include "core/mem/mrcache.h"
#include "core/base/param.h"
#include "gdr/stage.h"

enum {
	SPIN_NS = 10000,		/* a small copy ends within this */
	STAGE_S = 2,			/* seconds for one piece and the copies queued before it */
	STAGE_WAIT_S = 10,		/* seconds to wait for a slot, which many copies may want */
	COPIERS = BRAID_PATHS_MAX + 1,	/* copiers: members of the device, and the driver */
};

static void over(struct braid_gpucopy *c)
{
	atomic_fetch_sub(c->copies, 1);
	c->mr = NULL;
}

void braid_gpucopy_begin(struct braid_gpucopy *c, atomic_uint *copies, const struct braid_mr *mr,
			 char *at, void *own, size_t len, bool to_gpu)
{
	*c = (struct braid_gpucopy){
		.mr = mr, .of = mr, .copies = copies,
		.left = { .at = at, .own = own, .len = len, .to_gpu = to_gpu },
	};
	c->left.insist = !mr->stage;
	atomic_fetch_add(copies, 1);
}

/* --- the driver ---------------------------------------------------------------------------- */

static void stage_time(struct braid_gpucopy *c, unsigned s)
{
	c->until_ns = braid_os->now_ns() + s * UINT64_C(1000000000);
}

static void stage_drop(struct braid_gpucopy *c)
{
	if (c->piece)
		braid_stage_end(c->piece);
	c->piece = NULL;
}

/* -EAGAIN, or -ETIMEDOUT once the time is up. */
static int check_timeout(struct braid_gpucopy *c)
{
	if (braid_os->now_ns() < c->until_ns)
		return -EAGAIN;
	if (c->piece)
		braid_warn("GPU memory at %p: the driver has not copied %zu bytes in %d s, and may "
			   "yet; is the GPU alive (nvidia-smi, dmesg)? "
			   "[gpu-copy-late]", (void *)c->left.at,
			   c->piece_len, STAGE_S);
	stage_drop(c);
	return -ETIMEDOUT;
}

/* Advance the piece in flight, or start the next one. */
static int stage_step(struct braid_gpucopy *c)
{
	struct braid_gpu_copy *l = &c->left;
	int err;

	if (!c->piece) {
		c->piece_len = l->len < BRAID_STAGE_PIECE ? l->len : BRAID_STAGE_PIECE;
		err = braid_stage_begin(c->mr->stage, l->at, l->own, c->piece_len, l->to_gpu,
					&c->piece);
		if (err)
			return err;
		stage_time(c, STAGE_S);
	}
	err = braid_stage_test(c->piece);
	if (err == -EAGAIN)
		return err;
	if (!err && !l->to_gpu)
		memcpy(l->own, braid_stage_bytes(c->piece), c->piece_len);
	c->lost = l->to_gpu && braid_stage_is_lost(c->piece);
	stage_drop(c);
	if (err)
		return err;
	l->at += c->piece_len;
	l->own += c->piece_len;
	l->len -= c->piece_len;
	stage_time(c, STAGE_WAIT_S);
	return 0;
}

static int by_driver(struct braid_gpucopy *c)
{
	int err = 0;

	if (!c->mr->stage)
		return c->mr->stage_err;
	if (!c->until_ns)
		stage_time(c, STAGE_WAIT_S);
	while (c->left.len && !err)
		err = stage_step(c);
	return err == -EAGAIN ? check_timeout(c) : err;
}

/* --- choice of a copier -------------------------------------------------------------------- */

/*
 * The copier to try now: the index of a member of the device, or BRAID_PATHS_MAX for the driver.
 * The driver comes last, but first with BRAID_GPU_STAGE=2.
 */
static unsigned copier_of(const struct braid_gpucopy *c)
{
	return braid_param.gpu_stage < 2 ? c->copier : c->copier ? c->copier - 1 : BRAID_PATHS_MAX;
}

static int try_copiers(struct braid_gpucopy *c)
{
	int err = -EOPNOTSUPP;

	for (; c->copier < COPIERS; c->copier++) {
		bool driver = copier_of(c) == BRAID_PATHS_MAX;

		err = driver ? by_driver(c) : braid_mr_nic_copy(c->mr, copier_of(c), &c->left);
		if (!err || err == -EAGAIN)
			return err;
		if (driver)
			c->stage_err = err;
		else if (err != -ENODEV)
			c->nic_err = err;
		if (driver && (err == -ETIMEDOUT || c->lost))
			return err;	/* the driver may yet overwrite another copier's data */
	}
	return err;
}

/* A NIC that failed recently may work again: try it before giving up. */
static int step(struct braid_gpucopy *c)
{
	int err = try_copiers(c);

	if (!err || err == -EAGAIN || c->copier < COPIERS || c->nic_err != -EHOSTDOWN ||
	    c->left.insist)
		return err;
	c->left.insist = true;
	c->copier = 0;
	return try_copiers(c);
}

int braid_gpucopy_move(struct braid_gpucopy *c)
{
	uint64_t until = 0;
	int err;

	while ((err = step(c)) == -EAGAIN) {
		uint64_t now = braid_os->now_ns();

		if (!until)
			until = now + SPIN_NS;
		if (now >= until)
			return err;
	}
	over(c);
	return err;
}

void braid_gpucopy_end(struct braid_gpucopy *c)
{
	if (!c->mr)
		return;
	if (c->copier < COPIERS && copier_of(c) < BRAID_PATHS_MAX)
		braid_mr_nic_copy_end(c->mr, copier_of(c), &c->left);
	while (c->piece && braid_stage_test(c->piece) == -EAGAIN && check_timeout(c) == -EAGAIN)
		braid_yield();
	stage_drop(c);
	over(c);
}
