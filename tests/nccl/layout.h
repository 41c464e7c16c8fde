/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * layout.h - the structures that NCCL and its kernels share, as far as a ring needs them, for NCCL 2.27
 * to 2.30.  Written from scratch.  Where releases differ, struct nccl_layout has the difference.
 */
#ifndef BRAID_TESTS_NCCL_LAYOUT_H
#define BRAID_TESTS_NCCL_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { STEPS = 8, PROTOCOLS = 3, CHANNELS_MAX = 64, LL = 0, LL128 = 1, SIMPLE = 2 };
enum { TYPES = 12, REDUCTIONS = 5 };

/* Where a step's data lies, and its length: one entry for each step in flight. */
struct nccl_fifo {
	int mode;				/* 1: at `offset` of the buffer, else at step modulo STEPS */
	int offset;
	ssize_t size;
	void *ptr;
};
_Static_assert(sizeof(struct nccl_fifo) == 24, "the fifo's slot");
_Static_assert(offsetof(struct nccl_fifo, size) == 8, "the fifo's size");

/* One direction of a connection. */
struct nccl_conn {
	char *bufs[PROTOCOLS];
	void *handles[PROTOCOLS];
	uint64_t *tail, *head;
	int flags, shared, step_size, pad;
	void **exchange;
	uint64_t *exchange_args;
	struct nccl_fifo *fifo;			/* NULL: the connection is not over a network */
	uint64_t step;
	uint64_t cleaned;
	uint64_t device_handle[4];
};
_Static_assert(sizeof(struct nccl_conn) == 152, "a connection");
_Static_assert(offsetof(struct nccl_conn, tail) == 48, "its tail");
_Static_assert(offsetof(struct nccl_conn, step_size) == 72, "its step's size");
_Static_assert(offsetof(struct nccl_conn, fifo) == 96, "its fifo");
_Static_assert(offsetof(struct nccl_conn, step) == 104, "its step");

struct nccl_peer {
	struct nccl_conn send[2], recv[2];	/* [1]: point to point */
};

struct nccl_channel {
	struct nccl_peer **peers;
	int prev, next;
	int *ranks;				/* the ring's ranks, from this one on */
	union {
		int index_before_2_29;
		int *index_of_rank;		/* 2.29 and later */
	};
	int index_since_2_29;
	char rest[328];				/* trees and the like */
};
_Static_assert(sizeof(struct nccl_channel) == 368, "a channel");
_Static_assert(offsetof(struct nccl_channel, index_before_2_29) == 24, "the ring's index");
_Static_assert(offsetof(struct nccl_channel, index_since_2_29) == 32, "the ring's index, 2.29");

struct nccl_device_comm {
	int rank, nranks, node, nnodes;
	int buf_sizes[PROTOCOLS];
	int p2p_chunk;
	int all_nvlink_or_cross_clique, all_nvlink_since_2_30;
	int *dense_ranks;
	volatile uint32_t *abort;
	struct nccl_channel *channels;
};
_Static_assert(offsetof(struct nccl_device_comm, p2p_chunk) == 28, "the chunk of point to point");
_Static_assert(offsetof(struct nccl_device_comm, abort) == 48, "the abort flag");
_Static_assert(offsetof(struct nccl_device_comm, channels) == 56, "the channels");

/* The arguments of a launch: this, then batches, then perhaps work. */
struct nccl_args {
	struct nccl_device_comm *comm;
	uint64_t channels;			/* one bit each; the n-th begins with batch n */
	uint8_t storage;			/* 0: work lies in the arguments, else in `work` */
	uint32_t work_mask;
	char *work;
};
_Static_assert(sizeof(struct nccl_args) == 32, "the arguments");
_Static_assert(offsetof(struct nccl_args, work_mask) == 20, "the mask");

enum { WORK_P2P = 0, WORK_COLL = 1 };

struct nccl_batch {
	uint32_t jump:14, extends:1, type:2, func:15;
	uint32_t base;
	uint64_t items;				/* one bit for each item */
};
_Static_assert(sizeof(struct nccl_batch) == 16, "a batch");

struct nccl_p2p {
	char *send, *recv;
	size_t send_bytes, recv_bytes;
	int send_rank, recv_rank;
	uint8_t channels, channel_base, send_channels, recv_channels;
	uint8_t send_chunk, recv_chunk;		/* sizes, as 8-bit floating-point numbers */
	uint8_t send_ll:1, recv_ll:1, send_reg:1, recv_reg:1, send_ipc:1, recv_ipc:1;
	uint8_t pad;
};
_Static_assert(sizeof(struct nccl_p2p) == 48, "an item of point to point");
_Static_assert(offsetof(struct nccl_p2p, send_chunk) == 44, "its chunk");

/* A collective's item: the offsets of its fields differ between releases. */
struct nccl_coll {
	uint32_t lo:8, hi:8, warps:8, arg_is_ptr:1, reg:1, net_reg:1;
	uint32_t root;
};
struct nccl_coll_bufs {
	char *recv, *send;
};
struct nccl_coll_parts {
	size_t lo, mid, hi;			/* elements of the first, a middle and the last channel */
	uint64_t lo_grains:21, mid_grains:21, hi_grains:21;	/* their chunks' sizes */
	uint64_t arg;
};
_Static_assert(sizeof(struct nccl_coll) == 8, "the head of a collective's item");
_Static_assert(sizeof(struct nccl_coll_parts) == 40, "the parts of a collective's item");

struct nccl_layout {
	size_t coll_size, coll_bufs, coll_parts;
	bool new_ring;				/* a channel has index_since_2_29 */
	bool mirrored_parts;			/* channel n carries part n, bits reversed */
	unsigned rows;				/* rows in the table of functions */
};

/* False: the layouts of this release are not known. */
bool layout_of(int version, struct nccl_layout *ret);

/* What a row of the table of functions does, in that layout. */
enum coll { SEND_RECV, ALL_GATHER, BROADCAST, ALL_GATHER_V, ALL_REDUCE, REDUCE, REDUCE_SCATTER };
struct nccl_func {
	enum coll coll;
	unsigned op, type;
	bool ring;
	unsigned proto;
};
struct nccl_func layout_func(const struct nccl_layout *l, unsigned row);

#endif
