/* SPDX-License-Identifier: BSD-3-Clause */
/* report.c - text for people, TAP 13 for test drivers, JSON to keep, JUnit XML for CI. */
#include "config.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/text.h"
#include "tools/validate/validate.h"
#include "tools/opt.h"

enum { TITLE_AT = 35, TEXT_AT = 9 };

static const char *first_saw(const json_t *c)
{
	const char *s = json_string_value(json_array_get(json_object_get(c, "saw"), 0));

	return s ? s : "";
}

static bool is_failure(const json_t *c)
{
	return strcmp(text_of(c, "result"), "fail") == 0;
}

bool report_is_quiet(const struct options *w)
{
	return opt_is_stdout(w->json) || opt_is_stdout(w->junit) || report_is_stdout(&w->page);
}

/* -- text --------------------------------------------------------------------------------- */

/* The word has the meaning; symbol and colour only help. */
static void print_result(const json_t *c)
{
	static const struct {
		const char *word, *symbol, *plain;
		enum colour colour;
	} rows[] = {
		{ "pass", "\342\234\223", "+", COLOUR_GOOD },
		{ "fail", "\342\234\227", "x", COLOUR_BAD },
		{ "skip", "\342\200\223", "-", COLOUR_DIM },
		{ "measured", "\302\267", ".", COLOUR_NONE },
		{ "unfinished", "?", "?", COLOUR_WARN },
	};
	bool utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(rows[i].word, text_of(c, "result")) == 0)
			printf("%s%s %-10s%s  ", text_colour(rows[i].colour),
			       utf8 ? rows[i].symbol : rows[i].plain, rows[i].word,
			       text_colour(COLOUR_NONE));
}

static void print_text(const json_t *c)
{
	bool failed = is_failure(c);
	bool figures = json_array_size(json_object_get(c, "figures")) > 0;
	int used = 14;
	json_t *s;
	size_t i;

	print_result(c);
	used += printf("%-20s ", text_of(c, "id"));
	text_wrap(text_of(c, "title"), TITLE_AT, used);
	if (!failed && !figures && strcmp(text_of(c, "result"), "pass") == 0)
		return;
	fputs(text_colour(failed ? COLOUR_NONE : COLOUR_DIM), stdout);
	json_array_foreach(json_object_get(c, "saw"), i, s)
		text_wrap(json_string_value(s), TEXT_AT, 0);
	if (failed) {
		printf("%*sdo: ", TEXT_AT, "");
		text_wrap(text_of(c, "mend"), TEXT_AT + 4, TEXT_AT + 4);
	}
	fputs(text_colour(COLOUR_NONE), stdout);
}

static void print_verdict(const json_t *report)
{
	const json_t *n = json_object_get(report, "counts");
	int fails = (int)json_integer_value(json_object_get(n, "fail"));
	json_t *c;
	size_t i;

	printf("\n%d pass, %d fail, %d skip", (int)json_integer_value(json_object_get(n, "pass")),
	       fails, (int)json_integer_value(json_object_get(n, "skip")));
	if (json_integer_value(json_object_get(n, "measured")))
		printf(", %d measured", (int)json_integer_value(json_object_get(n, "measured")));
	if (json_integer_value(json_object_get(n, "unfinished")))
		printf(", %d unfinished",
		       (int)json_integer_value(json_object_get(n, "unfinished")));
	printf(" in %.1f s; seed %lld\n",
	       json_real_value(json_object_get(report, "seconds")),
	       (long long)json_integer_value(json_object_get(report, "seed")));
	json_array_foreach(json_object_get(report, "checks"), i, c)
		if (is_failure(c))
			printf("  failed: %s\n", text_of(c, "id"));
	if (!json_is_true(json_object_get(report, "complete")))
		puts("Not all was looked at.");
	else if (!fails)
		puts("Nothing failed.");
}

/* -- TAP ---------------------------------------------------------------------------------- */

static void print_quoted(const char *key, const char *text)
{
	json_t *s = json_string(text);
	char *quoted = json_dumps(s, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);

	printf("  %s: %s\n", key, quoted ? quoted : "\"?\"");
	free(quoted);
	json_decref(s);
}

static void print_tap(const json_t *c, unsigned nth)
{
	const char *result = text_of(c, "result");
	json_t *s;
	size_t i;

	printf("%sok %u - %s: %s", strchr("fu", *result) ? "not " : "", nth, text_of(c, "id"),
	       text_of(c, "title"));
	printf(*result == 's' ? " # SKIP %s\n" : "%.0s\n", first_saw(c));
	if (*result == 'f') {
		puts("  ---");
		print_quoted("message", first_saw(c));
		puts("  severity: fail");
		print_quoted("mend", text_of(c, "mend"));
		printf("  seconds: %.3f\n  ...\n",
		       json_number_value(json_object_get(c, "seconds")));
	}
	json_array_foreach(json_object_get(c, "saw"), i, s)
		if (json_array_size(json_object_get(c, "figures")))
			printf("# %s\n", json_string_value(s));
}

/* -- while checks run --------------------------------------------------------------------- */

