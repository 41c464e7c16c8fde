/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * json.c - a report as JSON and back.
 *
 * The rows are the report.  Medians, ratios and words are written for readers; a program that reads
 * the report makes them anew from the rows.
 */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/compare/compare.h"

static const char schema[] = "braid-compare-1";

const char *const cmp_value_names[CMP_VALUES] = {
	[CMP_P50] = "p50_us", [CMP_P90] = "p90_us", [CMP_P99] = "p99_us", [CMP_P999] = "p99.9_us",
	[CMP_MAX] = "max_us", [CMP_JITTER] = "jitter_us", [CMP_OP_US] = "op_us",
	[CMP_ALG] = "alg_gb_s", [CMP_BUS] = "bus_gb_s", [CMP_GBIT] = "gbit_s", [CMP_MSG] = "msg_s",
	[CMP_CPU] = "cpu_s_per_gb", [CMP_ITERS] = "iters", [CMP_SECONDS] = "seconds",
	[CMP_CPU_SHARE] = "cpu_share", [CMP_CHECKED] = "values", [CMP_WRONG] = "wrong",
};

int cmp_row_add(struct cmp_report *rep, const struct cmp_row *row)
{
	struct cmp_row *v = perf_grow(rep->rows, rep->nrows, &rep->room, sizeof(*v));

	if (!v)
		return -ENOMEM;
	rep->rows = v;
	rep->rows[rep->nrows++] = *row;
	return 0;
}

void cmp_note(struct cmp_report *rep, const char *fmt, ...)
{
	va_list ap;

	if (rep->nnotes == CMP_NOTES_MAX)
		return;
	va_start(ap, fmt);
	vsnprintf(rep->notes[rep->nnotes++], PERF_TEXT, fmt, ap);
	va_end(ap);
}

void cmp_report_fini(struct cmp_report *rep)
{
	free(rep->rows);
	json_decref(rep->stamp);
	rep->stamp = NULL;
	rep->rows = NULL;
	rep->nrows = rep->room = 0;
}

/* -- writing ------------------------------------------------------------------------------ */

static json_t *way_json(const struct cmp_way *w)
{
	json_t *o = json_pack("{s:s, s:s, s:i, s:b, s:b}", "name", w->name, "transport",
			      w->way.transport, "lanes", (int)w->way.lanes, "reference",
			      w->reference, "there", w->there);

	if (w->there)
		json_object_set_new(o, "about",
				    json_pack("{s:s, s:s, s:i, s:i}", "name", w->about.name,
					      "device", w->about.dev, "abi", (int)w->about.abi,
					      "speed_mbps", (int)w->about.speed_mbps));
	else
		json_object_set_new(o, "why", json_string(w->why));
	return o;
}

static json_t *row_json(const struct cmp_report *rep, const struct cmp_row *r)
{
	json_t *o = json_pack("{s:s, s:s, s:I, s:i}", "pattern", perf_kinds[r->pattern].name,
			      "over", rep->ways[r->way].name, "size", (json_int_t)r->size, "round",
			      r->round);
	int i;

	for (i = 0; i < CMP_VALUES; i++)
		json_object_set_new(o, cmp_value_names[i], cmp_is_measured(r, (enum cmp_value)i) ?
				    json_real(r->v[i]) : json_null());
	return o;
}

/* One way at one size: medians, and the ratio to the base. */
static json_t *summary_json(const struct cmp_report *rep, enum perf_pattern pattern, int way,
			    uint64_t size)
{
	struct cmp_ratio ratio;
	json_t *o;
	double x;
	int i;

	if (!cmp_value_of(rep, pattern, way, size, CMP_P50, &x))
		return NULL;
	o = json_pack("{s:s, s:s, s:I}", "pattern", perf_kinds[pattern].name, "over",
		      rep->ways[way].name, "size", (json_int_t)size);
	for (i = 0; i < CMP_ITERS; i++) {
		cmp_value_of(rep, pattern, way, size, (enum cmp_value)i, &x);
		json_object_set_new(o, cmp_value_names[i], json_real(x));
	}
	if (cmp_ratio_of(rep, pattern, way, rep->base, size, &ratio)) {
		json_object_set_new(o, "ratio", json_real(ratio.mid));
		json_object_set_new(o, "ratio_low", json_real(ratio.lo));
		json_object_set_new(o, "ratio_high", json_real(ratio.hi));
	}
	return o;
}

