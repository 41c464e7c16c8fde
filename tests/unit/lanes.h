/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * lanes.h - two links in one process, with one lane over verbs between them (ports.h).
 *
 * There is no service thread: a case that needs one does its work.
 */
#ifndef BRAID_TESTS_UNIT_LANES_H
#define BRAID_TESTS_UNIT_LANES_H

#include "tests/unit/ports.h"

#include "core/link/link.h"

struct lanes {
	struct ends e;
	struct braid_link *link[2];	/* 0 is the dialler's */
	struct braid_comm *send, *recv;	/* from link 0 to link 1 */
};

void lanes_up(struct lanes *l, const char *from, const char *to);
void lanes_down(struct lanes *l);
struct braid_lane *lane_at(struct lanes *l, unsigned end);
struct braid_qp *lane_qp(struct lanes *l, unsigned end);

/* Moves one message of `size` bytes.  registered: both ends have registered their buffers. */
void lanes_move(struct lanes *l, size_t size, bool registered);

#endif
