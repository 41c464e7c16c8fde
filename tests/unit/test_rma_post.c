/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rma_post.c - operations from iput() to the lanes: what waits, what leaves, what is in vain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/param.h"
#include "tests/lib/channel.h"

enum { SIZE = 256 * K };

static char small[64] = "some bytes", got[SIZE];

static struct braid_rma_hdr put(uint32_t window, uint64_t offset, uint64_t size)
{
	return (struct braid_rma_hdr){
		.what = size <= BRAID_RMA_INLINE_MAX ? BRAID_RMA_DATA : BRAID_RMA_BULK,
		.window = window, .offset = offset, .size = size,
	};
}

static struct braid_rma_hdr get(uint32_t window, uint64_t offset, uint64_t size)
{
	return (struct braid_rma_hdr){
		.what = BRAID_RMA_GET, .window = window, .offset = offset, .size = size,
	};
}

static struct braid_rma_hdr signal_at(uint32_t window, uint64_t offset)
{
	return (struct braid_rma_hdr){
		.what = BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED, .signal_window = window,
		.signal_offset = offset, .value = 1,
	};
}

/* The next frame on lane 0, which must be an operation. */
static struct braid_rma_hdr pass_op(unsigned what)
{
	struct braid_hdr h = next_frame(A, BRAID_F_EAGER);
	struct braid_rma_hdr ret;
	const struct null_lane *lane = null_of(pair.end[A]->lane[0]);

	assert_int_equal(braid_rma_unpack(lane->wire + lane->beg + BRAID_HDR_SIZE, h.len, &ret),
			 h.len);
	assert_int_equal(ret.what, what);
	pass_frame(A, BRAID_F_EAGER);
	return ret;
}

static void run_to_the_end(struct braid_rma_op *op)
{
	assert_int_equal(op_run(op), 0);
}

/* --- what leaves --------------------------------------------------------------------------- */

static void a_channel_begins_with_its_rank(void **state)
{
	struct braid_rma_op *op;

	(void)state;
	win_here(64);
	rma[A].rank = 5;
	op = post(signal_at(0, 8), NULL);
	assert_int_equal(pass_op(BRAID_RMA_RANK).id, 5);
	assert_int_equal(cb->rank, 5);
	pass_op(BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED);
	assert_no_frame(A);
	run_to_the_end(op);
	op = post(signal_at(0, 8), NULL);
	pass_op(BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED);	/* once */
	run_to_the_end(op);
}

static void a_small_put_is_one_frame(void **state)
{
	struct win *w = win_here(SIZE);
	struct braid_rma_op *op = post(put(0, 100, sizeof(small)), small);

	(void)state;
	pass_op(BRAID_RMA_RANK);
	pass_op(BRAID_RMA_DATA);
	assert_no_frame(A);
	assert_memory_equal(w->bytes + 100, small, sizeof(small));
	run_to_the_end(op);
}

/* Its bytes are copied, so it is done, and they may be overwritten, at once. */
static void the_largest_small_put_fits_a_frame(void **state)
{
	struct win *w = win_here(SIZE);
	char *from = message(BRAID_RMA_INLINE_MAX, 3), *kept = message(BRAID_RMA_INLINE_MAX, 3);
	struct braid_rma_op *op = post(put(0, 0, BRAID_RMA_INLINE_MAX), from);

	(void)state;
	assert_true(atomic_load(&op->done));
	memset(from, 0, BRAID_RMA_INLINE_MAX);
	pass_op(BRAID_RMA_RANK);
	assert_int_equal(next_frame(A, BRAID_F_EAGER).len, BRAID_COPY_MAX);
	pass_op(BRAID_RMA_DATA);
	assert_memory_equal(w->bytes, kept, BRAID_RMA_INLINE_MAX);
	run_to_the_end(op);
	free(from);
	free(kept);
}

