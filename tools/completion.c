/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * completion.c - `braid completion`: a script by which bash, zsh or fish completes subcommands,
 * their options, files where an option takes one, words and PIDs.  Made of the same rows as --help.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tools/cmd.h"

static const struct commands *all;	/* global: an opt_visitor gets no user argument */

/* The option tables name an option's value FILE, PATH or DIR if it is a file. */
static bool has_file_arg(const struct opt *o)
{
	return o->arg && (strstr(o->arg, "FILE") || strstr(o->arg, "PATH") ||
			  strstr(o->arg, "DIR"));
}

/* Print text for a shell's single quotes, with a backslash before the `special` characters. */
static void quoted(const char *text, const char *special)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\''", stdout);
		else if (strchr(special, *text))
			printf("\\%c", *text);
		else
			putchar(*text);
	}
}

/* What a value may be: words, what `braid COMMAND` prints, or else the words of its help. */
struct choices {
	const char *prog, *name;	/* of the option, or of a row without dashes */
	const char *words, *command;
	bool list;			/* several, with commas */
};

#define IDS " --list 2>/dev/null | grep -o \"^[a-z][a-z0-9-]*\""
#define PIDS "stat --pids 2>/dev/null"

static const struct choices choices[] = {
	{"braid perf", "pattern", NULL, NULL, false},
	{"braid compare", "patterns", NULL, NULL, true},
	{"braid validate", "[PROFILE]", "quick full soak", NULL, false},
	{"braid validate", "only", NULL, "validate" IDS, true},
	{"braid doctor", "only", NULL, "doctor" IDS, true},
	{"braid doctor", "pid", NULL, PIDS, false},
	{"braid stat", "[PID]", NULL, PIDS, false},
	{"braid dump", "PID", NULL, PIDS, false},
	{"braid completion", "shell", "bash zsh fish", NULL, false},
};

static const struct choices *choices_of(const char *prog, const struct opt *o)
{
	for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
		if (o->type != OPT_EXAMPLE && strcmp(choices[i].prog, prog) == 0 &&
		    strcmp(choices[i].name, o->name) == 0)
			return &choices[i];
	}
	return NULL;
}

/* The subcommand in a message prefix: "smc setup" of "braid smc setup". */
static const char *words_of(const char *prog)
{
	return strchr(prog, ' ') + 1;
}

/* -- bash --------------------------------------------------------------------------------- */

static const char *words_for(const struct choices *c, const struct opt *o)
{
	return c->words ? c->words : c->command ? NULL : o->help;
}

static void bash_choices(const struct choices *c, const struct opt *o)
{
	const char *words = words_for(c, o);

	printf("_braid_of '%s' ", c->list ? "," : "");
	if (words)
		printf("'%s'\n", words);
	else
		printf("\"$(\"${COMP_WORDS[0]}\" %s)\"\n", c->command);
}

/* Values of options, and of the words without dashes. */
static void bash_values(const char *prog, const struct opt *opts)
{
	puts("\t\tcase $prev in");
	for (const struct opt *o = opts; o->type != OPT_END; o++) {
		const struct choices *c = choices_of(prog, o);

		if (!c || !opt_has_dashes(o))
			continue;
		printf("\t\t--%s)\n\t\t\t", o->name);
		bash_choices(c, o);
		puts("\t\t\treturn ;;");
	}
	puts("\t\tesac");
	for (const struct opt *o = opts; o->type != OPT_END; o++) {
		const struct choices *c = choices_of(prog, o);

		if (!c || opt_has_dashes(o))
			continue;
		fputs("\t\t[[ $cur == -* || $values$files == *\" $prev \"* ]] || ", stdout);
		bash_choices(c, o);
	}
}

static void bash_options(const char *prog, const char *about, const struct opt *opts)
{
	(void)about;
	printf("\t'%s')\n\t\twords='--help", words_of(prog));
	for (const struct opt *o = opts; o->type != OPT_END; o++) {
		if (opt_has_dashes(o))
			printf(" --%s", o->name);
	}
	printf("'\n\t\tvalues='");
	for (const struct opt *o = opts; o->type != OPT_END; o++) {
		if (opt_has_dashes(o) && o->type != OPT_FLAG && !has_file_arg(o))
			printf(" --%s ", o->name);
	}
	printf("'\n\t\tfiles='");
	for (const struct opt *o = opts; o->type != OPT_END; o++) {
		if (opt_has_dashes(o) && has_file_arg(o))
			printf(" --%s ", o->name);
	}
	puts("'");
	bash_values(prog, opts);
	puts("\t\t;;");
}

