/* SPDX-License-Identifier: BSD-3-Clause */
/* bar.c - see bar.h.  The calls of libgdrapi are declared here from its public documentation. */
#include "gdr/bar.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>

#include "gdr/cuda.h"

enum { GPUS_MAX = 64, PAGE = 64 << 10, HYPERVISOR = 1u << 31 };

struct pinned {			/* gdr_mh_t */
	unsigned long handle;
};

/* X(result, our name, the library's name, arguments).  Except open: 0 or a positive errno. */
#define CALLS(X) \
	X(void *, open, "gdr_open", (void)) \
	X(int, pin, "gdr_pin_buffer", (void *g, unsigned long addr, size_t size, \
				       uint64_t p2p_token, uint32_t va_space, struct pinned *ret)) \
	X(int, unpin, "gdr_unpin_buffer", (void *g, struct pinned mh)) \
	X(int, map, "gdr_map", (void *g, struct pinned mh, void **ret, size_t size)) \
	X(int, unmap, "gdr_unmap", (void *g, struct pinned mh, void *at, size_t size)) \
	X(int, is_gone, "gdr_get_callback_flag", (void *g, struct pinned mh, int *flag))

static struct {
	void *lib, *g;			/* never closed */
#define MEMBER(result, name, symbol, args) result (*name) args;
	CALLS(MEMBER)
#undef MEMBER
} gdr;

struct braid_bar {
	atomic_bool open;
	struct pinned mh;
	char *at;			/* the CPU's address of: */
	uintptr_t gpu;
	size_t size;
};

static struct braid_bar windows[GPUS_MAX];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int load(char *why, size_t len)
{
	void *lib, *at;

	if (gdr.g)
		return 0;
	lib = dlopen("libgdrapi.so.2", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		dlerror();		/* discard the message, or the application would get it */
		snprintf(why, len, "there is no libgdrapi.so.2");
		return -ENOENT;
	}
#define FIND(result, name, symbol, args) \
	at = dlsym(lib, symbol); \
	memcpy(&gdr.name, &at, sizeof(at)); \
	if (!at) { \
		snprintf(why, len, "libgdrapi.so.2 has no %s", symbol); \
		dlclose(lib); \
		return -ENOENT; \
	}
	CALLS(FIND)
#undef FIND
	gdr.g = gdr.open();
	if (!gdr.g) {
		snprintf(why, len, "libgdrapi.so.2 can't have its driver: is gdrdrv loaded?");
		dlclose(lib);
		return -ENODEV;
	}
	gdr.lib = lib;
	return 0;
}

static int failed(const char *call, int err, char *why, size_t len)
{
	snprintf(why, len, "%s: %s", call, strerror(err));
	return -err;
}

static uintptr_t page_of(uintptr_t at)
{
	return at & ~(uintptr_t)(PAGE - 1);
}

/* Pin and map whole driver pages. */
static int map_pages(struct braid_bar *b, uintptr_t gpu, size_t size, char *why, size_t len)
{
	void *at;
	int err = gdr.pin(gdr.g, gpu, size, 0, 0, &b->mh);

	if (err)
		return failed("gdr_pin_buffer", err, why, len);
	err = gdr.map(gdr.g, b->mh, &at, size);
	if (err) {
		gdr.unpin(gdr.g, b->mh);
		return failed("gdr_map", err, why, len);
	}
	b->at = at;
	b->gpu = gpu;
	b->size = size;
	atomic_store(&b->open, true);
	return 0;
}

/* A mapping disappears with the context or the memory that it was made of. */
static bool is_there(struct braid_bar *b)
{
	int gone = 0;

	if (!b || !atomic_load_explicit(&b->open, memory_order_acquire))
		return false;
	if (gdr.is_gone(gdr.g, b->mh, &gone) || gone) {
		atomic_store(&b->open, false);
		return false;
	}
	return true;
}

/* --- windows of our own --------------------------------------------------------------------- */

static int open_locked(struct braid_bar *w, char *why, size_t len)
{
	void *gpu;
	int err;

	if (atomic_load(&w->open))
		return 0;
	err = load(why, len);
	if (err)
		return err;
	err = braid_gpu_alloc(2 * PAGE, &gpu);
	if (err)
		return failed("cuMemAlloc", -err, why, len);
	err = map_pages(w, page_of((uintptr_t)gpu + PAGE - 1), PAGE, why, len);
	if (err)
		braid_gpu_free(gpu);
	return err;
}

