/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * genman.c - print the manual pages, in mdoc.
 *
 * Without an argument it prints braid-params(7), from the rows of param.def.  With a file it prints
 * braid(1): that file, in which options replace lines such as
 *
 * 	.\" @synopsis		all subcommands with their options
 * 	.\" @options perf	what each option of one does
 *
 * The build runs it; it is never installed.  A new parameter needs a row in param.def only; a new
 * subcommand needs its @options.  mdoc wants every sentence on a line of its own, and a few
 * characters spelled out.
 */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/param.h"
#include "tools/cmd.h"

enum { COLUMNS = 70 };

static const char head[] =
	".\\\" Made by tools/genman.c from core/base/param.def: change it there.\n"
	".Dd November 20, 2026\n"
	".Dt BRAID-PARAMS 7\n"
	".Os\n"
	".Sh NAME\n"
	".Nm braid-params\n"
	".Nd what a user of the Braid network plugin can set\n"
	".Sh DESCRIPTION\n"
	"Braid reads its parameters from the environment once, when the first\n"
	"communicator initialises it.\n"
	"NCCL puts the lines of\n"
	".Pa ~/.nccl.conf\n"
	"and\n"
	".Pa /etc/nccl.conf\n"
	"into the environment before, so these variables can be set there as well.\n"
	"In a process that runs with raised privileges (set-user-ID and the like)\n"
	"nothing is read.\n"
	".Pp\n"
	"A size takes a suffix\n"
	".Cm k , m\n"
	"or\n"
	".Cm g ,\n"
	"for 1024, 1024\\(S2 and 1024\\(S3 bytes.\n"
	"An empty variable is one that is not set.\n"
	"Where a variable of NCCL's is named, it is read if Braid's own is not set;\n"
	"it is read as NCCL reads it, and \\-1 means the default.\n"
	".Pp\n"
	"A bad value of a variable of Braid's own is an error, and Braid does not start:\n"
	"one warning names the variable, the value and the range.\n"
	"A value of a variable of NCCL's that Braid does not have is passed over with a\n"
	"warning.\n"
	"A variable whose name begins with\n"
	".Ev BRAID_\n"
	"and that is not listed here has no effect, and a warning says which one that\n"
	"exists is nearest.\n"
	".Sh ENVIRONMENT\n"
	".Bl -tag -width Ds\n";

static const char nccl_head[] =
	".El\n"
	".Sh NCCL'S VARIABLES\n"
	"Of NCCL's variables for its own InfiniBand and Socket code Braid heeds those\n"
	"that are named above as fall-backs:\n"
	".Bl -column NCCL_IB_PCI_RELAXED_ORDERING BRAID_IB_PCI_RELAXED_ORDERING\n";

static const char unheeded_head[] =
	".El\n"
	".Pp\n"
	"The rest has no effect on Braid, which one line at INFO says of those that are\n"
	"set,\n"
	".Dq not heeded :\n"
	".Bl -tag -width Ds\n";

static const char tail[] =
	".El\n"
	".Sh EXAMPLES\n"
	"Two streams per link over the interfaces whose names begin with ens:\n"
	".Bd -literal -offset indent\n"
	"BRAID_LANES=2\n"
	"BRAID_SOCKET_IFNAME=ens\n"
	".Ed\n"
	".Sh SEE ALSO\n"
	".Xr braid 1\n";

/* How mdoc spells a character of running text; NULL: as it is. */
static const char *spell(const char *p, const char *start)
{
	switch (*p) {
	case '\\':
		return "\\e";
	case '^':
		return "\\(ha";
	case '~':
		return "\\(ti";
	case '`':
		return "\\(ga";
	case '\'':
		/* At the start of a line a quote mark is a request; it is plain in "don't" only. */
		return p > start && isalpha((unsigned char)p[-1]) ? "'" : "\\(aq";
	case '"':
		return "\\(dq";
	case '-':
		return isdigit((unsigned char)p[1]) ? "\\-" : "-";
	default:
		return NULL;
	}
}

static void print_word(const char *word, size_t len, const char *start)
{
	if (*word == '.')
		fputs("\\&", stdout);
	for (const char *p = word; p < word + len; p++) {
		const char *s = spell(p, start);

		if (s)
			fputs(s, stdout);
		else
			putchar(*p);
	}
}

/* Running text, a new line for each sentence. */
static void print_text(const char *text)
{
	size_t column = 0;

	for (const char *p = text; *(p += strspn(p, " ")); ) {
		size_t len = strcspn(p, " ");

		if (column && column + 1 + len > COLUMNS) {
			putchar('\n');
			column = 0;
		} else if (column) {
			putchar(' ');
			column++;
		}
		print_word(p, len, text);
		column += len;
		p += len;
		if (strchr(".!?", p[-1])) {
			putchar('\n');
			column = 0;
		}
	}
	if (column)
		putchar('\n');
}

static const char *type_name(enum braid_param_type type)
{
	switch (type) {
	case BRAID_PARAM_INT:
		return "integer";
	case BRAID_PARAM_SIZE:
		return "size";
	case BRAID_PARAM_STR:
	default:
		return "text";
	}
}

