/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.c - one-sided puts and gets: not there yet.  init fails and there are no devices, so NCCL
 * takes another RMA plugin.
 */
#include "plugin/rma.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

ncclResult_t braid_rma_init(void **ret_ctx, uint64_t comm_id, ncclDebugLogger_t log)
{
	*ret_ctx = NULL;
	return ncclInternalError;
}

ncclResult_t braid_rma_finalize(void *ctx)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_devices(int *ret_ndev)
{
	*ret_ndev = 0;
	return ncclSuccess;
}

ncclResult_t braid_rma_props(int dev, struct braid_net_props *ret)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_listen(void *ctx, int dev, void *handle, void **ret_listen)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_connect(void *const *handles, int nranks, int rank, void *listen,
			       void **ret_coll)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_context(void *coll, int n, int traffic_class, int rank_stride,
			       void **ret_ctx)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_reg(void *coll, void *data, size_t size, int type, uint64_t flags,
			   void **ret_mh)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_reg_dmabuf(void *coll, void *data, size_t size, int type, uint64_t offset,
				  int fd, uint64_t flags, void **ret_mh)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_dereg(void *coll, void *mh)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_context_end(void *ctx)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_close_coll(void *coll)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_close_listen(void *listen)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_put(void *ctx, int context, const struct braid_rma_put *put, void **ret_req)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_get(void *ctx, int context, uint64_t remote_off, void *remote, size_t size,
			   uint64_t local_off, void *local, uint32_t rank, uint32_t flags,
			   void **ret_req)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_flush(void *ctx, int context, void *mh, uint32_t rank, void **ret_req)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_test(void *coll, void *req, int *done)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_progress(void *ctx)
{
	return ncclInternalError;
}

ncclResult_t braid_rma_last_error(void *ctx, bool *ret_failed)
{
	return ncclInternalError;
}