static void a_large_put_is_an_operation_and_chunks(void **state)
{
	struct win *w = win_here(SIZE);
	char *from = message(BIG, 1);
	struct braid_rma_hdr h = put(0, 8, BIG);
	struct braid_rma_op *op;
	uint64_t bytes = 0;

	(void)state;
	braid_param.chunk = 64 * K;
	h.context = 9;
	op = post(h, from);
	pass_op(BRAID_RMA_RANK);
	assert_int_equal(pass_op(BRAID_RMA_BULK).size, BIG);
	for (int i = 0; i < 100 && bytes < BIG; i++) {
		struct braid_hdr f;

		while (null_peek(&pair, A, 0, &f)) {
			assert_int_equal(f.type, BRAID_F_CHUNK);
			assert_int_equal(f.tag, 0);
			assert_int_equal(f.n, 9);
			assert_int_equal(f.seq, 0);
			assert_int_equal(f.offset, 8 + bytes);
			bytes += f.len;
			pass_frame(A, BRAID_F_CHUNK);
		}
		op_done(op);
	}
	assert_int_equal(bytes, BIG);
	assert_memory_equal(w->bytes + 8, from, BIG);
	run_to_the_end(op);
	free(from);
}

/* --- what waits ---------------------------------------------------------------------------- */

static void an_operation_waits_for_its_window_and_others_behind_it(void **state)
{
	struct win *w;
	struct braid_rma_op *op[3];

	(void)state;
	op[0] = post(put(0, 0, 4), small);	/* the target has registered nothing */
	op[1] = post(signal_at(1, 0), NULL);
	op[2] = post(put(0, 4, 4), small + 4);
	for (unsigned i = 0; i < 3; i++)
		assert_false(op_done(op[i]));
	pass_op(BRAID_RMA_RANK);
	assert_no_frame(A);

	w = win(B, 64);				/* window 0: the first goes, the second waits */
	pass_frame(B, BRAID_F_CREDIT);
	op_done(op[0]);
	pass_op(BRAID_RMA_DATA);
	assert_no_frame(A);
	assert_int_equal(w->bytes[0], small[0]);

	win(B, 64);				/* window 1: both others go, in order */
	null_settle(&pair);
	assert_int_equal(w->bytes[4], small[4]);
	for (unsigned i = 0; i < 3; i++)
		run_to_the_end(op[i]);
}

static void an_operation_waits_for_both_of_its_windows(void **state)
{
	struct braid_rma_hdr h = put(0, 0, 4);
	struct braid_rma_op *op;

	(void)state;
	win_here(64);
	h.what |= BRAID_RMA_SIGNAL;
	h.signal_window = 1;
	h.value = 1;
	op = post(h, small);
	pass_op(BRAID_RMA_RANK);
	assert_no_frame(A);
	win_here(8);
	run_to_the_end(op);
}

static void operations_wait_while_home_has_no_room(void **state)
{
	enum { MANY = 4000 };
	static struct braid_rma_op *op[MANY];
	struct win *w = win_here(64);

	(void)state;
	for (unsigned i = 0; i < MANY; i++)
		op[i] = post(signal_at(0, 0), NULL);
	assert_true(atomic_load(&ca->waits));
	for (unsigned i = 0; i < MANY; i++)
		run_to_the_end(op[i]);
	assert_int_equal(word_at(w, 0), MANY);
	assert_false(atomic_load(&ca->waits));
}

/* Lanes take chunks, or no more of them. */
static void take_chunks(bool take)
{
	for (unsigned i = 0; i < pair.end[A]->nlanes; i++) {
		struct braid_lane *lane = pair.end[A]->lane[i];

		lane->flight_max = !take;
		lane->tx.unacked += take ? -1ull : 1;
	}
}

