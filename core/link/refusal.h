/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * refusal.h - refusals of comms that a peer opens, until they are sent.
 *
 * A refusal takes one entry of a list, and no comm is made.  So a peer that opens comms without
 * proof and reads no answers takes 32 KiB at most, and then loses its link.
 */
#ifndef BRAID_LINK_REFUSAL_H
#define BRAID_LINK_REFUSAL_H

#include <stdbool.h>
#include <stdint.h>

struct braid_link;

enum {
	BRAID_REFUSALS_MAX = 4096,	/* pending on one link */
	BRAID_LINK_COMMS_MAX = 16384,	/* open on one link; a further one is refused */
};

/* All with the link's lock held.  0, -ENOMEM, or -EBADMSG: the list is full. */
int braid_refusal_add(struct braid_link *link, uint32_t comm, uint16_t code);
bool braid_refusal_tell(struct braid_link *link);	/* sends them; false: some are pending */
void braid_refusal_free(struct braid_link *link);

#endif
