/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * html.c - a page as one HTML file that needs nothing else.
 *
 * It has no script, and its policy forbids scripts and requests, so that a string which got past
 * html_text() could still do nothing.  Colours are variables that dark mode and print replace.
 */
#include "tools/report/page.h"

#include <stdio.h>
#include <string.h>

#include "tools/text.h"

static const char *const style[] = {
	":root{--bg:#fff;--ink:#1c2330;--dim:#5b6575;--line:#d5dae2;--soft:#f4f6f9;--good:#19703c;",
	"--warn:#8a5a00;--bad:#b3261e;--heat:37,99,175;--s0:#2563af;--s1:#b4540a;--s2:#17795e;",
	"--s3:#8b3fa8;--s4:#8a6d00;--s5:#b3305a;--s6:#3f6b8f;--s7:#5c6b1f;color-scheme:light}",
	"@media (prefers-color-scheme:dark){:root{--bg:#12161d;--ink:#e5e9f0;--dim:#a3adbd;",
	"--line:#38414f;--soft:#1b212b;--good:#6fd39a;--warn:#f0bc5e;--bad:#ff8f85;",
	"--heat:96,165,250;--s0:#7ab2ff;--s1:#ffab66;--s2:#5fd3b0;--s3:#d79bf0;--s4:#e3cf6a;",
	"--s5:#ff94b5;--s6:#a7c6e0;--s7:#c7d67f;color-scheme:dark}}",
	"@media print{:root{--bg:#fff;--ink:#000;--dim:#444;--line:#999;--soft:#fff;",
	"--good:#19703c;--warn:#8a5a00;--bad:#b3261e;--heat:37,99,175;color-scheme:light}",
	"section{break-inside:avoid-page}details>*{display:block}}",
	"*{box-sizing:border-box}html{-webkit-text-size-adjust:100%}",
	"body{margin:0 auto;max-width:76rem;padding:1rem;background:var(--bg);color:var(--ink);",
	"font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}",
	"h1{font-size:1.6rem;line-height:1.25;margin:.5rem 0}h2{font-size:1.2rem;",
	"margin:2rem 0 .5rem;padding-top:.75rem;border-top:1px solid var(--line)}",
	"p{margin:.4rem 0;max-width:46rem;",
	"overflow-wrap:anywhere}",
	".charts{display:grid;gap:1rem;",
	"grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr))}",
	"figure{margin:.75rem 0;min-width:0}figcaption{font-weight:600;margin-bottom:.25rem}",
	"figure>svg{display:block;width:100%;height:auto;max-width:44rem}",
	".wide,.scroll{overflow-x:auto}",
	"details{margin:.5rem 0}summary{cursor:pointer;color:var(--dim)}",
	"table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem;",
	"margin:.5rem 0}",
	"caption{text-align:left;font-weight:600;padding:.25rem 0}",
	"th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:left;",
	"vertical-align:top;overflow-wrap:break-word;max-width:36rem}",
	"th{color:var(--dim);font-weight:600;white-space:nowrap;border-bottom-width:2px}",
	"td.n,th.n{text-align:right;white-space:nowrap}",
	"tbody tr:nth-child(even){background:var(--soft)}",
	".good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad);font-weight:600}",
	".dim{color:var(--dim)}",
	".c text{font:11px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;",
	"fill:var(--ink)}.c .dim{fill:var(--dim)}.c .grid{stroke:var(--line);fill:none}",
	".c .ref{stroke:var(--dim);stroke-dasharray:4 3}.c .mark{stroke:var(--ink);fill:none;",
	"stroke-width:2}.c .empty{fill:var(--soft);stroke:var(--line)}",
	".c .good{fill:var(--good)}.c .warn{fill:var(--warn)}.c .bad{fill:var(--bad)}",
};

static void element(FILE *to, const char *tag, const char *text)
{
	fprintf(to, "<%s>", tag);
	html_text(to, text);
	fprintf(to, "</%s>\n", tag);
}

static void sentences(FILE *to, const json_t *part)
{
	json_t *s;
	size_t i;

	json_array_foreach(json_object_get(part, "text"), i, s)
		element(to, "p", json_string_value(s) ? json_string_value(s) : "");
}

