/* SPDX-License-Identifier: BSD-3-Clause */
/* stat.h - what braid stat, braid dump and braid top print alike. */
#ifndef BRAID_TOOLS_STAT_H
#define BRAID_TOOLS_STAT_H

#include <jansson.h>

/* One line about a report's process, two about a link, and a table of its lanes. */
void stat_print_process(const json_t *report);
void stat_print_link(const json_t *link);

#endif
