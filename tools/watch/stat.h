/* SPDX-License-Identifier: BSD-3-Clause */
/* stat.h - what braid stat, braid dump and braid top print alike. */
#ifndef BRAID_TOOLS_STAT_H
#define BRAID_TOOLS_STAT_H

#include <jansson.h>
#include <sys/types.h>

enum { PROCESSES_MAX = 1024 };		/* that are shown */

/* One line about a report's process, two about a link, and a table of its lanes. */
void stat_print_process(const json_t *report);
void stat_print_link(const json_t *link);

/*
 * Ask the process with that PID, and print its answer: NULL, as it came.  The exit status; what is
 * wrong has been said.
 */
int stat_show(const char *prog, const char *dir, const char *pid, const char *word,
	      void (*print)(const json_t *report));

/* What a process is called, as ps says; static storage. */
const char *stat_command(pid_t pid);

#endif
