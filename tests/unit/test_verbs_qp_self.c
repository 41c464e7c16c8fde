/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_qp_self.c - a queue pair that is its own peer: verbs/qp_self.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <string.h>

static char why[160];

static bool proves(const char *name)
{
	struct braid_dev *dev = dev_named(name);

	why[0] = '\0';
	return braid_qp_proves_imm(braid_ibport_of(dev), dev, why, sizeof(why));
}

static void it_is_connected_to_itself(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	const char *failed;
	struct braid_qp *w;

	(void)state;
	assert_int_equal(braid_qp_loop(braid_ibport_of(dev), dev, &w, &failed), 0);
	assert_int_equal(w->qp->state, IBV_QPS_RTS);
	assert_non_null(w->m->slots);
	braid_qp_end(w);
}

static void iwarp_has_none(void **state)
{
	struct braid_dev *dev = dev_named("iw0:1");
	struct braid_qp *w;

	(void)state;
	assert_int_equal(braid_qp_loop(braid_ibport_of(dev), dev, &w, NULL), -EOPNOTSUPP);
}

static void immediate_data_that_arrives_is_used(void **state)
{
	(void)state;
	assert_true(proves("ib0:1"));
}

static void a_nic_that_loses_it_or_its_length_does_without(void **state)
{
	(void)state;
	assert_false(proves("plain:1"));
	assert_non_null(strstr(why, "each write is followed by a message"));
	assert_false(proves("short:1"));
}

static void the_call_that_failed_is_named(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	const char *failed;
	struct braid_qp *w;

	(void)state;
	ports_ctl("fail 1 ibv_create_qp EINVAL on");
	assert_int_equal(braid_qp_loop(braid_ibport_of(dev), dev, &w, &failed), -EINVAL);
	ports_ctl("fail 0");
	assert_string_equal(failed, "ibv_create_qp");
	assert_int_equal(ports_ctl("live cq"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_connected_to_itself),
		cmocka_unit_test(iwarp_has_none),
		cmocka_unit_test(immediate_data_that_arrives_is_used),
		cmocka_unit_test(a_nic_that_loses_it_or_its_length_does_without),
		cmocka_unit_test(the_call_that_failed_is_named),
	};

	ports_of("ib0:ib;plain:ib,imm=0;short:ib,imm=2;iw0:iwarp,netdev=lo");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
