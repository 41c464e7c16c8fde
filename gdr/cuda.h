/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda.h - calls into NVIDIA's driver: does a pointer point to GPU memory, and what can be done
 * with that memory?
 *
 * The driver's library is never loaded here: a process that has GPU memory has loaded it already.
 * driver.h declares the calls from the driver's public documentation, so that the build needs no
 * header of CUDA.
 *
 * Calls return 0 or a negative errno: -ENOENT no driver in this process, -ENOTCONN no context is
 * current, -EOPNOTSUPP the driver or the memory does not support it, -ENOMEM, -EIO anything else.
 */
#ifndef BRAID_GDR_CUDA_H
#define BRAID_GDR_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct braid_gpu_mem {
	int gpu;			/* the driver's number of the GPU */
	unsigned pieces;		/* allocations in the range */
	/*
	 * Identifies the allocation: no other in this process ever has the same number.  0: not
	 * known; then it goes unnoticed if other memory gets this address later.
	 */
	uint64_t id;
};

/* Is the driver there?  On failure `why` says in one line what is missing. */
int braid_gpu_load(char *why, size_t len);

/* Does the calling thread have a context?  The calls below need one. */
bool braid_gpu_current(void);

/*
 * Is this GPU memory, which the CPU may not touch?  0: all of it; -EINVAL: none of it.
 * -EOPNOTSUPP: only a part; then only a NIC can move the range, if the driver exports all of it.
 */
int braid_gpu_query(const void *data, size_t size, struct braid_gpu_mem *ret);

/*
 * Exports a DMA-BUF of the pages of that range.  data lies at *ret_offset; the caller owns *ret_fd.
 * `pcie`: a device on PCIe can reach it even where the GPU is attached to the CPU's own bus.
 */
int braid_gpu_export(const void *data, size_t size, bool pcie, int *ret_fd, uint64_t *ret_offset);

/* The GPU's PCI address as in /sys, 13 bytes: "0000:3b:00.0". */
int braid_gpu_pci(int gpu, char *ret, size_t len);

/*
 * Does the driver support a flush of that GPU by itself?  braid_gpu_flush() does it, in a thread
 * with that GPU's context.  Both may wait for other driver calls, which may wait for a kernel.
 */
int braid_gpu_can_flush(int gpu);
int braid_gpu_flush(int gpu);

/*
 * Between enter() and leave(), this thread's calls into the driver do not disturb a graph that
 * another thread is capturing.  leave() takes the result of enter().
 */
int braid_gpu_enter(void);
void braid_gpu_leave(int was);
/* For probes, before there is any traffic: these calls wait for the GPU. */
int braid_gpu_alloc(size_t size, void **ret);
void braid_gpu_free(void *data);
int braid_gpu_write(void *data, const void *from, size_t size);
int braid_gpu_read(void *to, const void *data, size_t size);

#endif
