/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rma_order.c - signals wait for the chunks of their epoch and of earlier ones, and for nothing
 * else, in whatever order lanes deliver them.
 *
 * A plan has operations, which come in order over home, and chunks, which come in order over each of
 * two other lanes.  Every merge of the three is tried.  After each frame, the words must be what a
 * small model says: so no signal is early, late, lost or added twice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/channel.h"

enum { WORDS = 8, DATA_AT = 4096, SIZE = 3 * 65536, LANES = 3, MOST = 16 };

struct frame {
	unsigned lane;			/* 0: an operation */
	unsigned what;
	uint8_t context;
	uint32_t bytes;			/* of a BULK or DATA; of a chunk */
	uint32_t epoch;			/* a chunk's: from 0 */
	unsigned word;			/* of a signal */
};

struct plan {
	const char *name;
	struct frame f[MOST];		/* bytes 0 and what 0: the end */
};

#define CHUNK(lane_, context_, epoch_, bytes_) \
	{ .lane = lane_, .context = context_, .epoch = epoch_, .bytes = bytes_ }
#define BULK(context_, bytes_) { .what = BRAID_RMA_BULK, .context = context_, .bytes = bytes_ }
#define SMALL(context_, bytes_) { .what = BRAID_RMA_DATA, .context = context_, .bytes = bytes_ }
#define STRONG(context_, word_) \
	{ .what = BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED, .context = context_, .word = word_ }
#define WEAK(context_, word_) { .what = BRAID_RMA_SIGNAL, .context = context_, .word = word_ }
#define BULK_STRONG(context_, bytes_, word_) \
	{ .what = BRAID_RMA_BULK | BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED, .context = context_, \
	  .bytes = bytes_, .word = word_ }

static const struct plan plans[] = {
	{ "one large put and its signal", {
		BULK(0, 30), STRONG(0, 0), STRONG(0, 1), WEAK(0, 2), STRONG(0, 3),
		CHUNK(1, 0, 0, 9), CHUNK(1, 0, 0, 1), CHUNK(1, 0, 0, 5),
		CHUNK(2, 0, 0, 7), CHUNK(2, 0, 0, 1), CHUNK(2, 0, 0, 7) } },
	{ "epochs whose chunks cross", {
		BULK_STRONG(0, 20, 0), BULK_STRONG(0, 20, 1), SMALL(0, 9), BULK_STRONG(0, 10, 2),
		WEAK(0, 3),
		CHUNK(1, 0, 0, 10), CHUNK(1, 0, 2, 10), CHUNK(1, 0, 1, 10),
		CHUNK(2, 0, 1, 10), CHUNK(2, 0, 0, 10) } },
	{ "an epoch of many puts of one size", {
		BULK(0, 10), BULK(0, 10), STRONG(0, 0), BULK(0, 10), STRONG(0, 1),
		CHUNK(1, 0, 0, 10), CHUNK(1, 0, 1, 10), CHUNK(2, 0, 0, 10) } },
	{ "two contexts", {
		BULK(1, 20), STRONG(0, 0), STRONG(1, 1), BULK(0, 10), STRONG(1, 2), STRONG(0, 3),
		CHUNK(1, 1, 0, 10), CHUNK(1, 0, 1, 10), CHUNK(2, 1, 0, 10) } },
	{ "the last and the first context, and small puts", {
		SMALL(255, 3), BULK(255, 6), SMALL(0, 3), STRONG(0, 0), STRONG(255, 1),
		CHUNK(1, 255, 0, 2), CHUNK(1, 255, 0, 2), CHUNK(2, 255, 0, 2) } },
};

static char bytes[SIZE];
static struct win *w;
static uint32_t origin;			/* the number of the first epoch, and of the first operation */

/* --- the model ----------------------------------------------------------------------------- */

static struct {
	bool came[MOST];
} model;

static bool is_signal(const struct frame *f)
{
	return f->what & BRAID_RMA_SIGNAL;
}

/* The number of the epoch that operation i belongs to. */
static uint32_t epoch_of(const struct plan *p, unsigned i)
{
	uint32_t n = 0;

	for (unsigned k = 0; k < i; k++)
		n += p->f[k].what & BRAID_RMA_ORDERED && p->f[k].context == p->f[i].context;
	return n;
}

