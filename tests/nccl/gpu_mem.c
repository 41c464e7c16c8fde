/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_mem.c - memory, all of it the host's.  A table has the ranges that were allocated or registered
 * here; all other memory is pageable.  With BRAID_TEST_GPU_FAKECUDA=1, allocations large enough for a
 * network's buffer are memory of tests/fakecuda, which the CPU reaches at another address
 * (gpu_bytes()).
 */
#include "tests/nccl/gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 4096, FAKECUDA_MIN = 64 << 10 };
enum { TYPE_NONE = 0, TYPE_HOST = 1, TYPE_DEVICE = 2 };
enum { OWNED = 1, FAKE = 2, REGISTERED = 4 };

struct range {
	char *at, *bytes;		/* its address for NCCL, and for the CPU */
	size_t size;
	int type, flags;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct range *ranges;		/* by address */
static size_t nranges, room;

/* -- the table ------------------------------------------------------------------------------------ */

/* The first range that ends after `at`. */
static size_t place(const void *at)
{
	size_t lo = 0, hi = nranges;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (ranges[mid].at + ranges[mid].size <= (const char *)at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct range *find(const void *at)
{
	size_t i = place(at);

	return i < nranges && ranges[i].at <= (const char *)at ? &ranges[i] : NULL;
}

static int add(struct range r)
{
	size_t i;
	int code = GPU_OK;

	pthread_rwlock_wrlock(&lock);
	if (nranges == room) {
		size_t n = room ? 2 * room : 256;
		struct range *p = realloc(ranges, n * sizeof(*p));

		if (p) {
			ranges = p;
			room = n;
		}
	}
	if (nranges < room) {
		i = place(r.at);
		memmove(ranges + i + 1, ranges + i, (nranges - i) * sizeof(*ranges));
		ranges[i] = r;
		nranges++;
	} else {
		code = GPU_NO_MEMORY;
	}
	pthread_rwlock_unlock(&lock);
	return code;
}

static int take(const void *at, int flags, struct range *ret)
{
	struct range *r;
	int code = GPU_INVALID;

	pthread_rwlock_wrlock(&lock);
	r = find(at);
	if (r && r->at == at && (r->flags & flags)) {
		*ret = *r;
		nranges--;
		memmove(r, r + 1, (nranges - (size_t)(r - ranges)) * sizeof(*r));
		code = GPU_OK;
	}
	pthread_rwlock_unlock(&lock);
	return code;
}

void *gpu_bytes(const void *at, size_t size)
{
	struct range *r;
	char *bytes = (char *)(uintptr_t)at;

	(void)size;
	if (!gpu_fakecuda(NULL))
		return bytes;
	pthread_rwlock_rdlock(&lock);
	r = find(at);
	if (r)
		bytes = r->bytes + ((const char *)at - r->at);
	pthread_rwlock_unlock(&lock);
	return bytes;
}

bool gpu_is_pageable(const void *at)
{
	bool no;

	pthread_rwlock_rdlock(&lock);
	no = find(at) != NULL;
	pthread_rwlock_unlock(&lock);
	return !no;
}

unsigned gpu_live(void)
{
	unsigned n;

	pthread_rwlock_rdlock(&lock);
	n = (unsigned)nranges;
	pthread_rwlock_unlock(&lock);
	return n;
}

/* -- tests/fakecuda -------------------------------------------------------------------------------- */

static void *library;

static void open_library(void)
{
	const char *env = getenv("BRAID_TEST_GPU_FAKECUDA");

	if (env && !strcmp(env, "1"))
		library = dlopen("libcuda.so.1", RTLD_NOW);
}

void *gpu_fakecuda(const char *name)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, open_library);
	return library && name ? dlsym(library, name) : library;
}

static int fake_malloc(struct range *r)
{
	int (*alloc)(uint64_t *, size_t);
	void *(*bytes)(const void *, size_t);
	uint64_t at = 0;
	int code;

	*(void **)&alloc = gpu_fakecuda("cuMemAlloc_v2");
	*(void **)&bytes = gpu_fakecuda("braid_fakecuda_bytes");
	if (!alloc || !bytes)
		return GPU_NOT_SUPPORTED;
	code = alloc(&at, r->size);
	r->at = (char *)(uintptr_t)at;
	r->bytes = bytes(r->at, r->size);
	r->flags |= FAKE;
	return code;
}

/* -- allocations ----------------------------------------------------------------------------------- */

static int allocate(void **ret, size_t size, int type)
{
	struct range r = { .size = size ? size : 1, .type = type, .flags = OWNED };
	int code = GPU_OK;

	if (type == TYPE_DEVICE && size >= FAKECUDA_MIN && gpu_fakecuda(NULL)) {
		code = fake_malloc(&r);
	} else {
		r.size = (r.size + ALIGN - 1) / ALIGN * ALIGN;
		r.at = r.bytes = mmap(NULL, r.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (r.at == MAP_FAILED)
			code = GPU_NO_MEMORY;
	}
	if (!code)
		code = add(r);
	if (!code)
		*ret = r.at;
	return code;
}

static int release(void *at, int flags)
{
	struct range r;
	int (*fake_free)(uint64_t);
	int code;

	if (!at)
		return GPU_OK;
	code = take(at, flags, &r);
	if (code || !(flags & OWNED))
		return code;
	if (!(r.flags & FAKE))
		return munmap(r.at, r.size) ? GPU_INVALID : GPU_OK;
	*(void **)&fake_free = gpu_fakecuda("cuMemFree_v2");
	return fake_free((uint64_t)(uintptr_t)r.at);
}

int gpu_malloc(void **ret, size_t size)
{
	return allocate(ret, size, TYPE_DEVICE);
}

int gpu_free(void *at)
{
	return release(at, OWNED);
}

static int host_alloc(void **ret, size_t size, unsigned flags)
{
	(void)flags;
	return allocate(ret, size, TYPE_HOST);
}

static int host_register(void *at, size_t size, unsigned flags)
{
	(void)flags;
	return add((struct range){ .at = at, .bytes = at, .size = size, .type = TYPE_HOST,
		.flags = REGISTERED });
}

static int host_unregister(void *at)
{
	return release(at, REGISTERED);
}

static int host_get_device_pointer(void **ret, void *at, unsigned flags)
{
	(void)flags;
	*ret = at;
	return GPU_OK;
}

static int malloc_async(void **ret, size_t size, void *stream)
{
	(void)stream;
	return gpu_malloc(ret, size);
}

static int malloc_from_pool(void **ret, size_t size, void *pool, void *stream)
{
	(void)pool;
	return malloc_async(ret, size, stream);
}

static int pool_create(void **ret, const void *properties)
{
	static char pool;

	(void)properties;
	*ret = &pool;
	return GPU_OK;
}

static void free_now(void *at)
{
	gpu_free(at);
}

static int free_async(void *at, struct gpu_stream *stream)
{
	return gpu_enqueue(stream, free_now, at);
}

static int pool_ok(void)
{
	return GPU_OK;
}

/* -- what an address is ---------------------------------------------------------------------------- */

struct attributes {			/* the runtime's; newer releases have more fields */
	int type, device;
	void *device_ptr, *host_ptr;
};

static int pointer_get_attributes(struct attributes *ret, const void *at)
{
	void *ptr = (void *)(uintptr_t)at;
	struct range *r;

	pthread_rwlock_rdlock(&lock);
	r = find(at);
	*ret = (struct attributes){ .type = r ? r->type : TYPE_NONE };
	if (r) {
		ret->device_ptr = ptr;
		ret->host_ptr = r->type == TYPE_HOST ? ptr : NULL;
	} else {
		ret->host_ptr = ptr;
		ret->device = -1;
	}
	pthread_rwlock_unlock(&lock);
	return GPU_OK;
}

static int mem_get_address_range(uint64_t *ret_at, size_t *ret_size, uint64_t at)
{
	struct range *r;

	pthread_rwlock_rdlock(&lock);
	r = find((void *)(uintptr_t)at);
	if (r && ret_at)
		*ret_at = (uint64_t)(uintptr_t)r->at;
	if (r && ret_size)
		*ret_size = r->size;
	pthread_rwlock_unlock(&lock);
	return r ? GPU_OK : GPU_INVALID;
}

static int mem_get_info(size_t *ret_free, size_t *ret_all)
{
	*ret_free = *ret_all = (size_t)40 << 30;
	return GPU_OK;
}

/* Valid within one process only. */
struct ipc_handle {
	long pid;
	void *at;
};

static int ipc_get(void *ret, void *at)
{
	struct ipc_handle h = { getpid(), at };

	memcpy(ret, &h, sizeof(h));
	return GPU_OK;
}

struct ipc_bytes {			/* by value, as the runtime takes it */
	char bytes[64];
};

static int ipc_open(void **ret, struct ipc_bytes handle, unsigned flags)
{
	struct ipc_handle h;

	(void)flags;
	memcpy(&h, &handle, sizeof(h));
	*ret = h.at;
	return h.pid == getpid() ? GPU_OK : GPU_NOT_SUPPORTED;
}

static int ipc_close(void *at)
{
	(void)at;
	return GPU_OK;
}

void *gpu_memory_entry(const char *name)
{
	static const struct {
		const char *name;
		void *fn;
	} entries[] = {
		{ "cudaMalloc", gpu_malloc }, { "cudaFree", gpu_free }, { "cudaHostAlloc", host_alloc },
		{ "cudaMallocHost", host_alloc }, { "cudaFreeHost", gpu_free },
		{ "cudaHostRegister", host_register }, { "cudaHostUnregister", host_unregister },
		{ "cudaHostGetDevicePointer", host_get_device_pointer },
		{ "cudaMallocAsync", malloc_async }, { "cudaMallocFromPoolAsync", malloc_from_pool },
		{ "cudaFreeAsync", free_async }, { "cudaMemPoolCreate", pool_create },
		{ "cudaMemPoolDestroy", pool_ok }, { "cudaMemPoolSetAttribute", pool_ok },
		{ "cudaMemPoolTrimTo", pool_ok },
		{ "cudaPointerGetAttributes", pointer_get_attributes }, { "cudaMemGetInfo", mem_get_info },
		{ "cuMemGetAddressRange", mem_get_address_range },
		{ "cudaIpcGetMemHandle", ipc_get }, { "cudaIpcOpenMemHandle", ipc_open },
		{ "cudaIpcCloseMemHandle", ipc_close },
	};

	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		if (!strcmp(entries[i].name, name))
			return entries[i].fn;
	}
	return NULL;
}
