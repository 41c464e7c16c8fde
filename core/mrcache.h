/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mrcache.h - registrations of user memory, shared by those who register the same.
 *
 * NCCL registers one buffer again for each comm.  What a NIC has been told of once serves all of
 * them, for as long as one of them lasts: no longer, for after that the addresses may be those of
 * other memory.  A GPU's may be those of other memory before: it is known by its allocation's id
 * as well, and one without an id is shared by nobody.  One cache per device; any thread may call.
 */
#ifndef BRAID_CORE_MRCACHE_H
#define BRAID_CORE_MRCACHE_H

#include "core/comm.h"

/*
 * Tell the NICs of the comm's device, of which each member may have one.  A NIC that can't have it
 * is told once in a WARN and left out: bytes are then copied.  0, or -ENOMEM and a WARN.  Of a GPU
 * all must have it, else that is an error, and a WARN.
 */
int braid_mr_new(struct braid_comm *c, const struct braid_mem *mem, struct braid_mr **ret);
void braid_mr_free(struct braid_mr *mr);

/*
 * Bytes of a GPU's memory to or from our own, by whichever NIC can; what NICs have written there
 * is seen.  0 or a negative errno.
 */
int braid_mr_copy(const struct braid_mr *mr, char *at, void *own, size_t len, bool to_gpu);
/*
 * What any NIC of the device has written there is seen by the GPU: 0, -EAGAIN: call again with the
 * same `f`, zeroed at first, else it can't be said.
 */
struct braid_mr_flush {
	struct braid_gpu_flush member[BRAID_PATHS_MAX];
	unsigned done;			/* a bit for each of them */
};
int braid_mr_flush(const struct braid_mr *mr, char *at, struct braid_mr_flush *f);

#endif
