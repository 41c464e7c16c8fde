/* SPDX-License-Identifier: BSD-3-Clause */
/* thread.h - what a thread of a process of this host does: it runs, waits, is stopped or frozen. */
#ifndef BRAID_TOPO_THREAD_H
#define BRAID_TOPO_THREAD_H

#include <stdint.h>

enum { BRAID_THREAD_FROZEN = 'F' };	/* ps shows it as S or D, like one that merely waits */

struct braid_thread {
	char state;			/* of proc(5), or frozen; NUL: it can't be seen */
	/* Ever: how long it ran; how long it was ready to run, and waited for a CPU. */
	uint64_t ran_ms, queued_ms;
};

/* The first thread of that name; it has none if the process has ended, or is another user's. */
struct braid_thread braid_thread_of(uint32_t pid, const char *name);
/* How long the calling thread has waited for a CPU, ever; 0 if the kernel does not say. */
uint64_t braid_thread_queued_ms(void);

#endif
