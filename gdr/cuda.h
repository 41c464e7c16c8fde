/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda.h - whose memory a pointer is: NVIDIA's driver, picked up at run time.
 *
 * The driver's library is never loaded here: a process that has memory of a GPU has loaded it.
 * What is used of it is declared in driver.h from its public documentation, so that no header of
 * CUDA is needed to build.
 *
 * 0 is success, a negative errno failure: -ENOENT no driver in this process, -ENOTCONN no context
 * is current, -EOPNOTSUPP the driver or the memory does not do that, -ENOMEM, -EIO anything else.
 */
#ifndef BRAID_GDR_CUDA_H
#define BRAID_GDR_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct braid_gpu_mem {
	int gpu;			/* the driver's number of it */
	unsigned pieces;		/* allocations that the range goes over */
	/*
	 * Of the allocations: no two that were ever made in this process are alike.  0: not known,
	 * so that nothing can be said of another time.
	 */
	uint64_t id;
};

/* Is the driver there?  On failure `why` says in one line what is missing. */
int braid_gpu_load(char *why, size_t len);

/* Does the calling thread have a context, which what follows needs? */
bool braid_gpu_current(void);

/*
 * Only memory that the CPU may not touch is a GPU's; -EINVAL: it is not; -EOPNOTSUPP: some of it
 * is, which is nobody's then but a NIC's that the driver tells of all of it.
 */
int braid_gpu_look(const void *data, size_t size, struct braid_gpu_mem *ret);

/*
 * A DMA-BUF for the pages of that range: data lies at *ret_offset, and *ret_fd is the caller's.
 * `pcie`: mapped so that a device on PCIe reaches it where the GPU hangs on the CPU's own bus.
 */
int braid_gpu_export(const void *data, size_t size, bool pcie, int *ret_fd, uint64_t *ret_offset);

/* Its PCI address as in /sys, 13 bytes: "0000:3b:00.0". */
int braid_gpu_pci(int gpu, char *ret, size_t len);

/*
 * The driver's own flush: does it have one for that GPU, and do it, in a thread whose context is
 * that GPU's.  May wait for other calls into the driver, and these for a kernel.
 */
int braid_gpu_can_flush(int gpu);
int braid_gpu_flush(int gpu);

/*
 * Between enter, whose result leave takes, the thread's calls into the driver are none of a graph's
 * that another thread may be capturing.
 */
int braid_gpu_enter(void);
void braid_gpu_leave(int was);
/* For a probe, before there is any traffic: these wait for the GPU. */
int braid_gpu_alloc(size_t size, void **ret);
void braid_gpu_free(void *data);
int braid_gpu_write(void *data, const void *from, size_t size);
int braid_gpu_read(void *to, const void *data, size_t size);

#endif
