/* SPDX-License-Identifier: BSD-3-Clause */
/* page.c - builds a page, see page.h. */
#include "tools/report/page.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Append to o[key], a list; returns what was appended. */
static json_t *append(json_t *o, const char *key, json_t *what)
{
	json_t *list = json_object_get(o, key);

	if (!list) {
		list = json_array();
		json_object_set_new(o, key, list);
	}
	json_array_append_new(list, what);
	return what;
}

/* A text that is no UTF-8 becomes empty: jansson has no other strings. */
static json_t *text(const char *s)
{
	json_t *o = json_string(s);

	return o ? o : json_string("");
}

json_t *page_new(const char *title)
{
	return json_pack("{s:o}", "title", text(title));
}

json_t *page_part(json_t *page, const char *heading)
{
	return append(page, "parts", json_pack("{s:o}", "heading", text(heading)));
}

void page_say(json_t *part, const char *fmt, ...)
{
	va_list ap;
	char *line = NULL;

	va_start(ap, fmt);
	if (vasprintf(&line, fmt, ap) >= 0 && *line)
		append(part, "text", text(line));
	va_end(ap);
	free(line);
}

/* -- tables ------------------------------------------------------------------------------- */

json_t *page_table(json_t *part, const char *caption, const char *columns, bool folded)
{
	json_t *table = json_pack("{s:o, s:b, s:[], s:[]}", "caption", text(caption), "folded",
				  folded, "columns", "rows");
	size_t n;

	for (; *columns; columns += n + (columns[n] == '|')) {
		n = strcspn(columns, "|");
		append(table, "columns", json_stringn(columns, n));
	}
	return append(part, "tables", table);
}

json_t *page_row(json_t *table)
{
	return append(table, "rows", json_array());
}

void page_text(json_t *row, const char *s)
{
	json_array_append_new(row, s ? text(s) : json_null());
}

void page_mood(json_t *row, const char *mood, const char *s)
{
	json_array_append_new(row, json_pack("{s:o, s:s}", "text", text(s), "mood", mood));
}

void page_number(json_t *row, const json_t *number)
{
	json_array_append_new(row, json_is_number(number) ? json_copy((json_t *)(uintptr_t)number) :
							    json_null());
}

void page_size(json_t *row, json_int_t bytes)
{
	char room[24];

	json_array_append_new(row, json_pack("{s:s, s:f}", "text",
					     page_size_name((double)bytes, room, sizeof(room)),
					     "number", (double)bytes));
}

void page_members(json_t *row, const json_t *o, const char *keys)
{
	size_t n;

	for (; *keys; keys += n + (keys[n] == '|')) {
		const json_t *x;
		char key[64];

		n = strcspn(keys, "|");
		snprintf(key, sizeof(key), "%.*s", (int)n, keys);
		x = json_object_get(o, key);
		if (json_is_string(x))
			page_text(row, json_string_value(x));
		else
			page_number(row, x);
	}
}

/* -- numbers as they are shown ------------------------------------------------------------ */

const char *page_shown(double x, char *room, size_t n)
{
	double a = fabs(x);
	int digits = a < 0.1 ? 4 : a < 1 ? 3 : a < 100 ? 2 : a < 1000 ? 1 : 0;

	if (x == floor(x) && a < 1e15)
		digits = 0;
	snprintf(room, n, a > 0 && a < 0.01 ? "%.*g" : "%.*f", a < 0.01 && a > 0 ? 3 : digits, x);
	return room;
}

const char *page_size_name(double bytes, char *room, size_t n)
{
	static const char units[] = " kmgt";
	int i = 0;

	while (bytes >= 1024 && fmod(bytes, 1024) < 0.5 && units[i + 1]) {
		bytes /= 1024;
		i++;
	}
	snprintf(room, n, "%.0f%.*s", bytes, i > 0, &units[i]);
	return room;
}

const char *page_cell_text(const json_t *cell, char *room, size_t n)
{
	const char *s = json_string_value(json_is_object(cell) ? json_object_get(cell, "text") :
								 cell);

	if (json_is_number(cell))
		return page_shown(json_number_value(cell), room, n);
	return s ? s : "";
}

/* -- charts ------------------------------------------------------------------------------- */

static json_t *chart(json_t *part, const char *kind, const char *title)
{
	return append(part, "charts", json_pack("{s:s, s:o}", "kind", kind, "title", text(title)));
}

static json_t *axis(struct page_axis a)
{
	return json_pack("{s:s, s:i}", "label", a.label, "scale", (int)a.scale);
}

json_t *page_lines(json_t *part, const char *title, struct page_axis x, struct page_axis y)
{
	json_t *c = chart(part, "lines", title);

	json_object_set_new(c, "x", axis(x));
	json_object_set_new(c, "y", axis(y));
	return c;
}

void page_reference(json_t *c, double y)
{
	json_object_set_new(c, "reference", json_real(y));
}

json_t *page_series(json_t *c, const char *name)
{
	return append(c, "series", json_pack("{s:o, s:[]}", "name", text(name), "points"));
}

void page_point(json_t *series, double x, double y)
{
	append(series, "points", json_pack("[f, f]", x, y));
}

void page_interval(json_t *series, double x, double y, double low, double high)
{
	append(series, "points", json_pack("[f, f, f, f]", x, y, low, high));
}

json_t *page_heat(json_t *part, const char *title, const char *rows, const char *columns)
{
	json_t *c = chart(part, "heat", title);

	json_object_set_new(c, "rows", text(rows));
	json_object_set_new(c, "columns", text(columns));
	return c;
}

void page_cell(json_t *c, const char *row, const char *column, double shade, const char *s,
	       bool mark)
{
	append(c, "cells", json_pack("{s:o, s:o, s:f, s:o, s:b}", "row", text(row), "column",
				     text(column), "shade", shade, "text", text(s), "mark", mark));
}

json_t *page_timeline(json_t *part, const char *title, double seconds)
{
	json_t *c = chart(part, "timeline", title);

	json_object_set_new(c, "seconds", json_real(seconds));
	return c;
}

void page_event(json_t *c, const char *lane, double at, double lasts, const char *mood,
		const char *s)
{
	append(c, "events", json_pack("{s:o, s:f, s:f, s:s, s:o}", "lane", text(lane), "at", at,
				      "lasts", lasts, "mood", mood, "text", text(s)));
}

void page_picture(json_t *part, const char *title, const char *svg)
{
	json_object_set_new(chart(part, "picture", title), "svg", text(svg));
}
