/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * svg.c - charts as SVG within a page: lines, heat maps and timelines.
 *
 * A chart is 440 units wide, so that its letters can be read on a phone, where a unit is less than
 * a pixel.  Colours come from the page's style sheet, and so follow dark mode.
 */
#include "tools/report/page.h"

#include <math.h>
#include <string.h>

#include "tools/text.h"

enum { WIDTH = 440, LEFT = 48, RIGHT = 12, TOP = 10, PLOT_H = 200, COLOURS_N = 8, TICKS = 12 };

void html_text(FILE *to, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '<':
			fputs("&lt;", to);
			break;
		case '>':
			fputs("&gt;", to);
			break;
		case '&':
			fputs("&amp;", to);
			break;
		case '"':
			fputs("&quot;", to);
			break;
		case '\'':
			fputs("&#39;", to);
			break;
		default:		/* a control character would not be HTML */
			fputc((unsigned char)*text < ' ' || *text == 0x7f ? ' ' : *text, to);
		}
	}
}

static void label(FILE *to, double x, double y, const char *anchor, const char *class,
		  const char *text)
{
	fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor,
		class);
	html_text(to, text);
	fputs("</text>\n", to);
}

static void open_svg(FILE *to, double height, const char *title)
{
	fprintf(to, "<svg class=\"c\" viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"", WIDTH,
		height);
	html_text(to, title);
	fputs("\">\n", to);
}

static void tip(FILE *to, const char *text)
{
	fputs("<title>", to);
	html_text(to, text);
	fputs("</title>", to);
}

/* -- axes --------------------------------------------------------------------------------- */

struct axis {
	enum page_scale scale;
	double low, high;		/* of the values; on a log scale of their logarithms */
	double from, to;		/* on the picture */
	const char *label;
};

static double scaled(const struct axis *a, double v)
{
	return a->scale == SCALE_LINEAR ? v : log2(v > 0 ? v : 1e-9);
}

static double place(const struct axis *a, double v)
{
	return a->from + (scaled(a, v) - a->low) / (a->high - a->low) * (a->to - a->from);
}

static void widen(struct axis *a, double v)
{
	if (a->scale != SCALE_LINEAR && !(v > 0))
		return;
	a->low = fmin(a->low, scaled(a, v));
	a->high = fmax(a->high, scaled(a, v));
}

/* All values, and what a point's interval reaches. */
static void fit(struct axis *a, const json_t *chart, size_t first, size_t last)
{
	json_t *s, *p;
	size_t i, k;

	a->low = INFINITY;
	a->high = -INFINITY;
	json_array_foreach(json_object_get(chart, "series"), i, s)
		json_array_foreach(json_object_get(s, "points"), k, p)
			for (size_t n = first; n <= last && n < json_array_size(p); n++)
				widen(a, json_number_value(json_array_get(p, n)));
	if (first && json_object_get(chart, "reference"))
		widen(a, json_number_value(json_object_get(chart, "reference")));
	if (!(a->low <= a->high)) {	/* no points */
		a->low = 0;
		a->high = 1;
	}
	if (first && a->scale == SCALE_LINEAR && a->low > 0)
		a->low = 0;
	if (a->high - a->low < 1e-12)
		a->high = a->low + (a->scale == SCALE_LINEAR && a->high > 0 ? a->high : 1);
	if (first && a->scale == SCALE_LINEAR && a->high > 1)
		a->high += (a->high - a->low) * 0.04;
}

static double nice_step(double range, int most)
{
	double step = pow(10, floor(log10(range / most)));
	static const double by[] = { 1, 2, 5, 10 };

	for (int i = 0; i < 4; i++)
		if (range / (step * by[i]) <= most)
			return step * by[i];
	return step * 10;
}

