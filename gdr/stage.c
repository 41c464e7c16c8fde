/* SPDX-License-Identifier: BSD-3-Clause */
/* stage.c - see stage.h. */
#include "gdr/stage.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "gdr/cuda.h"
#include "gdr/driver.h"

enum { LINE = 128, FLAG = 8 };
enum { HOST = 1, DEVICE = 2 };			/* CUmemorytype */
enum { NON_BLOCKING = 1, PORTABLE = 1, NO_TIMING = 2 };	/* of streams, host memory, events */
/* CUflushGPUDirectRDMAWritesTarget and ...Scope. */
enum { FLUSH_CURRENT_CTX = 0, FLUSH_TO_OWNER = 100 };

/*
 * States of a piece.  LEFT: its owner is done with it, but the copy may still be under way.  LOST:
 * whether the copy is over will never be known.
 */
enum { FREE, IN_USE, LEFT, LOST };

struct braid_staged {
	struct braid_stage *stage;
	_Atomic int state;
	int after;			/* its state once its owner is done */
	void *event;			/* recorded on the stream behind its copies */
	char *bytes;
	int err;
};

struct braid_stage {
	struct braid_stage *next;	/* all of them, under the lock */
	int gpu, device;
	unsigned refs;
	void *ctx, *stream, *memory;
	struct braid_staged slot[BRAID_STAGE_SLOTS];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct braid_stage *stages;

/* --- the context --------------------------------------------------------------------------- */

int braid_stage_enter(const struct braid_stage *s, int *ret_mode)
{
	int err;

	*ret_mode = braid_gpu_enter();
	err = braid_cu_result(braid_cu.ctx_push(s->ctx));
	if (err)
		braid_gpu_leave(*ret_mode);
	return err;
}

void braid_stage_leave(int mode)
{
	void *ctx;

	braid_cu.ctx_pop(&ctx);
	braid_gpu_leave(mode);
}

/* --- what a copy needs --------------------------------------------------------------------- */

/* Free what make() made, also if it failed half-way. */
static void unmake(struct braid_stage *s)
{
	int mode;

	if (s->ctx && !braid_stage_enter(s, &mode)) {
		for (unsigned i = 0; i < BRAID_STAGE_SLOTS; i++) {
			if (s->slot[i].event)
				braid_cu.event_destroy(s->slot[i].event);
		}
		if (s->memory)
			braid_cu.host_free(s->memory);
		if (s->stream)
			braid_cu.stream_destroy(s->stream);
		braid_stage_leave(mode);
	}
	if (s->ctx)
		braid_cu.primary_release(s->device);
	free(s);
}

/* NULL, or the name of the call that failed. */
static const char *make_within(struct braid_stage *s, int *ret_err)
{
	*ret_err = braid_cu_result(braid_cu.stream_create(&s->stream, NON_BLOCKING));
	if (*ret_err) {
		s->stream = NULL;
		return "cuStreamCreate";
	}
	*ret_err = braid_cu_result(braid_cu.host_alloc(
		&s->memory, (size_t)BRAID_STAGE_SLOTS * BRAID_STAGE_PIECE, PORTABLE));
	if (*ret_err) {
		s->memory = NULL;
		return "cuMemHostAlloc";
	}
	for (unsigned i = 0; i < BRAID_STAGE_SLOTS; i++) {
		struct braid_staged *p = &s->slot[i];

		*ret_err = braid_cu_result(braid_cu.event_create(&p->event, NO_TIMING));
		if (*ret_err) {
			p->event = NULL;
			return "cuEventCreate";
		}
		p->stage = s;
		p->bytes = (char *)s->memory + (size_t)i * BRAID_STAGE_PIECE;
	}
	return NULL;
}

static const char *make(struct braid_stage *s, int *ret_err)
{
	const char *why;
	int mode;

	*ret_err = braid_cu_result(braid_cu.device_get(&s->device, s->gpu));
	if (*ret_err)
		return "cuDeviceGet";
	mode = braid_gpu_enter();
	*ret_err = braid_cu_result(braid_cu.primary_retain(&s->ctx, s->device));
	braid_gpu_leave(mode);
	if (*ret_err) {
		s->ctx = NULL;
		return "cuDevicePrimaryCtxRetain";
	}
	*ret_err = braid_stage_enter(s, &mode);
	if (*ret_err)
		return "cuCtxPushCurrent";
	why = make_within(s, ret_err);
	braid_stage_leave(mode);
	return why;
}

static int get_locked(int gpu, struct braid_stage **ret, const char **ret_why)
{
	struct braid_stage *s = stages;
	int err;

	while (s && s->gpu != gpu)
		s = s->next;
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (!s) {
			*ret_why = "malloc";
			return -ENOMEM;
		}
		s->gpu = gpu;
		*ret_why = make(s, &err);
		if (*ret_why) {
			unmake(s);
			return err;
		}
		s->next = stages;
		stages = s;
	}
	s->refs++;
	*ret = s;
	return 0;
}

int braid_stage_get(int gpu, struct braid_stage **ret, const char **ret_why)
{
	char why[128];
	int err;

	*ret_why = "libcuda.so.1";
	err = braid_gpu_load(why, sizeof(why));
	if (err)
		return err;
	*ret_why = braid_cu.no_stage;
	if (*ret_why)
		return -EOPNOTSUPP;
	pthread_mutex_lock(&lock);
	err = get_locked(gpu, ret, ret_why);
	pthread_mutex_unlock(&lock);
	return err;
}

