/* SPDX-License-Identifier: BSD-3-Clause */
/* test_pool.c - what pool.h promises: promises within the parameter, buffers of their full size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <string.h>

#include "core/base/param.h"
#include "core/base/pool.h"

enum { BUF_MAX = 1 << 20, THREADS = 4, ROUNDS = 2000 };

static int setup(void **state)
{
	(void)state;
	braid_param.pool = 1000000;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	braid_pool_trim();
	return 0;
}

static void promises_end_where_the_pool_does(void **state)
{
	(void)state;
	assert_int_equal(braid_pool_promise(0), 0);
	assert_int_equal(braid_pool_promise(600000), 600000);
	assert_int_equal(braid_pool_promise(600000), 400000);
	assert_int_equal(braid_pool_promise(600000), 0);
	assert_int_equal(braid_pool_promise(SIZE_MAX), 0);
	braid_pool_unpromise(100);
	assert_int_equal(braid_pool_promise(SIZE_MAX), 100);
	braid_pool_unpromise(1000000);
	assert_int_equal(braid_pool_promise(1000000), 1000000);
	braid_pool_unpromise(1000000);
}

static void a_pool_made_smaller_promises_nothing_more(void **state)
{
	(void)state;
	assert_int_equal(braid_pool_promise(1000000), 1000000);
	braid_param.pool = 1000;
	assert_int_equal(braid_pool_promise(1), 0);
	braid_pool_unpromise(1000000);
	assert_int_equal(braid_pool_promise(5000), 1000);
	braid_pool_unpromise(1000);
}

static void a_buffer_has_room_for_what_was_asked(void **state)
{
	(void)state;
	for (size_t size = 0; size <= BUF_MAX; size = size * 2 + (size % 3)) {
		for (size_t n = size ? size - 1 : 0; n <= size + 1 && n <= BUF_MAX; n++) {
			char *p = braid_pool_get(n);

			assert_non_null(p);
			assert_int_equal((uintptr_t)p % 16, 0);
			memset(p, 0xa5, n);
			braid_pool_put(p, n);
		}
		size += !size;
	}
}

static void memory_given_back_is_used_again(void **state)
{
	void *a, *b, *c;

	(void)state;
	a = braid_pool_get(5000);
	b = braid_pool_get(8192);		/* the same class */
	c = braid_pool_get(8193);		/* the next */
	assert_true(a != b && b != c);
	braid_pool_put(a, 5000);
	braid_pool_put(b, 8192);
	braid_pool_put(c, 8193);
	assert_ptr_equal(braid_pool_get(4097), b);
	assert_ptr_equal(braid_pool_get(8192), a);
	assert_ptr_equal(braid_pool_get(16384), c);
	braid_pool_put(a, 8192);
	braid_pool_put(b, 4097);
	braid_pool_put(c, 16384);
	braid_pool_put(NULL, 12345);		/* harmless */
}

static void trim_gives_everything_back(void **state)
{
	void *p = braid_pool_get(100);

	(void)state;
	braid_pool_put(p, 100);
	braid_pool_trim();		/* a sanitizer sees a leak, or a double free below */
	braid_pool_trim();
	p = braid_pool_get(100);
	assert_non_null(p);
	braid_pool_put(p, 100);
}

static void *churn(void *arg)
{
	size_t size = 200 + 37 * (size_t)(uintptr_t)arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		size_t got = braid_pool_promise(300000);
		char *p = braid_pool_get(size);

		memset(p, (int)(uintptr_t)arg, size);
		for (size_t k = 0; k < size; k++) {
			if (p[k] != (char)(uintptr_t)arg)
				return "two owners of one buffer";
		}
		braid_pool_put(p, size);
		braid_pool_unpromise(got);
	}
	return NULL;
}

static void threads_share_it(void **state)
{
	pthread_t t[THREADS];
	void *why;

	(void)state;
	for (uintptr_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&t[i], NULL, churn, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(t[i], &why);
		assert_null(why);
	}
	assert_int_equal(braid_pool_promise(2000000), 1000000);
	braid_pool_unpromise(1000000);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(promises_end_where_the_pool_does),
		CASE(a_pool_made_smaller_promises_nothing_more),
		CASE(a_buffer_has_room_for_what_was_asked),
		CASE(memory_given_back_is_used_again),
		CASE(trim_gives_everything_back),
		CASE(threads_share_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