/* Values that get a line and a label; returns how many. */
static int ticks(const struct axis *a, double v[TICKS])
{
	static const double by[] = { 1, 2, 5 };
	bool all = (a->high - a->low) / log2(10) < 2.2;
	double step;
	int n = 0;

	if (a->scale == SCALE_LINEAR) {
		step = nice_step(a->high - a->low, 6);
		for (double x = ceil(a->low / step) * step; x <= a->high + step / 1e6 && n < TICKS;
		     x += step)
			v[n++] = fabs(x) < step / 1e6 ? 0 : x;
		return n;
	}
	if (a->scale == SCALE_SIZES) {
		step = fmax(1, ceil((a->high - a->low) / 7));
		for (double e = ceil(a->low); e <= a->high + 1e-9 && n < TICKS; e += step)
			v[n++] = exp2(e);
		return n;
	}
	step = fmax(1, ceil((a->high - a->low) / log2(10) / 8));
	for (double e = floor(a->low / log2(10)); e <= a->high / log2(10) + 1; e += step)
		for (int i = 0; i < (all ? 3 : 1) && n < TICKS; i++)
			if (log2(by[i] * pow(10, e)) >= a->low - 1e-9 &&
			    log2(by[i] * pow(10, e)) <= a->high + 1e-9)
				v[n++] = by[i] * pow(10, e);
	return n;
}

static const char *tick_text(const struct axis *a, double v, char *room, size_t n)
{
	if (a->scale == SCALE_SIZES)
		return page_size_name(v, room, n);
	if (fabs(v) >= 1e6)
		snprintf(room, n, "%gM", v / 1e6);
	else if (fabs(v) >= 1e4)
		snprintf(room, n, "%gk", v / 1e3);
	else
		snprintf(room, n, "%g", v);
	return room;
}

static void draw_axes(FILE *to, const struct axis *x, const struct axis *y)
{
	double v[TICKS];
	char room[32];
	int n = ticks(x, v);

	for (int i = 0; i < n; i++) {
		fprintf(to, "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>\n", place(x, v[i]), y->to,
			y->from);
		label(to, place(x, v[i]), y->from + 14, "middle", "dim",
		      tick_text(x, v[i], room, sizeof(room)));
	}
	n = ticks(y, v);
	for (int i = 0; i < n; i++) {
		fprintf(to, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", x->from,
			place(y, v[i]), x->to);
		label(to, x->from - 5, place(y, v[i]) + 4, "end", "dim",
		      tick_text(y, v[i], room, sizeof(room)));
	}
	label(to, (x->from + x->to) / 2, y->from + 29, "middle", "dim", x->label);
	fprintf(to, "<g transform=\"translate(11 %.1f) rotate(-90)\">", (y->from + y->to) / 2);
	label(to, 0, 0, "middle", "dim", y->label);
	fputs("</g>\n", to);
}

/* -- lines -------------------------------------------------------------------------------- */

static double at(const json_t *point, size_t i)
{
	return json_number_value(json_array_get(point, i));
}

static void draw_series(FILE *to, const json_t *s, size_t nth, const struct axis *x,
			const struct axis *y)
{
	const json_t *points = json_object_get(s, "points");
	unsigned colour = (unsigned)(nth % COLOURS_N);
	char tip_text[160], a[32], b[32];
	json_t *p;
	size_t i;

	fprintf(to, "<path fill=\"none\" stroke-width=\"1.8\" style=\"stroke:var(--s%u)\" d=\"",
		colour);
	json_array_foreach(points, i, p)
		fprintf(to, "%c%.1f %.1f", i ? 'L' : 'M', place(x, at(p, 0)), place(y, at(p, 1)));
	fputs("\"/>\n", to);
	json_array_foreach(points, i, p) {
		if (json_array_size(p) > 3)
			fprintf(to, "<path style=\"stroke:var(--s%u)\" d=\"M%.1f %.1fV%.1f\"/>\n",
				colour, place(x, at(p, 0)), place(y, at(p, 2)), place(y, at(p, 3)));
		snprintf(tip_text, sizeof(tip_text), "%s: %s at %s", text_of(s, "name"),
			 page_shown(at(p, 1), a, sizeof(a)),
			 x->scale == SCALE_SIZES ? page_size_name(at(p, 0), b, sizeof(b)) :
						   page_shown(at(p, 0), b, sizeof(b)));
		fprintf(to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.4\" style=\"fill:var(--s%u)\">",
			place(x, at(p, 0)), place(y, at(p, 1)), colour);
		tip(to, tip_text);
		fputs("</circle>\n", to);
	}
}

