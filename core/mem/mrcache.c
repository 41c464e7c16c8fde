/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mrcache.c - shared registrations; see mrcache.h.  Each device has an interval tree, ordered by
 * first address.  Each node has the largest end of its subtree.  Random priorities balance the tree
 * (a treap).
 */
#include "core/mem/mrcache.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/dev.h"
#include "core/base/log.h"
#include "core/base/os.h"
#include "core/base/param.h"
#include "gdr/stage.h"

struct braid_mrc {
	struct braid_mrc *kid[2];
	uint64_t beg, end, reach;	/* reach: the largest end of the subtree */
	uint32_t prio;
	unsigned refs;
	uint64_t id;			/* of a GPU allocation; 0: host memory, or not shared */
	bool gpu, send_only, readable;
	struct braid_dev *dev;
	const struct braid_transport *tr;
	struct braid_key key;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void update(struct braid_mrc *n)
{
	n->reach = n->end;
	for (int i = 0; i < 2; i++) {
		if (n->kid[i] && n->kid[i]->reach > n->reach)
			n->reach = n->kid[i]->reach;
	}
}

static struct braid_mrc *rotate(struct braid_mrc *n, int up)
{
	struct braid_mrc *k = n->kid[up];

	n->kid[up] = k->kid[!up];
	k->kid[!up] = n;
	update(n);
	update(k);
	return k;
}

/* Nodes that begin at the same address are ordered by the address of the node itself. */
static bool is_before(const struct braid_mrc *a, const struct braid_mrc *b)
{
	return a->beg != b->beg ? a->beg < b->beg : a < b;
}

static struct braid_mrc *insert(struct braid_mrc *root, struct braid_mrc *n)
{
	int side;

	if (!root)
		return n;
	side = !is_before(n, root);
	root->kid[side] = insert(root->kid[side], n);
	update(root);
	return root->kid[side]->prio > root->prio ? rotate(root, side) : root;
}

static struct braid_mrc *merge(struct braid_mrc *a, struct braid_mrc *b)
{
	if (!a || !b)
		return a ? a : b;
	if (a->prio > b->prio) {
		a->kid[1] = merge(a->kid[1], b);
		update(a);
		return a;
	}
	b->kid[0] = merge(a, b->kid[0]);
	update(b);
	return b;
}

static struct braid_mrc *tree_remove(struct braid_mrc *root, const struct braid_mrc *n)
{
	int side;

