/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mrcache.h - registrations of user memory, shared by those who register the same.
 *
 * NCCL registers one buffer again for each comm.  What a NIC has been told of once serves all of
 * them, for as long as one of them lasts: no longer, for after that the addresses may be those of
 * other memory.  A GPU's may be those of other memory before: it is known by its allocation's id
 * as well, and one without an id is shared by nobody.  One cache per device; any thread may call.
 *
 * A device has so many registrations and no more, of which lanes need some, and memory that NICs
 * may touch is taken from everybody else.  So there are limits (BRAID_MR_MAX, BRAID_MR_BYTES), and
 * what is beyond them no NIC is asked for.
 */
#ifndef BRAID_CORE_MRCACHE_H
#define BRAID_CORE_MRCACHE_H

#include "core/comm.h"
#include "core/dev.h"

/*
 * Tell the NICs of the comm's device, of which each member may have one.  A NIC that can't have it
 * is told once in a WARN and left out: bytes are then copied.  0, or -ENOMEM and a WARN.  Of a GPU
 * all must have it, else that is an error, and a WARN; and what the driver's copies need is made.
 */
int braid_mr_new(struct braid_comm *c, const struct braid_mem *mem, struct braid_mr **ret);
void braid_mr_free(struct braid_mr *mr);

/* A copy by the NIC of member i, as of struct braid_gpu; -ENODEV: that member has none. */
int braid_mr_nic_copy(const struct braid_mr *mr, unsigned i, struct braid_gpu_copy *c);
void braid_mr_nic_copy_end(const struct braid_mr *mr, unsigned i, struct braid_gpu_copy *c);

/*
 * What any NIC of the device has written there is seen by the GPU: 0, -EAGAIN: call again with the
 * same `f`, zeroed at first, else it can't be said.  The driver's word will do for that of a NIC.
 */
struct braid_mr_flush {
	struct braid_gpu_flush member[BRAID_PATHS_MAX];
	unsigned done;			/* a bit for each of them */
};
int braid_mr_flush(const struct braid_mr *mr, char *at, struct braid_mr_flush *f);

/* What it has come to, on a device that is none of several. */
void braid_mr_stats(const struct braid_dev *dev, struct braid_mr_stats *ret);

#endif
