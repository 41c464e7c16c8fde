/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gid.h - which entry of a RoCE port's GID table to use.
 *
 * The table has an entry for each address of the port's interface and of those on top of it
 * (VLANs), for RoCE v2 (UDP, routed) and v1 (Ethernet only).  A wrong choice looks like a network
 * that is down: the first byte times out.  So the entry is chosen whose address the TCP handshake
 * has just used, since that path to the peer is known to work; v2 before v1.
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
					 * network namespace, or not known */
	bool foreign;			/* no interface of our network namespace has that address */
	enum braid_gid_type type;
};

enum { BRAID_GIDS_MAX = 256, BRAID_GID_NONE = -1 };

/*
 * NCCL_IB_ADDR_FAMILY and _RANGE: entries that are preferred, whatever address is in use.  Within
 * the range, entries of another interface (a VLAN) count too.
 */
struct braid_gid_pref {
	int family;			/* AF_UNSPEC: any */
	bool has_range;
	unsigned bits;			/* how many bits of `range` count */
	uint8_t range[16];
};

/* range: "10.1.0.0/16", "fd00::/8", or "" for none.  -EINVAL: malformed; *ret has no range. */
int braid_gid_pref_parse(int family, const char *range, struct braid_gid_pref *ret);

/*
 * Returns the position in `table` of the best entry of `type` for a path from `addr` of interface
 * `ifindex`, or BRAID_GID_NONE.  forced: the index that the user wants, or BRAID_GID_NONE.  pref,
 * why: may be NULL; `why` gets the entries passed over, with the reasons, in one line.
 */
int braid_gid_choose(const struct braid_gid *table, unsigned n, enum braid_gid_type type,
		     const struct sockaddr *addr, unsigned ifindex, int forced,
		     const struct braid_gid_pref *pref, char *why, size_t len);

/* Is the GID made of that IP address? */
bool braid_gid_is_addr(const uint8_t *raw, const struct sockaddr *sa);

/* The type's name, such as "RoCE v2"; the GID written as an IP address. */
const char *braid_gid_type_name(enum braid_gid_type type);
void braid_gid_text(const uint8_t *raw, char *ret, size_t len);

#endif
