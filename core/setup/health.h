/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * health.h - which lanes work.
 *
 * A lane on which nothing is acknowledged for long is suspect: another socket is dialled while the
 * old one is still open, and the first of the two that works carries the lane.
 */
#ifndef BRAID_SETUP_HEALTH_H
#define BRAID_SETUP_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

struct braid_lane;
struct braid_link;

enum { BRAID_HEALTH_MS = 100 };		/* between checks of each lane's health */

/* Is the lane up, and not suspect for too long?  Is any lane of the link? */
bool braid_health_well(const struct braid_lane *lane, uint64_t now);
bool braid_health_any_well(const struct braid_link *link, uint64_t now);
/* Look at all lanes, and give up those that do not work.  True: some has unacknowledged bytes. */
bool braid_health_check(struct braid_link *link, uint64_t now);
/* A device has reported an event.  If a lane's port is down, the next tick closes the lane. */
void braid_health_port(struct braid_link *link);

#endif
