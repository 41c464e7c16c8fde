/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * main.c - `braid SUBCOMMAND`: runs a row of the table (commands.c).
 */
#include <stdio.h>
#include <string.h>

#include "git-hash.h"
#include "tools/cmd.h"

static void help(void)
{
	puts("usage: braid SUBCOMMAND [options]\n");
	for (unsigned i = 0; i < commands.n; i++)
		printf("  %-10s  %s\n", commands.row[i].name, commands.row[i].help);
	printf("  %-10s  This list\n", "help");
	puts("\n`braid SUBCOMMAND --help` lists its options; `braid --version` says which it is.");
}

static int run(int argc, char **argv)
{
	if (argc < 2)
		return opt_error("braid", "a subcommand is needed, see braid help");
	for (unsigned i = 0; i < commands.n; i++) {
		if (strcmp(argv[1], commands.row[i].name) == 0)
			return commands.row[i].run(argc - 1, argv + 1);
	}
	if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
	    strcmp(argv[1], "-h") == 0) {
		help();
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0) {
		puts("braid " BRAID_VERSION);
		return 0;
	}
	return opt_error("braid", "no subcommand '%s', see braid help", argv[1]);
}

/* Each line is out before the next is made, so that a signal or a crash loses none. */
int main(int argc, char **argv)
{
	int status, bad;

	setvbuf(stdout, NULL, _IOLBF, 0);
	status = run(argc, argv);
	bad = opt_finish("braid", "-", stdout, true);
	return bad ? bad : status;
}
