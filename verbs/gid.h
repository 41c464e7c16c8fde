/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gid.h - which entry of a RoCE port's GID table to use.
 *
 * The table has an entry for each address of the port's interface and of those on top of it
 * (VLANs), for RoCE v2 (UDP, routed) and v1 (Ethernet only).  Wrong choices look like a network
 * that is down: the first byte times out.  So the one is taken that has the address which our TCP
 * handshake has just used, whose path to the peer is therefore known to work; v2 before v1.
 */
#ifndef BRAID_VERBS_GID_H
#define BRAID_VERBS_GID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum braid_gid_type { BRAID_GID_IB, BRAID_GID_ROCE_V1, BRAID_GID_ROCE_V2 };

struct braid_gid {
	uint8_t raw[16];
	unsigned index;			/* in the port's table */
	unsigned ifindex;		/* of the interface whose address it is; 0: not in our
					 * network namespace, or the kernel does not tell */
	bool foreign;			/* no interface of our network namespace has that address */
	enum braid_gid_type type;
};

enum { BRAID_GIDS_MAX = 256, BRAID_GID_NONE = -1 };

/* NCCL_IB_ADDR_FAMILY and _RANGE: entries that are preferred, whatever address is in use. */
struct braid_gid_wish {
	int family;			/* AF_UNSPEC: none */
	bool has_range;
	unsigned bits;			/* of range, as of raw */
	uint8_t range[16];
};

/* range: "10.1.0.0/16", "fd00::/8", or "".  0, or -EINVAL: it is none, and *ret has none. */
int braid_gid_wish_parse(int family, const char *range, struct braid_gid_wish *ret);

/*
 * The best of n for a path from `addr`, of interface `ifindex`: its place in the table, or
 * BRAID_GID_NONE.  type: of these only.  `forced`: BRAID_GID_NONE, or the index that the user
 * wants, whatever it is.  `wish`: NULL, or what comes first where there is one of it; in a range
 * that the user names also of another interface (a VLAN).  `why`, if not NULL, gets what was passed
 * over and why, in one line.
 */
int braid_gid_choose(const struct braid_gid *table, unsigned n, enum braid_gid_type type,
		     const struct sockaddr *addr, unsigned ifindex, int forced,
		     const struct braid_gid_wish *wish, char *why, size_t len);

/* Is it that IP address? */
bool braid_gid_is_addr(const uint8_t *raw, const struct sockaddr *sa);

/* "RoCE v2", and an address as people write it. */
const char *braid_gid_type_name(enum braid_gid_type type);
void braid_gid_text(const uint8_t *raw, char *ret, size_t len);

#endif
