/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * paths.h - the data of a link's paths, which only core/setup reads and changes (path.h, ways.h).
 *
 * A path leads from one of our interfaces to one of the peer's.  Its ways are pairs of addresses.
 */
#ifndef BRAID_LINK_PATHS_H
#define BRAID_LINK_PATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/proto/handle.h"
#include "core/proto/hello.h"
#include "topo/pairs.h"

struct braid_dev;

enum { BRAID_WAYS_MAX = 16 };

struct braid_way {
	struct braid_pair pair;
	bool loose;			/* its last dial failed when bound: don't bind it next */
	bool final;			/* trying this way again is no use */
	int err;			/* of its last dial; 0: not tried, or it worked */
};

struct braid_ways {
	unsigned n, now;		/* now: the way to dial next */
	unsigned failed;		/* dials that failed since a way worked */
	struct braid_way way[BRAID_WAYS_MAX];
};

struct braid_left {			/* a path on which data is changed again and again */
	uint64_t first_ns;		/* when n began to count such losses */
	unsigned n;
	unsigned pause_s;		/* how long it was left the last time */
	uint64_t until_ns;
};

struct braid_path {
	struct braid_dev *dev;		/* a member of the link's device */
	struct braid_addr to;		/* the peer's member, for a transport's own set-up */
	struct braid_ways ways;		/* the pairs of addresses that its sockets may use */
	uint64_t bad_until_ns;		/* 0: good */
	uint64_t bad_since_ns;		/* while it is bad */
	bool reported;			/* by a WARN */
	uint64_t back_ns;		/* when it last worked again after it was bad */
	unsigned hold_ms;		/* how long it was avoided the last time */
	bool better;			/* both ends have a transport better than sockets */
	uint64_t plain_until_ns;	/* until then only sockets use this path */
	unsigned plain_ms;
	struct braid_left left[2];	/* 1: by a transport better than sockets */
};

#endif
