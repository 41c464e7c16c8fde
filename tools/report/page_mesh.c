/* SPDX-License-Identifier: BSD-3-Clause */
/* page_mesh.c - a page of braid mesh: host by host, and what is odd. */
#include <math.h>
#include <string.h>

#include "tools/report/page.h"
#include "tools/text.h"

static void findings_part(json_t *page, const json_t *findings)
{
	json_t *part = page_part(page, "What is odd"), *f;
	size_t i;

	if (!json_array_size(findings))
		page_say(part, "Nothing: no host, direction or pair stands out.");
	json_array_foreach(findings, i, f) {
		page_say(part, "%s", text_of(f, "text"));
		page_say(part, "Next: %s", text_of(f, "next"));
	}
}

/* Is a finding about this cell? */
static bool is_found(const json_t *findings, const char *from, const char *to)
{
	json_t *f, *x;
	size_t i, k;

	json_array_foreach(findings, i, f) {
		bool a = false, b = !json_array_size(json_object_get(f, "with"));

		json_array_foreach(json_object_get(f, "hosts"), k, x) {
			a |= strcmp(json_string_value(x), from) == 0;
			a |= strcmp(json_string_value(x), to) == 0;
		}
		json_array_foreach(json_object_get(f, "with"), k, x) {
			b |= strcmp(json_string_value(x), from) == 0;
			b |= strcmp(json_string_value(x), to) == 0;
		}
		if (a && b)
			return true;
	}
	return false;
}

struct figure {
	const char *key, *title;
	double unit;
	bool less;			/* less is better */
};

/* 0 is the median or better, 1 four times as bad. */
static double shade(const struct figure *f, double x, double median)
{
	double worse = f->less ? x / median : median / x;

	return median > 0 && x > 0 ? fmin(fmax(log2(worse) / 2, 0), 1) : 0;
}

static void heat(json_t *part, const json_t *doc, const struct figure *f)
{
	const json_t *findings = json_object_get(doc, "findings");
	double median = json_number_value(json_object_get(json_object_get(doc, "median"), f->key));
	json_t *chart = page_heat(part, f->title, "from", "to"), *p;
	char text[32];
	size_t i;

	json_array_foreach(json_object_get(doc, "pairs"), i, p) {
		const json_t *x = json_object_get(p, f->key);
		double v = json_number_value(x);

		if (json_is_number(x))
			page_shown(v * f->unit, text, sizeof(text));
		else
			snprintf(text, sizeof(text), "%s", *text_of(p, "error") ? "x" : "-");
		page_cell(chart, text_of(p, "from"), text_of(p, "to"),
			  json_is_number(x) ? shade(f, v, median) : -1, text,
			  is_found(findings, text_of(p, "from"), text_of(p, "to")));
	}
}

static void pairs_part(json_t *page, const json_t *doc)
{
	static const struct figure figures[] = {
		{ "bandwidth", "Bandwidth, Gbit/s", 8e-9, false },
		{ "latency", "Latency, microseconds", 1e6, true },
	};
	json_t *part = page_part(page, "Host by host"), *table, *row, *p;
	size_t i;

	page_say(part, "The stronger the colour, the worse beside the median; a frame marks what a "
		 "finding is about; x is a pair that can't talk.");
	heat(part, doc, &figures[0]);
	heat(part, doc, &figures[1]);
	table = page_table(part, "The same as a table",
			   "from|to|state|bytes/s|latency s|share sent again|error", true);
	json_array_foreach(json_object_get(doc, "pairs"), i, p) {
		row = page_row(table);
		page_members(row, p, "from|to|state|bandwidth|latency|resent|error");
	}
}

static void hosts_part(json_t *page, const json_t *hosts)
{
	json_t *table = page_table(page_part(page, "Hosts"), "",
				   "host|address|side|NIC|Mbit/s|kernel|error", false), *row, *h;
	size_t i;

	json_array_foreach(hosts, i, h) {
		row = page_row(table);
		page_members(row, h, "name|address|side|nic|speed_mbps|kernel");
		page_mood(row, *text_of(h, "error") ? "bad" : "", text_of(h, "error"));
	}
}

json_t *page_of_mesh(const json_t *doc)
{
	json_t *page = page_new("braid mesh");

	page_say(page, "%zu hosts over %s.", json_array_size(json_object_get(doc, "hosts")),
		 text_of(doc, "over"));
	if (!json_is_true(json_object_get(doc, "complete")))
		page_say(page, "The run was stopped: this is what was measured until then.");
	findings_part(page, json_object_get(doc, "findings"));
	pairs_part(page, doc);
	hosts_part(page, json_object_get(doc, "hosts"));
	return page;
}
