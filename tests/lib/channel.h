/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * channel.h - a channel for one-sided traffic between two ends, and short words for what a case
 * does with it.
 *
 * For tests of core/rma over held wires, as tests/lib/comms.h, whose comms cs and cr become the
 * channel: A posts, and B is the target.  Include cmocka.h first.
 */
#ifndef BRAID_TESTS_CHANNEL_H
#define BRAID_TESTS_CHANNEL_H

#include "core/link/lane.h"
#include "core/msg/kind.h"
#include "core/rma/rma.h"
#include "core/rma/rma_int.h"
#include "tests/lib/comms.h"

extern struct braid_rma rma[2];
extern struct braid_rma_channel *ca, *cb;	/* of cs and of cr */
extern struct braid_mr local_mr;	/* of the memory of all operations; registered nowhere */

struct win {
	struct braid_rma_window w;
	struct braid_mr mr;
	char *bytes;			/* all 0 at first */
	struct win *next;
};

/* Setups: one lane; three lanes.  Teardown closes all windows and frees all operations. */
int setup_channel(void **state);
int setup_channel_lanes(void **state);
int teardown_channel(void **state);
/* Make ca and cb, of the comms cs and cr of the pair that start() made. */
void channel_start(void);
void channel_make(struct braid_comm *s, struct braid_comm *r);	/* other comms, into ca and cb */

#define CHANNEL(f) cmocka_unit_test_setup_teardown(f, setup_channel, teardown_channel)
#define CHANNEL_LANES(f) cmocka_unit_test_setup_teardown(f, setup_channel_lanes, teardown_channel)

/* Open a window, whose announcement is on the wire; registered like `mr`. */
struct win *win(unsigned end, size_t size);
struct win *win_like(unsigned end, size_t size, const struct braid_mr *mr);
struct win *win_here(size_t size);	/* at B; A knows it, and no frame is left */
void win_close(struct win *w);		/* frees its memory, so that a sanitizer sees later writes */
uint64_t word_at(const struct win *w, uint64_t offset);

/* Post an operation at A; `data`, the bytes of a put or the place of a get, may be NULL. */
struct braid_rma_op *post(struct braid_rma_hdr h, void *data);
struct braid_rma_op *post_more(struct braid_rma_hdr h, void *data);	/* of a burst that goes on */
bool op_done(struct braid_rma_op *op);	/* after a call, as test() makes it */
int op_end(struct braid_rma_op *op);	/* it must be done: free it, and return its error */
/* Have both ends move until it is done and nothing is on its way; free it. */
int op_run(struct braid_rma_op *op);

/* Frames that A did not send: an operation at B, with the next number; a chunk on a lane. */
int forge_op(struct braid_rma_hdr h, const void *data);
int forge_chunk(unsigned lane, uint32_t window, uint64_t offset, uint32_t len, uint8_t context,
		uint32_t epoch, const void *data);

#endif
