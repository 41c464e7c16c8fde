/* SPDX-License-Identifier: BSD-3-Clause */
/* test_mrcache.c - what mrcache.h promises, of a NIC that counts, beside a list that is searched. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/link/link.h"
#include "core/base/log.h"
#include "core/mem/mrcache.h"
#include "core/base/param.h"

enum { STEPS = 100000, FEW = 5000, HELD = 64, PAGES = 200, LONGEST = 20, PAGE = 4096 };

static unsigned asked, given, fails;	/* fails: registrations that fail */
static void *slow;			/* memory with which the NIC takes its time ... */
static atomic_bool in_slow, may_end;	/* ... and is at it; until then */

static void take_time(const void *data)
{
	if (!slow || data != slow)
		return;
	atomic_store(&in_slow, true);
	while (!atomic_load(&may_end))
		sched_yield();
}

static bool send_only;			/* of the last registration */

static int nic_reg(struct braid_dev *dev, const struct braid_mem *mem, struct braid_key *ret)
{
	(void)dev;
	take_time(mem->data);
	send_only = mem->send_only;
	asked++;
	if (fails)
		return -EIO;
	given++;
	*ret = (struct braid_key){ .mr = mem->data, .local = asked, .remote = asked };
	return 0;
}

static void nic_dereg(struct braid_dev *dev, struct braid_key *key)
{
	(void)dev;
	take_time(key->mr);
	given--;
}

static const struct braid_transport nic = { .name = "nic", .dma = true, .reg = nic_reg, .dereg = nic_dereg };
static struct braid_dev dev;
static struct braid_link link = { .key.dev = &dev };
static char warn[BRAID_LOG_MAX];

static void hear(enum braid_log_level level, const char *file, int line, const char *text)
{
	(void)file, (void)line;
	if (level == BRAID_LOG_WARN)
		snprintf(warn, sizeof(warn), "%s", text);
}

static int setup(void **state)
{
	(void)state;
	dev = (struct braid_dev){ .net.name = "nic0:1", .nmembers = 1, .member = { &dev }, .best = &nic };
	asked = given = fails = 0;
	braid_param.mr_max = braid_param.mr_bytes = braid_param.rdma_strict = 0;
	braid_log_to(hear);
	return 0;
}

/* Pages `beg` to `end`, which nobody touches. */
static struct braid_mr *reg_as(unsigned beg, unsigned end, bool for_send)
{
	struct braid_mem mem = { .data = (void *)(uintptr_t)((beg + 1) * PAGE),
				 .size = (size_t)(end - beg) * PAGE, .fd = -1,
				 .send_only = for_send };
	struct braid_mr *mr;

	assert_int_equal(braid_mr_new(link.key.dev, &mem, &mr), 0);
	return mr;
}

static struct braid_mr *reg(unsigned beg, unsigned end)
{
	return reg_as(beg, end, false);
}

static struct braid_mr_stats stats(void)
{
	struct braid_mr_stats s;

	braid_mr_stats(&dev, &s);
	return s;
}

static void host_memory_is_given_to_no_nic_when_strict(void **state)
{
	struct braid_mr *mr;

	(void)state;
	braid_param.rdma_strict = 1;
	mr = reg(0, 4);
	assert_null(mr->key[0].mr);
	assert_int_equal(asked, 0);
	assert_int_equal(stats().refused, 0);
	braid_mr_free(mr);
}

static void a_covering_registration_is_shared_or_the_nic_registers(void **state)
{
	struct braid_mr *a = reg(0, 4), *b = reg(1, 3), *c = reg(3, 5), *d = reg(0, 4);

	(void)state;
	assert_int_equal(asked, 2);
	assert_int_equal(a->key[0].remote, b->key[0].remote);
	assert_int_equal(a->key[0].remote, d->key[0].remote);
	assert_int_not_equal(a->key[0].remote, c->key[0].remote);
	braid_mr_free(a);
	braid_mr_free(d);
	assert_int_equal(given, 2);		/* b has it still */
	braid_mr_free(b);
	assert_int_equal(given, 1);
	a = reg(1, 2);
	assert_int_equal(asked, 3);
	braid_mr_free(a);
	braid_mr_free(c);
	assert_int_equal(given, 0);
}

/* A peer must not write memory that is only sent from; what it may write can be sent from, too. */
static void a_receive_shares_no_registration_of_a_send(void **state)
{
	struct braid_mr *s = reg_as(0, 4, true), *t = reg_as(1, 2, true), *r, *u;

	(void)state;
	assert_int_equal(asked, 1);
	assert_true(send_only);
	r = reg_as(0, 2, false);
	assert_int_equal(asked, 2);
	assert_false(send_only);
	assert_int_not_equal(r->key[0].remote, s->key[0].remote);
	u = reg_as(0, 1, true);
	assert_int_equal(asked, 2);
	braid_mr_free(s);
	braid_mr_free(t);
	braid_mr_free(r);
	braid_mr_free(u);
	assert_int_equal(given, 0);
}

