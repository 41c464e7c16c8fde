/* SPDX-License-Identifier: BSD-3-Clause */
/* test_nccl.c - variables of NCCL's own transports: numbers as NCCL reads them, and one INFO line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/param.h"

static char said[8192];
static unsigned lines;

static void keep(enum braid_log_level level, const char *file, int line, const char *text)
{
	size_t at = strlen(said);

	(void)file, (void)line;
	assert_int_equal(level, BRAID_LOG_INFO);
	lines++;
	snprintf(said + at, sizeof(said) - at, "%s\n", text);
}

static int begin(void **state)
{
	(void)state;
	lines = 0;
	said[0] = 0;
	for (unsigned i = 0; i < braid_nccl_count; i++)
		unsetenv(braid_nccl_rows[i].name);
	braid_log_to(keep);
	return 0;
}

static int end(void **state)
{
	(void)state;
	braid_log_to(NULL);
	return 0;
}

static void numbers_are_decimal_hex_or_octal(void **state)
{
	static const struct {
		const char *text;
		int ret;
		int64_t value;
	} rows[] = {
		{ "0", 0, 0 }, { "-1", 0, -1 }, { "0x10", 0, 16 }, { "010", 0, 8 },
		{ " 7", 0, 7 }, { "7 ", 0, 7 }, { "7\n", 0, 7 },
		{ "7 8", 1, 7 }, { "7x", 1, 7 }, { "", 1, 0 }, { "x", 1, 0 },
		{ "9223372036854775807", 0, INT64_MAX },
		{ "-9223372036854775808", 0, INT64_MIN },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int64_t v = 99;

		assert_int_equal(braid_nccl_number(rows[i].text, &v), rows[i].ret);
		assert_true(v == rows[i].value);
	}
}

static void a_number_of_more_than_64_bits_is_a_range_error(void **state)
{
	int64_t v = 99;

	(void)state;
	assert_int_equal(braid_nccl_number("9223372036854775808", &v), -ERANGE);
	assert_int_equal(v, 99);
}

static void variables_that_are_not_set_are_not_reported(void **state)
{
	(void)state;
	setenv("NCCL_IB_USE_INLINE", "", 1);
	braid_nccl_log_ignored();
	assert_int_equal(lines, 0);
}

static void what_is_set_is_named_with_its_value_and_the_reason(void **state)
{
	(void)state;
	setenv("NCCL_IB_USE_INLINE", "1", 1);
	braid_nccl_log_ignored();
	assert_int_equal(lines, 1);
	assert_non_null(strstr(said, "not heeded: NCCL_IB_USE_INLINE=1 (small messages are inline"));
}

static void all_at_once_take_several_lines_and_none_is_cut(void **state)
{
	char value[200];

	(void)state;
	memset(value, 'v', sizeof(value));
	value[sizeof(value) - 1] = 0;
	for (unsigned i = 0; i < braid_nccl_count; i++)
		setenv(braid_nccl_rows[i].name, value, 1);
	braid_nccl_log_ignored();
	assert_in_range(lines, 2, braid_nccl_count);
	for (unsigned i = 0; i < braid_nccl_count; i++) {
		char want[200];

		snprintf(want, sizeof(want), "%s=%.40s (%s)", braid_nccl_rows[i].name, value,
			 braid_nccl_rows[i].why);
		assert_non_null(strstr(said, want));
	}
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(numbers_are_decimal_hex_or_octal),
		CASE(a_number_of_more_than_64_bits_is_a_range_error),
		CASE(variables_that_are_not_set_are_not_reported),
		CASE(what_is_set_is_named_with_its_value_and_the_reason),
		CASE(all_at_once_take_several_lines_and_none_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
