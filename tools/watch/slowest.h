/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * slowest.h - which peer, lane and NIC of a job is the slowest, by the times in the reports of its
 * processes.
 *
 * A peer's time is that of sends to it, from isend() to done.  It includes the wait for the peer's
 * receive: a peer whose lanes are as fast as others' is late itself.  A lane's time is that of its
 * frames, from queued to acknowledged; a NIC's, that of all its lanes.  Half of the times (p50) are
 * compared with the median of the others' halves.
 */
#ifndef BRAID_TOOLS_SLOWEST_H
#define BRAID_TOOLS_SLOWEST_H

#include <jansson.h>

struct process;
struct slowest;

struct slowest *slowest_new(void);		/* NULL: there is no memory */
void slowest_free(struct slowest *s);		/* or NULL */
void slowest_add(struct slowest *s, const struct process *p, const json_t *report);
/* The times noted since `was`; to be freed.  The longest are not known.  NULL: no memory. */
struct slowest *slowest_since(const struct slowest *s, const struct slowest *was);

void slowest_print(const struct slowest *s);	/* a line each */
void slowest_print_short(const struct slowest *s);	/* all in one, cut at 80 columns */

#endif
