/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * opt.c - see opt.h.
 *
 * This file has a parser of its own because getopt_long and argp print two lines for a mistake, or
 * do not say which option was wrong.
 */
#include "tools/opt.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/text.h"

enum { HELP_COLUMN = 24 };

static opt_visitor visitor;

void opt_visit(opt_visitor visit)
{
	visitor = visit;
}

__attribute__((format(printf, 3, 0)))
static void complain(const char *prog, const char *id, const char *fmt, va_list ap)
{
	char text[2048];
	size_t len;

	vsnprintf(text, sizeof(text), fmt, ap);
	text_clean(text, sizeof(text), "");
	len = strlen(text);
	if (len && text[len - 1] == ']')
		id = "";
	fprintf(stderr, "%s: %s%s%s\n", prog, text, *id ? " " : "", id);
}

int opt_error(const char *prog, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(prog, "[bad-option]", fmt, ap);
	va_end(ap);
	return 2;
}

int opt_fail(const char *prog, const char *id, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	complain(prog, id, fmt, ap);
	va_end(ap);
	return 1;
}

bool opt_is_stdout(const char *path)
{
	return path && strcmp(path, "-") == 0;
}

/* May files be made in the directory of `path`?  If not, errno says why. */
static bool has_room(const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
	return access(dir, W_OK | X_OK) == 0;
}

/*
 * What is written for `path` has this name until it is whole.  False: what is there is written
 * itself, for it is a pipe or a link, say, or a file of a directory that is not ours.
 */
static bool part_name(const char *path, char *ret, size_t len)
{
	struct stat st;
	int n = snprintf(ret, len, "%s.%d.tmp", path, (int)getpid());

	return n > 0 && (size_t)n < len && has_room(path) &&
	       (lstat(path, &st) != 0 || S_ISREG(st.st_mode));
}

/* 0, or an errno. */
static int why_not_made(const char *path)
{
	struct stat st;

	if (opt_is_stdout(path))
		return 0;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return EISDIR;
	if (access(path, W_OK) == 0)
		return 0;
	if (errno != ENOENT)
		return errno;
	return has_room(path) ? 0 : errno;
}

FILE *opt_create(const char *prog, const char *path)
{
	char part[PATH_MAX];
	FILE *f;

	if (opt_is_stdout(path))
		return stdout;
	f = fopen(part_name(path, part, sizeof(part)) ? part : path, "we");
	if (!f)
		opt_error(prog, "%s: %s [cannot-write]", path, strerror(errno));
	return f;
}

int opt_finish(const char *prog, const char *path, FILE *f, bool made)
{
	char part[PATH_MAX];
	bool apart = f != stdout && part_name(path, part, sizeof(part));
	bool bad = fflush(f) != 0 || ferror(f);

	if (f == stdout)
		clearerr(f);		/* reported once */
	else
		bad |= fclose(f) != 0;
	bad |= !made;
	if (apart && !bad)
		bad = rename(part, path) != 0;
	if (apart && bad)
		unlink(part);
	return bad ? opt_error(prog, "%s: could not be written, or not all of it [cannot-write]",
			       f == stdout ? "standard output" : path) : 0;
}

static void option_help(const struct opt *o)
{
	int used = printf("  %s%s%s%s", opt_has_dashes(o) ? "--" : "", o->name, o->arg ? " " : "",
			  o->arg ? o->arg : "");

	if (used > HELP_COLUMN - 2) {
		putchar('\n');
		used = 0;
	}
	text_wrap(o->help, HELP_COLUMN, used);
}

static void help(const char *prog, const char *about, const struct opt *opts)
{
	const struct opt *o;
	bool any = false;

	printf("usage: %s", prog);
	for (o = opts; o->type != OPT_END; o++) {
		if (o->type == OPT_ARG)
			printf(" %s", o->name);
	}
	printf(" [options]\n%s\n\n", about);
	for (o = opts; o->type != OPT_END; o++) {
		if (o->type != OPT_EXAMPLE)
			option_help(o);
	}
	for (o = opts; o->type != OPT_END; o++) {
		if (o->type != OPT_EXAMPLE)
			continue;
		printf("%s  %s\n      %s\n", any ? "" : "\nFor example\n", o->name, o->help);
		any = true;
	}
}

