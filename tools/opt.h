/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * opt.h - the command line of a subcommand, as a table: one row is both the parser and the help.
 *
 * Long options only: "--name value" or "--name=value".  Words without dashes fill the rows of type
 * OPT_ARG in order; each of them may be left out.  A mistake is one line on stderr that names the
 * option and what it takes.  opt_visit() gives the rows to the generators of braid(1) and of the
 * shells' completion.
 */
#ifndef BRAID_TOOLS_OPT_H
#define BRAID_TOOLS_OPT_H

#include <stdbool.h>
#include <stdio.h>

enum opt_type {
	OPT_END, OPT_FLAG, OPT_INT, OPT_REAL, OPT_TEXT,
	OPT_OUTPUT,		/* a TEXT, of a file that can be made; "-" is standard output */
	OPT_ARG,		/* a word without dashes; "[PID]" may be left out */
	OPT_EXAMPLE,		/* a command line, in `name`, and what it does, in `help` */
};

struct opt {
	enum opt_type type;
	const char *name;	/* without the dashes; of an ARG, for the help: "PID" */
	const char *arg;	/* what its value is called in the help; NULL for a flag */
	const char *help;
	void *to;		/* a bool, int, double, or const char *, by the type */
	double least, most;	/* INT and REAL */
};

#define OPT_SUCH_AS(line, does) {OPT_EXAMPLE, line, NULL, does, NULL, 0, 0}

static inline bool opt_has_dashes(const struct opt *o)
{
	return o->type != OPT_ARG && o->type != OPT_EXAMPLE;
}

/* What opt_parse() returns: OPT_RUN, or else the exit status. */
enum opt_end { OPT_RUN = -1, OPT_HELPED = 0, OPT_BAD = 2 };

/* argv[0] is the subcommand; `prog` is what messages start with, such as "braid perf". */
enum opt_end opt_parse(const char *prog, const char *about, const struct opt *opts, int argc,
		       char **argv);

/* From now on opt_parse() only passes its rows to `visit` and returns OPT_HELPED; NULL ends it. */
typedef void (*opt_visitor)(const char *prog, const char *about, const struct opt *opts);
void opt_visit(opt_visitor visit);

/* One line on stderr, "PROG: TEXT [bad-option]"; returns 2, the status of a bad command line. */
int opt_error(const char *prog, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * The same for a failure at run time; returns 1.  `id` is "[NAME]" (docs/user/messages.md); it is
 * left out where the text ends in one, as a plugin's own warning does.
 */
int opt_fail(const char *prog, const char *id, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * An output file that an option names; "-" is standard output.  opt_parse() has looked whether it
 * can be made, before anything is measured.  opt_create() returns NULL after reporting why.
 * opt_finish() closes the file, which only then has its name: a file is whole or is not there.  If
 * a write failed, or the caller could not make all of it (`made` is false), it reports that and
 * returns 2.
 */
bool opt_is_stdout(const char *path);		/* NULL is not */
FILE *opt_create(const char *prog, const char *path);
int opt_finish(const char *prog, const char *path, FILE *f, bool made);

#endif
