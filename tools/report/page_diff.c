/* SPDX-License-Identifier: BSD-3-Clause */
/* page_diff.c - a page of braid diff: what has changed, and how sure that is. */
#include <string.h>

#include "tools/report/page.h"
#include "tools/text.h"

static const char *mood(const char *result)
{
	return strcmp(result, "worse") == 0 ? "bad" : strcmp(result, "better") == 0 ? "good" :
	       strcmp(result, "unsure") == 0 ? "warn" : "dim";
}

static void checks_part(json_t *page, const json_t *checks)
{
	json_t *table, *row, *c;
	size_t i;

	if (!json_array_size(checks))
		return;
	table = page_table(page_part(page, "Checks"), "", "|check|before|after|what was seen",
			   false);
	json_array_foreach(checks, i, c) {
		row = page_row(table);
		page_mood(row, mood(text_of(c, "result")), text_of(c, "result"));
		page_members(row, c, "id|was|is|saw");
	}
}

static void figures_part(json_t *page, const json_t *figures)
{
	json_t *table, *row, *f;
	size_t i;

	table = page_table(page_part(page, "Figures"), "",
			   "|figure|unit|before|after|change %|p|samples before|after", false);
	json_array_foreach(figures, i, f) {
		row = page_row(table);
		page_mood(row, mood(text_of(f, "result")), text_of(f, "result"));
		page_members(row, f, "name|unit|was|is|percent|p|samples_was|samples_is");
	}
}

json_t *page_of_diff(const json_t *doc)
{
	json_t *page = page_new("braid diff"), *x;
	size_t i;

	page_say(page, "Before: %s. After: %s.", text_of(doc, "a"), text_of(doc, "b"));
	page_say(page, "%s", text_of(doc, "verdict"));
	json_array_foreach(json_object_get(doc, "notes"), i, x)
		page_say(page, "Note: %s.", json_string_value(x));
	checks_part(page, json_object_get(doc, "checks"));
	figures_part(page, json_object_get(doc, "figures"));
	return page;
}
