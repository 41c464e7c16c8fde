/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_qp_mem.c - the registered memory of a queue pair: verbs/qp_mem.c. */
#include "tests/unit/ports.h"

#include <stdlib.h>

enum { KEPT = 8 };			/* by a port: SPARE_MAX */

static void memory_is_kept_for_the_next_queue_pair(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct braid_qp_memory *m = braid_qp_memory(p, false);

	(void)state;
	assert_non_null(m);
	assert_non_null(m->bounce_mr);
	assert_non_null(m->ack_mr);
	atomic_store(&m->ack[0], 5);
	atomic_store(&m->ack[1], 6);
	braid_qp_memory_put(p, m);
	assert_ptr_equal(braid_qp_memory(p, false), m);
	assert_int_equal(atomic_load(&m->ack[0]), 0);
	assert_int_equal(atomic_load(&m->ack[1]), 0);
	braid_qp_memory_put(p, m);
}

static void a_port_keeps_the_memory_of_some_queue_pairs_only(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct braid_qp_memory *m[KEPT + 2];

	(void)state;
	for (unsigned i = 0; i < KEPT + 2; i++)
		m[i] = braid_qp_memory(p, false);
	for (unsigned i = 0; i < KEPT + 2; i++)
		braid_qp_memory_put(p, m[i]);
	assert_int_equal(p->nspare, KEPT);
}

static void slots_come_only_where_receives_are_not_shared(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct braid_qp_memory *m = braid_qp_memory(p, true);

	(void)state;
	assert_non_null(m->slots);
	braid_qp_memory_put(p, m);	/* the next lane shares receives, so they go */
	m = braid_qp_memory(p, false);
	assert_null(m->slots);
	braid_qp_memory_put(p, m);
}

static void memory_that_can_not_be_registered_is_none(void **state)
{
	struct braid_ibport *p = port_named("ib0:1");
	struct braid_qp_memory *spare = p->spare;

	(void)state;
	p->spare = NULL;
	ports_ctl("fail 1 ibv_reg_mr ENOMEM on");
	assert_null(braid_qp_memory(p, false));
	ports_ctl("fail 0");
	p->spare = spare;
}

static void a_job_registers_a_ring(void **state)
{
	static char ring[4096];
	struct ends e;
	struct braid_qp *w;

	(void)state;
	assert_int_equal(ends_meet(&e, dev_named("ib0:1"), dev_named("ib0:1")), 0);
	w = qp_at(&e.dialler);
	assert_int_equal(braid_qp_ring(w, ring, sizeof(ring)), 0);
	assert_ptr_equal(w->ring, ring);
	jobs_done(e.dialler.dev);
	assert_non_null(atomic_load(&w->rings->mr));
	ends_part(&e);
	assert_int_equal(ports_ctl("live qp"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_is_kept_for_the_next_queue_pair),
		cmocka_unit_test(a_port_keeps_the_memory_of_some_queue_pairs_only),
		cmocka_unit_test(slots_come_only_where_receives_are_not_shared),
		cmocka_unit_test(memory_that_can_not_be_registered_is_none),
		cmocka_unit_test(a_job_registers_a_ring),
	};

	ports_of("ib0:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
