/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * completion.c - `braid completion`: a script by which bash, zsh or fish completes subcommands,
 * their options, and files where an option takes one.  Made of the same rows as --help.
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

/* The subcommand in a message prefix: "smc setup" of "braid smc setup". */
static const char *words_of(const char *prog)
{
	return strchr(prog, ' ') + 1;
}

/* -- bash --------------------------------------------------------------------------------- */

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
	puts("' ;;");
}

static void bash(void)
{
	puts("# bash completion of braid, made by `braid completion --shell bash`\n"
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

static void zsh_options(const char *prog, const char *about, const struct opt *opts)
{
	(void)about;
	printf("\t'%s')\n\t\t_arguments", words_of(prog));
	for (const struct opt *o = opts; o->type != OPT_END; o++) {
		if (!opt_has_dashes(o))
			continue;
		printf(" \\\n\t\t\t'--%s[", o->name);
		quoted(o->help, "[]:\\");
		putchar(']');
		if (o->arg) {
			putchar(':');
			quoted(o->arg, "[]:\\");
			printf(":%s", has_file_arg(o) ? "_files" : "");
		}
		putchar('\'');
	}
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

static void fish_options(const char *prog, const char *about, const struct opt *opts)
{
	(void)about;
	for (const struct opt *o = opts; o->type != OPT_END; o++) {
		if (!opt_has_dashes(o))
			continue;
		fish_where(words_of(prog));
		printf(" -l %s%s", o->name,
		       o->type == OPT_FLAG ? "" : has_file_arg(o) ? " -r -F" : " -x");
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
