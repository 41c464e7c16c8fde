/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * filter.h - lists of interfaces (NCCL_SOCKET_IFNAME) and of RDMA ports (NCCL_IB_HCA).
 *
 * Both are a comma list of name prefixes; a leading ^ excludes them, a leading = matches whole
 * names.  NCCL takes all other characters as part of a name, which then matches nothing.  Braid
 * ignores blanks and quotes around a name, and marks that are repeated before later names
 * ("^=a,^=b"), since these have one meaning only.  It refuses a list whose marks differ.
 */
#ifndef BRAID_TOPO_FILTER_H
#define BRAID_TOPO_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BRAID_FILTER_NAME = 128, BRAID_FILTER_NAMES = 256, BRAID_FILTER_TEXT = 512 };

struct braid_filter_item {
	char name[BRAID_FILTER_NAME];
	bool exact;
	int port;			/* -1: any; 0: not a number, which matches no port */
	int16_t rail, plane;		/* -1: not given */
};

struct braid_netdev_filter {
	bool exclude, exact;		/* ^, = */
	bool odd;			/* NCCL would read the text as something else */
	unsigned n;			/* 0: all match */
	struct braid_filter_item item[BRAID_FILTER_NAMES];
};

/* 0, or -EINVAL: *ret untouched, and `why`, if not NULL, says what is wrong with the text. */
int braid_netdev_filter_parse(const char *text, struct braid_netdev_filter *ret, char *why,
			      size_t len);
/* Writes the filter as NCCL reads it: without blanks, quotes and repeated marks. */
void braid_netdev_filter_format(const struct braid_netdev_filter *f, char *ret, size_t len);
/* Writes one element, as the user wrote it but without marks, blanks and quotes. */
void braid_filter_item_format(const struct braid_filter_item *item, char *ret, size_t len);

/* Put the interface's name in place of an alternative one (ip link property add ... altname). */
void braid_netdev_filter_resolve(struct braid_netdev_filter *f);

/* Does the name match, by its beginning or as a whole?  port -1: the item's port does not count. */
bool braid_filter_item_match(const struct braid_filter_item *item, const char *name, int port);
/* Counts the elements that matched nothing (!hit[i]), and lists them in ret while there is room. */
unsigned braid_filter_missed(const struct braid_netdev_filter *f, const bool *hit, char *ret,
			     size_t len);
/* Does the filter admit that interface? */
bool braid_netdev_filter_match(const struct braid_netdev_filter *f, const char *name);
/* The same for an RDMA port; *rail and *plane, unless NULL, come from the element that matches. */
bool braid_netdev_port_match(const struct braid_netdev_filter *f, const char *name, unsigned num,
			     int16_t *rail, int16_t *plane);

/* The number that a list such as BRAID_IB_GID, "mlx5_0=3,mlx5_1:2=5", has for that port, or -1. */
int braid_netdev_port_number(const char *list, const char *name, unsigned num);

#endif
