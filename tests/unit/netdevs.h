/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * netdevs.h - imaginary machines, for tests of topo/netdev.h.
 *
 * The list of interfaces comes from getifaddrs(), which the linker wraps
 * (-Wl,--wrap=getifaddrs,--wrap=freeifaddrs): a table of struct fake becomes the list, in the
 * kernel's order, which is a link entry per interface, then IPv4, then IPv6.  /sys and /proc are
 * a tree in a temporary directory with the links that the kernel makes.
 */
#ifndef BRAID_TESTS_UNIT_NETDEVS_H
#define BRAID_TESTS_UNIT_NETDEVS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <net/if.h>

#include "topo/netdev.h"

enum {
	FAKES_MAX = 16,
	ADDRS_MAX = 10,
	ENTRIES_MAX = FAKES_MAX * (ADDRS_MAX + 1),
	DEVS_MAX = 16,
	WHY_LEN = 512,
	UP = IFF_UP | IFF_RUNNING,
	LO = UP | IFF_LOOPBACK,
};

struct fake {
	const char *name;
	unsigned flags;
	const char *addrs[ADDRS_MAX];
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

extern const struct fake full[], one[];

extern struct fake_net {
	const struct fake *fakes;	/* NULL: this machine's own */
	int err;
	int lists_out;			/* lists returned and not freed */
	int lists, ready_at;		/* lists returned so far; IPv6 addresses are ready from this one on */
} net;

/* Before and after each case: make and remove the tree's directory. */
extern char root[64];
int setup(void **state);
int teardown(void **state);

/* A path below the root, one of four buffers. */
const char *at(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Files, links, devices of a bus, interfaces on them; interfaces on others. */
void put(const char *path, const char *text);
void put_link(const char *path, const char *target);
void put_device(const char *dir, const char *bus);
void put_netdev(const char *name, const char *dir);
void put_net(const char *name, const char *file, const char *text);
void put_lower(const char *upper, const char *lower);

/* Calls braid_netdev_find() on this tree; devs and why are its results. */
extern struct braid_netdev devs[DEVS_MAX];
extern char why[WHY_LEN];
int find(const struct fake *fakes, const char *filter, int family);
/* "eth0 10.0.0.1, eth1 fe80::1%2"; the names only. */
const char *found(int n);
const char *found_names(int n);

#endif
