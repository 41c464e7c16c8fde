/* SPDX-License-Identifier: BSD-3-Clause */
/* test_link_woken.c - links that are woken are handed out, each once, and not after their end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/link/link.h"
#include "core/link/link_int.h"

static struct braid_link a, b, c;

static void each_link_is_handed_out_once(void **state)
{
	(void)state;
	assert_null(braid_link_woken());
	braid_link_wake(&a);
	braid_link_wake(&b);
	braid_link_wake(&a);
	assert_ptr_equal(braid_link_woken(), &b);
	assert_ptr_equal(braid_link_woken(), &a);
	assert_null(braid_link_woken());
	braid_link_wake(&a);
	assert_ptr_equal(braid_link_woken(), &a);
}

static void a_link_that_ends_is_not_handed_out(void **state)
{
	(void)state;
	braid_link_wake(&a);
	braid_link_wake(&b);
	braid_link_wake(&c);
	braid_link_forget_woken(&b);
	assert_ptr_equal(braid_link_woken(), &c);
	braid_link_forget_woken(&a);
	assert_null(braid_link_woken());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_link_is_handed_out_once),
		cmocka_unit_test(a_link_that_ends_is_not_handed_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
