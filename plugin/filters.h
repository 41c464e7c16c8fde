/* SPDX-License-Identifier: BSD-3-Clause */
/* filters.h - what NCCL_SOCKET_IFNAME and NCCL_IB_HCA say, and whether it makes sense here. */
#ifndef BRAID_PLUGIN_FILTERS_H
#define BRAID_PLUGIN_FILTERS_H

/* 0, or -EINVAL: one of them can't be read, as a WARN has said. */
int braid_filters_check(void);
/* A WARN that names the elements which match no interface of this host, if there are some. */
void braid_filters_interfaces(void);

#endif
