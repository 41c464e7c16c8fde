/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rma_join.c - small operations of a burst that share a frame: which do, and which do not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/channel.h"

enum { SIZE = 64 * K, BURST = 5, MANY = 100, MOST = 2048, HALF = BRAID_HDR_SIZE + 20 };

#define SIGNAL (BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED)

static char bytes[MANY * 8];

/* The i-th put of 8 bytes, which adds 1 to the window's last word. */
static struct braid_rma_hdr put8(unsigned i)
{
	return (struct braid_rma_hdr){
		.what = BRAID_RMA_DATA | SIGNAL, .offset = 8 * i, .size = 8,
		.signal_offset = SIZE - 8, .value = 1,
	};
}

static struct win *start_window(void)
{
	struct win *w = win_here(SIZE);

	for (unsigned i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i * 7 + 1);
	ca->rank_due = false;		/* no frame but those of the case */
	return w;
}

/* Post n of them that stay in the queue. */
static void burst(struct braid_rma_op **op, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		op[i] = post_more(put8(i), bytes + 8 * i);
}

static void end_all(struct braid_rma_op **op, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(op_run(op[i]), 0);
}

static void assert_all_here(const struct win *w, unsigned n)
{
	assert_memory_equal(w->bytes, bytes, 8 * n);
	assert_int_equal(word_at(w, SIZE - 8), n);
}

static uint32_t queued(void)
{
	const struct braid_txq *q = &pair.end[A]->lane[0]->tx;

	return q->f_head - q->f_sent;
}

/* Let all leave; their frames. */
static unsigned frames(void)
{
	unsigned n = 0;
	struct braid_hdr h;

	for (int i = 0; i < 10; i++) {
		braid_link_progress(pair.end[A], &cs->flush_epoch, NULL);
		for (; null_peek(&pair, A, 0, &h); n += h.type == BRAID_F_EAGER) {
			assert_true(h.type != BRAID_F_EAGER || h.len <= MOST);
			pass_frame(A, h.type);
		}
	}
	return n;
}

static void a_burst_leaves_in_one_frame(void **state)
{
	struct win *w = start_window();
	struct braid_rma_op *op[BURST];

	(void)state;
	burst(op, BURST);
	assert_int_equal(queued(), 1);
	for (unsigned i = 0; i < BURST; i++)
		assert_false(atomic_load(&op[i]->done));
	assert_int_equal(frames(), 1);
	for (unsigned i = 0; i < BURST; i++)
		assert_true(atomic_load(&op[i]->done));
	assert_all_here(w, BURST);
	end_all(op, BURST);
}

/* A burst of n operations arrives, in so many frames. */
static void arrives_in(const struct win *w, unsigned n, unsigned nframes)
{
	struct braid_rma_op *op[MANY];

	burst(op, n);
	assert_int_equal(frames(), nframes);
	assert_all_here(w, n);
	end_all(op, n);
}

static void a_frame_grows_up_to_2_KiB(void **state)
{
	(void)state;
	arrives_in(start_window(), MANY, (MANY * 56 + MOST - 1) / (MOST / 56 * 56));
}

static void an_earlier_build_gets_a_frame_for_each(void **state)
{
	const struct win *w = start_window();

	(void)state;
	assert_true(ca->takes_joined);
	ca->takes_joined = false;
	arrives_in(w, BURST, BURST);
}

/* Its bytes are a lane's, and it is done only once they are acknowledged. */
static void nothing_joins_a_large_put(void **state)
{
	struct win *w = start_window();
	char *large = message(20 * K, 1);
	struct braid_rma_op *op[3];

	(void)state;
	op[0] = post_more(put8(0), bytes);
	op[1] = post_more((struct braid_rma_hdr){ .what = BRAID_RMA_BULK, .offset = 4 * K,
						  .size = 20 * K }, large);
	op[2] = post_more(put8(1), bytes + 8);
	assert_int_equal(frames(), 3);
	null_settle(&pair);
	assert_all_here(w, 2);
	assert_memory_equal(w->bytes + 4 * K, large, 20 * K);
	end_all(op, 3);
	free(large);
}

static void nothing_joins_a_get(void **state)
{
	struct win *w = start_window();
	struct braid_rma_op *op[3];
	uint64_t got = 0;

	(void)state;
	memcpy(w->bytes + K, "12345678", 8);
	op[0] = post_more((struct braid_rma_hdr){ .what = BRAID_RMA_GET, .offset = K, .size = 8 },
			  &got);
	burst(op + 1, 2);
	assert_int_equal(frames(), 2);
	end_all(op, 3);
	assert_memory_equal(&got, "12345678", 8);
	assert_all_here(w, 2);
}