/* Type and range, default, and NCCL's variable, one line each. */
static void print_facts(const struct braid_param_row *row)
{
	char range[96], def[64];

	braid_param_range(row, range, sizeof(range));
	if (row->type == BRAID_PARAM_STR)
		snprintf(def, sizeof(def), "%s", *row->def ? row->def : "empty");
	else
		braid_param_format(row, strtoll(row->def, NULL, 10), def, sizeof(def));
	printf("Type: %s, ", type_name(row->type));
	print_text(range);
	puts(".br");
	fputs("Default: ", stdout);
	print_text(def);
	if (row->fallback)
		printf(".br\nNCCL fall-back:\n.Ev %s\n", row->fallback);
}

static void print_row(const struct braid_param_row *row)
{
	fputs(".It Ev BRAID_", stdout);
	for (const char *p = row->name; *p; p++)
		putchar(toupper((unsigned char)*p));
	putchar('\n');
	print_text(row->help);
	puts(".Pp");
	print_facts(row);
}

/* Print a row's help, which is half a sentence, as a whole one. */
static void print_help(const char *help)
{
	char text[256];

	snprintf(text, sizeof(text), "%s.", help);
	text[0] = (char)toupper((unsigned char)text[0]);
	print_text(text);
}

/* Which of NCCL's variables take effect, and as which parameter; which do not, and why. */
static void print_nccl(void)
{
	fputs(nccl_head, stdout);
	for (unsigned i = 0; i < braid_param_count; i++) {
		const struct braid_param_row *row = &braid_param_rows[i];

		if (!row->fallback)
			continue;
		printf(".It Ev %s Ta Ev BRAID_", row->fallback);
		for (const char *p = row->name; *p; p++)
			putchar(toupper((unsigned char)*p));
		putchar('\n');
	}
	fputs(unheeded_head, stdout);
	for (unsigned i = 0; i < braid_nccl_count; i++) {
		printf(".It Ev %s\n", braid_nccl_rows[i].name);
		print_help(braid_nccl_rows[i].why);
	}
}

/* -- braid(1) ----------------------------------------------------------------------------- */

static const char *wanted;		/* the subcommand whose options are to be printed */
static unsigned found;

/* Print an argument's name as mdoc's Ar: "HOST:PORT" in lower case, "[PID]" without brackets. */
static void print_arg(const char *arg)
{
	size_t len = strlen(arg);
	bool optional = len && arg[0] == '[' && arg[len - 1] == ']';

	fputs("Ar ", stdout);
	for (size_t i = optional; i < len - optional; i++)
		putchar(tolower((unsigned char)arg[i]));
}

static void print_name(const struct opt *o, bool in_synopsis)
{
	const char *arg = o->type == OPT_ARG ? o->name : o->arg;

	putchar('.');
	if (!in_synopsis)
		fputs("It ", stdout);
	else if (o->type != OPT_ARG || *o->name == '[')
		fputs("Op ", stdout);
	if (o->type != OPT_ARG)
		printf("Fl -%s%s", o->name, arg ? " " : "");
	if (arg)
		print_arg(arg);
	putchar('\n');
}

static void synopsis(const char *prog, const char *about, const struct opt *opts)
{
	(void)about;
	printf(".Nm\n.Cm %s\n", strchr(prog, ' ') + 1);
	for (const struct opt *o = opts; o->type != OPT_END; o++) {
		if (o->type != OPT_EXAMPLE)
			print_name(o, true);
	}
}

static void options(const char *prog, const char *about, const struct opt *opts)
{
	bool examples = false;

	if (strcmp(strchr(prog, ' ') + 1, wanted) != 0)
		return;
	found++;
	(void)about;
	puts(".Bl -tag -width \"--connect host:port\"");
	for (const struct opt *o = opts; o->type != OPT_END; o++) {
		examples |= o->type == OPT_EXAMPLE;
		if (o->type == OPT_EXAMPLE)
			continue;
		print_name(o, false);
		print_text(o->help);		/* not as a sentence: it may begin with a value */
	}
	puts(".El");
	if (examples)
		puts(".Pp\nFor example:\n.Bl -tag -width Ds");
	for (const struct opt *o = opts; o->type != OPT_END; o++) {
		if (o->type != OPT_EXAMPLE)
			continue;
		fputs(".It Li \"", stdout);
		print_word(o->name, strlen(o->name), o->name);
		puts("\"");
		print_text(o->help);
	}
	if (examples)
		puts(".El");
}

/* Copy the file, with options in their places. */
static int print_commands(const char *path)
{
	FILE *in = fopen(path, "r");
	char line[512];

	if (!in) {
		perror(path);
		return 1;
	}
	while (fgets(line, sizeof(line), in)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, ".\\\" @options ", 13) == 0) {
			wanted = line + 13;
			commands_visit(&commands, options);
		} else if (strcmp(line, ".\\\" @synopsis") == 0) {
			commands_visit(&commands, synopsis);
		} else {
			puts(line);
		}
	}
	fclose(in);
	if (found != commands.n)
		fprintf(stderr, "%s: options of %u of %u subcommands\n", path, found, commands.n);
	return found != commands.n;
}

int main(int argc, char **argv)
{
	int rc = 0;

	if (argc > 1) {
		rc = print_commands(argv[1]);
	} else {
		fputs(head, stdout);
		for (unsigned i = 0; i < braid_param_count; i++)
			print_row(&braid_param_rows[i]);
		print_nccl();
		fputs(tail, stdout);
	}
	return fflush(stdout) == 0 && !ferror(stdout) ? rc : 1;
}
