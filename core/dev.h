/* SPDX-License-Identifier: BSD-3-Clause */
/* dev.h - a device: what NCCL sees, one NIC port with every transport that can use it. */
#ifndef BRAID_CORE_DEV_H
#define BRAID_CORE_DEV_H

#include <stdint.h>

#include "core/base/log.h"
#include "core/mem/later.h"
#include "core/transport.h"
#include "core/proto/common.h"
#include "topo/cpus.h"
#include "topo/netdev.h"

enum { BRAID_CONGESTION_SIZE = 16 };	/* TCP_CA_NAME_MAX */

struct braid_mr_stats {			/* registrations of the user's memory: core/mem/mrcache.c */
	uint64_t hits;			/* registered already */
	uint64_t misses, refused;	/* buffers to register anew; of these: failed */
	unsigned alive, most_alive;
	uint64_t bytes, most_bytes;	/* of those alive */
};

struct braid_traffic {			/* messages that test() has reported done */
	_Atomic uint64_t messages, bytes;
};

struct braid_dev {
	unsigned index;
	struct braid_netdev net;	/* fused: the first member's, all names, summed speed */
	unsigned nmembers;
	struct braid_dev *member[BRAID_PATHS_MAX];	/* fused: its members; else itself */
	char addr[64];			/* as text, for logs */
	int16_t rail, plane;		/* as the user has set; -1: not set */
	void *port[BRAID_TRANSPORT_IDS];	/* by transport; NULL: that one can't use it */
	const struct braid_transport *best;	/* of these transports; fused: the first member's */
	struct braid_mrc *mrs;		/* core/mem/mrcache.c */
	struct braid_mr_stats mr_stats;
	struct braid_traffic sent, got;	/* of comms that were closed */
	_Atomic uint64_t slow;		/* lanes dialled again, since their path was slow */
	_Atomic uint64_t lost, redials, stalls;	/* lanes lost, lanes back; late messages reported */
	_Atomic uint64_t corrupt;	/* lanes lost because a checksum was wrong */
	struct braid_log_gate corrupt_gate;
	_Atomic uint64_t zerocopy_bytes;	/* sent by MSG_ZEROCOPY */
	_Atomic uint64_t zerocopy_copied;	/* calls of these whose bytes the kernel copied */
	unsigned mr_max;		/* registrations that its port allows; 0: not known */
	unsigned gpu;			/* BRAID_GPU_* that all members have; _DIRECT: any has */
	char direct[BRAID_NETDEV_PATH];	/* _DIRECT: by that PCI function; "": not in /sys */
	bool gpu_probed;
	struct braid_later later[BRAID_JOB_KINDS];	/* commands to its NIC */
	struct braid_stopping stopping;
	struct braid_movers *_Atomic movers;	/* core/link/mover.c; NULL: none */
	struct braid_cpus near;		/* CPUs near it; empty: not known */
	char congestion[BRAID_CONGESTION_SIZE];	/* which accepted sockets get back; or "" */
};

#endif