static void bash(void)
{
	puts("# bash completion of braid, made by `braid completion --shell bash`\n"
	     "# Offer WORDS; $1: what separates the words of a list, or nothing.\n"
	     "_braid_of()\t\t\t# SEPARATOR WORDS\n{\n"
	     "\tlocal last=$cur\n\n"
	     "\t[ -z \"$1\" ] || last=${cur##*\"$1\"}\n"
	     "\tCOMPREPLY+=($(compgen -P \"${cur%\"$last\"}\" -W \"$2\" -- \"$last\"))\n"
	     "}\n\n"
	     "_braid()\n{\n"
	     "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
	     "\tlocal what=${COMP_WORDS[1]} words= values= files=\n\n"
	     "\tCOMPREPLY=()\n"
	     "\tif [ \"$COMP_CWORD\" -eq 1 ]; then");
	fputs("\t\tCOMPREPLY=($(compgen -W 'help --version", stdout);
	for (unsigned i = 0; i < all->n; i++) {
		if (!strchr(all->row[i].name, ' '))
			printf(" %s", all->row[i].name);
	}
	puts("' -- \"$cur\"))\n\t\treturn\n\tfi");
	for (unsigned i = 0; i < all->n; i++) {
		const char *sub = strchr(all->row[i].name, ' ');
		int under = sub ? (int)(sub - all->row[i].name) : 0;

		if (sub)
			printf("\tif [ \"$what ${COMP_WORDS[2]}\" = '%s' ] && "
			       "[ \"$COMP_CWORD\" -gt 2 ]; then\n"
			       "\t\twhat='%s'\n"
			       "\telif [ \"$what\" = '%.*s' ] && [ \"$COMP_CWORD\" -eq 2 ]; then\n"
			       "\t\tCOMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n\tfi\n",
			       all->row[i].name, all->row[i].name, under, all->row[i].name,
			       sub + 1);
	}
	puts("\tcase $what in");
	commands_visit(all, bash_options);
	puts("\tesac\n"
	     "\tcase $values in *\" $prev \"*) return ;; esac\n"
	     "\tcase $files in *\" $prev \"*) COMPREPLY=($(compgen -f -- \"$cur\")); return ;; "
	     "esac\n"
	     "\tCOMPREPLY+=($(compgen -W \"$words\" -- \"$cur\"))\n"
	     "}\n"
	     "complete -o filenames -F _braid braid");
}

/* -- zsh ---------------------------------------------------------------------------------- */

static void zsh_choices(const struct choices *c, const struct opt *o)
{
	const char *words = words_for(c, o), *with = c->list ? "_values -s , word" : "compadd --";

	if (words)
		printf(":{%s %s}", with, words);
	else
		printf(":{%s ${(f)\"$(braid %s)\"}}", with, c->command);
}

static void zsh_option(const char *prog, const struct opt *o)
{
	const struct choices *c = choices_of(prog, o);

	if (!opt_has_dashes(o) && !c)
		return;
	fputs(" \\\n\t\t\t'", stdout);
	if (opt_has_dashes(o)) {
		printf("--%s[", o->name);
		quoted(o->help, "[]:\\");
		putchar(']');
	}
	if (o->arg || c) {
		fputs(opt_has_dashes(o) ? ":" : "1:", stdout);
		quoted(o->arg ? o->arg : "word", "[]:\\");
		if (c)
			zsh_choices(c, o);
		else
			printf(":%s", has_file_arg(o) ? "_files" : "");
	}
	putchar('\'');
}

static void zsh_options(const char *prog, const char *about, const struct opt *opts)
{
	(void)about;
	printf("\t'%s')\n\t\t_arguments", words_of(prog));
	for (const struct opt *o = opts; o->type != OPT_END; o++)
		zsh_option(prog, o);
	puts(" ;;");
}

static void zsh(void)
{
	puts("#compdef braid\n"
	     "# zsh completion of braid, made by `braid completion --shell zsh`\n"
	     "_braid()\n{\n"
	     "\tlocal what=$words[2]\n"
	     "\tlocal -a names\n\n"
	     "\tif (( CURRENT == 2 )); then\n\t\tnames=(");
	for (unsigned i = 0; i < all->n; i++) {
		if (strchr(all->row[i].name, ' '))
			continue;
		printf("\t\t\t'%s:", all->row[i].name);
		quoted(all->row[i].help, "\\");
		puts("'");
	}
	puts("\t\t)\n\t\t_describe 'subcommand' names\n\t\treturn\n\tfi");
	for (unsigned i = 0; i < all->n; i++) {
		if (strchr(all->row[i].name, ' '))
			printf("\tif [[ \"$what $words[3]\" == '%s' ]]; then\n\t\twhat='%s'\n"
			       "\t\tshift words\n\t\t(( CURRENT-- ))\n\tfi\n",
			       all->row[i].name, all->row[i].name);
	}
	puts("\tshift words\n\t(( CURRENT-- ))\n\tcase $what in");
	commands_visit(all, zsh_options);
	puts("\tesac\n}\n_braid \"$@\"");
}

