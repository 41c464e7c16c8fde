/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stream.c - contexts, streams, events and asynchronous copies; see ctl.h.
 *
 * One engine thread executes the operations of all streams, in the order in which they were posted.
 * It copies from the last word to the first and pauses in the middle.  So code fails that relies on
 * an order of bytes, or on completion when the call returns.
 */
#include "tests/fakecuda/fake.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { OPS = 4096, HOSTS = 64, NON_BLOCKING = 1, ON_HOST = 1, ON_DEVICE = 2 };

struct event {
	uint64_t due;			/* how many operations are before it */
};

struct op {
	uint64_t gpu, id;
	uint8_t *host;
	size_t gpu_pitch, host_pitch, width, height;
	bool to_gpu;
};

struct rect {				/* CUDA_MEMCPY2D */
	size_t from_x, from_y;
	int from_type;
	const void *from_host;
	uint64_t from_gpu;
	void *from_array;
	size_t from_pitch, to_x, to_y;
	int to_type;
	void *to_host;
	uint64_t to_gpu;
	void *to_array;
	size_t to_pitch, width, height;
};

EXPORT int cuDeviceGet(int *ret, int ordinal);
EXPORT int cuDevicePrimaryCtxRetain(void **ret, int device);
EXPORT int cuDevicePrimaryCtxRelease_v2(int device);
EXPORT int cuCtxSetCurrent(void *ctx);
EXPORT int cuCtxGetCurrent(void **ctx);
EXPORT int cuCtxPushCurrent_v2(void *ctx);
EXPORT int cuCtxPopCurrent_v2(void **ctx);
EXPORT int cuMemHostAlloc(void **ret, size_t size, unsigned flags);
EXPORT int cuMemFreeHost(void *ptr);
EXPORT int cuStreamCreate(void **ret, unsigned flags);
EXPORT int cuStreamDestroy_v2(void *stream);
EXPORT int cuEventCreate(void **ret, unsigned flags);
EXPORT int cuEventDestroy_v2(void *event);
EXPORT int cuEventRecord(void *event, void *stream);
EXPORT int cuEventQuery(void *event);
EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream);
EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream);
EXPORT int cuMemcpy2DAsync_v2(const struct rect *r, void *stream);

static int primary;			/* its address is the context */
static long retained, made;		/* how many contexts; streams, events and host buffers */
static PER_THREAD int base = -1;	/* has the thread a context?  -1: only the main thread has */
static PER_THREAD unsigned pushed;

static struct op ops[OPS];
static uint64_t posted;			/* under the lock */
static _Atomic uint64_t done;
static bool running;
static struct {
	uint8_t *at;
	size_t size;
} hosts[HOSTS];

static _Atomic long engine_us = 50, held;
static long copies, stray;

bool stream_command(char **w, unsigned n, long *ret)
{
	const struct {
		const char *name;
		long value;
	} said[] = {
		{ "staging", retained + made }, { "copies", copies }, { "stray", stray },
		{ "under_way", (long)(posted - done) },
	};

	*ret = 0;
	for (unsigned i = 0; n == 1 && i < sizeof(said) / sizeof(said[0]); i++) {
		if (!strcmp(w[0], said[i].name)) {
			*ret = said[i].value;
			return true;
		}
	}
	if (n != 2)
		return false;
	if (!strcmp(w[0], "context"))
		base = atoi(w[1]);
	else if (!strcmp(w[0], "engine"))
		engine_us = atol(w[1]);
	else if (!strcmp(w[0], "hold"))
		held = atol(w[1]);
	else
		return false;
	return true;
}

/* --- contexts ------------------------------------------------------------------------------------ */

static bool has_context(void)
{
	return pushed || (base < 0 ? syscall(SYS_gettid) == getpid() : base);
}

int fake_context(int code)
{
	return code || has_context() ? code : INVALID_CONTEXT;
}

int cuDeviceGet(int *ret, int ordinal)
{
	*ret = ordinal;
	return fake_end(fake_begin(__func__));
}

