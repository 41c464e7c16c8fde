/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cmd.h - the subcommands of `braid` (commands.c has their table).
 *
 * A subcommand gets argv from its own name on.  It returns the exit status: 0 for success, 1 for a
 * failure (one line on stderr says why), 2 for a bad command line.
 */
#ifndef BRAID_TOOLS_CMD_H
#define BRAID_TOOLS_CMD_H

#include "tools/opt.h"

struct command {
	const char *name;	/* "smc"; "smc setup" is only listed: main() runs "smc" */
	int (*run)(int argc, char **argv);
	const char *help;	/* its purpose, in half a sentence */
};

struct commands {
	const struct command *row;
	unsigned n;
};
extern const struct commands commands;	/* commands.c; only programs refer to it */

/* Have opt_parse() pass the options of each subcommand to visit(), in the order of the table. */
void commands_visit(const struct commands *all, opt_visitor visit);

int cmd_perf(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_mesh(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_topo(int argc, char **argv);
int cmd_smc(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_stat(int argc, char **argv);
int cmd_dump(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_validate(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_completion(const struct commands *all, int argc, char **argv);

/*
 * If *path is NULL, set it to that of libnccl-net-braid.so: beside this program, in ../lib, in a
 * build tree, or where make install put it; else to its bare name, for the loader to look up.
 * Static storage.  0; or 1 after one line on stderr (`prog` NULL: no line), if other users could
 * have put the file there.
 */
int plugin_find(const char *prog, const char **path);

#endif
