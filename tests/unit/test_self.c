/* SPDX-License-Identifier: BSD-3-Clause */
/* test_self.c - how this process presents itself to its peers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "core/base/self.h"

static void it_has_its_pid_and_its_hosts_name(void **state)
{
	char host[BRAID_HOST_SIZE] = "";

	(void)state;
	braid_self_init();
	assert_int_equal(braid_self.pid, getpid());
	assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
	assert_string_equal(braid_self.host, host);
}

static void two_processes_have_two_ids(void **state)
{
	struct braid_self first;

	(void)state;
	braid_self_init();
	first = braid_self;
	braid_self_init();
	assert_memory_not_equal(first.process, braid_self.process, BRAID_ID_SIZE);
}

static void processes_of_one_host_have_one_place(void **state)
{
	uint16_t place;

	(void)state;
	braid_self_init();
	place = braid_self.place;
	braid_self_init();
	assert_int_equal(braid_self.place, place);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_has_its_pid_and_its_hosts_name),
		cmocka_unit_test(two_processes_have_two_ids),
		cmocka_unit_test(processes_of_one_host_have_one_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