static bool is_due(const struct plan *p, unsigned n, unsigned i)
{
	const struct frame *f = &p->f[i];

	if (!model.came[i])
		return false;
	for (unsigned k = 0; f->what & BRAID_RMA_ORDERED && k < n; k++) {
		const struct frame *c = &p->f[k];

		if (c->lane && c->context == f->context && c->epoch <= epoch_of(p, i) &&
		    !model.came[k])
			return false;
	}
	return true;
}

static void compare(const struct plan *p, unsigned n, const char *order)
{
	uint64_t want[WORDS] = { 0 };

	for (unsigned i = 0; i < n; i++) {
		if (is_signal(&p->f[i]) && is_due(p, n, i))
			want[p->f[i].word] += i + 1;
	}
	for (unsigned i = 0; i < WORDS; i++) {
		if (word_at(w, 8 * i) != want[i])
			fail_msg("%s, delivered %s: word %u is %llu, not %llu", p->name, order, i,
				 (unsigned long long)word_at(w, 8 * i), (unsigned long long)want[i]);
	}
}

/* --- one merge ----------------------------------------------------------------------------- */

static void deliver(const struct frame *f, unsigned i)
{
	struct braid_rma_hdr h = {
		.what = (uint8_t)f->what, .context = f->context, .window = w->w.number,
		.offset = DATA_AT, .size = f->bytes, .signal_window = w->w.number,
		.signal_offset = 8 * f->word, .value = i + 1,
	};

	assert_int_equal(f->lane ? forge_chunk(f->lane, w->w.number, DATA_AT, f->bytes, f->context,
					       origin + f->epoch, bytes) :
				   forge_op(h, bytes), 0);
}

static void free_comm(struct braid_comm *c)
{
	struct braid_link *link = c->link;

	braid_lock_wait(&link->lock);
	braid_comm_free(c);
	braid_unlock(&link->lock);
}

static void set_origin(uint8_t context)
{
	struct {
		uint32_t first, now;
	} *o = (void *)braid_rma_order_of(cb, context);	/* as core/rma/order.c has it */

	o->first = o->now = origin;
}

static void fresh_channel(void)
{
	struct braid_comm *s, *r;

	null_comms(&pair, A, &s, &r);
	channel_make(s, r);
	cb->announced = w->w.number + 1;
	cb->next_seq = origin;
	for (unsigned i = 0; i < 2; i++)
		set_origin((uint8_t)i);
	set_origin(255);
	memset(w->bytes, 0, 8 * WORDS);
	memset(&model, 0, sizeof(model));
}

static void one_merge(const struct plan *p, unsigned n, const unsigned *lanes)
{
	unsigned next[LANES] = { 0 };
	char order[MOST + 1] = "";

	fresh_channel();
	for (unsigned i = 0; i < n; i++) {
		unsigned k = next[lanes[i]];

		while (p->f[k].lane != lanes[i])
			k++;
		next[lanes[i]] = k + 1;
		order[i] = (char)('0' + lanes[i]);
		deliver(&p->f[k], k);
		model.came[k] = true;
		compare(p, n, order);
	}
	assert_int_equal(cb->due, 0);
	assert_false(cb->spread);
	free_comm(ca->comm);
	free_comm(cb->comm);
}

/* The next order of the lanes; false: that was the last. */
static bool permute(unsigned *a, unsigned n)
{
	unsigned i = n - 1, j = n - 1;

	while (i && a[i - 1] >= a[i])
		i--;
	if (!i)
		return false;
	while (a[j] <= a[i - 1])
		j--;
	for (unsigned t = a[i - 1], done = 0; !done; done = 1) {
		a[i - 1] = a[j];
		a[j] = t;
	}
	for (j = n - 1; i < j; i++, j--) {
		unsigned t = a[i];

		a[i] = a[j];
		a[j] = t;
	}
	return true;
}

static void try_all(const struct plan *p)
{
	unsigned lanes[MOST], n = 0, all = 0;

	while (n < MOST && (p->f[n].what || p->f[n].bytes)) {
		lanes[n] = p->f[n].lane;
		n++;
	}
	do {				/* the operations come first, then lane 1, then lane 2 */
		one_merge(p, n, lanes);
		all++;
	} while (permute(lanes, n));
	assert_true(all > 100);
}

