/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda.c - see cuda.h.  Numbers and types are those of the CUDA Driver API's reference manual. */
#include "gdr/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {				/* CUresult */
	OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201,
	NOT_SUPPORTED = 801,
};

enum {				/* CUpointer_attribute */
	MEMORY_TYPE = 2, BUFFER_ID = 7, IS_MANAGED = 8, DEVICE_ORDINAL = 9, RANGE_START = 11,
	RANGE_SIZE = 12,
};

enum { TYPE_DEVICE = 2 };	/* CUmemorytype */
enum { CAPTURE_RELAXED = 2 };	/* CUstreamCaptureMode */
enum { DMA_BUF_FD = 1, MAPPING_PCIE = 1 };	/* CUmemRangeHandleType, CUmemRangeFlags */

typedef uint64_t device_ptr;	/* CUdeviceptr, where a pointer has 64 bits */
_Static_assert(sizeof(void *) == sizeof(device_ptr), "a device pointer is as wide as ours");
_Static_assert(sizeof(size_t) == 8, "RANGE_SIZE is a size_t");
_Static_assert(sizeof(int) == 4, "enumerations and handles are 32 bits");

/* X(needed, our name, the driver's name, arguments) */
#define CALLS(X) \
	X(true, ctx_get_current, "cuCtxGetCurrent", (void **ctx)) \
	X(true, pointer_get_attributes, "cuPointerGetAttributes", \
	  (unsigned n, int *attributes, void **values, device_ptr ptr)) \
	X(true, mem_alloc, "cuMemAlloc_v2", (device_ptr *ret, size_t size)) \
	X(true, mem_free, "cuMemFree_v2", (device_ptr ptr)) \
	X(true, memcpy_to, "cuMemcpyHtoD_v2", (device_ptr to, const void *from, size_t size)) \
	X(true, memcpy_from, "cuMemcpyDtoH_v2", (void *to, device_ptr from, size_t size)) \
	X(false, exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int *mode)) \
	X(false, get_handle, "cuMemGetHandleForAddressRange", \
	  (void *ret, device_ptr ptr, size_t size, int type, unsigned long long flags))

static struct {
	void *lib;			/* kept */
#define MEMBER(needed, name, symbol, args) int (*name) args;
	CALLS(MEMBER)
#undef MEMBER
} cu;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool loaded;

static int result(int code)
{
	switch (code) {
	case OK:
		return 0;
	case OUT_OF_MEMORY:
		return -ENOMEM;
	case NOT_INITIALIZED:
	case INVALID_CONTEXT:
		return -ENOTCONN;
	case INVALID_VALUE:
	case NOT_SUPPORTED:
		return -EOPNOTSUPP;
	default:
		return -EIO;
	}
}

static int is_driver(struct dl_phdr_info *info, size_t size, void *unused)
{
	const char *slash = strrchr(info->dlpi_name, '/');

	(void)size;
	(void)unused;
	return !strncmp(slash ? slash + 1 : info->dlpi_name, "libcuda.so", 10);
}

static int load(char *why, size_t len)
{
	void *at;

	/* A dlopen() that fails leaves its message with the thread. */
	cu.lib = dl_iterate_phdr(is_driver, NULL) ?
			 dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) : NULL;
	if (!cu.lib) {
		snprintf(why, len, "this process has not loaded libcuda.so.1");
		return -ENOENT;
	}
#define FIND(needed, name, symbol, args) \
	at = dlsym(cu.lib, symbol); \
	memcpy(&cu.name, &at, sizeof(at)); \
	if (needed && !at) { \
		snprintf(why, len, "libcuda.so.1 is too old: it has no %s", symbol); \
		dlclose(cu.lib); \
		return -ENOENT; \
	}
	CALLS(FIND)
#undef FIND
	return 0;
}

int braid_gpu_load(char *why, size_t len)
{
	int err = 0;

	if (atomic_load(&loaded))
		return 0;
	pthread_mutex_lock(&lock);
	if (!loaded)
		err = load(why, len);
	if (!err)
		atomic_store(&loaded, true);
	pthread_mutex_unlock(&lock);
	return err;
}

static bool is_there(void)
{
	char why[128];

	return !braid_gpu_load(why, sizeof(why));
}

bool braid_gpu_current(void)
{
	void *ctx = NULL;

	return is_there() && !cu.ctx_get_current(&ctx) && ctx;
}

struct range {
	unsigned type, managed;
	int gpu;
	uint64_t id, beg, size;
};

static int look(device_ptr at, struct range *r)
{
	int attributes[] = { MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL, BUFFER_ID, RANGE_START,
			     RANGE_SIZE };
	void *values[] = { &r->type, &r->managed, &r->gpu, &r->id, &r->beg, &r->size };

	*r = (struct range){ 0 };
	return result(cu.pointer_get_attributes(sizeof(values) / sizeof(values[0]), attributes,
						values, at));
}

static uint64_t mix(uint64_t h, uint64_t id)
{
	h = (h ^ id) * UINT64_C(0x9e3779b97f4a7c15);
	return h ^ h >> 29;
}

int braid_gpu_look(const void *data, size_t size, struct braid_gpu_mem *ret)
{
	device_ptr at = (device_ptr)(uintptr_t)data, end = at + size;
	bool known = true;
	uint64_t id = 0;
	struct range r;

	*ret = (struct braid_gpu_mem){ 0 };
	if (!is_there())
		return -ENOENT;
	do {
		int err = look(at, &r);

		if (err)
			return err;
		if (r.type != TYPE_DEVICE || r.managed)
			return -EINVAL;
		known &= r.id != 0;
		id = ret->pieces++ ? mix(mix(1, id), r.id) : r.id;
		ret->gpu = r.gpu;
		at = r.beg + r.size;
	} while (r.size && at < end && at > r.beg);
	if (at < end)
		known = false;		/* a driver that tells no ranges */
	ret->id = known ? id : 0;
	return 0;
}

int braid_gpu_export(const void *data, size_t size, bool pcie, int *ret_fd, uint64_t *ret_offset)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	device_ptr at = (device_ptr)(uintptr_t)data, beg = at & ~(page - 1);
	device_ptr end = (at + size + page - 1) & ~(page - 1);
	int fd = -1, err;

	if (!is_there())
		return -ENOENT;
	if (!cu.get_handle)
		return -EOPNOTSUPP;
	err = result(cu.get_handle(&fd, beg, end - beg, DMA_BUF_FD, pcie ? MAPPING_PCIE : 0));
	if (err)
		return err;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*ret_fd = fd;
	*ret_offset = at - beg;
	return 0;
}

int braid_gpu_enter(void)
{
	int mode = CAPTURE_RELAXED;

	return is_there() && cu.exchange_capture_mode && !cu.exchange_capture_mode(&mode) ?
		       mode : -1;
}

void braid_gpu_leave(int was)
{
	if (was >= 0)
		cu.exchange_capture_mode(&was);
}

int braid_gpu_alloc(size_t size, void **ret)
{
	device_ptr at = 0;
	int err;

	if (!is_there())
		return -ENOENT;
	err = result(cu.mem_alloc(&at, size));
	*ret = (void *)(uintptr_t)at;
	return err;
}

void braid_gpu_free(void *data)
{
	cu.mem_free((device_ptr)(uintptr_t)data);
}

int braid_gpu_write(void *data, const void *from, size_t size)
{
	return result(cu.memcpy_to((device_ptr)(uintptr_t)data, from, size));
}

int braid_gpu_read(void *to, const void *data, size_t size)
{
	return result(cu.memcpy_from(to, (device_ptr)(uintptr_t)data, size));
}