	if (root == n)
		return merge(root->kid[0], root->kid[1]);
	side = !is_before(n, root);
	root->kid[side] = tree_remove(root->kid[side], n);
	update(root);
	return root;
}

/*
 * A registration of the same memory that covers [beg, end), or NULL.  A receive's must be one that
 * the peer's NIC may write; a window's, one that it may read as well.
 */
static struct braid_mrc *find(struct braid_mrc *root, uint64_t beg, uint64_t end,
			      const struct braid_mem *mem, uint64_t id)
{
	struct braid_mrc *n;

	if (!root || root->reach < end)
		return NULL;
	n = find(root->kid[0], beg, end, mem, id);
	if (n || root->beg > beg)
		return n;
	return root->end >= end && root->gpu == mem->gpu && root->id == id &&
	       (!root->send_only || mem->send_only) && (root->readable || !mem->readable) ?
		       root : find(root->kid[1], beg, end, mem, id);
}

/* Log which limit refused a registration, and what raises that limit. */
static int refuse(const struct braid_dev *dev, const struct braid_mem *mem, const char *limit)
{
	static struct braid_log_gate gate;
	const struct braid_mr_stats *s = &dev->mr_stats;

	if (mem->gpu || braid_log_gate_open(&gate, braid_os->now_ns()))
		braid_warn("device %s: %zu bytes%s are not registered: %u registrations of %llu "
			   "bytes are there, and %s; %s [not-registered]", dev->net.name, mem->size,
			   mem->gpu ? " of a GPU" : "", s->alive, (unsigned long long)s->bytes,
			   limit, mem->gpu ? "no message can be there" :
					     "messages there are copied");
	return -ENOSPC;
}

/* 0, or -ENOSPC and a WARN. */
static int room(const struct braid_dev *dev, const struct braid_mem *mem)
{
	uint64_t most = braid_param.mr_max ? (uint64_t)braid_param.mr_max : dev->mr_max;
	uint64_t bytes = (uint64_t)braid_param.mr_bytes;
	const struct braid_mr_stats *s = &dev->mr_stats;
	char limit[128];

	if (most && s->alive >= most) {
		snprintf(limit, sizeof(limit), "the limit is %llu of them, %s",
			 (unsigned long long)most, braid_param.mr_max ? "BRAID_MR_MAX" :
			 "most of what the device has: BRAID_MR_MAX raises it");
		return refuse(dev, mem, limit);
	}
	if (bytes && (mem->size > bytes || s->bytes > bytes - mem->size)) {
		snprintf(limit, sizeof(limit), "the limit is %llu bytes, BRAID_MR_BYTES",
			 (unsigned long long)bytes);
		return refuse(dev, mem, limit);
	}
	return 0;
}

/* Count a registration before asking the NIC for it.  With the lock held, as release(). */
static int reserve(struct braid_dev *dev, const struct braid_mem *mem)
{
	struct braid_mr_stats *s = &dev->mr_stats;
	int err = room(dev, mem);

	s->misses++;
	if (err) {
		s->refused++;
		return err;
	}
	s->bytes += mem->size;
	s->alive++;
	return 0;
}

static void release(struct braid_dev *dev, uint64_t size)
{
	dev->mr_stats.alive--;
	dev->mr_stats.bytes -= size;
}

/* The NIC's driver may be slow, so call it without the lock: other NICs need not wait for it. */
static int reg(struct braid_mrc *n, const struct braid_mem *mem)
{
	struct braid_mr_stats *s = &n->dev->mr_stats;
	int err = mem->gpu ? n->tr->gpu->reg(n->dev, mem, &n->key) :
			     n->tr->reg(n->dev, mem, &n->key);

	pthread_mutex_lock(&lock);
	if (err) {
		s->refused++;
		release(n->dev, mem->size);
	} else {
		n->dev->mrs = insert(n->dev->mrs, n);
		if (s->alive > s->most_alive)
			s->most_alive = s->alive;
		if (s->bytes > s->most_bytes)
			s->most_bytes = s->bytes;
	}
	pthread_mutex_unlock(&lock);
	return err;
}

/* A reference to an existing registration; or NULL, and *ret_err: 0 or why there is no room. */
static struct braid_mrc *hit(struct braid_dev *dev, const struct braid_mem *mem, uint32_t *ret_prio,
			     int *ret_err)
{
	static uint32_t random = 2463534242u;
	uint64_t beg = (uint64_t)(uintptr_t)mem->data;
	uint64_t id = mem->gpu ? mem->gpu_id : 0;
	struct braid_mrc *n;

	pthread_mutex_lock(&lock);
	n = mem->gpu && !id ? NULL : find(dev->mrs, beg, beg + mem->size, mem, id);
	if (n) {
		dev->mr_stats.hits++;
		n->refs++;
	} else {
		*ret_err = reserve(dev, mem);
	}
	random ^= random << 13;
	random ^= random >> 17;
	random ^= random << 5;
	*ret_prio = random;
	pthread_mutex_unlock(&lock);
	return n;
}

static struct braid_mrc *get(struct braid_dev *dev, const struct braid_transport *tr,
			     const struct braid_mem *mem, int *ret_err)
{
	struct braid_mrc *made = calloc(1, sizeof(*made)), *n;
	uint32_t prio;

	*ret_err = 0;
	if (!made) {
		*ret_err = braid_no_memory("a registration");
		return NULL;
	}
	n = hit(dev, mem, &prio, ret_err);
	if (n || *ret_err) {
		free(made);
		return n;
	}
	*made = (struct braid_mrc){
		.beg = (uint64_t)(uintptr_t)mem->data, .prio = prio, .refs = 1,
		.id = mem->gpu ? mem->gpu_id : 0, .gpu = mem->gpu, .send_only = mem->send_only,
		.readable = mem->readable || mem->gpu,	/* NICs read a GPU's to flush, anyway */
		.dev = dev, .tr = tr,
	};
	made->end = made->reach = made->beg + mem->size;
	*ret_err = reg(made, mem);
	if (*ret_err) {
		free(made);
		return NULL;
	}
	return made;
}

static void put_ref(struct braid_mrc *n)
{
	bool last;

	if (!n)
		return;
	pthread_mutex_lock(&lock);
	last = !--n->refs;
	if (last)
		n->dev->mrs = tree_remove(n->dev->mrs, n);
	pthread_mutex_unlock(&lock);
	if (!last)
		return;
	n->tr->dereg(n->dev, &n->key);		/* the driver may be slow, as in reg() */
	pthread_mutex_lock(&lock);
	release(n->dev, n->end - n->beg);
	pthread_mutex_unlock(&lock);
	free(n);
}

/* With BRAID_RDMA_STRICT no NIC reaches host memory of the user's: lanes copy it. */
static bool is_registered(const struct braid_dev *m, const struct braid_mem *mem)
{
	if (!m->best)
		return false;
	if (mem->gpu)
		return m->best->gpu != NULL;
	return m->best->reg != braid_no_reg && !braid_param.rdma_strict;
}

/* GPU memory must be registered with every NIC, since the CPU can't copy it. */
static int get_all(struct braid_mr *mr, const struct braid_mem *mem)
{
	const struct braid_dev *dev = mr->dev;
	int err = 0;

	for (unsigned i = 0; i < dev->nmembers && mem->size && err != -ENOMEM; i++) {
		struct braid_dev *m = dev->member[i];

		if (!is_registered(m, mem))
			continue;
		mr->cached[i] = get(m, m->best, mem, &err);
		if (mr->cached[i])
			mr->key[i] = mr->cached[i]->key;
		else if (mem->gpu)
			return err;
	}
	return 0;
}

/* Prepare copies by the driver here, where waiting is allowed. */
static void get_stage(struct braid_mr *mr, const struct braid_mem *mem)
{
	if (!braid_param.gpu_stage) {
		mr->stage_why = "BRAID_GPU_STAGE";
		mr->stage_err = -EPERM;
	} else if (mem->gpu_index < 0) {
		mr->stage_why = "cuPointerGetAttributes";
		mr->stage_err = -EOPNOTSUPP;
	} else {
		mr->stage_err = braid_stage_get(mem->gpu_index, &mr->stage, &mr->stage_why);
	}
}

int braid_mr_new(struct braid_dev *dev, const struct braid_mem *mem, struct braid_mr **ret)
{
	struct braid_mr *mr = calloc(1, sizeof(*mr));
	int err;

	if (!mr)
		return braid_no_memory("a registration");
	mr->dev = dev;
	mr->data = mem->data;
	mr->size = mem->size;
	mr->gpu = mem->gpu;
	braid_list_init(&mr->node);
	if (mem->gpu)
		get_stage(mr, mem);
	err = get_all(mr, mem);
	if (err) {
		braid_mr_free(mr);
		return err;
	}
	*ret = mr;		/* host memory that a NIC refuses is copied, so go on */
	return 0;
}

void braid_mr_free(struct braid_mr *mr)
{
	for (unsigned i = 0; i < BRAID_PATHS_MAX; i++)
		put_ref(mr->cached[i]);
	braid_stage_put(mr->stage);
	free(mr);
}

int braid_mr_nic_copy(const struct braid_mr *mr, unsigned i, struct braid_gpu_copy *c)
{
	const struct braid_mrc *n = mr->cached[i];

	return n ? n->tr->gpu->copy(n->dev, &n->key, c) : -ENODEV;
}

void braid_mr_nic_copy_end(const struct braid_mr *mr, unsigned i, struct braid_gpu_copy *c)
{
	const struct braid_mrc *n = mr->cached[i];

	if (n)
		n->tr->gpu->copy_end(n->dev, c);
}

/* Flush by the NIC; if it fails or failed recently, by the driver; at last by the NIC again. */
static int flush_one(const struct braid_mr *mr, unsigned i, char *at, struct braid_gpu_flush *f)
{
	const struct braid_mrc *n = mr->cached[i];
	int err = n->tr->gpu->flush(n->dev, &n->key, at, f);

	if (!err || err == -EAGAIN)
		return err;
	if (mr->stage && !braid_stage_flush(mr->stage))
		return 0;
	if (err != -EHOSTDOWN)
		return err;
	f->insist = true;
	return -EAGAIN;
}

int braid_mr_flush(const struct braid_mr *mr, char *at, struct braid_mr_flush *f)
{
	int ret = 0;

	for (unsigned i = 0; i < BRAID_PATHS_MAX; i++) {
		int err = mr->cached[i] && !(f->done & 1u << i) ?
				  flush_one(mr, i, at, &f->member[i]) : 0;

		if (!err)
			f->done |= 1u << i;
		else if (err != -EAGAIN)
			return err;
		else
			ret = err;
	}
	return ret;
}

void braid_mr_stats(const struct braid_dev *dev, struct braid_mr_stats *ret)
{
	pthread_mutex_lock(&lock);
	*ret = dev->mr_stats;
	pthread_mutex_unlock(&lock);
}
