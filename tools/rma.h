/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.h - one-sided puts and gets through any NCCL RMA plugin: loads its .so by path, takes one
 * version of the RMA ABI and calls it as NCCL's threads would.
 *
 * braid perf, braid validate, braid info and tests/abi use it.  The calls have the arguments of the
 * newest version.  Those that a version lacks are dropped, as NCCL's wrappers do.  A call that the
 * plugin does not have is ncclInvalidUsage, unless its comment says otherwise.
 */
#ifndef BRAID_TOOLS_RMA_H
#define BRAID_TOOLS_RMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plugin/abi_rma.h"

enum { RMA_ABI_OLDEST = 14, RMA_ABI_NEWEST = 16 };

struct rma {				/* a loaded plugin at one version of the RMA ABI */
	void *dl;
	int abi;
	const void *table;		/* the exported ncclRmaPlugin_vN */
	const char *name;
	bool has_dmabuf, has_get, has_flush, has_progress, has_last_error;
};

/*
 * Load `path` and take RMA ABI version `abi` (0: the newest it has).  NULL on failure with a
 * sentence in err, which also names a member that NCCL calls and the table lacks.  Does not call
 * init.
 */
struct rma *rma_load(const char *path, int abi, char *err, size_t err_len);
void rma_unload(struct rma *rma);	/* dlclose; end the contexts of rma_init first */

/* Each call makes a context; NCCL makes two for a communicator. */
ncclResult_t rma_init(struct rma *rma, void **ctx, uint64_t comm_id, ncclDebugLogger_t log);
ncclResult_t rma_finalize(struct rma *rma, void *ctx);

ncclResult_t rma_devices(struct rma *rma, int *ndev);
ncclResult_t rma_props(struct rma *rma, int dev, ncclNetProperties_v12_t *ret);
ncclResult_t rma_listen(struct rma *rma, void *ctx, int dev, void *handle, void **listen_comm);
ncclResult_t rma_connect(struct rma *rma, void *ctx, void *handles[], int nranks, int rank,
			 void *listen_comm, void **coll);
/* getRmaProperties: flushesAllPutsOnAnySignal; false if the ABI has no such call. */
ncclResult_t rma_flushes_all(struct rma *rma, void *coll, bool *ret);
ncclResult_t rma_context(struct rma *rma, void *coll, int n, int traffic_class, int rank_stride,
			 void **rma_ctx);

ncclResult_t rma_reg(struct rma *rma, void *coll, void *data, size_t size, int type,
		     uint64_t flags, void **mh);
ncclResult_t rma_reg_dmabuf(struct rma *rma, void *coll, void *data, size_t size, int type,
			    uint64_t offset, int fd, uint64_t flags, void **mh);
ncclResult_t rma_dereg(struct rma *rma, void *coll, void *mh);

ncclResult_t rma_context_end(struct rma *rma, void *rma_ctx);
ncclResult_t rma_close_coll(struct rma *rma, void *coll);
ncclResult_t rma_close_listen(struct rma *rma, void *listen_comm);

ncclResult_t rma_iput(struct rma *rma, void *rma_ctx, int context, uint64_t src_off, void *src,
		      size_t size, uint64_t dst_off, void *dst, uint32_t rank, uint32_t flags,
		      void **req);
/* size 0, with src and dst NULL: the signal alone. */
ncclResult_t rma_iput_signal(struct rma *rma, void *rma_ctx, int context, uint64_t src_off,
			     void *src, size_t size, uint64_t dst_off, void *dst, uint32_t rank,
			     uint64_t signal_off, void *signal, uint64_t value, uint32_t op,
			     bool strong, uint32_t flags, void **req);
ncclResult_t rma_iget(struct rma *rma, void *rma_ctx, int context, uint64_t remote_off,
		      void *remote, size_t size, uint64_t local_off, void *local, uint32_t rank,
		      uint32_t flags, void **req);
/* *req NULL with success: there is nothing to wait for. */
ncclResult_t rma_iflush(struct rma *rma, void *rma_ctx, int context, void *mh, uint32_t rank,
			void **req);
ncclResult_t rma_test(struct rma *rma, void *coll, void *req, int *done);
ncclResult_t rma_progress(struct rma *rma, void *rma_ctx);	/* success if there is none */
/* *failed false if there is none. */
ncclResult_t rma_last_error(struct rma *rma, void *rma_ctx, bool *failed);

#endif