void braid_stage_hold(struct braid_stage *s)
{
	pthread_mutex_lock(&lock);
	s->refs++;
	pthread_mutex_unlock(&lock);
}

static bool is_idle(struct braid_stage *s)
{
	bool idle = true;

	for (unsigned i = 0; i < BRAID_STAGE_SLOTS; i++) {
		struct braid_staged *p = &s->slot[i];

		if (atomic_load(&p->state) == LEFT) {
			braid_stage_test(p);
			braid_stage_end(p);
		}
		idle &= atomic_load(&p->state) == FREE;
	}
	return idle;
}

void braid_stage_put(struct braid_stage *s)
{
	struct braid_stage **at = &stages;

	if (!s)
		return;
	pthread_mutex_lock(&lock);
	if (!--s->refs && is_idle(s)) {
		while (*at != s)
			at = &(*at)->next;
		*at = s->next;
		unmake(s);
	}
	pthread_mutex_unlock(&lock);
}

/* --- a piece ------------------------------------------------------------------------------- */

static bool claim_piece(struct braid_staged *p, int from)
{
	return atomic_compare_exchange_strong(&p->state, &from, IN_USE);
}

/* Take a free slot.  -EAGAIN: all are in use; -EIO: all are lost for good. */
static int slot(struct braid_stage *s, struct braid_staged **ret)
{
	int err = -EIO;

	for (unsigned i = 0; i < BRAID_STAGE_SLOTS; i++) {
		struct braid_staged *p = *ret = &s->slot[i];

		if (claim_piece(p, FREE))
			return 0;
		if (claim_piece(p, LEFT)) {
			braid_stage_test(p);
			if (p->after == FREE)
				return 0;
			braid_stage_end(p);
		}
		if (atomic_load(&p->state) != LOST)
			err = -EAGAIN;
	}
	return err;
}

/* Copy `width` bytes of each line, from offset `x` on. */
static int columns(const struct braid_staged *p, char *at, size_t lines, size_t x, size_t width)
{
	struct braid_cu_rect r = {
		.from_type = HOST, .from_host = p->bytes, .from_x = x, .from_pitch = LINE,
		.to_type = DEVICE, .to_gpu = (braid_cu_ptr)(uintptr_t)at, .to_x = x,
		.to_pitch = LINE, .width = width, .height = lines,
	};

	return lines ? braid_cu_result(braid_cu.copy_rect(&r, p->stage->stream)) : 0;
}

/* Copy flags after payload.  A rest shorter than a line holds no LL128 flag. */
static int copy_in(const struct braid_staged *p, char *at, size_t len)
{
	size_t lines = len / LINE, rest = len % LINE;
	int err = columns(p, at, lines, 0, LINE - FLAG);

	if (!err && rest)
		err = braid_cu_result(braid_cu.copy_to(
			(braid_cu_ptr)(uintptr_t)at + len - rest, p->bytes + len - rest, rest,
			p->stage->stream));
	return err ? err : columns(p, at, lines, LINE - FLAG, FLAG);
}

int braid_stage_begin(struct braid_stage *s, char *at, const void *own, size_t len, bool to_gpu,
		      struct braid_staged **ret)
{
	struct braid_staged *p;
	int mode, err;

	err = slot(s, &p);
	if (err)
		return err;
	err = braid_stage_enter(s, &mode);
	if (err) {
		atomic_store(&p->state, FREE);
		return err;
	}
	if (to_gpu) {
		memcpy(p->bytes, own, len);
		p->err = copy_in(p, at, len);
	} else {
		p->err = braid_cu_result(braid_cu.copy_from(
			p->bytes, (braid_cu_ptr)(uintptr_t)at, len, s->stream));
	}
	/* Also after an error: what is under way must end before the memory is reused. */
	err = braid_cu_result(braid_cu.event_record(p->event, s->stream));
	braid_stage_leave(mode);
	if (err)
		p->err = err;
	p->after = err ? LOST : LEFT;
	*ret = p;
	return 0;
}

/* An error other than "not ready" does not say whether the copy is over: the piece is lost. */
int braid_stage_test(struct braid_staged *p)
{
	int mode, code;

	if (braid_stage_is_lost(p))
		return p->err;
	if (braid_stage_enter(p->stage, &mode))
		return -EAGAIN;
	code = braid_cu.event_query(p->event);
	braid_stage_leave(mode);
	if (code == BRAID_CU_NOT_READY)
		return -EAGAIN;
	p->after = code ? LOST : FREE;
	if (code)
		p->err = braid_cu_result(code);
	return p->err;
}

bool braid_stage_is_lost(const struct braid_staged *p)
{
	return p->after == LOST;
}

const void *braid_stage_bytes(const struct braid_staged *p)
{
	return p->bytes;
}

void braid_stage_end(struct braid_staged *p)
{
	atomic_store(&p->state, p->after);
}

int braid_stage_flush(struct braid_stage *s)
{
	int mode, err;

	if (!braid_cu.flush_writes)
		return -EOPNOTSUPP;
	err = braid_stage_enter(s, &mode);
	if (err)
		return err;
	err = braid_cu_result(braid_cu.flush_writes(FLUSH_CURRENT_CTX, FLUSH_TO_OWNER));
	braid_stage_leave(mode);
	return err;
}
