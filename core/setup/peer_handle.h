/* SPDX-License-Identifier: BSD-3-Clause */
/* peer_handle.h - the handle with which NCCL names a peer's listen. */
#ifndef BRAID_SETUP_PEER_HANDLE_H
#define BRAID_SETUP_PEER_HANDLE_H

struct braid_dev;
struct braid_handle;

/* Read and check it: 0; else it is not one that can be dialled, and a WARN says why. */
int braid_peer_handle(const struct braid_dev *dev, const void *handle, struct braid_handle *ret);

#endif