int braid_bar_open(int gpu, char *why, size_t len)
{
	int err;

	if (gpu < 0 || gpu >= GPUS_MAX) {
		snprintf(why, len, "the driver does not name the GPU");
		return -EOPNOTSUPP;
	}
	pthread_mutex_lock(&lock);
	err = open_locked(&windows[gpu], why, len);
	pthread_mutex_unlock(&lock);
	return err;
}

/*
 * A program may end one context and make another.  The caller holds memory of that GPU, so no
 * context ends during this read.
 */
bool braid_bar_read(int gpu)
{
	struct braid_bar *w = gpu >= 0 && gpu < GPUS_MAX ? &windows[gpu] : NULL;

	if (!is_there(w))
		return false;
	/* Without a fence, the CPU may read the window before it sees that the writes are done. */
	__builtin_ia32_mfence();
	(void)*(const volatile uint32_t *)(const void *)w->at;
	return true;
}

/* --- words of the user's memory ------------------------------------------------------------- */

static int map_locked(struct braid_bar *b, uintptr_t beg, size_t size, char *why, size_t len)
{
	int err = load(why, len);

	return err ? err : map_pages(b, beg, size, why, len);
}

int braid_bar_map(const void *data, size_t size, struct braid_bar **ret, char *why, size_t len)
{
	uintptr_t beg = page_of((uintptr_t)data);
	size_t pages = page_of((uintptr_t)data + size + PAGE - 1) - beg;
	struct braid_bar *b;
	int err;

	if ((uintptr_t)data % sizeof(uint64_t) || size < sizeof(uint64_t) ||
	    pages > BRAID_BAR_MAX) {
		snprintf(why, len, "%zu bytes at %p: too many, too few or not aligned", size,
			 data);
		return -EOPNOTSUPP;
	}
	b = calloc(1, sizeof(*b));
	if (!b)
		return failed("calloc", ENOMEM, why, len);
	pthread_mutex_lock(&lock);
	err = map_locked(b, beg, pages, why, len);
	pthread_mutex_unlock(&lock);
	if (err)
		free(b);
	else
		*ret = b;
	return err;
}

void braid_bar_unmap(struct braid_bar *b)
{
	if (!b)
		return;
	pthread_mutex_lock(&lock);
	gdr.unmap(gdr.g, b->mh, b->at, b->size);
	gdr.unpin(gdr.g, b->mh);
	pthread_mutex_unlock(&lock);
	free(b);
}

static volatile uint64_t *word_at(const struct braid_bar *b, const void *at)
{
	return (volatile uint64_t *)(void *)(b->at + ((uintptr_t)at - b->gpu));
}

bool braid_bar_load(struct braid_bar *b, const void *at, uint64_t *ret)
{
	if (!is_there(b))
		return false;
	__builtin_ia32_mfence();
	*ret = *word_at(b, at);
	return true;
}

/* The mapping combines writes: without fences they leave late, and overtake writes elsewhere. */
bool braid_bar_store(struct braid_bar *b, void *at, uint64_t value)
{
	if (!is_there(b))
		return false;
	__builtin_ia32_sfence();
	*word_at(b, at) = value;
	__builtin_ia32_sfence();
	return true;
}

bool braid_bar_virtual(void)
{
	unsigned a, b, c = 0, d;

	return __get_cpuid(1, &a, &b, &c, &d) && c & HYPERVISOR;
}

#else

int braid_bar_open(int gpu, char *why, size_t len)
{
	(void)gpu;
	snprintf(why, len, "not on this kind of CPU");
	return -EOPNOTSUPP;
}

bool braid_bar_read(int gpu)
{
	(void)gpu;
	return false;
}

int braid_bar_map(const void *data, size_t size, struct braid_bar **ret, char *why, size_t len)
{
	(void)data, (void)size, (void)ret;
	return braid_bar_open(0, why, len);
}

void braid_bar_unmap(struct braid_bar *b)
{
	(void)b;
}

bool braid_bar_load(struct braid_bar *b, const void *at, uint64_t *ret)
{
	(void)b, (void)at, (void)ret;
	return false;
}

bool braid_bar_store(struct braid_bar *b, void *at, uint64_t value)
{
	(void)b, (void)at, (void)value;
	return false;
}

bool braid_bar_virtual(void)
{
	return true;
}

#endif
