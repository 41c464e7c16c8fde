/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * coll.h - two communicators, of the two ends of a pair (tests/lib/pair.h), for tests of
 * core/setup/coll*.c.
 *
 * Listens, connects and registrations are replaced: the program is linked with $(coll_wraps).  Rank
 * i is the communicator of end i; there is a third rank, which nobody is.
 */
#ifndef BRAID_TESTS_UNIT_COLL_H
#define BRAID_TESTS_UNIT_COLL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/setup/coll_int.h"
#include "core/setup/listen.h"
#include "tests/lib/comms.h"

enum { RANKS = 3 };

struct fake {
	int listen_err, connect_err, mr_err, stop_err;
	bool answers;			/* connect() gives a comm; else not yet */
	bool gpu;			/* what is registered is memory of a GPU */
	unsigned listens, connects, given_up, mrs;	/* listens, mrs: alive */
	uint8_t token;			/* of the handle last connected to, which has it everywhere */
	int traffic_class;
	uint32_t slot;			/* that connect() notes in the handle, and giving up finds */
};
extern struct fake fake;
extern struct braid_coll *coll[2];

int setup_colls(void **state);		/* connected; wires are not held */
int setup_no_colls(void **state);	/* a pair alone */
int teardown_colls(void **state);	/* closes what is left */
#define COLLS(f) cmocka_unit_test_setup_teardown(f, setup_colls, teardown_colls)
#define NO_COLLS(f) cmocka_unit_test_setup_teardown(f, setup_no_colls, teardown_colls)

void handle_of(unsigned rank, void *ret);
int connect_all(unsigned end);		/* rank `end` gets all handles */
void close_coll(unsigned end);		/* the communicator and its listen */

/* Memory as a window of that end, and the other end's window of the same number. */
struct braid_rma_window *open_window(unsigned end, void *data, size_t size);
int settle(unsigned end, struct braid_rma_op *op);	/* move both ends until test() is not 0 */

#endif
