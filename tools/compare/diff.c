/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * diff.c - `braid diff A B`: two reports of braid validate, or two of braid perf --json.
 *
 * A figure is worse if it is so by more than the threshold, and if chance would show that in one
 * of 100 comparisons of two reports, however many figures they have.  Where both reports have raw
 * TCP beside the plugin, the plugin's figures are taken as ratios to it: a busier host slows both.
 * Samples whose processes were kept from the CPU by other programs do not count.
 */
#include "tools/compare/diff.h"
#include "tools/compare/diff_read.h"

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cmd.h"
#include "tools/opt.h"
#include "tools/report/report.h"
#include "tools/text.h"

enum { SAMPLES_LEAST = 5 };

static const char prog[] = "braid diff";
static const double ALPHA = 0.01;

/* -- changes ------------------------------------------------------------------------------ */

struct change {				/* one figure of both reports */
	const struct series *a, *b;
	double was, is, percent;
	double p;			/* that chance shows a change in that direction */
	const char *result, *why;
};

struct diff {
	const struct sheet *a, *b;
	double threshold;		/* per cent */
	struct change *v;
	unsigned n;
	json_t *notes, *checks;
	unsigned worse, better, same;
};

static const json_t *check_of(const json_t *report, const char *id)
{
	json_t *c;
	size_t i;

	json_array_foreach(json_object_get(report, "checks"), i, c)
		if (strcmp(text_of(c, "id"), id) == 0)
			return c;
	return NULL;
}

static void compare_check(struct diff *d, const json_t *was, const json_t *is)
{
	const char *a = was ? text_of(was, "result") : "not there";
	const char *b = is ? text_of(is, "result") : "", *result = "other";
	const char *why = json_string_value(json_array_get(json_object_get(is, "saw"), 0));

	if (strcmp(a, b) == 0) {
		d->same++;
		return;
	}
	if (strcmp(b, "fail") == 0)
		d->worse++, result = "worse";
	else if (strcmp(a, "fail") == 0 && is)
		d->better++, result = "better";
	json_array_append_new(d->checks, json_pack("{s:s, s:s, s:s, s:s, s:s}", "id",
						   text_of(is ? is : was, "id"), "result", result,
						   "was", a, "is", b, "saw", why ? why : ""));
}

static void compare_checks(struct diff *d)
{
	const json_t *a = d->a->json, *b = d->b->json;
	json_t *c;
	size_t i;

	json_array_foreach(json_object_get(b, "checks"), i, c)
		if (check_of(b, text_of(c, "id")) == c)
			compare_check(d, check_of(a, text_of(c, "id")), c);
	json_array_foreach(json_object_get(a, "checks"), i, c)
		if (!check_of(b, text_of(c, "id")))
			compare_check(d, c, NULL);
}

/* What is shown, also where no sample counts. */
static double middle(const struct series *s)
{
	return s->n ? diff_median(s->v, s->n) : diff_median(s->starved_v, s->starved);
}

static void judge(struct diff *d, struct change *c)
{
	bool worse = c->b->more ? c->percent < 0 : c->percent > 0;
	unsigned starved = c->a->starved + c->b->starved;

	c->why = "";
	if (fabs(c->percent) <= d->threshold) {
		c->result = "same";
		d->same++;
	} else if (c->p < ALPHA) {
		c->result = worse ? "worse" : "better";
		d->worse += worse;
		d->better += !worse;
	} else {
		c->result = "unsure";
		c->why = starved > (c->a->n + c->b->n) / 2 ? "other programs had the CPU" :
			 c->a->n < SAMPLES_LEAST || c->b->n < SAMPLES_LEAST ?
			 "too few to tell from chance" : "may be chance";
	}
}

