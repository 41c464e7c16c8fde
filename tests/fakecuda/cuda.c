/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda.c - see ctl.h.  What gdr/cuda.c and tools/info.c call, and no more. */
#include "tests/fakecuda/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { CAPTURING = 900, RELAXED = 2 };
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_SUPPORTED = 801,
       UNKNOWN = 999 };
enum { MEMORY_TYPE = 2, BUFFER_ID = 7, IS_MANAGED = 8, DEVICE_ORDINAL = 9, RANGE_START = 11, RANGE_SIZE = 12 };
enum { TYPE_DEVICE = 2, DMA_BUF_FD = 1, MAPPING_PCIE = 1 };
enum { ALLOCS_MAX = 256, UNIT = 64 << 10 };

struct alloc {				/* live; or free, and still mapped */
	uint64_t at, len;		/* of all pieces */
	uint8_t *bytes;
	int fd;
	unsigned pieces;
	uint64_t id;			/* of the first piece; 0: it is free */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct alloc allocs[ALLOCS_MAX];
static unsigned nallocs;
static uint64_t next_id = 1;

static long has_dmabuf = 1, has_pcie, has_ids = 1, lies, captures, pieces = 1;
static __thread long no_context;
static __thread int mode;

static struct {
	unsigned long k, calls;
	int code;
	bool on;
	char name[64];
} fault;
static long waits;

EXPORT int cuInit(unsigned flags);
EXPORT int cuDeviceGet(int *ret, int ordinal);
EXPORT int cuDevicePrimaryCtxRetain(void **ret, int device);
EXPORT int cuCtxSetCurrent(void *ctx);
EXPORT int cuThreadExchangeStreamCaptureMode(int *ret);
EXPORT int cuCtxGetCurrent(void **ctx);
EXPORT int cuPointerGetAttributes(unsigned n, int *attributes, void **values, uint64_t ptr);
EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size);
EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size);

/* --- what a test says ---------------------------------------------------------------------------- */

static long set_fault(char **w, unsigned n)
{
	if (n < 2)
		return -EINVAL;
	memset(&fault, 0, sizeof(fault));
	fault.code = UNKNOWN;
	fault.k = strtoul(w[1], NULL, 0);
	for (unsigned i = 2; i < n; i++) {
		if (!strcmp(w[i], "on"))
			fault.on = true;
		else if (w[i][0] >= '0' && w[i][0] <= '9')
			fault.code = atoi(w[i]);
		else
			snprintf(fault.name, sizeof(fault.name), "%s", w[i]);
	}
	return 0;
}

static long command(char **w, unsigned n)
{
	const struct {
		const char *name;
		long *value;
	} numbers[] = {
		{ "dmabuf", &has_dmabuf }, { "pcie", &has_pcie }, { "ids", &has_ids }, { "lies", &lies },
		{ "capture", &captures }, { "pieces", &pieces },
	};
	long live = 0;

	if (n == 1 && !strcmp(w[0], "calls"))
		return (long)fault.calls;
	if (n == 1 && !strcmp(w[0], "mode"))
		return mode;
	if (n == 1 && !strcmp(w[0], "waits"))
		return waits;
	for (unsigned i = 0; i < nallocs; i++)
		live += allocs[i].id != 0;
	if (n == 1 && !strcmp(w[0], "live"))
		return live;
	if (n && !strcmp(w[0], "fail"))
		return set_fault(w, n);
	if (n == 2 && !strcmp(w[0], "context")) {
		no_context = !atoi(w[1]);
		return 0;
	}
	for (unsigned i = 0; n == 2 && i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (!strcmp(w[0], numbers[i].name)) {
			*numbers[i].value = atol(w[1]);
			return 0;
		}
	}
	return -EINVAL;
}

static long ctl_locked(const char *cmd)
{
	char copy[128], *w[8], *save;
	unsigned n = 0;

	snprintf(copy, sizeof(copy), "%s", cmd);
	for (char *p = strtok_r(copy, " ", &save); p && n < 8; p = strtok_r(NULL, " ", &save))
		w[n++] = p;
	return command(w, n);
}

