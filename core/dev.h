/* SPDX-License-Identifier: BSD-3-Clause */
/* dev.h - a device: what NCCL sees, one NIC port with every transport that can use it. */
#ifndef BRAID_CORE_DEV_H
#define BRAID_CORE_DEV_H

#include <stdint.h>

#include "core/later.h"
#include "core/transport.h"
#include "core/wire.h"
#include "topo/netdev.h"

enum { BRAID_CONGESTION_SIZE = 16 };	/* TCP_CA_NAME_MAX */

struct braid_mr_stats {			/* registrations of the user's memory: core/mrcache.c */
	uint64_t hits;			/* somebody had it already */
	uint64_t misses, refused;	/* the NIC was to be told; of them, could not be */
	unsigned alive, most_alive;
	uint64_t bytes, most_bytes;	/* of those alive */
};

struct braid_traffic {			/* messages that test() has said were done */
	_Atomic uint64_t messages, bytes;
};

struct braid_dev {
	unsigned index;
	struct braid_netdev net;	/* of several: the first's, with all names and speeds */
	unsigned nmembers;
	struct braid_dev *member[BRAID_PATHS_MAX];	/* itself, or what it is made of */
	char addr[64];			/* for people */
	int16_t rail, plane;		/* as the user has told; -1: not */
	void *port[BRAID_TRANSPORT_IDS];	/* of each transport that can use it; NULL: can't */
	const struct braid_transport *best;	/* of those; of several: of the first */
	struct braid_mrc *mrs;		/* core/mrcache.c */
	struct braid_mr_stats mr_stats;
	struct braid_traffic sent, got;	/* of comms that were closed */
	_Atomic uint64_t lost, redials, stalls;	/* lanes lost, taken up again; late messages told */
	unsigned mr_max;		/* registrations that its port has room for; 0: not known */
	unsigned gpu;			/* BRAID_GPU_*, of all members; _DIRECT, of any */
	char direct[BRAID_NETDEV_PATH];	/* by which PCI function then; "": not under /sys */
	bool gpu_probed;
	struct braid_later later[BRAID_TURNS];	/* commands to its NIC */
	struct braid_stopping stopping;
	char congestion[BRAID_CONGESTION_SIZE];	/* to be given back to sockets accepted */
};

#endif
