/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mrcache.c - see mrcache.h.  An interval tree per device: ordered by first address, each node
 * knowing how far its subtree reaches; balanced by random priorities (a treap).
 */
#include "core/mrcache.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/dev.h"
#include "core/link.h"
#include "core/log.h"
#include "gdr/cuda.h"

struct braid_mrc {
	struct braid_mrc *kid[2];
	uint64_t beg, end, reach;	/* reach: the largest end of the subtree */
	uint32_t prio;
	unsigned refs;
	uint64_t id;			/* of a GPU's memory; 0: the CPU's, or not shared */
	bool gpu;
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

/* Equal ones are ordered by their own address, so that one can be found again. */
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

static struct braid_mrc *take_out(struct braid_mrc *root, const struct braid_mrc *n)
{
	int side;

	if (root == n)
		return merge(root->kid[0], root->kid[1]);
	side = !is_before(n, root);
	root->kid[side] = take_out(root->kid[side], n);
	update(root);
	return root;
}

/* One of the same memory that covers [beg, end), or NULL. */
static struct braid_mrc *find(struct braid_mrc *root, uint64_t beg, uint64_t end, bool gpu,
			      uint64_t id)
{
	struct braid_mrc *n;

	if (!root || root->reach < end)
		return NULL;
	n = find(root->kid[0], beg, end, gpu, id);
	if (n || root->beg > beg)
		return n;
	return root->end >= end && root->gpu == gpu && root->id == id ?
		       root : find(root->kid[1], beg, end, gpu, id);
}

static struct braid_mrc *get(struct braid_dev *dev, const struct braid_transport *tr,
			     const struct braid_mem *mem, uint64_t id, int *ret_err)
{
	static uint32_t random = 2463534242u;
	uint64_t beg = (uint64_t)(uintptr_t)mem->data, end = beg + mem->size;
	struct braid_mrc *n = mem->gpu && !id ? NULL : find(dev->mrs, beg, end, mem->gpu, id);

	*ret_err = 0;
	if (n) {
		n->refs++;
		return n;
	}
	n = calloc(1, sizeof(*n));
	if (!n) {
		*ret_err = -ENOMEM;
		return NULL;
	}
	*ret_err = mem->gpu ? tr->gpu->reg(dev, mem, &n->key) :
			      tr->reg(dev, mem->data, mem->size, &n->key);
	if (*ret_err) {
		free(n);
		return NULL;
	}
	random ^= random << 13;
	random ^= random >> 17;
	random ^= random << 5;
	n->prio = random;
	n->beg = beg;
	n->end = n->reach = end;
	n->gpu = mem->gpu;
	n->id = id;
	n->refs = 1;
	n->dev = dev;
	n->tr = tr;
	dev->mrs = insert(dev->mrs, n);
	return n;
}

static void put(struct braid_mrc *n)
{
	if (!n || --n->refs)
		return;
	n->dev->mrs = take_out(n->dev->mrs, n);
	n->tr->dereg(n->dev, &n->key);
	free(n);
}

/* Of a GPU's memory every NIC must have it, for nobody else can touch it. */
static int get_all(struct braid_mr *mr, const struct braid_mem *mem, uint64_t id)
{
	const struct braid_dev *dev = mr->comm->link->key.dev;
	int err = 0;

	for (unsigned i = 0; i < dev->nmembers && mem->size && err != -ENOMEM; i++) {
		struct braid_dev *m = dev->member[i];

		if (!m->best || !m->best->dma)
			continue;
		mr->cached[i] = get(m, m->best, mem, id, &err);
		if (mr->cached[i])
			mr->key[i] = mr->cached[i]->key;
		else if (mem->gpu)
			return err;
	}
	return 0;
}

int braid_mr_new(struct braid_comm *c, const struct braid_mem *mem, struct braid_mr **ret)
{
	struct braid_mr *mr = calloc(1, sizeof(*mr));
	struct braid_gpu_mem gpu = { 0 };
	int err;

	if (!mr)
		return braid_no_memory("a registration");
	mr->comm = c;
	mr->data = mem->data;
	mr->size = mem->size;
	mr->gpu = mem->gpu;
	braid_list_init(&mr->node);
	if (mem->gpu && braid_gpu_look(mem->data, mem->size, &gpu))
		gpu.id = 0;
	pthread_mutex_lock(&lock);
	err = get_all(mr, mem, gpu.id);
	pthread_mutex_unlock(&lock);
	if (err) {
		braid_mr_free(mr);
		return err;
	}
	*ret = mr;		/* a NIC that does not have it costs a copy, not the job */
	return 0;
}

void braid_mr_free(struct braid_mr *mr)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < BRAID_PATHS_MAX; i++)
		put(mr->cached[i]);
	pthread_mutex_unlock(&lock);
	free(mr);
}

int braid_mr_copy(const struct braid_mr *mr, char *at, void *own, size_t len, bool to_gpu)
{
	int err = -EOPNOTSUPP;

	for (unsigned i = 0; i < BRAID_PATHS_MAX && err; i++) {
		const struct braid_mrc *n = mr->cached[i];

		if (n)
			err = n->tr->gpu->copy(n->dev, &n->key, at, own, len, to_gpu);
	}
	return err;
}

int braid_mr_flush(const struct braid_mr *mr, char *at, struct braid_mr_flush *f)
{
	int ret = 0;

	for (unsigned i = 0; i < BRAID_PATHS_MAX; i++) {
		const struct braid_mrc *n = mr->cached[i];
		int err = n && !(f->done & 1u << i) ?
				  n->tr->gpu->flush(n->dev, &n->key, at, &f->member[i]) : 0;

		if (!err)
			f->done |= 1u << i;
		else if (err != -EAGAIN)
			return err;
		else
			ret = err;
	}
	return ret;
}
