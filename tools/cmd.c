/* SPDX-License-Identifier: BSD-3-Clause */
/* cmd.c - visits the options of all subcommands: calls each one while opt_visit() is in effect. */
#include "tools/cmd.h"

#include <string.h>

void commands_visit(const struct commands *all, opt_visitor visit)
{
	opt_visit(visit);
	for (unsigned i = 0; i < all->n; i++) {
		char words[32], *argv[3] = { words };
		int argc = 1;

		stpncpy(words, all->row[i].name, sizeof(words) - 1)[0] = '\0';
		argv[1] = strchr(words, ' ');
		if (argv[1]) {
			*argv[1]++ = '\0';
			argc++;
		}
		all->row[i].run(argc, argv);
	}
	opt_visit(NULL);
}
