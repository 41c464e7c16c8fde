/* SPDX-License-Identifier: BSD-3-Clause */
/* cuda.c - see ctl.h.  Only the functions that gdr/ and tools/info/plugin.c call; half are in stream.c. */
#include "tests/fakecuda/ctl.h"
#include "tests/fakecuda/fake.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEMORY_TYPE = 2, BUFFER_ID = 7, IS_MANAGED = 8, DEVICE_ORDINAL = 9, RANGE_START = 11, RANGE_SIZE = 12 };
enum { FLUSH_OPTIONS = 117, FLUSH_HOST = 1, FLUSH_TO_OWNER = 100 };
enum { TYPE_HOST = 1, TYPE_DEVICE = 2, DMA_BUF_FD = 1, MAPPING_PCIE = 1 };
enum { ALLOCS_MAX = 256, UNIT = 64 << 10 };

struct alloc {				/* allocated; or freed, and still mapped */
	uint64_t at, len;		/* of all pieces */
	uint8_t *bytes;
	int fd;
	unsigned pieces;
	uint64_t id;			/* of the first piece; 0: it is free */
	uint32_t gpu;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct alloc allocs[ALLOCS_MAX];
static unsigned nallocs;
static uint64_t next_id = 1;

static long has_dmabuf = 1, has_pcie, has_ids = 1, lies, captures, pieces = 1, spans, mixed, number;
static long kernel;
static long can_flush, taken;
static atomic_long seen, stored, pinned;
static PER_THREAD int mode;

static struct {
	unsigned long k, calls;
	int code;
	bool on;
	char name[64];
} fault;
static long waits, blocked;

EXPORT int cuInit(unsigned flags);
EXPORT int cuThreadExchangeStreamCaptureMode(int *ret);
EXPORT int cuCtxGetDevice(int *ret);
EXPORT int cuDeviceGetAttribute(int *ret, int attribute, int device);
EXPORT int cuDeviceGetPCIBusId(char *ret, int len, int device);
EXPORT int cuFlushGPUDirectRDMAWrites(int target, int scope);
EXPORT int cuPointerGetAttributes(unsigned n, int *attributes, void **values, uint64_t ptr);
EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size);
EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size);

/* --- commands of a test --------------------------------------------------------------------------- */

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
		{ "capture", &captures }, { "pieces", &pieces }, { "spans", &spans }, { "mixed", &mixed },
		{ "number", &number }, { "flush", &can_flush }, { "kernel", &kernel },
	};
	long live = 0, ret;

	if (stream_command(w, n, &ret))
		return ret;
	if (n == 1 && !strcmp(w[0], "calls"))
		return (long)fault.calls;
	if (n == 1 && !strcmp(w[0], "mode"))
		return mode;
	if (n == 1 && !strcmp(w[0], "waits"))
		return waits;
	if (n == 1 && !strcmp(w[0], "blocked"))
		return blocked;
	if (n == 1 && !strcmp(w[0], "seen"))
		return atomic_load(&seen);
	if (n == 1 && !strcmp(w[0], "stored"))
		return atomic_load(&stored);
	if (n == 1 && !strcmp(w[0], "pinned"))
		return atomic_load(&pinned);
	if (n == 1 && !strncmp(w[0], "take", 4))
		return w[0][4] ? taken : !(taken = 1);
	for (unsigned i = 0; i < nallocs; i++)
		live += allocs[i].id != 0;
	if (n == 1 && !strcmp(w[0], "live"))
		return live;
	if (n && !strcmp(w[0], "fail"))
		return set_fault(w, n);
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

void fake_lock(void)
{
	pthread_mutex_lock(&lock);
	from_env();
}

void fake_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

int fake_end(int code)
{
	fake_unlock();
	return code;
}

EXPORT long braid_fakecuda_ctl(const char *cmd)
{
	long n;

	fake_lock();
	n = ctl_locked(cmd);
	fake_unlock();
	return n;
}

int fake_begin(const char *name)
{
	fake_lock();
	if (fault.name[0] && strcmp(fault.name, name) != 0)
		return 0;
	fault.calls++;
	return fault.k && (fault.calls == fault.k || (fault.on && fault.calls > fault.k)) ? fault.code : 0;
}

int fake_capture(int code)
{
	return !code && captures && mode != RELAXED ? CAPTURING : code;
}

