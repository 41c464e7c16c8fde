/* SPDX-License-Identifier: BSD-3-Clause */
/* test_slab.c - entries stay where they are, are zero at first, and the last one back goes out first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/base/slab.h"

enum { SIZE = 208, MANY = 100 };

static void entries_are_apart_and_zero(void **state)
{
	struct braid_slab s = { 0 };
	char *e[MANY];

	(void)state;
	for (int i = 0; i < MANY; i++) {
		e[i] = braid_slab_get(&s, SIZE);
		assert_non_null(e[i]);
		assert_int_equal((uintptr_t)e[i] % 16, 0);
		for (size_t k = 0; k < SIZE - sizeof(void *); k++)
			assert_int_equal(e[i][k], 0);
		for (size_t k = 0; k < SIZE; k++)
			e[i][k] = (char)i;
	}
	for (int i = 0; i < MANY; i++) {
		for (size_t k = 0; k < SIZE; k++)
			assert_int_equal(e[i][k], (char)i);
	}
	braid_slab_end(&s);
	assert_null(s.free);
}

static void the_last_one_back_is_the_next_one_out(void **state)
{
	struct braid_slab s = { 0 };
	void *a, *b;

	(void)state;
	a = braid_slab_get(&s, SIZE);
	b = braid_slab_get(&s, SIZE);
	braid_slab_put(&s, a, SIZE);
	braid_slab_put(&s, b, SIZE);
	assert_ptr_equal(braid_slab_get(&s, SIZE), b);
	assert_ptr_equal(braid_slab_get(&s, SIZE), a);
	braid_slab_end(&s);
}

static void a_block_holds_as_many_as_fit(void **state)
{
	struct braid_slab s = { 0 };
	void *block;

	(void)state;
	for (size_t n = (BRAID_SLAB_BLOCK - 16) / SIZE; n; n--)
		braid_slab_get(&s, SIZE);
	assert_null(s.free);
	block = s.blocks;
	braid_slab_get(&s, SIZE);
	assert_ptr_not_equal(s.blocks, block);
	braid_slab_end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(entries_are_apart_and_zero),
		cmocka_unit_test(the_last_one_back_is_the_next_one_out),
		cmocka_unit_test(a_block_holds_as_many_as_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
