/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * count.h - how many system calls a message costs.
 *
 * count.c defines send(), sendmsg(), recv(), recvmsg() and epoll_wait() in the test program itself,
 * where the dynamic linker first looks up what a dlopen()ed plugin imports.  This needs neither
 * LD_PRELOAD nor ptrace, and the sanitizers' own wrappers are still called by ours.
 */
#ifndef BRAID_TESTS_LIB_COUNT_H
#define BRAID_TESTS_LIB_COUNT_H

#include <stdint.h>

struct calls {
	uint64_t sends, recvs;		/* calls that moved bytes */
	uint64_t full, empty;		/* calls that found no room, or nothing */
	uint64_t sent, received;	/* bytes */
	uint64_t waits;			/* epoll_wait() */
};

struct calls calls_mine(void);		/* of this thread, so far */
struct calls calls_all(void);		/* of all threads, so far */
struct calls calls_since(struct calls now, struct calls then);

#endif
