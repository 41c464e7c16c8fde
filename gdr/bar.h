/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bar.h - GPU memory mapped for the CPU, by GDRCopy's library and driver, loaded at run time.
 *
 * A read through such a mapping travels over PCIe behind all earlier writes into the GPU on the
 * same path.  So a read of a GPU's *window*, memory of our own, flushes a NIC's writes; the bytes
 * read are not used.  Through a mapping of the user's memory the CPU reads and writes single words.
 * Only for x86-64: other hosts may reach a GPU by another path than PCIe, and a read on that path
 * flushes nothing.
 */
#ifndef BRAID_GDR_BAR_H
#define BRAID_GDR_BAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BRAID_BAR_MAX = 1 << 20 };	/* bytes of one mapping of the user's memory */

struct braid_bar;			/* such a mapping */

/*
 * Maps 64 KiB of a GPU's memory until the process ends: its window.  `gpu` is the driver's number;
 * that GPU's context must be current.  0, also if the GPU has a window already; else a negative
 * errno, and `why` in one line.  Like the probe calls of gdr/cuda.h, this may wait for the GPU.
 */
int braid_bar_open(int gpu, char *why, size_t len);

/* Reads a word through a GPU's window, in some microseconds; any thread.  False: no window now. */
bool braid_bar_read(int gpu);

/*
 * Maps the driver's pages (64 KiB) that hold these bytes of GPU memory.  0; or a negative errno and
 * `why` in one line: the pages are more than BRAID_BAR_MAX bytes, the memory is not aligned to 8 or
 * has no 8 bytes, or GDRCopy is not there or refuses.  May wait for the driver.  The caller owns
 * *ret, and unmaps it before the memory is freed.
 */
int braid_bar_map(const void *data, size_t size, struct braid_bar **ret, char *why, size_t len);
/* May wait for the driver.  NULL: does nothing. */
void braid_bar_unmap(struct braid_bar *b);

/*
 * Read or write the word of 8 bytes at that GPU address, a multiple of 8 in a mapping, in some
 * microseconds.  What the caller saw or wrote before is seen before the word.  A word written is on
 * its way to the GPU; once a later load returns, it is there.  False, and nothing was done: the
 * mapping is gone for good, or NULL.  Any thread, but none during braid_bar_unmap().
 */
bool braid_bar_load(struct braid_bar *b, const void *at, uint64_t *ret);
bool braid_bar_store(struct braid_bar *b, void *at, uint64_t value);

/* Is this a virtual machine, whose PCI tree may be made up? */
bool braid_bar_virtual(void);

#endif
