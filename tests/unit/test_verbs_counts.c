/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_counts.c - what the peer writes into our memory: verbs/counts.c. */
#include "tests/unit/lanes.h"

#include <endian.h>
#include <errno.h>

#include "core/base/os.h"
#include "core/link/link_int.h"
#include "verbs/verbs.h"

static int poll_at(struct lanes *l, unsigned end)
{
	struct braid_lane *lane = lane_at(l, end);
	int n;

	braid_lock_wait(&lane->io);
	n = braid_verbs_poll(lane);
	braid_unlock(&lane->io);
	return n;
}

/* End 1 writes its counts into the memory of end 0. */
static void count(struct lanes *l, uint32_t slots)
{
	struct braid_qp *w = lane_qp(l, 1);

	braid_lock_wait(&l->link[1]->lock);
	w->slots = slots;
	braid_verbs_write_counts(lane_at(l, 1), w);
	assert_int_equal(braid_verbs_chain_post(w), 0);
	braid_unlock(&l->link[1]->lock);
	UNTIL(le32toh(atomic_load(&lane_qp(l, 0)->m->ack[1])) == slots + 1);
}

static bool counts_come(struct lanes *l)
{
	uint32_t counts[2];
	bool come;

	braid_lock_wait(&l->link[0]->lock);
	come = braid_verbs_counts(lane_at(l, 0), lane_qp(l, 0), counts);
	braid_unlock(&l->link[0]->lock);
	return come;
}

static void counts_that_do_not_fit_their_checksum_are_not_taken(void **state)
{
	struct lanes l;
	struct braid_qp *w;

	(void)state;
	lanes_up(&l, "ib0:1", "ib1:1");
	l.link[0]->checksums = l.link[1]->checksums = true;
	w = lane_qp(&l, 0);
	assert_false(counts_come(&l));
	count(&l, 40);
	UNTIL(counts_come(&l));
	for (unsigned bit = 0; bit < 96; bit++) {
		atomic_fetch_xor(&w->m->ack[bit / 32], 1u << bit % 32);
		assert_false(counts_come(&l));
		atomic_fetch_xor(&w->m->ack[bit / 32], 1u << bit % 32);
		assert_true(counts_come(&l));
	}
	assert_int_equal(poll_at(&l, 0), 0);
	/* It is no write under way, since it stays so. */
	atomic_fetch_xor(&w->m->ack[0], 4);
	assert_true(poll_at(&l, 0) >= 0);
	UNTIL(poll_at(&l, 0) == -EILSEQ);
	assert_null(lane_at(&l, 0)->rx_broken);
	lanes_down(&l);
}

/* What the peer writes as its window, and what the next poll then says. */
static int poll_with(struct lanes *l, uint32_t word)
{
	int res;

	atomic_store(&lane_qp(l, 0)->m->ack[BRAID_ACK_WINDOW], htole32(word));
	braid_lock_wait(&l->link[0]->lock);
	braid_verbs_window(lane_at(l, 0), lane_qp(l, 0));
	braid_unlock(&l->link[0]->lock);
	do
		res = poll_at(l, 0);
	while (res > 0);
	return res;
}

static void a_window_that_no_peer_has_ends_the_lane(void **state)
{
	const uint32_t bad[] = {
		braid_window_word(BRAID_WINDOW + 1), braid_window_word(BRAID_SLOTS_RX),
		braid_window_word(0xffff), braid_window_word(BRAID_WINDOW_FEW - 1),
		braid_window_word(0), BRAID_WINDOW, UINT32_MAX, 1,
	};
	struct lanes l;

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		lanes_up(&l, "own0:1", "own0:1");
		assert_int_equal(poll_with(&l, 0), 0);
		assert_int_equal(poll_with(&l, braid_window_word(BRAID_WINDOW_FEW)), 0);
		assert_int_equal(lane_qp(&l, 0)->wr_max, BRAID_WINDOW_FEW);
		assert_int_equal(poll_with(&l, bad[i]), -EPROTO);
		assert_string_equal(lane_at(&l, 0)->rx_broken, "a window that it can't have");
		assert_int_equal(lane_qp(&l, 0)->wr_max, BRAID_WINDOW_FEW);
		lanes_down(&l);
	}
}

static void a_larger_window_is_taken_and_no_smaller_one(void **state)
{
	struct lanes l;

	(void)state;
	lanes_up(&l, "own0:1", "own0:1");
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(poll_with(&l, braid_window_word(BRAID_WINDOW)), 0);
		assert_int_equal(lane_qp(&l, 0)->wr_max, BRAID_WINDOW);
	}
	assert_int_equal(poll_with(&l, braid_window_word(BRAID_WINDOW_FEW)), -EPROTO);
	lanes_down(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_that_do_not_fit_their_checksum_are_not_taken),
		cmocka_unit_test(a_window_that_no_peer_has_ends_the_lane),
		cmocka_unit_test(a_larger_window_is_taken_and_no_smaller_one),
	};

	ports_of("ib0:ib;ib1:ib;own0:ib,max_srq=0");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
