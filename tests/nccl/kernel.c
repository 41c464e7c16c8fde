/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernel.c - a launch: its channels, each channel's batches of work, and each batch's items, turned
 * into operations (ring.c) that move when they can.  One thread, the stream's, moves all of them in
 * turn, so that nothing waits for a thread that has no CPU.
 */
#include "tests/nccl/ring.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ITEMS_MAX = 512, OPS_MAX = 16 };

struct channel_run {
	unsigned id, batch;			/* the batch that comes next */
	bool more, p2p;
	const char *items[ITEMS_MAX];		/* of the current batch */
	unsigned nitems, item;
	struct nccl_func func;
	struct op ops[OPS_MAX];			/* current; a collective has one */
	unsigned nops;
};

struct launch {
	const struct nccl_args *args;
	struct grid grid;
	struct channel_run *channels;
	unsigned nchannels;
};

static const struct nccl_batch *batch_at(const struct launch *l, unsigned i)
{
	return (const struct nccl_batch *)(l->args + 1) + i;
}

static const char *item_at(const struct launch *l, const struct nccl_batch *b, unsigned bit, size_t size)
{
	size_t offset = b->base + bit * size;

	if (!l->args->storage)
		return (const char *)l->args + offset;
	return (const char *)gpu_bytes(l->args->work, size) + (offset & l->args->work_mask);
}

static void die(const char *what, unsigned n)
{
	fprintf(stderr, "the GPU that the CPU plays: %s %u\n", what, n);
	abort();
}

/* Loads one batch, with the batches that extend it. */
static void load_batch(const struct launch *l, struct channel_run *c)
{
	const struct nccl_batch *b;

	c->nitems = c->item = 0;
	do {
		size_t size;

		b = batch_at(l, c->batch);
		if (b->type > WORK_COLL)
			die("work of type", b->type);
		size = b->type == WORK_P2P ? sizeof(struct nccl_p2p) : gpu_layout.coll_size;
		for (unsigned bit = 0; bit < 64; bit++) {
			if (!(b->items >> bit & 1))
				continue;
			if (c->nitems == ITEMS_MAX)
				die("items in a batch, more than", ITEMS_MAX);
			c->items[c->nitems++] = item_at(l, b, bit, size);
		}
		c->p2p = b->type == WORK_P2P;
		c->batch += b->jump;
	} while (b->extends);
	c->more = b->jump != 0;
	if (b->func >= gpu_nfuncs || !gpu_funcs[b->func].ring || gpu_funcs[b->func].proto == LL128)
		die("no ring of Simple or LL, but function", b->func);
	c->func = gpu_funcs[b->func];
}

/* Begins all of a batch's sends and receives together; a collective's items one after the other. */
static void begin_items(struct launch *l, struct channel_run *c)
{
	c->nops = 0;
	if (c->p2p) {
		for (; c->item < c->nitems && c->nops + 2 <= OPS_MAX; c->item++)
			c->nops += op_begin_p2p(c->ops + c->nops, &l->grid, c->id, c->items[c->item]);
	} else if (c->item < c->nitems) {
		op_begin_coll(&c->ops[c->nops++], &l->grid, c->id, &c->func, c->items[c->item++]);
	}
}

static enum moved move_channel(struct launch *l, struct channel_run *c)
{
	enum moved all = STUCK;

	for (unsigned i = 0; i < c->nops;) {
		enum moved m = op_move(&c->ops[i]);

		if (m != STUCK)
			all = MOVED;
		if (m == FINISHED)
			c->ops[i] = c->ops[--c->nops];
		else
			i++;
	}
	if (c->nops)
		return all;
	if (c->item == c->nitems) {
		if (!c->more)
			return FINISHED;
		load_batch(l, c);
	}
	begin_items(l, c);
	return MOVED;
}

/* Gives the CPU to other threads; longer after many rounds. */
static void pause_for(unsigned rounds)
{
	const struct timespec nap = { 0, rounds < 2000 ? 20000 : 200000 };

	if (rounds < 64)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

static void run(struct launch *l)
{
	unsigned idle = 0, left = l->nchannels;

	while (left) {
		bool any = false;

		for (unsigned i = 0; i < left;) {
			enum moved m = move_channel(l, &l->channels[i]);

			any |= m != STUCK;
			if (m == FINISHED)
				memcpy(&l->channels[i], &l->channels[--left], sizeof(l->channels[i]));
			else
				i++;
		}
		if (any) {
			idle = 0;
			continue;
		}
		if (__atomic_load_n(l->grid.abort, __ATOMIC_ACQUIRE))
			return;
		pause_for(idle++);
	}
}

void gpu_kernel(void *args)
{
	struct launch l = { .args = args };

	l.grid.comm = gpu_bytes(l.args->comm, sizeof(*l.grid.comm));
	l.grid.abort = gpu_bytes((void *)(uintptr_t)l.grid.comm->abort, sizeof(uint32_t));
	l.grid.channels = gpu_bytes(l.grid.comm->channels, sizeof(struct nccl_channel) * CHANNELS_MAX);
	l.channels = calloc((size_t)__builtin_popcountll(l.args->channels), sizeof(*l.channels));
	if (!l.channels)
		die("no memory for channels:", (unsigned)__builtin_popcountll(l.args->channels));
	for (unsigned id = 0; id < CHANNELS_MAX; id++) {
		if (l.args->channels >> id & 1) {
			struct channel_run *c = &l.channels[l.nchannels];

			*c = (struct channel_run){ .id = id, .batch = l.nchannels++, .more = true };
		}
	}
	run(&l);
	free(l.channels);
	free(args);
}
