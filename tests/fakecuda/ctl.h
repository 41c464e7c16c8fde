/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ctl.h - how a test talks to the fake GPU of tests/fakecuda (libcuda.so.1 there).
 *
 * Its memory is a file in memory, mapped twice: where the program is told that it lies nothing may
 * be touched, so that who reads or writes it as if it were the CPU's gets SIGSEGV, or EFAULT from
 * the kernel; the fake NIC (tests/fake) and the test come to it by the other.  It can be mapped in
 * the child of a fork, and is its own there as in no real driver: don't.
 *
 * The environment: BRAID_TEST_FAKECUDA=COMMAND;COMMAND... done at the first call.
 *
 * Commands:
 *   context 0|1          the calling thread has one (the main thread: 1, else 0)
 *   dmabuf 0|1           memory can be exported (1)
 *   pcie 0|1             ... with the PCIe mapping (0: INVALID_VALUE, as from older drivers)
 *   lies 0|1             what is exported is other memory (0)
 *   capture 0|1          another thread captures a graph: who waits for the GPU, or allocates, and
 *                        is not in the relaxed mode, is refused (0)
 *   mode                 of the calling thread: 0 as it is unasked, 2 relaxed
 *   pieces N             each allocation after that is N in a row, as of VMM (1); those are not
 *                        known to nvidia-peermem, nor exported as one
 *   spans 0|1            ... but exported as one, as newer drivers do (0)
 *   mixed 0|1            the last of the pieces is memory of the host (0)
 *   number N             each allocation after that is of that GPU (0)
 *   ids 0|1              allocations have an id (1)
 *   flush 0|1            the driver has a flush of its own (0)
 *   take                 GDRCopy's window is taken away; taken: whether it was
 *   seen                 times that what NICs have written was flushed, by the driver or through
 *                        GDRCopy's window (libgdrapi.so.2 here)
 *   fail K [NAME] [CODE] [on]   the K-th call fails (0: none) with that CUresult (999); NAME: of
 *                        that function; on: every later one too.  Starts the count anew
 *   calls                how many of those there were
 *   waits                calls ever that wait for the GPU, as allocations and what is not asynchronous
 *   kernel 0|1           one is running that waits for messages (0)
 *   blocked              calls that have waited for it
 *   engine USEC          what a copy takes that goes on by itself (50)
 *   hold 0|1             none goes on (0)
 *   copies               how many were begun
 *   under_way            how many are not over
 *   stray                of them, how many were of memory that was freed meanwhile
 *   live                 allocations
 *   staging              streams, events, pieces of pinned memory, contexts retained
 *
 * Memory that was freed is given out again first, at the same address, with another id.
 */
#ifndef BRAID_TESTS_FAKECUDA_CTL_H
#define BRAID_TESTS_FAKECUDA_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0 or a count; -EINVAL: not understood. */
__attribute__((visibility("default"))) long braid_fakecuda_ctl(const char *cmd);

/* Where the CPU finds those bytes; NULL: they are not a GPU's. */
__attribute__((visibility("default"))) void *braid_fakecuda_bytes(const void *ptr, size_t size);

/* May nvidia-peermem tell a NIC where they are? */
__attribute__((visibility("default"))) bool braid_fakecuda_peermem(const void *ptr, size_t size);

/* For GDRCopy: is that call to fail?  And: what NICs have written is there, and counted. */
__attribute__((visibility("default"))) bool braid_fakecuda_fails(const char *name);
__attribute__((visibility("default"))) void braid_fakecuda_seen(void);

/* Of the driver's own, for tests. */
__attribute__((visibility("default"))) int cuMemAlloc_v2(uint64_t *ret, size_t size);
__attribute__((visibility("default"))) int cuMemFree_v2(uint64_t ptr);
__attribute__((visibility("default"))) int cuMemGetHandleForAddressRange(void *ret, uint64_t ptr,
	size_t size, int type, unsigned long long flags);

#endif
