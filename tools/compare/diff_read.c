/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * diff_read.c - reads reports of braid validate and of braid perf for `braid diff`.
 *
 * Samples whose processes were kept from the CPU by other programs are left out: they say nothing
 * of what is compared.
 */
#include "tools/compare/diff_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/opt.h"
#include "tools/text.h"
#include "tools/validate/validate.h"

static const char prog[] = "braid diff";
static const double CPU_LEAST = 0.8;	/* share of a CPU that a measurement needs */

static struct series *series_of(struct sheet *s, const char *name)
{
	struct series *v;

	for (unsigned i = 0; i < s->n; i++)
		if (strcmp(s->v[i].name, name) == 0)
			return &s->v[i];
	v = realloc(s->v, (s->n + 1) * sizeof(*v));
	if (!v)
		return NULL;
	s->v = v;
	v = &s->v[s->n++];
	memset(v, 0, sizeof(*v));
	snprintf(v->name, sizeof(v->name), "%s", name);
	return v;
}

/* `share`: of a CPU, that the more starved process had; 0: not known. */
static void sample(struct series *v, const json_t *x, double base, double share)
{
	if (!v || !json_is_number(x) || v->n + v->starved == SAMPLES_MOST)
		return;
	if (share > 0 && share < CPU_LEAST)
		v->starved_v[v->starved++] = json_number_value(x) / base;
	else
		v->v[v->n++] = json_number_value(x) / base;
}

static void read_validate(struct sheet *s)
{
	json_t *c, *f, *x;
	size_t i, k, m;

	json_array_foreach(json_object_get(s->json, "checks"), i, c) {
		json_array_foreach(json_object_get(c, "figures"), k, f) {
			struct series *v = series_of(s, text_of(f, "name"));

			if (!v)
				continue;
			v->unit = text_of(f, "unit");
			v->more = strcmp(text_of(f, "better"), "more") == 0;
			json_array_foreach(json_object_get(f, "samples"), m, x)
				sample(v, x, 1, json_number_value(json_array_get(
					json_object_get(f, "cpu_share"), m)));
		}
	}
}

/* The figures of a row that can be better or worse; each round is a sample. */
static const struct {
	const char *column, *unit;
	bool more;
} columns[] = {
	{ "p50_us", "us", false }, { "p99_us", "us", false }, { "gbit_s", "Gbit/s", true },
	{ "msg_s", "1/s", true }, { "cpu_s_per_gb", "s/GB", false },
};

/* What raw TCP had in the same round; 0: it was not measured. */
static double raw_of(const struct sheet *s, const json_t *like, const char *column)
{
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(s->json, "rows"), i, row)
		if (strcmp(text_of(row, "fabric"), "raw") == 0 &&
		    json_equal(json_object_get(row, "size"), json_object_get(like, "size")) &&
		    json_equal(json_object_get(row, "round"), json_object_get(like, "round")))
			return json_number_value(json_object_get(row, column));
	return 0;
}

/* The row's size is its number of comms in pattern setup, which has no rounds. */
static void read_row(struct sheet *s, const json_t *row, bool beside)
{
	double share = json_number_value(json_object_get(row, "cpu_share"));
	bool raw = strcmp(text_of(row, "fabric"), "raw") == 0;

	for (size_t k = 0; k < sizeof(columns) / sizeof(columns[0]); k++) {
		const json_t *x = json_object_get(row, columns[k].column);
		double base = beside && !raw ? raw_of(s, row, columns[k].column) : 0;
		struct series *v;
		char name[160];

		if (!json_is_number(x) || !(json_number_value(x) > 0) || (beside && raw))
			continue;
		snprintf(name, sizeof(name), "%.40s %.20s %lld bytes %s%s",
			 text_of(s->json, "pattern"), text_of(row, "fabric"),
			 (long long)json_integer_value(json_object_get(row, "size")),
			 columns[k].column, base > 0 ? " over raw TCP" : "");
		v = series_of(s, name);
		if (v) {
			v->unit = base > 0 ? "times" : columns[k].unit;
			v->more = columns[k].more;
		}
		sample(v, x, base > 0 ? base : 1, share);
	}
}

static bool has_fabric(const struct sheet *s, const char *name)
{
	return json_object_get(json_object_get(s->json, "fabrics"), name) != NULL;
}

bool sheet_has_raw(const struct sheet *s)
{
	return has_fabric(s, "raw") && has_fabric(s, "plugin");
}

static void read_perf(struct sheet *s, bool beside)
{
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(s->json, "rows"), i, row)
		read_row(s, row, beside);
}

void sheet_fill(struct sheet *s, bool beside)
{
	if (s->perf)
		read_perf(s, beside);
	else
		read_validate(s);
}

int sheet_open(struct sheet *s, const char *path)
{
	const char *schema;
	json_error_t e;
	json_t *version;

	*s = (struct sheet){ .path = path };
	s->json = json_load_file(path, 0, &e);
	if (!s->json)
		return e.line < 1 ? opt_error(prog, "%s", e.text) :
				    opt_error(prog, "%s: line %d: %s [bad-report]", path, e.line,
					      e.text);
	schema = text_of(s->json, "schema");
	version = json_object_get(s->json, "version");
	s->perf = strcmp(schema, "braid-perf-1") == 0;
	if (s->perf && json_is_array(json_object_get(s->json, "rows")))
		return 0;
	if (strncmp(schema, "braid-perf-", 11) == 0 && !s->perf)
		return opt_error(prog, "%s: %s is newer than this braid [newer-report]",
				 path, schema);
	if (strcmp(schema, "braid-validate") != 0)
		return opt_error(prog, "%s: neither of braid validate --json nor of braid perf "
				 "--json [bad-report]", path);
	if (json_integer_value(version) > VALIDATE_VERSION)
		return opt_error(prog, "%s: version %lld is newer than this braid, which knows %d "
				 "[newer-report]",
				 path, (long long)json_integer_value(version), VALIDATE_VERSION);
	if (json_integer_value(version) < 1 || !json_is_array(json_object_get(s->json, "checks")))
		return opt_error(prog, "%s: not a whole report [bad-report]", path);
	return 0;
}

void sheet_close(struct sheet *s)
{
	json_decref(s->json);
	free(s->v);
}
