/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pci.h - which PCI device, and which card, something under /sys belongs to.
 *
 * Reads links under /sys only; nothing is kept.  sysroot: "" or a directory that stands for /.
 * Paths that go in and come out are those of the machine, without the sysroot.
 */
#ifndef BRAID_TOPO_PCI_H
#define BRAID_TOPO_PCI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topo/cpus.h"

struct braid_pci_addr {
	uint32_t domain;
	uint8_t bus, dev, fn;
};

/* "0000:03:00.1", nothing more or less; a domain may have up to 8 digits.  0 or -EINVAL. */
int braid_pci_parse(const char *text, struct braid_pci_addr *ret);

/*
 * The PCI device that `device`, a link such as /sys/class/net/eth0/device, leads to: itself, or
 * the one under which it was made (virtio, vDPA, scalable functions).  Writes its real directory,
 * whose subsystem is pci.  0, or -ENOENT (not PCI), -ENAMETOOLONG or the kernel's error.
 */
int braid_pci_find(const char *sysroot, const char *device, char *ret, size_t len);

/*
 * The address of the physical function behind a directory that braid_pci_find() wrote: its own,
 * or that of its physfn link for a virtual function.  0 or -EINVAL.
 */
int braid_pci_physfn(const char *sysroot, const char *path, struct braid_pci_addr *ret);

/*
 * Are the device at `path` (from braid_pci_find()) and the one at `addr` ("0000:3b:00.0") below one
 * port of the root complex, so that traffic between them passes a switch, not the root complex?
 */
bool braid_pci_one_port(const char *sysroot, const char *path, const char *addr);

/* The CPUs next to the device at `path` (from braid_pci_find()); false: unknown. */
bool braid_pci_cpus(const char *sysroot, const char *path, struct braid_cpus *ret);

#endif
