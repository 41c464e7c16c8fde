/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * main.c - `braid SUBCOMMAND`: runs a row of the table (commands.c).
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "git-hash.h"
#include "tools/cmd.h"
#include "tools/report/report.h"
#include "tools/text.h"

static void help(void)
{
	puts("usage: braid SUBCOMMAND [options]\n");
	for (unsigned i = 0; i < commands.n; i++)
		printf("  %-10s  %s\n", commands.row[i].name, commands.row[i].help);
	printf("  %-10s  This list\n", "help");
	puts("\n`braid SUBCOMMAND --help` lists its options; `braid --version` says which it is.");
}

static const struct command *find(const char *name)
{
	for (unsigned i = 0; i < commands.n; i++)
		if (strcmp(name, commands.row[i].name) == 0)
			return &commands.row[i];
	return NULL;
}

/* The subcommand that is most like a word that none has. */
static int unknown(const char *word)
{
	const char *name = NULL;

	for (unsigned i = 0; i < commands.n; i++)
		name = text_nearer(word, name, commands.row[i].name);
	if (name)
		return opt_error("braid", "no subcommand '%s'; is %s meant?", word, name);
	return opt_error("braid", "no subcommand '%s', see braid help", word);
}

static int run(int argc, char **argv)
{
	const struct command *c = argc > 1 ? find(argv[1]) : NULL;

	if (argc < 2)
		return opt_error("braid", "a subcommand is needed, see braid help");
	if (c)
		return c->run(argc - 1, argv + 1);
	if (strcmp(argv[1], "help") == 0 && argc > 2) {
		char option[] = "--help", *words[] = { argv[2], option, NULL };

		c = find(argv[2]);
		return c ? c->run(2, words) : unknown(argv[2]);
	}
	if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
	    strcmp(argv[1], "-h") == 0) {
		help();
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-v") == 0 ||
	    strcmp(argv[1], "-V") == 0) {
		puts("braid " BRAID_VERSION);
		return 0;
	}
	return unknown(argv[1]);
}

/*
 * A standard stream that the caller closed would become a socket or file of ours, and take what is
 * printed.  In its place standard output gets /dev/full, so that the loss is reported.
 */
static void streams_open(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    open(fd == 1 ? "/dev/full" : "/dev/null", O_RDWR) != fd)
			return;
}

/* Each line is out before the next is made, so that a signal or a crash loses none. */
int main(int argc, char **argv)
{
	int status, bad;

	streams_open();
	setvbuf(stdout, NULL, _IOLBF, 0);
	report_command(argc, argv);
	status = run(argc, argv);
	bad = opt_finish("braid", "-", stdout, true);
	return bad ? bad : status;
}
