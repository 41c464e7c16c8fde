/* SPDX-License-Identifier: BSD-3-Clause */
/* device.h - the table of devices, made once per process. */
#ifndef BRAID_PLUGIN_DEVICE_H
#define BRAID_PLUGIN_DEVICE_H

#include "core/dev.h"

/*
 * Find the devices; calls after the first keep what was found, since NCCL keeps indices.  Returns
 * their number (0: a WARN says why) or a negative errno.  Not thread-safe: called from init, which
 * NCCL serialises.
 */
int braid_devices_find(void);
/*
 * Find out which devices can reach GPU memory.  This is tried once, by the first init whose thread
 * has a CUDA context; until then no device can.  Not thread-safe, as above.
 */
void braid_devices_gpu(void);
/*
 * Log for each device one line about its registrations, if there were any since the last call, and
 * one about the messages of its closed comms.  Not thread-safe.
 */
void braid_devices_log(void);
unsigned braid_devices_count(void);
unsigned braid_devices_plain(void);	/* of these: not fused; they come first */
/* Has the host an InfiniBand or RoCE port, which NCCL can use by itself? */
bool braid_devices_ib(void);
struct braid_dev *braid_device(int index);	/* NULL: no such device */

/*
 * Make a fused device of n others that are not fused.  Returns its index (the old one if these
 * members are fused already), -EINVAL, or -EOPNOTSUPP: no PCI path (see BRAID_FUSE), and an INFO
 * line says so.  Not thread-safe: NCCL serialises makeVDevice.
 */
int braid_devices_fuse(unsigned n, const int *indices);

#endif