static json_t *summaries_json(const struct cmp_report *rep, enum perf_pattern pattern)
{
	uint64_t sizes[PERF_SIZES_MAX];
	int i, w, n = cmp_sizes(rep, pattern, sizes);
	json_t *list = json_array(), *o;

	for (i = 0; i < n; i++)
		for (w = 0; w < rep->nways; w++) {
			o = summary_json(rep, pattern, w, sizes[i]);
			if (o)
				json_array_append_new(list, o);
		}
	return list;
}

static json_t *pattern_json(const struct cmp_report *rep, enum perf_pattern pattern)
{
	char words[CMP_SUMMARY];

	cmp_summary(rep, pattern, words);
	return json_pack("{s:s, s:i, s:s, s:o}", "name", perf_kinds[pattern].name, "procs",
			 rep->procs[pattern], "words", words, "summary",
			 summaries_json(rep, pattern));
}

json_t *cmp_json(const struct cmp_report *rep)
{
	json_t *ways = json_array(), *patterns = json_array(), *rows = json_array();
	json_t *notes = json_array(), *o;
	int i;

	for (i = 0; i < rep->nways; i++)
		json_array_append_new(ways, way_json(&rep->ways[i]));
	for (i = 0; i < PERF_PATTERNS; i++)
		if (rep->procs[i])
			json_array_append_new(patterns, pattern_json(rep, (enum perf_pattern)i));
	for (i = 0; i < rep->nrows; i++)
		json_array_append_new(rows, row_json(rep, &rep->rows[i]));
	for (i = 0; i < rep->nnotes; i++)
		json_array_append_new(notes, json_string(rep->notes[i]));
	o = json_pack("{s:s, s:I, s:i, s:s, s:s, s:b, s:s, s:o, s:o, s:o, s:o}", "schema", schema,
		      "seed", (json_int_t)rep->seed, "rounds", rep->rounds, "base",
		      rep->base >= 0 ? rep->ways[rep->base].name : "", "ends", rep->ends,
		      "interrupted", rep->interrupted, "failed", rep->failed, "notes", notes,
		      "ways", ways, "patterns", patterns, "rows", rows);
	if (rep->stamp)
		json_object_update(o, rep->stamp);
	else
		report_stamp(o);
	return o;
}

/* -- reading ------------------------------------------------------------------------------ */

static void copy_string(const json_t *o, const char *key, char *to, size_t n)
{
	const char *s = json_string_value(json_object_get(o, key));

	snprintf(to, n, "%s", s ? s : "");
}

static int way_find(const struct cmp_report *rep, const char *name)
{
	int i;

	for (i = 0; name && i < rep->nways; i++)
		if (!strcmp(rep->ways[i].name, name))
			return i;
	return -1;
}

static int pattern_find(const char *name)
{
	int i;

	for (i = 0; name && i < PERF_DDP; i++)
		if (!strcmp(perf_kinds[i].name, name))
			return i;
	return -1;
}

static void way_read(struct cmp_way *w, const json_t *o)
{
	const json_t *about = json_object_get(o, "about");

	copy_string(o, "name", w->name, sizeof(w->name));
	copy_string(o, "transport", w->way.transport, sizeof(w->way.transport));
	copy_string(o, "why", w->why, sizeof(w->why));
	w->way.lanes = (uint32_t)json_integer_value(json_object_get(o, "lanes"));
	w->reference = json_is_true(json_object_get(o, "reference"));
	w->there = json_is_true(json_object_get(o, "there"));
	copy_string(about, "name", w->about.name, sizeof(w->about.name));
	copy_string(about, "device", w->about.dev, sizeof(w->about.dev));
	w->about.abi = (int32_t)json_integer_value(json_object_get(about, "abi"));
	w->about.speed_mbps = (int32_t)json_integer_value(json_object_get(about, "speed_mbps"));
}

