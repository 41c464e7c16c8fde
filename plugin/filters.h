/* SPDX-License-Identifier: BSD-3-Clause */
/* filters.h - what NCCL_SOCKET_IFNAME and NCCL_IB_HCA say, and whether it makes sense here. */
#ifndef BRAID_PLUGIN_FILTERS_H
#define BRAID_PLUGIN_FILTERS_H

/* 0, or -EINVAL: one of the two is malformed, and a WARN with the reason was logged. */
int braid_filters_check(void);
/* Warn of elements of NCCL_SOCKET_IFNAME that match no interface of this host. */
void braid_filters_interfaces(void);

#endif
