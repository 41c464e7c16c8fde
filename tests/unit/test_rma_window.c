/* SPDX-License-Identifier: BSD-3-Clause */
/* test_rma_window.c - windows: numbered, announced to each channel, and closed under traffic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/link/state.h"
#include "core/msg/open.h"
#include "tests/lib/channel.h"

enum { SIZE = 256 * K };

static char small[64] = "some bytes", got[SIZE];
static bool no_memory;

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size)
{
	return no_memory ? NULL : __real_realloc(p, size);
}

static struct braid_rma_hdr put(uint32_t window, uint64_t size)
{
	return (struct braid_rma_hdr){
		.what = size > BRAID_RMA_INLINE_MAX ? BRAID_RMA_BULK : BRAID_RMA_DATA,
		.window = window, .size = size,
	};
}

static int strong(uint32_t window, uint64_t offset)
{
	return forge_op((struct braid_rma_hdr){ .what = BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED,
						.signal_window = window, .signal_offset = offset,
						.value = 1 }, NULL);
}

/* --- numbers and announcements ------------------------------------------------------------- */

static void windows_are_numbered_and_announced_in_order(void **state)
{
	struct win *w[3];

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		struct braid_hdr h;

		w[i] = win(B, 100 * (i + 1));
		h = pass_frame(B, BRAID_F_CREDIT);
		assert_int_equal(h.rseq, i);
		assert_int_equal(h.size, 100 * (i + 1));
		assert_int_equal(h.len, 0);
		assert_ptr_equal(braid_rma_window(&rma[B], i), &w[i]->w);
		assert_int_equal(ca->remote[i].number, i);
		assert_int_equal(ca->remote[i].size, 100 * (i + 1));
	}
	assert_no_frame(B);
	assert_null(braid_rma_window(&rma[B], 3));
	assert_null(braid_rma_window(&rma[B], BRAID_RMA_BUCKETS));
}

static void a_window_of_the_rank_that_posts_is_not_announced(void **state)
{
	(void)state;
	win(A, 64);
	assert_no_frame(A);
}

static void a_window_that_is_closed_is_retired(void **state)
{
	struct win *w[3];
	struct braid_hdr h;

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		w[i] = win_here(64);
	win_close(w[1]);
	h = pass_frame(B, BRAID_F_RETIRE);
	assert_int_equal(h.seq, 1);
	assert_int_equal(h.n, 1);
	assert_no_frame(B);
	assert_null(braid_rma_window(&rma[B], 1));
	assert_int_equal(ca->nremote, 2);
	assert_int_equal(ca->remote[1].number, 2);
	assert_int_equal(cs->err, 0);
}

static void a_new_channel_learns_all_windows(void **state)
{
	struct braid_comm *s, *r;
	struct win *w[3];

	(void)state;
	for (unsigned i = 0; i < 3; i++)
		w[i] = win_here(64 + i);
	win_close(w[1]);
	null_settle(&pair);
	null_comms(&pair, A, &s, &r);
	channel_make(s, r);
	braid_lock_wait(&pair.end[B]->lock);
	assert_true(braid_rma_announce(r));
	braid_unlock(&pair.end[B]->lock);
	null_settle(&pair);
	assert_int_equal(ca->nremote, 2);
	assert_int_equal(ca->remote[0].size, 64);
	assert_int_equal(ca->remote[1].number, 2);
	assert_int_equal(ca->remote[1].size, 66);
	assert_int_equal(ca->remote_next, 3);
}

static void more_windows_than_home_has_room_for_are_all_announced(void **state)
{
	enum { MANY = 5000 };

	(void)state;
	for (unsigned i = 0; i < MANY; i++)
		win(B, 8);
	assert_true(cb->announced < MANY);
	null_settle(&pair);
	assert_int_equal(cb->announced, MANY);
	assert_int_equal(ca->nremote, MANY);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(ca->remote[i].number, i);
}

static void windows_in_one_bucket_are_told_apart(void **state)
{
	struct win *w[2 * BRAID_RMA_BUCKETS + 1];

	(void)state;
	for (unsigned i = 0; i < 2 * BRAID_RMA_BUCKETS + 1; i++)
		w[i] = win_here(8);
	win_close(w[BRAID_RMA_BUCKETS]);
	assert_ptr_equal(braid_rma_window(&rma[B], 0), &w[0]->w);
	assert_null(braid_rma_window(&rma[B], BRAID_RMA_BUCKETS));
	assert_ptr_equal(braid_rma_window(&rma[B], 2 * BRAID_RMA_BUCKETS), &w[2 * BRAID_RMA_BUCKETS]->w);
}

/* --- keys ---------------------------------------------------------------------------------- */

static unsigned revoked;

