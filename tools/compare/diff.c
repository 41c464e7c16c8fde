/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * diff.c - `braid diff A B`: two reports of braid validate, or two of braid perf --json.
 *
 * A figure is worse if its median is worse by more than the threshold, and if that is unlikely to
 * be chance with so many samples.  Means and normal distributions would be wrong here: latencies
 * have long tails.
 */
#include "tools/compare/diff.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cmd.h"
#include "tools/opt.h"
#include "tools/perf/stat.h"
#include "tools/text.h"
#include "tools/validate/validate.h"

enum { EXACT_MOST = 20, SAMPLES_LEAST = 5, SAMPLES_MOST = 1000 };

static const char prog[] = "braid diff";
static const double ALPHA = 0.01;

/* -- statistics --------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double diff_median(const double *v, unsigned n)
{
	double *copy = n ? malloc(n * sizeof(*copy)) : NULL, ret;

	if (!copy)
		return 0;
	memcpy(copy, v, n * sizeof(*copy));
	ret = perf_median(copy, (int)n);
	free(copy);
	return ret;
}

/* The fraction of all orderings of na and nb values in which U is at most u. */
static double exact(unsigned na, unsigned nb, double u)
{
	static double ways[EXACT_MOST + 1][EXACT_MOST + 1][EXACT_MOST * EXACT_MOST + 1];
	double sum = 0, all = 0;

	for (unsigned i = 0; i <= na; i++) {
		for (unsigned k = 0; k <= nb; k++) {
			for (unsigned x = 0; x <= i * k; x++) {
				double w = i == 0 || k == 0;

				if (i && k) {	/* the largest value: of the first series, or not */
					w = x >= k ? ways[i - 1][k][x - k] : 0;
					w += x <= i * (k - 1) ? ways[i][k - 1][x] : 0;
				}
				ways[i][k][x] = w;
			}
			for (unsigned x = i * k + 1; x <= EXACT_MOST * EXACT_MOST; x++)
				ways[i][k][x] = 0;
		}
	}
	for (unsigned x = 0; x <= na * nb; x++) {
		all += ways[na][nb][x];
		sum += x <= u ? ways[na][nb][x] : 0;
	}
	return sum / all;
}

/* How many values are tied, as the sum of t^3 - t. */
static double ties(const double *a, unsigned na, const double *b, unsigned nb)
{
	unsigned n = na + nb;
	double *all = malloc(n * sizeof(*all)), sum = 0;

	if (!all)
		return 0;
	memcpy(all, a, na * sizeof(*all));
	memcpy(all + na, b, nb * sizeof(*all));
	qsort(all, n, sizeof(*all), by_value);
	for (unsigned i = 0, k; i < n; i = k) {
		double t;

		for (k = i + 1; k < n && all[k] <= all[i];)
			k++;
		t = k - i;
		sum += t * t * t - t;
	}
	free(all);
	return sum;
}

double diff_chance(const double *a, unsigned na, const double *b, unsigned nb)
{
	double u = 0, n = na + nb, most = (double)na * nb, tied, sd, z, p;

	if (!na || !nb)
		return 1;
	for (unsigned i = 0; i < na; i++)
		for (unsigned k = 0; k < nb; k++)
			u += a[i] > b[k] ? 1 : a[i] < b[k] ? 0 : 0.5;
	u = fmin(u, most - u);
	tied = ties(a, na, b, nb);
	if (tied <= 0 && na <= EXACT_MOST && nb <= EXACT_MOST) {
		p = 2 * exact(na, nb, u);
		return fmin(p, 1);
	}
	sd = sqrt(most / 12 * (n + 1 - tied / (n * (n - 1))));
	if (!(sd > 0))
		return 1;
	z = fmax(fabs(u - most / 2) - 0.5, 0) / sd;
	return erfc(z / sqrt(2));
}

/* -- reports ------------------------------------------------------------------------------ */

struct series {				/* a figure of a report */
	char name[160];
	const char *unit;
	bool more;			/* more is better */
	double v[SAMPLES_MOST];
	unsigned n;
};

struct sheet {				/* a report */
	const char *path;
	json_t *json;
	bool perf;
	struct series *v;
	unsigned n;
};

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

static void sample(struct series *v, const json_t *x)
{
	if (v && json_is_number(x) && v->n < SAMPLES_MOST)
		v->v[v->n++] = json_number_value(x);
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
				sample(v, x);
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

static void read_perf(struct sheet *s)
{
	json_t *row;
	size_t i;

	json_array_foreach(json_object_get(s->json, "rows"), i, row) {
		for (size_t k = 0; k < sizeof(columns) / sizeof(columns[0]); k++) {
			json_t *x = json_object_get(row, columns[k].column);
			struct series *v;
			char name[160];

			if (!json_is_number(x) || !(json_number_value(x) > 0))
				continue;
			snprintf(name, sizeof(name), "%.40s %.20s %lld bytes %s",
				 text_of(s->json, "pattern"), text_of(row, "fabric"),
				 (long long)json_integer_value(json_object_get(row, "size")),
				 columns[k].column);
			v = series_of(s, name);
			if (v) {
				v->unit = columns[k].unit;
				v->more = columns[k].more;
			}
			sample(v, x);
		}
	}
}

/* Read a report: 0, or 2 after a line that says why it can't be used. */
static int sheet_open(struct sheet *s, const char *path)
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
	if (s->perf && json_is_array(json_object_get(s->json, "rows"))) {
		read_perf(s);
		return 0;
	}
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
	read_validate(s);
	return 0;
}

static void sheet_close(struct sheet *s)
{
	json_decref(s->json);
	free(s->v);
}

/* -- changes ------------------------------------------------------------------------------ */

