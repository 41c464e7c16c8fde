/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * refusal.h - comms that a peer opens and does not get.
 *
 * A refusal is an entry in a list, and no comm is made: a peer that opens comms without the proof
 * for them, and reads no answers, takes a few KiB and then loses its link.
 */
#ifndef BRAID_CORE_REFUSAL_H
#define BRAID_CORE_REFUSAL_H

#include <stdbool.h>
#include <stdint.h>

struct braid_link;

enum {
	BRAID_REFUSALS_MAX = 4096,	/* to be sent, of one link */
	BRAID_LINK_COMMS_MAX = 16384,	/* open on one link; a further one is refused */
};

/* All with the link's lock held.  0, -ENOMEM, or -EBADMSG: the peer reads none of them. */
int braid_refusal_add(struct braid_link *link, uint32_t comm, uint16_t code);
bool braid_refusal_tell(struct braid_link *link);	/* false: some are left for later */
void braid_refusal_free(struct braid_link *link);

#endif
