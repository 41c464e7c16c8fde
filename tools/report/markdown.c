/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * markdown.c - a page for a ticket: sentences and tables.
 *
 * A chart is left out, since its table has the same numbers.  Text is escaped so that trackers
 * show it and make nothing of it: no HTML, links, mentions or emphasis.
 */
#include "tools/report/page.h"

#include <string.h>

#include "tools/text.h"

static void put(FILE *to, const char *text)
{
	for (; *text; text++) {
		if (strchr("\\`*_[]<>|#~!@&", *text))
			fputc('\\', to);
		fputc((unsigned char)*text < ' ' || *text == 0x7f ? ' ' : *text, to);
	}
}

static void heading(FILE *to, const char *marks, const char *text)
{
	fprintf(to, "%s ", marks);
	put(to, text);
	fputs("\n\n", to);
}

static void sentences(FILE *to, const json_t *part)
{
	json_t *s;
	size_t i;

	json_array_foreach(json_object_get(part, "text"), i, s) {
		put(to, json_string_value(s) ? json_string_value(s) : "");
		fputs("\n\n", to);
	}
}

static void table(FILE *to, const json_t *t)
{
	const json_t *columns = json_object_get(t, "columns");
	json_t *x, *row;
	char room[64];
	size_t i, k;

	if (*text_of(t, "caption")) {
		put(to, text_of(t, "caption"));
		fputs("\n\n", to);
	}
	json_array_foreach(columns, i, x) {
		fputs("| ", to);
		put(to, json_string_value(x));
		fputc(' ', to);
	}
	fputs("|\n", to);
	json_array_foreach(columns, i, x)
		fputs("| --- ", to);
	fputs("|\n", to);
	json_array_foreach(json_object_get(t, "rows"), i, row) {
		json_array_foreach(row, k, x) {
			fputs("| ", to);
			put(to, page_cell_text(x, room, sizeof(room)));
			fputc(' ', to);
		}
		fputs("|\n", to);
	}
	fputc('\n', to);
}

void page_markdown(const json_t *page, FILE *to)
{
	json_t *part, *x;
	size_t i, k;

	heading(to, "#", text_of(page, "title"));
	sentences(to, page);
	json_array_foreach(json_object_get(page, "parts"), i, part) {
		heading(to, "##", text_of(part, "heading"));
		sentences(to, part);
		json_array_foreach(json_object_get(part, "tables"), k, x)
			table(to, x);
	}
}
