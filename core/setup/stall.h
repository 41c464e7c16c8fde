/* SPDX-License-Identifier: BSD-3-Clause */
/* stall.h - messages that have waited long for a live peer are reported. */
#ifndef BRAID_SETUP_STALL_H
#define BRAID_SETUP_STALL_H

#include <stdbool.h>
#include <stdint.h>

struct braid_link;

/*
 * Warn of a message that has waited long for a live peer, and name the end that is late.  Called
 * with braid_svc.lock held.
 */
void braid_stall_check(struct braid_link *link, uint64_t now);
/* Does a message still wait that a WARN reported? */
bool braid_stall_is_late(const struct braid_link *link);
/* How many such WARNs there were. */
unsigned braid_stall_count(const struct braid_link *link);

#endif