/* The target keeps each ORDERED signal until the chunks before it are there. */
static void signals_wait_at_the_sender_while_chunks(bool cut)
{
	enum { MANY = 3000 };
	static struct braid_rma_op *op[MANY];
	struct win *w = win_here(SIZE);
	char *from = message(BIG, 1);
	struct braid_rma_op *large;
	unsigned sent = 0;

	if (!cut)
		take_chunks(false);
	large = post(put(0, 8, BIG), from);
	assert_int_equal(large->cut != 0, cut);
	pass_op(BRAID_RMA_RANK);
	pass_op(BRAID_RMA_BULK);
	for (unsigned i = 0; i < MANY; i++)
		op[i] = post(signal_at(0, 0), NULL);
	/* Home delivers all but chunks, which lanes 1 and 2 keep. */
	for (int i = 0; i < 4000; i++) {
		op_done(op[MANY - 1]);
		braid_link_progress(pair.end[B], &cr->flush_epoch, NULL);
		braid_link_try_flush_control(pair.end[B]);
		while (null_deliver(&pair, A, 0) > 0)
			;
		while (null_deliver(&pair, B, 0) > 0)
			;
	}
	assert_int_equal(word_at(w, 0), 0);
	while (sent < MANY && atomic_load(&op[sent]->done))
		sent++;
	assert_int_equal(sent, 2048);
	if (!cut)
		take_chunks(true);
	run_to_the_end(large);
	for (unsigned i = 0; i < MANY; i++)
		run_to_the_end(op[i]);
	assert_int_equal(word_at(w, 0), MANY);
	assert_memory_equal(w->bytes + 8, from, BIG);
	free(from);
}

static void signals_wait_at_the_sender_while_chunks_are_out(void **state)
{
	(void)state;
	signals_wait_at_the_sender_while_chunks(true);
}

static void signals_wait_at_the_sender_while_chunks_wait_for_lanes(void **state)
{
	(void)state;
	signals_wait_at_the_sender_while_chunks(false);
}

/* --- what is in vain ----------------------------------------------------------------------- */

static void assert_in_vain(struct braid_rma_hdr h, const char *text)
{
	struct braid_rma_op *op;

	warns_clear();
	op = post(h, h.size ? got : NULL);
	assert_int_equal(op_end(op), -EINVAL);
	assert_int_equal(warn_count, 1);
	if (!strstr(warn_text, text) || !strstr(warn_text, "[rma-range]"))
		fail_msg("no \"%s\" in: %s", text, warn_text);
	warns_clear();
}

static void an_operation_out_of_range_fails_and_the_next_one_works(void **state)
{
	struct win *w = win_here(64);
	struct braid_rma_hdr both = put(0, 0, 8);

	(void)state;
	ca->rank = 1;
	win_here(16);
	assert_in_vain(put(0, 60, 5), "5 bytes at offset 60 of window 0 of rank 1, which has 64");
	assert_in_vain(put(0, 65, 1), "offset 65");
	assert_in_vain(put(0, UINT64_MAX, 2), "2 bytes");
	assert_in_vain(put(0, 0, BIG), "window 0");
	assert_in_vain(get(1, 8, 9), "9 bytes at offset 8 of window 1 of rank 1, which has 16");
	assert_in_vain(signal_at(1, 16), "8 bytes at offset 16 of window 1");
	both.what |= BRAID_RMA_SIGNAL;
	both.signal_window = 1;
	both.signal_offset = 16;
	assert_in_vain(both, "window 1");	/* the word's, not the put's */
	pass_op(BRAID_RMA_RANK);
	assert_no_frame(A);
	run_to_the_end(post(put(0, 56, 8), small));
	run_to_the_end(post(signal_at(1, 8), NULL));
	assert_memory_equal(w->bytes + 56, small, 8);
}

static void an_operation_that_waited_may_turn_out_to_be_in_vain(void **state)
{
	struct braid_rma_op *wrong = post(put(0, 60, 5), small), *right = post(put(0, 0, 5), small);
	struct win *w;

	(void)state;
	w = win(B, 64);
	null_settle(&pair);
	assert_true(op_done(wrong));
	assert_int_equal(op_end(wrong), -EINVAL);
	assert_int_equal(warn_count, 1);
	warns_clear();
	run_to_the_end(right);
	assert_memory_equal(w->bytes, small, 5);
}

