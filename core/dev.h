/* SPDX-License-Identifier: BSD-3-Clause */
/* dev.h - a device: what NCCL sees, one NIC port with every transport that can use it. */
#ifndef BRAID_CORE_DEV_H
#define BRAID_CORE_DEV_H

#include "topo/netdev.h"

enum { BRAID_CONGESTION_SIZE = 16 };	/* TCP_CA_NAME_MAX */

struct braid_dev {
	unsigned index;
	struct braid_netdev net;
	char addr[64];			/* for people */
	char congestion[BRAID_CONGESTION_SIZE];	/* to be given back to sockets accepted */
};

#endif
