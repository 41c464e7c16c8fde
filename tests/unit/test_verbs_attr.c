/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_attr.c - a port's attributes: verbs/attr.c. */
#include "tests/unit/ports.h"

static void speed_lid_and_mtu_are_read(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");

	(void)state;
	assert_int_equal(p->speed_mbps, 100000);
	assert_int_equal(atomic_load(&p->lid), 17);
	assert_int_equal(atomic_load(&p->mtu), IBV_MTU_2048);
}

static void the_speed_that_a_driver_reports_comes_first(void **state)
{
	(void)state;
	assert_int_equal(port_named("fast:1")->speed_mbps, 390000);
}

static void a_change_is_seen_before_the_next_lane(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");

	(void)state;
	ports_ctl("lid ib0 18");
	ports_ctl("mtu ib0 4096");
	braid_ibport_refresh(p);
	assert_int_equal(atomic_load(&p->lid), 18);
	assert_int_equal(atomic_load(&p->mtu), IBV_MTU_4096);
}

static void a_port_that_can_not_be_asked_stays_as_it_was(void **state)
{
	struct braid_ibport *p = port_named("fast:1");
	struct ibv_port_attr attr;
	unsigned lid = atomic_load(&p->lid);

	(void)state;
	ports_ctl("fatal fast");
	assert_int_not_equal(braid_ibport_read(p, &attr), 0);
	braid_ibport_refresh(p);
	assert_int_equal(atomic_load(&p->lid), lid);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(speed_lid_and_mtu_are_read),
		cmocka_unit_test(the_speed_that_a_driver_reports_comes_first),
		cmocka_unit_test(a_change_is_seen_before_the_next_lane),
		cmocka_unit_test(a_port_that_can_not_be_asked_stays_as_it_was),
	};

	ports_of("ib0:ib,speed=100,lid=17,mtu=2048;fast:ib,speed=400,effective=390");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
