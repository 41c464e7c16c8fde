/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * abi.c - every version of the net ABI that NCCL may ask for; no other file of the plugin knows
 * that more than one exists.  rma_abi.c does the same for RMA.
 *
 * net.h is written in the shape of the newest version.  Where a signature once differed there is
 * a shim of a few lines, named after the first version that had it and written in terms of the
 * next newer one.  Properties are cumulative, as the ABI grew.  The last screen is a matrix: a
 * row per version, a column per member that ever changed.  A new NCCL is a new row and the two or
 * three shims it needs; to drop a version delete its row.
 *
 * The tables are const: which transport serves is decided per device, never by rewriting them.
 */
#include "plugin/abi.h"

#include <string.h>

#include "plugin/net.h"

/* -- init: v5 the logger | v10 + profiler | v11 a context per communicator ---------------- */

static ncclResult_t init_v11(void **ctx, uint64_t comm_id, ncclNetCommConfig_v10_t *config,
			     ncclDebugLogger_t log, ncclProfilerCallback_t prof)
{
	int traffic_class = config ? config->trafficClass : NCCL_NET_TRAFFIC_CLASS_UNDEF;

	return braid_net_init(ctx, comm_id, traffic_class, log, prof);
}

static ncclResult_t init_v10(ncclDebugLogger_t log, ncclProfilerCallback_t prof)
{
	braid_net_init_shared(log, prof);
	return ncclSuccess;
}

static ncclResult_t init_v5(ncclDebugLogger_t log)
{
	return init_v10(log, NULL);
}

/* -- listen: v5 a device | v11 + context -------------------------------------------------- */

#define listen_v11 braid_net_listen

static ncclResult_t listen_v5(int dev, void *handle, void **listen_comm)
{
	return listen_v11(NULL, dev, handle, listen_comm);
}

/* -- connect: v5 | v7 + offload handle | v10 + config | v11 + context, - config ------------ */

/* We offload nothing to the GPU. */
static void no_offload(ncclNetDeviceHandle_v7_t **offload)
{
	if (offload)
		*offload = NULL;
}

static ncclResult_t connect_v11(void *ctx, int dev, void *handle, void **send_comm,
				ncclNetDeviceHandle_v7_t **offload)
{
	no_offload(offload);
	return braid_net_connect(ctx, dev, NCCL_NET_TRAFFIC_CLASS_UNDEF, handle, send_comm);
}

static ncclResult_t connect_v10(int dev, ncclNetCommConfig_v10_t *config, void *handle,
				void **send_comm, ncclNetDeviceHandle_v7_t **offload)
{
	int traffic_class = config ? config->trafficClass : NCCL_NET_TRAFFIC_CLASS_UNDEF;

	no_offload(offload);
	return braid_net_connect(NULL, dev, traffic_class, handle, send_comm);
}

static ncclResult_t connect_v7(int dev, void *handle, void **send_comm,
			       ncclNetDeviceHandle_v7_t **offload)
{
	return connect_v10(dev, NULL, handle, send_comm, offload);
}

static ncclResult_t connect_v5(int dev, void *handle, void **send_comm)
{
	return connect_v7(dev, handle, send_comm, NULL);
}

/* -- accept: v5 | v7 + offload handle ------------------------------------------------------ */

static ncclResult_t accept_v7(void *listen_comm, void **recv_comm,
			      ncclNetDeviceHandle_v7_t **offload)
{
	no_offload(offload);
	return braid_net_accept(listen_comm, recv_comm);
}

static ncclResult_t accept_v5(void *listen_comm, void **recv_comm)
{
	return accept_v7(listen_comm, recv_comm, NULL);
}

/* -- regMr: v5 int size | v8 wide ----------------------------------------------------------- */

#define reg_v8 braid_net_reg

static ncclResult_t reg_v5(void *comm, void *data, int size, int type, void **mr)
{
	return size < 0 ? ncclInternalError : reg_v8(comm, data, (size_t)size, type, mr);
}

/* -- isend: v5 int size | v9 wide | v10 + profiler handle ----------------------------------- */

#define isend_v10 braid_net_isend

static ncclResult_t isend_v9(void *comm, void *data, size_t size, int tag, void *mr, void **req)
{
	return isend_v10(comm, data, size, tag, mr, NULL, req);
}

static ncclResult_t isend_v5(void *comm, void *data, int size, int tag, void *mr, void **req)
{
	return isend_v9(comm, data, (size_t)size, tag, mr, req);	/* net_data.c refuses < 0 */
}

/* -- irecv: changed whenever isend did: one column of the matrix, `data`, is for both ---------- */

#define irecv_v10 braid_net_irecv

static ncclResult_t irecv_v9(void *comm, int n, void **data, size_t *sizes, int *tags, void **mrs,
			     void **req)
{
	return irecv_v10(comm, n, data, sizes, tags, mrs, NULL, req);
}

static ncclResult_t irecv_v5(void *comm, int n, void **data, int *sizes, int *tags, void **mrs,
			     void **req)
{
	size_t wide[64];		/* as many as NCCL has sizes for; net_data.c allows fewer */

	if (n < 0 || n > 64)
		return ncclInternalError;
	for (int i = 0; i < n; i++)
		wide[i] = (size_t)sizes[i];
	return irecv_v9(comm, n, data, wide, tags, mrs, req);
}

/* -- setNetAttr: hints, none of which we need ------------------------------------------------- */

static ncclResult_t attr_v11(void *ctx, ncclNetAttr_v11_t *attr)
{
	(void)ctx;
	(void)attr;
	return ncclSuccess;
}

/* -- makeVDevice ------------------------------------------------------------------------------ */

