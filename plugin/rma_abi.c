/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rma_abi.c - every version of the RMA ABI that NCCL may ask for, as abi.c does for the net ABI.
 *
 * rma.h is written in the shape of the newest version.  The last screen has a row per version: a
 * new NCCL is a new row and the shims it needs.
 */
#include "plugin/abi_rma.h"

#include <string.h>

#include "plugin/net.h"
#include "plugin/rma.h"

/* -- devices ------------------------------------------------------------------------------- */

/* The net table says HOST; here NCCL looks for devices that a CPU drives for GPUs. */
static ncclResult_t props_v14(int dev, ncclNetProperties_v12_t *p)
{
	struct braid_net_props q;
	ncclResult_t res = braid_rma_props(dev, &q);

	if (res != ncclSuccess)
		return res;
	*p = (ncclNetProperties_v12_t){
		.name = q.name,
		.pciPath = q.pci_path,
		.guid = q.guid,
		.ptrSupport = q.ptr_support,
		.regIsGlobal = q.reg_is_global,
		.forceFlush = q.force_flush,
		.speed = q.speed_mbps,
		.port = q.port,
		.latency = q.latency_us,
		.maxComms = q.max_comms,
		.maxRecvs = q.max_recvs,
		.netDeviceType = NCCL_NET_DEVICE_GIN_PROXY,
		.vProps.ndevs = q.ndevs,
		.maxP2pBytes = q.max_p2p_bytes,
		.maxCollBytes = q.max_coll_bytes,
		.maxMultiRequestSize = q.max_multi_request,
		.railId = q.rail,
		.planeId = q.plane,
	};
	_Static_assert(sizeof(p->vProps.devs) == sizeof(q.devs), "room for as many members");
	memcpy(p->vProps.devs, q.devs, sizeof(q.devs));
	return ncclSuccess;
}

/* Lanes are in no order with each other, so a signal of one peer says nothing of another's puts. */
static ncclResult_t rma_props_v16(void *coll, ncclRmaProperties_v16_t *p)
{
	(void)coll;
	p->flushesAllPutsOnAnySignal = false;
	return ncclSuccess;
}

/* -- groups and contexts --------------------------------------------------------------------- */

static ncclResult_t connect_v14(void *ctx, void *handles[], int nranks, int rank,
				void *listen_comm, void **coll)
{
	(void)ctx;			/* NCCL gives that of the net plugin, perhaps not ours */
	return braid_rma_connect(handles, nranks, rank, listen_comm, coll);
}

static ncclResult_t context_v14(void *coll, ncclRmaConfig_v14_t *config, void **ctx)
{
	if (!config)
		return ncclInternalError;
	return braid_rma_context(coll, config->nContexts, config->trafficClass,
				 config->rankStride, ctx);
}

/* -- iput, iputSignal, iget: v14 | v15 + flags ------------------------------------------------ */

static ncclResult_t iput_v15(void *ctx, int context, uint64_t src_off, void *src, size_t size,
			     uint64_t dst_off, void *dst, uint32_t rank, uint32_t flags, void **req)
{
	struct braid_rma_put put = {
		.src_off = src_off,
		.src = src,
		.size = size,
		.dst_off = dst_off,
		.dst = dst,
		.rank = rank,
		.flags = flags,
	};

	return braid_rma_put(ctx, context, &put, req);
}

static ncclResult_t iput_v14(void *ctx, int context, uint64_t src_off, void *src, size_t size,
			     uint64_t dst_off, void *dst, uint32_t rank, void **req)
{
	return iput_v15(ctx, context, src_off, src, size, dst_off, dst, rank, 0, req);
}

static ncclResult_t signal_v15(void *ctx, int context, uint64_t src_off, void *src, size_t size,
			       uint64_t dst_off, void *dst, uint32_t rank, uint64_t signal_off,
			       void *signal, uint64_t value, uint32_t op, bool strong,
			       uint32_t flags, void **req)
{
	struct braid_rma_put put = {
		.src_off = src_off,
		.src = src,
		.size = size,
		.dst_off = dst_off,
		.dst = dst,
		.rank = rank,
		.has_signal = true,
		.strong = strong,
		.signal_off = signal_off,
		.signal = signal,
		.value = value,
		.op = op,
		.flags = flags,
	};

	return braid_rma_put(ctx, context, &put, req);
}

static ncclResult_t signal_v14(void *ctx, int context, uint64_t src_off, void *src, size_t size,
			       uint64_t dst_off, void *dst, uint32_t rank, uint64_t signal_off,
			       void *signal, uint64_t value, uint32_t op, bool strong, void **req)
{
	return signal_v15(ctx, context, src_off, src, size, dst_off, dst, rank, signal_off, signal,
			  value, op, strong, 0, req);
}

#define iget_v15 braid_rma_get

static ncclResult_t iget_v14(void *ctx, int context, uint64_t remote_off, void *remote,
			     size_t size, uint64_t local_off, void *local, uint32_t rank,
			     void **req)
{
	return iget_v15(ctx, context, remote_off, remote, size, local_off, local, rank, 0, req);
}

/* -- the tables -------------------------------------------------------------------------------- */

#define ABI(V, DATA, ...)							\
	extern const ncclRma_v##V##_t ncclRmaPlugin_v##V;			\
	__attribute__((visibility("default")))					\
	const ncclRma_v##V##_t ncclRmaPlugin_v##V = {				\
		.name = "Braid",						\
		.init = braid_rma_init,						\
		.devices = braid_rma_devices,					\
		.getProperties = props_v14,					\
		.listen = braid_rma_listen,					\
		.connect = connect_v14,						\
		.createContext = context_v14,					\
		.regMrSym = braid_rma_reg,					\
		.regMrSymDmaBuf = braid_rma_reg_dmabuf,				\
		.deregMrSym = braid_rma_dereg,					\
		.destroyContext = braid_rma_context_end,			\
		.closeColl = braid_rma_close_coll,				\
		.closeListen = braid_rma_close_listen,				\
		.iput = iput_##DATA,						\
		.iputSignal = signal_##DATA,					\
		.iget = iget_##DATA,						\
		.iflush = braid_rma_flush,					\
		.test = braid_rma_test,						\
		.rmaProgress = braid_rma_progress,				\
		.queryLastError = braid_rma_last_error,				\
		.finalize = braid_rma_finalize,					\
		__VA_ARGS__							\
	}

/* clang-format off */
/*  abi  data  and                                since */
ABI(16,  v15,  .getRmaProperties = rma_props_v16); /* 2.32 */
ABI(15,  v15);                                     /* 2.31 */
ABI(14,  v14);                                     /* 2.30.7 */
/* clang-format on */
