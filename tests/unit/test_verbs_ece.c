/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_ece.c - options that both ends' drivers agree on: verbs/ece.c. */
#include "tests/unit/ports.h"

#include "core/base/param.h"

static void the_options_that_both_have_are_used(void **state)
{
	struct ends e;

	(void)state;
	assert_int_equal(ends_meet(&e, dev_named("new0:1"), dev_named("new1:1")), 0);
	assert_int_equal(qp_at(&e.accepter)->mine.ece_options, 6 & 3);
	assert_true(qp_at(&e.dialler)->ece);
	assert_int_equal(ports_ctl("ece"), 6 & 3);
	ends_part(&e);
}

static void an_end_without_options_sends_none(void **state)
{
	struct ends e;

	(void)state;
	assert_int_equal(ends_meet(&e, dev_named("new0:1"), dev_named("old:1")), 0);
	assert_int_equal(qp_at(&e.accepter)->mine.ece_vendor, 0);
	assert_false(qp_at(&e.dialler)->ece);
	ends_part(&e);
}

static void the_user_may_leave_them_out(void **state)
{
	struct ends e;

	(void)state;
	braid_param.ib_ece = 0;
	assert_int_equal(ends_meet(&e, dev_named("new0:1"), dev_named("new1:1")), 0);
	assert_int_equal(qp_at(&e.dialler)->mine.ece_vendor, 0);
	braid_param.ib_ece = 1;
	ends_part(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_options_that_both_have_are_used),
		cmocka_unit_test(an_end_without_options_sends_none),
		cmocka_unit_test(the_user_may_leave_them_out),
	};

	ports_of("new0:ib,ece=6;new1:ib,ece=3;old:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
