/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_direct.c - Data Direct: verbs/direct.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "verbs/direct.h"

static char path[PATH_MAX], why[160];

static int find(const char *name)
{
	path[0] = why[0] = '\0';
	return braid_direct_find(port_named(name)->ctx, path, sizeof(path), why, sizeof(why));
}

static void a_nic_of_another_driver_has_none(void **state)
{
	(void)state;
	assert_int_equal(find("plain:1"), -ENODEV);
	assert_string_equal(why, "");
}

static void an_older_card_of_that_driver_has_none(void **state)
{
	(void)state;
	assert_int_equal(find("mlx:1"), -ENODEV);
}

static void the_second_function_is_found_below_sys(void **state)
{
	(void)state;
	assert_int_equal(find("cx8:1"), 0);
	assert_int_equal(strncmp(path, "/sys/", 5), 0);
	assert_non_null(strstr(path, "0000:04:00.1"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_nic_of_another_driver_has_none),
		cmocka_unit_test(an_older_card_of_that_driver_has_none),
		cmocka_unit_test(the_second_function_is_found_below_sys),
	};

	ports_of("plain:ib;mlx:ib,path=0000:03:00.0,driver=mlx5_core;"
		 "cx8:ib,path=0000:04:00.0,driver=mlx5_core,direct=1,dmabuf=1");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
