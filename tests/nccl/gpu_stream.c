/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_stream.c - streams and events.  A stream is a queue; its thread starts with the first task that
 * may have to wait.  If the stream is idle, the caller itself runs a task that never waits.
 */
#include "tests/nccl/gpu.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STACK = 512 << 10 };

struct task {
	struct task *next;
	void (*fn)(void *arg);
	void *arg;
};

struct gpu_stream {
	struct gpu_stream *next;	/* in the list of all streams */
	struct task *first, **last;
	bool busy, has_thread, closing;
	pthread_t thread;
	pthread_cond_t work;
};

struct gpu_event {
	unsigned long recorded, done;	/* how often */
	unsigned refs;
	double at;			/* when the event was recorded, in ms */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;	/* a task has been done */
static struct gpu_stream *streams;
static struct gpu_stream standard = { .last = &standard.first, .work = PTHREAD_COND_INITIALIZER };

/* The runtime's names for the standard stream are 0, 1 and 2. */
static struct gpu_stream *stream_of(struct gpu_stream *s)
{
	return (uintptr_t)s <= 2 ? &standard : s;
}

static bool idle(const struct gpu_stream *s)
{
	return !s->first && !s->busy;
}

static void *stream_main(void *arg)
{
	struct gpu_stream *s = arg;
	struct task *t;

	pthread_mutex_lock(&lock);
	for (;;) {
		while (!s->first && !s->closing)
			pthread_cond_wait(&s->work, &lock);
		t = s->first;
		if (!t)
			break;
		s->first = t->next;
		if (!s->first)
			s->last = &s->first;
		s->busy = true;
		pthread_mutex_unlock(&lock);
		t->fn(t->arg);
		free(t);
		pthread_mutex_lock(&lock);
		s->busy = false;
		pthread_cond_broadcast(&moved);
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

static int start(struct gpu_stream *s)
{
	pthread_attr_t attr;
	sigset_t all, before;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	err = pthread_create(&s->thread, &attr, stream_main, s);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	s->has_thread = !err;
	return err ? GPU_NO_MEMORY : GPU_OK;
}

int gpu_enqueue(struct gpu_stream *s, void (*fn)(void *arg), void *arg)
{
	struct task *t = malloc(sizeof(*t));
	int code = GPU_OK;

	if (!t)
		return GPU_NO_MEMORY;
	*t = (struct task){ .fn = fn, .arg = arg };
	s = stream_of(s);
	pthread_mutex_lock(&lock);
	if (!s->has_thread)
		code = start(s);
	if (!code) {
		*s->last = t;
		s->last = &t->next;
		pthread_cond_signal(&s->work);
	}
	pthread_mutex_unlock(&lock);
	if (code)
		free(t);
	return code;
}

/* As gpu_enqueue(), for a task that never waits: runs it at once if the stream is idle. */
static int do_or_enqueue(struct gpu_stream *s, void (*fn)(void *arg), void *arg)
{
	bool now;

	s = stream_of(s);
	pthread_mutex_lock(&lock);
	now = idle(s);
	pthread_mutex_unlock(&lock);
	if (!now)
		return gpu_enqueue(s, fn, arg);
	fn(arg);
	return GPU_OK;
}

int gpu_stream_new(struct gpu_stream **ret)
{
	struct gpu_stream *s = calloc(1, sizeof(*s));

	if (!s)
		return GPU_NO_MEMORY;
	s->last = &s->first;
	pthread_cond_init(&s->work, NULL);
	pthread_mutex_lock(&lock);
	s->next = streams;
	streams = s;
	pthread_mutex_unlock(&lock);
	*ret = s;
	return GPU_OK;
}

int gpu_stream_free(struct gpu_stream *s)
{
	struct gpu_stream **p;

	if (stream_of(s) == &standard)
		return GPU_BAD_HANDLE;
	pthread_mutex_lock(&lock);
	for (p = &streams; *p && *p != s; p = &(*p)->next)
		;
	if (*p)
		*p = s->next;
	s->closing = true;
	pthread_cond_signal(&s->work);
	pthread_mutex_unlock(&lock);
	if (s->has_thread)
		pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->work);
	free(s);
	return GPU_OK;
}

int gpu_stream_wait(struct gpu_stream *s)
{
	s = stream_of(s);
	pthread_mutex_lock(&lock);
	while (!idle(s))
		pthread_cond_wait(&moved, &lock);
	pthread_mutex_unlock(&lock);
	return GPU_OK;
}

static int stream_query(struct gpu_stream *s)
{
	bool done;

	pthread_mutex_lock(&lock);
	done = idle(stream_of(s));
	pthread_mutex_unlock(&lock);
	return done ? GPU_OK : GPU_NOT_READY;
}

static int device_wait(void)
{
	pthread_mutex_lock(&lock);
	for (struct gpu_stream *s = streams; s;) {
		if (idle(s)) {
			s = s->next;
		} else {
			pthread_cond_wait(&moved, &lock);
			s = streams;
		}
	}
	pthread_mutex_unlock(&lock);
	return gpu_stream_wait(NULL);
}

/* No stream is ever captured.  The other arguments, which differ between versions, are ignored. */
static int capture_info(struct gpu_stream *s, int *ret_status)
{
	(void)s;
	*ret_status = 0;
	return GPU_OK;
}

static int priorities(int *ret_least, int *ret_greatest)
{
	if (ret_least)
		*ret_least = 0;
	if (ret_greatest)
		*ret_greatest = 0;
	return GPU_OK;
}

/* -- copies ---------------------------------------------------------------------------------------- */

struct copy {
	void *to;
	const void *from;		/* NULL: set to `value` */
	void *taken;
	size_t size;
	int value;
};

static void copy_run(void *arg)
{
	struct copy *c = arg;
	void *to = gpu_bytes(c->to, c->size);

	if (c->taken)
		memcpy(to, c->taken, c->size);
	else if (c->from)
		memmove(to, gpu_bytes(c->from, c->size), c->size);
	else
		memset(to, c->value, c->size);
	free(c->taken);
	free(c);
}

/* A copy from pageable memory reads it now; a copy to pageable memory is complete on return. */
static int copy_async(void *to, const void *from, size_t size, int kind, struct gpu_stream *s)
{
	struct copy *c = calloc(1, sizeof(*c));
	int code;

	(void)kind;
	if (!c)
		return GPU_NO_MEMORY;
	*c = (struct copy){ .to = to, .from = from, .size = size };
	if (gpu_is_pageable(from) && size) {
		c->taken = malloc(size);
		if (!c->taken) {
			free(c);
			return GPU_NO_MEMORY;
		}
		memcpy(c->taken, from, size);
	}
	code = do_or_enqueue(s, copy_run, c);
	return !code && gpu_is_pageable(to) ? gpu_stream_wait(s) : code;
}

static int copy(void *to, const void *from, size_t size, int kind)
{
	int code = copy_async(to, from, size, kind, NULL);

	return code ? code : gpu_stream_wait(NULL);
}

static int set_async(void *to, int value, size_t size, struct gpu_stream *s)
{
	struct copy *c = calloc(1, sizeof(*c));

	if (!c)
		return GPU_NO_MEMORY;
	*c = (struct copy){ .to = to, .size = size, .value = value };
	return do_or_enqueue(s, copy_run, c);
}

static int set(void *to, int value, size_t size)
{
	int code = set_async(to, value, size, NULL);

	return code ? code : gpu_stream_wait(NULL);
}

/* -- events ---------------------------------------------------------------------------------------- */

struct mark {				/* a task: record an event for the n-th time, or wait for that record */
	struct gpu_event *event;
	unsigned long n;
};

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void unref(struct gpu_event *e)
{
	if (!--e->refs)
		free(e);
}

static int event_new(struct gpu_event **ret)
{
	struct gpu_event *e = calloc(1, sizeof(*e));

	if (!e)
		return GPU_NO_MEMORY;
	e->refs = 1;
	*ret = e;
	return GPU_OK;
}

static int event_free(struct gpu_event *e)
{
	pthread_mutex_lock(&lock);
	unref(e);
	pthread_mutex_unlock(&lock);
	return GPU_OK;
}

static void mark_done(void *arg)
{
	struct mark *m = arg;

	pthread_mutex_lock(&lock);
	if (m->n > m->event->done) {
		m->event->done = m->n;
		m->event->at = now_ms();
	}
	pthread_cond_broadcast(&moved);
	unref(m->event);
	pthread_mutex_unlock(&lock);
	free(m);
}

static void mark_wait(void *arg)
{
	struct mark *m = arg;

	pthread_mutex_lock(&lock);
	while (m->event->done < m->n)
		pthread_cond_wait(&moved, &lock);
	unref(m->event);
	pthread_mutex_unlock(&lock);
	free(m);
}

static struct mark *mark_new(struct gpu_event *e, bool record)
{
	struct mark *m = malloc(sizeof(*m));

	if (!m)
		return NULL;
	pthread_mutex_lock(&lock);
	e->refs++;
	if (record)
		e->recorded++;
	*m = (struct mark){ e, e->recorded };
	pthread_mutex_unlock(&lock);
	return m;
}

static int event_query(struct gpu_event *e)
{
	bool done;

	pthread_mutex_lock(&lock);
	done = e->done >= e->recorded;
	pthread_mutex_unlock(&lock);
	return done ? GPU_OK : GPU_NOT_READY;
}

static int event_record(struct gpu_event *e, struct gpu_stream *s)
{
	struct mark *m = mark_new(e, true);

	return m ? do_or_enqueue(s, mark_done, m) : GPU_NO_MEMORY;
}

static int stream_wait_event(struct gpu_stream *s, struct gpu_event *e, unsigned flags)
{
	struct mark *m;

	(void)flags;
	if (event_query(e) == GPU_OK)
		return GPU_OK;
	m = mark_new(e, false);
	return m ? gpu_enqueue(s, mark_wait, m) : GPU_NO_MEMORY;
}

static int event_wait(struct gpu_event *e)
{
	struct mark *m = mark_new(e, false);

	if (!m)
		return GPU_NO_MEMORY;
	mark_wait(m);
	return GPU_OK;
}

static int event_elapsed(float *ret, const struct gpu_event *from, const struct gpu_event *to)
{
	*ret = (float)(to->at - from->at);
	return GPU_OK;
}

static int launch_host(struct gpu_stream *s, void (*fn)(void *), void *arg)
{
	return gpu_enqueue(s, fn, arg);
}

void *gpu_stream_entry(const char *name)
{
	static const struct {
		const char *name;
		void *fn;
	} entries[] = {
		{ "cudaStreamCreate", gpu_stream_new }, { "cudaStreamCreateWithFlags", gpu_stream_new },
		{ "cudaStreamCreateWithPriority", gpu_stream_new },
		{ "cudaStreamDestroy", gpu_stream_free }, { "cudaStreamSynchronize", gpu_stream_wait },
		{ "cudaStreamQuery", stream_query }, { "cudaStreamWaitEvent", stream_wait_event },
		{ "cudaStreamIsCapturing", capture_info }, { "cudaStreamGetCaptureInfo", capture_info },
		{ "cudaStreamGetCaptureInfo_v2", capture_info },
		{ "cudaStreamGetCaptureInfo_v3", capture_info },
		{ "cudaDeviceGetStreamPriorityRange", priorities }, { "cudaDeviceSynchronize", device_wait },
		{ "cudaMemcpy", copy }, { "cudaMemcpyAsync", copy_async },
		{ "cudaMemset", set }, { "cudaMemsetAsync", set_async },
		{ "cudaEventCreate", event_new }, { "cudaEventCreateWithFlags", event_new },
		{ "cudaEventDestroy", event_free }, { "cudaEventRecord", event_record },
		{ "cudaEventQuery", event_query }, { "cudaEventSynchronize", event_wait },
		{ "cudaEventElapsedTime", event_elapsed }, { "cudaLaunchHostFunc", launch_host },
	};

	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		if (!strcmp(entries[i].name, name))
			return entries[i].fn;
	}
	return NULL;
}
