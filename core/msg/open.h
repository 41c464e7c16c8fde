/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * open.h - comms that a peer opens: accepted by a listen, or refused.
 *
 * A refusal takes one entry of a list, and no comm is made.  So a peer that opens comms without
 * proof and reads no answers takes 32 KiB at most, and then loses its link.
 */
#ifndef BRAID_MSG_OPEN_H
#define BRAID_MSG_OPEN_H

#include <stdbool.h>
#include <stdint.h>

struct braid_comm;
struct braid_link;
struct braid_open;

enum {
	BRAID_REFUSALS_MAX = 4096,	/* pending on one link */
	BRAID_LINK_COMMS_MAX = 16384,	/* open on one link; a further one is refused */
};

/* Calls of the message layer into the set-up, off the data path.  The set-up fills this in once. */
struct braid_comm_hooks {
	/*
	 * With the link's lock held: 0, or -EACCES, -ENOENT, -ENOSPC.  Check before the comm is
	 * made, so that a peer that can't prove the listen's token costs no memory.
	 */
	int (*open_check)(const struct braid_link *link, uint32_t comm,
			  const struct braid_open *open);
	/* Check as open_check() does, and then give the comm to the listen. */
	int (*open_offer)(struct braid_comm *c, const struct braid_open *open);
	/*
	 * Memory that peers may write was taken back on this link: revoke lanes on their way up
	 * whose set-up is older, so that they can't write it.  Without a lock.
	 */
	void (*revoked)(const struct braid_link *link);
};
extern struct braid_comm_hooks braid_comm_hooks;

/*
 * braid_link_go() of a link that stood still since its epoch was `rkey_epoch`; then `revoked`, but
 * only of what was revoked meanwhile: the caller may hold braid_svc.lock, which that hook takes.
 */
void braid_comms_go(struct braid_link *link, unsigned n, uint32_t rkey_epoch);

/* Queue the refusals that are due; false: no room for all.  With the link's lock held. */
bool braid_refusals_send(struct braid_link *link);

#endif