static void operations_on_a_window_that_was_closed_are_in_vain(void **state)
{
	struct win *w = win_here(64);
	struct win *other = win_here(64);

	(void)state;
	run_to_the_end(post(put(0, 0, 4), small));
	win_close(w);
	null_settle(&pair);
	assert_in_vain(put(0, 0, 4), "closed");
	assert_in_vain(get(0, 0, 4), "closed");
	assert_in_vain(signal_at(0, 0), "closed");
	run_to_the_end(post(put(1, 0, 4), small));
	assert_memory_equal(other->bytes, small, 4);
}

/* --- gets ---------------------------------------------------------------------------------- */

static void a_get_brings_the_bytes_of_the_window(void **state)
{
	struct win *w = win_here(SIZE);
	char *bytes = message(SIZE, 7);
	struct braid_rma_op *op;

	(void)state;
	memcpy(w->bytes, bytes, SIZE);
	memset(got, 0, sizeof(got));
	run_to_the_end(post(get(0, 3, 5), got));	/* a small one comes in a chunk, too */
	assert_memory_equal(got, bytes + 3, 5);
	assert_int_equal(got[5], 0);
	op = post(get(0, 100, BIG), got);
	assert_false(op_done(op));
	assert_true(ca->spread);
	run_to_the_end(op);
	assert_memory_equal(got, bytes + 100, BIG);
	assert_false(ca->spread);
	free(bytes);
}

static void gets_are_told_apart(void **state)
{
	enum { MANY = 5 };
	struct win *w = win_here(SIZE);
	char *bytes = message(SIZE, 7);
	struct braid_rma_op *op[MANY];

	(void)state;
	ca->next_get = UINT32_MAX - 1;
	memcpy(w->bytes, bytes, SIZE);
	for (unsigned i = 0; i < MANY; i++)
		op[i] = post(get(0, 40000 * i, 40000), got + 40000 * i);
	for (unsigned i = MANY; i-- > 0; )
		run_to_the_end(op[i]);
	assert_memory_equal(got, bytes, 40000 * MANY);
	free(bytes);
}

/* --- what the target may not send ---------------------------------------------------------- */

static int forge_back(unsigned lane, struct braid_hdr h)
{
	static char payload[SIZE];

	h.comm = cs->id;
	return null_forge(&pair, B, lane, &h, payload);
}

static void assert_refused(struct braid_hdr h, void **state)
{
	struct braid_rma_op *op;

	win_here(64);
	op = post(get(0, 0, 10), got);
	while (null_deliver(&pair, A, 0) > 0)
		;
	assert_int_equal(forge_back(0, h), -EBADMSG);
	assert_false(atomic_load(&op->done));
	teardown_channel(state);
	setup_channel_lanes(state);
}

static void lies_to_the_one_who_posts_are_refused(void **state)
{
	const struct braid_hdr chunk = { .type = BRAID_F_CHUNK, .len = 8, .size = 8 };
	struct braid_hdr h;

	h = chunk, h.seq = 1;
	assert_refused(h, state);			/* of a get that was not posted */
	h = chunk, h.len = 11, h.size = 11;
	assert_refused(h, state);			/* more than the get asked for */
	h = chunk, h.offset = 3, h.size = 11;
	assert_refused(h, state);			/* beyond it */
	assert_refused((struct braid_hdr){ .type = BRAID_F_EAGER, .len = BRAID_RMA_HDR_SIZE,
					   .size = BRAID_RMA_HDR_SIZE }, state);
	/* A window that was announced already; one beyond the last number. */
	assert_refused((struct braid_hdr){ .type = BRAID_F_CREDIT, .rseq = 0, .size = 8 }, state);
	assert_refused((struct braid_hdr){ .type = BRAID_F_CREDIT, .rseq = UINT32_MAX }, state);
	assert_refused((struct braid_hdr){ .type = BRAID_F_RETIRE, .seq = 0, .n = 2 }, state);
	assert_refused((struct braid_hdr){ .type = BRAID_F_RETIRE, .seq = UINT32_MAX, .n = 1 }, state);
	assert_refused((struct braid_hdr){ .type = BRAID_F_START, .size = 8 }, state);
	assert_refused((struct braid_hdr){ .type = BRAID_F_WANT, .size = 8 }, state);
}

