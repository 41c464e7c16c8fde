/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.h - one-sided puts and gets for NCCL, with the signatures of the newest RMA ABI.
 *
 * rma_abi.c translates every version of the RMA ABI to these calls and knows nothing else.
 *
 * Unless a comment says otherwise, a call never waits.  Three kinds of threads of NCCL may use one
 * group at the same time: the application's, which registers memory and makes and ends contexts;
 * the RMA thread; and the GIN threads.  Calls on one context come from one thread at a time, and a
 * request is tested by the thread that made it.
 */
#ifndef BRAID_PLUGIN_RMA_H
#define BRAID_PLUGIN_RMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin/abi_rma.h"
#include "plugin/net.h"

/*
 * Start a context.  NCCL calls this twice for a communicator, with the same comm_id, and ends each
 * by itself.  On failure *ret_ctx is NULL; NCCL then uses another RMA plugin in this process.
 */
ncclResult_t braid_rma_init(void **ret_ctx, uint64_t comm_id, ncclDebugLogger_t log);
ncclResult_t braid_rma_finalize(void *ctx);

/* Physical devices only; 0 where BRAID_RMA says that NCCL is not to use Braid for RMA. */
ncclResult_t braid_rma_devices(int *ret_ndev);
ncclResult_t braid_rma_props(int dev, struct braid_net_props *ret);

/* `handle` gets up to NCCL_NET_HANDLE_MAXSIZE bytes for the other ranks. */
ncclResult_t braid_rma_listen(void *ctx, int dev, void *handle, void **ret_listen);

/*
 * Make a group of the ranks whose handles these are.  All ranks call it; it may wait for them.  The
 * context NCCL gives here may be another plugin's, so all is taken from `listen`, which stays the
 * caller's.
 */
ncclResult_t braid_rma_connect(void *const *handles, int nranks, int rank, void *listen,
			       void **ret_coll);

/*
 * Make `n` contexts, which later calls name by index.  All ranks call it; it may wait for them.
 * traffic_class is -1 if NCCL gave none.  Peers are the ranks a multiple of rank_stride away.
 */
ncclResult_t braid_rma_context(void *coll, int n, int traffic_class, int rank_stride,
			       void **ret_ctx);

/*
 * Register memory of this rank.  All ranks register in the same order, so that one rank's *ret_mh
 * stands for its peers' memory, too; sizes may differ.  `flags`: NCCL_RMA_FORCE_SO, _NEVER_RESET.
 * The file descriptor of a DMA-BUF stays NCCL's, which closes it after the call.
 */
ncclResult_t braid_rma_reg(void *coll, void *data, size_t size, int type, uint64_t flags,
			   void **ret_mh);
ncclResult_t braid_rma_reg_dmabuf(void *coll, void *data, size_t size, int type, uint64_t offset,
				  int fd, uint64_t flags, void **ret_mh);
/* May come after the contexts have ended. */
ncclResult_t braid_rma_dereg(void *coll, void *mh);

/* Each accepts NULL.  A group is closed with the contexts that NCCL has not ended. */
ncclResult_t braid_rma_context_end(void *ctx);
ncclResult_t braid_rma_close_coll(void *coll);
ncclResult_t braid_rma_close_listen(void *listen);

struct braid_rma_put {			/* a put, a signal, or both */
	uint64_t src_off, dst_off;
	void *src, *dst;		/* registrations; both NULL if size is 0 */
	size_t size;
	uint32_t rank;
	bool has_signal, strong;
	uint64_t signal_off, value;
	void *signal;			/* registration */
	uint32_t op;			/* NCCL_RMA_SIGNAL_INC, _ADD */
	uint32_t flags;			/* NCCL_RMA_AGGREGATE */
};

/*
 * A put's request is done when its source may be used again.  From one context to one peer a strong
 * signal is seen after all earlier puts and signals, a weak one after its own put.  NCCL has no way
 * to try again later: *ret_req is never NULL with success.
 */
ncclResult_t braid_rma_put(void *ctx, int context, const struct braid_rma_put *put,
			   void **ret_req);
/* In no order with anything; the data may be used once its request and then a flush are done. */
ncclResult_t braid_rma_get(void *ctx, int context, uint64_t remote_off, void *remote, size_t size,
			   uint64_t local_off, void *local, uint32_t rank, uint32_t flags,
			   void **ret_req);
/* *ret_req NULL with success: there is nothing to wait for. */
ncclResult_t braid_rma_flush(void *ctx, int context, void *mh, uint32_t rank, void **ret_req);
/* Once *done is 1, `req` is invalid. */
ncclResult_t braid_rma_test(void *coll, void *req, int *done);

/* NCCL's threads call these two again and again. */
ncclResult_t braid_rma_progress(void *ctx);
ncclResult_t braid_rma_last_error(void *ctx, bool *ret_failed);

#endif
