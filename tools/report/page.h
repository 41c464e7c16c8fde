/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * page.h - a page as data: parts with sentences, tables and charts, before it is HTML or Markdown.
 *
 * A page is JSON, because that is easy to build and to free:
 *
 *	{title, text: [...], parts: [{heading, text: [...], charts: [...], tables: [...]}]}
 *
 * A table has columns and rows.  A cell is a text, a number (with the digits to show), or null.
 * Functions return borrowed references, which live as long as the page.
 */
#ifndef BRAID_TOOLS_REPORT_PAGE_H
#define BRAID_TOOLS_REPORT_PAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

json_t *page_new(const char *title);
json_t *page_part(json_t *page, const char *heading);
/* A sentence under the title of a page, or the heading of a part. */
void page_say(json_t *part, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* -- tables ------------------------------------------------------------------------------- */

/* `columns` are names separated by '|'.  `folded`: behind a line to click, as under a chart. */
json_t *page_table(json_t *part, const char *caption, const char *columns, bool folded);
json_t *page_row(json_t *table);
void page_text(json_t *row, const char *text);		/* NULL: an empty cell */
/* `mood`: "good", "warn", "bad" or "dim"; the word that says so is in the text as well. */
void page_mood(json_t *row, const char *mood, const char *text);
void page_number(json_t *row, const json_t *number);	/* not a number: an empty cell */
void page_size(json_t *row, json_int_t bytes);		/* "64k" */
/* A cell for each of these members of `o`, separated by '|'; empty if not text or a number. */
void page_members(json_t *row, const json_t *o, const char *keys);


/* -- charts (svg.c) ----------------------------------------------------------------------- */

enum page_scale { SCALE_LINEAR, SCALE_LOG, SCALE_SIZES };

struct page_axis {
	const char *label;
	enum page_scale scale;
};

json_t *page_lines(json_t *part, const char *title, struct page_axis x, struct page_axis y);
/* A horizontal line that values are compared with, such as 1 for a ratio. */
void page_reference(json_t *chart, double y);
json_t *page_series(json_t *chart, const char *name);
void page_point(json_t *series, double x, double y);
void page_interval(json_t *series, double x, double y, double low, double high);

/* A heat map; `unit` is of the numbers in its cells. */
json_t *page_heat(json_t *part, const char *title, const char *rows, const char *columns);
/* `shade`: 0 (least) to 1; below 0: there is nothing.  `mark`: a frame around the cell. */
void page_cell(json_t *chart, const char *row, const char *column, double shade, const char *text,
	       bool mark);

json_t *page_timeline(json_t *part, const char *title, double seconds);
void page_event(json_t *chart, const char *lane, double at, double lasts, const char *mood,
		const char *text);

/* A picture that this program drew itself: SVG that goes into the page as it is. */
void page_picture(json_t *part, const char *title, const char *svg);

/* -- output ------------------------------------------------------------------------------- */

void page_html(const json_t *page, FILE *to);
void page_markdown(const json_t *page, FILE *to);
void svg_chart(const json_t *chart, FILE *to);
void html_text(FILE *to, const char *text);	/* fit for text and quoted attributes (svg.c) */
const char *page_cell_text(const json_t *cell, char *room, size_t n);
const char *page_shown(double x, char *room, size_t n);	/* three digits or more */
const char *page_size_name(double bytes, char *room, size_t n);

/* -- what pages are made of: one file for each schema -------------------------------------- */

json_t *page_of_perf(const json_t *doc);
json_t *page_of_compare(const json_t *doc);
json_t *page_of_validate(const json_t *doc);
json_t *page_of_topo(const json_t *doc);
json_t *page_of_diff(const json_t *doc);
json_t *page_of_mesh(const json_t *doc);
/* The figure that judges a pattern of braid perf, by its member's name, and its words. */
struct page_view {
	const char *figure, *label;
	bool less;			/* less is better */
};
const struct page_view *page_view_of(const char *pattern);

/* How, when and on what it was made: the last part of each page. */
void page_provenance(json_t *page, const json_t *doc);

#endif