struct tally {
	unsigned worse, better, same;
	double threshold;
};

static void print_line(enum colour colour, const char *word, const char *text)
{
	printf("%s%-7s%s ", text_colour(colour), word, text_colour(COLOUR_NONE));
	text_wrap(text, 8, 8);
}

static const json_t *check_of(const json_t *report, const char *id)
{
	json_t *c;
	size_t i;

	json_array_foreach(json_object_get(report, "checks"), i, c)
		if (strcmp(text_of(c, "id"), id) == 0)
			return c;
	return NULL;
}

static void compare_check(const json_t *was, const json_t *is, struct tally *t)
{
	const char *a = text_of(was, "result"), *b = text_of(is, "result");
	const char *why = json_string_value(json_array_get(json_object_get(is, "saw"), 0));
	char line[600];

	snprintf(line, sizeof(line), "%s: %s, was %s%s%.400s", text_of(is, "id"), b,
		 was ? a : "not there", why ? ": " : "", why ? why : "");
	if (strcmp(a, b) == 0) {
		t->same++;
	} else if (*b == 'f') {
		t->worse++;
		print_line(COLOUR_BAD, "worse", line);
	} else if (*a == 'f') {
		t->better++;
		print_line(COLOUR_GOOD, "better", line);
	} else {
		print_line(COLOUR_HINT, "other", line);
	}
}

static void compare_checks(const json_t *a, const json_t *b, struct tally *t)
{
	char line[200];
	json_t *c;
	size_t i;

	json_array_foreach(json_object_get(b, "checks"), i, c)
		if (check_of(b, text_of(c, "id")) == c)
			compare_check(check_of(a, text_of(c, "id")), c, t);
	json_array_foreach(json_object_get(a, "checks"), i, c) {
		if (check_of(b, text_of(c, "id")))
			continue;
		snprintf(line, sizeof(line), "%.60s: was %.10s, and is not in the second report",
			 text_of(c, "id"), text_of(c, "result"));
		print_line(COLOUR_HINT, "other", line);
	}
}

static void compare_series(const struct series *a, const struct series *b, struct tally *t)
{
	double was = diff_median(a->v, a->n), is = diff_median(b->v, b->n);
	double percent = was != 0 ? (is - was) / fabs(was) * 100 : is != 0 ? 100 : 0;
	double p = diff_chance(a->v, a->n, b->v, b->n);
	bool moved = fabs(percent) > t->threshold, worse = b->more ? percent < 0 : percent > 0;
	char line[400];

	if (!moved) {
		t->same++;
		return;
	}
	snprintf(line, sizeof(line), "%s: %.5g %s, was %.5g (%+.1f %%; p = %.2g of %u and %u "
		 "samples)", b->name, is, b->unit, was, percent, p, a->n, b->n);
	if (a->n < SAMPLES_LEAST || b->n < SAMPLES_LEAST)
		print_line(COLOUR_HINT, "unsure", strcat(line, ": too few to tell from chance"));
	else if (p >= ALPHA)
		print_line(COLOUR_HINT, "unsure", strcat(line, ": may be chance"));
	else if (worse)
		t->worse++, print_line(COLOUR_BAD, "worse", line);
	else
		t->better++, print_line(COLOUR_GOOD, "better", line);
}

static void compare_figures(const struct sheet *a, const struct sheet *b, struct tally *t)
{
	for (unsigned i = 0; i < b->n; i++)
		for (unsigned k = 0; k < a->n; k++)
			if (strcmp(a->v[k].name, b->v[i].name) == 0)
				compare_series(&a->v[k], &b->v[i], t);
}

static int compare(const struct sheet *a, const struct sheet *b, double threshold)
{
	struct tally t = { .threshold = threshold };

	if (!a->perf)
		compare_checks(a->json, b->json, &t);
	compare_figures(a, b, &t);
	printf("%u worse, %u better, %u as before: %s\n", t.worse, t.better, t.same,
	       t.worse ? "something has become worse" : "nothing has become worse");
	return t.worse ? 1 : 0;
}

static const char about[] =
	"What has changed from report A to report B: of braid validate --json FILE, or of\n"
	"braid perf --json.  A figure counts as changed beyond the threshold, with five\n"
	"samples or more on each side, and where chance would do so once in 100 times.\n"
	"Exit status: 0 nothing is worse, 1 something is, 2 a report can't be read.";

int cmd_diff(int argc, char **argv)
{
	const char *paths[2] = { NULL, NULL };
	double threshold = 10;
	const struct opt rows[] = {
		{OPT_ARG, "A", NULL, "the report of before", &paths[0], 0, 0},
		{OPT_ARG, "B", NULL, "the report of after", &paths[1], 0, 0},
		{OPT_REAL, "threshold", "PERCENT", "what is less is no change (10)", &threshold, 0,
		 1000},
		OPT_SUCH_AS("braid diff before.json after.json",
			    "two reports of braid validate --json, or of braid perf --json"),
		OPT_SUCH_AS("braid diff --threshold 3 monday.json today.json",
			    "what is less than 3 % is no change"),
		{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
	};
	enum opt_end end;
	struct sheet a, b;
	int rc;

	end = opt_parse(prog, about, rows, argc, argv);
	if (end != OPT_RUN)
		return end;
	if (!paths[1])
		return opt_error(prog, "two reports are needed, see --help");
	rc = sheet_open(&a, paths[0]);
	if (!rc) {
		rc = sheet_open(&b, paths[1]);
		if (!rc && a.perf != b.perf)
			rc = opt_error(prog, "one report is of braid perf, the other of braid "
				       "validate");
		if (!rc)
			rc = compare(&a, &b, threshold);
		sheet_close(&b);
	}
	sheet_close(&a);
	return rc;
}
