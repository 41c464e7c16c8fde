/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * abi.h - NCCL's net-plugin interface, versions 5 to 12, in our own words.
 *
 * NCCL opens the plugin, asks for the object ncclNetPlugin_vN of the newest N it knows, and calls
 * through it.  What binds us is the layout: the order of members, their types and the values of
 * a few constants; it is restated here as facts, and every size and offset is asserted at the end.
 *
 * A member's prototype is a function type named after the first version that had it
 * (nccl_isend_v9); a table names the one that was in force.  Read down the prototypes of one
 * member and you have its history.  abi.c implements them, tools/proxy.c calls them.
 */
#ifndef BRAID_PLUGIN_ABI_H
#define BRAID_PLUGIN_ABI_H

#ifdef __cplusplus
#error "C only: in C++ these names belong to NCCL's own headers"
#endif

#include <stddef.h>
#include <stdint.h>

/* -- constants --------------------------------------------------------------------------- */

typedef enum {
	ncclSuccess = 0,
	ncclUnhandledCudaError = 1,
	ncclSystemError = 2,		/* this host or its kernel */
	ncclInternalError = 3,		/* a call that makes no sense, or a bug */
	ncclInvalidArgument = 4,
	ncclInvalidUsage = 5,		/* the user can fix it */
	ncclRemoteError = 6,		/* the peer or the way to it */
	ncclInProgress = 7,		/* Braid never returns it: it does not mean "retry" */
	ncclTimeout = 8,		/* unknown to NCCL 2.28: Braid never returns it */
} ncclResult_t;

enum { NCCL_NET_HANDLE_MAXSIZE = 128 };	/* what listen() may fill and connect() gets */

enum { NCCL_PTR_HOST = 1, NCCL_PTR_CUDA = 2, NCCL_PTR_DMABUF = 4 };	/* a mask */

/* In *request on entry to irecv (v9): the receive may complete without a completion of the NIC. */
#define NCCL_NET_OPTIONAL_RECV_COMPLETION ((void *)0x1)

enum { NCCL_NET_TRAFFIC_CLASS_UNDEF = -1, NCCL_NET_ID_UNDEF = -1 };

enum {					/* which side moves the data; for Braid always HOST */
	NCCL_NET_DEVICE_HOST = 0,
	NCCL_NET_DEVICE_UNPACK = 1,
	NCCL_NET_DEVICE_GIN_PROXY = 2,
	NCCL_NET_DEVICE_GIN_GDAKI = 3,
};

enum {					/* ncclDebugLogger_t: level */
	NCCL_LOG_NONE = 0,
	NCCL_LOG_VERSION = 1,
	NCCL_LOG_WARN = 2,
	NCCL_LOG_INFO = 3,
	NCCL_LOG_ABORT = 4,
	NCCL_LOG_TRACE = 5,
};

enum {					/* ncclDebugLogger_t: flags, the subsystem */
	NCCL_INIT = 0x1,
	NCCL_COLL = 0x2,
	NCCL_P2P = 0x4,
	NCCL_SHM = 0x8,
	NCCL_NET = 0x10,
	NCCL_GRAPH = 0x20,
	NCCL_TUNING = 0x40,
	NCCL_ENV = 0x80,
	NCCL_ALLOC = 0x100,
	NCCL_CALL = 0x200,
	NCCL_PROXY = 0x400,
	NCCL_NVLS = 0x800,
	NCCL_BOOTSTRAP = 0x1000,
	NCCL_REG = 0x2000,
	NCCL_PROFILE = 0x4000,
	NCCL_RAS = 0x8000,
};

enum {					/* ncclProfilerCallback_t: type */
	NCCL_PROFILER_START = 0,
	NCCL_PROFILER_STOP = 1,
	NCCL_PROFILER_UPDATE = 2,
	NCCL_PROFILER_UPDATE_STOP = 3,
};

/* -- functions of NCCL that the plugin calls ---------------------------------------------- */

