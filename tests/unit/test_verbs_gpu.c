/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_gpu.c - which GPU memory a port can use: verbs/gpu.c. */
#include "tests/unit/ports.h"

#include <string.h>

#include "core/base/param.h"
#include "verbs/gpu.h"

static char why[512];

static unsigned probe(const char *name)
{
	why[0] = '\0';
	return braid_ibport_gpu.probe(dev_named(name), why, sizeof(why));
}

static void the_user_may_want_none(void **state)
{
	(void)state;
	strcpy(braid_param.gpu, "none");
	assert_int_equal(probe("ib0:1"), 0);
	assert_string_equal(why, "BRAID_GPU has none");
	strcpy(braid_param.gpu, "pcie,dmabuf,peermem");
}

static void iwarp_can_not_flush(void **state)
{
	(void)state;
	assert_int_equal(probe("iw0:1"), 0);
	assert_non_null(strstr(why, "iWARP has no queue pair to itself"));
}

static void without_a_gpu_nothing_is_offered_and_no_loop_is_kept(void **state)
{
	(void)state;
	assert_int_equal(probe("ib0:1"), 0);
	assert_non_null(strstr(why, "no memory of the GPU to try it with"));
	assert_null(port_named("ib0:1")->loop);
	jobs_done(dev_named("ib0:1"));
	assert_int_equal(ports_ctl("live qp"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_user_may_want_none),
		cmocka_unit_test(iwarp_can_not_flush),
		cmocka_unit_test(without_a_gpu_nothing_is_offered_and_no_loop_is_kept),
	};

	ports_of("ib0:ib;iw0:iwarp,netdev=lo");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
