/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * page_perf.c - a page of braid perf: figures by size, the ratio to raw TCP with its interval, and
 * how latencies are spread.
 *
 * A figure here is the median over the rounds, as on the terminal; the rounds are in a table.
 */
#include <math.h>
#include <stdlib.h>
#include <stdint.h>
#include <string.h>

#include "tools/perf/pattern.h"
#include "tools/perf/stat.h"
#include "tools/report/page.h"
#include "tools/text.h"

enum { SIZES = 128, ROUNDS = 1000 };

const struct page_view *page_view_of(const char *pattern)
{
	static const struct page_view views[] = {
		[PERF_SHOWS_LATENCY] = { "p50_us", "half round trip, microseconds", true },
		[PERF_SHOWS_BANDWIDTH] = { "gbit_s", "Gbit/s", false },
		[PERF_SHOWS_RATE] = { "msg_s", "messages per second", false },
		[PERF_SHOWS_COLL] = { "op_us", "one operation, microseconds", true },
		[PERF_SHOWS_SETUP] = { "connect_us", "connect, microseconds", true },
	};

	for (size_t i = 0; i < PERF_PATTERNS; i++)
		if (strcmp(perf_kinds[i].name, pattern) == 0)
			return &views[perf_kinds[i].shows];
	return &views[PERF_SHOWS_COLL];
}

struct sweep {				/* the rows, ordered */
	const json_t *rows;
	json_int_t sizes[SIZES];
	int nsizes;
	const char *fabrics[2];
	int nfabrics;
};

static void collect(struct sweep *s, const json_t *doc)
{
	json_t *r;
	size_t i;
	int k;

	s->rows = json_object_get(doc, "rows");
	json_array_foreach(s->rows, i, r) {
		json_int_t size = json_integer_value(json_object_get(r, "size"));
		const char *fabric = text_of(r, "fabric");

		for (k = 0; k < s->nsizes && s->sizes[k] != size;)
			k++;
		if (k == s->nsizes && k < SIZES)
			s->sizes[s->nsizes++] = size;
		for (k = 0; k < s->nfabrics && strcmp(s->fabrics[k], fabric) != 0;)
			k++;
		if (k == s->nfabrics && k < 2)
			s->fabrics[s->nfabrics++] = fabric;
	}
	/* Messages are what one-sided operations are compared with. */
	if (s->nfabrics == 2 && !strcmp(s->fabrics[0], "plugin") &&
	    strcmp(s->fabrics[1], "raw") != 0) {
		s->fabrics[0] = s->fabrics[1];
		s->fabrics[1] = "plugin";
	}
}

/* All rounds' values of one figure; returns how many. */
static int values(const struct sweep *s, const char *fabric, json_int_t size, const char *figure,
		  double *v)
{
	json_t *r, *x;
	size_t i;
	int n = 0;

	json_array_foreach(s->rows, i, r) {
		x = json_object_get(r, figure);
		if (n < ROUNDS && json_is_number(x) && strcmp(text_of(r, "fabric"), fabric) == 0 &&
		    json_integer_value(json_object_get(r, "size")) == size)
			v[n++] = json_number_value(x);
	}
	return n;
}

static double median(const struct sweep *s, const char *fabric, json_int_t size,
		     const char *figure)
{
	double v[ROUNDS];

	return perf_median(v, values(s, fabric, size, figure, v));
}

/* A chart by size says nothing of one size; its table does. */
static void figures(json_t *part, const struct sweep *s, const struct page_view *v)
{
	json_t *chart = NULL, *series = NULL, *row, *table;
	char columns[64] = "size|median";

	if (s->nfabrics > 1)
		snprintf(columns, sizeof(columns), "size|%.20s|%.20s", s->fabrics[0],
			 s->fabrics[1]);
	table = page_table(part, v->label, columns, true);

	if (s->nsizes > 1)
		chart = page_lines(part, "Medians by size",
				   (struct page_axis){ "message size, bytes", SCALE_SIZES },
				   (struct page_axis){ v->label,
					v->less ? SCALE_LOG : SCALE_LINEAR });
	for (int k = 0; chart && k < s->nfabrics; k++) {
		series = page_series(chart, s->fabrics[k]);
		for (int i = 0; i < s->nsizes; i++)
			page_point(series, (double)s->sizes[i],
				   median(s, s->fabrics[k], s->sizes[i], v->figure));
	}
	for (int i = 0; i < s->nsizes; i++) {
		row = page_row(table);
		page_size(row, s->sizes[i]);
		for (int k = 0; k < s->nfabrics; k++)
			json_array_append_new(row, json_real(median(s, s->fabrics[k], s->sizes[i],
								    v->figure)));
	}
}

/* The ratio of each round, for both fabrics of one round ran under the same conditions. */
static int ratios(const struct sweep *s, json_int_t size, const char *figure, double *v)
{
	double a[ROUNDS], b[ROUNDS];
	int n = values(s, s->fabrics[0], size, figure, a);
	int m = values(s, s->fabrics[1], size, figure, b), i, used = 0;

	for (i = 0; i < n && i < m; i++)
		if (b[i] > 0)
			v[used++] = a[i] / b[i];
	perf_median(v, used);		/* sorts */
	return used;
}

