/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fuzz_rma.c - an authenticated peer sends arbitrary one-sided frames to a link with two channels, one
 * of which posts, over three lanes.  Meanwhile the link's owner posts, tests, opens and closes windows,
 * and lanes are lost.
 *
 * Input: a list of steps (below), each a byte and what it needs.  The peer is real, and may misbehave
 * between its own frames: its frames are numbered right, so that they get as far as they can.
 *
 * A sanitizer watches memory: every window and every buffer is a block of its own, freed as soon as it
 * is the owner's again (test() returned done, or the window or the channel was closed).
 */
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/param.h"
#include "core/base/pool.h"
#include "core/msg/comm.h"
#include "core/proto/frame.h"
#include "core/rma/rma.h"
#include "tests/lib/pair.h"

enum step {				/* each with the input bytes that follow it */
	OPERATION,	/* how channel what context window offset size signal_window offset id */
	FRAME,		/* lane type channel n seq window offset len size rseq; lane & 128: a NIC wrote it */
	POST,		/* what context window offset size signal_window offset */
	TEST,		/* operation */
	OPEN,		/* size */
	CLOSE,		/* window */
	DELIVER,	/* end lane bytes */
	MOVE,
	LOSE,		/* lane */
	LEAVE,		/* channel */
	STEPS,
};