static void note_revoked(const struct braid_link *link)
{
	assert_ptr_equal(link, pair.end[B]);
	revoked++;
}

static void a_window_is_announced_with_its_keys_which_its_end_revokes(void **state)
{
	const struct braid_mr mr = { .key[0] = { .mr = &revoked, .remote = 0x12345678 } };
	struct win *w = win_like(B, 64, &mr), *other = win(B, 64);
	uint32_t epoch = braid_link_rkey_epoch(pair.end[B]);
	void (*was)(const struct braid_link *link) = braid_comm_hooks.revoked;

	(void)state;
	null_settle(&pair);
	assert_int_equal(cb->placed, 1);
	assert_int_equal(ca->remote[0].to.nkeys, 1);
	assert_int_equal(ca->remote[0].to.key[0], 0x12345678);
	assert_int_equal(ca->remote[0].to.addr, (uintptr_t)w->bytes);
	assert_int_equal(ca->remote[0].to.rkey_epoch, epoch);
	assert_int_equal(ca->remote[1].to.nkeys, 0);
	braid_comm_hooks.revoked = note_revoked;
	revoked = 0;
	win_close(other);			/* no NIC could write it */
	assert_int_equal(braid_link_rkey_epoch(pair.end[B]), epoch);
	assert_int_equal(revoked, 0);
	win_close(w);
	assert_int_equal(braid_link_rkey_epoch(pair.end[B]), epoch + 1);
	assert_int_equal(revoked, 1);
	assert_int_equal(cb->placed, 0);
	braid_comm_hooks.revoked = was;
}

static void a_window_whose_keys_are_sealed_is_announced_without(void **state)
{
	const struct braid_mr mr = { .key[0] = { .mr = &revoked, .remote = 5, .sealed = true } };

	(void)state;
	win_like(B, 64, &mr);
	null_settle(&pair);
	assert_int_equal(cb->placed, 0);
	assert_int_equal(ca->remote[0].to.nkeys, 0);
	assert_int_equal(ca->remote[0].to.addr, 0);
}

static void closing_a_channel_revokes_the_keys_of_its_windows(void **state)
{
	const struct braid_mr mr = { .key[0] = { .mr = &revoked, .remote = 5 } };
	uint32_t epoch = braid_link_rkey_epoch(pair.end[B]);

	(void)state;
	win_like(B, 64, &mr);
	null_settle(&pair);
	braid_comm_close(cr);
	assert_int_equal(braid_link_rkey_epoch(pair.end[B]), epoch + 1);
}

/* --- closed under traffic ------------------------------------------------------------------ */

/* A chunk is half received: its window is freed, its epoch still ends. */
static void a_window_closed_under_a_chunk_is_written_no_more(void **state)
{
	struct win *w = win_here(SIZE), *words = win_here(64);
	char *from = message(BIG, 1);
	struct braid_rma_op *op = post(put(0, BIG), from), *s;

	(void)state;
	while (null_deliver(&pair, A, 0) > 0)	/* the operation, and chunks of lane 0 */
		;
	s = post((struct braid_rma_hdr){ .what = BRAID_RMA_SIGNAL | BRAID_RMA_ORDERED,
					 .signal_window = 1, .value = 7 }, NULL);
	for (unsigned l = 1; l < 3; l++)
		assert_int_equal(null_deliver_some(&pair, A, l, 1000), 1);
	assert_true(cb->spread);
	win_close(w);				/* frees it: a sanitizer sees the rest */
	assert_int_equal(word_at(words, 0), 0);
	assert_int_equal(op_run(op), 0);
	assert_int_equal(op_run(s), 0);
	assert_int_equal(word_at(words, 0), 7);
	assert_false(cb->spread);
	assert_int_equal(cr->err, 0);
	assert_int_equal(op_run(post((struct braid_rma_hdr){ .what = BRAID_RMA_SIGNAL,
			.signal_window = 1, .value = 1 }, NULL)), 0);
	assert_int_equal(word_at(words, 0), 8);
	free(from);
}

static void chunks_to_a_window_that_is_closed_count(void **state)
{
	struct win *w = win_here(64);

	(void)state;
	win_here(8);
	assert_int_equal(forge_op((struct braid_rma_hdr){ .what = BRAID_RMA_BULK, .size = 20 }, NULL), 0);
	assert_int_equal(strong(1, 0), 0);
	win_close(w);
	assert_int_equal(forge_chunk(1, 0, 44, 20, 0, 0, got), 0);
	assert_false(cb->spread);
}

