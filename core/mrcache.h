/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mrcache.h - registrations of user memory, shared by those who register the same.
 *
 * NCCL registers one buffer again for each comm.  What a NIC has been told of once serves all of
 * them, for as long as one of them lasts: no longer, for after that the addresses may be those of
 * other memory.  One cache per device; any thread may call.
 */
#ifndef BRAID_CORE_MRCACHE_H
#define BRAID_CORE_MRCACHE_H

#include "core/comm.h"

/*
 * Tell the NICs of the comm's device, of which each member may have one.  A NIC that can't have it
 * is told once in a WARN and left out: bytes are then copied.  0, or -ENOMEM and a WARN.
 */
int braid_mr_new(struct braid_comm *c, void *data, size_t size, struct braid_mr **ret);
void braid_mr_free(struct braid_mr *mr);

#endif
