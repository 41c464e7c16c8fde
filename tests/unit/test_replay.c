/* SPDX-License-Identifier: BSD-3-Clause */
/* test_replay.c - the frames of a lane that is lost, or no longer home, move to another lane. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "core/link/lane_io.h"
#include "core/link/link.h"
#include "core/link/txq_int.h"

static struct braid_link link;
static struct braid_lane from;

static int setup(void **state)
{
	(void)state;
	memset(&link, 0, sizeof(link));
	from = (struct braid_lane){ .link = &link };
	return braid_txq_init(&from.tx, 4096, 16);
}

static int teardown(void **state)
{
	(void)state;
	braid_txq_fini(&from.tx);
	return 0;
}

/* Chunks may stay behind, to be sent by another lane later: they are numbered in a row then. */
static void what_is_no_chunk_goes_to_the_new_home_alone(void **state)
{
	static const uint8_t type[] = {
		BRAID_F_START, BRAID_F_CHUNK, BRAID_F_ALIVE, BRAID_F_CHUNK, BRAID_F_ACK,
	};
	const struct braid_transport tr = { .name = "none" };
	struct braid_lane to = { .link = &link, .tr = &tr };
	struct braid_txq *q = &from.tx;
	static char data[2][256];
	struct braid_hdr h;
	unsigned chunks = 0;

	(void)state;
	assert_int_equal(braid_txq_init(&to.tx, 1 << 16, 64), 0);
	for (unsigned i = 0; i < sizeof(type); i++) {
		bool chunk = type[i] == BRAID_F_CHUNK;

		h = (struct braid_hdr){ .type = type[i], .n = (uint16_t)i };
		if (chunk)
			h.len = (uint32_t)(h.size = 128u << chunks);
		braid_tx_add(&from, &h, NULL, chunk ? data[chunks++] : NULL, NULL);
	}
	assert_int_equal(braid_tx_take_over(&from, &to, true), 0);
	assert_int_equal(to.tx.f_head - to.tx.f_acked, 3);
	assert_int_equal(to.tx.unsent, 3 * BRAID_HDR_SIZE);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(braid_hdr_unpack(to.tx.ring + to.tx.f[i].off, &h), 0);
		assert_int_equal(h.type, type[2 * i]);
		assert_int_equal(h.lseq, i);
	}
	assert_int_equal(q->f_head - q->f_acked, 2);
	assert_int_equal(q->unsent, 2 * BRAID_HDR_SIZE + 128 + 256);
	assert_int_equal(q->unacked, 128 + 256);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(braid_hdr_unpack(q->ring + q->f[i].off, &h), 0);
		assert_int_equal(h.n, 2 * i + 1);
		assert_int_equal(h.lseq, i);
		assert_ptr_equal(q->f[i].ext, data[i]);
	}
	/* The rest moves like the chunks of a lane that never was home. */
	while (q->f_head != q->f_acked)
		braid_tx_move(&from, &to);
	assert_int_equal(q->head, q->tail);
	assert_int_equal(q->unsent, 0);
	assert_int_equal(to.tx.unacked, 128 + 256);
	braid_txq_fini(&to.tx);
}

/* An old home without queues gives the new one none: the next attach would lose them. */
static void an_idle_link_changes_home_without_queues(void **state)
{
	const struct braid_transport tr = { .name = "none" };
	struct braid_lane to = { .link = &link, .tr = &tr };

	(void)state;
	braid_txq_fini(&from.tx);
	assert_int_equal(braid_tx_take_over(&from, &to, false), 0);
	assert_null(to.tx.ring);
	assert_null(to.tx.f);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(what_is_no_chunk_goes_to_the_new_home_alone),
		CASE(an_idle_link_changes_home_without_queues),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
