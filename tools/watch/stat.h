/* SPDX-License-Identifier: BSD-3-Clause */
/* stat.h - printing that braid stat, braid dump and braid top share. */
#ifndef BRAID_TOOLS_STAT_H
#define BRAID_TOOLS_STAT_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

struct process;

enum { PROCESSES_MAX = 1024 };		/* at most so many are shown */

/* One line about a report's process, two about a link, and a table of its lanes. */
void stat_print_process(const json_t *report);
void stat_print_link(const json_t *link);

/*
 * Ask the process with that PID, and print its answer (print NULL: as it came).  Returns the exit
 * status; errors have been reported.
 */
int stat_show(const char *prog, const char *dir, const char *pid, const char *word,
	      void (*print)(const json_t *report));

/*
 * Print the metrics of that process, or (pid NULL) of all; to `file` if it is not NULL.  With
 * `openmetrics` in that format, else in that of Prometheus.  Returns the exit status.
 */
int metrics_show(const char *prog, const char *dir, const char *pid, bool openmetrics,
		 const char *file);

/* A row for a process that does not answer. */
void stat_print_silent(const struct process *p, const char *why);

/* Names have what a table leaves of a line. */
int stat_command_width(void);
/* The name of a process, as ps shows it; static storage. */
const char *stat_command(pid_t pid);

#endif
