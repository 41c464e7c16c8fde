/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * port.h - RDMA ports: which this machine has, what they can do, and memory they may touch.
 *
 * A port belongs to the device (core/dev.h) whose interface its GID table names, or whose address
 * rdma_cm finds at it.  An InfiniBand port without one is a device of its own; its handshakes take
 * the interface that NCCL would choose.
 */
#ifndef BRAID_VERBS_PORT_H
#define BRAID_VERBS_PORT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/dev.h"
#include "core/transport.h"
#include "verbs/gid.h"
#include "verbs/lib.h"

enum { BRAID_PORT_NAME = IBV_SYSFS_NAME_MAX + 8 };

enum braid_fabric { BRAID_FABRIC_IB, BRAID_FABRIC_ROCE, BRAID_FABRIC_IWARP };

struct braid_port {
	struct braid_port *next;	/* of all */
	char name[BRAID_PORT_NAME];	/* mlx5_0:1 */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	uint8_t num;
	enum braid_fabric fabric;
	_Atomic unsigned mtu;		/* enum ibv_mtu */
	_Atomic uint16_t lid;
	atomic_bool grh;		/* it demands one on each packet */
	atomic_uint moves;		/* how often the LID has changed */
	uint16_t pkey_index;
	unsigned sq_max;		/* requests to send that a lane may have with it */
	uint32_t max_msg;		/* bytes that it takes in one */
	int speed_mbps;
	bool siw;			/* soft-iWARP: braid_hush(), SIW_PAGED */
	atomic_bool pipe_ignored;	/* the process ignores SIGPIPE: braid_hush_look() */
	bool imm;			/* immediate data has arrived */
	atomic_bool down;		/* an event said so */
	char chosen[512];		/* what was chosen last, and why: for the log */

	struct braid_wire_memory *spare;	/* verbs/life.c, under a lock there */
	unsigned nspare;
	pthread_mutex_t srq_lock;	/* in jobs, which may hold it for long */
	struct braid_srq *srq;		/* which new lanes join: verbs/recv.c */
	_Atomic(struct ibv_srq *) srq_broke;	/* the device says so */
	unsigned srq_max;		/* receives that a shared queue takes; 0: there is none */

	/* memory of GPUs: verbs/gpu.c */
	pthread_mutex_t loop_lock;
	struct braid_wire *loop;	/* to itself; NULL: not yet, or not now */
	struct braid_job make_loop;
	bool loop_makes;		/* that job has been handed over ... */
	uint64_t loop_since;
	atomic_bool loop_made;		/* ... and is over, with: */
	struct braid_wire *loop_new;
	int loop_err;
	/* Work requests ever; of them, over; of them, before the last loop's first. */
	uint64_t loop_posted, loop_done, loop_base;
	uint64_t loop_until;		/* when the next of them must be over */
	struct braid_gpu_copy *copier;	/* whose piece lies in the loop's slots; NULL: nobody's */
	uint64_t loop_rest;		/* till when it need not be tried, after a failure */
	struct braid_dev *loop_dev;
	unsigned gpu_ways;		/* seen to work */
	int gpu_tried;			/* with which GPU; -1: not known */
	unsigned flush_by;		/* and how what was written there is seen */
	uint64_t flush_ns;		/* by a read of the NIC's */

	/* iWARP: verbs/cm.c */
	struct rdma_event_channel *cm;
	struct rdma_cm_id *listen;
	uint16_t cm_port;
	struct braid_wire *wires;	/* set-ups that wait for cm events: jobs of BRAID_MAKE */
	atomic_uint nleft;		/* of them, those that go with the answer */
	struct braid_job pump;
	atomic_bool pumping;		/* it has been handed over, and has not begun */
};

int braid_port_probe(struct braid_dev *table, unsigned *count, unsigned max, char *why, size_t len);
static inline struct braid_port *braid_port_of(const struct braid_dev *dev)
{
	return dev->port[BRAID_TRANSPORT_VERBS];
}

/* What it says of itself.  0 or -EIO. */
int braid_port_read(struct braid_port *p, struct ibv_port_attr *ret);
/*
 * Again, before a lane is made: not all drivers say by an event that something has changed.  It
 * asks the device, which may take its time.
 */
void braid_port_refresh(struct braid_port *p);

/* The GID table as it is now: how many entries. */
unsigned braid_port_gids(const struct braid_port *p, struct braid_gid *ret, unsigned max);

/* A device's descriptors are not for a forked child, and never waited for. */
void braid_port_adopt(const struct ibv_context *ctx);

/* Look at what the device says has happened to it; with no lock, now and then. */
void braid_port_events(struct braid_port *p);

bool braid_port_usable(const struct braid_dev *dev);
int braid_port_reg(struct braid_dev *dev, void *data, size_t size, struct braid_key *ret);
void braid_port_dereg(struct braid_dev *dev, struct braid_key *key);
/*
 * Memory of the user: PCIe may let writes there overtake each other, unless
 * BRAID_IB_PCI_RELAXED_ORDERING says no.  What tells that they are there overtakes nothing: a
 * completion, or a write into memory of our own, which is always strict (PCIe Base Specification,
 * 2.4.1).
 */
unsigned braid_port_relaxed(void);	/* the flag that asks for it, or 0 */
struct ibv_mr *braid_port_reg_user(struct braid_port *p, void *data, size_t size, unsigned access);
/* Our own memory: a key, or NULL and what is to be done about it has been said. */
struct ibv_mr *braid_port_own(struct braid_port *p, void *data, size_t size, int access);

#endif
