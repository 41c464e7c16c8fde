/* SPDX-License-Identifier: BSD-3-Clause */
/* dev.h - a device: what NCCL sees, one NIC port with every transport that can use it. */
#ifndef BRAID_CORE_DEV_H
#define BRAID_CORE_DEV_H

#include "topo/netdev.h"

struct braid_dev {
	unsigned index;
	struct braid_netdev net;
	char addr[64];			/* for people */
};

#endif
