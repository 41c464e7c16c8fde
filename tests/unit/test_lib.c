/* SPDX-License-Identifier: BSD-3-Clause */
/* test_lib.c - libraries are picked up at run time, or one line says what to install. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "core/base/lib.h"

static void a_function_of_a_library_can_be_called(void **state)
{
	size_t (*length)(const char *) = NULL;
	char why[200] = "";
	void *lib = braid_lib_open("libc.so.6", "libc6", why, sizeof(why));

	(void)state;
	assert_non_null(lib);
	assert_string_equal(why, "");
	assert_true(braid_lib_find(lib, "strlen", &length));
	assert_int_equal(length("four"), 4);
}

static void a_function_that_is_not_there_is_none(void **state)
{
	void (*f)(void) = (void (*)(void))1;
	char why[200];
	void *lib = braid_lib_open("libc.so.6", "libc6", why, sizeof(why));

	(void)state;
	assert_non_null(lib);
	assert_false(braid_lib_find(lib, "no_such_function", &f));
	assert_null(f);
}

static void a_missing_library_is_named_with_its_package(void **state)
{
	char why[200];

	(void)state;
	assert_null(braid_lib_open("libnowhere.so.7", "nowhere7", why, sizeof(why)));
	assert_non_null(strstr(why, "libnowhere.so.7"));
	assert_non_null(strstr(why, "; install nowhere7"));
}

static void a_short_buffer_gets_a_short_text(void **state)
{
	char why[8];

	(void)state;
	memset(why, 'x', sizeof(why));
	assert_null(braid_lib_open("libnowhere.so.7", "nowhere7", why, sizeof(why)));
	assert_int_equal(strlen(why), sizeof(why) - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_function_of_a_library_can_be_called),
		cmocka_unit_test(a_function_that_is_not_there_is_none),
		cmocka_unit_test(a_missing_library_is_named_with_its_package),
		cmocka_unit_test(a_short_buffer_gets_a_short_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
