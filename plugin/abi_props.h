/* SPDX-License-Identifier: BSD-3-Clause */
/* abi_props.h - see abi.h: structs, of which the properties of a device grew with each version. */
#ifndef BRAID_PLUGIN_ABI_PROPS_H
#define BRAID_PLUGIN_ABI_PROPS_H

#include <stddef.h>
#include <stdint.h>

typedef struct {			/* for plugins that offload; Braid never fills one */
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

typedef ncclNetProperties_v5_t ncclNetProperties_v6_t;	/* new: DMABUF in ptrSupport */

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

#endif
