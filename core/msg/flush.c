/* SPDX-License-Identifier: BSD-3-Clause */
/* flush.c - iflush: wait until the GPU sees what NICs have written; see flush.h. */
#include "core/msg/flush.h"

#include <errno.h>
#include <string.h>

#include "core/dev.h"
#include "core/link/link.h"
#include "core/base/log.h"
#include "core/mem/mrcache.h"
#include "core/base/pool.h"

struct braid_flush {
	struct braid_req req;
	struct braid_list node;		/* comm->flushes */
	int err;
	unsigned n;			/* buffers in GPU memory */
	struct {
		const struct braid_mr *mr;
		char *at;
		struct braid_mr_flush state;
	} buf[BRAID_RECVS_MAX];
};

/* Here and below with flush_lock held, since another thread may deregister the memory. */
static void flush_free(struct braid_flush *f)
{
	braid_list_del(&f->node);
	braid_pool_put(f, sizeof(*f));
}

/* The cause is always on this host, hence -EIO for any err. */
static int failed(const struct braid_flush *f, int err)
{
	braid_warn("device %s: iflush: the NIC could not read memory of the GPU: %s [flush-failed]",
		   f->req.comm->link->key.dev->net.name, strerror(-err));
	return -EIO;
}

/* 0: the GPU sees all buffers; -EAGAIN: not yet; else the flush failed. */
static int flush_step(struct braid_flush *f)
{
	int ret = 0;

	for (unsigned i = 0; i < f->n && !f->err; i++) {
		int err = braid_mr_flush(f->buf[i].mr, f->buf[i].at, &f->buf[i].state);

		if (err == -EAGAIN)
			ret = err;
		else if (err)
			f->err = failed(f, err);
	}
	return f->err ? f->err : ret;
}

int braid_flush_start(struct braid_comm *c, unsigned n, void *const *data, const int *sizes,
		      struct braid_mr *const *mrs, struct braid_req **ret)
{
	struct braid_flush *f = braid_pool_get(sizeof(*f));

	*ret = NULL;
	if (!f)
		return braid_no_memory("a flush");
	memset(f, 0, sizeof(*f));
	f->req.comm = c;
	f->req.flush = true;
	braid_lock_wait(&c->flush_lock);
	braid_list_add_tail(&c->flushes, &f->node);
	for (unsigned i = 0; i < n; i++) {
		if (!mrs[i] || !mrs[i]->gpu || sizes[i] <= 0)
			continue;
		f->buf[f->n].mr = mrs[i];
		f->buf[f->n++].at = data[i];
	}
	if (flush_step(f))
		*ret = &f->req;
	else
		flush_free(f);
	braid_unlock(&c->flush_lock);
	return 0;
}

int braid_flush_test(struct braid_req *req, bool *ret_done)
{
	struct braid_flush *f = braid_container(req, struct braid_flush, req);
	struct braid_comm *c = req->comm;
	int err;

	braid_lock_wait(&c->flush_lock);
	err = f->err ? f->err : flush_step(f);
	*ret_done = !err;
	if (!err)
		flush_free(f);
	braid_unlock(&c->flush_lock);
	return err == -EAGAIN ? 0 : err;
}

void braid_flush_cancel(struct braid_comm *c, const struct braid_mr *mr)
{
	struct braid_flush *f;

	braid_lock_wait(&c->flush_lock);
	braid_list_for(f, &c->flushes, node) {
		for (unsigned i = 0; i < f->n && !f->err; i++) {
			if (f->buf[i].mr == mr)
				f->err = -ECANCELED;
		}
	}
	braid_unlock(&c->flush_lock);
}

void braid_flush_forget(struct braid_comm *c)
{
	struct braid_flush *f, *tmp;

	braid_lock_wait(&c->flush_lock);
	braid_list_for_safe(f, tmp, &c->flushes, node)
		flush_free(f);
	braid_unlock(&c->flush_lock);
}
