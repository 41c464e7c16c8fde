/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bar.h - GPU memory mapped for the CPU, by GDRCopy's library and driver, loaded at run time.
 *
 * A read through such a window travels over PCIe behind all earlier writes into the GPU on the same
 * path.  So it flushes a NIC's writes; the bytes read are not used.  Only for x86-64: other hosts
 * may reach a GPU by another path than PCIe, and a read on that path flushes nothing.
 */
#ifndef BRAID_GDR_BAR_H
#define BRAID_GDR_BAR_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Maps 64 KiB of a GPU's memory until the process ends: its window.  `gpu` is the driver's number;
 * that GPU's context must be current.  0, also if the GPU has a window already; else a negative
 * errno, and `why` in one line.  Like the probe calls of gdr/cuda.h, this may wait for the GPU.
 */
int braid_bar_open(int gpu, char *why, size_t len);

/* Reads a word through a GPU's window, in some microseconds; any thread.  False: no window now. */
bool braid_bar_read(int gpu);

/* Is this a virtual machine, whose PCI tree may be made up? */
bool braid_bar_virtual(void);

#endif