/* -- tables ------------------------------------------------------------------------------- */

static bool is_number(const json_t *cell)
{
	return json_is_number(cell) || json_is_number(json_object_get(cell, "number"));
}

/* A column's head stands where its numbers do. */
static bool has_numbers(const json_t *table, size_t column)
{
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(table, "rows"), i, row)
		if (is_number(json_array_get(row, column)))
			return true;
	return false;
}

static void cell(FILE *to, const json_t *c, bool number)
{
	const char *mood = json_string_value(json_object_get(c, "mood"));
	const json_t *x = json_is_object(c) ? json_object_get(c, "number") : c;
	char room[64];

	fputs("<td", to);
	if (number || mood)
		fprintf(to, " class=\"%s\"", number ? "n" : mood);
	if (json_is_number(x))
		fprintf(to, " data-n=\"%.9g\"", json_number_value(x));
	fputs(">", to);
	html_text(to, page_cell_text(c, room, sizeof(room)));
	fputs("</td>", to);
}

static void table(FILE *to, const json_t *t)
{
	bool folded = json_is_true(json_object_get(t, "folded"));
	json_t *x, *row;
	size_t i, k;

	if (folded) {
		fputs("<details><summary>", to);
		html_text(to, text_of(t, "caption"));
		fputs("</summary>\n", to);
	}
	fputs("<div class=\"scroll\"><table>", to);
	if (!folded && *text_of(t, "caption"))
		element(to, "caption", text_of(t, "caption"));
	fputs("<thead><tr>", to);
	json_array_foreach(json_object_get(t, "columns"), i, x) {
		fprintf(to, "<th%s scope=\"col\">", has_numbers(t, i) ? " class=\"n\"" : "");
		html_text(to, json_string_value(x));
		fputs("</th>", to);
	}
	fputs("</tr></thead>\n<tbody>\n", to);
	json_array_foreach(json_object_get(t, "rows"), i, row) {
		fputs("<tr>", to);
		json_array_foreach(row, k, x)
			cell(to, x, is_number(x));
		fputs("</tr>\n", to);
	}
	fprintf(to, "</tbody></table></div>%s\n", folded ? "</details>" : "");
}

/* -- the page ----------------------------------------------------------------------------- */

static void figure(FILE *to, const json_t *chart)
{
	bool own = strcmp(text_of(chart, "kind"), "picture") == 0;

	fputs("<figure><figcaption>", to);
	html_text(to, text_of(chart, "title"));
	fprintf(to, "</figcaption>%s\n", own ? "<div class=\"wide\">" : "");
	if (own)
		fputs(text_of(chart, "svg"), to);
	else
		svg_chart(chart, to);
	fprintf(to, "%s</figure>\n", own ? "</div>" : "");
}

static void part(FILE *to, const json_t *p)
{
	const json_t *charts = json_object_get(p, "charts");
	json_t *x;
	size_t i;

	fputs("<section>\n", to);
	element(to, "h2", text_of(p, "heading"));
	sentences(to, p);
	if (json_array_size(charts)) {
		fprintf(to, "<div%s>\n", json_array_size(charts) > 1 ? " class=\"charts\"" : "");
		json_array_foreach(charts, i, x)
			figure(to, x);
		fputs("</div>\n", to);
	}
	json_array_foreach(json_object_get(p, "tables"), i, x)
		table(to, x);
	fputs("</section>\n", to);
}

void page_html(const json_t *page, FILE *to)
{
	json_t *x;
	size_t i;

	fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
	      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
	      "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
	      "<meta name=\"color-scheme\" content=\"light dark\">\n"
	      "<link rel=\"icon\" href=\"data:,\">\n", to);
	element(to, "title", text_of(page, "title"));
	fputs("<style>\n", to);
	for (i = 0; i < sizeof(style) / sizeof(style[0]); i++)
		fprintf(to, "%s\n", style[i]);
	fputs("</style>\n</head>\n<body>\n", to);
	element(to, "h1", text_of(page, "title"));
	sentences(to, page);
	json_array_foreach(json_object_get(page, "parts"), i, x)
		part(to, x);
	fputs("</body>\n</html>\n", to);
}
