/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rma_slot.c - chunks of puts that immediate data names by a slot, in place of their headers.
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

enum { SIZE = 64 * K, PUT = 20 * K, LAST = BRAID_RMA_SLOTS - 1, NONE = -1 };

static int key;
static const struct braid_mr with_key = { .key[0] = { .mr = &key, .local = 1, .remote = 2 } };

/* A window that NICs may write. */
static struct win *win_by_nic(void)
{
	struct win *w = win_like(B, SIZE, &with_key);

	null_settle(&pair);
	return w;
}

/* An operation comes: a put of 100 bytes, with an ordered signal. */
static int announced(unsigned slot, unsigned turn)
{
	return forge_op((struct braid_rma_hdr){
		.what = BRAID_RMA_BULK | BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED, .context = 9,
		.id = BRAID_RMA_SLOT | turn << 8 | slot, .offset = 8, .size = 100, .value = 1,
	}, NULL);
}

/* A chunk comes; on another lane than the operations. */
static int written(unsigned slot, unsigned turn, size_t n)
{
	return null_written(&pair, A, 1, cr->id << 16 | slot << 8 | turn, n);
}

/* --- at the target ------------------------------------------------------------------------- */

static void chunks_count_for_the_put_that_named_their_slot(void **state)
{
	struct win *w = win_by_nic();

	(void)state;
	assert_int_equal(announced(4, 0), 0);
	assert_int_equal(announced(LAST, 0), 0);
	assert_int_equal(written(LAST, 0, 100), 0);
	assert_int_equal(written(4, 0, 60), 0);
	assert_int_equal(word_at(w, 0), 0);
	assert_int_equal(written(4, 0, 40), 0);
	assert_int_equal(word_at(w, 0), 2);	/* the second signal waited for the first */
	assert_int_equal(cb->due, 0);
	assert_int_equal(atomic_load(&w->w.due), 0);
}

static void a_slot_serves_one_put_after_another(void **state)
{
	struct win *w = win_by_nic();

	(void)state;
	for (unsigned i = 0; i < 3 * BRAID_RMA_TURNS; i++) {
		assert_int_equal(announced(7, i % BRAID_RMA_TURNS), 0);
		assert_int_equal(written(7, i % BRAID_RMA_TURNS, 100), 0);
		assert_int_equal(word_at(w, 0), i + 1);
	}
}

static void chunks_that_overtake_their_put_count_for_it(void **state)
{
	struct win *w = win_by_nic();

	(void)state;
	for (unsigned i = 0; i < 2 * BRAID_RMA_TURNS; i++) {
		assert_int_equal(written(0, i % BRAID_RMA_TURNS, 30), 0);
		assert_int_equal(written(0, i % BRAID_RMA_TURNS, 30), 0);
		assert_int_equal(announced(0, i % BRAID_RMA_TURNS), 0);
		assert_int_equal(word_at(w, 0), i);
		assert_int_equal(written(0, i % BRAID_RMA_TURNS, 40), 0);
		assert_int_equal(word_at(w, 0), i + 1);
	}
	assert_int_equal(cb->due, 0);
	assert_int_equal(atomic_load(&w->w.due), 0);
}

static void a_put_whose_chunks_all_overtook_it_is_complete(void **state)
{
	struct win *w = win_by_nic();

	(void)state;
	assert_int_equal(written(0, 0, 100), 0);
	assert_int_equal(announced(0, 0), 0);
	assert_int_equal(word_at(w, 0), 1);
	assert_int_equal(cb->due, 0);
}

static const struct {
	const char *what;
	int slot, turn;			/* of the operation before; NONE: there was none */
	unsigned chunk_slot, chunk_turn;
	size_t len;
} lies[] = {
	{ "no such slot", 0, 0, BRAID_RMA_SLOTS, 0, 100 },
	{ "the last slot of messages", 0, 0, 255, 0, 100 },
	{ "a turn that is not due", NONE, 0, 0, 1, 100 },
	{ "a turn beyond the next", 0, 0, 0, 2, 100 },
	{ "no such turn", 0, 0, 0, BRAID_RMA_TURNS, 100 },
	{ "a whole message", 0, 0, 0, BRAID_IMM_WHOLE, 100 },
	{ "more than the put has", 0, 0, 0, 0, 101 },
};

