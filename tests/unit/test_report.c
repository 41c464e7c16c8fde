/* SPDX-License-Identifier: BSD-3-Clause */
/* test_report.c - JSON is well-formed whatever the strings in them are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/flight.h"
#include "core/base/self.h"
#include "core/setup/links.h"
#include "core/watch/report.h"

static void text_grows_as_it_must(void **state)
{
	struct braid_text t = { 0 };
	char line[3000];

	(void)state;
	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = 0;
	for (int i = 0; i < 100; i++)
		braid_text_add(&t, "%s\n", line);
	assert_false(t.bad);
	assert_int_equal(t.len, 100 * sizeof(line));
	assert_int_equal(strlen(t.p), t.len);
	braid_text_free(&t);
	assert_null(t.p);
}

/* The name of a host or an interface, or a parameter, may hold anything. */
static void a_string_is_valid_json_with_question_marks_for_what_is_not_ascii(void **state)
{
	static const char *const odd[][2] = {
		{ "", "" }, { "plain", "plain" }, { "\"", "\"" }, { "\\", "\\" },
		{ "a\"b\\c", "a\"b\\c" }, { "\n\t\r\x01\x1f", "?????" },
		{ "gr\xc3\xbcn", "gr??n" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		struct braid_text t = { 0 };
		json_t *j;

		braid_text_string(&t, odd[i][0]);
		j = json_loadb(t.p, t.len, JSON_DECODE_ANY, NULL);
		assert_non_null(j);
		assert_string_equal(json_string_value(j), odd[i][1]);
		json_decref(j);
		braid_text_free(&t);
	}
}

static json_t *report(bool all)
{
	struct braid_text t = { 0 };
	json_error_t err;
	json_t *j;

	assert_int_equal(braid_report_json(&t, all), 0);
	j = json_loadb(t.p, t.len, 0, &err);
	if (!j)
		fail_msg("%s: %s", err.text, t.p);
	braid_text_free(&t);
	return j;
}

static void a_process_without_links_has_a_report(void **state)
{
	json_t *j;

	(void)state;
	braid_self.pid = 4711;
	braid_links_init();
	j = report(false);
	assert_int_equal(json_integer_value(json_object_get(j, "pid")), 4711);
	assert_int_equal(json_array_size(json_object_get(j, "links")), 0);
	assert_null(json_object_get(j, "events"));
	json_decref(j);
}

static void a_dump_has_the_last_events(void **state)
{
	json_t *j, *events;

	(void)state;
	braid_event(BRAID_EVENT_LINK_UP, 3, BRAID_FLIGHT_NONE, 2, 0);
	j = report(true);
	events = json_object_get(j, "events");
	assert_int_equal(json_array_size(events), 1);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(events, 0), "link")), 3);
	json_decref(j);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_grows_as_it_must),
		cmocka_unit_test(a_string_is_valid_json_with_question_marks_for_what_is_not_ascii),
		cmocka_unit_test(a_process_without_links_has_a_report),
		cmocka_unit_test(a_dump_has_the_last_events),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