/* Two names in a row below the axis. */
static void draw_legend(FILE *to, const json_t *series, double top)
{
	double half = (WIDTH - LEFT) / 2.0;
	json_t *s;
	size_t i;

	json_array_foreach(series, i, s) {
		double x = LEFT + (i % 2 ? half : 0), y = top + (double)(i / 2) * 16;

		fprintf(to, "<rect x=\"%.1f\" y=\"%.1f\" width=\"10\" height=\"10\" "
			"style=\"fill:var(--s%u)\"/>\n", x, y - 9, (unsigned)(i % COLOURS_N));
		label(to, x + 15, y, "start", "", text_of(s, "name"));
	}
}

static enum page_scale scale_of(const json_t *axis)
{
	return (enum page_scale)json_integer_value(json_object_get(axis, "scale"));
}

static void lines(const json_t *chart, FILE *to)
{
	const json_t *series = json_object_get(chart, "series"), *s;
	const json_t *xa = json_object_get(chart, "x"), *ya = json_object_get(chart, "y");
	struct axis x = { .scale = scale_of(xa), .from = LEFT, .to = WIDTH - RIGHT,
		.label = text_of(xa, "label") };
	struct axis y = { .scale = scale_of(ya), .from = TOP + PLOT_H, .to = TOP,
		.label = text_of(ya, "label") };
	size_t i, n = json_array_size(series);
	double legend = TOP + PLOT_H + 50;

	fit(&x, chart, 0, 0);
	fit(&y, chart, 1, 3);
	open_svg(to, legend + (double)((n + 1) / 2) * 16 - 8, text_of(chart, "title"));
	draw_axes(to, &x, &y);
	if (json_object_get(chart, "reference"))
		fprintf(to, "<path class=\"ref\" d=\"M%.1f %.1fH%.1f\"/>\n", x.from,
			place(&y, json_number_value(json_object_get(chart, "reference"))), x.to);
	for (i = 0; i < n; i++) {
		s = json_array_get(series, i);
		draw_series(to, s, i, &x, &y);
	}
	draw_legend(to, series, legend);
	fputs("</svg>\n", to);
}

/* -- heat maps ---------------------------------------------------------------------------- */

enum { NAMES_MOST = 256 };

struct names {
	const char *v[NAMES_MOST];
	size_t n;
};

static size_t name_at(struct names *names, const char *name)
{
	size_t i;

	for (i = 0; i < names->n; i++)
		if (strcmp(names->v[i], name) == 0)
			return i;
	if (names->n < NAMES_MOST)
		names->v[names->n++] = name;
	return i;
}

static void collect(const json_t *chart, const char *list, const char *key, struct names *names)
{
	json_t *c;
	size_t i;

	json_array_foreach(json_object_get(chart, list), i, c)
		name_at(names, text_of(c, key));
}

static void draw_cell(FILE *to, const json_t *c, double x, double y, double w, double h)
{
	double shade = json_number_value(json_object_get(c, "shade"));
	const char *text = text_of(c, "text");
	char line[200];

	fprintf(to, "<g><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"", x, y, w - 1,
		h - 1);
	if (shade < 0)
		fputs(" class=\"empty\"/>", to);
	else
		fprintf(to, " style=\"fill:rgba(var(--heat),%.2f)\"/>",
			0.06 + 0.46 * fmin(shade, 1));
	if (json_is_true(json_object_get(c, "mark")))
		fprintf(to, "<rect class=\"mark\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
			"height=\"%.1f\"/>", x + 1, y + 1, w - 3, h - 3);
	snprintf(line, sizeof(line), "%s, %s: %s", text_of(c, "row"), text_of(c, "column"), text);
	tip(to, line);
	if (w >= 6.5 * (double)strlen(text))
		label(to, x + w / 2 - 0.5, y + h / 2 + 3.5, "middle", "", text);
	fputs("</g>\n", to);
}

static size_t longest(const struct names *names)
{
	size_t n = 0;

	for (size_t i = 0; i < names->n; i++)
		n = strlen(names->v[i]) > n ? strlen(names->v[i]) : n;
	return n;
}

