/* SPDX-License-Identifier: BSD-3-Clause */
/* process.h - the set-up of a process: keys, ids, and what a forked child forgets. */
#ifndef BRAID_SETUP_PROCESS_H
#define BRAID_SETUP_PROCESS_H

struct braid_service_hooks;

/* Set up the process: call it once, before all else.  hooks may be NULL.  0 or -errno. */
int braid_service_init(const struct braid_service_hooks *hooks);

#endif
