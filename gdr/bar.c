/* SPDX-License-Identifier: BSD-3-Clause */
/* bar.c - see bar.h.  The calls of libgdrapi are declared here from its public documentation. */
#include "gdr/bar.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
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
	X(int, is_gone, "gdr_get_callback_flag", (void *g, struct pinned mh, int *flag))

static struct {
	void *lib, *g;			/* never closed */
#define MEMBER(result, name, symbol, args) result (*name) args;
	CALLS(MEMBER)
#undef MEMBER
} gdr;

static struct window {
	atomic_bool open;
	struct pinned mh;
	const volatile uint32_t *at;
} windows[GPUS_MAX];

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

/* Pin and map one whole driver page of `gpu`, GPU memory of our own. */
static int open_window(struct window *w, void *gpu, char *why, size_t len)
{
	uintptr_t beg = ((uintptr_t)gpu + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
	void *at;
	int err = gdr.pin(gdr.g, beg, PAGE, 0, 0, &w->mh);

	if (err)
		return failed("gdr_pin_buffer", err, why, len);
	err = gdr.map(gdr.g, w->mh, &at, PAGE);
	if (err) {
		gdr.unpin(gdr.g, w->mh);
		return failed("gdr_map", err, why, len);
	}
	w->at = at;
	atomic_store(&w->open, true);
	return 0;
}

static int open_locked(struct window *w, char *why, size_t len)
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
	err = open_window(w, gpu, why, len);
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
 * A window disappears with the context in which it was made, and a program may end one context and
 * make another.  The caller holds memory of that GPU, so no context ends during this read.
 */
bool braid_bar_read(int gpu)
{
	struct window *w = gpu >= 0 && gpu < GPUS_MAX ? &windows[gpu] : NULL;
	int gone = 0;

	if (!w || !atomic_load_explicit(&w->open, memory_order_acquire))
		return false;
	if (gdr.is_gone(gdr.g, w->mh, &gone) || gone) {
		atomic_store(&w->open, false);
		return false;
	}
	/* Without a fence, the CPU may read the window before it sees that the writes are done. */
	__builtin_ia32_mfence();
	(void)*w->at;
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

bool braid_bar_virtual(void)
{
	return true;
}

#endif
