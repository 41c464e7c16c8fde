/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * path.h - the ways from here to a peer: which of our interfaces, to which of its addresses.
 *
 * A plain device has one.  A device made of several (NIC fusion) has one for each of its members,
 * paired with the peer's by subnet: lane i prefers path i modulo their number.  A path that failed
 * is left alone for a while, longer each time that it does not last; then its lanes go back.
 *
 * Only the service thread looks at them; connect() makes the first.
 */
#ifndef BRAID_CORE_PATH_H
#define BRAID_CORE_PATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/dev.h"
#include "core/ways.h"
#include "core/wire.h"

struct braid_conn;
struct braid_link;

struct braid_path {
	struct braid_dev *dev;		/* a member of the link's */
	struct braid_addr to;		/* of the peer's member, for what a transport sets up */
	struct braid_ways ways;		/* what a socket takes: any pair of both ends' addresses */
	uint64_t bad_until_ns;		/* 0: good */
	uint64_t back_ns;		/* when it last was taken back */
	unsigned hold_ms;		/* how long it is left alone, next time */
	bool better;			/* both of its ends have more than sockets */
	uint64_t plain_until_ns;	/* till then only sockets go this way */
	unsigned plain_ms;
};

/* The first one, to the addresses in a peer's handle; none if no IP version is in common. */
void braid_path_first(struct braid_link *link, const struct braid_handle *to);
/* All of them, once the peer has told its addresses: `at`, where it is, and those in its hello. */
void braid_paths_all(struct braid_link *link, const struct braid_addr *at,
		     const struct braid_hello *theirs);
/* What our hello says of our other members: their addresses and ports. */
void braid_paths_tell(struct braid_dev *dev, const struct braid_dev *met, struct braid_hello *h);

struct braid_addr braid_addr_of(const struct sockaddr *sa);	/* port as in sa */
/* Where to dial now: its length; 0: no IP version in common. */
socklen_t braid_path_sockaddr(const struct braid_path *p, struct sockaddr_storage *ret);
/* Where the peer's member is, for a transport's own connections. */
void braid_path_member(const struct braid_path *p, struct sockaddr_storage *ret);
/*
 * A dial by one of its ways failed, or worked.  Failed: true if no other way is left to try before
 * the path itself is to blame.
 */
bool braid_path_dialled(struct braid_link *link, const struct braid_conn *c, int err, uint64_t now);

/* Which one a lane should take now. */
unsigned braid_path_for(const struct braid_link *link, unsigned lane, uint64_t now);
/* It does not work; or it does. */
void braid_path_bad(struct braid_link *link, unsigned path, uint64_t now);
void braid_path_good(struct braid_link *link, unsigned path, uint64_t now);
/*
 * What is more than a socket failed on it: for a while it is not tried there; longer each time if
 * that is `worse` than a port which is known to be down, and for least_s seconds at least.
 */
void braid_path_plain(struct braid_link *link, unsigned path, bool worse, unsigned least_s,
		      uint64_t now);

#endif
