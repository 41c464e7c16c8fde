/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * main.c - `braid SUBCOMMAND`: a table, and the words around it.
 */
#include <stdio.h>
#include <string.h>

#include "tools/cmd.h"
#include "tools/fabric.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

static int cmd_help(int argc, char **argv);
static int cmd_version(int argc, char **argv);

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} commands[] = {
	{"demo", cmd_demo, "A training step's communication on this machine, checked and timed"},
	{"perf", cmd_perf,
	 "Measure latency, bandwidth, rate and set-up, beside raw TCP if you like"},
	{"info", cmd_info, "What the plugin offers here, and every parameter"},
	{"topo", cmd_topo, "How near GPUs and NICs are, and which a GPU should use"},
	{"smc", cmd_smc, "What the kernel's SMC has and lacks, and how to add it"},
	{"doctor", cmd_doctor, "What is wrong with this host, or between hosts, and what mends it"},
	{"help", cmd_help, "This list"},
	{"--help", cmd_help, NULL},
	{"-h", cmd_help, NULL},
	{"--version", cmd_version, NULL},
};

const struct fabric_ops *const fabric_table[FABRIC_KINDS] = {
	[FABRIC_PLUGIN] = &fabric_plugin,
	[FABRIC_RAW] = &fabric_raw,
};

static int cmd_help(int argc, char **argv)
{
	unsigned i;

	(void)argc, (void)argv;
	puts("usage: braid SUBCOMMAND [options]\n");
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (commands[i].help)
			printf("  %-6s  %s\n", commands[i].name, commands[i].help);
	puts("\n`braid SUBCOMMAND --help` lists its options; `braid --version` says which this "
	     "is.");
	return 0;
}

static int cmd_version(int argc, char **argv)
{
	(void)argc, (void)argv;
	puts("braid " PACKAGE_VERSION);
	return 0;
}

int main(int argc, char **argv)
{
	unsigned i;

	if (argc < 2) {
		fputs("braid: a subcommand is needed, see braid help\n", stderr);
		return 2;
	}
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	fprintf(stderr, "braid: no subcommand '%s', see braid help\n", argv[1]);
	return 2;
}
