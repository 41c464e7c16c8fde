/* SPDX-License-Identifier: BSD-3-Clause */
/* why.h - why a link could not be made, or what its path does, in words. */
#ifndef BRAID_SETUP_WHY_H
#define BRAID_SETUP_WHY_H

#include <stdint.h>

struct braid_conn;
struct braid_link;

/* How far a dial got: the same errno has another meaning at each stage. */
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

/* Warn that segments of `size` bytes do not arrive at the peer, and small ones do. */
void braid_why_mtu(const struct braid_link *link, unsigned size);

#endif
