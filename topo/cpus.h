/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cpus.h - a set of CPUs, as the kernel writes it in cpulist files: "0-19,40-59".
 *
 * The bits have the order of the kernel's masks, so that a set can be given to sched_setaffinity().
 */
#ifndef BRAID_TOPO_CPUS_H
#define BRAID_TOPO_CPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BRAID_CPUS_MAX = 8192, BRAID_CPUS_WORDS = BRAID_CPUS_MAX / 64 };

struct braid_cpus {
	uint64_t bits[BRAID_CPUS_WORDS];
};

/* 0, or -EINVAL with *ret untouched; empty text is the empty set. */
int braid_cpus_parse(const char *text, struct braid_cpus *ret);

/* Writes the shortest list, cut at a comma to fit.  Returns the whole length, as snprintf does. */
size_t braid_cpus_format(const struct braid_cpus *c, char *ret, size_t len);

bool braid_cpus_empty(const struct braid_cpus *c);
bool braid_cpus_has(const struct braid_cpus *c, unsigned cpu);
void braid_cpus_add(struct braid_cpus *c, const struct braid_cpus *more);	/* union */
void braid_cpus_keep(struct braid_cpus *c, const struct braid_cpus *only);	/* intersection */

#endif
