/* SPDX-License-Identifier: BSD-3-Clause */
/* test_verbs_hca.c - which ports the user wants: verbs/hca.c. */
#include "tests/unit/ports.h"

#include <errno.h>
#include <string.h>

#include "core/base/param.h"
#include "verbs/hca.h"

/* Of the three NICs, as the probe asks for them: "a0c0". */
static const char *taken(const char *filter)
{
	static const char *const names[] = { "a0:1", "b0:1", "c0:1" };
	static char text[64];
	int16_t rail, plane;

	strcpy(braid_param.ib_hca, filter);
	warns_clear();
	text[0] = '\0';
	braid_hca_begin();
	for (unsigned i = 0; i < 3; i++) {
		if (braid_hca_selects(port_named(names[i])->ctx, 1, &rail, &plane))
			strncat(text, names[i], 2);
	}
	braid_hca_end();
	return text;
}

static void without_a_filter_all_are_taken(void **state)
{
	(void)state;
	assert_string_equal(taken(""), "a0b0c0");
	assert_int_equal(warn_count, 0);
}

static void a_filter_takes_or_leaves_out(void **state)
{
	(void)state;
	assert_string_equal(taken("a0,c0"), "a0c0");
	assert_string_equal(taken("=b0:1"), "b0");
	assert_string_equal(taken("^a0"), "b0c0");
	assert_int_equal(warn_count, 0);
}

static void an_element_that_matches_nothing_is_named(void **state)
{
	(void)state;
	assert_string_equal(taken("b0,nosuch"), "b0");
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "nosuch"));
	assert_non_null(strstr(warn_text, "[filter-unmatched]"));
}

static void a_filter_that_leaves_no_port_is_reported(void **state)
{
	(void)state;
	assert_string_equal(taken("^a0,b0,c0"), "");
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "[filter-leaves-none]"));
}

static void a_device_that_may_not_be_opened_is_reported_if_it_is_wanted(void **state)
{
	(void)state;
	strcpy(braid_param.ib_hca, "");
	warns_clear();
	braid_hca_begin();
	braid_hca_closed(port_named("a0:1")->ctx->device, ENODEV);
	assert_int_equal(warn_count, 0);
	braid_hca_closed(port_named("a0:1")->ctx->device, EPERM);
	assert_int_equal(warn_count, 1);
	assert_non_null(strstr(warn_text, "[device-not-opened]"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_a_filter_all_are_taken),
		cmocka_unit_test(a_filter_takes_or_leaves_out),
		cmocka_unit_test(an_element_that_matches_nothing_is_named),
		cmocka_unit_test(a_filter_that_leaves_no_port_is_reported),
		cmocka_unit_test(a_device_that_may_not_be_opened_is_reported_if_it_is_wanted),
	};

	ports_of("a0:ib;b0:ib;c0:ib");
	return cmocka_run_group_tests(tests, ports_up, ports_down);
}
