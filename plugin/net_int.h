/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net_int.h - what the files of net.h share.
 *
 *	net_result.c	the only place where an errno becomes an ncclResult_t
 *	net.c	contexts, devices, connections
 *	net_mem.c	memory
 *	net_data.c	sends, receives, flushes, and NCCL's profiler
 */
#ifndef BRAID_PLUGIN_NET_INT_H
#define BRAID_PLUGIN_NET_INT_H

#include <pthread.h>

#include "core/base/list.h"
#include "core/base/os.h"
#include "plugin/net.h"

struct context {
	uint64_t comm_id;
	int traffic_class;
	ncclProfilerCallback_t prof;
	struct braid_list comms, listens;	/* what finalize must close if NCCL did not */
};

extern pthread_mutex_t braid_net_lock;	/* contexts, their lists, and a comm's registrations */

ncclResult_t braid_net_failure(int err);
static inline ncclResult_t braid_net_result(int err)
{
	return err ? braid_net_failure(err) : ncclSuccess;
}

/* Is this a forked child?  It can't use the parent's connections: all calls fail. */
static inline bool braid_net_forked(void)
{
	return atomic_load_explicit(&braid_forked, memory_order_relaxed);
}

struct braid_mem;
/* Fill in what is known of memory that was registered as CUDA's. */
void braid_net_find_gpu(struct braid_mem *mem);

/* Warns of a call that NCCL's ABI does not allow, and returns its result. */
ncclResult_t braid_net_misuse(const char *what);

#endif
