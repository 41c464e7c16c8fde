/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unkind.h - sockets that cut reads and writes short, interrupt them, or return EAGAIN, as a kernel
 * may; and a count of the calls.
 */
#ifndef BRAID_TESTS_UNIT_UNKIND_H
#define BRAID_TESTS_UNIT_UNKIND_H

#include <stddef.h>

#include "core/base/os.h"
#include "tests/lib/pair.h"

struct unkind {
	struct null_rnd rnd;
	size_t most;			/* bytes a call moves at most, less at random; 0: any */
	unsigned again, interrupt;	/* one call in so many; 0: never */
	unsigned sends, recvs;		/* calls */
	size_t moved;			/* bytes, both ways */
};
extern struct unkind unkind;		/* for a test to set, and to read */

/* A braid_os whose sends and receives are unkind; the other calls are `real`'s. */
const struct braid_os *unkind_os(const struct braid_os *real);

#endif