/* Holm's correction is among all figures, also those that have not moved. */
static void compare_figures(struct diff *d)
{
	double **p;

	d->v = calloc(d->b->n + 1, sizeof(*d->v));
	p = calloc(d->b->n + 1, sizeof(*p));
	for (unsigned i = 0; d->v && p && i < d->b->n; i++) {
		for (unsigned k = 0; k < d->a->n; k++) {
			const struct series *a = &d->a->v[k], *b = &d->b->v[i];
			struct change *c = &d->v[d->n];

			if (strcmp(a->name, b->name) != 0)
				continue;
			*c = (struct change){ .a = a, .b = b, .was = middle(a), .is = middle(b) };
			c->percent = c->was != 0 ? (c->is - c->was) / fabs(c->was) * 100 :
				     c->is != 0 ? 100 : 0;
			c->p = diff_chance_beyond(a->v, a->n, b->v, b->n, c->is > c->was,
						  d->threshold / 100);
			p[d->n++] = &c->p;
			break;
		}
	}
	if (p)
		diff_holm(p, d->n);
	for (unsigned i = 0; i < d->n; i++)
		judge(d, &d->v[i]);
	free(p);
}

/* -- what else differs, and then figures say little about what was changed ------------------ */

static void note(struct diff *d, const char *what, const char *a, const char *b)
{
	char line[400];

	if (strcmp(a, b) == 0)
		return;
	snprintf(line, sizeof(line), "%s differs: %.150s, then %.150s", what, *a ? a : "not known",
		 *b ? b : "not known");
	json_array_append_new(d->notes, json_string(line));
}

static void notes(struct diff *d)
{
	static const char *const settings[] = { "procs", "comms", "threads", "inflight", "pinned",
		"checked" };
	static const char *const fabrics[] = { "plugin", "raw" };
	static const char *const host[] = { "name", "kernel", "cpu", "governor", "nccl" };
	const json_t *a = d->a->json, *b = d->b->json, *x, *y;
	unsigned least = diff_samples_least(d->n, ALPHA), n = SAMPLES_MOST;
	char line[200];

	for (size_t i = 0; i < 2; i++) {
		x = json_object_get(json_object_get(a, "fabrics"), fabrics[i]);
		y = json_object_get(json_object_get(b, "fabrics"), fabrics[i]);
		if (x && y)
			note(d, "the device", text_of(x, "device"), text_of(y, "device"));
	}
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		x = json_object_get(a, settings[i]);
		y = json_object_get(b, settings[i]);
		snprintf(line, sizeof(line), "--%s differs", settings[i]);
		if (x && y && !json_equal(x, y))
			json_array_append_new(d->notes, json_string(line));
	}
	x = json_object_get(a, "host");
	y = json_object_get(b, "host");
	for (size_t i = 0; x && y && i < sizeof(host) / sizeof(host[0]); i++) {
		snprintf(line, sizeof(line), "the host's %s", host[i]);
		note(d, line, text_of(x, host[i]), text_of(y, host[i]));
	}
	for (unsigned i = 0; i < d->n; i++) {
		unsigned na = d->v[i].a->n + d->v[i].a->starved;
		unsigned nb = d->v[i].b->n + d->v[i].b->starved;

		n = na < n ? na : n;
		n = nb < n ? nb : n;
	}
	snprintf(line, sizeof(line), "with %u samples and %u figures nothing can be sure: %u "
		 "rounds or more", n, d->n, least);
	if (d->n && n < least)
		json_array_append_new(d->notes, json_string(line));
}

/* -- the report --------------------------------------------------------------------------- */

static json_t *figure_json(const struct change *c)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:f, s:f, s:f, s:f, s:i, s:i, s:i}", "name",
			 c->b->name, "unit", c->b->unit ? c->b->unit : "", "result", c->result,
			 "why", c->why, "was", c->was, "is", c->is, "percent", c->percent, "p",
			 c->p,
			 "samples_was", (int)c->a->n, "samples_is", (int)c->b->n, "starved",
			 (int)(c->a->starved + c->b->starved));
}

static json_t *report_of(const struct diff *d)
{
	json_t *figures = json_array(), *doc;
	char verdict[200];

	for (unsigned i = 0; i < d->n; i++)
		json_array_append_new(figures, figure_json(&d->v[i]));
	snprintf(verdict, sizeof(verdict), "%u worse, %u better, %u as before: %s", d->worse,
		 d->better, d->same,
		 d->worse ? "something has become worse" : "nothing has become worse");
	doc = json_pack("{s:s, s:s, s:s, s:f, s:i, s:i, s:i, s:s, s:O, s:O, s:o}", "schema",
			"braid-diff-1", "a", d->a->path, "b", d->b->path, "threshold", d->threshold,
			"worse", (int)d->worse, "better", (int)d->better, "same", (int)d->same,
			"verdict", verdict, "notes", d->notes, "checks", d->checks, "figures",
			figures);
	report_stamp(doc);
	return doc;
}

