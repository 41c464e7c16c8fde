/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * driver.h - the calls of NVIDIA's driver that gdr/ makes; only gdr/ includes it.  Numbers and
 * types are those of the CUDA Driver API's reference manual.
 */
#ifndef BRAID_GDR_DRIVER_H
#define BRAID_GDR_DRIVER_H

#include <stddef.h>
#include <stdint.h>

enum {				/* CUresult */
	BRAID_CU_OK = 0, BRAID_CU_INVALID_VALUE = 1, BRAID_CU_OUT_OF_MEMORY = 2,
	BRAID_CU_NOT_INITIALIZED = 3, BRAID_CU_INVALID_CONTEXT = 201, BRAID_CU_NOT_READY = 600,
	BRAID_CU_NOT_SUPPORTED = 801,
};

typedef uint64_t braid_cu_ptr;	/* CUdeviceptr, where a pointer has 64 bits */
_Static_assert(sizeof(void *) == sizeof(braid_cu_ptr), "a device pointer is as wide as ours");
_Static_assert(sizeof(size_t) == 8, "RANGE_SIZE is a size_t");
_Static_assert(sizeof(int) == 4, "enumerations and handles are 32 bits");

struct braid_cu_rect {		/* CUDA_MEMCPY2D: rows of `width` bytes, `pitch` apart */
	size_t from_x, from_y;
	int from_type;
	const void *from_host;
	braid_cu_ptr from_gpu;
	void *from_array;
	size_t from_pitch;
	size_t to_x, to_y;
	int to_type;
	void *to_host;
	braid_cu_ptr to_gpu;
	void *to_array;
	size_t to_pitch;
	size_t width, height;
};
_Static_assert(sizeof(struct braid_cu_rect) == 128, "as in the manual");

/* Which code needs a call.  ALL: all of gdr/; STAGE: only gdr/stage.c; MAY: it is optional. */
enum { BRAID_CU_ALL, BRAID_CU_STAGE, BRAID_CU_MAY };

/* X(what needs it, our name, the driver's name, arguments) */
#define BRAID_CU_CALLS(X) \
	X(ALL, ctx_get_current, "cuCtxGetCurrent", (void **ctx)) \
	X(ALL, pointer_get_attributes, "cuPointerGetAttributes", \
	  (unsigned n, int *attributes, void **values, braid_cu_ptr ptr)) \
	X(ALL, mem_alloc, "cuMemAlloc_v2", (braid_cu_ptr *ret, size_t size)) \
	X(ALL, mem_free, "cuMemFree_v2", (braid_cu_ptr ptr)) \
	X(ALL, memcpy_to, "cuMemcpyHtoD_v2", (braid_cu_ptr to, const void *from, size_t size)) \
	X(ALL, memcpy_from, "cuMemcpyDtoH_v2", (void *to, braid_cu_ptr from, size_t size)) \
	X(MAY, exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int *mode)) \
	X(MAY, get_handle, "cuMemGetHandleForAddressRange", \
	  (void *ret, braid_cu_ptr ptr, size_t size, int type, unsigned long long flags)) \
	X(MAY, ctx_get_device, "cuCtxGetDevice", (int *ret)) \
	X(MAY, device_attribute, "cuDeviceGetAttribute", (int *ret, int attribute, int device)) \
	X(MAY, device_pci, "cuDeviceGetPCIBusId", (char *ret, int len, int device)) \
	X(MAY, flush_writes, "cuFlushGPUDirectRDMAWrites", (int target, int scope)) \
	X(STAGE, device_get, "cuDeviceGet", (int *ret, int ordinal)) \
	X(STAGE, primary_retain, "cuDevicePrimaryCtxRetain", (void **ctx, int device)) \
	X(STAGE, primary_release, "cuDevicePrimaryCtxRelease_v2", (int device)) \
	X(STAGE, ctx_push, "cuCtxPushCurrent_v2", (void *ctx)) \
	X(STAGE, ctx_pop, "cuCtxPopCurrent_v2", (void **ctx)) \
	X(STAGE, host_alloc, "cuMemHostAlloc", (void **ret, size_t size, unsigned flags)) \
	X(STAGE, host_free, "cuMemFreeHost", (void *ptr)) \
	X(STAGE, stream_create, "cuStreamCreate", (void **ret, unsigned flags)) \
	X(STAGE, stream_destroy, "cuStreamDestroy_v2", (void *stream)) \
	X(STAGE, event_create, "cuEventCreate", (void **ret, unsigned flags)) \
	X(STAGE, event_destroy, "cuEventDestroy_v2", (void *event)) \
	X(STAGE, event_record, "cuEventRecord", (void *event, void *stream)) \
	X(STAGE, event_query, "cuEventQuery", (void *event)) \
	X(STAGE, copy_to, "cuMemcpyHtoDAsync_v2", \
	  (braid_cu_ptr to, const void *from, size_t size, void *stream)) \
	X(STAGE, copy_from, "cuMemcpyDtoHAsync_v2", \
	  (void *to, braid_cu_ptr from, size_t size, void *stream)) \
	X(STAGE, copy_rect, "cuMemcpy2DAsync_v2", (const struct braid_cu_rect *rect, void *stream))

struct braid_cu {
	void *lib;			/* never closed */
#define BRAID_CU_MEMBER(who, name, symbol, args) int (*name) args;
	BRAID_CU_CALLS(BRAID_CU_MEMBER)
#undef BRAID_CU_MEMBER
	const char *no_stage;		/* the first call of STAGE that the driver lacks */
};

/* The driver's calls, valid after braid_gpu_load() has returned 0. */
extern struct braid_cu braid_cu;

/* A CUresult as 0 or a negative errno. */
int braid_cu_result(int code);

#endif
