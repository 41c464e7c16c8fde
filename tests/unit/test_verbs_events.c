/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_events.c - what a device reports: verbs/events.c. */
#include "tests/unit/ports.h"

#include <stdio.h>

#include "verbs/events.h"

static void a_port_that_goes_down_is_not_usable_until_it_is_up(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");

	(void)state;
	assert_true(braid_ibport_usable(dev));
	ports_ctl("port ib0 down");
	UNTIL(!braid_ibport_usable(dev));
	ports_ctl("port ib0 up");
	UNTIL(braid_ibport_usable(dev));
}

static void an_event_concerns_the_port_that_it_names(void **state)
{
	(void)state;
	ports_ctl("port two/2 down");
	UNTIL(!braid_ibport_usable(dev_named("two:2")));
	assert_true(braid_ibport_usable(dev_named("two:1")));
	ports_ctl("port two/2 up");
	UNTIL(braid_ibport_usable(dev_named("two:2")));
}

static void a_device_without_a_port_is_not_usable(void **state)
{
	struct braid_dev none = { .index = 0 };

	(void)state;
	assert_false(braid_ibport_usable(&none));
}

static void a_new_lid_is_counted(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	unsigned before = atomic_load(&p->moves);

	(void)state;
	ports_ctl("lid ib0 77");
	UNTIL((braid_ibport_events(p), atomic_load(&p->moves) == before + 1));
}

/* With a shared receive queue, no completion shows that a queue pair has failed: the event does. */
static void a_queue_pair_that_fails_is_marked(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct ends e;
	char cmd[64];

	(void)state;
	atomic_store(&p->no_last_wqe, true);
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("two:1")), 0);
	assert_non_null(qp_at(&e.dialler)->srq);
	snprintf(cmd, sizeof(cmd), "qp %u error", qp_at(&e.dialler)->qp->qp_num);
	ports_ctl(cmd);
	UNTIL((braid_ibport_events(p), atomic_load(&qp_at(&e.dialler)->broken)));
	UNTIL((braid_ibport_events(p), atomic_load(&qp_at(&e.dialler)->last_wqe)));
	assert_false(atomic_load(&p->no_last_wqe));
	ends_part(&e);
}

static void a_device_that_dies_takes_all_its_ports_down(void **state)
{
	(void)state;
	ports_ctl("fatal two");
	UNTIL(!braid_ibport_usable(dev_named("two:1")));
	UNTIL(!braid_ibport_usable(dev_named("two:2")));
	assert_true(braid_ibport_usable(dev_named("ib0:1")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_port_that_goes_down_is_not_usable_until_it_is_up),
		cmocka_unit_test(an_event_concerns_the_port_that_it_names),
		cmocka_unit_test(a_device_without_a_port_is_not_usable),
		cmocka_unit_test(a_new_lid_is_counted),
		cmocka_unit_test(a_queue_pair_that_fails_is_marked),
		cmocka_unit_test(a_device_that_dies_takes_all_its_ports_down),
	};

	ports_of("ib0:ib;two:ib,ports=2");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
