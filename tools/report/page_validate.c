/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * page_validate.c - a page of braid validate: what failed first, then figures, then all checks; of
 * a soak, when which fault came.
 */
#include <string.h>

#include "tools/report/page.h"
#include "tools/text.h"

static const char *mood(const char *result)
{
	return strcmp(result, "pass") == 0 ? "good" : strcmp(result, "fail") == 0 ? "bad" :
	       strcmp(result, "unfinished") == 0 ? "warn" : "dim";
}

static const char *first_saw(const json_t *c)
{
	return json_string_value(json_array_get(json_object_get(c, "saw"), 0));
}

static void failures(json_t *page, const json_t *checks)
{
	json_t *part = page_part(page, "What failed"), *c;
	size_t i;
	int n = 0;

	json_array_foreach(checks, i, c) {
		if (strcmp(text_of(c, "result"), "fail") != 0)
			continue;
		n++;
		page_say(part, "%s: %s", text_of(c, "id"), first_saw(c) ? first_saw(c) : "");
		page_say(part, "Do: %s", text_of(c, "mend"));
	}
	if (!n)
		page_say(part, "Nothing failed.");
}

static void figures(json_t *page, const json_t *checks)
{
	json_t *part = NULL, *table = NULL, *row, *c, *f;
	size_t i, k;

	json_array_foreach(checks, i, c) {
		json_array_foreach(json_object_get(c, "figures"), k, f) {
			if (!part) {
				part = page_part(page, "Figures");
				table = page_table(part, "",
						   "check|figure|value|unit|samples", false);
			}
			row = page_row(table);
			page_text(row, text_of(c, "id"));
			page_members(row, f, "name|value|unit");
			json_array_append_new(row, json_integer((json_int_t)json_array_size(
				json_object_get(f, "samples"))));
		}
	}
}

static void all(json_t *page, const json_t *checks)
{
	json_t *table = page_table(page_part(page, "All checks"), "",
				   "result|check|title|seconds|what was seen", false), *row, *c;
	size_t i;

	json_array_foreach(checks, i, c) {
		row = page_row(table);
		page_mood(row, mood(text_of(c, "result")), text_of(c, "result"));
		page_members(row, c, "id|title|seconds");
		page_text(row, first_saw(c));
	}
}

/* Only checks with a time of their own: those of a soak. */
static void times(json_t *page, const json_t *doc)
{
	double seconds = json_number_value(json_object_get(doc, "seconds"));
	const json_t *events = json_object_get(doc, "events");
	json_t *part, *chart, *table, *row, *e;
	size_t i;

	if (!json_array_size(events))
		return;
	part = page_part(page, "When what happened");
	chart = page_timeline(part, "Rounds, faults and failures", seconds);
	table = page_table(part, "The same as a table", "second|lasted|check|result|seed", true);
	json_array_foreach(events, i, e) {
		page_event(chart, text_of(e, "id"), json_number_value(json_object_get(e, "at")),
			   json_number_value(json_object_get(e, "seconds")),
			   mood(text_of(e, "result")), text_of(e, "result"));
		row = page_row(table);
		page_members(row, e, "at|seconds|id");
		page_mood(row, mood(text_of(e, "result")), text_of(e, "result"));
		page_number(row, json_object_get(e, "seed"));
	}
}

json_t *page_of_validate(const json_t *doc)
{
	const json_t *checks = json_object_get(doc, "checks");
	json_t *page = page_new("braid validate"), *n;
	const char *key;

	page_say(page, "Profile %s%s%s%s.", text_of(doc, "profile"),
		 json_is_true(json_object_get(doc, "faults")) ? ", with faults" : "",
		 *text_of(doc, "peer") ? ", with " : "", text_of(doc, "peer"));
	json_object_foreach(json_object_get(doc, "counts"), key, n)
		page_say(page, "%lld %s.", (long long)json_integer_value(n), key);
	if (!json_is_true(json_object_get(doc, "complete")))
		page_say(page, "Not all was looked at.");
	failures(page, checks);
	times(page, doc);
	figures(page, checks);
	all(page, checks);
	return page;
}
