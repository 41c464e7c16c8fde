/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu.c - the devices: entry points of the runtime, of the driver (by name), and of NVML.  NCCL opens
 * NVML's library by dlopen(), which gives it this program itself.
 */
#include "tests/nccl/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define EXPORT __attribute__((visibility("default")))

enum { DRIVER = 13000, SHARED_MEMORY = 166 << 10, PROCESSORS = 108 };
/* Attributes; those of the runtime and the driver have the same numbers. */
enum { ATTR_PROCESSORS = 16, ATTR_UNIFIED = 41, ATTR_MAJOR = 75, ATTR_MINOR = 76, ATTR_SHARED_OPTIN = 97,
       ATTR_RDMA = 116, ATTR_DMABUF = 124 };

static __thread int current;		/* device */
const char *gpu_unsupported;

static int number(const char *name, int standard)
{
	const char *env = getenv(name);

	return env ? atoi(env) : standard;
}

static int count(void)
{
	return number("BRAID_TEST_GPU_COUNT", 1);
}

static int capability(void)
{
	return number("BRAID_TEST_GPU_CC", 80);
}

static void pci_id(char *ret, size_t len, int device)
{
	snprintf(ret, len, "0000:%02x:00.0", 0x40 + number("BRAID_TEST_GPU_FIRST", 0) + device);
}

static int by_pci_id(const char *id)
{
	char own[32];

	for (int i = 0; i < count(); i++) {
		pci_id(own, sizeof(own), i);
		if (!strcasecmp(own, id))
			return i;
	}
	return -1;
}

/* -- the runtime ----------------------------------------------------------------------------------- */

static int set_device(int device)
{
	long (*ctl)(const char *);

	if (device < 0 || device >= count())
		return 101;
	current = device;
	*(void **)&ctl = gpu_fakecuda("braid_fakecuda_ctl");
	if (ctl)
		ctl("context 1");
	return GPU_OK;
}

static int get_device(int *ret)
{
	*ret = current;
	return GPU_OK;
}

static int get_device_count(int *ret)
{
	*ret = count();
	return GPU_OK;
}

static int get_attribute(int *ret, int attribute, int device)
{
	(void)device;
	switch (attribute) {
	case ATTR_PROCESSORS: *ret = PROCESSORS; break;
	case ATTR_UNIFIED: *ret = 1; break;
	case ATTR_MAJOR: *ret = capability() / 10; break;
	case ATTR_MINOR: *ret = capability() % 10; break;
	case ATTR_SHARED_OPTIN: *ret = SHARED_MEMORY; break;
	case ATTR_RDMA:
	case ATTR_DMABUF: *ret = gpu_fakecuda(NULL) != NULL; break;
	default: *ret = 0;
	}
	return GPU_OK;
}

static int get_pci_id(char *ret, int len, int device)
{
	pci_id(ret, (size_t)len, device);
	return GPU_OK;
}

static int get_by_pci_id(int *ret, const char *id)
{
	*ret = by_pci_id(id);
	return *ret < 0 ? GPU_INVALID : GPU_OK;
}

/* The offsets of the fields that NCCL reads; later fields differ between releases. */
enum { PROP_MEMORY = 288, PROP_MAJOR = 360, PROP_MINOR = 364, PROP_CLEARED = 512 };

static int get_properties(char *ret, int device)
{
	uint64_t memory = (uint64_t)40 << 30;
	int major = capability() / 10, minor = capability() % 10;

	(void)device;
	memset(ret, 0, PROP_CLEARED);
	snprintf(ret, 256, "played by the CPU");
	memcpy(ret + PROP_MEMORY, &memory, sizeof(memory));
	memcpy(ret + PROP_MAJOR, &major, sizeof(major));
	memcpy(ret + PROP_MINOR, &minor, sizeof(minor));
	return GPU_OK;
}

static int can_access_peer(int *ret)
{
	*ret = number("BRAID_TEST_GPU_PEERS", 0);
	return GPU_OK;
}

static int yes(void)
{
	return GPU_OK;
}

static int get_version(int *ret)
{
	*ret = DRIVER;
	return GPU_OK;
}

static const char *error_text(int code)
{
	switch (code) {
	case GPU_OK: return "no error";
	case GPU_NOT_READY: return "not ready";
	case GPU_NOT_SUPPORTED: return "not supported by the GPU that the CPU plays";
	default: return "an error of the GPU that the CPU plays";
	}
}