static void draw_names(FILE *to, const struct names *rows, const struct names *columns,
		       double left, double top, double w, double h)
{
	for (size_t i = 0; i < rows->n && h >= 9; i++)
		label(to, left - 5, top + ((double)i + 0.5) * h + 4, "end", "dim", rows->v[i]);
	for (size_t i = 0; i < columns->n && w >= 9; i++) {
		fprintf(to, "<g transform=\"translate(%.1f %.1f) rotate(-60)\">",
			left + ((double)i + 0.5) * w + 3, top - 5);
		label(to, 0, 0, "start", "dim", columns->v[i]);
		fputs("</g>\n", to);
	}
}

static void heat(const json_t *chart, FILE *to)
{
	struct names rows = { .n = 0 }, columns = { .n = 0 };
	double left, top, w, h;
	json_t *c;
	size_t i, r, k;

	collect(chart, "cells", "row", &rows);
	collect(chart, "cells", "column", &columns);
	left = fmin(6.2 * (double)longest(&rows) + 12, 150);
	top = fmin(5.6 * (double)longest(&columns) + 14, 130);
	w = (WIDTH - left - RIGHT - 10) / fmax((double)columns.n, 1);
	w = fmin(w, 64);
	h = fmin(w, 28);
	open_svg(to, top + h * (double)rows.n + 24, text_of(chart, "title"));
	draw_names(to, &rows, &columns, left, top, w, h);
	json_array_foreach(json_object_get(chart, "cells"), i, c) {
		r = name_at(&rows, text_of(c, "row"));
		k = name_at(&columns, text_of(c, "column"));
		draw_cell(to, c, left + (double)k * w, top + (double)r * h, w, h);
	}
	label(to, left, top + h * (double)rows.n + 16, "start", "dim", text_of(chart, "rows"));
	label(to, WIDTH - RIGHT, top + h * (double)rows.n + 16, "end", "dim",
	      text_of(chart, "columns"));
	fputs("</svg>\n", to);
}

/* -- timelines ---------------------------------------------------------------------------- */

enum { LANE_H = 22, EVENT_W = 3 };

static void draw_event(FILE *to, const json_t *e, const struct axis *x, double y)
{
	double begin = place(x, json_number_value(json_object_get(e, "at")));
	double end = place(x, json_number_value(json_object_get(e, "at")) +
			   json_number_value(json_object_get(e, "lasts")));

	fprintf(to, "<g><rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" "
		"rx=\"1.5\"/>", text_of(e, "mood"), begin, y + 4, fmax(end - begin, EVENT_W),
		LANE_H - 8);
	tip(to, text_of(e, "text"));
	fputs("</g>\n", to);
}

static void timeline(const json_t *chart, FILE *to)
{
	struct names lanes = { .n = 0 };
	double seconds = json_number_value(json_object_get(chart, "seconds"));
	struct axis x = { .scale = SCALE_LINEAR, .high = seconds > 0 ? seconds : 1,
		.to = WIDTH - RIGHT, .label = "seconds" };
	struct axis y = { .scale = SCALE_LINEAR, .low = 0, .high = 0.1, .to = TOP, .label = "" };
	json_t *e;
	size_t i;

	collect(chart, "events", "lane", &lanes);
	x.from = fmin(6.2 * (double)longest(&lanes) + 12, 150);
	y.from = TOP + LANE_H * fmax((double)lanes.n, 1);
	if (x.high >= 7200) {
		x.high /= 3600;
		x.label = "hours";
	}
	open_svg(to, y.from + 34, text_of(chart, "title"));
	y.high = INFINITY;		/* no lines across */
	draw_axes(to, &x, &y);
	x.high = seconds > 0 ? seconds : 1;
	for (i = 0; i < lanes.n; i++)
		label(to, x.from - 5, TOP + ((double)i + 0.5) * LANE_H + 4, "end", "dim",
		      lanes.v[i]);
	json_array_foreach(json_object_get(chart, "events"), i, e)
		draw_event(to, e, &x, TOP + (double)name_at(&lanes, text_of(e, "lane")) * LANE_H);
	fputs("</svg>\n", to);
}

void svg_chart(const json_t *chart, FILE *to)
{
	const char *kind = text_of(chart, "kind");

	if (strcmp(kind, "lines") == 0)
		lines(chart, to);
	else if (strcmp(kind, "heat") == 0)
		heat(chart, to);
	else
		timeline(chart, to);
}
