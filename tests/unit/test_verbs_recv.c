/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_recv.c - slots for what arrives: verbs/recv.c. */
#include "tests/unit/ports.h"

#include "verbs/recv.h"

static struct braid_srq *joined(struct braid_ibport *p)
{
	struct braid_srq *s;

	assert_int_equal(braid_srq_join(p, &s), 0);
	assert_non_null(s);
	return s;
}

static void slots_are_chained_and_name_themselves(void **state)
{
	long before = ports_ctl("live mr");
	struct braid_slots *s = braid_slots_new(port_named("ib0:1"), port_named("ib0:1")->pd);
	unsigned n = 0;

	(void)state;
	assert_non_null(s);
	for (struct ibv_recv_wr *wr = braid_slots_chain(s); wr; wr = wr->next, n++) {
		assert_true(wr->wr_id == (uint64_t)(uintptr_t)wr);
		assert_false(wr->wr_id & BRAID_WR_IS_SEND);
		assert_int_equal(wr->sg_list->length, BRAID_SLOT);
	}
	assert_int_equal(n, BRAID_SLOTS_RX);
	braid_slots_free(s);
	braid_slots_free(NULL);
	assert_int_equal(ports_ctl("live mr"), before);
}

static void each_lane_brings_slots_to_a_shared_queue(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct braid_srq *s = joined(p);

	(void)state;
	assert_int_equal(s->nslots, 1);
	assert_ptr_equal(joined(p), s);
	assert_int_equal(s->nslots, 2);
	assert_int_equal(s->lanes, 2);
	braid_srq_leave(s, NULL, false);
	assert_int_equal(ports_ctl("live srq"), 1);
	braid_srq_leave(s, NULL, false);
	assert_int_equal(ports_ctl("live srq"), 0);
}

/* Queue pairs that end may take receives along. */
static void a_queue_that_may_have_lost_half_its_receives_takes_no_new_lane(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct braid_srq *old = joined(p), *s = old;

	(void)state;
	for (unsigned i = 0; i < 100 && s == old; i++) {
		braid_srq_leave(joined(p), NULL, true);
		s = joined(p);
		braid_srq_leave(s, NULL, true);
	}
	assert_ptr_not_equal(s, old);
	braid_srq_leave(old, NULL, false);
	assert_int_equal(ports_ctl("live srq"), 0);
}

static void lanes_that_lost_nothing_leave_the_queue_as_it_was(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct braid_srq *s = joined(p);

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		assert_ptr_equal(joined(p), s);
		braid_srq_leave(s, NULL, false);
	}
	assert_int_equal(s->nslots, 2);
	braid_srq_leave(s, NULL, false);
	assert_int_equal(ports_ctl("live srq"), 0);
}

static void receives_that_a_lane_holds_are_posted_again(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct braid_srq *s = joined(p);
	struct braid_slots *more = braid_slots_new(p, p->pd);

	(void)state;
	assert_ptr_equal(joined(p), s);
	assert_int_equal(ports_ctl("live posted"), 2 * BRAID_SLOTS_RX);
	braid_srq_leave(s, braid_slots_chain(more), false);
	assert_int_equal(ports_ctl("live posted"), 3 * BRAID_SLOTS_RX);
	assert_false(s->broken);
	assert_ptr_equal(joined(p), s);
	ports_ctl("fail 1 ibv_post_srq_recv");
	braid_srq_leave(s, braid_slots_chain(more), false);
	ports_ctl("fail 0");
	assert_true(s->broken);
	braid_srq_leave(s, NULL, false);
	braid_slots_free(more);
}

static void a_queue_that_the_device_reports_broken_is_left(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct braid_srq *old = joined(p), *new;

	(void)state;
	atomic_store(&p->srq_broke, old->srq);
	new = joined(p);
	assert_ptr_not_equal(new, old);
	braid_srq_leave(old, NULL, false);
	braid_srq_leave(new, NULL, false);
}

static void where_queues_are_not_shared_a_lane_has_its_own_slots(void **state)
{
	struct braid_srq *s;

	(void)state;
	assert_false(braid_srq_used(port_named("own:1")));
	assert_int_equal(braid_srq_join(port_named("own:1"), &s), 0);
	assert_null(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slots_are_chained_and_name_themselves),
		cmocka_unit_test(each_lane_brings_slots_to_a_shared_queue),
		cmocka_unit_test(a_queue_that_may_have_lost_half_its_receives_takes_no_new_lane),
		cmocka_unit_test(lanes_that_lost_nothing_leave_the_queue_as_it_was),
		cmocka_unit_test(receives_that_a_lane_holds_are_posted_again),
		cmocka_unit_test(a_queue_that_the_device_reports_broken_is_left),
		cmocka_unit_test(where_queues_are_not_shared_a_lane_has_its_own_slots),
	};

	ports_of("ib0:ib;own:ib,max_srq=0");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