static void ratios_by_size(json_t *part, const struct sweep *s, const struct page_view *view)
{
	json_t *chart, *series, *table, *row;
	double v[ROUNDS];
	char title[160];

	if (s->nfabrics < 2)
		return;
	snprintf(title, sizeof(title), "%s over %s; %s is better", s->fabrics[0], s->fabrics[1],
		 view->less ? "less" : "more");
	chart = page_lines(part, title, (struct page_axis){ "message size, bytes", SCALE_SIZES },
			   (struct page_axis){ "ratio", SCALE_LINEAR });
	page_reference(chart, 1);
	series = page_series(chart, "median, and the range of the rounds");
	table = page_table(part, "The ratios", "size|ratio|least|most|rounds", true);
	for (int i = 0; i < s->nsizes; i++) {
		int n = ratios(s, s->sizes[i], view->figure, v);

		if (!n)
			continue;
		page_interval(series, (double)s->sizes[i], perf_median(v, n), v[0], v[n - 1]);
		row = page_row(table);
		page_size(row, s->sizes[i]);
		json_array_append_new(row, json_real(perf_median(v, n)));
		json_array_append_new(row, json_real(v[0]));
		json_array_append_new(row, json_real(v[n - 1]));
		json_array_append_new(row, json_integer(n));
	}
}

/* The spread of one size: "cdf_us" has perf_cdf_at[]'s percentiles. */
static void cdf_series(json_t *chart, const struct sweep *s, const char *fabric, json_int_t size)
{
	char name[96], room[24];
	json_t *r, *series = NULL, *x;
	size_t i, k;

	json_array_foreach(s->rows, i, r) {
		const json_t *cdf = json_object_get(r, "cdf_us");

		if (series || !json_array_size(cdf) || strcmp(text_of(r, "fabric"), fabric) != 0 ||
		    json_integer_value(json_object_get(r, "size")) != size)
			continue;
		snprintf(name, sizeof(name), "%s %s", fabric,
			 page_size_name((double)size, room, sizeof(room)));
		series = page_series(chart, name);
		json_array_foreach(cdf, k, x)
			if (k < PERF_CDF)
				page_point(series, json_number_value(x), perf_cdf_at[k]);
	}
}

static void cdf_part(json_t *page, const struct sweep *s)
{
	json_t *part, *chart;
	int step = s->nsizes > 4 ? (s->nsizes - 1) / 3 : 1;

	if (!json_array_size(json_object_get(json_array_get(s->rows, 0), "cdf_us")))
		return;
	part = page_part(page, "How latencies are spread");
	page_say(part, "The share of messages that took no longer, in the first round.");
	for (int k = 0; k < s->nfabrics; k++) {
		chart = page_lines(part, s->fabrics[k],
				   (struct page_axis){ "half round trip, microseconds", SCALE_LOG },
				   (struct page_axis){ "per cent", SCALE_LINEAR });
		for (int i = 0; i < s->nsizes; i += step)
			cdf_series(chart, s, s->fabrics[k], s->sizes[i]);
	}
}

static bool is_measured(const struct sweep *s, const char *column)
{
	json_t *r;
	size_t i;

	json_array_foreach(s->rows, i, r)
		if (json_number_value(json_object_get(r, column)) > 0)
			return true;
	return false;
}

/* Every row with every column that was measured: the numbers of the JSON. */
static void rows_table(json_t *page, const struct sweep *s)
{
	static const char *const columns[] = { "min_us", "p50_us", "p90_us", "p99_us", "p99.9_us",
		"max_us", "mean_us", "jitter_us", "op_us", "alg_gb_s", "bus_gb_s", "gbit_s",
		"msg_s",
		"cpu_s_per_gb", "connect_us", "accept_us", "iters", "seconds", "values", "wrong" };
	enum { N = sizeof(columns) / sizeof(columns[0]) };
	char heads[512] = "over|size|round";
	json_t *table, *row, *r;
	bool shown[N];
	size_t i, k;

	for (k = 0; k < N; k++) {
		shown[k] = is_measured(s, columns[k]);
		if (shown[k])
			strcat(strcat(heads, "|"), columns[k]);
	}
	table = page_table(page_part(page, "All rounds"), "Every measurement", heads, false);
	json_array_foreach(s->rows, i, r) {
		row = page_row(table);
		page_text(row, text_of(r, "fabric"));
		page_size(row, json_integer_value(json_object_get(r, "size")));
		page_number(row, json_object_get(r, "round"));
		for (k = 0; k < N; k++)
			if (shown[k])
				page_number(row, json_object_get(r, columns[k]));
	}
}

json_t *page_of_perf(const json_t *doc)
{
	const json_t *fabrics = json_object_get(doc, "fabrics");
	const struct page_view *v = page_view_of(text_of(doc, "pattern"));
	struct sweep *s = calloc(1, sizeof(*s));
	char title[128];
	const char *name;
	json_t *page, *part, *x;

	snprintf(title, sizeof(title), "braid perf: %s", text_of(doc, "pattern"));
	page = page_new(title);
	json_object_foreach((json_t *)(uintptr_t)fabrics, name, x)
		page_say(page, "%s: %s on %s.", name, text_of(x, "name"), text_of(x, "device"));
	page_say(page, "%d processes, %d comms, %d threads, %d messages in flight.",
		 (int)json_integer_value(json_object_get(doc, "procs")),
		 (int)json_integer_value(json_object_get(doc, "comms")),
		 (int)json_integer_value(json_object_get(doc, "threads")),
		 (int)json_integer_value(json_object_get(doc, "inflight")));
	if (*text_of(doc, "stays"))
		page_say(page, "%s", text_of(doc, "stays"));
	if (!s)
		return page;
	collect(s, doc);
	part = page_part(page, "By message size");
	figures(part, s, v);
	ratios_by_size(part, s, v);
	cdf_part(page, s);
	rows_table(page, s);
	free(s);
	return page;
}
