/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * redial.h - how the dials of lost lanes end, and when the next one is due.
 *
 * A lane that is lost again soon after a redial gets small segments, as perhaps large packets are
 * lost.  All calls are made with braid_svc.lock held.
 */
#ifndef BRAID_SETUP_REDIAL_H
#define BRAID_SETUP_REDIAL_H

#include <stdbool.h>
#include <stdint.h>

struct braid_conn;
struct braid_lane;
struct braid_link;

/* Segments that fit into any tunnel (the kernel's tcp_base_mss), for lanes lost again and again. */
enum { BRAID_SMALL_SEGMENT = 1024 };
enum {
	BRAID_SUSPECT_MS = 200,		/* retransmitted and unacknowledged for so long */
	BRAID_REDIAL_MIN_MS = 5,	/* the shortest wait between failed dials */
	BRAID_LONG_OUTAGE_S = 120,	/* after so long a silence dials become fewer */
};

/* The dial of a lost or suspect lane has ended.  err 0: the lane is back; else the reason. */
void braid_redial_ended(struct braid_lane *lane, const struct braid_conn *c, int err,
			uint64_t now);
/* Our request that the peer dial has ended.  err 0: the peer will dial; else the reason. */
void braid_redial_requested(struct braid_link *link, const struct braid_conn *c, int err,
			    uint64_t now);
/* A dial of the peer's has proved itself: the peer lives, whoever refuses ours. */
void braid_redial_reached(struct braid_link *link, uint64_t now);
/* Is the peer silent for so long that dials are to be few? */
bool braid_redial_is_long(const struct braid_link *link, uint64_t now);
/* A lane goes on over a new socket, at either end. */
void braid_redial_resumed(struct braid_lane *lane, uint64_t now);
/* Did the lane get a new socket in the last 10 s? */
bool braid_redial_again(const struct braid_lane *lane, uint64_t now);
/* Is the connection that was dialled for this lane over that path still needed? */
bool braid_redial_is_needed(const struct braid_lane *lane, unsigned path);
/* Does a plain socket carry the lane although its path supports a better transport? */
bool braid_redial_is_poor(const struct braid_lane *lane, unsigned path, uint64_t now);
/*
 * Data was changed on its way over the lane, as this end or the peer has found.  True: its path is
 * left from now on, for a while.
 */
bool braid_redial_corrupt(struct braid_lane *lane, uint64_t now);
/* Is the path left, so that no lost lane is dialled over it while another lane works? */
bool braid_redial_is_left(const struct braid_link *link, unsigned path, uint64_t now);
/* Avoid a path for a while.  Lanes that have another one may dial it at once. */
void braid_redial_avoid(struct braid_link *link, unsigned path, uint64_t now);

#endif
