/* SPDX-License-Identifier: BSD-3-Clause */
/* device.h - the table of devices, made once per process. */
#ifndef BRAID_PLUGIN_DEVICE_H
#define BRAID_PLUGIN_DEVICE_H

#include "core/dev.h"

/*
 * Find the devices, the first time; later calls keep what was found, for NCCL holds on to
 * indices.  Returns their number (0: said why in a WARN) or a negative errno.  Not thread-safe:
 * called from init, which NCCL serialises.
 */
int braid_devices_find(void);
/*
 * Which of them reach memory of GPUs: tried once, by the first init whose thread has a context of
 * the driver's.  Until then none does.  Not thread-safe, as above.
 */
void braid_devices_gpu(void);
/*
 * For each device one line of its registrations, if there were any since the last, and one of the
 * messages of its closed comms.  Not from two threads.
 */
void braid_devices_tell(void);
unsigned braid_devices_count(void);
struct braid_dev *braid_device(int index);	/* NULL: no such device */

/*
 * Make one device of n others, none of them made so itself: its index, the same for the same
 * members, -EINVAL, or -EOPNOTSUPP (no PCI path, see BRAID_FUSE; told at INFO).  Not thread-safe:
 * NCCL serialises makeVDevice.
 */
int braid_devices_fuse(unsigned n, const int *indices);

#endif
