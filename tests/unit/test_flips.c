/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * test_flips.c - on a link with checksums, a flipped bit of what is sent is found before anything is
 * made of it.
 *
 * BRAID_TEST_FLIPS=N flips N bits in all.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/link/link_int.h"
#include "core/link/state.h"
#include "tests/lib/comms.h"
#include "tests/lib/null.h"

enum { LARGE = 30000, SMALL = 8 };

static void with_checksums(unsigned lanes)
{
	start(&(struct null_config){ .lanes = lanes, .window = 512 * K, .held = true });
	pair.end[A]->checksums = pair.end[B]->checksums = true;
}

static struct null_lane *wire(unsigned from)
{
	return null_of(pair.end[from]->lane[0]);
}

/* B reads what A has sent, in pieces: of a header and `bite` bytes.  0, or its error. */
static int b_reads(size_t bite)
{
	int n;

	do
		n = null_read(wire(B), BRAID_HDR_SIZE + bite);
	while (n > 0);
	return n;
}

static void messages_arrive_unchanged(void **state)
{
	static const size_t sizes[] = { 0, 1, 8, 200, 4096, LARGE, BIG };

	with_checksums(1);
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char *from = message(sizes[i] + 1, (char)i), *to = calloc(1, sizes[i] + 1);
		struct braid_req *s = isend(cs, from, sizes[i], 0);
		struct braid_req *r = irecv(cr, to, sizes[i], 0);

		for (unsigned k = 0; k < 1000 && !(atomic_load(&r->done) && atomic_load(&s->done));
		     k++) {
			braid_link_progress(pair.end[A], &cs->flush_epoch, NULL);
			braid_link_progress(pair.end[B], &cr->flush_epoch, NULL);
			assert_true(null_read(wire(B), SIZE_MAX) >= 0);
			assert_true(null_read(wire(A), SIZE_MAX) >= 0);
		}
		assert_int_equal(size_of(r), sizes[i]);
		assert_true(done(s));
		assert_memory_equal(from, to, sizes[i]);
		free(from);
		free(to);
	}
	assert_int_equal(warn_count, 0);
	teardown(state);
}

/* Sends a message to a posted receive with that bit flipped.  True if the wire had such a bit. */
static bool flip(size_t size, size_t bit, size_t bite)
{
	char *from = message(size, 5), *to = calloc(1, size);
	struct braid_req *s, *r;
	struct null_lane *w;
	bool had;

	with_checksums(1);
	r = irecv(cr, to, size, 0);
	s = isend(cs, from, size, 0);
	w = wire(A);
	for (unsigned k = 0; k < 100 && null_wire_len(w) < BRAID_HDR_SIZE + size; k++) {
		null_read(wire(B), SIZE_MAX);		/* a WANT */
		null_read(wire(A), SIZE_MAX);		/* a CREDIT */
		braid_link_progress(pair.end[B], &cr->flush_epoch, NULL);
		braid_link_progress(pair.end[A], &cs->flush_epoch, NULL);
	}
	assert_true(null_wire_len(w) >= BRAID_HDR_SIZE + size);
	had = bit / 8 < null_wire_len(w);
	if (had) {
		w->wire[w->beg + bit / 8] ^= (char)(1 << bit % 8);
		assert_int_equal(b_reads(bite), -EILSEQ);
		assert_false(atomic_load(&r->done));
		assert_null(pair.end[B]->lane[0]->rx_broken);	/* the peer is not to blame */
		/* Bytes that have come are read again: still nothing is made of them. */
		wire(B)->err = 0;
		assert_int_equal(null_read(wire(B), SIZE_MAX) > 0, 0);
		assert_false(atomic_load(&r->done));
	}
	(void)s;
	null_pair_fini(&pair);
	free(from);
	free(to);
	return had;
}

static void every_flipped_bit_of_a_small_message_is_found(void **state)
{
	size_t bit = 0;

	(void)state;
	while (flip(SMALL, bit, bit % 3 * 20))
		bit++;
	assert_true(bit >= 8 * (BRAID_HDR_SIZE + SMALL));
}

static void flipped_bits_of_a_large_message_are_found(void **state)
{
	const char *n = getenv("BRAID_TEST_FLIPS");
	struct null_rnd rnd = { 42 };

	(void)state;
	for (unsigned long i = 0; i < (n ? strtoul(n, NULL, 0) : 2000); i++) {
		size_t size = 1 + (size_t)null_below(&rnd, i % 8 ? 600 : LARGE);

		assert_true(flip(size, (size_t)null_below(&rnd, 8 * (BRAID_HDR_SIZE + size)),
				 (size_t)null_below(&rnd, 5000)));
	}
}

static void a_lane_with_a_flipped_bit_is_lost_and_counted(void **state)
{
	struct braid_lane *lane;

	with_checksums(2);
	lane = pair.end[B]->lane[1];
	for (unsigned i = 1; i <= 3; i++) {
		atomic_store(&lane->up, true);
		lane->loss.avoid_path = false;
		braid_lane_died(lane, NULL, -EILSEQ);
		assert_false(braid_lane_up(lane));
		assert_int_equal(braid_lane_times_corrupt(lane), i);
		assert_int_equal(pair.dev[B].corrupt, i);
		assert_true(atomic_load(&lane->loss.avoid_path));
	}
	assert_int_equal(warn_count, 1);		/* once in 10 s */
	assert_non_null(strstr(warn_text, "[corrupt-data]"));
	assert_non_null(strstr(warn_text, "lane 1 (null"));
	assert_int_equal(atomic_load(&pair.end[B]->state), BRAID_LINK_UP);
	teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_arrive_unchanged),
		cmocka_unit_test(every_flipped_bit_of_a_small_message_is_found),
		cmocka_unit_test(flipped_bits_of_a_large_message_are_found),
		cmocka_unit_test(a_lane_with_a_flipped_bit_is_lost_and_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