/*
 * Peers' NICs may read a window, and no host memory that is no window.  A GPU's memory is always
 * registered so that NICs read it, which a flush needs.
 */
static void a_window_shares_a_registration_that_may_be_read(void **state)
{
	static const struct braid_gpu gpu = { .reg = nic_reg };
	struct braid_mem mem = { .data = (void *)PAGE, .size = PAGE, .fd = -1 };
	static struct braid_transport with;
	struct braid_mr *m[6];

	(void)state;
	with = nic;
	with.gpu = &gpu;
	dev.best = &with;
	for (unsigned i = 0; i < 6; i++) {	/* each: plain, a window, plain again */
		mem.gpu = i >= 3;
		mem.gpu_id = mem.gpu ? 7 : 0;
		mem.gpu_index = -1;
		mem.readable = i % 3 == 1;
		assert_int_equal(braid_mr_new(link.key.dev, &mem, &m[i]), 0);
		assert_int_equal(asked, i == 0 ? 1 : i < 3 ? 2 : 3);
	}
	for (unsigned i = 0; i < 6; i++)
		braid_mr_free(m[i]);
	assert_int_equal(given, 0);
}

/* The ranges that were registered with the NIC, by key. */
static struct { unsigned beg, end; } ranges[STEPS + 1];

static bool covers(const struct braid_mr *mr, unsigned beg, unsigned end)
{
	return mr && ranges[mr->key[0].remote].beg <= beg && ranges[mr->key[0].remote].end >= end;
}

/* Any covering registration may be used; but whether there is one must agree with the list. */
static void any_order_of_calls_ends_as_in_a_list(void **state)
{
	static struct braid_mr *held[HELD];
	uint64_t hits = 0, misses = 0;

	(void)state;
	for (unsigned i = 0; i < STEPS; i++) {
		unsigned k = (unsigned)rand() % HELD, beg = (unsigned)rand() % PAGES;
		unsigned end = beg + 1 + (unsigned)rand() % LONGEST, before = asked;
		bool there = false;
		struct braid_mr *mr;

		if (held[k]) {
			braid_mr_free(held[k]);
			held[k] = NULL;
			continue;
		}
		for (unsigned j = 0; j < HELD; j++)
			there |= covers(held[j], beg, end);
		mr = held[k] = reg(beg, end);
		assert_int_equal(asked == before, there);
		if (!there) {
			ranges[mr->key[0].remote].beg = beg;
			ranges[mr->key[0].remote].end = end;
		}
		assert_true(covers(mr, beg, end));
		*(there ? &hits : &misses) += 1;
	}
	for (unsigned k = 0; k < HELD; k++) {
		if (held[k])
			braid_mr_free(held[k]);
	}
	assert_int_equal(given, 0);
	assert_null(dev.mrs);
	assert_int_equal(stats().hits, hits);
	assert_int_equal(stats().misses, misses);
	assert_true(hits > FEW && misses > FEW);
}

static void they_are_counted(void **state)
{
	struct braid_mr *a = reg(0, 4), *b = reg(1, 3), *c = reg(8, 9);
	struct braid_mr_stats s = stats();

	(void)state;
	assert_int_equal(s.hits, 1);
	assert_int_equal(s.misses, 2);
	assert_int_equal(s.refused, 0);
	assert_int_equal(s.alive, 2);
	assert_int_equal(s.bytes, 5 * PAGE);
	braid_mr_free(b);
	braid_mr_free(a);
	fails = 1;
	a = reg(20, 24);
	s = stats();
	assert_int_equal(s.misses, 3);
	assert_int_equal(s.refused, 1);
	assert_int_equal(s.alive, 1);
	assert_int_equal(s.bytes, PAGE);
	assert_int_equal(s.most_alive, 2);
	assert_int_equal(s.most_bytes, 5 * PAGE);
	assert_null(a->cached[0]);
	braid_mr_free(a);
	braid_mr_free(c);
	assert_int_equal(stats().alive, 0);
	assert_int_equal(stats().bytes, 0);
}

static void beyond_the_ports_limit_no_nic_is_asked(void **state)
{
	struct braid_mr *a, *b, *c;

	(void)state;
	dev.mr_max = 1;
	a = reg(0, 4);
	b = reg(2, 5);
	c = reg(2, 4);				/* registered already: no room is needed */
	assert_int_equal(asked, 1);
	assert_null(b->cached[0]);
	assert_non_null(c->cached[0]);
	assert_non_null(strstr(warn, "1 registrations of 16384 bytes"));
	assert_non_null(strstr(warn, "BRAID_MR_MAX"));
	braid_mr_free(c);
	braid_mr_free(b);
	braid_mr_free(a);
	a = reg(2, 5);
	assert_non_null(a->cached[0]);
	braid_mr_free(a);
}

