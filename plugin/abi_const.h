/* SPDX-License-Identifier: BSD-3-Clause */
/* abi_const.h - see abi.h: constants, and the functions of NCCL that the plugin calls. */
#ifndef BRAID_PLUGIN_ABI_CONST_H
#define BRAID_PLUGIN_ABI_CONST_H

#include <stdint.h>

typedef enum {
	ncclSuccess = 0,
	ncclUnhandledCudaError = 1,
	ncclSystemError = 2,		/* this host or its kernel */
	ncclInternalError = 3,		/* a call that makes no sense, or a bug */
	ncclInvalidArgument = 4,
	ncclInvalidUsage = 5,		/* the user can fix it */
	ncclRemoteError = 6,		/* the peer, or the path to it */
	ncclInProgress = 7,		/* Braid never returns it: it does not mean "retry" */
	ncclTimeout = 8,		/* unknown to NCCL 2.28: Braid never returns it */
} ncclResult_t;

enum { NCCL_NET_HANDLE_MAXSIZE = 128 };	/* bytes that listen() fills for connect() */

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

#endif
