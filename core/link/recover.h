/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * recover.h - lanes get carriers, lose them and get others.
 *
 * Used by the set-up, which makes carriers and decides when a lane is fenced and resumed, and by
 * calls that give memory back to the user.
 */
#ifndef BRAID_LINK_RECOVER_H
#define BRAID_LINK_RECOVER_H

#include <stdbool.h>
#include <stdint.h>

struct braid_comm;
struct braid_lane;
struct braid_link;
struct braid_transport;

struct braid_carrier {		/* the result of a handshake: it carries a lane's frames */
	const struct braid_transport *tr;
	int fd;
	void *priv;
	const struct braid_lane_keys *keys;	/* NULL: it is not encrypted */
	uint32_t epoch;
	uint8_t member, peer_member;
	uint32_t rkey_epoch, peer_rkey_epoch;	/* of both links when it was set up */
	bool as_before;			/* a better one was tried in vain: nothing to report */
};

/*
 * Make lane `index` of a carrier.  On failure fd and priv are still the caller's.  -EALREADY, here
 * and in braid_lane_resume(): memory was given back during set-up, so dial another carrier.
 */
int braid_link_add_lane(struct braid_link *link, unsigned index, const struct braid_carrier *c);

/*
 * The states of a lane:
 *	up --- lost: its carrier failed ---> down --- fenced: closed here ---> resumed on a new one
 * braid_lane_lost() only sets a mark.  The service thread fences and resumes.
 */
void braid_lane_lost(struct braid_lane *lane, int err);	/* with the link's lock held */
/*
 * Close the carrier.  A half received frame is dropped, and the count of received frames is final.
 * 0, or -EAGAIN: its NIC has not stopped yet, call again.
 */
int braid_lane_fence(struct braid_lane *lane);
/* Is the lane to get another carrier, as the path of this one is slow?  It works until then. */
bool braid_lane_is_slow(const struct braid_lane *lane);
void braid_lane_set_slow(struct braid_lane *lane, bool slow);
/* If home is closed at both ends, make another lane home and move all frames there. */
void braid_link_rehome(struct braid_link *link);
/*
 * Continue a fenced lane over a new carrier.  The peer has received `frames` of our frames, and
 * kept its own from `first` on.  On failure fd and priv are the caller's, who must fail the link.
 */
int braid_lane_resume(struct braid_lane *lane, const struct braid_carrier *c, uint32_t frames,
		      uint32_t first);
/*
 * Before memory is given back: fence each lane for which `uses` is true, and ask its NIC to stop.
 * `uses` NULL: all lanes, and all credits granted so far become void.  All lanes stand still.
 * Call braid_stops_wait() before the memory is given back.
 */
void braid_link_revoke(struct braid_link *link, bool (*uses)(const struct braid_lane *lane,
							     const struct braid_comm *c),
		       const struct braid_comm *c);

/*
 * On a dead link whose lanes stand still: end all copies from and to GPU memory, except those of
 * complete messages whose comms have not failed.
 */
void braid_link_end_copies(struct braid_link *link);

/*
 * Deliver no more payload to the comm: discard the rest of frames that have begun to arrive, and of
 * a message half received when its lane was lost.  All lanes stand still (braid_link_stop).
 */
void braid_link_drop_payload(struct braid_link *link, uint32_t comm);
/*
 * Discard the rest of chunks of that comm that have begun to arrive for `target`.  They end as
 * others do.  All lanes stand still.
 */
void braid_link_discard(struct braid_link *link, uint32_t comm, const void *target);

#endif
