/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda.c - see cuda.h. */
#include "gdr/cuda.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gdr/driver.h"

enum {				/* CUpointer_attribute */
	MEMORY_TYPE = 2, BUFFER_ID = 7, IS_MANAGED = 8, DEVICE_ORDINAL = 9, RANGE_START = 11,
	RANGE_SIZE = 12,
};

enum { TYPE_DEVICE = 2 };	/* CUmemorytype */
enum { FLUSH_OPTIONS = 117 };	/* CUdevice_attribute */
enum { FLUSH_HOST = 1, FLUSH_CURRENT = 0, FLUSH_TO_OWNER = 100 };
enum { CAPTURE_RELAXED = 2 };	/* CUstreamCaptureMode */
enum { DMA_BUF_FD = 1, MAPPING_PCIE = 1 };	/* CUmemRangeHandleType, CUmemRangeFlags */

struct braid_cu braid_cu;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool loaded;

int braid_cu_result(int code)
{
	switch (code) {
	case BRAID_CU_OK:
		return 0;
	case BRAID_CU_OUT_OF_MEMORY:
		return -ENOMEM;
	case BRAID_CU_NOT_INITIALIZED:
	case BRAID_CU_INVALID_CONTEXT:
		return -ENOTCONN;
	case BRAID_CU_INVALID_VALUE:
	case BRAID_CU_NOT_SUPPORTED:
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

	/* Look for the file: a failed dlopen() would change the application's next dlerror(). */
	braid_cu.lib = dl_iterate_phdr(is_driver, NULL) ?
			       dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) : NULL;
	if (!braid_cu.lib) {
		snprintf(why, len, "this process has not loaded libcuda.so.1");
		return -ENOENT;
	}
#define FIND(who, name, symbol, args) \
	at = dlsym(braid_cu.lib, symbol); \
	memcpy(&braid_cu.name, &at, sizeof(at)); \
	if (BRAID_CU_##who == BRAID_CU_ALL && !at) { \
		snprintf(why, len, "libcuda.so.1 is too old: it has no %s", symbol); \
		dlclose(braid_cu.lib); \
		return -ENOENT; \
	} \
	if (BRAID_CU_##who == BRAID_CU_STAGE && !at && !braid_cu.no_stage) \
		braid_cu.no_stage = symbol;
	BRAID_CU_CALLS(FIND)
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

	return is_there() && !braid_cu.ctx_get_current(&ctx) && ctx;
}

struct range {
	unsigned type, managed;
	int gpu;
	uint64_t id, beg, size;
};

static int query_pointer(braid_cu_ptr at, struct range *r)
{
	int attributes[] = { MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL, BUFFER_ID, RANGE_START,
			     RANGE_SIZE };
	void *values[] = { &r->type, &r->managed, &r->gpu, &r->id, &r->beg, &r->size };

	*r = (struct range){ 0 };
	return braid_cu_result(braid_cu.pointer_get_attributes(
		sizeof(values) / sizeof(values[0]), attributes, values, at));
}

static uint64_t mix(uint64_t h, uint64_t id)
{
	h = (h ^ id) * UINT64_C(0x9e3779b97f4a7c15);
	return h ^ h >> 29;
}

int braid_gpu_query(const void *data, size_t size, struct braid_gpu_mem *ret)
{
	braid_cu_ptr at = (braid_cu_ptr)(uintptr_t)data, end = at + size;
	bool known = true, host = false, device = false;
	uint64_t id = 0;
	struct range r;

	*ret = (struct braid_gpu_mem){ 0 };
	if (!is_there())
		return -ENOENT;
	do {
		int err = query_pointer(at, &r);

		if (err)
			return err;
		if (r.type != TYPE_DEVICE || r.managed)
			host = true;
		else
			device = true;
		known &= r.id != 0;
		id = ret->pieces++ ? mix(mix(1, id), r.id) : r.id;
		ret->gpu = r.gpu;
		at = r.beg + r.size;
	} while (r.size && at < end && at > r.beg);
	if (host)
		return device ? -EOPNOTSUPP : -EINVAL;
	if (at < end)
		known = false;		/* the driver reports no ranges */
	ret->id = known ? id : 0;
	return 0;
}

int braid_gpu_export(const void *data, size_t size, bool pcie, int *ret_fd, uint64_t *ret_offset)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	braid_cu_ptr at = (braid_cu_ptr)(uintptr_t)data, beg = at & ~(page - 1);
	braid_cu_ptr end = (at + size + page - 1) & ~(page - 1);
	int fd = -1, err;

	if (!is_there())
		return -ENOENT;
	if (!braid_cu.get_handle)
		return -EOPNOTSUPP;
	err = braid_cu_result(braid_cu.get_handle(&fd, beg, end - beg, DMA_BUF_FD,
						  pcie ? MAPPING_PCIE : 0));
	if (err)
		return err;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*ret_fd = fd;
	*ret_offset = at - beg;
	return 0;
}

