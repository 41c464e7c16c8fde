/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_rma_get.c - gets that a NIC reads: core/rma/get.c, core/link/reads.c.
 *
 * The carrier of lane 0 notes what it is to read; a case has these reads end, or be lost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/link/lane_io.h"
#include "core/link/reads.h"
#include "core/link/recover.h"
#include "tests/lib/channel.h"

enum { SIZE = 256 * K, PIECE = 64 * K, AT_ONCE = 2 };

static struct braid_read begun[64];
static unsigned nbegun, nover, fences;
static bool is_full;
static struct braid_transport reading;

static int note_read(struct braid_lane *lane, struct braid_read *r)
{
	(void)lane;
	if (is_full)
		return -EAGAIN;
	r->id = nbegun;
	begun[nbegun++] = *r;
	return 0;
}

static void note_fence(struct braid_lane *lane)
{
	(void)lane;
	fences++;
}

static struct braid_lane *lane(void)
{
	return pair.end[A]->lane[0];
}

static int key;

/* B's window, whose keys A has, and a lane that can read it; no operation was posted before. */
static struct win *readable(void)
{
	const struct braid_mr mr = { .key[0] = { .mr = &key, .remote = 77 } };
	struct win *w = win_like(B, SIZE, &mr);
	char *bytes = message(SIZE, 7);

	memcpy(w->bytes, bytes, SIZE);
	free(bytes);
	null_settle(&pair);
	nbegun = nover = fences = 0;
	is_full = false;
	local_mr.key[0] = (struct braid_key){ .mr = &key, .local = 55 };
	reading = *lane()->tr;
	reading.read = note_read;
	reading.lane_fence = note_fence;
	lane()->tr = &reading;
	lane()->reads.max = AT_ONCE;
	lane()->reads.len_max = PIECE;
	return w;
}

static struct braid_rma_op *get(void *to, uint64_t offset, uint64_t size)
{
	return post((struct braid_rma_hdr){ .what = BRAID_RMA_GET, .offset = offset, .size = size },
		    to);
}

/* The oldest read ends: the NIC has written the bytes. */
static void read_ends(void)
{
	const struct braid_read *r = &begun[nover++];

	assert_true(nover <= nbegun);
	memcpy(r->to, (const void *)(uintptr_t)r->from, r->len);
	braid_lock_wait(&pair.end[A]->lock);
	braid_reads_over(lane(), r->id);
	braid_unlock(&pair.end[A]->lock);
}

static void reads_are_lost(void)
{
	braid_lock_wait(&pair.end[A]->lock);
	braid_lane_reads_lost(lane());
	braid_unlock(&pair.end[A]->lock);
}

static void teardown_reads(void)
{
	memset(&local_mr, 0, sizeof(local_mr));
}

/* --- read by the NIC ----------------------------------------------------------------------- */

static void a_get_is_read_in_pieces_and_costs_no_frame(void **state)
{
	struct win *w = readable();
	char *got = calloc(1, SIZE);
	struct braid_rma_op *op = get(got, 100, 150 * K);
	uint64_t bytes = 0;

	(void)state;
	assert_int_equal(nbegun, AT_ONCE);	/* more only when one has ended */
	assert_int_equal(begun[0].from, (uintptr_t)w->bytes + 100);
	assert_int_equal(begun[0].remote, 77);
	assert_int_equal(begun[0].local, 55);
	while (!op_done(op)) {
		assert_true(nbegun - nover <= AT_ONCE);
		assert_true(begun[nover].len <= PIECE);
		bytes += begun[nover].len;
		read_ends();
	}
	assert_int_equal(bytes, 150 * K);
	pass_frame(A, BRAID_F_EAGER);		/* the channel's rank */
	assert_no_frame(A);
	assert_int_equal(op_end(op), 0);
	assert_memory_equal(got, w->bytes + 100, 150 * K);
	assert_int_equal(got[150 * K], 0);
	free(got);
	teardown_reads();
}

static void a_get_waits_while_the_nic_takes_no_read(void **state)
{
	struct win *w = readable();
	char got[64] = { 0 };
	struct braid_rma_op *op;

	(void)state;
	is_full = true;
	op = get(got, 0, sizeof(got));
	assert_false(op_done(op));
	assert_int_equal(nbegun, 0);
	is_full = false;
	assert_false(op_done(op));
	assert_int_equal(nbegun, 1);
	read_ends();
	assert_int_equal(op_end(op), 0);
	assert_memory_equal(got, w->bytes, sizeof(got));
	teardown_reads();
}

/* --- asked for after all ------------------------------------------------------------------- */

