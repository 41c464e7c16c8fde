/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * reap.h - links that are over, or idle for too long, are closed and freed.
 *
 * Called by the service thread, with braid_svc.lock held.
 */
#ifndef BRAID_SETUP_REAP_H
#define BRAID_SETUP_REAP_H

#include <stdbool.h>
#include <stdint.h>

struct braid_link;

/* Close the link if it has been idle for too long; free it if it is dead.  True: it is freed. */
bool braid_reap_link(struct braid_link *link, uint64_t now);
/* Reap all links.  True: some wait for a NIC to stop; a later service thread may free them. */
bool braid_reap_all(void);
/* If too many links are idle, close the one that has been idle longest. */
void braid_reap_idlest(void);
/* Tell the peer that nothing more will come on this link.  Its lock is held. */
void braid_reap_send_close(struct braid_link *link);

#endif