/* Two chunks that arrive at once bring more than the get asked for: its memory is the user's soon. */
static void more_bytes_than_asked_for_are_refused_on_many_lanes(void **state)
{
	struct braid_hdr h = { .type = BRAID_F_CHUNK, .len = 10, .size = 10, .comm = cs->id };
	char frame[BRAID_HDR_SIZE + 10] = { 0 };
	struct braid_rma_op *op;

	(void)state;
	win_here(64);
	op = post(get(0, 0, 10), got);
	while (null_deliver(&pair, A, 0) > 0)
		;
	braid_hdr_pack(&h, frame);
	null_wire_put(null_of(pair.end[B]->lane[1]), frame, sizeof(frame));
	assert_int_equal(null_deliver_some(&pair, B, 1, 4), 1);
	assert_int_equal(forge_back(2, h), -EBADMSG);
	assert_false(atomic_load(&op->done));
}

static void windows_are_found_by_number_after_others_were_closed(void **state)
{
	enum { MANY = 40 };
	struct win *w[MANY];

	(void)state;
	for (unsigned i = 0; i < MANY; i++)
		w[i] = win_here(8 * (i + 1));
	for (unsigned i = 0; i < MANY; i += 3)
		win_close(w[i]);
	null_settle(&pair);
	for (unsigned i = 0; i < MANY; i++) {
		if (i % 3 == 0)
			assert_in_vain(put(i, 0, 8), "closed");
		else
			run_to_the_end(post(put(i, 8 * i, 8), small));
		if (i % 3)
			assert_memory_equal(w[i]->bytes + 8 * i, small, 8);
	}
}

static void operations_of_a_failed_channel_are_not_sent(void **state)
{
	struct braid_rma_op *op;

	(void)state;
	win_here(64);
	braid_comm_close(cr);
	null_settle(&pair);
	op = post(put(0, 0, 4), small);
	assert_false(op_done(op));
	assert_int_equal(braid_rma_error(cs), -EREMOTEIO);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "[peer-closed]"));
	assert_ptr_equal(atomic_load(&rma[A].failed), cs);
	assert_int_equal(atomic_load(&rma[A].err), -EREMOTEIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CHANNEL(a_channel_begins_with_its_rank),
		CHANNEL(a_small_put_is_one_frame),
		CHANNEL(the_largest_small_put_fits_a_frame),
		CHANNEL(a_large_put_is_an_operation_and_chunks),
		CHANNEL(an_operation_waits_for_its_window_and_others_behind_it),
		CHANNEL(an_operation_waits_for_both_of_its_windows),
		CHANNEL(operations_wait_while_home_has_no_room),
		CHANNEL_LANES(signals_wait_at_the_sender_while_chunks_are_out),
		CHANNEL_LANES(signals_wait_at_the_sender_while_chunks_wait_for_lanes),
		CHANNEL(an_operation_out_of_range_fails_and_the_next_one_works),
		CHANNEL(an_operation_that_waited_may_turn_out_to_be_in_vain),
		CHANNEL(operations_on_a_window_that_was_closed_are_in_vain),
		CHANNEL_LANES(a_get_brings_the_bytes_of_the_window),
		CHANNEL_LANES(gets_are_told_apart),
		CHANNEL_LANES(lies_to_the_one_who_posts_are_refused),
		CHANNEL_LANES(more_bytes_than_asked_for_are_refused_on_many_lanes),
		CHANNEL(windows_are_found_by_number_after_others_were_closed),
		CHANNEL(operations_of_a_failed_channel_are_not_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