static void print_line(const char *word, const char *text)
{
	enum colour colour = strcmp(word, "worse") == 0 ? COLOUR_BAD :
			     strcmp(word, "better") == 0 ? COLOUR_GOOD : COLOUR_HINT;

	printf("%s%-7s%s ", text_colour(colour), word, text_colour(COLOUR_NONE));
	text_wrap(text, 8, 8);
}

static void print(const struct diff *d, const json_t *doc)
{
	char line[900];
	json_t *x;
	size_t i;

	json_array_foreach(d->notes, i, x)
		print_line("note", json_string_value(x));
	json_array_foreach(d->checks, i, x) {
		if (*text_of(x, "is"))
			snprintf(line, sizeof(line), "%s: %s, was %s%s%.400s", text_of(x, "id"),
				 text_of(x, "is"), text_of(x, "was"),
				 *text_of(x, "saw") ? ": " : "", text_of(x, "saw"));
		else
			snprintf(line, sizeof(line), "%s: was %s, and is not in the second report",
				 text_of(x, "id"), text_of(x, "was"));
		print_line(text_of(x, "result"), line);
	}
	for (i = 0; i < d->n; i++) {
		const struct change *c = &d->v[i];

		if (strcmp(c->result, "same") == 0)
			continue;
		snprintf(line, sizeof(line), "%s: %.5g %s, was %.5g (%+.1f %%; p = %.2g of %u and "
			 "%u samples)%s%s", c->b->name, c->is, c->b->unit ? c->b->unit : "", c->was,
			 c->percent, c->p, c->a->n, c->b->n, *c->why ? ": " : "", c->why);
		print_line(c->result, line);
	}
	printf("%s\n", text_of(doc, "verdict"));
}

struct output {
	const char *json;
	struct report_to page;
};

static int write_out(const struct diff *d, const struct output *out)
{
	json_t *doc = report_of(d);
	int rc;

	if (!opt_is_stdout(out->json) && !report_is_stdout(&out->page))
		print(d, doc);
	rc = report_write(prog, &out->page, out->json, doc);
	json_decref(doc);
	return rc;
}

static int compare(struct sheet *a, struct sheet *b, double threshold, const struct output *out)
{
	struct diff d = { .a = a, .b = b, .threshold = threshold, .notes = json_array(),
			  .checks = json_array() };
	bool beside = sheet_has_raw(a) && sheet_has_raw(b);
	int rc;

	sheet_fill(a, beside);
	sheet_fill(b, beside);
	if (!a->perf)
		compare_checks(&d);
	compare_figures(&d);
	notes(&d);
	rc = write_out(&d, out);
	json_decref(d.notes);
	json_decref(d.checks);
	free(d.v);
	return rc ? rc : d.worse ? 1 : 0;
}

static const char about[] =
	"What has changed from report A to report B: of braid validate --json FILE, or of\n"
	"braid perf --json.  A figure has changed if it did by more than the threshold,\n"
	"and if chance shows any such change in less than one of 100 pairs of reports.\n"
	"With raw TCP in both (--raw) ratios to it are compared, for a busier host slows\n"
	"both.  Samples that other programs kept from the CPU do not count.\n"
	"Exit status: 0 nothing is worse, 1 something is, 2 a report can't be read.";

int cmd_diff(int argc, char **argv)
{
	const char *paths[2] = { NULL, NULL };
	double threshold = 10;
	struct output out = { .json = NULL };
	const struct opt rows[] = {
		{OPT_ARG, "A", NULL, "the report of before", &paths[0], 0, 0},
		{OPT_ARG, "B", NULL, "the report of after", &paths[1], 0, 0},
		{OPT_REAL, "threshold", "PERCENT", "what is less is no change (10)", &threshold, 0,
		 1000},
		{OPT_OUTPUT, "json", "FILE", "also write JSON; -: only that, to stdout", &out.json,
		 0, 0},
		REPORT_OPTIONS(out.page),
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
			rc = compare(&a, &b, threshold, &out);
		sheet_close(&b);
	}
	sheet_close(&a);
	return rc;
}