static void reads_that_are_lost_are_asked_for_by_a_frame(void **state)
{
	struct win *w = readable();
	char *got = calloc(1, SIZE);
	struct braid_rma_op *op = get(got, 0, SIZE);

	(void)state;
	read_ends();
	assert_false(op_done(op));
	assert_int_equal(nbegun, AT_ONCE + 1);
	reads_are_lost();
	assert_int_equal(braid_rma_state(op), BRAID_RMA_WAITS);
	assert_false(op_done(op));
	assert_int_equal(nbegun, AT_ONCE + 1);	/* no NIC is asked a second time */
	memset(got, 0, SIZE);			/* all of it comes again */
	assert_int_equal(op_run(op), 0);
	assert_memory_equal(got, w->bytes, SIZE);
	free(got);
	teardown_reads();
}

static void a_lane_that_reads_no_more_first_ends_the_reads_it_has(void **state)
{
	struct win *w = readable();
	char *got = calloc(1, SIZE);
	struct braid_rma_op *op = get(got, 0, SIZE);

	(void)state;
	lane()->peer_rkey_epoch++;		/* the peer revoked its keys */
	read_ends();
	assert_false(op_done(op));
	assert_int_equal(braid_rma_state(op), BRAID_RMA_ASKED);
	pass_frame(A, BRAID_F_EAGER);		/* the channel's rank */
	assert_no_frame(A);			/* the NIC may still write there */
	read_ends();
	assert_int_equal(op_run(op), 0);
	assert_int_equal(nbegun, AT_ONCE);
	assert_memory_equal(got, w->bytes, SIZE);
	free(got);
	teardown_reads();
}

static void a_get_fails_if_its_reads_are_lost_after_the_peer_has_closed(void **state)
{
	char *got = calloc(1, SIZE);
	struct braid_rma_op *op;

	(void)state;
	readable();
	op = get(got, 0, PIECE);		/* all of it is being read */
	null_settle(&pair);
	braid_comm_close(cr);
	null_settle(&pair);
	assert_int_equal(braid_rma_error(cs), 0);
	reads_are_lost();
	assert_int_equal(braid_rma_error(cs), -EREMOTEIO);
	assert_false(op_done(op));
	free(got);
	teardown_reads();
}

/* --- closed under a read ------------------------------------------------------------------- */

static void closing_the_channel_fences_the_lane_that_reads_for_it(void **state)
{
	char *got = calloc(1, SIZE);

	(void)state;
	readable();
	reading.dma = true;
	get(got, 0, SIZE);
	assert_int_equal(nbegun, AT_ONCE);
	braid_comm_close(cs);
	assert_true(fences > 0);
	assert_false(braid_lane_up(lane()));
	reads_are_lost();			/* of nobody any more */
	reading.dma = false;
	free(got);
	teardown_reads();
}

/* --- keys ---------------------------------------------------------------------------------- */

/* Also for puts: what NICs can't place any more, they can again when the keys were replaced. */
static void keys_that_were_revoked_are_replaced(void **state)
{
	struct win *w = readable();
	char *got = calloc(1, SIZE);
	unsigned n;

	(void)state;
	n = braid_link_stop(pair.end[B]);
	braid_link_revoke(pair.end[B], NULL, cr);	/* for a message's memory, say */
	braid_link_go(pair.end[B], n);
	lane()->peer_rkey_epoch = braid_link_rkey_epoch(pair.end[B]);
	assert_int_equal(op_run(get(got, 0, PIECE)), 0);
	assert_int_equal(nbegun, 0);			/* it came by frames */
	assert_memory_equal(got, w->bytes, PIECE);
	assert_int_equal(ca->nremote, 1);
	assert_int_equal(ca->remote[0].to.rkey_epoch, lane()->peer_rkey_epoch);
	assert_int_equal(cb->placed, 1);
	get(got, 0, PIECE);
	assert_int_equal(nbegun, 1);			/* and this one is read */
	read_ends();
	win_close(w);
	assert_int_equal(cb->placed, 0);
	free(got);
	teardown_reads();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CHANNEL(a_get_is_read_in_pieces_and_costs_no_frame),
		CHANNEL(a_get_waits_while_the_nic_takes_no_read),
		CHANNEL(reads_that_are_lost_are_asked_for_by_a_frame),
		CHANNEL(a_lane_that_reads_no_more_first_ends_the_reads_it_has),
		CHANNEL(a_get_fails_if_its_reads_are_lost_after_the_peer_has_closed),
		CHANNEL(closing_the_channel_fences_the_lane_that_reads_for_it),
		CHANNEL(keys_that_were_revoked_are_replaced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
