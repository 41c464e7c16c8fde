/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fakegpu.h - copies of GPU memory that do as a case says, in place of core/mem's.
 *
 * The program is linked with these --wrap options: braid_gpucopy_begin, braid_gpucopy_move,
 * braid_gpucopy_end, braid_mr_flush.  A window of GPU memory (win_gpu()) has an address that the CPU
 * can't touch; what is there, is in its `bytes`.  Include cmocka.h first.
 */
#ifndef BRAID_TESTS_FAKEGPU_H
#define BRAID_TESTS_FAKEGPU_H

#include "tests/lib/channel.h"

struct fake_gpu {
	int answer, flush_answer;	/* of a copy, of a flush */
	unsigned slow;			/* moves that say -EAGAIN before the answer */
	unsigned begun, written, read, ended;	/* copies: begun; done, to and from the GPU; given up */
	unsigned flushes;
};
extern struct fake_gpu gpu;

int setup_gpu(void **state);		/* three lanes, and a channel */
int teardown_gpu(void **state);
#define GPU(f) cmocka_unit_test_setup_teardown(f, setup_gpu, teardown_gpu)

struct win *win_gpu(size_t size, bool never_reset);	/* at B, and A knows it */

#endif