static void the_parameter_stands_above_the_port(void **state)
{
	struct braid_mr *a, *b;

	(void)state;
	dev.mr_max = 1;
	braid_param.mr_max = 2;
	a = reg(0, 4);
	b = reg(4, 8);
	assert_non_null(b->cached[0]);
	braid_mr_free(b);
	braid_mr_free(a);
}

static void bytes_have_a_limit_too(void **state)
{
	struct braid_mr *a, *b, *c, *d;

	(void)state;
	braid_param.mr_bytes = 6 * PAGE;
	a = reg(0, 4);
	b = reg(10, 13);
	c = reg(10, 12);
	d = reg(10, 17);
	assert_null(b->cached[0]);
	assert_non_null(c->cached[0]);
	assert_null(d->cached[0]);
	assert_int_equal(asked, 2);
	assert_int_equal(stats().refused, 2);
	braid_mr_free(d);
	braid_mr_free(c);
	braid_mr_free(b);
	braid_mr_free(a);
}

/* Nobody else can touch it, so there it is an error, and each time one line. */
/* It is not asked: there is no room. */
static const struct braid_gpu with_gpus;

static void of_gpu_memory_it_is_an_error_with_its_reason(void **state)
{
	struct braid_mem mem = { .data = (void *)PAGE, .size = PAGE, .gpu = true, .fd = -1 };
	static struct braid_transport with;
	struct braid_mr *a, *mr;

	(void)state;
	with = nic;
	with.gpu = &with_gpus;
	dev.best = &with;
	dev.mr_max = 1;
	a = reg(8, 12);
	for (unsigned i = 0; i < 2; i++) {
		warn[0] = '\0';
		assert_int_equal(braid_mr_new(link.key.dev, &mem, &mr), -ENOSPC);
		assert_non_null(strstr(warn, "4096 bytes of a GPU"));
	}
	braid_mr_free(a);
}

static void *reg_slowly(void *ret)
{
	*(struct braid_mr **)ret = reg(50, 60);
	return NULL;
}

static void *free_slowly(void *mr)
{
	braid_mr_free(mr);
	return NULL;
}

/* A call of the NIC's begins in a thread of its own, and has not come back. */
static pthread_t begin_slowly(void *(*fn)(void *arg), void *arg)
{
	pthread_t thread;

	atomic_store(&in_slow, false);
	atomic_store(&may_end, false);
	slow = (void *)(uintptr_t)(51 * PAGE);
	assert_int_equal(pthread_create(&thread, NULL, fn, arg), 0);
	while (!atomic_load(&in_slow))
		sched_yield();
	return thread;
}

/* What others have, and other NICs' calls, need not wait for it: else this hangs. */
static void others_go_on(struct braid_mr *shared)
{
	struct braid_mr *a = reg(0, 4), *b = reg(10, 14);

	assert_ptr_equal(a->cached[0], shared->cached[0]);
	assert_true(stats().hits > 0);
	braid_mr_free(b);
	braid_mr_free(a);
}

static void a_slow_nic_delays_no_other_nic(void **state)
{
	struct braid_mr *mr, *shared = reg(0, 4);
	pthread_t thread;

	(void)state;
	thread = begin_slowly(reg_slowly, &mr);
	others_go_on(shared);
	assert_int_equal(stats().alive, 2);
	atomic_store(&may_end, true);
	pthread_join(thread, NULL);
	thread = begin_slowly(free_slowly, mr);
	others_go_on(shared);
	assert_int_equal(stats().alive, 2);	/* the NIC still has it */
	atomic_store(&may_end, true);
	pthread_join(thread, NULL);
	slow = NULL;
	braid_mr_free(shared);
	assert_int_equal(stats().alive, 0);
	assert_int_equal(given, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(host_memory_is_given_to_no_nic_when_strict, setup),
		cmocka_unit_test_setup(a_covering_registration_is_shared_or_the_nic_registers, setup),
		cmocka_unit_test_setup(a_receive_shares_no_registration_of_a_send, setup),
		cmocka_unit_test_setup(a_window_shares_a_registration_that_may_be_read, setup),
		cmocka_unit_test_setup(any_order_of_calls_ends_as_in_a_list, setup),
		cmocka_unit_test_setup(they_are_counted, setup),
		cmocka_unit_test_setup(beyond_the_ports_limit_no_nic_is_asked, setup),
		cmocka_unit_test_setup(the_parameter_stands_above_the_port, setup),
		cmocka_unit_test_setup(bytes_have_a_limit_too, setup),
		cmocka_unit_test_setup(of_gpu_memory_it_is_an_error_with_its_reason, setup),
		cmocka_unit_test_setup(a_slow_nic_delays_no_other_nic, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
