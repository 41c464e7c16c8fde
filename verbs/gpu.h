/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu.h - GPU memory that a port reads and writes by itself (GPUDirect RDMA).
 *
 * There are several ways to register such memory, and a host may support none of them.  So each is
 * tried at init with GPU memory of our own: the NIC reads and writes it through a queue pair to
 * itself (the loop), and the driver's view of the memory must agree.  Buffers are then registered
 * by the ways that worked, tried in the same order.
 *
 * The loop also copies between a GPU and our own memory what must pass through the CPU after all,
 * and it flushes: an RDMA READ makes the writes before it visible.
 */
#ifndef BRAID_VERBS_GPU_H
#define BRAID_VERBS_GPU_H

#include "core/transport.h"

extern const struct braid_gpu braid_ibport_gpu;

#endif
