/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * why.h - why a connection ended, or did not come about, in words.
 *
 * A peer that aborts closes every comm of a link, and NCCL may never ask about them.  So the end of
 * a comm by the peer is an INFO line when it happens, and a WARN when isend, irecv or test gives
 * the error to NCCL.  Each line is written once a link for all comms that end at about that time.
 */
#ifndef BRAID_SETUP_WHY_H
#define BRAID_SETUP_WHY_H

#include "core/msg/comm.h"

struct braid_conn;

/* How far a dial came: the same errno means something else at each stage. */
enum braid_dial_stage {
	BRAID_DIAL_HERE,		/* no packet left: socket, bind or connect failed */
	BRAID_DIAL_TCP,			/* the SYN left; TCP did not connect */
	BRAID_DIAL_PEER,		/* TCP connected; the handshake failed */
};
/* c NULL: there was no connection. */
enum braid_dial_stage braid_dial_stage(const struct braid_conn *c, int err);

/* Dialling a new link has failed for good: the link fails, and a WARN names the cause. */
void braid_why_dial(struct braid_link *link, const struct braid_conn *c,
		    enum braid_dial_stage stage, int err);

/* With the link's lock held: c->why has just been set. */
void braid_why_ended(const struct braid_comm *c);
/* The error is handed to NCCL. */
void braid_why_reported(const struct braid_comm *c);
/* This end gives up a comm whose requests are not finished; `how`: by which call. */
void braid_why_giving_up(const struct braid_comm *c, const char *how);

/* For a silent peer whose kernel answers: what its process does, as far as this host knows. */
enum { BRAID_WHY_STOPPED = 400 };
const char *braid_why_stopped(const struct braid_link *link, char ret[BRAID_WHY_STOPPED]);
/* The same for a thread of process `pid` in that state of proc(5), or frozen; 0: not known. */
enum { BRAID_WHY_FROZEN = 'F' };
const char *braid_why_state(char state, uint32_t pid, char ret[BRAID_WHY_STOPPED]);

/* Segments of `size` bytes do not arrive at the peer, and small ones do. */
void braid_why_mtu(const struct braid_link *link, unsigned size);

#endif