void report_begin(const struct options *w, unsigned n)
{
	setlocale(LC_CTYPE, "");
	if (!w->tap)
		return;
	puts("TAP version 13");
	if (w->profile != PROFILE_SOAK)
		printf("1..%u\n", n);
	fflush(stdout);
}

void report_check(const struct options *w, const json_t *c, unsigned nth)
{
	if (w->tap)
		print_tap(c, nth);
	else if (!report_is_quiet(w) && (w->profile != PROFILE_SOAK || is_failure(c)))
		print_text(c);		/* a soak prints failures, and its seeds */
	fflush(stdout);
}

/* -- JUnit -------------------------------------------------------------------------------- */

static void xml(FILE *f, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '<':
			fputs("&lt;", f);
			break;
		case '>':
			fputs("&gt;", f);
			break;
		case '&':
			fputs("&amp;", f);
			break;
		case '"':
			fputs("&quot;", f);
			break;
		default:
			fputc((unsigned char)*text < ' ' ? ' ' : *text, f);
		}
	}
}

static void xml_attribute(FILE *f, const char *name, const char *value)
{
	fprintf(f, " %s=\"", name);
	xml(f, value);
	fputc('"', f);
}

static void xml_property(FILE *f, const char *name, const char *value)
{
	fputs("      <property", f);
	xml_attribute(f, "name", name);
	xml_attribute(f, "value", value);
	fputs("/>\n", f);
}

static void xml_properties(FILE *f, const json_t *report)
{
	const json_t *host = json_object_get(report, "host");
	const char *key;
	json_t *x;

	fputs("    <properties>\n", f);
	xml_property(f, "plugin", text_of(report, "plugin"));
	xml_property(f, "profile", text_of(report, "profile"));
	json_object_foreach((json_t *)(uintptr_t)host, key, x)
		if (json_is_string(x))
			xml_property(f, key, json_string_value(x));
	json_object_foreach(json_object_get(host, "environment"), key, x)
		xml_property(f, key, json_string_value(x));
	fputs("    </properties>\n", f);
}

static void xml_case(FILE *f, const json_t *c)
{
	const char *result = text_of(c, "result");
	char name[64];
	json_t *s;
	size_t i;

	snprintf(name, sizeof(name), "braid.%s", text_of(c, "group"));
	fputs("    <testcase", f);
	xml_attribute(f, "classname", name);
	xml_attribute(f, "name", text_of(c, "id"));
	fprintf(f, " time=\"%.3f\">\n", json_number_value(json_object_get(c, "seconds")));
	if (*result == 's')
		fputs("      <skipped", f), xml_attribute(f, "message", first_saw(c)),
			fputs("/>\n", f);
	if (*result == 'f') {
		fputs("      <failure", f);
		xml_attribute(f, "message", first_saw(c));
		fputs(">", f);
		xml(f, text_of(c, "mend"));
		fputs("</failure>\n", f);
	}
	fputs("      <system-out>", f);
	json_array_foreach(json_object_get(c, "saw"), i, s)
		xml(f, json_string_value(s)), fputc('\n', f);
	fputs("</system-out>\n    </testcase>\n", f);
}

static void write_junit(FILE *f, const json_t *report)
{
	const json_t *n = json_object_get(report, "counts");
	char counts[160];
	json_t *c;
	size_t i;

	snprintf(counts, sizeof(counts),
		 "tests=\"%zu\" failures=\"%d\" errors=\"0\" skipped=\"%d\" time=\"%.3f\"",
		 json_array_size(json_object_get(report, "checks")),
		 (int)json_integer_value(json_object_get(n, "fail")),
		 (int)json_integer_value(json_object_get(n, "skip")),
		 json_real_value(json_object_get(report, "seconds")));
	fprintf(f, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
		"  <testsuite name=\"braid validate\" %s", counts);
	xml_attribute(f, "hostname", text_of(json_object_get(report, "host"), "name"));
	fputs(">\n", f);
	xml_properties(f, report);
	json_array_foreach(json_object_get(report, "checks"), i, c)
		xml_case(f, c);
	fputs("  </testsuite>\n</testsuites>\n", f);
}

static void write_json(FILE *f, const json_t *report)
{
	json_dumpf(report, f, JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(9));
	fputc('\n', f);
}

static int write_to(const char *path, void (*write)(FILE *f, const json_t *report),
		    const json_t *report)
{
	FILE *f = path ? opt_create("braid validate", path) : NULL;

	if (!f)
		return path ? 2 : 0;
	write(f, report);
	return opt_finish("braid validate", path, f, true);
}

int report_save(const struct options *w, const json_t *report)
{
	return write_to(w->json, write_json, report);
}

/* A soak's report does not list all that passed. */
static int total(const json_t *report)
{
	const char *key;
	json_t *n;
	int sum = 0;

	json_object_foreach(json_object_get(report, "counts"), key, n)
		sum += (int)json_integer_value(n);
	return sum;
}

int report_end(const struct options *w, const json_t *report)
{
	if (w->tap && w->profile == PROFILE_SOAK)
		printf("1..%d\n", total(report));
	else if (!w->tap && !report_is_quiet(w))
		print_verdict(report);
	return report_save(w, report) | write_to(w->junit, write_junit, report) |
	       report_pages("braid validate", &w->page, report);
}
