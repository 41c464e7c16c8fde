/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * port.h - RDMA ports: which this machine has, and what they can do.
 *
 * A port belongs to the device (core/dev.h) whose interface its GID table names, or, over iWARP, at
 * whose address rdma_cm finds the port.  An InfiniBand port without such an interface is a device
 * of its own, whose handshakes take the interface that NCCL would choose.
 */
#ifndef BRAID_VERBS_PORT_H
#define BRAID_VERBS_PORT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/dev.h"
#include "core/transport.h"
#include "verbs/bounce.h"
#include "verbs/gid.h"
#include "verbs/lib.h"

enum { BRAID_PORT_NAME = IBV_SYSFS_NAME_MAX + 8 };

enum braid_fabric { BRAID_FABRIC_IB, BRAID_FABRIC_ROCE, BRAID_FABRIC_IWARP };

struct braid_ibport {
	struct braid_ibport *next;	/* the next watched port */
	char name[BRAID_PORT_NAME];	/* mlx5_0:1 */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	uint8_t num;
	enum braid_fabric fabric;
	_Atomic unsigned mtu;		/* enum ibv_mtu */
	_Atomic uint16_t lid;
	atomic_bool grh;		/* the port requires a GRH on each packet */
	atomic_uint moves;		/* how often the LID has changed */
	uint16_t pkey_index;
	unsigned sq_max;		/* entries of a lane's send queue */
	uint32_t max_msg;		/* bytes of the largest message */
	uint8_t reads_in, reads_out;	/* of a queue pair at once: answered, begun; 0: none */
	int speed_mbps;
	bool siw;			/* soft-iWARP: braid_sigpipe_block(), SIW_PAGED */
	atomic_bool pipe_ignored;	/* the process ignores SIGPIPE: braid_sigpipe_check() */
	bool imm;			/* immediate data works: tried at init */
	atomic_bool down;		/* as the last event reported */
	char chosen[512];		/* the GID chosen last, and why, as it was logged */

	struct braid_qp_memory *spare;	/* verbs/qp_mem.c, under a lock there */
	unsigned nspare;
	struct braid_bounces bounces;	/* shared by its lanes, but with BRAID_RDMA_STRICT */
	pthread_mutex_t srq_lock;	/* only for jobs, which may hold it for long */
	struct braid_srq *srq;		/* which new lanes join: verbs/recv.c */
	_Atomic(struct ibv_srq *) srq_broke;	/* the one that the device reported broken */
	atomic_bool no_last_wqe;	/* it did not report a queue pair's last receive in time */
	unsigned srq_max;		/* entries of a shared receive queue; 0: not supported */

	/* the loop: verbs/loop.c, gpu_copy.c; with loop_lock held, except loop_made */
	pthread_mutex_t loop_lock;
	struct braid_qp *loop;	/* a queue pair to itself; NULL: not made, or dropped */
	struct braid_job make_loop;
	bool loop_makes;		/* that job has been handed over ... */
	uint64_t loop_since;		/* ... at this time ... */
	atomic_bool loop_made;		/* ... and is over, with these results: */
	struct braid_qp *loop_new;
	int loop_err;
	/* Work requests ever posted; completed; posted before the present loop was made. */
	uint64_t loop_posted, loop_done, loop_base;
	uint64_t loop_until;		/* when the next request must have completed */
	struct braid_gpu_copy *copier;	/* the copy that uses the loop's slots; or NULL */
	uint64_t loop_avoid_ns;		/* the loop has failed: avoid it until this time */
	struct braid_dev *loop_dev;

	/* memory of GPUs: verbs/gpu.c, at init */
	unsigned gpu_methods;		/* methods to register that the probe found to work */
	int gpu_tried;			/* the GPU that the probe used; -1: not known */
	unsigned flush_by;		/* how the NIC's writes are made visible */
	uint64_t flush_ns;		/* how long a flush by the NIC's READ takes */

	/* iWARP: verbs/cm.c */
	struct rdma_event_channel *cm;
	struct rdma_cm_id *listen;
	uint16_t cm_port;
	struct braid_qp *setups;	/* set-ups that wait for cm events; for BRAID_MAKE jobs */
	atomic_uint nleft;		/* of them, those whose owner is gone */
	struct braid_job pump;
	atomic_bool pumping;		/* `pump` has been handed over, and has not begun */
};

int braid_ibport_probe(struct braid_dev *table, unsigned *count, unsigned max, char *why,
		       size_t len);
static inline struct braid_ibport *braid_ibport_of(const struct braid_dev *dev)
{
	return dev->port[BRAID_TRANSPORT_VERBS];
}

/* Reads the port's attributes.  0 or -EIO. */
int braid_ibport_read(struct braid_ibport *p, struct ibv_port_attr *ret);
/*
 * Reads the attributes again, before a lane is made: not all drivers report a change by an event.
 * The device is queried, which may take long.
 */
void braid_ibport_refresh(struct braid_ibport *p);

/* Reads the GID table as it is now; returns how many entries. */
unsigned braid_ibport_gids(const struct braid_ibport *p, struct braid_gid *ret, unsigned max);

#endif
