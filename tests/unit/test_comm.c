/* SPDX-License-Identifier: BSD-3-Clause */
/* test_comm.c - comms of one link: found by their ids, gone when they are closed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/msg/comms.h"
#include "tests/lib/comms.h"

static void frames_of_a_comm_that_is_gone_are_dropped(void **state)
{
	static const uint8_t types[] = {
		BRAID_F_EAGER, BRAID_F_START, BRAID_F_WANT, BRAID_F_CREDIT, BRAID_F_RETIRE,
		BRAID_F_OPENED, BRAID_F_REFUSED, BRAID_F_BYE, BRAID_F_FAIL, BRAID_F_CHUNK,
	};
	char payload[64] = { 0 };

	(void)state;
	for (unsigned i = 0; i < sizeof(types); i++) {
		struct braid_hdr h = { .type = types[i], .comm = 4242, .seq = 9, .rseq = 9 };

		if (h.type == BRAID_F_EAGER || h.type == BRAID_F_CHUNK) {
			h.len = sizeof(payload);
			h.size = sizeof(payload);
		} else if (h.type == BRAID_F_OPENED) {
			h.len = BRAID_OPEN_SIZE;
		}
		assert_int_equal(null_forge(&pair, A, 0, &h, payload), 0);
	}
	one_message(BIG, 0);
	assert_int_equal(pair.end[B]->msg.ncomms, 1);
}

/* Ids that fall into the same bucket of the link's table. */
static void comms_are_distinguished_by_their_whole_id(void **state)
{
	struct braid_comm *s[3] = { cs }, *r[3] = { cr };

	(void)state;
	for (unsigned i = 1; i < 3; i++) {
		pair.end[A]->setup.next_comm = i * 2 * BRAID_LINK_BUCKETS;
		null_comms(&pair, A, &s[i], &r[i]);
	}
	for (unsigned i = 0; i < 3; i++) {
		cs = s[i];
		cr = r[i];
		one_message(100 + i, 0);
		one_message(BIG + i, 0);
	}
	for (unsigned i = 0; i < 3; i++) {	/* close the oldest first: it is last in the bucket */
		braid_comm_close(s[i]);
		braid_comm_close(r[i]);
		null_settle(&pair);
		assert_int_equal(pair.end[A]->msg.ncomms, 2 - i);
		assert_int_equal(pair.end[B]->msg.ncomms, 2 - i);
	}
	assert_null(null_not_idle(&pair));
}

static void an_idle_link_gives_its_memory_back_and_takes_it_again(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		one_message(100, 0);
		one_message(BIG, 0);
		close_both();
		for (unsigned e = 0; e < 2; e++) {
			braid_link_detach(pair.end[e]);
			assert_false(pair.end[e]->lanes.attached);
			assert_null(pair.end[e]->lane[0]->tx.ring);
		}
		assert_int_equal(braid_link_attach(pair.end[A]), 0);
		assert_int_equal(braid_link_attach(pair.end[B]), 0);
		null_comms(&pair, A, &cs, &cr);
	}
	one_message(BIG, 0);
	assert_int_equal(warn_count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(frames_of_a_comm_that_is_gone_are_dropped),
		CASE(comms_are_distinguished_by_their_whole_id),
		CASE(an_idle_link_gives_its_memory_back_and_takes_it_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