struct function_attributes {
	size_t shared, constant, local;
	int threads, registers;
};

static int func_attributes(struct function_attributes *ret, const void *fn)
{
	(void)fn;
	*ret = (struct function_attributes){ .threads = 1024 };
	return GPU_OK;
}

static int func_by_symbol(const void **ret, const void *symbol)
{
	*ret = symbol;
	return GPU_OK;
}

/* -- the driver ------------------------------------------------------------------------------------ */

static int cu_device_get(int *ret, int device)
{
	*ret = device;
	return GPU_OK;
}

static int cu_device_get_uuid(char ret[16], int device)
{
	memset(ret, 0, 16);
	ret[0] = (char)(number("BRAID_TEST_GPU_FIRST", 0) + device);
	return GPU_OK;
}

static int cu_granularity(size_t *ret)
{
	*ret = 2 << 20;
	return GPU_OK;
}

static int cu_error(int code, const char **ret)
{
	*ret = error_text(code);
	return GPU_OK;
}

static int cu_context(void **ret)
{
	static char context;

	*ret = &context;
	return GPU_OK;
}

/* `extra` is a list: 1, the arguments, 2, their size, 0. */
static int launch(struct gpu_stream *stream, void **extra)
{
	void *args = NULL;
	size_t size = 0;

	for (; extra && *extra; extra += 2) {
		if ((uintptr_t)*extra == 1)
			args = extra[1];
		else if ((uintptr_t)*extra == 2)
			size = *(size_t *)extra[1];
	}
	if (!args || size < sizeof(struct nccl_args) || !gpu_known)
		return GPU_NOT_SUPPORTED;
	args = memcpy(malloc(size), args, size);
	return gpu_enqueue(stream, gpu_kernel, args);
}

struct launch_config {
	unsigned grid[3], block[3], shared;
	struct gpu_stream *stream;
	void *attributes;
	unsigned nattributes;
};

static int cu_launch_ex(const struct launch_config *config, void *fn, void **params, void **extra)
{
	(void)fn;
	(void)params;
	return launch(config->stream, extra);
}

static int cu_launch(void *fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	unsigned shared, struct gpu_stream *stream, void **params, void **extra)
{
	(void)fn, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared, (void)params;
	return launch(stream, extra);
}

static void *driver_entry(const char *name)
{
	static const struct {
		const char *name;
		void *fn;
	} entries[] = {
		{ "cuDeviceGet", cu_device_get }, { "cuDeviceGetAttribute", get_attribute },
		{ "cuDeviceGetUuid", cu_device_get_uuid },
		{ "cuMemGetAllocationGranularity", cu_granularity },
		{ "cuGetErrorString", cu_error }, { "cuGetErrorName", cu_error },
		{ "cuCtxCreate", cu_context }, { "cuCtxDestroy", yes }, { "cuCtxSetCurrent", yes },
		{ "cuCtxGetCurrent", cu_context }, { "cuCtxGetDevice", get_device },
		{ "cuLaunchKernel", cu_launch }, { "cuLaunchKernelEx", cu_launch_ex },
	};

	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		if (!strcmp(entries[i].name, name))
			return entries[i].fn;
	}
	if (!strcmp(name, "cuMemGetHandleForAddressRange"))
		return gpu_fakecuda(name);
	return gpu_memory_entry(name);
}

static int entry_point(const char *name, void **ret, unsigned long long flags, int *ret_status)
{
	(void)flags;
	*ret = driver_entry(name);
	if (ret_status)
		*ret_status = *ret ? 0 : 1;
	return GPU_OK;
}

static int entry_point_by_version(const char *name, void **ret, unsigned version, unsigned long long flags,
	int *ret_status)
{
	(void)version;
	return entry_point(name, ret, flags, ret_status);
}

