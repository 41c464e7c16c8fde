/* SPDX-License-Identifier: BSD-3-Clause */
/* fakegpu.c - see fakegpu.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "core/mem/mrcache.h"
#include "tests/lib/fakegpu.h"

enum { WINDOWS = 8, ROOM = 1 << 20 };

struct fake_gpu gpu;
static char *memory;			/* nobody may touch it */
static struct win *at[WINDOWS];
static unsigned n;

int setup_gpu(void **state)
{
	memset(&gpu, 0, sizeof(gpu));
	n = 0;
	memory = mmap(NULL, WINDOWS * ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	return setup_channel_lanes(state);
}

int teardown_gpu(void **state)
{
	teardown_channel(state);
	munmap(memory, WINDOWS * ROOM);
	return 0;
}

struct win *win_gpu(size_t size, bool never_reset)
{
	struct win *w = win_like(B, size, &(struct braid_mr){ .gpu = true });

	assert_true(n < WINDOWS && size <= ROOM);
	at[n] = w;
	w->w.data = memory + (size_t)n++ * ROOM;
	w->w.never_reset = never_reset;
	null_settle(&pair);
	return w;
}

static char *bytes_at(const char *p)
{
	size_t off = (size_t)(p - memory);

	assert_true(p >= memory && off < n * (size_t)ROOM);
	return at[off / ROOM]->bytes + off % ROOM;
}

void __wrap_braid_gpucopy_begin(struct braid_gpucopy *c, atomic_uint *copies,
				const struct braid_mr *mr, char *place, void *own, size_t len,
				bool to_gpu);
int __wrap_braid_gpucopy_move(struct braid_gpucopy *c);
void __wrap_braid_gpucopy_end(struct braid_gpucopy *c);
int __wrap_braid_mr_flush(const struct braid_mr *mr, char *place, struct braid_mr_flush *f);

void __wrap_braid_gpucopy_begin(struct braid_gpucopy *c, atomic_uint *copies,
				const struct braid_mr *mr, char *place, void *own, size_t len,
				bool to_gpu)
{
	assert_true(mr->gpu);
	*c = (struct braid_gpucopy){
		.mr = mr, .of = mr, .copies = copies,
		.left = { .at = place, .own = own, .len = len, .to_gpu = to_gpu },
	};
	atomic_fetch_add(copies, 1);
	gpu.begun++;
}

static void over(struct braid_gpucopy *c)
{
	atomic_fetch_sub(c->copies, 1);
	c->mr = NULL;
}

int __wrap_braid_gpucopy_move(struct braid_gpucopy *c)
{
	const struct braid_gpu_copy *l = &c->left;

	assert_non_null(c->mr);
	if (gpu.slow && gpu.slow--)
		return -EAGAIN;
	if (gpu.answer == -EAGAIN)
		return -EAGAIN;
	if (!gpu.answer) {
		memcpy(l->to_gpu ? bytes_at(l->at) : l->own, l->to_gpu ? l->own : bytes_at(l->at), l->len);
		gpu.written += l->to_gpu;
		gpu.read += !l->to_gpu;
	}
	over(c);
	return gpu.answer;
}

void __wrap_braid_gpucopy_end(struct braid_gpucopy *c)
{
	if (!c->mr)
		return;
	gpu.ended++;
	over(c);
}

int __wrap_braid_mr_flush(const struct braid_mr *mr, char *place, struct braid_mr_flush *f)
{
	(void)f;
	assert_true(mr->gpu);
	bytes_at(place);
	gpu.flushes += gpu.flush_answer != -EAGAIN;
	return gpu.flush_answer;
}
