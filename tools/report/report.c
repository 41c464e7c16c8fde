/* SPDX-License-Identifier: BSD-3-Clause */
/* report.c - `braid report FILE`, and the pages that other commands write beside their JSON. */
#include "tools/report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/cmd.h"
#include "tools/opt.h"
#include "tools/report/page.h"
#include "tools/text.h"

static const struct {
	const char *schema;		/* how its name begins */
	json_t *(*page)(const json_t *doc);
} kinds[] = {
	{ "braid-perf", page_of_perf },
	{ "braid-compare", page_of_compare },
	{ "braid-validate", page_of_validate },
	{ "braid-topo", page_of_topo },
	{ "braid-diff", page_of_diff },
	{ "braid-mesh", page_of_mesh },
};

static char *command;			/* as main() was started; NULL: not known */

void report_command(int argc, char **argv)
{
	FILE *f;
	size_t n;

	free(command);
	f = open_memstream(&command, &n);
	if (!f)
		return;
	fputs("braid", f);
	for (int i = 1; i < argc; i++)
		fprintf(f, strpbrk(argv[i], " \t\n'\"$&|;<>()*?#") ? " '%s'" : " %s", argv[i]);
	fclose(f);
}

void report_stamp(json_t *doc)
{
	char date[32];
	time_t now = time(NULL);
	struct tm tm;

	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
	if (!json_object_get(doc, "date"))
		json_object_set_new(doc, "date", json_string(date));
	if (command && !json_object_get(doc, "command"))
		json_object_set_new(doc, "command", json_string(command));
	if (!json_object_get(doc, "host"))
		json_object_set_new(doc, "host", report_inventory());
}

bool report_is_stdout(const struct report_to *to)
{
	return opt_is_stdout(to->html) || opt_is_stdout(to->markdown);
}

/* NULL: no report of ours. */
static json_t *page_of(const json_t *doc)
{
	const char *schema = text_of(doc, "schema");

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strncmp(schema, kinds[i].schema, strlen(kinds[i].schema)) == 0) {
			json_t *page = kinds[i].page(doc);

			page_provenance(page, doc);
			return page;
		}
	}
	return NULL;
}

static int write_one(const char *prog, const char *path, const json_t *page,
		     void (*write)(const json_t *page, FILE *to))
{
	FILE *f = path ? opt_create(prog, path) : NULL;

	if (!f)
		return path ? 2 : 0;
	write(page, f);
	return opt_finish(prog, path, f, true);
}

int report_json(const char *prog, const char *path, const json_t *doc)
{
	FILE *f = opt_create(prog, path);

	if (!f)
		return 2;
	return opt_finish(prog, path, f,
			  !json_dumpf(doc, f, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) &&
			  fputc('\n', f) != EOF);
}

int report_pages(const char *prog, const struct report_to *to, const json_t *doc)
{
	json_t *page;
	int rc;

	if (!to->html && !to->markdown)
		return 0;
	page = page_of(doc);
	if (!page)
		return opt_error(prog, "no report of perf, compare, validate, topo, diff or mesh "
				 "[bad-report]");
	rc = write_one(prog, to->html, page, page_html) |
	     write_one(prog, to->markdown, page, page_markdown);
	json_decref(page);
	return rc;
}

bool report_is_wanted(const struct report_to *to, const char *json)
{
	return json || to->html || to->markdown;
}

int report_write(const char *prog, const struct report_to *to, const char *json, json_t *doc)
{
	int rc = 0;

	if (to->anonymize)
		report_anonymize(doc);
	if (json)
		rc = report_json(prog, json, doc);
	return rc | report_pages(prog, to, doc);
}

int cmd_report(int argc, char **argv)
{
	const char *file = NULL;
	struct report_to to = { .html = NULL };
	const struct opt rows[] = {
		{OPT_ARG, "FILE", NULL, "what --json of another command has written", &file, 0, 0},
		{OPT_OUTPUT, "html", "FILE", "a page to look at (stdout)", &to.html, 0, 0},
		{OPT_OUTPUT, "markdown", "FILE", "the same for a ticket", &to.markdown, 0, 0},
		{OPT_FLAG, "anonymize", NULL, "without names and addresses of hosts", &to.anonymize,
		 0, 0},
		OPT_SUCH_AS("braid report soak.json --html soak.html",
			    "a page of what a soak has found so far"),
		OPT_SUCH_AS("braid report perf.json --markdown -", "tables for a ticket"),
		{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
	};
	static const char about[] = "A page for people, of the JSON that perf, compare, validate, "
		"topo,\ndiff or mesh wrote.";
	enum opt_end end = opt_parse("braid report", about, rows, argc, argv);
	json_error_t e;
	json_t *doc;
	int rc;

	if (end != OPT_RUN)
		return end;
	if (!file)
		return opt_error("braid report", "which report? See --help");
	doc = strcmp(file, "-") ? json_load_file(file, 0, &e) : json_loadf(stdin, 0, &e);
	if (!doc)
		return opt_error("braid report", "%s: %s [bad-report]", file, e.text);
	if (!to.html && !to.markdown)
		to.html = "-";
	rc = report_write("braid report", &to, NULL, doc);
	json_decref(doc);
	return rc;
}
