/* SPDX-License-Identifier: BSD-3-Clause */
/* channel.c - see channel.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/proto/frame.h"
#include "tests/lib/channel.h"

struct braid_rma rma[2];
struct braid_rma_channel *ca, *cb;
static struct win *wins;
struct braid_mr local_mr;

static struct braid_rma_channel *make(struct braid_rma *of, struct braid_comm *c)
{
	braid_lock_wait(&c->link->lock);
	assert_int_equal(braid_rma_channel_new(of, c), 0);
	braid_unlock(&c->link->lock);
	return c->channel;
}

void channel_make(struct braid_comm *s, struct braid_comm *r)
{
	ca = make(&rma[A], s);
	cb = make(&rma[B], r);
	braid_lock_wait(&s->link->lock);
	braid_rma_adopt(ca, B);
	braid_unlock(&s->link->lock);
}

void channel_start(void)
{
	for (unsigned i = 0; i < 2; i++) {
		braid_rma_start(&rma[i], &pair.dev[i]);
		rma[i].nranks = 2;
		rma[i].rank = i;
	}
	wins = NULL;
	channel_make(cs, cr);
}

int setup_channel(void **state)
{
	setup(state);
	channel_start();
	return 0;
}

int setup_channel_lanes(void **state)
{
	setup_lanes(state);
	channel_start();
	return 0;
}

int teardown_channel(void **state)
{
	struct braid_rma_op *op, *tmp;

	teardown(state);
	while (wins)
		win_close(wins);
	for (unsigned i = 0; i < 2; i++) {
		braid_list_for_safe(op, tmp, &rma[i].lost, node)
			free(op);
		braid_rma_end(&rma[i]);
	}
	return 0;
}

/* --- windows ------------------------------------------------------------------------------- */

struct win *win_like(unsigned end, size_t size, const struct braid_mr *mr)
{
	struct win *w = calloc(1, sizeof(*w));

	w->bytes = calloc(1, size);
	w->mr = *mr;
	w->mr.dev = &pair.dev[end];
	w->mr.data = w->bytes;
	w->mr.size = size;
	w->w.data = w->bytes;
	w->w.size = size;
	w->w.mr = &w->mr;
	w->next = wins;
	wins = w;
	braid_rma_window_open(&rma[end], &w->w);
	return w;
}

struct win *win(unsigned end, size_t size)
{
	return win_like(end, size, &(struct braid_mr){ .gpu = false });
}

struct win *win_here(size_t size)
{
	struct win *w = win(B, size);

	null_settle(&pair);
	return w;
}

void win_close(struct win *w)
{
	struct win **p = &wins;

	assert_int_equal(braid_rma_window_close(&rma[w->mr.dev->index], &w->w), 0);
	while (*p != w)
		p = &(*p)->next;
	*p = w->next;
	free(w->bytes);
	free(w);
}

uint64_t word_at(const struct win *w, uint64_t offset)
{
	uint64_t ret;

	memcpy(&ret, w->bytes + offset, sizeof(ret));
	return ret;
}

/* --- operations ---------------------------------------------------------------------------- */

static struct braid_rma_op *post_op(struct braid_rma_hdr h, void *data, bool more)
{
	struct braid_link *link = ca->comm->link;
	struct braid_rma_op *op;

	braid_lock_wait(&link->lock);
	op = braid_rma_op_new(ca);
	op->h = h;
	op->data = data;
	op->mr = data ? &local_mr : NULL;
	braid_rma_post(ca, op, more);
	braid_unlock(&link->lock);
	return op;
}

struct braid_rma_op *post(struct braid_rma_hdr h, void *data)
{
	return post_op(h, data, false);
}

struct braid_rma_op *post_more(struct braid_rma_hdr h, void *data)
{
	return post_op(h, data, true);
}

bool op_done(struct braid_rma_op *op)
{
	braid_rma_retry(op->ch);
	braid_link_progress(op->ch->comm->link, &op->ch->comm->flush_epoch, &op->done);
	return atomic_load(&op->done);
}

int op_end(struct braid_rma_op *op)
{
	int err = atomic_load(&op->err);

	assert_true(atomic_load(&op->done));
	braid_rma_finish(op);
	return err;
}

int op_run(struct braid_rma_op *op)
{
	for (int i = 0; i < 200 && !op_done(op); i++)
		null_settle(&pair);
	null_settle(&pair);		/* a small put is done once it is queued */
	return op_end(op);
}

/* --- frames -------------------------------------------------------------------------------- */

int forge_op(struct braid_rma_hdr h, const void *data)
{
	char payload[BRAID_COPY_MAX];
	struct braid_hdr f = {
		.type = BRAID_F_EAGER, .comm = cb->comm->id, .seq = cb->next_seq,
		.len = BRAID_RMA_HDR_SIZE,
	};

	braid_rma_pack(&h, payload);
	if (h.what & BRAID_RMA_DATA && h.size) {
		memcpy(payload + BRAID_RMA_HDR_SIZE, data, h.size);
		f.len += (uint32_t)h.size;
	}
	f.size = f.len;
	return null_forge(&pair, A, 0, &f, payload);
}

int forge_chunk(unsigned lane, uint32_t window, uint64_t offset, uint32_t len, uint8_t context,
		uint32_t epoch, const void *data)
{
	struct braid_hdr f = {
		.type = BRAID_F_CHUNK, .comm = cb->comm->id, .seq = epoch, .n = context,
		.tag = (int32_t)window, .offset = offset, .len = len, .size = offset + len,
	};

	return null_forge(&pair, A, lane, &f, data);
}
