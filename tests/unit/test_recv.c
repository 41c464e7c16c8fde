/* SPDX-License-Identifier: BSD-3-Clause */
/* test_recv.c - irecv(): groups of receives, and which messages complete them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "tests/lib/comms.h"
#include "tests/lib/req.h"

static void a_group_takes_its_messages_in_any_order_of_tags(void **state)
{
	char to[4][16] = { "" };
	void *data[4] = { to[0], to[1], to[2], to[3] };
	size_t sizes[4] = { 16, 16, 16, 16 };
	int tags[4] = { 7, 5, 7, 6 };
	int got[BRAID_RECVS_MAX];
	struct braid_req *r;
	bool is_done;

	(void)state;
	assert_true(settled(isend(cs, "five", 5, 5)));
	assert_int_equal(null_deliver_all(&pair), 1);
	assert_int_equal(braid_comm_irecv(cr, 4, data, sizes, tags, NULL, &r), 0);
	assert_string_equal(to[1], "five");
	assert_true(settled(isend(cs, "first seven", 12, 7)));
	assert_true(settled(isend(cs, "six", 4, 6)));
	null_deliver_all(&pair);
	assert_false(done(r));
	assert_true(settled(isend(cs, "7b", 3, 7)));
	null_deliver_all(&pair);
	assert_int_equal(req_test(r, &is_done, got), 0);
	assert_true(is_done);
	assert_string_equal(to[0], "first seven");
	assert_string_equal(to[2], "7b");
	assert_string_equal(to[3], "six");
	assert_true(got[0] == 12 && got[1] == 5 && got[2] == 3 && got[3] == 4);
	null_settle(&pair);
	close_both();
}

static void requests_may_be_tested_in_any_order(void **state)
{
	char to[32][8];
	struct braid_req *r[32], *s[32];

	(void)state;
	for (int i = 0; i < 32; i++) {
		r[i] = irecv(cr, to[i], 8, 1);
		s[i] = isend(cs, &i, sizeof(i), 1);
	}
	for (int i = 31; i >= 0; i--)
		run(s[i], r[i]);
	for (int i = 31; i >= 0; i--) {
		assert_true(done(s[i]));
		assert_int_equal(size_of(r[i]), sizeof(int));
		assert_memory_equal(to[i], &i, sizeof(i));
	}
}

/* While one lane is in the middle of a chunk, no other lane can complete the receive. */
static void a_receive_that_is_being_written_is_not_completed(void **state)
{
	char *from = message(BIG, 1), *to = malloc(BIG);
	struct braid_hdr eager = {
		.type = BRAID_F_EAGER, .seq = 1, .tag = 1, .rseq = 1, .comm = cs->id,
		.len = 100, .size = 100,
	};
	struct braid_req *r, *s;

	for (unsigned flags = 0; flags < 2; flags++) {
		if (flags) {
			teardown(state);
			setup_lanes(state);
		}
		r = credited(to, BIG);
		null_deliver_all(&pair);
		s = isend(cs, from, BIG, 1);
		assert_false(done(s));
		for (unsigned l = 1; l < 3; l++)
			null_deliver_some(&pair, A, l, 1000);
		assert_true(pair.end[B]->lane[1]->rx_left && pair.end[B]->lane[2]->rx_left);
		eager.flags = (uint8_t)flags;
		eager.comm = cs->id;
		assert_int_equal(null_forge(&pair, A, 0, &eager, from), -EBADMSG);
		assert_false(atomic_load(&r->done));
	}
	free(from);
	free(to);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_group_takes_its_messages_in_any_order_of_tags),
		CASE(requests_may_be_tested_in_any_order),
		CASE_LANES(a_receive_that_is_being_written_is_not_completed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