static int row_read(struct cmp_report *rep, const json_t *o)
{
	int pattern = pattern_find(json_string_value(json_object_get(o, "pattern")));
	struct cmp_row row = {
		.way = way_find(rep, json_string_value(json_object_get(o, "over"))),
		.round = (int)json_integer_value(json_object_get(o, "round")),
		.size = (uint64_t)json_integer_value(json_object_get(o, "size")),
	};
	int i;

	if (pattern < 0 || row.way < 0 || row.round < 0 || row.round >= rep->rounds)
		return -EINVAL;
	row.pattern = (enum perf_pattern)pattern;
	for (i = 0; i < CMP_VALUES; i++)
		row.v[i] = json_number_value(json_object_get(o, cmp_value_names[i]));
	return cmp_row_add(rep, &row);
}

/* Of when, where and how the report was made. */
static json_t *stamp_read(const json_t *doc)
{
	static const char *const keys[] = { "date", "command", "host" };
	json_t *o = json_object(), *x;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if ((x = json_object_get(doc, keys[i])))
			json_object_set(o, keys[i], x);
	return o;
}

static int lists_read(struct cmp_report *rep, const json_t *doc)
{
	json_t *o;
	size_t i;
	int pattern, rc = 0;

	json_array_foreach(json_object_get(doc, "ways"), i, o)
		if (rep->nways < CMP_WAYS_MAX)
			way_read(&rep->ways[rep->nways++], o);
	json_array_foreach(json_object_get(doc, "notes"), i, o)
		cmp_note(rep, "%s", json_string_value(o) ? json_string_value(o) : "");
	json_array_foreach(json_object_get(doc, "patterns"), i, o) {
		pattern = pattern_find(json_string_value(json_object_get(o, "name")));
		if (pattern < 0)
			return -EINVAL;
		rep->procs[pattern] = (int)json_integer_value(json_object_get(o, "procs"));
	}
	json_array_foreach(json_object_get(doc, "rows"), i, o)
		if (!rc)
			rc = row_read(rep, o);
	return rc;
}

int cmp_json_read(struct cmp_report *rep, const char *path, char *err)
{
	json_error_t why;
	json_t *doc = strcmp(path, "-") ? json_load_file(path, 0, &why) :
					  json_loadf(stdin, 0, &why);
	const char *is;
	int rc = -EINVAL;

	*rep = (struct cmp_report){ .base = -1 };
	if (!doc) {
		snprintf(err, PERF_TEXT, "%s: %s", path, why.text);
		return rc;
	}
	is = json_string_value(json_object_get(doc, "schema"));
	rep->seed = (uint64_t)json_integer_value(json_object_get(doc, "seed"));
	rep->rounds = (int)json_integer_value(json_object_get(doc, "rounds"));
	rep->interrupted = json_is_true(json_object_get(doc, "interrupted"));
	copy_string(doc, "ends", rep->ends, sizeof(rep->ends));
	copy_string(doc, "failed", rep->failed, sizeof(rep->failed));
	if (!is || strcmp(is, schema))
		snprintf(err, PERF_TEXT, "%s: no report of braid compare (schema %s)", path,
			 schema);
	else if (rep->rounds < 0 || rep->rounds > CMP_ROUNDS_MAX || lists_read(rep, doc) != 0)
		snprintf(err, PERF_TEXT, "%s: a report that this version can't read", path);
	else
		rc = 0;
	rep->base = way_find(rep, json_string_value(json_object_get(doc, "base")));
	rep->stamp = stamp_read(doc);
	json_decref(doc);
	if (rc)
		cmp_report_fini(rep);
	return rc;
}