/* The driver's handle for the GPU of that number. */
static int device(int gpu, int *ret)
{
	if (!is_there())
		return -ENOENT;
	return gpu < 0 || !braid_cu.device_get ? -EOPNOTSUPP :
						 braid_cu_result(braid_cu.device_get(ret, gpu));
}

int braid_gpu_pci(int gpu, char *ret, size_t len)
{
	int dev, err = device(gpu, &dev);

	if (!err && !braid_cu.device_pci)
		err = -EOPNOTSUPP;
	if (!err)
		err = braid_cu_result(braid_cu.device_pci(ret, (int)len, dev));
	for (; !err && *ret; ret++)
		*ret = (char)tolower((unsigned char)*ret);
	return err;
}

int braid_gpu_can_flush(int gpu)
{
	int dev, options = 0, err = device(gpu, &dev);

	if (!err && (!braid_cu.flush_writes || !braid_cu.device_attribute ||
		     !braid_cu.ctx_get_device))
		err = -EOPNOTSUPP;
	if (!err)
		err = braid_cu_result(braid_cu.device_attribute(&options, FLUSH_OPTIONS, dev));
	return err ? err : options & FLUSH_HOST ? 0 : -EOPNOTSUPP;
}

int braid_gpu_flush(int gpu)
{
	int dev, current, err = device(gpu, &dev);

	if (!err)
		err = braid_cu_result(braid_cu.ctx_get_device(&current));
	if (!err && current != dev)
		err = -ENOTCONN;
	return err ? err : braid_cu_result(braid_cu.flush_writes(FLUSH_CURRENT, FLUSH_TO_OWNER));
}

int braid_gpu_enter(void)
{
	int mode = CAPTURE_RELAXED;

	return is_there() && braid_cu.exchange_capture_mode &&
		       !braid_cu.exchange_capture_mode(&mode) ? mode : -1;
}

void braid_gpu_leave(int was)
{
	if (was >= 0)
		braid_cu.exchange_capture_mode(&was);
}

int braid_gpu_alloc(size_t size, void **ret)
{
	braid_cu_ptr at = 0;
	int err;

	if (!is_there())
		return -ENOENT;
	err = braid_cu_result(braid_cu.mem_alloc(&at, size));
	*ret = (void *)(uintptr_t)at;
	return err;
}

void braid_gpu_free(void *data)
{
	braid_cu.mem_free((braid_cu_ptr)(uintptr_t)data);
}

int braid_gpu_write(void *data, const void *from, size_t size)
{
	return braid_cu_result(braid_cu.memcpy_to((braid_cu_ptr)(uintptr_t)data, from, size));
}

int braid_gpu_read(void *to, const void *data, size_t size)
{
	return braid_cu_result(braid_cu.memcpy_from(to, (braid_cu_ptr)(uintptr_t)data, size));
}
