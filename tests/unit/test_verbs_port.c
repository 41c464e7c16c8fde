/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_port.c - ports are found, and given to devices: verbs/port.c. */
#include "tests/unit/ports.h"

#include <string.h>

static void a_roce_port_belongs_to_the_interface_whose_address_it_has(void **state)
{
	struct braid_dev *dev = dev_named("roce0:1");

	(void)state;
	assert_ptr_equal(dev, &ports_dev[0]);
	assert_string_equal(dev->addr, "127.0.0.1");
	assert_int_equal(braid_ibport_of(dev)->fabric, BRAID_FABRIC_ROCE);
	assert_true(dev->mr_max > 0);
}

static void an_infiniband_port_without_an_interface_is_a_device_of_its_own(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");

	(void)state;
	assert_ptr_not_equal(dev, &ports_dev[0]);
	assert_ptr_equal(dev->member[0], dev);
	assert_ptr_equal(dev->port[BRAID_TRANSPORT_TCP], dev);
	assert_true(dev->net.guid != 0);
}

static void each_port_of_a_nic_is_found(void **state)
{
	(void)state;
	assert_int_equal(port_named("two:1")->num, 1);
	assert_int_equal(port_named("two:2")->num, 2);
	assert_int_not_equal(dev_named("two:1")->net.port, dev_named("two:2")->net.port);
}

static void whether_immediate_data_arrives_is_tried(void **state)
{
	(void)state;
	assert_true(port_named("ib0:1")->imm);
}

static void a_port_that_is_not_used_has_a_reason(void **state)
{
	(void)state;
	assert_non_null(strstr(ports_why, "efa0 has no RC queue pairs"));
	assert_non_null(strstr(ports_why, "far:1 has no GID of an interface that is used"));
	assert_non_null(strstr(ports_why, "tiny:1 takes 16 work requests a queue pair"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_roce_port_belongs_to_the_interface_whose_address_it_has),
		cmocka_unit_test(an_infiniband_port_without_an_interface_is_a_device_of_its_own),
		cmocka_unit_test(each_port_of_a_nic_is_found),
		cmocka_unit_test(whether_immediate_data_arrives_is_tried),
		cmocka_unit_test(a_port_that_is_not_used_has_a_reason),
	};

	ports_of("ib0:ib;" \
		 "roce0:rocev2,netdev=lo;" \
		 "far:rocev2,addr=192.0.2.9;" \
		 "efa0:efa;" \
		 "two:ib,ports=2;" \
		 "tiny:ib,max_wr=16");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
