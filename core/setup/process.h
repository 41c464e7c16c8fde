/* SPDX-License-Identifier: BSD-3-Clause */
/* process.h - the set-up of a process: keys, ids, and what a forked child forgets. */
#ifndef BRAID_SETUP_PROCESS_H
#define BRAID_SETUP_PROCESS_H

struct braid_service_hooks;

/* Once per process before anything else; hooks may be NULL.  0 or a negative errno. */
int braid_service_init(const struct braid_service_hooks *hooks);

#endif
