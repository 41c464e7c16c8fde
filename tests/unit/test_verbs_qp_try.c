/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_qp_try.c - the first packet of a new queue pair: verbs/qp_try.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <string.h>

static void a_path_that_carries_packets_is_ready(void **state)
{
	struct ends e;
	struct ibv_wc wc;

	(void)state;
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("ib1:1")), 0);
	/* Nothing of it is left for the lane to find. */
	assert_int_equal(ibv_poll_cq(qp_at(&e.dialler)->cq, 1, &wc), 0);
	assert_int_equal(ibv_poll_cq(qp_at(&e.accepter)->cq, 1, &wc), 0);
	ends_part(&e);
}

static void a_path_that_carries_none_is_not(void **state)
{
	struct ends e;

	(void)state;
	ports_ctl("drop ib1 1");
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("ib1:1")), -EHOSTUNREACH);
	assert_non_null(strstr(e.dialler.why, "no packet came through"));
	ports_ctl("drop ib1 0");
	ends_part(&e);
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("ib1:1")), 0);
	ends_part(&e);
	assert_int_equal(ports_ctl("live qp"), 0);
}

static void a_nic_that_takes_no_request_is_reported(void **state)
{
	struct ends e;

	(void)state;
	ports_ctl("fail 1 ibv_post_send");
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("ib1:1")), -EIO);
	ports_ctl("fail 0");
	ends_part(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_path_that_carries_packets_is_ready),
		cmocka_unit_test(a_path_that_carries_none_is_not),
		cmocka_unit_test(a_nic_that_takes_no_request_is_reported),
	};

	ports_of("ib0:ib;ib1:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