static void nothing_joins_a_frame_that_is_leaving(void **state)
{
	struct braid_lane *lane;
	struct win *w = start_window();
	struct braid_rma_op *op[3];

	(void)state;
	lane = pair.end[A]->lane[0];
	null_of(lane)->limit = HALF;
	op[0] = post(put8(0), bytes);
	assert_int_equal(lane->tx.part, HALF);
	op[1] = post_more(put8(1), bytes + 8);
	assert_int_equal(queued(), 2);
	op[2] = post_more(put8(2), bytes + 16);	/* nothing of the second has left */
	assert_int_equal(queued(), 2);
	null_of(lane)->limit = 0;
	assert_int_equal(frames(), 2);
	assert_all_here(w, 3);
	end_all(op, 3);
}

static void nothing_joins_where_the_ring_ends(void **state)
{
	struct win *w = start_window();
	struct braid_rma_op *op[2];
	struct braid_txq *q;

	(void)state;
	q = &pair.end[A]->lane[0]->tx;
	q->tail += q->ring_size - BRAID_HDR_SIZE - 56 - 55 - q->head % q->ring_size;
	q->head += q->ring_size - BRAID_HDR_SIZE - 56 - 55 - q->head % q->ring_size;
	burst(op, 2);
	assert_int_equal(queued(), 2);
	assert_int_equal(frames(), 2);
	assert_all_here(w, 2);
	end_all(op, 2);
}

/* An operation that the target refuses ends the link; those before it in the frame are applied. */
static void a_frame_is_refused_where_it_goes_wrong(void **state)
{
	struct win *w = start_window();
	struct braid_rma_hdr h = put8(0);
	char payload[BRAID_RMA_HDR_SIZE + 8 + BRAID_RMA_HDR_SIZE] = { 0 };
	struct braid_hdr f = {
		.type = BRAID_F_EAGER, .comm = cr->id, .seq = cb->next_seq,
		.len = sizeof(payload), .size = sizeof(payload),
	};

	(void)state;
	braid_rma_pack(&h, payload);
	assert_int_equal(null_forge(&pair, A, 0, &f, payload), -EBADMSG);
	assert_int_equal(word_at(w, SIZE - 8), 1);
}

static void a_burst_that_was_never_sent_is_not_done_when_its_channel_closes(void **state)
{
	struct braid_rma_op *op[BURST];

	(void)state;
	start_window();
	burst(op, BURST);
	braid_comm_close(cs);
	for (unsigned i = 0; i < BURST; i++)
		assert_false(atomic_load(&op[i]->done));
	null_settle(&pair);
	for (unsigned i = 0; i < BURST; i++)	/* its communicator has them now, and frees them */
		assert_false(atomic_load(&op[i]->done));
}

/* The target has begun it, and expects it unchanged. */
static void nothing_joins_a_frame_that_was_half_out_when_its_lane_was_lost(void **state)
{
	struct win *w = start_window();
	struct braid_rma_op *op[2];

	(void)state;
	null_of(pair.end[A]->lane[0])->limit = HALF;
	op[0] = post(put8(0), bytes);
	assert_int_equal(pair.end[A]->lane[0]->tx.part, HALF);
	assert_int_equal(null_deliver_some(&pair, A, 0, HALF), 1);
	null_lose(&pair, 0);
	op[1] = post_more(put8(1), bytes + 8);
	null_settle(&pair);
	assert_all_here(w, 2);
	end_all(op, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CHANNEL(a_burst_leaves_in_one_frame),
		CHANNEL(a_frame_grows_up_to_2_KiB),
		CHANNEL(an_earlier_build_gets_a_frame_for_each),
		CHANNEL(nothing_joins_a_large_put),
		CHANNEL(nothing_joins_a_get),
		CHANNEL(nothing_joins_a_frame_that_is_leaving),
		CHANNEL(nothing_joins_where_the_ring_ends),
		CHANNEL_LANES(nothing_joins_a_frame_that_was_half_out_when_its_lane_was_lost),
		CHANNEL(a_frame_is_refused_where_it_goes_wrong),
		CHANNEL(a_burst_that_was_never_sent_is_not_done_when_its_channel_closes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