/* The row named by `word` up to an optional "=value"; NULL if there is none. */
static const struct opt *row_find(const struct opt *o, const char *word, const char **ret_value)
{
	size_t len = strcspn(word, "=");

	for (; o->type != OPT_END; o++) {
		if (opt_has_dashes(o) && strlen(o->name) == len &&
		    memcmp(o->name, word, len) == 0) {
			*ret_value = word[len] ? word + len + 1 : NULL;
			return o;
		}
	}
	return NULL;
}

/* The line for a word with dashes that no row has; it names the row that is most like it. */
static int unknown(const char *prog, const struct opt *o, const char *word)
{
	char name[64];
	const char *near_name = NULL;

	snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 2, "="), word + 2);
	for (; o->type != OPT_END; o++)
		if (opt_has_dashes(o))
			near_name = text_nearer(name, near_name, o->name);
	if (near_name)
		return opt_error(prog, "unknown option '%s'; is --%s meant?", word, near_name);
	return opt_error(prog, "unknown option '%s', see --help", word);
}

/* The first row from *next on that takes a word without dashes; NULL: none is left. */
static const struct opt *arg_next(const struct opt **next)
{
	while ((*next)->type != OPT_END) {
		if ((*next)++->type == OPT_ARG)
			return *next - 1;
	}
	return NULL;
}

/* "1000000", not "1e+06". */
static const char *bound(double x, char room[32])
{
	snprintf(room, 32, x > -1e15 && x < 1e15 && x == (double)(long long)x ? "%.0f" : "%g", x);
	return room;
}

static int number_set(const char *prog, const struct opt *o, const char *value)
{
	char *end, least[32], most[32];
	double x;

	errno = 0;
	x = strtod(value, &end);
	if (*value == 0 || *end || errno || !(x >= o->least && x <= o->most) ||
	    (o->type == OPT_INT && x != (double)(long long)x))
		return opt_error(prog, "--%s takes a%s from %s to %s, not '%s'", o->name,
				 o->type == OPT_INT ? "n integer" : " number",
				 bound(o->least, least), bound(o->most, most), value);
	if (o->type == OPT_INT)
		*(int *)o->to = (int)x;
	else
		*(double *)o->to = x;
	return 0;
}

static int value_set(const char *prog, const struct opt *o, const char *value)
{
	int why = o->type == OPT_OUTPUT ? why_not_made(value) : 0;

	if (o->type != OPT_TEXT && o->type != OPT_OUTPUT)
		return number_set(prog, o, value);
	if (why)
		return opt_error(prog, "%s: %s [cannot-write]", value, strerror(why));
	*(const char **)o->to = value;
	return 0;
}

enum opt_end opt_parse(const char *prog, const char *about, const struct opt *opts, int argc,
		       char **argv)
{
	const struct opt *o, *next = opts;
	const char *value;
	int i;

	if (visitor) {
		visitor(prog, about, opts);
		return OPT_HELPED;
	}
	for (i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			help(prog, about, opts);
			return OPT_HELPED;
		}
		o = argv[i][0] != '-' ? arg_next(&next) : NULL;
		if (o) {
			*(const char **)o->to = argv[i];
			continue;
		}
		if (strncmp(argv[i], "--", 2) != 0 || argv[i][2] == 0)
			return opt_error(prog, "unexpected argument '%s', see --help", argv[i]),
			       OPT_BAD;
		o = row_find(opts, argv[i] + 2, &value);
		if (!o)
			return unknown(prog, opts, argv[i]), OPT_BAD;
		if (o->type == OPT_FLAG) {
			if (value)
				return opt_error(prog, "--%s takes no value", o->name), OPT_BAD;
			*(bool *)o->to = true;
			continue;
		}
		if (!value && i + 1 == argc)
			return opt_error(prog, "--%s needs %s", o->name, o->arg), OPT_BAD;
		if (value_set(prog, o, value ? value : argv[++i]) != 0)
			return OPT_BAD;
	}
	return OPT_RUN;
}