static void lies_are_refused(void **state)
{
	for (unsigned i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct win *w = win_by_nic();

		if (lies[i].slot != NONE)
			assert_int_equal(announced((unsigned)lies[i].slot, (unsigned)lies[i].turn), 0);
		if (written(lies[i].chunk_slot, lies[i].chunk_turn, lies[i].len) != -EBADMSG)
			fail_msg("%s", lies[i].what);
		assert_int_equal(word_at(w, 0), 0);
		teardown_channel(state);
		setup_channel_lanes(state);
	}
}

static void a_put_of_another_turn_is_refused(void **state)
{
	win_by_nic();
	(void)state;
	assert_int_equal(announced(0, 1), -EBADMSG);
}

static void a_put_smaller_than_what_overtook_it_is_refused(void **state)
{
	win_by_nic();
	(void)state;
	assert_int_equal(written(0, 0, 101), 0);
	assert_int_equal(announced(0, 0), -EBADMSG);
}

static void more_chunks_than_were_announced_are_refused(void **state)
{
	win_by_nic();
	(void)state;
	assert_int_equal(announced(0, 0), 0);
	assert_int_equal(written(0, 0, 100), 0);
	assert_int_equal(written(0, 0, 100), -EBADMSG);
}

static void no_nic_can_have_written_where_it_has_no_key(void **state)
{
	win_here(SIZE);
	(void)state;
	assert_int_equal(announced(0, 0), 0);
	assert_int_equal(written(0, 0, 100), -EBADMSG);
}

/* --- at the rank that puts ----------------------------------------------------------------- */

static struct braid_rma_op *put(char *from)
{
	return post((struct braid_rma_hdr){ .what = BRAID_RMA_BULK, .size = PUT }, from);
}

static void each_put_in_flight_has_a_slot_of_its_own(void **state)
{
	enum { N = BRAID_RMA_SLOTS + 2 };
	char *from = message(PUT, 1);
	struct braid_rma_op *op[N];

	(void)state;
	win_by_nic();
	for (unsigned i = 0; i < N; i++) {
		op[i] = put(from);
		null_settle(&pair);
		assert_int_equal(op[i]->h.id, i < BRAID_RMA_SLOTS ? BRAID_RMA_SLOT | i : 0);
		assert_int_equal(op[i]->x.imm, i < BRAID_RMA_SLOTS ? BRAID_XFER_BY_SLOT :
								     BRAID_XFER_BY_HDR);
	}
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(op_end(op[i]), 0);
	op[0] = put(from);			/* the first that is free, in its next turn */
	assert_int_equal(op[0]->h.id, BRAID_RMA_SLOT | 1 << 8);
	assert_int_equal(ca->slots, ~6ull);
	assert_int_equal(op_run(op[0]), 0);
	for (unsigned i = 3; i < N; i++)
		assert_int_equal(op_end(op[i]), 0);
	free(from);
}

static void without_the_targets_consent_no_slot_is_named(void **state)
{
	char *from = message(PUT, 1);
	struct braid_rma_op *op;

	(void)state;
	win_by_nic();
	ca->takes_slots = false;		/* a build from before there were slots */
	op = put(from);
	assert_int_equal(op->h.id, 0);
	assert_int_equal(op_run(op), 0);
	free(from);
}

static void what_no_nic_writes_has_no_slot(void **state)
{
	char *from = message(PUT, 1);
	struct braid_rma_op *op;

	(void)state;
	win_here(SIZE);
	op = put(from);
	assert_int_equal(op->h.id, 0);
	assert_int_equal(op_run(op), 0);
	assert_null(cb->slot);
	free(from);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CHANNEL_LANES(chunks_count_for_the_put_that_named_their_slot),
		CHANNEL_LANES(a_slot_serves_one_put_after_another),
		CHANNEL_LANES(chunks_that_overtake_their_put_count_for_it),
		CHANNEL_LANES(a_put_whose_chunks_all_overtook_it_is_complete),
		CHANNEL_LANES(lies_are_refused),
		CHANNEL_LANES(a_put_of_another_turn_is_refused),
		CHANNEL_LANES(a_put_smaller_than_what_overtook_it_is_refused),
		CHANNEL_LANES(more_chunks_than_were_announced_are_refused),
		CHANNEL_LANES(no_nic_can_have_written_where_it_has_no_key),
		CHANNEL_LANES(each_put_in_flight_has_a_slot_of_its_own),
		CHANNEL_LANES(without_the_targets_consent_no_slot_is_named),
		CHANNEL_LANES(what_no_nic_writes_has_no_slot),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
