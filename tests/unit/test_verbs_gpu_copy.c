/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_gpu_copy.c - copies and flushes through the loop: verbs/gpu_copy.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <string.h>

#include "verbs/gpu.h"
#include "verbs/loop.h"
#include "verbs/mr.h"

static int copy(struct braid_gpu_copy *c)
{
	struct braid_dev *dev = ports_loop()->loop_dev;
	int err;

	UNTIL((err = braid_verbs_gpu_copy(dev, &ports_key, c)) != -EAGAIN);
	return err;
}

static void a_copy_goes_either_way(void **state)
{
	char own[64] = "";
	struct braid_gpu_copy from = { .at = ports_memory, .own = own, .len = 10 };
	struct braid_gpu_copy to = { .at = ports_memory + 500, .own = own, .len = 10, .to_gpu = true };

	(void)state;
	memcpy(ports_memory, "0123456789", 10);
	assert_int_equal(copy(&from), 0);
	assert_memory_equal(own, "0123456789", 10);
	assert_int_equal(copy(&to), 0);
	assert_memory_equal(ports_memory + 500, "0123456789", 10);
}

static void one_that_is_abandoned_leaves_nothing_in_flight(void **state)
{
	char own[64];
	struct braid_dev *dev = ports_loop()->loop_dev;
	struct braid_gpu_copy c = { .at = ports_memory, .own = own, .len = sizeof(own) };

	(void)state;
	assert_int_equal(braid_verbs_gpu_copy(dev, &ports_key, &c), -EAGAIN);
	braid_verbs_gpu_copy_end(dev, &c);
	assert_int_equal(c.piece, 0);
	assert_null(braid_ibport_of(dev)->copier);
}

static void one_that_fails_twice_is_given_up(void **state)
{
	char own[8];
	struct braid_dev *dev = ports_loop()->loop_dev;
	struct braid_ibport *p = braid_ibport_of(dev);
	struct braid_key wrong = { .remote = ~ports_key.remote };
	struct braid_gpu_copy c = { .at = ports_memory, .own = own, .len = sizeof(own) };
	struct braid_gpu_copy next = c;
	int err;

	(void)state;
	UNTIL((err = braid_verbs_gpu_copy(dev, &wrong, &c)) != -EAGAIN);
	assert_int_equal(err, -EIO);
	assert_int_equal(c.tries, 2);
	assert_int_equal(braid_verbs_gpu_copy(dev, &ports_key, &next), -EHOSTDOWN);
	next.insist = true;		/* there is no other way */
	assert_int_equal(copy(&next), 0);
	p->loop_avoid_ns = 0;
}

static void a_flush_is_done_when_its_read_is(void **state)
{
	struct braid_dev *dev = ports_loop()->loop_dev;
	struct braid_gpu_flush f = { .insist = true };
	int err;

	(void)state;
	assert_int_equal(braid_verbs_gpu_flush(dev, &ports_key, ports_memory, &f), -EAGAIN);
	UNTIL((err = braid_verbs_gpu_flush(dev, &ports_key, ports_memory, &f)) != -EAGAIN);
	assert_int_equal(err, 0);
	assert_int_equal(f.tries, 1);
}

static void a_flush_whose_queue_pair_is_dropped_is_repeated(void **state)
{
	struct braid_dev *dev = ports_loop()->loop_dev;
	struct braid_gpu_flush f = { .insist = true };
	int err;

	(void)state;
	assert_int_equal(braid_verbs_gpu_flush(dev, &ports_key, ports_memory, &f), -EAGAIN);
	braid_loop_drop(braid_ibport_of(dev), -EIO);
	UNTIL((err = braid_verbs_gpu_flush(dev, &ports_key, ports_memory, &f)) != -EAGAIN);
	assert_int_equal(err, 0);
	assert_int_equal(f.tries, 2);
}

static void no_caller_waits_for_the_loop(void **state)
{
	char own[8];
	struct braid_dev *dev = ports_loop()->loop_dev;
	struct braid_ibport *p = braid_ibport_of(dev);
	struct braid_gpu_copy c = { .at = ports_memory, .own = own, .len = sizeof(own) };
	struct braid_gpu_flush f = { .insist = true };

	(void)state;
	pthread_mutex_lock(&p->loop_lock);
	assert_int_equal(braid_verbs_gpu_copy(dev, &ports_key, &c), -EAGAIN);
	assert_int_equal(braid_verbs_gpu_flush(dev, &ports_key, ports_memory, &f), -EAGAIN);
	pthread_mutex_unlock(&p->loop_lock);
	assert_int_equal(c.tries + f.tries, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_goes_either_way),
		cmocka_unit_test(one_that_is_abandoned_leaves_nothing_in_flight),
		cmocka_unit_test(one_that_fails_twice_is_given_up),
		cmocka_unit_test(a_flush_is_done_when_its_read_is),
		cmocka_unit_test(a_flush_whose_queue_pair_is_dropped_is_repeated),
		cmocka_unit_test(no_caller_waits_for_the_loop),
	};

	ports_of("ib0:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
