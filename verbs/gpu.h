/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu.h - memory of GPUs that a port reads and writes by itself.
 *
 * There are several ways to tell it of such memory, and a host may have none of them.  So each is
 * tried at init with memory of our own: registered, then read and written by the NIC, through a
 * queue pair to itself (the loop), and compared with what the driver says is there.  What was seen
 * to work is offered, and tried in the same order for each buffer.
 *
 * The loop is also how what must go through the CPU after all gets into a GPU and out of it, and
 * how what the NIC has written is made visible: a read that follows it.
 */
#ifndef BRAID_VERBS_GPU_H
#define BRAID_VERBS_GPU_H

#include "core/transport.h"

extern const struct braid_gpu braid_port_gpu;

#endif
