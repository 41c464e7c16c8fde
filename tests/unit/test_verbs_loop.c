/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_loop.c - a port's queue pair to itself: verbs/loop.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <string.h>

#include "core/transport.h"
#include "verbs/loop.h"
#include "verbs/mr.h"

static void a_job_makes_it(void **state)
{
	struct braid_dev *dev = dev_named("ib0:1");
	struct braid_ibport *p = braid_ibport_of(dev);
	int err;

	(void)state;
	p->loop_dev = dev;
	UNTIL((err = braid_loop_up(p)) != -EAGAIN);
	assert_int_equal(err, 0);
	assert_non_null(p->loop);
}

static void requests_complete_in_order(void **state)
{
	struct braid_ibport *p = ports_loop();
	char *rx = p->loop->m->slots->rx;
	uint64_t before = p->loop_posted;

	(void)state;
	memcpy(rx, "here", 4);
	assert_int_equal(braid_loop_post(p, IBV_WR_RDMA_WRITE, rx, 4, &ports_key, ports_memory), 0);
	assert_int_equal(braid_loop_post(p, IBV_WR_RDMA_READ, rx + 100, 4, &ports_key, ports_memory), 0);
	assert_int_equal(braid_loop_wait(p), 0);
	assert_true(p->loop_posted == before + 2 && p->loop_done == p->loop_posted);
	assert_memory_equal(ports_memory, "here", 4);
	assert_memory_equal(rx + 100, "here", 4);
}

static void a_failure_drops_it_and_the_next_caller_makes_another(void **state)
{
	struct braid_ibport *p = ports_loop();
	struct braid_gpu_copy c = { .piece = 5, .id = UINT64_MAX };

	(void)state;
	p->copier = &c;
	assert_int_equal(braid_loop_post(p, IBV_WR_RDMA_READ, p->loop->m->slots->rx, 4,
					 &(struct braid_key){ .remote = ~ports_key.remote }, ports_memory), 0);
	assert_int_equal(braid_loop_wait(p), -EIO);
	assert_null(p->loop);
	assert_null(p->copier);
	assert_int_equal(c.piece, 0);
	assert_int_equal(c.err, -EIO);
	assert_int_equal(braid_loop_wait_up(p), 0);
	assert_true(p->loop_base == p->loop_posted);
}

static void after_a_failure_others_avoid_it_for_a_while(void **state)
{
	struct braid_ibport *p = ports_loop();

	(void)state;
	assert_false(braid_loop_is_avoided(p));
	braid_loop_avoid(p);
	assert_true(braid_loop_is_avoided(p));
	p->loop_avoid_ns = 0;
}

static void it_can_be_dropped(void **state)
{
	struct braid_ibport *p = ports_loop();

	(void)state;
	braid_loop_drop(p, 0);
	assert_null(p->loop);
	jobs_done(p->loop_dev);
	assert_int_equal(ports_ctl("live qp"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_makes_it),
		cmocka_unit_test(requests_complete_in_order),
		cmocka_unit_test(a_failure_drops_it_and_the_next_caller_makes_another),
		cmocka_unit_test(after_a_failure_others_avoid_it_for_a_while),
		cmocka_unit_test(it_can_be_dropped),
	};

	ports_of("ib0:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
