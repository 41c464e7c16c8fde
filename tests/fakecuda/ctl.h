/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ctl.h - how a test talks to the fake GPU of tests/fakecuda (libcuda.so.1 there).
 *
 * The GPU's memory is a memfd, mapped twice.  The address that the program gets allows no access,
 * so a program that uses it like the CPU's memory gets SIGSEGV, or EFAULT from the kernel.  The fake
 * NIC (tests/fake) and the test use the other mapping.  A forked child can use the memory, too,
 * which no real driver allows: don't.
 *
 * The environment: BRAID_TEST_FAKECUDA=COMMAND;COMMAND... run at the first call.
 *
 * Commands:
 *   context 0|1          the calling thread has a context (the main thread: 1, others: 0)
 *   dmabuf 0|1           memory can be exported (1)
 *   pcie 0|1             ... with the PCIe mapping (0: INVALID_VALUE, as from older drivers)
 *   lies 0|1             other memory than asked for is exported (0)
 *   capture 0|1          another thread captures a graph: a call that waits for the GPU, or that
 *                        allocates, fails if its thread is not in the relaxed mode (0)
 *   mode                 capture mode of the calling thread: 0 the default, 2 relaxed
 *   pieces N             each later allocation is N pieces in a row, as with VMM (1); nvidia-peermem
 *                        does not know them, and they are not exported as one
 *   spans 0|1            ... but exported as one, as newer drivers do (0)
 *   mixed 0|1            the last of the pieces is host memory (0)
 *   number N             later allocations are on that GPU (0)
 *   ids 0|1              allocations have an id (1)
 *   flush 0|1            the driver has a flush of its own (0)
 *   take                 GDRCopy's mappings are taken away; taken: whether they were
 *   seen                 how often NICs' writes were flushed, by the driver or by a read through a
 *                        mapping of GDRCopy's (libgdrapi.so.2 here)
 *   stored               how many words the CPU wrote through such mappings
 *   pinned               how many ranges GDRCopy has pinned
 *   fail K [NAME] [CODE] [on]   the K-th call fails (0: none) with that CUresult (999); NAME: of
 *                        that function; on: every later one too.  Restarts the count
 *   calls                how many of those calls were made
 *   waits                calls ever that wait for the GPU: allocations, and all that is not asynchronous
 *   kernel 0|1           a kernel is running that waits for messages (0)
 *   blocked              calls that have waited for that kernel
 *   engine USEC          how long an asynchronous copy takes (50)
 *   hold 0|1             asynchronous copies stand still (0)
 *   copies               how many were begun
 *   under_way            how many are not complete
 *   stray                how many used memory that was freed meanwhile
 *   live                 allocations
 *   staging              streams, events, pieces of pinned memory, contexts retained
 *
 * Freed memory is the first to be allocated again, at the same address, with another id.
 */
#ifndef BRAID_TESTS_FAKECUDA_CTL_H
#define BRAID_TESTS_FAKECUDA_CTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 0 or a count; -EINVAL: not understood. */
__attribute__((visibility("default"))) long braid_fakecuda_ctl(const char *cmd);

/* The address at which the CPU can reach those bytes; NULL: they are not a GPU's. */
__attribute__((visibility("default"))) void *braid_fakecuda_bytes(const void *ptr, size_t size);

/* Can nvidia-peermem register those bytes with a NIC? */
__attribute__((visibility("default"))) bool braid_fakecuda_peermem(const void *ptr, size_t size);

/* For GDRCopy: is that call to fail?  And a flush: delivers and counts what NICs have written. */
__attribute__((visibility("default"))) bool braid_fakecuda_fails(const char *name);
__attribute__((visibility("default"))) void braid_fakecuda_seen(void);
/* One more mapping of those bytes, without access; NULL: they are not a GPU's.  And its counts. */
__attribute__((visibility("default"))) void *braid_fakecuda_map(const void *ptr, size_t size);
__attribute__((visibility("default"))) void braid_fakecuda_count(long stored, long pinned);

/* The driver's own functions, for tests. */
__attribute__((visibility("default"))) int cuMemAlloc_v2(uint64_t *ret, size_t size);
__attribute__((visibility("default"))) int cuMemFree_v2(uint64_t ptr);
__attribute__((visibility("default"))) int cuMemGetHandleForAddressRange(void *ret, uint64_t ptr,
	size_t size, int type, unsigned long long flags);

#endif
