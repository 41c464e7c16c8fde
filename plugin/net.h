/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * net.h - what the plugin does for NCCL, with the signatures of the newest ABI.
 *
 * abi.c translates every ABI version to these calls and knows nothing else.  net.c,
 * net_mem.c and net_data.c implement them over core/; net_result.c is the only place where an errno
 * becomes an ncclResult_t.
 *
 * Unless a comment says otherwise, a call never waits.  NCCL calls isend, irecv, test and iflush of
 * one comm from one thread at a time.  Another thread may register memory on other comms, or close
 * them, meanwhile.
 */
#ifndef BRAID_PLUGIN_NET_H
#define BRAID_PLUGIN_NET_H

#include <stddef.h>
#include <stdint.h>

#include "plugin/abi.h"

enum { BRAID_VDEVS_MAX = 8 };		/* members of a fused device, v12 */

struct braid_net_props {		/* every field of the newest ncclNetProperties */
	char *name;			/* valid until the process ends */
	char *pci_path;			/* NULL: not a PCI device */
	uint64_t guid;
	int ptr_support;		/* NCCL_PTR_* mask */
	int reg_is_global;
	int force_flush;
	int speed_mbps;
	int port;
	float latency_us;
	int max_comms;
	int max_recvs;
	int ndevs;
	int devs[BRAID_VDEVS_MAX];
	size_t max_p2p_bytes;
	size_t max_coll_bytes;
	int max_multi_request;
	int16_t rail;
	int16_t plane;
};

/*
 * Start a context.  traffic_class is -1 if NCCL gave none; prof may be NULL.  On failure *ctx is
 * NULL, and braid_net_finalize(NULL) is harmless.
 */
ncclResult_t braid_net_init(void **ctx, uint64_t comm_id, int traffic_class, ncclDebugLogger_t log,
			    ncclProfilerCallback_t prof);

/*
 * For ABIs without contexts (v5 to v10).  It never reports a failure, since NCCL 2.28 crashes then.
 * Instead the failure is logged, and braid_net_devices() returns 0 devices.
 */
void braid_net_init_shared(ncclDebugLogger_t log, ncclProfilerCallback_t prof);

ncclResult_t braid_net_finalize(void *ctx);
ncclResult_t braid_net_devices(int *ret_ndev);
ncclResult_t braid_net_props(int dev, struct braid_net_props *ret);

/* Makes one device of n others; its index goes to *ret_dev. */
ncclResult_t braid_net_fuse(int *ret_dev, int n, const int *devs);

/* ctx NULL: the shared context.  traffic_class -1: the context's. */
ncclResult_t braid_net_listen(void *ctx, int dev, void *handle, void **ret_listen);
ncclResult_t braid_net_connect(void *ctx, int dev, int traffic_class, void *handle,
			       void **ret_send);
ncclResult_t braid_net_accept(void *listen_comm, void **ret_recv);

ncclResult_t braid_net_reg(void *comm, void *data, size_t size, int type, void **ret_mr);
ncclResult_t braid_net_reg_dmabuf(void *comm, void *data, size_t size, int type, uint64_t offset,
				  int fd, void **ret_mr);
ncclResult_t braid_net_dereg(void *comm, void *mr);

/* *ret_req NULL with success: not now; NCCL calls again with the same arguments. */
ncclResult_t braid_net_isend(void *comm, void *data, size_t size, int tag, void *mr, void *phandle,
			     void **ret_req);
/* phandles may be NULL. */
ncclResult_t braid_net_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
			     void **phandles, void **ret_req);
/* *ret_req NULL with success: there is nothing to wait for. */
ncclResult_t braid_net_iflush(void *comm, int n, void **data, int *sizes, void **mrs,
			      void **ret_req);
/* sizes may be NULL; receives fill one entry per buffer.  Once *done is 1, `req` is invalid. */
ncclResult_t braid_net_test(void *req, int *done, int *sizes);

/* Each accepts NULL, and none waits for the peer. */
ncclResult_t braid_net_close_send(void *comm);
ncclResult_t braid_net_close_recv(void *comm);
ncclResult_t braid_net_close_listen(void *listen_comm);

#endif