/* -- fish --------------------------------------------------------------------------------- */

/* The condition for fish: the words so far end in this subcommand, not in one below it. */
static void fish_where(const char *name)
{
	const char *sub = strchr(name, ' ');
	int under = sub ? (int)(sub - name) : (int)strlen(name);

	printf("complete -c braid -n '__fish_seen_subcommand_from %.*s", under, name);
	if (sub)
		printf("; and __fish_seen_subcommand_from %s", sub + 1);
	for (unsigned i = 0; i < all->n && !sub; i++) {
		if (strncmp(all->row[i].name, name, (size_t)under) == 0 &&
		    all->row[i].name[under] == ' ')
			printf("; and not __fish_seen_subcommand_from %s",
			       all->row[i].name + under + 1);
	}
	putchar('\'');
}

static void fish_text(const char *text)
{
	fputs(" -d '", stdout);
	for (; *text; text++)
		printf(strchr("'\\", *text) ? "\\%c" : "%c", *text);
	puts("'");
}

/* Between single quotes: fish runs what is in (), and what a list's words come from once more. */
static void fish_choices(const struct choices *c, const struct opt *o)
{
	const char *words = words_for(c, o);

	if (words && !c->list) {
		printf(" -a '%s'", words);
		return;
	}
	fputs(c->list ? " -a '(__fish_complete_list , \"" : " -a '(", stdout);
	fputs(words ? "string split , " : "braid ", stdout);
	for (const char *s = words ? words : c->command; *s; s++) {
		if (c->list && *s == '"')
			putchar('\\');
		putchar(words && *s == ' ' ? ',' : *s);
	}
	fputs(c->list ? "\")'" : ")'", stdout);
}

static void fish_options(const char *prog, const char *about, const struct opt *opts)
{
	(void)about;
	for (const struct opt *o = opts; o->type != OPT_END; o++) {
		const struct choices *c = choices_of(prog, o);

		if (!opt_has_dashes(o) && !c)
			continue;
		fish_where(words_of(prog));
		if (opt_has_dashes(o))
			printf(" -l %s%s", o->name,
			       o->type == OPT_FLAG ? "" : has_file_arg(o) ? " -r -F" : " -x");
		if (c)
			fish_choices(c, o);
		fish_text(o->help);
	}
}

static void fish(void)
{
	puts("# fish completion of braid, made by `braid completion --shell fish`\n"
	     "complete -c braid -f");
	for (unsigned i = 0; i < all->n; i++) {
		const char *sub = strchr(all->row[i].name, ' ');

		printf("complete -c braid -n ");
		if (sub)
			printf("'__fish_seen_subcommand_from %.*s' -a %s",
			       (int)(sub - all->row[i].name), all->row[i].name, sub + 1);
		else
			printf("__fish_use_subcommand -a %s", all->row[i].name);
		fish_text(all->row[i].help);
	}
	commands_visit(all, fish_options);
}

int cmd_completion(const struct commands *table, int argc, char **argv)
{
	const char *shell = NULL;
	const struct opt rows[] = {
		{OPT_TEXT, "shell", "NAME", "bash, zsh or fish", &shell, 0, 0},
		OPT_SUCH_AS("source <(braid completion --shell bash)", "in this shell alone"),
		{OPT_END, NULL, NULL, NULL, NULL, 0, 0},
	};
	static const struct {
		const char *name;
		void (*print)(void);
	} shells[] = { {"bash", bash}, {"zsh", zsh}, {"fish", fish} };
	enum opt_end end;

	end = opt_parse("braid completion",
			"A script by which a shell completes subcommands, options and files.\n"
			"make install puts it where each shell looks.", rows, argc, argv);
	if (end != OPT_RUN)
		return end;
	all = table;
	for (size_t i = 0; shell && i < sizeof(shells) / sizeof(shells[0]); i++) {
		if (strcmp(shell, shells[i].name) == 0) {
			shells[i].print();
			return 0;
		}
	}
	return opt_error("braid completion", "--shell is bash, zsh or fish");
}
