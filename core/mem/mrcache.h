/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mrcache.h - registrations of user memory, shared by comms that register the same buffer.
 *
 * NCCL registers one buffer again for each comm.  One registration with a NIC serves all of them,
 * and ends with the last comm: then the addresses may belong to other memory.  Addresses of a GPU
 * may belong to other memory even before.  So GPU memory is found by its allocation's id as well,
 * and without an id its registration is not shared.  One cache per device; any thread may call.
 *
 * A device has a limited number of registrations, and lanes need some.  Registered memory is lost
 * to the rest of the host.  Beyond the limits BRAID_MR_MAX and BRAID_MR_BYTES no NIC is asked for a
 * registration.
 */
#ifndef BRAID_MEM_MRCACHE_H
#define BRAID_MEM_MRCACHE_H

#include "core/dev.h"
#include "core/mem/mr.h"

/*
 * Register memory with each member's NIC.  If a NIC refuses host memory, messages are copied there,
 * after one WARN.  GPU memory must be accepted by all.  0, or a negative errno (host memory: only
 * -ENOMEM) and a WARN.
 */
int braid_mr_new(struct braid_dev *dev, const struct braid_mem *mem, struct braid_mr **ret);
void braid_mr_free(struct braid_mr *mr);

/* copy() and copy_end() of struct braid_gpu, by member i; -ENODEV: not registered there. */
int braid_mr_nic_copy(const struct braid_mr *mr, unsigned i, struct braid_gpu_copy *c);
void braid_mr_nic_copy_end(const struct braid_mr *mr, unsigned i, struct braid_gpu_copy *c);

struct braid_mr_flush {			/* zeroed before the first call */
	struct braid_gpu_flush member[BRAID_PATHS_MAX];
	unsigned done;			/* a bit for each member */
};
/*
 * Make writes by all NICs of the device visible to the GPU.  0: they are; -EAGAIN: call again with
 * the same `f`; else it failed.  The driver may do it in place of a NIC.
 */
int braid_mr_flush(const struct braid_mr *mr, char *at, struct braid_mr_flush *f);

/* The counters of a plain device, which is not fused. */
void braid_mr_stats(const struct braid_dev *dev, struct braid_mr_stats *ret);

#endif
