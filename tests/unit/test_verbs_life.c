/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_life.c - how a queue pair ends: verbs/life.c. */
#include "tests/unit/ports.h"

static void nothing_is_left_of_a_queue_pair_that_is_freed(void **state)
{
	struct ends e;

	(void)state;
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("ib1:1")), 0);
	assert_int_equal(ports_ctl("live qp"), 2);
	ends_part(&e);
	assert_int_equal(ports_ctl("live qp"), 0);
	assert_int_equal(ports_ctl("live cq"), 0);
	assert_int_equal(ports_ctl("live channel"), 0);
	assert_int_equal(ports_ctl("live srq"), 0);
}

static void the_last_reference_destroys_it(void **state)
{
	struct ends e;
	struct braid_qp *w;

	(void)state;
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("ib1:1")), 0);
	w = qp_at(&e.dialler);
	braid_qp_get(w);
	ends_part(&e);
	assert_int_equal(ports_ctl("live qp"), 1);
	braid_qp_put(w);
	jobs_done(e.dialler.dev);
	assert_int_equal(ports_ctl("live qp"), 0);
}

static void a_fence_stops_it_without_waiting(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	struct braid_stops stops;
	struct ends e;
	struct braid_qp *w;

	(void)state;
	assert_int_equal(ends_meet(&e, dev, dev_named("ib1:1")), 0);
	w = qp_at(&e.dialler);
	ports_ctl("slow ibv_modify_qp:ERR 200");
	braid_qp_fence(w);
	braid_stops_mark(dev, &stops);
	assert_true(w->over);
	assert_false(braid_stops_past(dev, &stops));
	UNTIL(braid_stops_past(dev, &stops));
	assert_int_equal(w->qp->state, IBV_QPS_ERR);
	ports_ctl("slow none");
	braid_qp_fence(w);		/* once is enough */
	ends_part(&e);
}

static void a_command_that_hangs_is_overtaken_by_a_request_that_can_not_succeed(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	struct braid_stops stops;
	struct ends e;

	(void)state;
	assert_int_equal(ends_meet(&e, dev, dev_named("ib1:1")), 0);
	ports_ctl("slow ibv_modify_qp:ERR 3000");
	braid_qp_fence(qp_at(&e.dialler));
	braid_stops_mark(dev, &stops);
	UNTIL(braid_stops_past(dev, &stops));
	assert_true(braid_later_busy(dev, BRAID_STOP));	/* the command has not returned */
	ports_ctl("slow none");
	ends_part(&e);
}

static void a_queue_pair_that_failed_during_set_up_needs_no_stop(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	struct braid_qp *w = braid_qp_new(braid_ibport_of(dev), dev);
	uint64_t before = atomic_load(&dev->stopping.begun);

	(void)state;
	assert_non_null(w);
	braid_qp_free(w);
	braid_qp_free(NULL);
	jobs_done(dev);
	assert_true(atomic_load(&dev->stopping.begun) == before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_left_of_a_queue_pair_that_is_freed),
		cmocka_unit_test(the_last_reference_destroys_it),
		cmocka_unit_test(a_fence_stops_it_without_waiting),
		cmocka_unit_test(a_command_that_hangs_is_overtaken_by_a_request_that_can_not_succeed),
		cmocka_unit_test(a_queue_pair_that_failed_during_set_up_needs_no_stop),
	};

	ports_of("ib0:ib;ib1:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