static void from_env(void)
{
	static bool done;
	const char *env = getenv("BRAID_TEST_FAKECUDA");
	char *copy, *save;

	if (done || !env)
		return;
	done = true;
	copy = strdup(env);
	for (char *p = copy ? strtok_r(copy, ";", &save) : NULL; p; p = strtok_r(NULL, ";", &save)) {
		if (ctl_locked(p) < 0)
			fprintf(stderr, "fake libcuda: '%s' is not understood\n", p);
	}
	free(copy);
}

static void enter(void)
{
	pthread_mutex_lock(&lock);
	from_env();
}

static int leave(int code)
{
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT long braid_fakecuda_ctl(const char *cmd)
{
	long n;

	enter();
	n = ctl_locked(cmd);
	leave(0);
	return n;
}

/* 0, or the CUresult that this call is to fail with. */
static int begin(const char *name)
{
	enter();
	if (fault.name[0] && strcmp(fault.name, name) != 0)
		return 0;
	fault.calls++;
	return fault.k && (fault.calls == fault.k || (fault.on && fault.calls > fault.k)) ? fault.code : 0;
}

/* --- memory -------------------------------------------------------------------------------------- */

static struct alloc *find(uint64_t ptr, size_t size)
{
	for (unsigned i = 0; i < nallocs; i++) {
		struct alloc *a = &allocs[i];

		if (a->id && ptr >= a->at && ptr - a->at < a->len && size <= a->len - (ptr - a->at))
			return a;
	}
	return NULL;
}

static struct alloc *map_new(uint64_t len)
{
	struct alloc *a = &allocs[nallocs];
	void *at;

	if (nallocs == ALLOCS_MAX)
		return NULL;
	*a = (struct alloc){ .len = len, .fd = memfd_create("gpu", MFD_CLOEXEC) };
	if (a->fd < 0 || ftruncate(a->fd, (off_t)len))
		return NULL;
	at = mmap(NULL, len, PROT_NONE, MAP_SHARED, a->fd, 0);
	a->bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
	if (at == MAP_FAILED || a->bytes == MAP_FAILED)
		return NULL;
	a->at = (uint64_t)(uintptr_t)at;
	nallocs++;
	return a;
}

/* Other memory than was there before: who still has that reads what it was. */
static bool map_again(struct alloc *a)
{
	int fd = memfd_create("gpu", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, (off_t)a->len))
		return false;
	if (mmap((void *)(uintptr_t)a->at, a->len, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
	    mmap(a->bytes, a->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return false;
	close(a->fd);
	a->fd = fd;
	return true;
}

static struct alloc *alloc(size_t size)
{
	uint64_t unit = (uint64_t)pieces * UNIT, len = (size + unit - 1) / unit * unit;

	for (unsigned i = 0; i < nallocs; i++) {
		if (!allocs[i].id && allocs[i].len == len)
			return map_again(&allocs[i]) ? &allocs[i] : NULL;
	}
	return map_new(len);
}

int cuMemAlloc_v2(uint64_t *ret, size_t size)
{
	int code = begin(__func__);
	struct alloc *a = NULL;

	if (!code && no_context)
		code = INVALID_CONTEXT;
	if (!code && captures && mode != RELAXED)
		code = CAPTURING;
	if (!code && !size)
		code = INVALID_VALUE;
	if (!code) {
		a = alloc(size);
		code = a ? OK : OUT_OF_MEMORY;
	}
	if (a) {
		a->pieces = (unsigned)pieces;
		a->id = next_id;
		next_id += a->pieces;
		*ret = a->at;
	}
	return leave(code);
}

int cuMemFree_v2(uint64_t ptr)
{
	int code = begin(__func__);
	struct alloc *a = find(ptr, 0);

	if (!code && (!a || a->at != ptr))
		code = INVALID_VALUE;
	if (a && !code)
		a->id = 0;
	return leave(code);
}

void *braid_fakecuda_bytes(const void *ptr, size_t size)
{
	uint64_t at = (uint64_t)(uintptr_t)ptr;
	struct alloc *a;
	void *bytes;

	enter();
	a = find(at, size);
	bytes = a ? a->bytes + (at - a->at) : NULL;
	leave(0);
	return bytes;
}

bool braid_fakecuda_peermem(const void *ptr, size_t size)
{
	struct alloc *a;
	bool yes;

	enter();
	a = find((uint64_t)(uintptr_t)ptr, size);
	yes = a && a->pieces == 1;
	leave(0);
	return yes;
}

/* --- the rest ------------------------------------------------------------------------------------ */

static int primary;			/* where it is, is the context */

int cuInit(unsigned flags)
{
	(void)flags;
	return leave(begin(__func__));
}

int cuDeviceGet(int *ret, int ordinal)
{
	*ret = ordinal;
	return leave(begin(__func__));
}

int cuDevicePrimaryCtxRetain(void **ret, int device)
{
	(void)device;
	*ret = &primary;
	return leave(begin(__func__));
}

int cuCtxSetCurrent(void *ctx)
{
	int code = begin(__func__);

	if (!code)
		no_context = !ctx;
	return leave(code);
}

int cuThreadExchangeStreamCaptureMode(int *ret)
{
	int code = begin(__func__), was = mode;

	if (!code) {
		mode = *ret;
		*ret = was;
	}
	return leave(code);
}

int cuCtxGetCurrent(void **ctx)
{
	int code = begin(__func__);

	*ctx = code || no_context ? NULL : &primary;
	return leave(code);
}

int cuPointerGetAttributes(unsigned n, int *attributes, void **values, uint64_t ptr)
{
	int code = begin(__func__);
	const struct alloc *a = find(ptr, 0);

	for (unsigned i = 0; i < n && !code; i++) {
		uint64_t piece = a ? a->len / a->pieces : 0, k = a ? (ptr - a->at) / piece : 0;
		uint64_t id = a && has_ids ? a->id + k : 0, beg = a ? a->at + k * piece : 0;
		uint32_t type = a ? TYPE_DEVICE : 0, none = 0;

		switch (attributes[i]) {
		case MEMORY_TYPE:
			memcpy(values[i], &type, sizeof(type));
			break;
		case IS_MANAGED:
		case DEVICE_ORDINAL:
			memcpy(values[i], &none, sizeof(none));
			break;
		case BUFFER_ID:
			memcpy(values[i], &id, sizeof(id));
			break;
		case RANGE_START:
			memcpy(values[i], &beg, sizeof(beg));
			break;
		case RANGE_SIZE:
			memcpy(values[i], &piece, sizeof(piece));
			break;
		default:
			code = INVALID_VALUE;
		}
	}
	return leave(code);
}

/* A DMA-BUF begins where the range does; where in our file that is, its position says. */
int cuMemGetHandleForAddressRange(void *ret, uint64_t ptr, size_t size, int type, unsigned long long flags)
{
	int code = begin(__func__), fd = -1;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	const struct alloc *a = find(ptr, size);
	char path[64];

	if (!code && (!a || type != DMA_BUF_FD || ptr % page || size % page || a->pieces > 1))
		code = INVALID_VALUE;
	if (!code && !has_dmabuf)
		code = NOT_SUPPORTED;
	if (!code && flags & MAPPING_PCIE && !has_pcie)
		code = INVALID_VALUE;
	if (!code) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", a->fd);
		fd = lies ? memfd_create("other", 0) : open(path, O_RDWR);
		if (fd < 0 || (lies && ftruncate(fd, (off_t)a->len)) ||
		    lseek(fd, (off_t)(ptr - a->at), SEEK_SET) < 0)
			code = UNKNOWN;
		else
			memcpy(ret, &fd, sizeof(fd));
	}
	return leave(code);
}

static int copy(int code, uint64_t gpu, void *to, const void *from, size_t size)
{
	const struct alloc *a = find(gpu, size);
	uint8_t *bytes = a ? a->bytes + (gpu - a->at) : NULL;

	waits++;
	if (!code && no_context)
		code = INVALID_CONTEXT;
	if (!code && captures && mode != RELAXED)
		code = CAPTURING;
	if (!code && !a)
		code = INVALID_VALUE;
	if (!code)
		memcpy(to ? to : bytes, to ? bytes : from, size);
	return leave(code);
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size)
{
	return copy(begin(__func__), to, NULL, from, size);
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size)
{
	return copy(begin(__func__), from, to, NULL, size);
}