int cuDevicePrimaryCtxRetain(void **ret, int device)
{
	int code = fake_capture(fake_begin(__func__));

	(void)device;
	*ret = &primary;
	retained += !code;
	return fake_end(code);
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	int code = fake_begin(__func__);

	(void)device;
	retained -= !code;
	return fake_end(code);
}

int cuCtxSetCurrent(void *ctx)
{
	int code = fake_begin(__func__);

	if (!code)
		base = ctx != NULL;
	return fake_end(code);
}

int cuCtxGetCurrent(void **ctx)
{
	int code = fake_begin(__func__);

	*ctx = !code && has_context() ? &primary : NULL;
	return fake_end(code);
}

int cuCtxPushCurrent_v2(void *ctx)
{
	int code = fake_begin(__func__);

	if (!code && (ctx != &primary || !retained))
		code = INVALID_CONTEXT;
	pushed += !code;
	return fake_end(code);
}

/* It pops even if it is to fail, so that a test of the failure can go on. */
int cuCtxPopCurrent_v2(void **ctx)
{
	int code = fake_begin(__func__);

	*ctx = &primary;
	if (!pushed)
		return fake_end(INVALID_CONTEXT);
	pushed--;
	return fake_end(code);
}

/* --- memory, streams, events --------------------------------------------------------------------- */

static int usual(const char *name)
{
	return fake_capture(fake_context(fake_begin(name)));
}

/* Makes an object of that size, unless `code` is an error. */
static int make(void **ret, size_t size, int code)
{
	if (!code) {
		*ret = calloc(1, size);
		made++;
	}
	return code;
}

static int unmake(void *thing, int code)
{
	if (!code) {
		free(thing);
		made--;
	}
	return fake_end(code);
}

static unsigned host_of(const void *ptr, size_t size)
{
	const uint8_t *at = ptr;
	unsigned i = 0;

	while (i < HOSTS && !(hosts[i].at && at >= hosts[i].at && at + size <= hosts[i].at + hosts[i].size))
		i++;
	return i;
}

int cuMemHostAlloc(void **ret, size_t size, unsigned flags)
{
	int code = make(ret, size, fake_wait(usual(__func__)));
	unsigned i = 0;

	(void)flags;
	while (!code && hosts[i].at)
		i++;
	if (!code) {
		hosts[i].at = *ret;
		hosts[i].size = size;
	}
	return fake_end(code);
}

int cuMemFreeHost(void *ptr)
{
	int code = fake_wait(usual(__func__));
	unsigned i = host_of(ptr, 0);

	if (!code && i == HOSTS)
		code = INVALID_VALUE;
	if (!code)
		hosts[i].at = NULL;
	return unmake(ptr, code);
}

int cuStreamCreate(void **ret, unsigned flags)
{
	int code = make(ret, sizeof(flags), usual(__func__));

	if (!code)
		memcpy(*ret, &flags, sizeof(flags));
	return fake_end(code);
}

int cuStreamDestroy_v2(void *stream)
{
	return unmake(stream, usual(__func__));
}

int cuEventCreate(void **ret, unsigned flags)
{
	(void)flags;
	return fake_end(make(ret, sizeof(struct event), usual(__func__)));
}

int cuEventDestroy_v2(void *event)
{
	return unmake(event, usual(__func__));
}

int cuEventRecord(void *event, void *stream)
{
	int code = usual(__func__);

	(void)stream;
	if (!code)
		((struct event *)event)->due = posted;
	return fake_end(code);
}

int cuEventQuery(void *event)
{
	int code = usual(__func__);

	if (!code && done < ((struct event *)event)->due)
		code = NOT_READY;
	return fake_end(code);
}

/* --- the engine ---------------------------------------------------------------------------------- */

static void nap(void)
{
	struct timespec ts = { 0, engine_us * 500 };

	nanosleep(&ts, NULL);
}