/* `where` is printed as the file of a WARN; a WARN is also kept as the last error. */
typedef void (*ncclDebugLogger_t)(int level, unsigned long flags, const char *where, int line,
				  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* START sets *event from `parent`, the phandle of isend or irecv, which it dereferences. */
typedef ncclResult_t (*ncclProfilerCallback_t)(void **event, int type, void *parent,
					       int64_t plugin_id, void *data);

/* -- structs ------------------------------------------------------------------------------ */

typedef struct {			/* of an offloading plugin; Braid never fills one */
	int netDeviceType;
	int netDeviceVersion;
	void *handle;
	size_t size;
	int needsProxyProgress;
} ncclNetDeviceHandle_v7_t;

typedef struct {
	int ndevs;
	int devs[4];
} ncclNetVDeviceProps_v9_t;

typedef struct {
	int ndevs;
	int devs[8];
} ncclNetVDeviceProps_v12_t;

typedef struct {
	int trafficClass;		/* -1: none given */
} ncclNetCommConfig_v10_t;

typedef struct {
	int32_t maxConcurrentPeers, minConcurrentPeers;
	int32_t maxFlowsPerPeer, minFlowsPerPeer;
} ncclNetCommAttr_v11_t;

typedef struct {			/* hints; masks with all bits set mean any */
	ncclNetCommAttr_v11_t sendCommAttr, recvCommAttr;
	uint32_t op, algo, proto;
} ncclNetAttr_v11_t;

typedef struct {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport;
	int speed, port;
	float latency;
	int maxComms, maxRecvs;
} ncclNetProperties_v5_t;

typedef ncclNetProperties_v5_t ncclNetProperties_v6_t;	/* ptrSupport learns DMABUF */

typedef struct {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport;
	int speed, port;
	float latency;
	int maxComms, maxRecvs;
	int netDeviceType, netDeviceVersion;	/* new */
} ncclNetProperties_v7_t;

typedef struct {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport;
	int regIsGlobal;			/* new */
	int speed, port;
	float latency;
	int maxComms, maxRecvs;
	int netDeviceType, netDeviceVersion;
} ncclNetProperties_v8_t;

typedef struct {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport;
	int regIsGlobal;
	int forceFlush;				/* new */
	int speed, port;
	float latency;
	int maxComms, maxRecvs;
	int netDeviceType, netDeviceVersion;
	ncclNetVDeviceProps_v9_t vProps;	/* new */
	size_t maxP2pBytes, maxCollBytes;	/* new */
} ncclNetProperties_v9_t;

typedef ncclNetProperties_v9_t ncclNetProperties_v10_t;

typedef struct {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport;
	int regIsGlobal;
	int forceFlush;
	int speed, port;
	float latency;
	int maxComms, maxRecvs;
	int netDeviceType, netDeviceVersion;
	ncclNetVDeviceProps_v9_t vProps;
	size_t maxP2pBytes, maxCollBytes;
	int maxMultiRequestSize;		/* new */
} ncclNetProperties_v11_t;

typedef struct {
	char *name, *pciPath;
	uint64_t guid;
	int ptrSupport;
	int regIsGlobal;
	int forceFlush;
	int speed, port;
	float latency;
	int maxComms, maxRecvs;
	int netDeviceType, netDeviceVersion;
	ncclNetVDeviceProps_v12_t vProps;	/* larger */
	size_t maxP2pBytes, maxCollBytes;
	int maxMultiRequestSize;
	int16_t railId, planeId;		/* new */
} ncclNetProperties_v12_t;

/* -- prototypes, each named after the first version that had it --------------------------- */

typedef ncclResult_t nccl_init_v5(ncclDebugLogger_t log);
typedef ncclResult_t nccl_init_v10(ncclDebugLogger_t log, ncclProfilerCallback_t prof);
typedef ncclResult_t nccl_init_v11(void **ctx, uint64_t comm_id, ncclNetCommConfig_v10_t *config,
				   ncclDebugLogger_t log, ncclProfilerCallback_t prof);

typedef ncclResult_t nccl_devices_v5(int *ndev);

typedef ncclResult_t nccl_props_v5(int dev, ncclNetProperties_v5_t *props);
typedef ncclResult_t nccl_props_v6(int dev, ncclNetProperties_v6_t *props);
typedef ncclResult_t nccl_props_v7(int dev, ncclNetProperties_v7_t *props);
typedef ncclResult_t nccl_props_v8(int dev, ncclNetProperties_v8_t *props);
typedef ncclResult_t nccl_props_v9(int dev, ncclNetProperties_v9_t *props);
typedef ncclResult_t nccl_props_v11(int dev, ncclNetProperties_v11_t *props);
typedef ncclResult_t nccl_props_v12(int dev, ncclNetProperties_v12_t *props);

typedef ncclResult_t nccl_listen_v5(int dev, void *handle, void **listen_comm);
typedef ncclResult_t nccl_listen_v11(void *ctx, int dev, void *handle, void **listen_comm);

typedef ncclResult_t nccl_connect_v5(int dev, void *handle, void **send_comm);
typedef ncclResult_t nccl_connect_v7(int dev, void *handle, void **send_comm,
				     ncclNetDeviceHandle_v7_t **offload);
typedef ncclResult_t nccl_connect_v10(int dev, ncclNetCommConfig_v10_t *config, void *handle,
				      void **send_comm, ncclNetDeviceHandle_v7_t **offload);
typedef ncclResult_t nccl_connect_v11(void *ctx, int dev, void *handle, void **send_comm,
				      ncclNetDeviceHandle_v7_t **offload);

typedef ncclResult_t nccl_accept_v5(void *listen_comm, void **recv_comm);
typedef ncclResult_t nccl_accept_v7(void *listen_comm, void **recv_comm,
				    ncclNetDeviceHandle_v7_t **offload);

typedef ncclResult_t nccl_reg_v5(void *comm, void *data, int size, int type, void **mr);
typedef ncclResult_t nccl_reg_v8(void *comm, void *data, size_t size, int type, void **mr);
typedef ncclResult_t nccl_reg_dmabuf_v6(void *comm, void *data, size_t size, int type,
					uint64_t offset, int fd, void **mr);
typedef ncclResult_t nccl_dereg_v5(void *comm, void *mr);

typedef ncclResult_t nccl_isend_v5(void *comm, void *data, int size, int tag, void *mr,
				   void **req);
typedef ncclResult_t nccl_isend_v9(void *comm, void *data, size_t size, int tag, void *mr,
				   void **req);
typedef ncclResult_t nccl_isend_v10(void *comm, void *data, size_t size, int tag, void *mr,
				    void *phandle, void **req);

typedef ncclResult_t nccl_irecv_v5(void *comm, int n, void **data, int *sizes, int *tags,
				   void **mrs, void **req);
typedef ncclResult_t nccl_irecv_v9(void *comm, int n, void **data, size_t *sizes, int *tags,
				   void **mrs, void **req);
typedef ncclResult_t nccl_irecv_v10(void *comm, int n, void **data, size_t *sizes, int *tags,
				    void **mrs, void **phandles, void **req);

typedef ncclResult_t nccl_iflush_v5(void *comm, int n, void **data, int *sizes, void **mrs,
				    void **req);
typedef ncclResult_t nccl_test_v5(void *req, int *done, int *sizes);
typedef ncclResult_t nccl_close_v5(void *comm);

typedef ncclResult_t nccl_device_mr_v7(void *comm, void *mr, void **device_mr);
typedef ncclResult_t nccl_consumed_v7(void *comm, int n, void *req);
typedef ncclResult_t nccl_vdevice_v9(int *dev, ncclNetVDeviceProps_v9_t *members);
typedef ncclResult_t nccl_vdevice_v12(int *dev, ncclNetVDeviceProps_v12_t *members);
typedef ncclResult_t nccl_finalize_v11(void *ctx);
typedef ncclResult_t nccl_attr_v11(void *ctx, ncclNetAttr_v11_t *attr);

/* -- the tables --------------------------------------------------------------------------- */

typedef struct {
	const char *name;
	nccl_init_v5 *init;
	nccl_devices_v5 *devices;
	nccl_props_v5 *getProperties;
	nccl_listen_v5 *listen;
	nccl_connect_v5 *connect;
	nccl_accept_v5 *accept;
	nccl_reg_v5 *regMr;
	nccl_dereg_v5 *deregMr;
	nccl_isend_v5 *isend;
	nccl_irecv_v5 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
} ncclNet_v5_t;

typedef struct {
	const char *name;
	nccl_init_v5 *init;
	nccl_devices_v5 *devices;
	nccl_props_v6 *getProperties;
	nccl_listen_v5 *listen;
	nccl_connect_v5 *connect;
	nccl_accept_v5 *accept;
	nccl_reg_v5 *regMr;
	nccl_reg_dmabuf_v6 *regMrDmaBuf;	/* new; NULL: none */
	nccl_dereg_v5 *deregMr;
	nccl_isend_v5 *isend;
	nccl_irecv_v5 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
} ncclNet_v6_t;

typedef struct {
	const char *name;
	nccl_init_v5 *init;
	nccl_devices_v5 *devices;
	nccl_props_v7 *getProperties;
	nccl_listen_v5 *listen;
	nccl_connect_v7 *connect;
	nccl_accept_v7 *accept;
	nccl_reg_v5 *regMr;
	nccl_reg_dmabuf_v6 *regMrDmaBuf;
	nccl_dereg_v5 *deregMr;
	nccl_isend_v5 *isend;
	nccl_irecv_v5 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
	nccl_device_mr_v7 *getDeviceMr;		/* new; NULL: none */
	nccl_consumed_v7 *irecvConsumed;	/* new; NULL: none */
} ncclNet_v7_t;

typedef struct {
	const char *name;
	nccl_init_v5 *init;
	nccl_devices_v5 *devices;
	nccl_props_v8 *getProperties;
	nccl_listen_v5 *listen;
	nccl_connect_v7 *connect;
	nccl_accept_v7 *accept;
	nccl_reg_v8 *regMr;
	nccl_reg_dmabuf_v6 *regMrDmaBuf;
	nccl_dereg_v5 *deregMr;
	nccl_isend_v5 *isend;
	nccl_irecv_v5 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
	nccl_device_mr_v7 *getDeviceMr;
	nccl_consumed_v7 *irecvConsumed;
} ncclNet_v8_t;

typedef struct {
	const char *name;
	nccl_init_v5 *init;
	nccl_devices_v5 *devices;
	nccl_props_v9 *getProperties;
	nccl_listen_v5 *listen;
	nccl_connect_v7 *connect;
	nccl_accept_v7 *accept;
	nccl_reg_v8 *regMr;
	nccl_reg_dmabuf_v6 *regMrDmaBuf;
	nccl_dereg_v5 *deregMr;
	nccl_isend_v9 *isend;
	nccl_irecv_v9 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
	nccl_device_mr_v7 *getDeviceMr;
	nccl_consumed_v7 *irecvConsumed;
	nccl_vdevice_v9 *makeVDevice;		/* new; NULL: no fusion */
} ncclNet_v9_t;

typedef struct {
	const char *name;
	nccl_init_v10 *init;
	nccl_devices_v5 *devices;
	nccl_props_v9 *getProperties;
	nccl_listen_v5 *listen;
	nccl_connect_v10 *connect;
	nccl_accept_v7 *accept;
	nccl_reg_v8 *regMr;
	nccl_reg_dmabuf_v6 *regMrDmaBuf;
	nccl_dereg_v5 *deregMr;
	nccl_isend_v10 *isend;
	nccl_irecv_v10 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
	nccl_device_mr_v7 *getDeviceMr;
	nccl_consumed_v7 *irecvConsumed;
	nccl_vdevice_v9 *makeVDevice;
} ncclNet_v10_t;

typedef struct {
	const char *name;
	nccl_init_v11 *init;
	nccl_devices_v5 *devices;
	nccl_props_v11 *getProperties;
	nccl_listen_v11 *listen;
	nccl_connect_v11 *connect;
	nccl_accept_v7 *accept;
	nccl_reg_v8 *regMr;
	nccl_reg_dmabuf_v6 *regMrDmaBuf;
	nccl_dereg_v5 *deregMr;
	nccl_isend_v10 *isend;
	nccl_irecv_v10 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
	nccl_device_mr_v7 *getDeviceMr;
	nccl_consumed_v7 *irecvConsumed;
	nccl_vdevice_v9 *makeVDevice;
	nccl_finalize_v11 *finalize;		/* new */
	nccl_attr_v11 *setNetAttr;		/* new; NULL: no interest */
} ncclNet_v11_t;

typedef struct {
	const char *name;
	nccl_init_v11 *init;
	nccl_devices_v5 *devices;
	nccl_props_v12 *getProperties;
	nccl_listen_v11 *listen;
	nccl_connect_v11 *connect;
	nccl_accept_v7 *accept;
	nccl_reg_v8 *regMr;
	nccl_reg_dmabuf_v6 *regMrDmaBuf;
	nccl_dereg_v5 *deregMr;
	nccl_isend_v10 *isend;
	nccl_irecv_v10 *irecv;
	nccl_iflush_v5 *iflush;
	nccl_test_v5 *test;
	nccl_close_v5 *closeSend, *closeRecv, *closeListen;
	nccl_device_mr_v7 *getDeviceMr;
	nccl_consumed_v7 *irecvConsumed;
	nccl_vdevice_v12 *makeVDevice;
	nccl_finalize_v11 *finalize;
	nccl_attr_v11 *setNetAttr;
} ncclNet_v12_t;

/* -- the layout, asserted: NCCL was compiled against these numbers ------------------------ */

#ifndef __LP64__
#error "NCCL is a 64-bit library; so are its plugins"
#endif

#define SIZE_IS(t, bytes) _Static_assert(sizeof(t) == (bytes), "size of " #t)
#define AT(t, off, member) _Static_assert(offsetof(t, member) == (off), "place of " #t "." #member)

SIZE_IS(ncclResult_t, 4);

SIZE_IS(ncclNetDeviceHandle_v7_t, 32);
AT(ncclNetDeviceHandle_v7_t, 0, netDeviceType);
AT(ncclNetDeviceHandle_v7_t, 4, netDeviceVersion);
AT(ncclNetDeviceHandle_v7_t, 8, handle);
AT(ncclNetDeviceHandle_v7_t, 16, size);
AT(ncclNetDeviceHandle_v7_t, 24, needsProxyProgress);

SIZE_IS(ncclNetVDeviceProps_v9_t, 20);
AT(ncclNetVDeviceProps_v9_t, 0, ndevs);
AT(ncclNetVDeviceProps_v9_t, 4, devs);
SIZE_IS(ncclNetVDeviceProps_v12_t, 36);
AT(ncclNetVDeviceProps_v12_t, 0, ndevs);
AT(ncclNetVDeviceProps_v12_t, 4, devs);

SIZE_IS(ncclNetCommConfig_v10_t, 4);
AT(ncclNetCommConfig_v10_t, 0, trafficClass);

SIZE_IS(ncclNetCommAttr_v11_t, 16);
AT(ncclNetCommAttr_v11_t, 0, maxConcurrentPeers);
AT(ncclNetCommAttr_v11_t, 4, minConcurrentPeers);
AT(ncclNetCommAttr_v11_t, 8, maxFlowsPerPeer);
AT(ncclNetCommAttr_v11_t, 12, minFlowsPerPeer);

SIZE_IS(ncclNetAttr_v11_t, 44);
AT(ncclNetAttr_v11_t, 0, sendCommAttr);
AT(ncclNetAttr_v11_t, 16, recvCommAttr);
AT(ncclNetAttr_v11_t, 32, op);
AT(ncclNetAttr_v11_t, 36, algo);
AT(ncclNetAttr_v11_t, 40, proto);

/* Properties grow like the tables do; `s` is where speed lies, for flags were put before it. */
#define PROPS_V5(t, s)								\
	AT(t, 0, name); AT(t, 8, pciPath); AT(t, 16, guid); AT(t, 24, ptrSupport);	\
	AT(t, (s), speed); AT(t, (s) + 4, port); AT(t, (s) + 8, latency);	\
	AT(t, (s) + 12, maxComms); AT(t, (s) + 16, maxRecvs)
#define PROPS_V7(t, s)								\
	PROPS_V5(t, s); AT(t, (s) + 20, netDeviceType); AT(t, (s) + 24, netDeviceVersion)
#define PROPS_V8(t, s) PROPS_V7(t, s); AT(t, 28, regIsGlobal)
#define PROPS_V9(t, max)							\
	PROPS_V8(t, 36); AT(t, 32, forceFlush); AT(t, 64, vProps);		\
	AT(t, (max), maxP2pBytes); AT(t, (max) + 8, maxCollBytes)
#define PROPS_V11(t, max) PROPS_V9(t, max); AT(t, (max) + 16, maxMultiRequestSize)
#define PROPS_V12(t, max)							\
	PROPS_V11(t, max); AT(t, (max) + 20, railId); AT(t, (max) + 22, planeId)

PROPS_V5(ncclNetProperties_v5_t, 28);
PROPS_V5(ncclNetProperties_v6_t, 28);
PROPS_V7(ncclNetProperties_v7_t, 28);
PROPS_V8(ncclNetProperties_v8_t, 32);
PROPS_V9(ncclNetProperties_v9_t, 88);
PROPS_V9(ncclNetProperties_v10_t, 88);
PROPS_V11(ncclNetProperties_v11_t, 88);
PROPS_V12(ncclNetProperties_v12_t, 104);
SIZE_IS(ncclNetProperties_v5_t, 48);
SIZE_IS(ncclNetProperties_v6_t, 48);
SIZE_IS(ncclNetProperties_v7_t, 56);
SIZE_IS(ncclNetProperties_v8_t, 64);
SIZE_IS(ncclNetProperties_v9_t, 104);
SIZE_IS(ncclNetProperties_v10_t, 104);
SIZE_IS(ncclNetProperties_v11_t, 112);
SIZE_IS(ncclNetProperties_v12_t, 128);

/* A table is all pointers; `d` is 1 where regMrDmaBuf pushes the rest down one. */
#define SLOTS_V5(t, d)								\
	AT(t, 0, name); AT(t, 8, init); AT(t, 16, devices); AT(t, 24, getProperties);	\
	AT(t, 32, listen); AT(t, 40, connect); AT(t, 48, accept); AT(t, 56, regMr);	\
	AT(t, 64 + 8 * (d), deregMr); AT(t, 72 + 8 * (d), isend);		\
	AT(t, 80 + 8 * (d), irecv); AT(t, 88 + 8 * (d), iflush);		\
	AT(t, 96 + 8 * (d), test); AT(t, 104 + 8 * (d), closeSend);		\
	AT(t, 112 + 8 * (d), closeRecv); AT(t, 120 + 8 * (d), closeListen)
#define SLOTS_V6(t) SLOTS_V5(t, 1); AT(t, 64, regMrDmaBuf)
#define SLOTS_V7(t) SLOTS_V6(t); AT(t, 136, getDeviceMr); AT(t, 144, irecvConsumed)
#define SLOTS_V9(t) SLOTS_V7(t); AT(t, 152, makeVDevice)
#define SLOTS_V11(t) SLOTS_V9(t); AT(t, 160, finalize); AT(t, 168, setNetAttr)

SLOTS_V5(ncclNet_v5_t, 0);
SLOTS_V6(ncclNet_v6_t);
SLOTS_V7(ncclNet_v7_t);
SLOTS_V7(ncclNet_v8_t);
SLOTS_V9(ncclNet_v9_t);
SLOTS_V9(ncclNet_v10_t);
SLOTS_V11(ncclNet_v11_t);
SLOTS_V11(ncclNet_v12_t);
SIZE_IS(ncclNet_v5_t, 128);
SIZE_IS(ncclNet_v6_t, 136);
SIZE_IS(ncclNet_v7_t, 152);
SIZE_IS(ncclNet_v8_t, 152);
SIZE_IS(ncclNet_v9_t, 160);
SIZE_IS(ncclNet_v10_t, 160);
SIZE_IS(ncclNet_v11_t, 176);
SIZE_IS(ncclNet_v12_t, 176);

#undef SIZE_IS
#undef AT
#undef PROPS_V5
#undef PROPS_V7
#undef PROPS_V8
#undef PROPS_V9
#undef PROPS_V11
#undef PROPS_V12
#undef SLOTS_V5
#undef SLOTS_V6
#undef SLOTS_V7
#undef SLOTS_V9
#undef SLOTS_V11

#endif