int fake_wait(int code)
{
	waits++;
	blocked += kernel;
	return code;
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

/* An address of the driver's pages, as a real driver has it. */
static void *map_aligned(uint64_t len, int fd)
{
	uint8_t *room = mmap(NULL, len + UNIT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (room == MAP_FAILED)
		return room;
	room += -(uintptr_t)room % UNIT;
	return mmap(room, len, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0);
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
	at = map_aligned(len, a->fd);
	a->bytes = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
	if (at == MAP_FAILED || a->bytes == MAP_FAILED)
		return NULL;
	a->at = (uint64_t)(uintptr_t)at;
	nallocs++;
	return a;
}

/* Puts new memory at the same address; a NIC that has the old memory registered reads the old. */
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
	int code = fake_begin(__func__);
	struct alloc *a = NULL;

	code = fake_wait(fake_capture(fake_context(code)));
	if (!code && !size)
		code = INVALID_VALUE;
	if (!code) {
		a = alloc(size);
		code = a ? OK : OUT_OF_MEMORY;
	}
	if (a) {
		a->pieces = (unsigned)pieces;
		a->gpu = (uint32_t)number;
		a->id = next_id;
		next_id += a->pieces;
		*ret = a->at;
	}
	return fake_end(code);
}

int cuMemFree_v2(uint64_t ptr)
{
	int code = fake_begin(__func__);
	struct alloc *a = find(ptr, 0);

	code = fake_wait(code);
	if (!code && (!a || a->at != ptr))
		code = INVALID_VALUE;
	if (a && !code)
		a->id = 0;
	return fake_end(code);
}

uint8_t *fake_bytes(uint64_t at, size_t size, uint64_t *ret_id)
{
	const struct alloc *a = find(at, size);

	*ret_id = a ? a->id : 0;
	return a ? a->bytes + (at - a->at) : NULL;
}

void *braid_fakecuda_bytes(const void *ptr, size_t size)
{
	uint64_t at = (uint64_t)(uintptr_t)ptr;
	struct alloc *a;
	void *bytes;

	fake_lock();
	a = find(at, size);
	bytes = a ? a->bytes + (at - a->at) : NULL;
	fake_unlock();
	return bytes;
}

bool braid_fakecuda_peermem(const void *ptr, size_t size)
{
	struct alloc *a;
	bool yes;

	fake_lock();
	a = find((uint64_t)(uintptr_t)ptr, size);
	yes = a && a->pieces == 1;
	fake_unlock();
	return yes;
}

/* --- the rest ------------------------------------------------------------------------------------ */

int cuInit(unsigned flags)
{
	(void)flags;
	return fake_end(fake_begin(__func__));
}

int cuThreadExchangeStreamCaptureMode(int *ret)
{
	int code = fake_begin(__func__), was = mode;

	if (!code) {
		mode = *ret;
		*ret = was;
	}
	return fake_end(code);
}

int cuCtxGetDevice(int *ret)
{
	int code = fake_begin(__func__);

	*ret = 0;
	return fake_end(fake_context(code));
}

int cuDeviceGetAttribute(int *ret, int attribute, int device)
{
	int code = fake_begin(__func__);

	*ret = can_flush ? FLUSH_HOST : 0;
	return fake_end(code ? code : attribute != FLUSH_OPTIONS || device ? INVALID_VALUE : OK);
}

/* A PCI address that no host has. */
int cuDeviceGetPCIBusId(char *ret, int len, int device)
{
	int code = fake_begin(__func__);

	snprintf(ret, (size_t)len, "FFFF:FF:%02X.7", (unsigned)device);
	return fake_end(code);
}

int cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	int code = fake_begin(__func__);

	if (!code && (!can_flush || target || scope != FLUSH_TO_OWNER))
		code = NOT_SUPPORTED;
	code = fake_context(code);
	fake_unlock();
	if (!code)
		braid_fakecuda_seen();
	return code;
}

void braid_fakecuda_seen(void)
{
	void *nic = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
	void *at = nic ? dlsym(nic, "braid_fake_settle") : NULL;
	void (*settle)(void);

	memcpy(&settle, &at, sizeof(at));
	if (settle)
		settle();
	atomic_fetch_add(&seen, 1);
}

bool braid_fakecuda_fails(const char *name)
{
	return fake_end(fake_begin(name));
}

void *braid_fakecuda_map(const void *ptr, size_t size)
{
	uint64_t at = (uint64_t)(uintptr_t)ptr;
	void *map = NULL;
	struct alloc *a;

	fake_lock();
	a = find(at, size);
	if (a)
		map = mmap(NULL, size, PROT_NONE, MAP_SHARED, a->fd, (off_t)(at - a->at));
	fake_unlock();
	return map == MAP_FAILED ? NULL : map;
}

void braid_fakecuda_count(long more_stored, long more_pinned)
{
	atomic_fetch_add(&stored, more_stored);
	atomic_fetch_add(&pinned, more_pinned);
}

int cuPointerGetAttributes(unsigned n, int *attributes, void **values, uint64_t ptr)
{
	int code = fake_begin(__func__);
	const struct alloc *a = find(ptr, 0);

	for (unsigned i = 0; i < n && !code; i++) {
		uint64_t piece = a ? a->len / a->pieces : 0, k = a ? (ptr - a->at) / piece : 0;
		uint64_t id = a && has_ids ? a->id + k : 0, beg = a ? a->at + k * piece : 0;
		bool is_host = a && mixed && k == a->pieces - 1;
		uint32_t type = is_host ? TYPE_HOST : a ? TYPE_DEVICE : 0, none = 0;

		switch (attributes[i]) {
		case MEMORY_TYPE:
			memcpy(values[i], &type, sizeof(type));
			break;
		case DEVICE_ORDINAL:
			memcpy(values[i], a ? &a->gpu : &none, sizeof(none));
			break;
		case IS_MANAGED:
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
	return fake_end(code);
}

/*
 * The DMA-BUF is the allocation's memfd, opened again.  A real one begins at `ptr`; here the file
 * position is set to the offset of `ptr`, and the fake NIC adds it (tests/fake/mr.c).
 */
int cuMemGetHandleForAddressRange(void *ret, uint64_t ptr, size_t size, int type, unsigned long long flags)
{
	int code = fake_begin(__func__), fd = -1;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	const struct alloc *a = find(ptr, size);
	char path[64];

	if (!code && (!a || type != DMA_BUF_FD || ptr % page || size % page || (a->pieces > 1 && !spans)))
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
	return fake_end(code);
}

static int copy(int code, uint64_t gpu, void *to, const void *from, size_t size)
{
	const struct alloc *a = find(gpu, size);
	uint8_t *bytes = a ? a->bytes + (gpu - a->at) : NULL;

	code = fake_wait(fake_capture(fake_context(code)));
	if (!code && !a)
		code = INVALID_VALUE;
	if (!code)
		memcpy(to ? to : bytes, to ? bytes : from, size);
	return fake_end(code);
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size)
{
	return copy(fake_begin(__func__), to, NULL, from, size);
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size)
{
	return copy(fake_begin(__func__), from, to, NULL, size);
}