static void word(uint8_t *to, const uint8_t *from, size_t n)
{
	uint64_t w;

	if (n == sizeof(w)) {
		memcpy(&w, from, n);
		*(volatile uint64_t *)(void *)to = w;
		return;
	}
	while (n--)
		((volatile uint8_t *)to)[n] = from[n];
}

/* Copies a row by aligned words of 8 bytes, and the bytes left over at both ends. */
static void row(uint8_t *to, const uint8_t *from, size_t n, bool rest)
{
	size_t odd = -(uintptr_t)to & 7, half = n / 2;

	while (n) {
		size_t left = n > odd ? (n - odd) % 8 : n, len = left ? left : 8;

		if (n <= odd)
			len = n;
		n -= len;
		word(to + n, from + n, len);
		if (rest && n <= half) {
			nap();
			rest = false;
		}
	}
}

static void copy(const struct op *o)
{
	uint64_t id = 0;
	size_t len = o->height ? (o->height - 1) * o->gpu_pitch + o->width : 0;
	uint8_t *bytes;

	fake_lock();
	bytes = fake_bytes(o->gpu, len, &id);
	stray += !bytes || id != o->id;
	copies++;
	fake_unlock();
	nap();
	for (size_t i = o->height; bytes && i--;) {
		uint8_t *there = bytes + i * o->gpu_pitch, *here = o->host + i * o->host_pitch;

		row(o->to_gpu ? there : here, o->to_gpu ? here : there, o->width, i == o->height / 2);
	}
	fake_lock();
	stray += bytes != fake_bytes(o->gpu, len, &id) || id != o->id;
	fake_unlock();
}

static void *engine(void *unused)
{
	struct op o;

	for (;;) {
		bool any;

		fake_lock();
		any = done < posted && !held;
		if (any)
			o = ops[done % OPS];
		fake_unlock();
		if (any) {
			copy(&o);
			done++;
		} else {
			struct timespec ts = { 0, 20000 };

			nanosleep(&ts, NULL);
		}
	}
	return unused;
}

static int post(struct op o, void *stream, int code)
{
	size_t gpu_len = o.height ? (o.height - 1) * o.gpu_pitch + o.width : 0;
	size_t host_len = o.height ? (o.height - 1) * o.host_pitch + o.width : 0;
	unsigned flags = 0;
	pthread_t thread;

	if (stream)
		memcpy(&flags, stream, sizeof(flags));
	/* The default stream waits for all others, and so does one that is not NON_BLOCKING. */
	if (flags != NON_BLOCKING || host_of(o.host, host_len) == HOSTS)
		code = fake_wait(code);
	if (!code && (!fake_bytes(o.gpu, gpu_len, &o.id) || posted - done == OPS))
		code = INVALID_VALUE;
	if (!code && !running) {
		running = !pthread_create(&thread, NULL, engine, NULL);
		if (running)
			pthread_detach(thread);
	}
	if (!code)
		ops[posted++ % OPS] = o;
	return fake_end(code);
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream)
{
	return post((struct op){ .gpu = to, .host = (uint8_t *)(uintptr_t)from, .width = size, .height = 1,
				 .to_gpu = true }, stream, usual(__func__));
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream)
{
	return post((struct op){ .gpu = from, .host = to, .width = size, .height = 1 }, stream,
		    usual(__func__));
}

/* Only into the GPU. */
int cuMemcpy2DAsync_v2(const struct rect *r, void *stream)
{
	int code = usual(__func__);

	if (!code && (r->from_type != ON_HOST || r->to_type != ON_DEVICE || r->from_y || r->to_y ||
		      r->from_array || r->to_array || r->from_x + r->width > r->from_pitch ||
		      r->to_x + r->width > r->to_pitch))
		code = INVALID_VALUE;
	return post((struct op){ .gpu = r->to_gpu + r->to_x, .gpu_pitch = r->to_pitch,
				 .host = (uint8_t *)(uintptr_t)r->from_host + r->from_x,
				 .host_pitch = r->from_pitch, .width = r->width, .height = r->height,
				 .to_gpu = true }, stream, code);
}