void *gpu_runtime_entry(const char *name)
{
	static const struct {
		const char *name;
		void *fn;
	} entries[] = {
		{ "cudaSetDevice", set_device }, { "cudaGetDevice", get_device },
		{ "cudaGetDeviceCount", get_device_count }, { "cudaDeviceGetAttribute", get_attribute },
		{ "cudaDeviceGetPCIBusId", get_pci_id }, { "cudaDeviceGetByPCIBusId", get_by_pci_id },
		{ "cudaGetDeviceProperties", get_properties },
		{ "cudaGetDeviceProperties_v2", get_properties },
		{ "cudaDeviceCanAccessPeer", can_access_peer }, { "cudaDeviceEnablePeerAccess", yes },
		{ "cudaDeviceSetLimit", yes }, { "cudaDriverGetVersion", get_version },
		{ "cudaRuntimeGetVersion", get_version }, { "cudaGetErrorString", error_text },
		{ "cudaGetErrorName", error_text }, { "cudaGetLastError", yes },
		{ "cudaPeekAtLastError", yes }, { "cudaThreadExchangeStreamCaptureMode", yes },
		{ "cudaFuncGetAttributes", func_attributes }, { "cudaFuncSetAttribute", yes },
		{ "cudaGetFuncBySymbol", func_by_symbol }, { "cudaGetDriverEntryPoint", entry_point },
		{ "cudaGetDriverEntryPointByVersion", entry_point_by_version },
	};

	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		if (!strcmp(entries[i].name, name))
			return entries[i].fn;
	}
	return NULL;
}

/* -- NVML ------------------------------------------------------------------------------------------ */

enum { NVML_OK = 0, NVML_NOT_SUPPORTED = 3, NVML_NOT_FOUND = 6 };

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned *ret);
EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, void **ret);
EXPORT int nvmlDeviceGetHandleByPciBusId(const char *id, void **ret);
EXPORT int nvmlDeviceGetIndex(void *device, unsigned *ret);
EXPORT const char *nvmlErrorString(int code);
EXPORT int nvmlDeviceGetCudaComputeCapability(void *device, int *ret_major, int *ret_minor);
EXPORT int nvmlDeviceGetP2PStatus(void *a, void *b, int index, int *ret);
EXPORT int nvmlDeviceGetPciInfo_v3(void *device, void *ret);
EXPORT int nvmlDeviceGetPciInfoExt(void *device, void *ret);
EXPORT int nvmlDeviceGetPcieLinkMaxSpeed(void *device, unsigned *ret);
EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *ret);
EXPORT int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *ret);
EXPORT int nvmlDeviceGetNvLinkCapability(void *device, unsigned link, int capability, unsigned *ret);

int nvmlInit_v2(void)
{
	return NVML_OK;
}

int nvmlShutdown(void)
{
	return NVML_OK;
}

int nvmlDeviceGetCount_v2(unsigned *ret)
{
	*ret = (unsigned)count();
	return NVML_OK;
}

int nvmlDeviceGetHandleByIndex(unsigned index, void **ret)
{
	*ret = (void *)(uintptr_t)(index + 1);
	return NVML_OK;
}

int nvmlDeviceGetHandleByPciBusId(const char *id, void **ret)
{
	int device = by_pci_id(id);

	return device < 0 ? NVML_NOT_FOUND : nvmlDeviceGetHandleByIndex((unsigned)device, ret);
}

int nvmlDeviceGetIndex(void *device, unsigned *ret)
{
	*ret = (unsigned)(uintptr_t)device - 1;
	return NVML_OK;
}

const char *nvmlErrorString(int code)
{
	return code ? "an error of the GPU that the CPU plays" : "no error";
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *ret_major, int *ret_minor)
{
	(void)device;
	*ret_major = capability() / 10;
	*ret_minor = capability() % 10;
	return NVML_OK;
}

int nvmlDeviceGetP2PStatus(void *a, void *b, int index, int *ret)
{
	(void)a, (void)b, (void)index;
	*ret = !number("BRAID_TEST_GPU_PEERS", 0);	/* 1: this chipset can't */
	return NVML_OK;
}

int nvmlDeviceGetNvLinkCapability(void *device, unsigned link, int capability_, unsigned *ret)
{
	(void)device, (void)link, (void)capability_;
	*ret = 0;
	return NVML_OK;
}

/* NCCL 2.30 and later call this. */
int nvmlDeviceGetPciInfo_v3(void *device, void *ret)
{
	(void)device, (void)ret;
	return NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetPciInfoExt(void *device, void *ret)
{
	(void)device, (void)ret;
	return NVML_NOT_SUPPORTED;
}

int nvmlDeviceGetPcieLinkMaxSpeed(void *device, unsigned *ret)
{
	(void)device;
	*ret = 16000;
	return NVML_OK;
}

int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *ret)
{
	(void)device;
	*ret = 4;
	return NVML_OK;
}

int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *ret)
{
	(void)device;
	*ret = 16;
	return NVML_OK;
}
