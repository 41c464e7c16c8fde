/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * opt.h - the command line of a subcommand, as a table: one row is the parser and the help.
 *
 * Long options only, "--name value" or "--name=value"; no positional arguments.  A mistake is one
 * line on stderr that names the option and what it takes.
 */
#ifndef BRAID_TOOLS_OPT_H
#define BRAID_TOOLS_OPT_H

enum opt_type { OPT_END, OPT_FLAG, OPT_INT, OPT_REAL, OPT_TEXT };

struct opt {
	enum opt_type type;
	const char *name;	/* without the dashes */
	const char *arg;	/* what its value is called in the help; NULL for a flag */
	const char *help;
	void *to;		/* bool, int, double or const char *: as type says */
	double least, most;	/* INT and REAL */
};

enum opt_end { OPT_RUN, OPT_HELPED, OPT_BAD };

/* argv[0] is the subcommand; `prog` is what messages start with, such as "braid perf". */
enum opt_end opt_parse(const char *prog, const char *about, const struct opt *opts, int argc,
		       char **argv);

/* One line on stderr, "PROG: TEXT"; returns 2, the exit status of a bad command line. */
int opt_error(const char *prog, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
