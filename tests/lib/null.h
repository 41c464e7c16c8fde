/* SPDX-License-Identifier: BSD-3-Clause */
/* null.h - the smallest transport (null.c): each lane has a wire to another lane of the process. */
#ifndef BRAID_TESTS_LIB_NULL_H
#define BRAID_TESTS_LIB_NULL_H

#include <stdbool.h>
#include <stddef.h>

#include "core/link/lane_io.h"

enum { NULL_TRANSPORT_ID = 200 };

extern const struct braid_transport null_transport;

struct null_lane {
	struct braid_lane lane;		/* first */
	struct null_lane *peer;
	char *wire;			/* wire[beg, end) is on its way to the peer */
	size_t beg, end, size;
	size_t limit, bite;		/* most bytes on the wire, in a push(); 0: any number */
	bool held;			/* only null_read() reads the wire; else the peer does at once */
	int err;			/* what came was broken */
};

struct null_lane *null_of(struct braid_lane *lane);
void null_wire_put(struct null_lane *n, const void *bytes, size_t len);
/* Read at most `max` bytes that the peer sent, with the io lock held: bytes, or an error. */
int null_read(struct null_lane *n, size_t max);

static inline size_t null_wire_len(const struct null_lane *n)
{
	return n->end - n->beg;
}

#include "tests/lib/pair.h"		/* what tests do with it */

#endif