enum { US = 1, PEER = 0, LANES = 3, OPS = 16, WINDOWS = 8, MOST = 40000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct op {
	struct braid_rma_op *op;
	char *buf;
};

static struct {
	const uint8_t *p, *end;		/* input */
	struct null_pair pair;
	struct braid_rma rma[2];
	struct braid_comm *comm[2][2];	/* of each end: PEER's channel to US, and US' to PEER; or NULL */
	struct braid_rma_window *win[2][WINDOWS];
	struct op op[OPS];
	bool broken;
} w;

static char payload[BRAID_COPY_MAX + MOST];

static uint8_t byte(void)
{
	return w.p < w.end ? *w.p++ : 0;
}

/* Small numbers, also near the end of 32 bits. */
static uint32_t number(void)
{
	return (uint32_t)(int8_t)byte();
}

static size_t some_size(void)
{
	static const size_t steps[] = { 1, 8, 1000, 9000 };
	uint8_t n = byte();

	return n / 4 % 5 * steps[n % 4];
}

/* --- memory -------------------------------------------------------------------------------- */

static void open_window(unsigned end, size_t size)
{
	for (unsigned i = 0; i < WINDOWS; i++) {
		struct braid_rma_window *win;

		if (w.win[end][i])
			continue;
		win = calloc(1, sizeof(*win));
		assert(win);
		win->size = size;
		win->data = calloc(1, size ? size : 1);
		win->mr = calloc(1, sizeof(*win->mr));
		assert(win->data && win->mr);
		win->mr->dev = &w.pair.dev[end];
		if (size % 8 == 0)		/* a NIC may write it */
			win->mr->key[0].mr = win->mr;
		w.win[end][i] = win;
		braid_rma_window_open(&w.rma[end], win);
		return;
	}
}

static void close_window(unsigned end, unsigned i)
{
	struct braid_rma_window *win = w.win[end][i];
	int err;

	if (!win)
		return;
	w.win[end][i] = NULL;
	err = braid_rma_window_close(&w.rma[end], win);
	assert(!err);
	free(win->mr);
	free(win->data);
	free(win);
}

/* --- our operations ------------------------------------------------------------------------ */

static const uint8_t kinds[] = {
	BRAID_RMA_DATA, BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED, BRAID_RMA_SIGNAL, BRAID_RMA_GET,
	BRAID_RMA_DATA | BRAID_RMA_SIGNAL, BRAID_RMA_DATA | BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED,
	BRAID_RMA_BULK, BRAID_RMA_BULK | BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED,
};

static struct braid_mr local;

static void post(void)
{
	struct braid_comm *c = w.comm[US][1];
	struct op *o = NULL;
	struct braid_rma_op *op;
	bool more;

	for (unsigned i = 0; i < OPS && !o; i++)
		o = w.op[i].op ? NULL : &w.op[i];
	if (!c || !o)
		return;
	op = calloc(1, sizeof(*op));
	assert(op);
	op->h.what = kinds[byte() % sizeof(kinds)];
	op->h.context = byte() & 1;
	more = op->h.context;
	op->h.window = byte() % WINDOWS;
	op->h.offset = some_size();
	if (op->h.what & (BRAID_RMA_DATA | BRAID_RMA_BULK | BRAID_RMA_GET))
		op->h.size = 1 + some_size();
	if (op->h.what & BRAID_RMA_DATA && op->h.size > BRAID_RMA_INLINE_MAX)
		op->h.size = BRAID_RMA_INLINE_MAX;
	op->h.signal_window = byte() % WINDOWS;
	op->h.signal_offset = 8 * some_size();
	op->h.value = 1;
	o->buf = malloc(op->h.size ? op->h.size : 1);
	assert(o->buf);
	memset(o->buf, 1, op->h.size);
	op->data = o->buf;
	op->mr = op->h.size ? &local : NULL;
	o->op = op;
	braid_lock_wait(&c->link->lock);
	braid_rma_post(c->channel, op, more);
	braid_unlock(&c->link->lock);
}

static void test_one(struct op *o)
{
	struct braid_comm *c = w.comm[US][1];

	if (!o->op || !c)
		return;
	braid_rma_retry(c->channel);
	if (!atomic_load(&o->op->done))
		return;
	braid_lock_wait(&c->link->lock);
	braid_list_del(&o->op->node);
	braid_unlock(&c->link->lock);
	free(o->op);
	free(o->buf);
	*o = (struct op){ NULL, NULL };
}

/* After this nobody may touch what the operations use. */
static void leave(unsigned end, unsigned i)
{
	struct braid_comm *c = w.comm[end][i];

	w.comm[end][i] = NULL;
	if (!c)
		return;
	braid_comm_close(c);
	for (unsigned k = 0; k < OPS && end == US && i == 1; k++) {
		if (w.op[k].op)
			braid_list_del(&w.op[k].op->node);
		free(w.op[k].op);
		free(w.op[k].buf);
		w.op[k] = (struct op){ NULL, NULL };
	}
}

/* --- the peer's frames --------------------------------------------------------------------- */

/* A frame that the peer's core has not sent: it has the number of the next one. */
static void receive(unsigned l, struct braid_hdr *h, const char *bytes, bool at_once)
{
	struct braid_lane *lane = w.pair.end[US]->lane[l];
	static char frame[BRAID_HDR_SIZE + sizeof(payload)];
	size_t done = 0;
	int err;

	if (lane->rx_kind != BRAID_RX_NONE || w.broken)
		return;
	h->lseq = lane->rx_frames;
	h->ack = lane->tx.f_acked;
	braid_hdr_pack(h, frame);
	memcpy(frame + BRAID_HDR_SIZE, bytes, h->len);
	braid_lock_wait(&lane->io);
	braid_lock_wait(&lane->link->lock);
	err = braid_rx_bytes(lane, frame, at_once ? BRAID_HDR_SIZE + h->len : BRAID_HDR_SIZE, &done);
	if (!err && !at_once)
		err = braid_rx_bytes(lane, frame + BRAID_HDR_SIZE, h->len, &done);
	braid_unlock(&lane->link->lock);
	braid_unlock(&lane->io);
	lane->rx_frames -= !err;
	w.broken = err;
}

static uint32_t id_of(unsigned i)
{
	return w.comm[US][i] ? w.comm[US][i]->id : i;
}

static void operation(void)
{
	uint8_t how = byte();
	unsigned i = byte() % 2;
	const struct braid_rma_channel *ch = w.comm[US][i] ? w.comm[US][i]->channel : NULL;
	uint8_t what = byte();
	struct braid_rma_hdr op = {
		.what = how & 2 ? what : kinds[what % sizeof(kinds)], .context = byte(),
		.window = byte() % (WINDOWS + 1),
	};
	struct braid_hdr h = {
		.type = BRAID_F_EAGER, .comm = id_of(i), .seq = ch ? ch->next_seq : 0,
		.len = BRAID_RMA_HDR_SIZE,
	};

	op.offset = some_size();
	op.size = some_size();
	op.signal_window = byte() % (WINDOWS + 1);
	op.signal_offset = 8 * some_size();
	op.id = number();
	if (op.what & BRAID_RMA_BULK && op.id)
		op.id ^= BRAID_RMA_SLOT | 1;
	op.value = 1;
	if (op.what & BRAID_RMA_DATA && op.size <= BRAID_RMA_INLINE_MAX)
		h.len += (uint32_t)op.size;
	h.size = h.len;
	memset(payload, 2, sizeof(payload));
	braid_rma_pack(&op, payload);
	receive(0, &h, payload, how & 1);
}

/* A NIC has written a chunk into a window. */
static void written(unsigned l, const struct braid_hdr *h)
{
	struct braid_lane *lane = w.pair.end[US]->lane[l];
	uint32_t frames = lane->rx_frames;

	if (lane->rx_kind != BRAID_RX_NONE || w.broken)
		return;
	braid_lock_wait(&lane->io);
	braid_lock_wait(&lane->link->lock);
	w.broken = braid_rx_imm(lane, h->comm << 16 | (h->seq & 0xff) << 8 | h->n, NULL, h->len);
	lane->rx_frames = frames;	/* the peer's core has sent none */
	braid_unlock(&lane->link->lock);
	braid_unlock(&lane->io);
}

static void frame(void)
{
	struct braid_hdr h = { 0 };
	uint8_t to = byte();
	unsigned l = to % 128 % LANES;

	h.type = 1 + byte() % BRAID_F_RETIRE;
	h.comm = id_of(byte() % 2);
	h.n = byte();
	h.seq = number();
	h.tag = (int32_t)(number() % (WINDOWS + 1));
	h.offset = some_size();
	h.len = (uint32_t)some_size();
	h.size = h.offset + h.len + some_size();
	h.rseq = number();
	if (to & 128) {
		written(l, &h);
		return;
	}
	memset(payload, 3, sizeof(payload));
	if (h.type == BRAID_F_CREDIT)
		h.len &= 4;
	else if (h.type != BRAID_F_CHUNK && h.type != BRAID_F_EAGER)
		h.len = 0;
	receive(l, &h, payload, true);
}

/* --- a link -------------------------------------------------------------------------------- */

static void deliver(void)
{
	unsigned end = byte() % 2, lane = byte() % LANES;
	size_t n = some_size();

	w.broken |= null_deliver_some(&w.pair, end, lane, n ? n : SIZE_MAX) < 0;
}

static void move(void)
{
	for (unsigned i = 0; i < 2; i++) {
		braid_link_progress(w.pair.end[i], NULL, NULL);
		braid_link_try_flush_control(w.pair.end[i]);
	}
}

static void begin(void)
{
	memset(&w, 0, sizeof(w));
	braid_param.chunk = 16384;
	null_tick_ns = 10000000;	/* a window that closes waits for announced bytes, for 1 s */
	null_pair_init(&w.pair, &(struct null_config){ .lanes = LANES, .held = true });
	for (unsigned i = 0; i < 2; i++)
		braid_rma_start(&w.rma[i], &w.pair.dev[i]);
	for (unsigned i = 0; i < 2; i++) {
		null_comms(&w.pair, i ? US : PEER, &w.comm[i ? US : PEER][i], &w.comm[i ? PEER : US][i]);
		for (unsigned end = 0; end < 2; end++) {
			struct braid_comm *c = w.comm[end][i];
			int err;

			braid_lock_wait(&c->link->lock);
			err = braid_rma_channel_new(&w.rma[end], c);
			braid_unlock(&c->link->lock);
			assert(!err);
		}
	}
	for (unsigned i = 0; i < 2; i++) {
		open_window(i, MOST);
		open_window(i, 100);
	}
	null_settle(&w.pair);
}

static void end(void)
{
	for (unsigned i = 0; i < 4; i++)
		leave(i / 2, i % 2);
	for (unsigned i = 0; i < 2 * WINDOWS; i++)
		close_window(i / WINDOWS, i % WINDOWS);
	if (!w.broken)
		null_settle(&w.pair);
	null_pair_fini(&w.pair);
	for (unsigned i = 0; i < 2; i++)
		braid_rma_end(&w.rma[i]);
	braid_pool_trim();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	begin();
	w.p = data;
	w.end = data + size;
	while (w.p < w.end && !w.broken) {
		switch ((enum step)(byte() % STEPS)) {
		case OPERATION:
			operation();
			break;
		case FRAME:
			frame();
			break;
		case POST:
			post();
			break;
		case TEST:
			test_one(&w.op[byte() % OPS]);
			break;
		case OPEN:
			open_window(US, some_size());
			break;
		case CLOSE:
			close_window(US, byte() % WINDOWS);
			break;
		case DELIVER:
			deliver();
			break;
		case MOVE:
			move();
			break;
		case LOSE:
			null_lose(&w.pair, byte() % LANES);
			break;
		case LEAVE:
			leave(US, byte() % 2);
			break;
		case STEPS:
			break;
		}
	}
	end();
	return 0;
}
