/* SPDX-License-Identifier: BSD-3-Clause */
/* page_compare.c - a page of braid compare: for each pattern, figures and ratios by size. */
#include <string.h>

#include "tools/report/page.h"
#include "tools/text.h"

static bool is_zero(const json_t *pattern, const char *key)
{
	json_t *r;
	size_t i;

	json_array_foreach(json_object_get(pattern, "summary"), i, r)
		if (json_number_value(json_object_get(r, key)) > 0)
			return false;
	return true;
}

/* One line of a chart for each way; with `low`, an interval. */
static void series(json_t *chart, const json_t *ways, const json_t *pattern, const char *figure,
		   const char *low, const char *high)
{
	json_t *way, *r, *line;
	size_t i, k;

	json_array_foreach(ways, i, way) {
		line = NULL;
		json_array_foreach(json_object_get(pattern, "summary"), k, r) {
			double size = json_number_value(json_object_get(r, "size"));

			if (strcmp(text_of(r, "over"), text_of(way, "name")) != 0 ||
			    !(json_number_value(json_object_get(r, figure)) > 0))
				continue;
			line = line ? line : page_series(chart, text_of(way, "name"));
			if (low)
				page_interval(line, size,
					      json_number_value(json_object_get(r, figure)),
					      json_number_value(json_object_get(r, low)),
					      json_number_value(json_object_get(r, high)));
			else
				page_point(line, size,
					   json_number_value(json_object_get(r, figure)));
		}
	}
}

static void summary_table(json_t *part, const json_t *pattern)
{
	static const char *const columns[] = { "p50_us", "p90_us", "p99_us", "p99.9_us", "max_us",
		"jitter_us", "op_us", "alg_gb_s", "bus_gb_s", "gbit_s", "msg_s", "cpu_s_per_gb",
		"ratio", "ratio_low", "ratio_high" };
	enum { N = sizeof(columns) / sizeof(columns[0]) };
	char heads[400] = "size|over";
	json_t *table, *row, *r;
	size_t i, k;

	for (k = 0; k < N; k++)
		if (!is_zero(pattern, columns[k]))
			strcat(strcat(heads, "|"), columns[k]);
	table = page_table(part, "The figures: medians, and ratios with their 95 % interval", heads,
			   true);
	json_array_foreach(json_object_get(pattern, "summary"), i, r) {
		row = page_row(table);
		page_size(row, json_integer_value(json_object_get(r, "size")));
		page_text(row, text_of(r, "over"));
		for (k = 0; k < N; k++)
			if (!is_zero(pattern, columns[k]))
				page_number(row, json_object_get(r, columns[k]));
	}
}

static void pattern_part(json_t *page, const json_t *doc, const json_t *pattern)
{
	const json_t *ways = json_object_get(doc, "ways");
	const struct page_view *view = page_view_of(text_of(pattern, "name"));
	const char *base = text_of(doc, "base");
	json_t *part = page_part(page, text_of(pattern, "name")), *chart;
	struct page_axis size = { "message size, bytes", SCALE_SIZES };
	char title[128];

	page_say(part, "%s", text_of(pattern, "words"));
	chart = page_lines(part, view->label, size, (struct page_axis){ view->label,
			   view->less ? SCALE_LOG : SCALE_LINEAR });
	series(chart, ways, pattern, view->figure, NULL, NULL);
	if (*base && !is_zero(pattern, "ratio")) {
		snprintf(title, sizeof(title), "Times as good as %s, with 95 %% intervals", base);
		chart = page_lines(part, title, size, (struct page_axis){ "ratio", SCALE_LINEAR });
		page_reference(chart, 1);
		series(chart, ways, pattern, "ratio", "ratio_low", "ratio_high");
	}
	summary_table(part, pattern);
}

json_t *page_of_compare(const json_t *doc)
{
	json_t *page = page_new("braid compare"), *x, *table, *row;
	size_t i;

	page_say(page, "%s", text_of(doc, "ends"));
	page_say(page, "Medians of %d rounds.",
		 (int)json_integer_value(json_object_get(doc, "rounds")));
	if (json_is_true(json_object_get(doc, "interrupted")))
		page_say(page, "The run was interrupted: this is what was measured until then.");
	page_say(page, "%s", text_of(doc, "failed"));
	json_array_foreach(json_object_get(doc, "notes"), i, x)
		page_say(page, "Note: %s.", json_string_value(x));
	json_array_foreach(json_object_get(doc, "patterns"), i, x)
		pattern_part(page, doc, x);
	table = page_table(page_part(page, "What was measured"), "", "over|what it is|device",
			   false);
	json_array_foreach(json_object_get(doc, "ways"), i, x) {
		const json_t *about = json_object_get(x, "about");

		row = page_row(table);
		page_text(row, text_of(x, "name"));
		if (about)
			page_text(row, text_of(about, "name"));
		else
			page_mood(row, "dim", text_of(x, "why"));
		page_text(row, text_of(about, "device"));
	}
	return page;
}
