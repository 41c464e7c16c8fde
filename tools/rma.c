/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma.c - calls an RMA plugin as NCCL's threads would, at one version of the RMA ABI.
 *
 * v14 and v15 have the same slots; in v16 those from getProperties on are one further down
 * (abi_rma.h asserts it).
 */
#include "tools/rma.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* The table seen as version V's. */
#define TABLE(V) ((const ncclRma_v##V##_t *)rma->table)
/* A member whose prototype never changed. */
#define MEMBER(m) (rma->abi >= 16 ? TABLE(16)->m : TABLE(14)->m)
#define HAS(m) (rma->abi >= 16 ? TABLE(16)->m != NULL : TABLE(14)->m != NULL)

/* -- loading ------------------------------------------------------------------------------ */

static const void *table_find(void *dl, int abi, int *ret_abi)
{
	int oldest = abi ? abi : RMA_ABI_OLDEST;
	int newest = abi ? abi : RMA_ABI_NEWEST;

	for (int v = newest; v >= oldest; v--) {
		char symbol[32];
		const void *table;

		snprintf(symbol, sizeof(symbol), "ncclRmaPlugin_v%d", v);
		table = dlsym(dl, symbol);
		if (table) {
			*ret_abi = v;
			return table;
		}
	}
	return NULL;
}

/* A member that NCCL calls without looking whether it is there, and that is not; or NULL. */
static const char *table_lacks(const struct rma *rma)
{
#define LACKS(m)								\
	do {									\
		if (!HAS(m))							\
			return #m;						\
	} while (0)
	LACKS(name);
	LACKS(init);
	LACKS(devices);
	LACKS(getProperties);
	LACKS(listen);
	LACKS(connect);
	LACKS(createContext);
	LACKS(regMrSym);
	LACKS(deregMrSym);
	LACKS(destroyContext);
	LACKS(closeColl);
	LACKS(closeListen);
	LACKS(iput);
	LACKS(iputSignal);
	LACKS(test);
	LACKS(finalize);
#undef LACKS
	return rma->abi >= 16 && !TABLE(16)->getRmaProperties ? "getRmaProperties" : NULL;
}

struct rma *rma_load(const char *path, int abi, char *err, size_t err_len)
{
	const char *lacks;
	struct rma *rma;
	void *dl;

	if (abi && (abi < RMA_ABI_OLDEST || abi > RMA_ABI_NEWEST)) {
		snprintf(err, err_len, "no RMA ABI version %d: %d to %d are known", abi,
			 RMA_ABI_OLDEST, RMA_ABI_NEWEST);
		return NULL;
	}
	dl = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!dl) {
		snprintf(err, err_len, "%s", dlerror());
		return NULL;
	}
	rma = calloc(1, sizeof(*rma));
	if (!rma) {
		snprintf(err, err_len, "out of memory");
		goto close_dl;
	}
	rma->dl = dl;
	rma->table = table_find(dl, abi, &rma->abi);
	if (!rma->table) {
		if (abi)
			snprintf(err, err_len, "%s has no ncclRmaPlugin_v%d", path, abi);
		else
			snprintf(err, err_len, "%s has no ncclRmaPlugin_v%d to v%d", path,
				 RMA_ABI_OLDEST, RMA_ABI_NEWEST);
		goto free_rma;
	}
	lacks = table_lacks(rma);
	if (lacks) {
		snprintf(err, err_len, "%s: ncclRmaPlugin_v%d has no %s", path, rma->abi, lacks);
		goto free_rma;
	}
	rma->name = MEMBER(name);
	rma->has_dmabuf = HAS(regMrSymDmaBuf);
	rma->has_get = HAS(iget);
	rma->has_flush = HAS(iflush);
	rma->has_progress = HAS(rmaProgress);
	rma->has_last_error = HAS(queryLastError);
	return rma;

free_rma:
	free(rma);
close_dl:
	dlclose(dl);
	return NULL;
}

void rma_unload(struct rma *rma)
{
	if (!rma)
		return;
	dlclose(rma->dl);
	free(rma);
}

/* -- life --------------------------------------------------------------------------------- */

ncclResult_t rma_init(struct rma *rma, void **ctx, uint64_t comm_id, ncclDebugLogger_t log)
{
	*ctx = NULL;
	return MEMBER(init)(ctx, comm_id, log);
}

ncclResult_t rma_finalize(struct rma *rma, void *ctx)
{
	return MEMBER(finalize)(ctx);
}

ncclResult_t rma_devices(struct rma *rma, int *ndev)
{
	return MEMBER(devices)(ndev);
}

ncclResult_t rma_props(struct rma *rma, int dev, ncclNetProperties_v12_t *ret)
{
	*ret = (ncclNetProperties_v12_t){ .railId = NCCL_NET_ID_UNDEF,
					  .planeId = NCCL_NET_ID_UNDEF };
	return MEMBER(getProperties)(dev, ret);
}

/* -- groups and contexts ------------------------------------------------------------------ */

