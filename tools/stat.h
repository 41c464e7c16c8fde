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

/* What a process is called, as ps says; static storage. */
const char *stat_command(pid_t pid);

#endif
