/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fabric.h - what carries a benchmark's messages: a net plugin's .so, or raw TCP beside it.
 *
 * The shape is that of NCCL's net ABI, so the benchmark's loops are NCCL's over any fabric, and
 * both sides of a comparison run the same code above this interface.
 *
 * Calls return 0 or a negative errno, with a sentence in fabric.err; none waits.  "Not now" is
 * success with *ret NULL, as in the ABI.
 */
#ifndef BRAID_TOOLS_FABRIC_H
#define BRAID_TOOLS_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FABRIC_HANDLE = 128, FABRIC_ERR = 940, FABRIC_NAME = 64 };

enum fabric_kind {
	FABRIC_PLUGIN, FABRIC_RAW,
	FABRIC_PUT, FABRIC_PUT_SIGNAL, FABRIC_GET,	/* of an RMA plugin: onesided.c */
	FABRIC_KINDS,
};

struct perf_key;

struct fabric_ops;

struct fabric_env {			/* settings of one process; never taken from the network */
	const struct fabric_ops *const *fabrics;	/* by enum fabric_kind; NULL: not here */
	const char *plugin;		/* path of the .so */
	int abi;			/* 0: the newest it has */
	const char *dev;		/* device, by number or name; NULL: the first */
	const char *addr;		/* raw TCP: its address where dev names no interface */
	const struct perf_key *key;	/* proved to peers on other hosts; NULL: no such peers */
	int cpu;			/* run there; -1: anywhere */
	bool verbose, spin;		/* spin: never give up the CPU while nothing moves */
	bool asks;			/* raw TCP: a header, and an answer, before each message */
};

struct fabric_about {
	char name[FABRIC_NAME];		/* the plugin's own, or "raw TCP" */
	char dev[FABRIC_NAME];
	int32_t abi;			/* 0: not a plugin */
	int32_t speed_mbps;		/* 0: not known */
};

struct fabric;

struct fabric_ops {
	const char *name;

	/* On failure *ret_fab is untouched and err holds a sentence. */
	int (*open)(const struct fabric_env *env, struct fabric **ret_fab, char *err);
	void (*close)(struct fabric *fab);

	int (*listen)(struct fabric *fab, void *handle, void **ret_listen);
	/* `peer` and `idx` name the comm: number idx between this process and that rank. */
	int (*connect)(struct fabric *fab, int peer, int idx, void *handle, void **ret_comm);
	int (*accept)(struct fabric *fab, int peer, int idx, void *listen, void **ret_comm);
	int (*reg)(struct fabric *fab, void *comm, void *data, size_t size, void **ret_mr);
	void (*dereg)(struct fabric *fab, void *comm, void *mr);

	int (*isend)(struct fabric *fab, void *comm, void *data, size_t size, int tag, void *mr,
		     void **ret_req);
	int (*irecv)(struct fabric *fab, void *comm, void *data, size_t size, int tag, void *mr,
		     void **ret_req);
	/* *ret_size is the bytes received; it is written for receives only. */
	int (*test)(struct fabric *fab, void *req, bool *ret_done, size_t *ret_size);

	void (*close_send)(struct fabric *fab, void *comm);
	void (*close_recv)(struct fabric *fab, void *comm);
	void (*close_listen)(struct fabric *fab, void *listen);
};

struct fabric {				/* the first member of each fabric's own struct */
	const struct fabric_ops *ops;
	struct fabric_about about;
	unsigned batch;			/* sends that its caller posts before it waits */
	char err[FABRIC_ERR];
};

extern const struct fabric_ops fabric_plugin;	/* net.c */
extern const struct fabric_ops fabric_raw;	/* raw.c */
extern const struct fabric_ops fabric_put, fabric_put_signal, fabric_get;	/* onesided.c */

/* All of them, by enum fabric_kind (fabrics.c). */
extern const struct fabric_ops *const fabric_table[FABRIC_KINDS];

#endif