static ncclResult_t vdevice_v9(int *dev, ncclNetVDeviceProps_v9_t *p)
{
	return braid_net_fuse(dev, p ? p->ndevs : 0, p ? p->devs : NULL);
}

static ncclResult_t vdevice_v12(int *dev, ncclNetVDeviceProps_v12_t *p)
{
	return braid_net_fuse(dev, p ? p->ndevs : 0, p ? p->devs : NULL);
}

/* -- getProperties: every version adds fields to the one before -------------------------------- */

#define FIELDS_V5								\
	p->name = q.name;							\
	p->pciPath = q.pci_path;						\
	p->guid = q.guid;							\
	p->ptrSupport = q.ptr_support & ~NCCL_PTR_DMABUF;			\
	p->speed = q.speed_mbps;						\
	p->port = q.port;							\
	p->latency = q.latency_us;						\
	p->maxComms = q.max_comms;						\
	p->maxRecvs = q.max_recvs;
#define FIELDS_V6 FIELDS_V5 p->ptrSupport = q.ptr_support;
#define FIELDS_V7 FIELDS_V6							\
	p->netDeviceType = NCCL_NET_DEVICE_HOST;				\
	p->netDeviceVersion = 0;
#define FIELDS_V8 FIELDS_V7 p->regIsGlobal = q.reg_is_global;
#define FIELDS_V9 FIELDS_V8							\
	p->forceFlush = q.force_flush;						\
	p->vProps.ndevs = members(q.devs, q.ndevs, p->vProps.devs,		\
				  (int)(sizeof(p->vProps.devs) / sizeof(int)));	\
	p->maxP2pBytes = q.max_p2p_bytes;					\
	p->maxCollBytes = q.max_coll_bytes;
#define FIELDS_V11 FIELDS_V9 p->maxMultiRequestSize = q.max_multi_request;
#define FIELDS_V12 FIELDS_V11							\
	p->railId = q.rail;							\
	p->planeId = q.plane;

/* A fused device may have more members than an older version has room for. */
static int members(const int *from, int n, int *to, int max)
{
	n = n < max ? n : max;
	for (int i = 0; i < n; i++)
		to[i] = from[i];
	return n;
}

#define PROPS(V, FIELDS)							\
	static ncclResult_t props_v##V(int dev, ncclNetProperties_v##V##_t *p)	\
	{									\
		struct braid_net_props q;					\
		ncclResult_t res = braid_net_props(dev, &q);			\
										\
		if (res == ncclSuccess) {					\
			memset(p, 0, sizeof(*p));				\
			FIELDS							\
		}								\
		return res;							\
	}

PROPS(5, FIELDS_V5)
PROPS(6, FIELDS_V6)
PROPS(7, FIELDS_V7)
PROPS(8, FIELDS_V8)
PROPS(9, FIELDS_V9)
PROPS(11, FIELDS_V11)
PROPS(12, FIELDS_V12)

/* -- the tables -------------------------------------------------------------------------------- */

#define ABI(V, INIT, PROP, LISTEN, CONNECT, ACCEPT, REG, DATA, ...)		\
	extern const ncclNet_v##V##_t ncclNetPlugin_v##V;			\
	__attribute__((visibility("default")))					\
	const ncclNet_v##V##_t ncclNetPlugin_v##V = {				\
		.name = "Braid",						\
		.init = init_##INIT,						\
		.devices = braid_net_devices,					\
		.getProperties = props_##PROP,					\
		.listen = listen_##LISTEN,					\
		.connect = connect_##CONNECT,					\
		.accept = accept_##ACCEPT,					\
		.regMr = reg_##REG,						\
		.deregMr = braid_net_dereg,					\
		.isend = isend_##DATA,						\
		.irecv = irecv_##DATA,						\
		.iflush = braid_net_iflush,					\
		.test = braid_net_test,						\
		.closeSend = braid_net_close_send,				\
		.closeRecv = braid_net_close_recv,				\
		.closeListen = braid_net_close_listen,				\
		__VA_ARGS__							\
	}

#define DMABUF		.regMrDmaBuf = braid_net_reg_dmabuf
#define OFFLOAD		.getDeviceMr = NULL, .irecvConsumed = NULL	/* we never offload */
#define VDEV(V)		.makeVDevice = vdevice_v##V
#define FINALIZE	.finalize = braid_net_finalize, .setNetAttr = attr_v11

/* clang-format off */
/*  abi  init props listen connect accept reg data  and                                  since */
ABI(12,  v11, v12,  v11,   v11,    v7,    v8, v10,  DMABUF, OFFLOAD, VDEV(12), FINALIZE); /* 2.30 */
ABI(11,  v11, v11,  v11,   v11,    v7,    v8, v10,  DMABUF, OFFLOAD, VDEV(9), FINALIZE);  /* 2.28 */
ABI(10,  v10, v9,   v5,    v10,    v7,    v8, v10,  DMABUF, OFFLOAD, VDEV(9));            /* 2.26 */
ABI(9,   v5,  v9,   v5,    v7,     v7,    v8, v9,   DMABUF, OFFLOAD, VDEV(9));            /* 2.24 */
ABI(8,   v5,  v8,   v5,    v7,     v7,    v8, v5,   DMABUF, OFFLOAD);                     /* 2.20 */
ABI(7,   v5,  v7,   v5,    v7,     v7,    v5, v5,   DMABUF, OFFLOAD);                     /* 2.19 */
ABI(6,   v5,  v6,   v5,    v5,     v5,    v5, v5,   DMABUF);                              /* 2.13 */
ABI(5,   v5,  v5,   v5,    v5,     v5,    v5, v5);                                        /* 2.12 */
/* clang-format on */
