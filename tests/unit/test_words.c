/* SPDX-License-Identifier: BSD-3-Clause */
/* test_words.c - how alike names are, and ranges of ports as a user may write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/words.h"

static void the_distance_is_the_fewest_letters_to_change(void **state)
{
	static const struct {
		const char *a, *b;
		unsigned n;
	} rows[] = {
		{ "", "", 0 }, { "lanes", "lanes", 0 }, { "lane", "lanes", 1 }, { "lames", "lanes", 1 },
		{ "lnaes", "lanes", 2 }, { "", "dscp", 4 }, { "pool", "dscp", 4 },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(braid_distance(rows[i].a, rows[i].b), rows[i].n);
		assert_int_equal(braid_distance(rows[i].b, rows[i].a), rows[i].n);
	}
}

static void a_range_is_two_ports_in_order(void **state)
{
	static const struct {
		const char *text;
		unsigned low, high;
	} rows[] = {
		{ "1-65535", 1, 65535 }, { "20000-20099", 20000, 20099 }, { "7-7", 7, 7 }, { "", 0, 0 },
		{ "7", 0, 0 }, { "7-", 0, 0 }, { "-7", 0, 0 }, { "8-7", 0, 0 }, { "0-7", 0, 0 },
		{ "1-65536", 0, 0 }, { " 1-2", 0, 0 }, { "1- 2", 0, 0 }, { "1-2 ", 0, 0 },
		{ "1--2", 0, 0 }, { "1-2,3", 0, 0 }, { "65537-65538", 0, 0 },
		{ "99999999999999999999-7", 0, 0 }, { "7-99999999999999999999", 0, 0 },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint16_t low = 0, high = 0;

		if (!rows[i].low) {
			assert_false(braid_ports_parse(rows[i].text, &low, &high));
			continue;
		}
		assert_true(braid_ports_parse(rows[i].text, &low, &high));
		assert_int_equal(low, rows[i].low);
		assert_int_equal(high, rows[i].high);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_distance_is_the_fewest_letters_to_change),
		cmocka_unit_test(a_range_is_two_ports_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
