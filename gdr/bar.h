/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bar.h - a window of the CPU's on a GPU: GDRCopy's library and driver, picked up at run time.
 *
 * What is read through it comes over PCIe, behind all that was written into the GPU on the same
 * way before.  That is what is wanted of it: nobody cares for the bytes.  Only x86-64: other
 * hosts may reach a GPU by another way than PCIe, where nothing is to be flushed.
 */
#ifndef BRAID_GDR_BAR_H
#define BRAID_GDR_BAR_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Have a window on the GPU whose context is current, by the driver's number of it: 64 KiB of it
 * are taken until the process ends.  0, also if there is one; else a negative errno, and `why` in
 * one line.  As a probe (gdr/cuda.h).
 */
int braid_bar_open(int gpu, char *why, size_t len);

/* Any thread: a read, some us; false: there is no window on that GPU, or not any more. */
bool braid_bar_read(int gpu);

/* Is this a virtual machine, whose PCI tree may be made up? */
bool braid_bar_virtual(void);

#endif
