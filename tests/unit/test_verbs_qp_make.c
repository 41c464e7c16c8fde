/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_qp_make.c - the NIC's objects for a lane: verbs/qp_make.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <string.h>

static struct braid_qp *new_qp(const char *name)
{
	struct braid_dev *dev = dev_named(name);
	struct braid_qp *w = braid_qp_new(braid_ibport_of(dev), dev);

	assert_non_null(w);
	return w;
}

static void a_queue_pair_has_a_queue_for_sends_and_receives(void **state)
{
	struct braid_qp *w = new_qp("ib0:1");

	(void)state;
	assert_int_equal(braid_qp_fill(w, false), 0);
	assert_non_null(w->qp);
	assert_non_null(w->cq);
	assert_non_null(w->srq);
	assert_null(w->m->slots);
	assert_ptr_equal(w->qp->qp_context, w);
	assert_true(w->inline_max >= BRAID_INLINE);
	braid_qp_end(w);
	assert_int_equal(ports_ctl("live cq"), 0);
	assert_int_equal(ports_ctl("live channel"), 0);
}

static void its_own_receives_are_posted_all_at_once(void **state)
{
	struct braid_qp *w = new_qp("ib0:1");

	(void)state;
	assert_int_equal(braid_qp_fill(w, true), 0);
	assert_null(w->srq);
	assert_non_null(w->m->slots);
	assert_int_equal(braid_qp_to_init(w, 0), 0);
	assert_int_equal(braid_qp_post_all(w), 0);
	assert_int_not_equal(braid_qp_post_recv(w, w->m->slots->wr), 0);	/* it is full */
	braid_qp_end(w);
}

static void a_device_that_takes_less_inline_is_asked_for_less(void **state)
{
	struct braid_qp *w = new_qp("lean:1");

	(void)state;
	assert_int_equal(braid_qp_fill(w, false), 0);
	assert_int_equal(w->inline_max, 64);
	braid_qp_end(w);
}

static void a_limit_that_is_reached_is_reported(void **state)
{
	struct braid_qp *first = new_qp("full:1"), *w = new_qp("full:1");

	(void)state;
	assert_int_equal(braid_qp_fill(first, false), 0);
	warns_clear();
	assert_int_equal(braid_qp_fill(w, false), -ENOMEM);
	assert_string_equal(w->failed, "ibv_create_qp");
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "[rdma-limit]"));
	braid_qp_end(w);
	braid_qp_end(first);
}

static void nothing_is_made_for_an_owner_that_has_gone(void **state)
{
	struct braid_qp *w = new_qp("ib0:1");

	(void)state;
	atomic_store(&w->gone, true);
	assert_int_equal(braid_qp_fill(w, false), -ECANCELED);
	assert_null(w->qp);
	braid_qp_end(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_queue_pair_has_a_queue_for_sends_and_receives),
		cmocka_unit_test(its_own_receives_are_posted_all_at_once),
		cmocka_unit_test(a_device_that_takes_less_inline_is_asked_for_less),
		cmocka_unit_test(a_limit_that_is_reached_is_reported),
		cmocka_unit_test(nothing_is_made_for_an_owner_that_has_gone),
	};

	ports_of("ib0:ib;lean:ib,max_inline=64;full:ib,max_qp=1");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
