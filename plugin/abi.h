/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * abi.h - NCCL's net-plugin interface, versions 5 to 12, in our own words.
 *
 * NCCL opens the plugin, asks for the object ncclNetPlugin_vN of the newest N it knows, and calls
 * through it.  What binds us is the layout: the order of members, their types and the values of
 * a few constants.  The layout is restated here as facts, and every size and offset is asserted at
 * the end.
 *
 * A member's prototype is a function type named after the first version that had it
 * (nccl_isend_v9); each table names the prototype of its version.  The prototypes of one member, in
 * order, are its history.  abi.c implements them, tools/proxy.c calls them.
 *
 *	abi_const.h	constants, and the functions of NCCL that the plugin calls
 *	abi_props.h	structs
 *	abi_calls.h	prototypes
 *	abi_tables.h	tables
 */
#ifndef BRAID_PLUGIN_ABI_H
#define BRAID_PLUGIN_ABI_H

#ifdef __cplusplus
#error "C only: in C++ these names belong to NCCL's own headers"
#endif

#include "plugin/abi_tables.h"

/* The layout, asserted: NCCL was compiled against these numbers. */

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

/* Properties grow like the tables do.  `s`: the offset of speed; v8 and v9 put flags before it. */
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

/* A table is all pointers.  `d`: 1 if it has regMrDmaBuf, which moves the rest down by one. */
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
