/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * why.h - why a connection ended, in words.
 *
 * A peer that aborts closes every comm of a link, and NCCL may never ask about any of them: what
 * a peer ends is INFO when it happens, and a WARN when isend, irecv or test hands the error to
 * NCCL.  Each is written once a link, for all its comms that end at about the same time.
 */
#ifndef BRAID_CORE_WHY_H
#define BRAID_CORE_WHY_H

#include "core/comm.h"

/* With the link's lock held: c->why has just been set. */
void braid_why_ended(const struct braid_comm *c);
/* The error is handed to NCCL. */
void braid_why_reported(const struct braid_comm *c);
/* This end gives up a comm whose requests are not finished; how it does is in `how`. */
void braid_why_giving_up(const struct braid_comm *c, const char *how);

#endif