static void a_signal_waits_for_its_chunks_alone_in_every_order_of_lanes(void **state)
{
	(void)state;
	w = win_here(SIZE);
	origin = 0;
	for (unsigned i = 0; i < sizeof(plans) / sizeof(plans[0]); i++)
		try_all(&plans[i]);
}

static void numbers_of_epochs_and_operations_wrap(void **state)
{
	(void)state;
	w = win_here(SIZE);
	for (unsigned i = 0; i < 3; i++) {
		origin = UINT32_MAX - i;
		try_all(&plans[i]);
	}
}

/* --- what a peer may not send -------------------------------------------------------------- */

static int strong(uint8_t context)
{
	return forge_op((struct braid_rma_hdr){
		.what = BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED, .context = context, .value = 1 }, NULL);
}

static int bulk(uint32_t size)
{
	return forge_op((struct braid_rma_hdr){ .what = BRAID_RMA_BULK, .size = size,
						.offset = DATA_AT }, NULL);
}

static void a_chunk_of_an_epoch_that_has_ended_is_refused(void **state)
{
	(void)state;
	w = win_here(SIZE);
	assert_int_equal(strong(0), 0);
	assert_int_equal(forge_chunk(1, 0, DATA_AT, 8, 0, 0, bytes), -EBADMSG);
}

static void a_chunk_too_many_of_an_ended_epoch_is_refused(void **state)
{
	(void)state;
	w = win_here(SIZE);
	assert_int_equal(bulk(10), 0);
	assert_int_equal(strong(0), 0);
	assert_int_equal(forge_chunk(1, 0, DATA_AT, 11, 0, 0, bytes), -EBADMSG);
	assert_int_equal(word_at(w, 0), 0);
}

static void a_signal_after_more_chunks_than_announced_is_refused(void **state)
{
	(void)state;
	w = win_here(SIZE);
	assert_int_equal(bulk(10), 0);
	assert_int_equal(forge_chunk(1, 0, DATA_AT, 11, 0, 0, bytes), 0);	/* may be of the next put */
	assert_int_equal(strong(0), -EBADMSG);
	assert_int_equal(word_at(w, 0), 0);
}

static void an_epoch_far_ahead_is_refused(void **state)
{
	(void)state;
	w = win_here(SIZE);
	assert_int_equal(forge_chunk(1, 0, DATA_AT, 8, 0, 65535, bytes), 0);
	assert_int_equal(forge_chunk(1, 0, DATA_AT, 8, 0, 65536, bytes), -EBADMSG);
}

static void many_signals_wait_for_one_chunk_in_order(void **state)
{
	enum { MANY = 3000 };

	(void)state;
	w = win_here(SIZE);
	assert_int_equal(bulk(8), 0);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(strong(0), 0);
	assert_int_equal(word_at(w, 0), 0);
	assert_true(cb->spread);
	assert_int_equal(forge_chunk(2, 0, DATA_AT, 8, 0, 0, bytes), 0);
	assert_int_equal(word_at(w, 0), MANY);
	assert_false(cb->spread);
}

static void a_signal_to_a_window_that_was_closed_is_dropped(void **state)
{
	struct win *other;

	(void)state;
	w = win_here(SIZE);
	other = win_here(64);
	assert_int_equal(bulk(8), 0);
	assert_int_equal(forge_op((struct braid_rma_hdr){
		.what = BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED, .signal_window = other->w.number,
		.value = 1 }, NULL), 0);
	assert_int_equal(strong(0), 0);
	win_close(other);
	assert_int_equal(forge_chunk(2, 0, DATA_AT, 8, 0, 0, bytes), 0);
	assert_int_equal(word_at(w, 0), 1);	/* the one behind it */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CHANNEL_LANES(a_signal_waits_for_its_chunks_alone_in_every_order_of_lanes),
		CHANNEL_LANES(numbers_of_epochs_and_operations_wrap),
		CHANNEL_LANES(a_chunk_of_an_epoch_that_has_ended_is_refused),
		CHANNEL_LANES(a_chunk_too_many_of_an_ended_epoch_is_refused),
		CHANNEL_LANES(a_signal_after_more_chunks_than_announced_is_refused),
		CHANNEL_LANES(an_epoch_far_ahead_is_refused),
		CHANNEL_LANES(many_signals_wait_for_one_chunk_in_order),
		CHANNEL_LANES(a_signal_to_a_window_that_was_closed_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