static void a_channel_fails_if_it_still_reads_a_window_that_is_closed(void **state)
{
	struct win *mine = win(A, SIZE), *theirs = win_here(SIZE);
	struct braid_rma_op *op = post(put(0, BIG), mine->bytes);

	(void)state;
	op->mr = op->x.mr = &mine->mr;
	win_close(mine);			/* frees it: a sanitizer sees later reads */
	assert_int_equal(braid_rma_error(cs), -ECANCELED);
	null_settle(&pair);
	assert_int_equal(cr->err, -EREMOTEIO);
	assert_false(atomic_load(&op->done));
	assert_int_equal(theirs->bytes[SIZE - 1], 0);
	assert_int_equal(atomic_load(&rma[A].err), -ECANCELED);
	assert_int_equal(atomic_load(&rma[B].err), -EREMOTEIO);
}

static void a_channel_fails_if_a_get_writes_a_window_that_is_closed(void **state)
{
	struct win *mine = win(A, SIZE), *theirs = win_here(SIZE);
	struct braid_rma_op *op = post((struct braid_rma_hdr){ .what = BRAID_RMA_GET, .size = BIG },
				       mine->bytes);

	(void)state;
	(void)theirs;
	op->mr = &mine->mr;
	while (null_deliver(&pair, A, 0) > 0)
		;
	braid_link_progress(pair.end[B], NULL, NULL);
	assert_int_equal(null_deliver_some(&pair, B, 1, 1000), 1);
	win_close(mine);
	assert_int_equal(braid_rma_error(cs), -ECANCELED);
	assert_false(ca->spread);
	null_settle(&pair);
	assert_false(atomic_load(&op->done));
}

static void a_channel_fails_if_a_get_reads_a_window_that_is_closed(void **state)
{
	struct win *theirs = win_here(SIZE);
	struct braid_rma_op *op = post((struct braid_rma_hdr){ .what = BRAID_RMA_GET, .size = BIG }, got);

	(void)state;
	while (null_deliver(&pair, A, 0) > 0)
		;
	win_close(theirs);
	assert_int_equal(atomic_load(&cr->err), -ECANCELED);
	null_settle(&pair);
	assert_false(op_done(op));
	assert_int_equal(braid_rma_error(cs), -EREMOTEIO);
	assert_true(braid_list_empty(&cb->replies));
}

static void a_window_that_nothing_uses_is_closed_quietly(void **state)
{
	struct win *mine = win(A, 64), *theirs = win_here(64);
	struct braid_rma_op *op = post(put(0, 8), mine->bytes);

	(void)state;
	op->mr = &mine->mr;
	assert_int_equal(op_run(op), 0);
	win_close(mine);
	win_close(theirs);
	null_settle(&pair);
	assert_int_equal(cs->err, 0);
	assert_int_equal(cr->err, 0);
	assert_int_equal(warn_count, 0);
}

static void without_memory_no_window_opens_or_closes(void **state)
{
	struct win *w = win_here(64);
	struct braid_rma_window none = { .size = 32 };

	(void)state;
	no_memory = true;
	assert_int_equal(braid_rma_window_close(&rma[B], &w->w), -ENOMEM);
	no_memory = false;
	assert_ptr_equal(braid_rma_window(&rma[B], 0), &w->w);
	assert_int_equal(op_run(post(put(0, 8), small)), 0);
	assert_memory_equal(w->bytes, small, 8);
	warns_clear();
	no_memory = true;
	assert_int_equal(braid_rma_window_open(&rma[B], &none), -ENOMEM);
	no_memory = false;
	assert_int_equal(warn_count, 1);
	win(B, 16);
	null_settle(&pair);
	assert_int_equal(ca->nremote, 2);	/* the number was not used */
	assert_int_equal(ca->remote[1].size, 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CHANNEL(windows_are_numbered_and_announced_in_order),
		CHANNEL(a_window_of_the_rank_that_posts_is_not_announced),
		CHANNEL(a_window_that_is_closed_is_retired),
		CHANNEL(a_new_channel_learns_all_windows),
		CHANNEL(more_windows_than_home_has_room_for_are_all_announced),
		CHANNEL(windows_in_one_bucket_are_told_apart),
		CHANNEL(a_window_is_announced_with_its_keys_which_its_end_revokes),
		CHANNEL(a_window_whose_keys_are_sealed_is_announced_without),
		CHANNEL(closing_a_channel_revokes_the_keys_of_its_windows),
		CHANNEL_LANES(a_window_closed_under_a_chunk_is_written_no_more),
		CHANNEL_LANES(chunks_to_a_window_that_is_closed_count),
		CHANNEL_LANES(a_channel_fails_if_it_still_reads_a_window_that_is_closed),
		CHANNEL_LANES(a_channel_fails_if_a_get_writes_a_window_that_is_closed),
		CHANNEL_LANES(a_channel_fails_if_a_get_reads_a_window_that_is_closed),
		CHANNEL(a_window_that_nothing_uses_is_closed_quietly),
		CHANNEL(without_memory_no_window_opens_or_closes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