ncclResult_t rma_listen(struct rma *rma, void *ctx, int dev, void *handle, void **listen_comm)
{
	return MEMBER(listen)(ctx, dev, handle, listen_comm);
}

ncclResult_t rma_connect(struct rma *rma, void *ctx, void *handles[], int nranks, int rank,
			 void *listen_comm, void **coll)
{
	return MEMBER(connect)(ctx, handles, nranks, rank, listen_comm, coll);
}

ncclResult_t rma_flushes_all(struct rma *rma, void *coll, bool *ret)
{
	ncclRmaProperties_v16_t p = { .flushesAllPutsOnAnySignal = false };
	ncclResult_t res = ncclSuccess;

	if (rma->abi >= 16)
		res = TABLE(16)->getRmaProperties(coll, &p);
	*ret = p.flushesAllPutsOnAnySignal;
	return res;
}

ncclResult_t rma_context(struct rma *rma, void *coll, int n, int traffic_class, int rank_stride,
			 void **rma_ctx)
{
	ncclRmaConfig_v14_t config = {
		.nContexts = n,
		.trafficClass = traffic_class,
		.rankStride = rank_stride,
	};

	return MEMBER(createContext)(coll, &config, rma_ctx);
}

ncclResult_t rma_context_end(struct rma *rma, void *rma_ctx)
{
	return MEMBER(destroyContext)(rma_ctx);
}

ncclResult_t rma_close_coll(struct rma *rma, void *coll)
{
	return MEMBER(closeColl)(coll);
}

ncclResult_t rma_close_listen(struct rma *rma, void *listen_comm)
{
	return MEMBER(closeListen)(listen_comm);
}

/* -- memory ------------------------------------------------------------------------------- */

ncclResult_t rma_reg(struct rma *rma, void *coll, void *data, size_t size, int type,
		     uint64_t flags, void **mh)
{
	return MEMBER(regMrSym)(coll, data, size, type, flags, mh);
}

ncclResult_t rma_reg_dmabuf(struct rma *rma, void *coll, void *data, size_t size, int type,
			    uint64_t offset, int fd, uint64_t flags, void **mh)
{
	if (!rma->has_dmabuf)
		return ncclInvalidUsage;
	return MEMBER(regMrSymDmaBuf)(coll, data, size, type, offset, fd, flags, mh);
}

ncclResult_t rma_dereg(struct rma *rma, void *coll, void *mh)
{
	return MEMBER(deregMrSym)(coll, mh);
}

/* -- data --------------------------------------------------------------------------------- */

/* Call member `m`, whose flags came with v15: they stand before the request. */
#define CALL_WITH_FLAGS(m, ...)							\
	(rma->abi >= 16 ? TABLE(16)->m(__VA_ARGS__, flags, req) :		\
	 rma->abi == 15 ? TABLE(15)->m(__VA_ARGS__, flags, req) :		\
			  TABLE(14)->m(__VA_ARGS__, req))

ncclResult_t rma_iput(struct rma *rma, void *rma_ctx, int context, uint64_t src_off, void *src,
		      size_t size, uint64_t dst_off, void *dst, uint32_t rank, uint32_t flags,
		      void **req)
{
	return CALL_WITH_FLAGS(iput, rma_ctx, context, src_off, src, size, dst_off, dst, rank);
}

ncclResult_t rma_iput_signal(struct rma *rma, void *rma_ctx, int context, uint64_t src_off,
			     void *src, size_t size, uint64_t dst_off, void *dst, uint32_t rank,
			     uint64_t signal_off, void *signal, uint64_t value, uint32_t op,
			     bool strong, uint32_t flags, void **req)
{
	return CALL_WITH_FLAGS(iputSignal, rma_ctx, context, src_off, src, size, dst_off, dst,
			       rank, signal_off, signal, value, op, strong);
}

ncclResult_t rma_iget(struct rma *rma, void *rma_ctx, int context, uint64_t remote_off,
		      void *remote, size_t size, uint64_t local_off, void *local, uint32_t rank,
		      uint32_t flags, void **req)
{
	if (!rma->has_get)
		return ncclInvalidUsage;
	return CALL_WITH_FLAGS(iget, rma_ctx, context, remote_off, remote, size, local_off, local,
			       rank);
}

ncclResult_t rma_iflush(struct rma *rma, void *rma_ctx, int context, void *mh, uint32_t rank,
			void **req)
{
	if (!rma->has_flush)
		return ncclInvalidUsage;
	return MEMBER(iflush)(rma_ctx, context, mh, rank, req);
}

ncclResult_t rma_test(struct rma *rma, void *coll, void *req, int *done)
{
	return MEMBER(test)(coll, req, done);
}

ncclResult_t rma_progress(struct rma *rma, void *rma_ctx)
{
	return rma->has_progress ? MEMBER(rmaProgress)(rma_ctx) : ncclSuccess;
}

ncclResult_t rma_last_error(struct rma *rma, void *rma_ctx, bool *failed)
{
	*failed = false;
	return rma->has_last_error ? MEMBER(queryLastError)(rma_ctx, failed) : ncclSuccess;
}
